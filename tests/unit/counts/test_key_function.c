/* What the functions of keys take of a text. */
#include "support/cm.h"

#include "counts/key_function.h"
#include <stdlib.h>

static void check(const char *call, const char *text, const char *expected)
{
    struct bytes field, argument, got;
    struct buf space = {0};
    const struct key_function *f = key_function_parse(bytes_str(call), &field, &argument);
    assert_non_null(f);
    char *name = bytes_dup(argument),
         *exact = mem_alloc(strlen(text)); /* a sanitizer sees a read beyond the end */
    memcpy(exact, text, strlen(text));
    got = key_function_apply(f, bytes_of(exact, strlen(text)), name, &space);
    if (!bytes_equal_str(got, expected))
        fail_msg("%s of %s is %.*s, not %s", call, text, (int)got.len, got.ptr, expected);
    free(name);
    free(exact);
    buf_free(&space);
}

static void hosts(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"direct", "direct"},
        {"http://", ""},
        {"http:///path", ""},
        {"http://?q", ""},
        {"http://www.Example.COM/a?b#c", "www.example.com"},
        {"http://example.com:8080", "example.com"},
        {"http://user:pw@example.com:80/", "example.com"},
        {"http://a@b@c/", "c"},
        {"http://c/a@b", "c"},
        {"http://[2001:DB8::1]:80/", "[2001:db8::1]"},
        {"http://[::1", "[::1]"},
        {"http://[", "[]"},
        {"http://u@[A]b:1", "[a]"},
        {"http://:80", ""},
        {"http://@", ""},
        {"HTTP://A", "a"},
        {"a+b-c.1://X", "x"},
        {"1a://X", "1a://X"},
        {"://X", "://X"},
        {"http:/X", "http:/X"},
        {"http//X", "http//X"},
        {"mailto:A@B", "mailto:A@B"},
        {"http:", "http:"},
        {"ht tp://X", "ht tp://X"},
        {"http://EX\xc3\x84MPLE\xff/", "ex\xc3\x84mple\xff"},
        {"http://a b\n/", "a b\n"},
        {"http://@[X{~`", "[x{~`]"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check("host(u)", rows[i][0], rows[i][1]);
}

static void paths(void **state)
{
    (void)state;
    static const char *const rows[][2] = {{"http://example.com/a/b?c=d#e", "/a/b"},
        {"http://example.com", "/"}, {"http://example.com?a=/b", "/"}, {"http://example.com#/x", "/"},
        {"https://u:p@[::1]:80/a%20b/", "/a%20b/"}, {"/a?b", "/a"}, {"/a#b", "/a"}, {"?a=b", ""}, {"#", ""},
        {"a", "a"}, {"mailto:a@b?c", "mailto:a@b"}, {"//host/a", "//host/a"}, {"http:///a//b", "/a//b"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check("path(u)", rows[i][0], rows[i][1]);
}

static void queries(void **state)
{
    (void)state;
    static const char *const rows[][2] = {{"http://e.org/?page=2", "2"}, {"/a?x=1&page=2&page=3", "2"},
        {"?page=a+b%21", "a b!"}, {"/a?page=", ""}, {"/a?page", ""}, {"/a?pages=1", ""}, {"/a", ""},
        {"page=2", ""}, {"?", ""}, {"/a?x=page=1", ""}, {"/a?page=1=2", "1=2"}, {"/a#?page=1", ""},
        {"/a?page=1#&page=2", "1"}, {"/a?page=1#f", "1"}, {"/a?p%61ge=1", "1"}, {"/a?page=%zz+", "%zz+"},
        {"/a?page=%4", "%4"}, {"/a?page=%ff", "%ff"}, {"/a?page=%C3%A9", "\xc3\xa9"}, {"/a?&&page=7&", "7"},
        {"/a?b?page=1", ""}, {"/a?b&page=1?2", "1?2"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check("query(u, page )", rows[i][0], rows[i][1]);
    check("query(u,a b)", "?a+b=1&a%20b=2", "1");
    check("query([\"a,b\"],x)", "?x=1", "1");
}

static void lowercase_and_status_classes(void **state)
{
    (void)state;
    check("lower(u)", "ABC xyz [\xc3\x84]", "abc xyz [\xc3\x84]");
    static const char *const rows[][2] = {{"200", "2xx"}, {"404", "4xx"}, {"599", "5xx"}, {"100", "1xx"},
        {"600", "600"}, {"099", "099"}, {"20", "20"}, {"2000", "2000"}, {"4a4", "4a4"}, {"-40", "-40"},
        {"OK", "OK"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check("status_class(s)", rows[i][0], rows[i][1]);
}

static void parts_in_any_case(void **state)
{
    (void)state;
    static const struct {
        struct bytes text, part;
        bool is_found;
    } rows[] = {{BYTES_LITERAL("http://e/Needle"), BYTES_LITERAL("nEEDLE"), true},
        {BYTES_LITERAL("a"), BYTES_LITERAL(""), true}, {BYTES_NONE, BYTES_NONE, true},
        {BYTES_NONE, BYTES_LITERAL("a"), false}, {BYTES_LITERAL("ab"), BYTES_LITERAL("abc"), false},
        {BYTES_LITERAL("aab"), BYTES_LITERAL("ab"), true},
        {BYTES_LITERAL("x\0Y"), BYTES_LITERAL("\0y"), true},
        {BYTES_LITERAL("x\0z"), BYTES_LITERAL("x\0y"), false},
        {BYTES_LITERAL("\xc3\xa9"), BYTES_LITERAL("\xc3\x89"), false},
        {BYTES_LITERAL("["), BYTES_LITERAL("{"), false}, {BYTES_LITERAL("@"), BYTES_LITERAL("`"), false}};
    struct buf space = {0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (key_function_contains(rows[i].text, rows[i].part, &space) != rows[i].is_found)
            fail_msg("row %zu", i);
    buf_free(&space);
}

static void calls(void **state)
{
    struct bytes field, argument;
    (void)state;
    static const char *const none[] = {"", "host", "host(", "host)", "host()", "host( )", "hosts(u)", "(u)",
        "query(u)", "query(u,)", "query(,a)", "query()", "Host(u)", "host(u", "host (u)", " host(u)",
        "\"host(u)\""};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        if (key_function_parse(bytes_str(none[i]), &field, &argument))
            fail_msg("%s was taken", none[i]);
    assert_non_null(key_function_parse(BYTES_LITERAL("query(a.b[0], utm_source)"), &field, &argument));
    assert_true(bytes_equal_str(field, "a.b[0]") && bytes_equal_str(argument, "utm_source"));
    assert_non_null(key_function_parse(BYTES_LITERAL("lower(a,b)"), &field, &argument));
    assert_true(bytes_equal_str(field, "a,b") && argument.len == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts),
        cmocka_unit_test(paths),
        cmocka_unit_test(queries),
        cmocka_unit_test(lowercase_and_status_classes),
        cmocka_unit_test(parts_in_any_case),
        cmocka_unit_test(calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
