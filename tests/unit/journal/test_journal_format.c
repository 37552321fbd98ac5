/* Frames and headers as bytes: they decode as they were encoded, and anything else is refused. */
#include "support/cm.h"
#include "journal/journal.h"
#include "journal/journal_format.h"

#include <stdlib.h>

static struct segment_header a_header(void)
{
    struct segment_header h = {.sequence = 7,
        .base = 1000,
        .previous_end = 900,
        .previous_size = 4096,
        .durable = 800,
        .reach = 1200,
        .created = 11,
        .latest = 10,
        .salt = 0x1122334455667788,
        .never = true,
        .recycled = true};
    memset(h.id, 'i', sizeof h.id);
    memset(h.boot, 'b', sizeof h.boot);
    return h;
}

static void test_a_header_is_read_back(void **state)
{
    (void)state;
    struct segment_header h = a_header(), back;
    char raw[SEGMENT_HEADER];
    segment_header_encode(&h, raw);
    memset(&back, 0, sizeof back);
    assert_int_equal(segment_header_decode(bytes_of(raw, sizeof raw), &back), HEADER_OK);
    assert_true(back.sequence == 7 && back.base == 1000 && back.previous_end == 900);
    assert_true(back.previous_size == 4096 && back.durable == 800 && back.reach == 1200);
    assert_true(back.created == 11 && back.latest == 10 && back.salt == h.salt);
    assert_true(back.never && back.recycled);
    assert_memory_equal(back.id, h.id, sizeof h.id);
    assert_memory_equal(back.boot, h.boot, sizeof h.boot);
}

/* Even with a valid checksum an offset is refused if adding to it would wrap. */
static void test_an_offset_that_no_journal_reaches_is_damage(void **state)
{
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        struct segment_header h = a_header(), back;
        char raw[SEGMENT_HEADER];
        uint64_t *fields[4] = {&h.base, &h.previous_end, &h.durable, &h.reach};
        *fields[i] = JOURNAL_OFFSET_MAX;
        segment_header_encode(&h, raw);
        assert_int_equal(segment_header_decode(bytes_of(raw, sizeof raw), &back), HEADER_OK);
        *fields[i] = JOURNAL_OFFSET_MAX + 1;
        segment_header_encode(&h, raw);
        assert_int_equal(segment_header_decode(bytes_of(raw, sizeof raw), &back), HEADER_DAMAGED);
    }
}

/* The byte order is explicit: these are the bytes on any machine. */
static void test_numbers_are_little_endian(void **state)
{
    (void)state;
    struct segment_header h = a_header();
    char raw[SEGMENT_HEADER];
    segment_header_encode(&h, raw);
    assert_memory_equal(raw, "MILLRJNL\2\0\0\0\3\0\0\0iiii", 20);
    assert_memory_equal(raw + 32, "\7\0\0\0\0\0\0\0\350\3\0\0\0\0\0\0", 16);
    assert_memory_equal(raw + 112, "\x88\x77\x66\x55\x44\x33\x22\x11", 8);
}

static void test_every_flipped_bit_of_a_header_is_seen(void **state)
{
    (void)state;
    struct segment_header h = a_header(), back;
    char raw[SEGMENT_HEADER];
    segment_header_encode(&h, raw);
    for (size_t bit = 0; bit < 8 * sizeof raw; bit++) {
        raw[bit / 8] = (char)(raw[bit / 8] ^ 1 << bit % 8);
        enum header_status s = segment_header_decode(bytes_of(raw, sizeof raw), &back);
        assert_true(s == HEADER_DAMAGED || (s == HEADER_VERSION && bit / 8 >= 8 && bit / 8 < 12));
        raw[bit / 8] = (char)(raw[bit / 8] ^ 1 << bit % 8);
    }
    for (size_t n = 0; n < sizeof raw; n++)
        assert_int_equal(segment_header_decode(bytes_of(raw, n), &back), HEADER_DAMAGED);
}

