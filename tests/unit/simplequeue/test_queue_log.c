/* queue_log: what is encoded is decoded, and no other bytes are. */
#include "support/cm.h"

#include "simplequeue/queue/queue_log.h"

#include <stdlib.h>

static struct queue_record decode(struct bytes payload)
{
    struct queue_record r;
    const char *reason;
    assert_true(queue_log_decode(payload, &r, &reason));
    return r;
}

static void append_all(struct buf *out, const struct bytes *messages, size_t n)
{
    for (size_t i = 0; i < n; i++)
        buf_append_bytes(out, messages[i]);
}

static void puts_and_moves(void **state)
{
    struct bytes messages[2] = {BYTES_LITERAL("a\0b"), BYTES_LITERAL("\n")};
    struct queue_record_item item, moved[2] = {{.ids = {3, 3}, .tries = 9, .message = messages[0]},
                                       {.ids = {8, 8}, .tries = 1, .message = messages[1]}};
    struct buf out = {0};
    (void)state;
    queue_log_put(&out, 41, messages, 2);
    append_all(&out, messages, 2);
    struct queue_record r = decode(buf_bytes(&out));
    assert_int_equal(r.type, RECORD_PUT);
    assert_int_equal(r.id, 41);
    for (size_t i = 0; i < 2; i++)
        assert_true(queue_record_next(&r, &item) && bytes_equal(item.message, messages[i]));
    assert_false(queue_record_next(&r, &item));
    buf_clear(&out);
    queue_log_put_late(&out, 43, messages, 2, 77);
    append_all(&out, messages, 2);
    r = decode(buf_bytes(&out));
    assert_true(r.type == RECORD_PUT_LATE && r.id == 43 && r.time == 77 && queue_record_is_dense(&r));
    for (size_t i = 0; i < 2; i++)
        assert_true(queue_record_next(&r, &item) && bytes_equal(item.message, messages[i]));
    assert_false(queue_record_next(&r, &item));
    buf_clear(&out);
    queue_log_move(&out, 50, moved, 2);
    append_all(&out, messages, 2);
    r = decode(buf_bytes(&out));
    assert_int_equal(r.type, RECORD_MOVE);
    for (size_t i = 0; i < 2; i++) {
        assert_true(queue_record_next(&r, &item) && bytes_equal(item.message, messages[i]));
        assert_int_equal(item.ids.first, moved[i].ids.first);
        assert_int_equal(item.tries, moved[i].tries);
    }
    buf_free(&out);
}

static void removals_and_openings(void **state)
{
    struct id_ranges ids = {0};
    struct queue_record_item item;
    struct buf out = {0};
    (void)state;
    id_ranges_add(&ids, 4);
    id_ranges_add(&ids, 5);
    id_ranges_add(&ids, 9);
    assert_int_equal(ids.n, 2);
    queue_log_remove(&out, 10, &ids);
    struct queue_record r = decode(buf_bytes(&out));
    assert_int_equal(r.id, 10);
    assert_true(queue_record_next(&r, &item));
    assert_int_equal(item.ids.last, 5);
    assert_true(queue_record_next(&r, &item));
    assert_int_equal(item.ids.first, 9);
    assert_false(queue_record_next(&r, &item));
    buf_clear(&out);
    struct queue_openings openings = {
        .at = {{1, "0136d2f3a000aaaaaaaaaaaa"}, {9, "0136d2f3b000bbbbbbbbbbbb"}}, .n = 2};
    queue_log_open(&out, 10, 77, &openings);
    r = decode(buf_bytes(&out));
    assert_int_equal(r.lease_base, 77);
    for (size_t i = 0; i < 2; i++) {
        char opening[OPENING_TEXT];
        assert_true(queue_record_next(&r, &item));
        assert_int_equal(item.ids.first, openings.at[i].first);
        opening_decode(item.opening.ptr, opening);
        assert_string_equal(opening, openings.at[i].opening);
    }
    assert_false(queue_record_next(&r, &item));
    id_ranges_free(&ids);
    buf_free(&out);
}

