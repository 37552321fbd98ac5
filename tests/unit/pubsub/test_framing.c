#include "support/cm.h"
#include "pubsub/stream/framing.h"
#include <stdlib.h>

#define ID "0123456789abcdef0123456789abcdef"

static void feed(struct framing *f, struct bytes text, size_t step, struct buf *out)
{
    for (size_t i = 0; i < text.len; i += step) {
        struct bytes piece = bytes_of(text.ptr + i, text.len - i < step ? text.len - i : step);
        while (piece.len)
            framing_take(f, &piece, out);
    }
}

/* Fed whole and byte by byte: the same comes out. */
static void expect_events(struct bytes text, const char *expected)
{
    for (size_t step = 1; step <= text.len; step += text.len > 1 ? text.len - 1 : 1) {
        struct framing f = {.id = ID, .offset = 5};
        struct buf out = {0};
        feed(&f, text, step, &out);
        assert_int_equal(f.offset, 5 + text.len);
        assert_false(f.in_line);
        assert_true(bytes_equal_str(buf_bytes(&out), expected));
        buf_free(&out);
        framing_free(&f);
    }
}

static void events(void **state)
{
    (void)state;
    expect_events(BYTES_LITERAL("one\n"), "data: one\nid: 9:" ID "\n\n");
    expect_events(BYTES_LITERAL("a\nb\n"), "data: a\nid: 7:" ID "\n\ndata: b\nid: 9:" ID "\n\n");
    expect_events(BYTES_LITERAL("a\rb\n"), "data: a\ndata: b\nid: 9:" ID "\n\n");
    expect_events(BYTES_LITERAL("\r\n"), "data: \ndata: \nid: 7:" ID "\n\n");
    expect_events(BYTES_LITERAL(" a: b\n"), "data:  a: b\nid: 11:" ID "\n\n");
    expect_events(BYTES_LITERAL("\xff\xfe\n"), "data: \xff\xfe\nid: 8:" ID "\n\n");
}

/* Of a line that is cut nothing is formed, unless it is long: then who has a part of it is to be ended. */
static void a_line_cut_in_two(void **state)
{
    (void)state;
    struct framing f = {.id = ID, .offset = 5};
    char *text = mem_alloc(FRAMING_STEP);
    memset(text, 'x', FRAMING_STEP);
    struct bytes part = bytes_of(text, FRAMING_STEP - 1);
    struct buf out = {0};
    feed(&f, part, 1000, &out);
    assert_true(out.len == 0 && f.offset == 5 && !f.in_line);
    f.offset = 90;
    framing_add_gap(&f, &(struct journal_edges){5, 90}, &out);
    assert_true(bytes_starts_with(buf_bytes(&out), BYTES_LITERAL("event: gap\n")));
    buf_clear(&out);
    feed(&f, part, 1000, &out);
    assert_true(out.len == 0);
    feed(&f, BYTES_LITERAL("yz"), 1, &out);
    assert_true(out.len == 6 + FRAMING_STEP + 1 && f.offset == 90 + FRAMING_STEP + 1 && f.in_line);
    buf_clear(&out);
    feed(&f, BYTES_LITERAL("\n"), 1, &out);
    assert_true(bytes_starts_with(buf_bytes(&out), BYTES_LITERAL("\nid: ")) && !f.in_line);
    buf_free(&out);
    framing_free(&f);
    free(text);
}

static void gaps_and_beginnings(void **state)
{
    (void)state;
    struct framing f = {.id = ID, .offset = 5};
    struct buf out = {0};
    framing_begin(&f, &out);
    assert_true(bytes_equal_str(buf_bytes(&out), "retry: 1000\nid: 5:" ID "\n\n"));
    buf_clear(&out);
    framing_set_offset(&f, 90);
    framing_add_gap(&f, &(struct journal_edges){7, 90}, &out);
    assert_true(bytes_equal_str(
        buf_bytes(&out), "event: gap\ndata: {\"before\":\"7\",\"after\":\"90\"}\nid: 90:" ID "\n\n"));
    buf_clear(&out);
    feed(&f, BYTES_LITERAL("a\n"), 2, &out);
    assert_true(bytes_equal_str(buf_bytes(&out), "data: a\nid: 92:" ID "\n\n"));
    buf_free(&out);
}

