/* queue: random operations beside a model that keeps a plain array, and the rules one by one. */
#include "support/cm.h"

#include "simplequeue/queue/queue.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static struct queue_shared shared;

static struct queue *fresh(void)
{
    shared = (struct queue_shared){0};
    return queue_new(&shared, 1, 100, NULL);
}

static void done(struct queue *q)
{
    queue_free(&q);
    assert_null(q);
    assert_true(shared.bytes == 0 && shared.messages == 0 && shared.owners == 0);
    assert_true(shared.memory.all == 0 && shared.memory.spilled == 0);
    assert_null(heap_first(&shared.deadlines));
    heap_free(&shared.deadlines);
}

static uint64_t put(struct queue *q, const char *text)
{
    struct bytes message = bytes_str(text);
    uint64_t id = queue_add(q, &message, 1);
    queue_add_commit(q, id, 1, id * 10);
    return id;
}

static uint64_t reserve(struct queue *q, const char *reader, size_t items, struct id_ranges *ids)
{
    id_ranges_free(ids);
    return queue_reserve(q, reader, items, SIZE_MAX, 1000, ids);
}

static void expect_ids(struct id_ranges *ids, uint64_t first, uint64_t last)
{
    assert_int_equal(ids->n, 1);
    assert_int_equal(ids->at[0].first, first);
    assert_int_equal(ids->at[0].last, last);
    id_ranges_free(ids);
}

static void pending_is_not_shown(void **state)
{
    struct queue *q = fresh();
    struct bytes messages[2] = {BYTES_LITERAL("a"), BYTES_LITERAL("b")};
    struct id_ranges ids = {0};
    (void)state;
    assert_int_equal(queue_add(q, messages, 2), 1);
    assert_int_equal(reserve(q, "", 5, &ids), 0);
    assert_int_equal(queue_depth(q), 0);
    assert_int_equal(queue_state(q)->next_id, 1);
    queue_add_commit(q, 1, 2, 0);
    assert_int_equal(queue_state(q)->next_id, 3);
    assert_int_not_equal(reserve(q, "", 5, &ids), 0);
    expect_ids(&ids, 1, 2);
    done(q);
}

/* What a get has set aside may come back; until then nothing behind it is leased to a reader that goes by marks. */
static void nothing_is_reserved_past_what_is_being_taken(void **state)
{
    struct queue *q = fresh();
    struct id_ranges ids = {0}, taken = {0};
    (void)state;
    for (int i = 0; i < 4; i++)
        put(q, "m");
    queue_take(q, 1, SIZE_MAX, &taken);
    assert_int_equal(reserve(q, "", 5, &ids), 0);
    queue_abort(q, &taken);
    id_ranges_free(&taken);
    assert_int_not_equal(reserve(q, "", 2, &ids), 0);
    expect_ids(&ids, 1, 2);
    queue_take(q, 1, SIZE_MAX, &taken);
    assert_int_equal(reserve(q, "", 5, &ids), 0);
    queue_remove(q, &taken);
    id_ranges_free(&taken);
    assert_int_not_equal(reserve(q, "", 5, &ids), 0);
    expect_ids(&ids, 4, 4);
    done(q);
}

static void refused_ids_are_given_again(void **state)
{
    struct queue *q = fresh();
    struct bytes a = BYTES_LITERAL("a");
    (void)state;
    put(q, "first");
    assert_int_equal(queue_add(q, &a, 1), 2);
    assert_int_equal(queue_add(q, &a, 1), 3);
    queue_add_abort(q, 2, 1);
    queue_add_abort(q, 3, 1);
    assert_int_equal(put(q, "second"), 2);
    assert_int_equal(queue_add(q, &a, 1), 3);
    assert_int_equal(queue_add(q, &a, 1), 4);
    queue_add_abort(q, 3, 1);
    queue_add_commit(q, 4, 1, 0);
    assert_int_equal(queue_depth(q), 3);
    assert_int_equal(queue_state(q)->next_id, 5);
    done(q);
}