static size_t a_frame(struct buf *b, uint64_t seed, uint64_t position)
{
    struct bytes pieces[] = {BYTES_LITERAL("pay"), BYTES_LITERAL("load\0")};
    struct frame f = {.kind = FRAME_DATA, .offset = 50, .time = 5, .mark = 9, .name = BYTES_LITERAL("prod")};
    f.payload.len = 8;
    size_t at = b->len;
    frame_append(b, &f, pieces, 2);
    return frame_seal(b->ptr + at, &(struct frame_place){seed, position, 40, 100});
}

static void test_a_frame_is_read_back(void **state)
{
    (void)state;
    struct buf b = {0};
    struct frame f;
    size_t size = a_frame(&b, 77, 128);
    assert_true(size % 8 == 0 && size == b.len && size == frame_size(4, 8));
    assert_int_equal(frame_decode(buf_bytes(&b), 77, 128, false, &f), FRAME_OK);
    assert_true(f.offset == 50 && f.time == 5 && f.mark == 9 && f.durable == 40 && f.durable_position == 100);
    assert_true(bytes_equal(f.name, bytes_str("prod")) && bytes_equal(f.payload, BYTES_LITERAL("payload\0")));
    buf_free(&b);
}

static void test_a_frame_is_one_at_its_place_only(void **state)
{
    (void)state;
    struct buf b = {0};
    struct frame f;
    struct segment_header h = a_header(), other = h;
    uint64_t seed = segment_seed(&h);
    a_frame(&b, seed, 128);
    assert_int_equal(frame_decode(buf_bytes(&b), seed, 136, false, &f), FRAME_BAD);
    other.sequence++;
    assert_int_equal(frame_decode(buf_bytes(&b), segment_seed(&other), 128, false, &f), FRAME_BAD);
    other = h;
    other.salt++;
    assert_int_equal(frame_decode(buf_bytes(&b), segment_seed(&other), 128, false, &f), FRAME_BAD);
    other = h;
    other.id[3]++;
    assert_int_equal(frame_decode(buf_bytes(&b), segment_seed(&other), 128, false, &f), FRAME_BAD);
    buf_free(&b);
}

static void test_every_flipped_bit_and_every_cut_of_a_frame_is_seen(void **state)
{
    (void)state;
    struct buf b = {0};
    struct frame f;
    size_t size = a_frame(&b, 77, 128);
    for (size_t bit = 0; bit < 8 * size; bit++) {
        b.ptr[bit / 8] = (char)(b.ptr[bit / 8] ^ 1 << bit % 8);
        assert_int_not_equal(frame_decode(buf_bytes(&b), 77, 128, false, &f), FRAME_OK);
        b.ptr[bit / 8] = (char)(b.ptr[bit / 8] ^ 1 << bit % 8);
    }
    for (size_t n = 0; n < size; n++) {
        char *exact = mem_alloc(n + 1); /* for AddressSanitizer */
        memcpy(exact, b.ptr, n);
        enum frame_status s = frame_decode(bytes_of(exact, n), 77, 128, false, &f);
        assert_true(s == FRAME_SHORT || (n == 0 && s == FRAME_NONE));
        free(exact);
    }
    buf_free(&b);
}

static const char no_statement[SYNCED_END];

static void test_a_statement_counts_for_its_segment_only(void **state)
{
    (void)state;
    char stated[SYNCED_END];
    struct tail_scan behind;
    synced_end_encode(300, 70, 77, stated);
    frames_scan_tail(BYTES_NONE, 0, 77, 0, stated, &behind);
    assert_true(behind.position == 300 && behind.durable == 70 && behind.end == 0 && behind.nonzero == 0);
    frames_scan_tail(BYTES_NONE, 0, 78, 0, stated, &behind);
    assert_true(behind.position == 0 && behind.durable == 0);
    for (size_t bit = 0; bit < 8 * sizeof stated; bit++) {
        stated[bit / 8] = (char)(stated[bit / 8] ^ 1 << bit % 8);
        frames_scan_tail(BYTES_NONE, 0, 77, 0, stated, &behind);
        assert_true(behind.position == 0 && behind.durable == 0);
        stated[bit / 8] = (char)(stated[bit / 8] ^ 1 << bit % 8);
    }
    synced_end_encode(300, UINT64_MAX, 77, stated); /* arithmetic on offsets must not wrap */
    frames_scan_tail(BYTES_NONE, 0, 77, 0, stated, &behind);
    assert_true(behind.position == 0 && behind.durable == 0);
}

