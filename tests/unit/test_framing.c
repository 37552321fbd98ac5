#include "cm.h"
#include "framing.h"

#define ID "0123456789abcdef0123456789abcdef"

/* Fed whole and byte by byte: the same comes out. */
static void expect_events(struct bytes text, const char *expected)
{
    for (size_t step = 1; step <= text.len; step += text.len > 1 ? text.len - 1 : 1) {
        struct framing f = {.id = ID, .offset = 5};
        struct buf out = {0};
        for (size_t i = 0; i < text.len; i += step)
            framing_add_events(&f, bytes_of(text.ptr + i, text.len - i < step ? text.len - i : step), &out);
        assert_int_equal(f.offset, 5 + text.len);
        assert_int_equal(f.in_line, text.ptr[text.len - 1] != '\n');
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
    expect_events(BYTES_LITERAL("cut"), "data: cut");
}

static void gaps_and_beginnings(void **state)
{
    (void)state;
    struct framing f = {.id = ID, .offset = 5};
    struct buf out = {0};
    framing_begin_events(&f, &out);
    assert_true(bytes_equal_str(buf_bytes(&out), "retry: 1000\nid: 5:" ID "\n\n"));
    buf_clear(&out);
    framing_add_gap(&f, &(struct journal_edges){7, 90}, &out);
    assert_true(bytes_equal_str(
        buf_bytes(&out), "event: gap\ndata: {\"before\":\"7\",\"after\":\"90\"}\nid: 90:" ID "\n\n"));
    assert_int_equal(f.offset, 90);
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
        struct framing f = {.id = ID};
        struct buf out = {0};
        for (size_t i = 0; i < text.len; i += step)
            framing_add_parts(&f, bytes_of(text.ptr + i, text.len - i < step ? text.len - i : step), &out);
        assert_true(bytes_equal(buf_bytes(&out), expected));
        assert_false(f.in_line);
        buf_free(&out);
        framing_free(&f);
    }
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
        cmocka_unit_test(gaps_and_beginnings),
        cmocka_unit_test(parts),
        cmocka_unit_test(ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