static void back_in_place(void **state)
{
    struct queue *q = fresh();
    struct id_ranges ids = {0};
    (void)state;
    for (int i = 0; i < 5; i++)
        put(q, "m");
    uint64_t one = reserve(q, "r", 2, &ids), two = reserve(q, "r", 2, &ids);
    assert_true(two > one && one > 100);
    assert_int_equal(queue_return(q, two, &(struct id_range){1, 3}, 1), 1);
    assert_int_equal(queue_return(q, one, &(struct id_range){2, UINT64_MAX}, 1), 1);
    id_ranges_free(&ids);
    queue_take(q, 3, SIZE_MAX, &ids);
    assert_int_equal(ids.n, 2);
    assert_int_equal(ids.at[0].first, 2);
    assert_int_equal(ids.at[0].last, 3);
    assert_int_equal(ids.at[1].first, 5);
    id_ranges_free(&ids);
    done(q);
}

static void the_lease_decides(void **state)
{
    struct queue *q = fresh();
    struct id_ranges ids = {0}, held = {0};
    (void)state;
    put(q, "a");
    put(q, "b");
    uint64_t lease = reserve(q, "r", 2, &ids);
    assert_false(queue_admits(q, "other"));
    assert_false(queue_admits(q, ""));
    assert_int_equal(queue_hold(q, lease + 1, &(struct id_range){1, 2}, 1, &held), 0);
    assert_int_equal(queue_hold(q, lease, &(struct id_range){1, 1}, 1, &held), 1);
    assert_int_equal(queue_hold(q, lease, &(struct id_range){1, 1}, 1, &held), 0);
    queue_lease_expire(q, lease);
    assert_false(queue_touch(q, lease, 5));
    assert_int_equal(queue_state(q)->n[MESSAGE_READY], 1);
    assert_int_equal(queue_hold(q, lease, &(struct id_range){2, 2}, 1, &held), 0);
    queue_abort(q, &held); /* the commit failed after the lease ended */
    assert_int_equal(queue_state(q)->n[MESSAGE_READY], 2);
    assert_true(queue_admits(q, "other"));
    uint64_t later = reserve(q, "other", 2, &ids);
    expect_ids(&ids, 1, 2);
    uint32_t tries;
    queue_message(q, 1, &tries);
    assert_int_equal(tries, 2);
    assert_int_equal(queue_return(q, lease, &(struct id_range){1, 2}, 1), 0);
    assert_int_equal(queue_release(q, "r"), 0);
    assert_int_equal(queue_release(q, "other"), 2);
    assert_true(later > lease);
    id_ranges_free(&held);
    done(q);
}

static uint64_t follow(struct queue *q)
{
    queue_set_follower(q, "f");
    return queue_follow(q);
}

/* Reads on from `from`; the first and the last id, 0: nothing was sent. */
static struct id_range sent(struct queue *q, uint64_t from, size_t items)
{
    struct id_ranges ids = {0};
    queue_follow_rewind(q, from);
    queue_follow_read(q, items, SIZE_MAX, UINT64_MAX, &ids);
    assert_true(ids.n <= 1);
    struct id_range range = ids.n ? ids.at[0] : (struct id_range){0, 0};
    id_ranges_free(&ids);
    return range;
}

static void expect_sent(struct queue *q, uint64_t from, size_t items, uint64_t first, uint64_t last)
{
    struct id_range range = sent(q, from, items);
    assert_int_equal(range.first, first);
    assert_int_equal(range.last, last);
}

static uint64_t hold_sent(struct queue *q, uint64_t first, uint64_t last, struct id_ranges *held)
{
    id_ranges_free(held);
    return queue_hold_sent(q, (struct id_range){first, last}, UINT64_MAX, held);
}

static void settle(struct queue *q, uint64_t below, uint64_t expected)
{
    struct id_ranges held = {0};
    assert_int_equal(hold_sent(q, 0, below - 1, &held), expected);
    queue_remove(q, &held);
    id_ranges_free(&held);
}

static struct queue *followed(int messages)
{
    struct queue *q = fresh();
    for (int i = 0; i < messages; i++)
        put(q, "m");
    assert_true(follow(q) > 100);
    return q;
}

