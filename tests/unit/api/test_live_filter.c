/* Events of a stream under a condition: what passes of any text, byte for byte, however it arrives. */
#include "support/cm.h"

#include "api/page/live_filter.h"
#include <stdlib.h>

/* Returns the text that passes. */
static void check(const char *condition, const char *text, const char *expected)
{
    struct error error;
    struct live_filter *f = live_filter_new(bytes_str(condition), &error);
    struct buf out = {0};
    assert_non_null(f);
    for (const char *lf; (lf = strchr(text, '\n')); text = lf + 1)
        live_filter_take(f, bytes_of(text, (size_t)(lf - text)), &out);
    live_filter_pass_id(f, &out);
    size_t len = out.len;
    live_filter_pass_id(f, &out); /* only once */
    assert_int_equal(out.len, len);
    buf_append_char(&out, '\0');
    assert_string_equal(out.ptr, expected);
    buf_free(&out);
    live_filter_free(&f);
}

#define A "data: {\"a\":1}\nid: 7:x\n\n"
#define B "data: {\"a\":2}\nid: 14:x\n\n"
#define UNDECIDED                                                                                            \
    "event: undecided\ndata: \"the condition takes too many steps for a line; such lines are left out\"\n\n"

static void test_events(void **state)
{
    (void)state;
    check("a = 1", A A, A A);
    check("a = 1", A B, A "id: 14:x\n\n");
    check("a = 1", B A, A);
    check("not b", A B, A B);
    check("b", A B, "id: 14:x\n\n");
    check("not b", "data: no JSON\nid: 9:x\n\n", "id: 9:x\n\n");
    check("not b", "data: {}   \nid: 9:x\n\n", "id: 9:x\n\n"); /* an erased line */
    check("not b", "data: \nid: 1:x\n\n", "id: 1:x\n\n");
    check("a = 1", "data: {\ndata: \"a\":1}\nid: 9:x\n\n", "data: {\ndata: \"a\":1}\nid: 9:x\n\n");
    check("a = 2", "data: {\ndata: \"a\":1}\nid: 9:x\n\n", "id: 9:x\n\n");
}

static void test_what_is_no_line(void **state)
{
    static const char gap[] = "event: gap\ndata: {\"before\":\"1\",\"after\":\"9\"}\nid: 9:x\n\n";
    (void)state;
    check("b", gap, gap);
    check("b", "retry: 100\n\n", "retry: 100\n\n");
    check("b", ":\n\n" A, ":\n\nid: 7:x\n\n");
    check("b", A "data: {\"b\":1}\nid: 9", ""); /* an id within an event waits for the end of the event */
    check("a", "", "");
}

static void test_a_costly_pattern(void **state)
{
    (void)state;
    static const char costly[] = "data: {\"a\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!\"}\nid: 9:x\n\n"
                                 "data: {\"a\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!\"}\nid: 10:x\n\n";
    check("a ~ ^(a+)+$", costly, UNDECIDED "id: 10:x\n\n");
}

static void test_errors(void **state)
{
    struct error error;
    (void)state;
    assert_null(live_filter_new(BYTES_LITERAL("a =="), &error));
    assert_string_equal(error.text, "column 3: expected an operator, not == (did you mean =?)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_events), cmocka_unit_test(test_what_is_no_line),
        cmocka_unit_test(test_a_costly_pattern), cmocka_unit_test(test_errors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