static void what_is_set_aside(void **state)
{
    struct queue_shared shared = {0};
    struct queue *q = queue_new(&shared, 1, 1, NULL);
    struct bytes message = BYTES_LITERAL("x");
    struct id_ranges ids = {0};
    struct queue_record_item item;
    struct buf out = {0};
    (void)state;
    queue_add_commit(q, queue_add(q, &message, 1), 1, 0);
    struct id_range one = {1, 1};
    uint64_t lease = queue_reserve(q, "", 1, 100, 0, &ids);
    id_ranges_free(&ids);
    queue_hold(q, lease, &one, 1, &ids);
    queue_log_bury(&out, q, &ids, 123456, BYTES_LITERAL("no\0good"));
    struct queue_record r = decode(buf_bytes(&out));
    assert_true(bytes_equal(r.reason, BYTES_LITERAL("no\0good")));
    assert_int_equal(r.time, 123456);
    assert_true(queue_record_next(&r, &item));
    assert_int_equal(item.tries, 1);
    buf_clear(&out);
    queue_log_delay(&out, q, &ids, -5);
    r = decode(buf_bytes(&out));
    assert_int_equal(r.time, -5);
    assert_int_equal(r.id, 2);
    buf_free(&out);
    queue_remove(q, &ids);
    id_ranges_free(&ids);
    queue_free(&q);
    assert_true(shared.bytes == 0 && shared.messages == 0 && shared.owners == 0 && shared.memory.all == 0);
    heap_free(&shared.deadlines);
}

/* Every cut, and every byte changed: refused, or walked without reading outside (the sanitizers watch). What is read from
 * a stream is measured first: a measure is never of less than what is decoded. */
static void damage(struct buf *out)
{
    struct queue_record r;
    struct queue_record_item item;
    const char *reason;
    assert_true(queue_log_decode(buf_bytes(out), &r, &reason));
    assert_int_equal(queue_log_measure(buf_bytes(out)), out->len);
    for (size_t len = 0; len < out->len; len++) {
        char *copy = mem_alloc(len + 1);
        memcpy(copy, out->ptr, len);
        assert_false(queue_log_decode(bytes_of(copy, len), &r, &reason));
        assert_int_equal(queue_log_measure(bytes_of(copy, len)), 0);
        free(copy);
    }
    for (size_t at = 0; at < out->len; at++)
        for (int value = 0; value < 256; value++) {
            char was = out->ptr[at];
            out->ptr[at] = (char)value;
            size_t size = queue_log_measure(buf_bytes(out));
            if (queue_log_decode(buf_bytes(out), &r, &reason)) {
                assert_int_equal(size, out->len);
                while (queue_record_next(&r, &item))
                    assert_true(item.message.len + item.reason.len <= out->len);
            }
            out->ptr[at] = was;
        }
    buf_append_char(out, 'x');
    assert_false(queue_log_decode(buf_bytes(out), &r, &reason));
    buf_clear(out);
}

static void damaged_ones(void **state)
{
    struct bytes messages[2] = {BYTES_LITERAL("hello"), BYTES_LITERAL("world")},
                 why = BYTES_LITERAL("because");
    struct queue_record_item items[2] = {
        {.ids = {3, 3}, .tries = 9, .message = messages[0], .kept = KEPT_DELAYED},
        {.ids = {5, 5}, .message = messages[1], .kept = KEPT_BURIED, .reason = why}};
    struct queue_shared shared = {0};
    struct queue *q = queue_new(&shared, 1, 1, NULL);
    struct id_ranges ids = {0};
    struct buf out = {0};
    (void)state;
    queue_log_put(&out, 7, messages, 2);
    append_all(&out, messages, 2);
    damage(&out);
    queue_log_put_late(&out, 7, messages, 2, 99);
    append_all(&out, messages, 2);
    damage(&out);
    queue_log_move(&out, 7, items, 2);
    append_all(&out, messages, 2);
    damage(&out);
    queue_log_keep(&out, 7, items, 2);
    append_all(&out, messages, 2);
    buf_append_bytes(&out, why);
    damage(&out);
    queue_add_commit(q, queue_add(q, messages, 2), 2, 0);
    queue_take(q, 2, 100, &ids);
    queue_log_remove(&out, 7, &ids);
    damage(&out);
    queue_log_delay(&out, q, &ids, 99);
    damage(&out);
    queue_log_bury(&out, q, &ids, 99, why);
    damage(&out);
    queue_log_open(&out, 7, 99,
        &(struct queue_openings){
            .at = {{1, "0136d2f3a000aaaaaaaaaaaa"}, {2, "0136d2f3b000bbbbbbbbbbbb"}}, .n = 2});
    damage(&out);
    id_ranges_free(&ids);
    queue_free(&q);
    heap_free(&shared.deadlines);
    buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(puts_and_moves),
        cmocka_unit_test(removals_and_openings),
        cmocka_unit_test(what_is_set_aside),
        cmocka_unit_test(damaged_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