static void a_follower_reads_in_order_and_settles(void **state)
{
    struct queue *q = followed(9);
    struct id_ranges ids = {0};
    uint32_t tries;
    (void)state;
    expect_sent(q, 1, 4, 1, 4);
    expect_sent(q, 5, 2, 5, 6);
    assert_int_equal(queue_state(q)->n[MESSAGE_READY], 9);
    assert_int_equal(queue_state(q)->gets, 6);
    assert_int_equal(queue_state(q)->leases, 0);
    assert_null(heap_first(&shared.deadlines));
    settle(q, 4, 3);
    settle(q, 4, 0);
    expect_sent(q, 6, 2, 6, 7); /* 6 was lost on the way */
    queue_message(q, 6, &tries);
    assert_int_equal(tries, 2);
    queue_message(q, 5, &tries);
    assert_int_equal(tries, 1);
    settle(q, UINT64_MAX, 4);
    expect_sent(q, 8, 1, 8, 8);
    queue_evict(q, 9, UINT64_MAX, false, &ids);
    queue_abort(q, &ids);
    expect_ids(&ids, 9, 9);
    expect_sent(q, 9, 9, 9, 9);
    settle(q, 10, 2);
    assert_int_equal(queue_depth(q), 0);
    done(q);
}

static void each_follow_begins_at_the_lowest_id(void **state)
{
    struct queue *q = followed(6);
    struct id_ranges ids = {0};
    uint64_t one = queue_state(q)->follow, bytes;
    (void)state;
    expect_sent(q, 1, 5, 1, 5);
    settle(q, 3, 2);
    uint64_t two = queue_follow(q);
    assert_true(two > one);
    assert_int_equal(queue_state(q)->n[MESSAGE_READY], 4);
    assert_int_equal(queue_hold_sent(q, (struct id_range){0, 9}, 2, &ids), 2);
    assert_int_equal(queue_count_sent(q, &bytes), 1);
    queue_abort(q, &ids);
    id_ranges_free(&ids);
    assert_int_equal(queue_count_sent(q, &bytes), 3);
    assert_int_equal(bytes, 3);
    queue_evict(q, 9, UINT64_MAX, false, &ids); /* the former follower may still deliver the others */
    queue_abort(q, &ids);
    expect_ids(&ids, 6, 6);
    expect_sent(q, 4, 2, 3, 4);
    settle(q, 4, 1);
    expect_sent(q, 0, 1, 4, 4); /* an old request arrives late */
    settle(q, 5, 1);
    expect_sent(q, 5, 1, 5, 5);
    queue_unfollow(q);
    assert_string_equal(queue_state(q)->follower, "");
    assert_int_equal(queue_state(q)->follow, 0);
    uint64_t lease = reserve(q, "r", 9, &ids);
    assert_true(lease > two);
    expect_ids(&ids, 5, 6);
    queue_release(q, "r");
    assert_true(follow(q) > lease);
    assert_int_equal(queue_count_sent(q, &bytes), 0);
    settle(q, 9, 0); /* nothing is sent yet */
    expect_sent(q, 1, 9, 5, 6);
    queue_follow_skip(q, 7); /* counts no message again */
    assert_int_equal(queue_count_sent(q, &bytes), 2);
    queue_pause(q, QUEUE_PAUSE_OPEN);
    expect_sent(q, 5, 9, 0, 0);
    queue_resume(q);
    expect_sent(q, 5, 9, 5, 6);
    done(q);
}

/* A get or an eviction is under way when the follow begins. */
static void a_follower_waits_for_what_is_being_taken(void **state)
{
    struct id_ranges taken = {0}, evicted = {0};
    (void)state;
    for (int evicts = 0; evicts < 2; evicts++) {
        struct queue *q = fresh();
        for (int i = 0; i < 5; i++)
            put(q, "m");
        if (evicts)
            queue_evict(q, 2, UINT64_MAX, false, &taken);
        else
            queue_take(q, 2, SIZE_MAX, &taken);
        follow(q);
        expect_sent(q, 1, 9, 0, 0);
        queue_abort(q, &taken);
        expect_sent(q, 1, 2, 1, 2);
        queue_evict(q, 1, UINT64_MAX, false, &evicted);
        expect_sent(q, 3, 9, 0, 0);
        queue_remove(q, &evicted);
        expect_sent(q, 3, 9, 4, 5);
        id_ranges_free(&taken);
        id_ranges_free(&evicted);
        done(q);
    }
}