static void parts(void **state)
{
    (void)state;
    static const struct bytes text = BYTES_LITERAL("one\n\0\r\n");
    static const struct bytes expected =
        BYTES_LITERAL("content-type: */*\r\ncontent-length: 3\r\n\r\none\r\n--xXPubSubXx\r\n"
                      "content-type: */*\r\ncontent-length: 2\r\n\r\n\0\r\r\n--xXPubSubXx\r\n");
    for (size_t step = 1; step <= text.len; step++) {
        struct framing f = {.form = FRAMING_PARTS, .id = ID};
        struct buf out = {0};
        feed(&f, text, step, &out);
        assert_true(bytes_equal(buf_bytes(&out), expected));
        buf_free(&out);
        framing_free(&f);
    }
}

/* bitly's clients take what comes of a step for a message, or for lines. */
static void a_step_is_a_part_or_whole_lines(void **state)
{
    (void)state;
    struct framing parts = {.form = FRAMING_PARTS, .id = ID}, lines = {.form = FRAMING_LINES, .id = ID};
    struct bytes text = BYTES_LITERAL("one\ntwo\nthr"), end = BYTES_LITERAL("ee\n"), piece = text;
    struct buf out = {0};
    framing_take(&parts, &piece, &out);
    assert_int_equal(piece.len, 7);
    framing_take(&parts, &piece, &out);
    assert_int_equal(piece.len, 3);
    buf_clear(&out);
    framing_take(&parts, &piece, &out);
    assert_true(piece.len == 0 && out.len == 0);
    piece = text;
    framing_take(&lines, &piece, &out);
    assert_true(piece.len == 0 && bytes_equal_str(buf_bytes(&out), "one\ntwo\n"));
    buf_clear(&out);
    framing_take(&lines, &end, &out);
    assert_true(end.len == 0 && bytes_equal_str(buf_bytes(&out), "three\n"));
    buf_free(&out);
    framing_free(&parts);
    framing_free(&lines);
}

/* The shortest lines grow most. */
static void a_step_of_events_is_bounded(void **state)
{
    (void)state;
    struct framing f = {.id = ID, .offset = UINT64_MAX / 2};
    struct bytes text = bytes_of(mem_alloc(100000), 100000), piece = text;
    for (size_t i = 0; i < text.len; i++)
        ((char *)(uintptr_t)text.ptr)[i] = "x\n"[i % 2];
    while (piece.len) {
        struct buf out = {0};
        framing_take(&f, &piece, &out);
        assert_true(out.len > 0 && out.len < 2 * FRAMING_STEP);
        buf_free(&out);
    }
    free((void *)(uintptr_t)text.ptr);
}

static void ids(void **state)
{
    (void)state;
    uint64_t offset;
    struct bytes id;
    assert_true(framing_parse_id(BYTES_LITERAL("17:" ID), &offset, &id));
    assert_int_equal(offset, 17);
    assert_true(bytes_equal_str(id, ID));
    assert_true(framing_parse_id(BYTES_LITERAL("18"), &offset, &id) && id.len == 0 && offset == 18);
    static const char *const bad[] = {"", ":", "x", "-1", ":" ID, "1x:" ID, "18446744073709551616"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(framing_parse_id(bytes_str(bad[i]), &offset, &id));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events),
        cmocka_unit_test(a_line_cut_in_two),
        cmocka_unit_test(gaps_and_beginnings),
        cmocka_unit_test(parts),
        cmocka_unit_test(a_step_is_a_part_or_whole_lines),
        cmocka_unit_test(a_step_of_events_is_bounded),
        cmocka_unit_test(ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