static void test_intact_frames_are_found_behind_garbage(void **state)
{
    (void)state;
    struct buf b = {0};
    struct tail_scan behind;
    for (int i = 0; i < 1000; i++)
        buf_append_char(&b, (char)(i * 37 + 1));
    size_t at = b.len, size = a_frame(&b, 77, at);
    buf_append(&b, "\0\0\0\0\0\0\0\1\0\0\0\0", 12);
    frames_scan_tail(buf_bytes(&b), 0, 77, 50, no_statement, &behind);
    assert_true(behind.end == at + size && behind.durable == 40 && behind.position == 100);
    assert_true(behind.nonzero == at + size + 8 && !behind.too_many);
    frames_scan_tail(buf_bytes(&b), 0, 77, 51, no_statement, &behind);
    assert_true(behind.end == 0);
    frames_scan_tail(buf_bytes(&b), 0, 78, 50, no_statement, &behind);
    assert_true(behind.end == 0);
    buf_free(&b);
}

/* Every eight bytes a plausible header of a frame as long as the rest of the file: the work stays bounded. */
static void test_bytes_made_to_look_like_frames_end_the_search(void **state)
{
    (void)state;
    size_t n = (size_t)8 << 20;
    char *file = mem_alloc(n);
    for (size_t at = 0; at < n; at += 8)
        memcpy(file + at, "\0\0\x10\0\1\0\0\0", 8);
    struct tail_scan behind;
    frames_scan_tail(bytes_of(file, n), 128, 77, 0, no_statement, &behind);
    assert_true(behind.end == 0);
    for (size_t at = 0; at < n; at += 8)
        memcpy(file + at, at % 64 == 8 ? "\0\0\x10\0\1\0\0\0" : "\0\0\0\0\0\0\0\0", 8);
    frames_scan_tail(bytes_of(file, n), 128, 77, 0, no_statement, &behind);
    assert_true(behind.too_many);
    free(file);
}

static void test_a_table_is_read_back_and_never_past_its_end(void **state)
{
    (void)state;
    struct buf b = {0};
    struct bytes name, rest;
    uint64_t mark;
    bool bad;
    table_append_entry(&b, bytes_str("a"), 1);
    table_append_entry(&b, bytes_str("second"), UINT64_MAX);
    rest = buf_bytes(&b);
    assert_true(table_next(&rest, &name, &mark, &bad) && bytes_equal_str(name, "a") && mark == 1);
    assert_true(table_next(&rest, &name, &mark, &bad) && bytes_equal_str(name, "second"));
    assert_true(mark == UINT64_MAX && !table_next(&rest, &name, &mark, &bad) && !bad);
    for (size_t n = 0; n < b.len; n++) {
        char *exact = mem_alloc(n + 1);
        memcpy(exact, b.ptr, n);
        rest = bytes_of(exact, n);
        while (table_next(&rest, &name, &mark, &bad))
            continue;
        assert_int_equal(bad, n != 0 && n != 10);
        free(exact);
    }
    buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_header_is_read_back),
        cmocka_unit_test(test_an_offset_that_no_journal_reaches_is_damage),
        cmocka_unit_test(test_numbers_are_little_endian),
        cmocka_unit_test(test_every_flipped_bit_of_a_header_is_seen),
        cmocka_unit_test(test_a_frame_is_read_back),
        cmocka_unit_test(test_a_frame_is_one_at_its_place_only),
        cmocka_unit_test(test_every_flipped_bit_and_every_cut_of_a_frame_is_seen),
        cmocka_unit_test(test_intact_frames_are_found_behind_garbage),
        cmocka_unit_test(test_a_statement_counts_for_its_segment_only),
        cmocka_unit_test(test_bytes_made_to_look_like_frames_end_the_search),
        cmocka_unit_test(test_a_table_is_read_back_and_never_past_its_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