static void a_burial_that_fails(void **state)
{
    struct id_ranges held = {0};
    (void)state;
    for (int again = 0; again < 2; again++) {
        struct queue *q = followed(5);
        expect_sent(q, 1, 3, 1, 3);
        assert_int_equal(hold_sent(q, 2, 2, &held), 1);
        queue_block_reserves(q, &held);
        settle(q, 2, 1);
        if (again)
            queue_follow(q);
        expect_sent(q, 4, 9, 0, 0);
        queue_abort(q, &held);
        if (again)
            expect_sent(q, 1, 9, 2, 5);
        else
            expect_sent(q, 4, 9, 4, 5);
        assert_int_equal(hold_sent(q, 2, 2, &held), 1);
        queue_bury(q, &held, BYTES_LITERAL("why"), 0);
        settle(q, 9, 3);
        assert_int_equal(hold_sent(q, 2, 2, &held), 0);
        queue_follow(q);
        expect_sent(q, 1, 9, 0, 0);
        id_ranges_free(&held);
        done(q);
    }
}

/* A settlement blocks no reads. If it fails, its messages can be settled again, also in the next follow. */
static void a_settlement_that_fails(void **state)
{
    struct id_ranges held = {0};
    (void)state;
    for (int again = 0; again < 2; again++) {
        struct queue *q = followed(6);
        expect_sent(q, 1, 4, 1, 4);
        assert_int_equal(hold_sent(q, 0, 3, &held), 3);
        if (again)
            queue_follow(q);
        expect_sent(q, 5, 9, again ? 4 : 5, 6);
        queue_abort(q, &held);
        settle(q, 7, 6);
        assert_int_equal(queue_depth(q), 0);
        id_ranges_free(&held);
        done(q);
    }
    struct queue *q = followed(3);
    expect_sent(q, 1, 3, 1, 3);
    assert_int_equal(hold_sent(q, 0, 2, &held), 2);
    queue_unfollow(q);
    queue_abort(q, &held);
    assert_int_equal(queue_state(q)->n[MESSAGE_READY], 3);
    id_ranges_free(&held);
    done(q);
}

/* A relay that passed 1 by its mark would take it for published when its burial fails and it is back. */
static void nothing_is_reserved_past_what_is_being_moved(void **state)
{
    struct queue *q = fresh();
    struct id_ranges ids = {0}, held = {0};
    (void)state;
    put(q, "a");
    put(q, "b");
    uint64_t lease = reserve(q, "r", 1, &ids);
    queue_hold(q, lease, &(struct id_range){1, 1}, 1, &held);
    queue_block_reserves(q, &held);
    queue_release(q, "r");
    assert_int_equal(reserve(q, "r", 2, &ids), 0);
    queue_abort(q, &held);
    assert_int_not_equal(reserve(q, "r", 2, &ids), 0);
    assert_int_equal(ids.at[0].first, 1);
    assert_int_equal(ids.count, 2);
    id_ranges_free(&held);
    id_ranges_free(&ids);
    done(q);
}

