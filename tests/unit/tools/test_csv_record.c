/* Records of CSV files, and the events that they become. */
#include "tools/put/csv_record.h"

#include "support/cm.h"

#include <stdio.h>

/* What the file's lines become: events, reasons after a ! */
static void check(const char *file, const char *expected)
{
    struct csv *c = csv_new();
    struct buf out = {0};
    enum csv_result r = CSV_NONE;
    for (const char *at = file, *end; *at != '\0'; at = end) {
        end = strchr(at, '\n');
        end = end != NULL ? end + 1 : at + strlen(at);
        r = csv_add(c, bytes_of(at, (size_t)(end - at)));
        if (r == CSV_EVENT)
            buf_append_bytes(&out, csv_event(c));
        if (r == CSV_WRONG)
            buf_printf(&out, "!%s", csv_wrong(c));
        assert_int_equal(r == CSV_MORE, csv_is_inside(c));
    }
    if (csv_end(c) == CSV_WRONG)
        buf_printf(&out, "!%s", csv_wrong(c));
    buf_append_char(&out, '\0');
    assert_string_equal(out.ptr, expected);
    buf_free(&out);
    csv_free(&c);
}

static void test_values(void **state)
{
    (void)state;
    check("a,b\n1,x\n", "{\"a\":1,\"b\":\"x\"}");
    check("a,b\r\n1,x\r\n\r\n2,y", "{\"a\":1,\"b\":\"x\"}{\"a\":2,\"b\":\"y\"}");
    check("\xEF\xBB\xBF"
          "a,b\n,\nx,\n",
        "{}{\"a\":\"x\"}");
    check("a\n\xff\n", "{\"a\":\"\xEF\xBF\xBD\"}");
    check("a\n\n1\n", "{\"a\":1}");
    check("", "");
}

static void test_numbers(void **state)
{
    static const char *const numbers[] = {"0", "-1", "10", "1.50", "-0.5", "123456789012345678"};
    static const char *const texts[] = {"007", "00", "-", "1.", ".5", "1e5", "+1", "1 ", " 1", "0x1", "-01",
        "1.2.3", "1234567890123456789", "NaN"};
    char file[100], expected[100];
    (void)state;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        snprintf(file, sizeof file, "a\n%s\n\"%s\"\n", numbers[i], numbers[i]);
        snprintf(expected, sizeof expected, "{\"a\":%s}{\"a\":%s}", numbers[i], numbers[i]);
        check(file, expected);
    }
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        snprintf(file, sizeof file, "a\n%s\n", texts[i]);
        snprintf(expected, sizeof expected, "{\"a\":\"%s\"}", texts[i]);
        check(file, expected);
    }
}

static void test_quotes(void **state)
{
    (void)state;
    check("\"a\",\"b,c\"\n\"x\",\"y \"\"z\"\"\"\n", "{\"a\":\"x\",\"b,c\":\"y \\\"z\\\"\"}");
    check("a,b\n\"1\r\n\n2\",x\n3,4\n", "{\"a\":\"1\\r\\n\\n2\",\"b\":\"x\"}{\"a\":3,\"b\":4}");
    check("a\n\"\"\n\"x\"\r\n", "{}{\"a\":\"x\"}");
    check("\"a\nb\"\n1\n", "{\"a\\nb\":1}");
}

static void test_wrong_records(void **state)
{
    (void)state;
    check("a,b\n1\n1,2,3\n4,5\n", "!the record has 1 fields, and the first line has 2!the record has 3 "
                                  "fields, and the first line has 2{\"a\":4,\"b\":5}");
    check("a\nx\"y\nz\n", "!a quote within a value without quotes{\"a\":\"z\"}");
    check("a\n\"x\"y\n\"\nb\"c\nz\n", "!text after a closing quote!text after a closing quote{\"a\":\"z\"}");
    check("a\n\"x\ny\n", "!the closing quote of a value is missing");
    check("a\n\"x", "!the closing quote of a value is missing");
    check("a,\n", "!the first line names the fields, and has an empty name");
}

static void test_files(void **state)
{
    (void)state;
    struct csv *c = csv_new();
    assert_false(csv_has_names(c));
    assert_int_equal(csv_add(c, bytes_str("a,a\n")), CSV_WRONG);
    assert_false(csv_has_names(c));
    csv_begin(c);
    assert_int_equal(csv_add(c, bytes_str("a,b\n")), CSV_NONE);
    assert_true(csv_has_names(c));
    assert_int_equal(csv_add(c, bytes_str("\"x\n")), CSV_MORE);
    csv_begin(c);
    assert_false(csv_is_inside(c));
    assert_int_equal(csv_add(c, bytes_str("c\n")), CSV_NONE);
    assert_int_equal(csv_add(c, bytes_str("1\n")), CSV_EVENT);
    assert_true(bytes_equal_str(csv_event(c), "{\"c\":1}"));
    assert_int_equal(csv_add(c, bytes_str("1,2\n")), CSV_WRONG);
    assert_true(bytes_equal_str(csv_text(c), "1,2\n"));
    csv_free(&c);
}

static void test_a_missing_quote_ends(void **state)
{
    static char line[1 << 20];
    struct csv *c = csv_new();
    enum csv_result r = CSV_MORE;
    (void)state;
    memset(line, 'x', sizeof line - 1);
    line[sizeof line - 1] = '\n';
    assert_int_equal(csv_add(c, bytes_str("a\n")), CSV_NONE);
    assert_int_equal(csv_add(c, bytes_str("\"\n")), CSV_MORE);
    for (size_t n = 0; n < CSV_RECORD_MAX / sizeof line && r == CSV_MORE; n++)
        r = csv_add(c, bytes_of(line, sizeof line));
    assert_int_equal(r, CSV_WRONG);
    assert_int_equal(csv_add(c, bytes_str("1\n")), CSV_EVENT);
    csv_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values), cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_quotes), cmocka_unit_test(test_wrong_records), cmocka_unit_test(test_files),
        cmocka_unit_test(test_a_missing_quote_ends)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