static void late_ones_move(void **state)
{
    struct queue *q = fresh();
    struct id_ranges ids = {0}, held = {0};
    const struct queue_burial *burial;
    uint64_t id;
    (void)state;
    put(q, "a");
    put(q, "b");
    uint64_t lease = reserve(q, "", 2, &ids);
    queue_hold(q, lease, &(struct id_range){1, 1}, 1, &held);
    queue_delay(q, &held, 77);
    id_ranges_free(&held);
    assert_int_equal(heap_first(&shared.deadlines)->priority, 77);
    queue_hold(q, lease, &(struct id_range){2, 2}, 1, &held);
    queue_bury(q, &held, BYTES_LITERAL("why\0not"), 5);
    assert_int_equal(queue_state(q)->leases, 0);
    assert_true(queue_next_buried(q, 1, &id, &burial));
    assert_int_equal(id, 2);
    assert_int_equal(burial->reason.len, 7);
    assert_true(queue_set_aside(q, 1));
    assert_int_equal(queue_state(q)->to_move, 1);
    assert_int_equal(queue_state(q)->to_move_bytes, 1);
    queue_put_back(q, 1, 99);
    assert_int_equal(heap_first(&shared.deadlines)->priority, 99);
    assert_true(queue_set_aside(q, 2));
    queue_put_back(q, 2, 99);
    assert_int_equal(queue_state(q)->n[MESSAGE_BURIED], 1);
    assert_int_equal(queue_state(q)->n[MESSAGE_DELAYED], 1);
    assert_int_equal(queue_state(q)->to_move, 1);
    assert_true(queue_set_aside(q, 1));
    queue_remove(q, &(struct id_ranges){.at = &(struct id_range){1, 1}, .n = 1, .count = 1});
    assert_int_equal(queue_state(q)->to_move + queue_state(q)->to_move_bytes, 0);
    id_ranges_free(&ids);
    id_ranges_free(&held);
    done(q);
}

static void any_size(void **state)
{
    struct queue *q = fresh();
    struct id_ranges ids = {0};
    (void)state;
    size_t sizes[] = {1, STORE_PAGE_BYTES, 3, STORE_PAGE_BYTES * 3, STORE_PAGE_BYTES - 64, 7};
    for (size_t i = 0; i < 6; i++) {
        char *text = mem_alloc(sizes[i]);
        memset(text, 'a' + (int)i, sizes[i]);
        struct bytes message = bytes_of(text, sizes[i]);
        queue_add_commit(q, queue_add(q, &message, 1), 1, 0);
        free(text);
    }
    queue_take(q, 6, 10, &ids);
    assert_int_equal(ids.count, 1);
    queue_take(q, 6, SIZE_MAX, &ids);
    assert_int_equal(ids.count, 6);
    for (uint64_t id = 1; id <= 6; id++) {
        struct bytes text = queue_message(q, id, NULL);
        assert_int_equal(text.len, sizes[id - 1]);
        assert_int_equal(text.ptr[text.len - 1], 'a' + (int)id - 1);
    }
    queue_remove(q, &ids);
    id_ranges_free(&ids);
    done(q);
}

#define MODEL_IDS 4000

struct model {
    enum message_state state[MODEL_IDS];
    uint64_t lease[MODEL_IDS];
    uint64_t next;
};

static uint64_t lowest_ready(const struct model *m)
{
    for (uint64_t id = 1; id < m->next; id++)
        if (m->state[id] == MESSAGE_READY)
            return id;
    return 0;
}

static void model_put(struct queue *q, struct model *m)
{
    char text[600];
    size_t n = (size_t)rand() % 5 + 1;
    bool refused = rand() % 5 == 0;
    for (size_t i = 0; i < n; i++) {
        int len = snprintf(text, sizeof text, "%llu %*s", (unsigned long long)m->next, rand() % 500, "");
        struct bytes message = bytes_of(text, (size_t)len);
        uint64_t id = queue_add(q, &message, 1);
        assert_int_equal(id, m->next);
        if (refused) {
            queue_add_abort(q, id, 1);
            continue;
        }
        queue_add_commit(q, id, 1, 0);
        m->state[m->next++] = MESSAGE_READY;
    }
}

static void model_reserve(struct queue *q, struct model *m)
{
    struct id_ranges ids = {0};
    uint64_t lease = queue_reserve(q, "r", (size_t)rand() % 20 + 1, SIZE_MAX, rand() % 1000, &ids);
    for (size_t r = 0; r < ids.n; r++)
        for (uint64_t id = ids.at[r].first; id <= ids.at[r].last; id++) {
            assert_int_equal(id, lowest_ready(m));
            assert_int_equal(strtoull(queue_message(q, id, NULL).ptr, NULL, 10), id);
            m->state[id] = MESSAGE_LEASED;
            m->lease[id] = lease;
        }
    assert_true(lease || lowest_ready(m) == 0);
    id_ranges_free(&ids);
}

static struct id_range some_range(const struct model *m)
{
    uint64_t first = (uint64_t)rand() % m->next + 1;
    return (struct id_range){first, first + (uint64_t)rand() % 30};
}

static uint64_t some_lease(const struct model *m)
{
    for (int i = 0; i < 50; i++) {
        uint64_t id = (uint64_t)rand() % m->next;
        if (m->state[id] == MESSAGE_LEASED)
            return m->lease[id];
    }
    return 1;
}

static uint64_t model_change(struct model *m, uint64_t lease, struct id_range range, enum message_state to)
{
    uint64_t n = 0;
    for (uint64_t id = range.first; id <= range.last && id < m->next; id++)
        if (m->state[id] == MESSAGE_LEASED && m->lease[id] == lease) {
            m->state[id] = to;
            n++;
        }
    return n;
}

static void model_settle(struct queue *q, struct model *m)
{
    struct id_ranges held = {0};
    uint64_t lease = some_lease(m);
    struct id_range range = some_range(m);
    switch (rand() % 4) {
    case 0:
        queue_hold(q, lease, &range, 1, &held);
        assert_int_equal(held.count, model_change(m, lease, range, MESSAGE_GONE));
        queue_remove(q, &held);
        break;
    case 1:
        queue_hold(q, lease, &range, 1, &held);
        queue_abort(q, &held);
        break;
    case 2:
        assert_int_equal(queue_return(q, lease, &range, 1), model_change(m, lease, range, MESSAGE_READY));
        break;
    default:
        queue_hold(q, lease, &range, 1, &held);
        assert_int_equal(held.count, model_change(m, lease, range, MESSAGE_BURIED));
        queue_bury(q, &held, BYTES_LITERAL("x"), 0);
    }
    id_ranges_free(&held);
}

static void model_end(struct queue *q, struct model *m)
{
    uint64_t lease = some_lease(m);
    struct id_range all = {1, m->next};
    if (rand() % 10 == 0) {
        for (uint64_t id = 1; id < m->next; id++)
            model_change(m, m->lease[id], (struct id_range){id, id}, MESSAGE_READY);
        queue_release(q, "r");
    } else {
        model_change(m, lease, all, MESSAGE_READY);
        queue_lease_expire(q, lease);
    }
}

static void as_the_model(void **state)
{
    (void)state;
    seeded();
    static struct model m;
    m = (struct model){.next = 1};
    struct queue *q = fresh();
    while (m.next < MODEL_IDS - 10) {
        int what = rand() % 10;
        if (what < 3)
            model_put(q, &m);
        else if (what < 6)
            model_reserve(q, &m);
        else if (what < 9)
            model_settle(q, &m);
        else
            model_end(q, &m);
        uint64_t n[MESSAGE_STATES] = {0};
        for (uint64_t id = 1; id < m.next; id++)
            n[m.state[id]]++;
        for (int s = MESSAGE_PENDING; s < MESSAGE_STATES; s++)
            assert_int_equal(queue_state(q)->n[s], n[s]);
    }
    done(q);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pending_is_not_shown),
        cmocka_unit_test(nothing_is_reserved_past_what_is_being_taken),
        cmocka_unit_test(refused_ids_are_given_again),
        cmocka_unit_test(back_in_place),
        cmocka_unit_test(the_lease_decides),
        cmocka_unit_test(a_follower_reads_in_order_and_settles),
        cmocka_unit_test(each_follow_begins_at_the_lowest_id),
        cmocka_unit_test(a_follower_waits_for_what_is_being_taken),
        cmocka_unit_test(a_burial_that_fails),
        cmocka_unit_test(a_settlement_that_fails),
        cmocka_unit_test(nothing_is_reserved_past_what_is_being_moved),
        cmocka_unit_test(late_ones_move),
        cmocka_unit_test(any_size),
        cmocka_unit_test(as_the_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
