/* Records of CSV files, and the events that they become. */
#include "base/csv_record.h"

#include "support/cm.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static struct csv_form form;

/* What the file's lines become: events, reasons after a ! */
static void check(const char *file, const char *expected)
{
    struct csv *c = csv_new(&form);
    struct buf out = {0};
    enum csv_result r = CSV_NONE;
    for (const char *at = file, *end; *at != '\0'; at = end) {
        end = strchr(at, '\n');
        end = end != NULL ? end + 1 : at + strlen(at);
        r = csv_add(c, bytes_of(at, (size_t)(end - at)));
        if (r == CSV_EVENT)
            buf_append_bytes(&out, buf_bytes(&csv_record(c)->event));
        if (r == CSV_WRONG)
            buf_printf(&out, "!%s", csv_record(c)->wrong);
        assert_int_equal(r == CSV_MORE, csv_record(c)->is_inside);
    }
    if (csv_end(c) == CSV_WRONG)
        buf_printf(&out, "!%s", csv_record(c)->wrong);
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

static void test_columns_that_are_left_out(void **state)
{
    (void)state;
    check(",t,l\n0,5,ann\n1,6,bob\n", "{\"t\":5,\"l\":\"ann\"}{\"t\":6,\"l\":\"bob\"}");
    check("t,l,\n5,ann,\n6,bob,x\n", "{\"t\":5,\"l\":\"ann\"}{\"t\":6,\"l\":\"bob\"}");
    check("t,l,t\n5,ann,6\n", "{\"t\":5,\"l\":\"ann\"}");
    check("t,l\n5,ann,,\n6,bob,x\n", "{\"t\":5,\"l\":\"ann\"}!the record has 3 fields, and the first line "
                                     "has 2; quotes must enclose a value that contains the delimiter");
    struct csv *c = csv_new(&form);
    assert_int_equal(csv_add(c, bytes_str(",t,l,t,\n")), CSV_NONE);
    assert_string_equal(csv_record(c)->note,
        "ignored: columns without a name, or with the name of an earlier column: 1, 4 (t), 5");
    assert_int_equal(csv_add(c, bytes_str("1,2,3,4,5\n")), CSV_EVENT);
    assert_null(csv_record(c)->note);
    csv_free(&c);
}

static void test_delimiters(void **state)
{
    (void)state;
    static const char delimiters[] = ",;\t|";
    char file[100];
    for (const char *d = delimiters; *d; d++) {
        snprintf(file, sizeof file, "t%c\"a,b;c\"%cl\n1%c2%c3\n", *d, *d, *d, *d);
        check(file, "{\"t\":1,\"a,b;c\":2,\"l\":3}");
    }
    check("sep=;\r\na,b\r\n1,5\r\n", "{\"a,b\":\"1,5\"}");
    check("\xEF\xBB\xBFSEP=,\na;b;c\n1\n", "{\"a;b;c\":1}");
    form.delimiter = '#';
    check("a,b#c\n1#2\n", "{\"a,b\":1,\"c\":2}");
    form.delimiter = '\0';
}

static void test_whole_numbers(void **state)
{
    (void)state;
    check("a,b,c,d\n123.0,-7.000,-0.0,0.50\n", "{\"a\":123,\"b\":-7,\"c\":0,\"d\":0.50}");
}

#define NOON "2026-11-28T12:00:00Z"

static void test_times(void **state)
{
    (void)state;
    static const char *const noon[] = {"2026-11-28T12:00:00+0000", "2026-11-28 12:00:00",
        "2026-11-28 12:00:00+00", "2026-11-28T12:00:00", "2026-11-28 12:00:00 UTC",
        "2026-11-28 12:00:00.123 +0000", "2026-11-28 13:30:00+0130", "2026-11-28 12:00",
        "2026-11-28T04:00:00-08", NOON};
    char file[100];
    setenv("TZ", "UTC0", 1);
    tzset();
    form.time_column = "t";
    for (size_t i = 0; i < sizeof noon / sizeof *noon; i++) {
        snprintf(file, sizeof file, "t,u\n%s,%s\n", noon[i], "x 2026-11-28");
        check(file, "{\"t\":\"" NOON "\",\"u\":\"x 2026-11-28\"}");
    }
    check("t\n1795876708000000000\n\"1795876708\"\n1795876708.5\n",
        "{\"t\":1795876708000000000}{\"t\":1795876708}{\"t\":1795876708.5}");
    check("t\n2026-02-30 12:00:00\n24.03.2026\n1795876708.1234567891\n",
        "!2026-02-30 12:00:00 is not a time; name its form, such as --time-format='%d.%m.%Y %H:%M'"
        "!24.03.2026 is not a time; name its form, such as --time-format='%d.%m.%Y %H:%M'"
        "{\"t\":\"1795876708.1234567891\"}");
    setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3", 1);
    tzset();
    check("t\n2026-11-28 13:00:00\n2026-07-28 13:00:00\n",
        "{\"t\":\"" NOON "\"}{\"t\":\"2026-07-28T11:00:00Z\"}");
    form.time_form = "%d.%m.%Y %H:%M";
    check("t\n28.11.2026 13:00\n31.2.2026 13:00\n",
        "{\"t\":\"" NOON "\"}!31.2.2026 13:00 is not a time of the form of --time-format");
    form.time_form = "%Y%m%d";
    check("t\n20261128\n", "{\"t\":\"2026-11-27T23:00:00Z\"}");
    form = (struct csv_form){0};
}

static void test_wrong_records(void **state)
{
    (void)state;
    check("a,b\n1\n1,2,3\n4,5\n",
        "!the record has 1 field, and the first line has 2!the record has 3 "
        "fields, and the first line has 2; quotes must enclose a value that contains the delimiter"
        "{\"a\":4,\"b\":5}");
    check("a\nx\"y\nz\n", "!a quote within a value without quotes{\"a\":\"z\"}");
    check("a\n\"x\"y\n\"\nb\"c\nz\n", "!text after a closing quote!text after a closing quote{\"a\":\"z\"}");
    check("a\n\"x\ny\n", "!the closing quote of a value is missing");
    check("a\n\"x", "!the closing quote of a value is missing");
    check(",\n", "!the first line must name the fields, but names none");
}

static void test_files(void **state)
{
    (void)state;
    struct csv *c = csv_new(&form);
    assert_false(csv_record(c)->has_names);
    assert_int_equal(csv_add(c, bytes_str(",\n")), CSV_WRONG);
    assert_false(csv_record(c)->has_names);
    csv_begin(c);
    assert_int_equal(csv_add(c, bytes_str("a,b\n")), CSV_NONE);
    assert_true(csv_record(c)->has_names);
    assert_int_equal(csv_add(c, bytes_str("\"x\n")), CSV_MORE);
    csv_begin(c);
    assert_false(csv_record(c)->is_inside);
    assert_int_equal(csv_add(c, bytes_str("c\n")), CSV_NONE);
    assert_int_equal(csv_add(c, bytes_str("1\n")), CSV_EVENT);
    assert_true(bytes_equal_str(buf_bytes(&csv_record(c)->event), "{\"c\":1}"));
    assert_int_equal(csv_add(c, bytes_str("1,2\n")), CSV_WRONG);
    assert_true(bytes_equal_str(buf_bytes(&csv_record(c)->text), "1,2\n"));
    assert_int_equal(csv_record(c)->unclosed, 0);
    assert_int_equal(csv_add(c, bytes_str("\"1\n")), CSV_MORE);
    assert_int_equal(csv_add(c, bytes_str("1\",\"\"\"2\n")), CSV_MORE);
    assert_int_equal(csv_add(c, bytes_str("2\n")), CSV_MORE);
    assert_int_equal(csv_end(c), CSV_WRONG);
    assert_int_equal(csv_record(c)->lines, 3);
    assert_int_equal(csv_record(c)->unclosed, 2);
    csv_free(&c);
}

static void test_columns_by_name(void **state)
{
    char delimiter;
    struct csv *c = csv_new(&form);
    (void)state;
    assert_int_equal(csv_column(c, "a"), CSV_NO_COLUMN);
    assert_int_equal(csv_add(c, bytes_str("a,\"b \"\"c\"\"\",,a,d\n")), CSV_NONE);
    assert_int_equal(csv_column(c, "a"), 0);
    assert_int_equal(csv_column(c, "b \"c\""), 1);
    assert_int_equal(csv_column(c, "d"), 4);
    assert_int_equal(csv_column(c, ""), CSV_NO_COLUMN);
    assert_int_equal(csv_add(c, bytes_str("109.0,\"x, y\",,,\n")), CSV_EVENT);
    assert_true(bytes_equal_str(csv_value(c, 0), "109.0"));
    assert_true(bytes_equal_str(csv_value(c, 1), "x, y"));
    assert_int_equal(csv_value(c, 4).len, 0);
    assert_int_equal(csv_value(c, CSV_NO_COLUMN).len, 0);
    csv_free(&c);
    assert_true(csv_read_delimiter(";", &delimiter) && delimiter == ';');
    assert_true(csv_read_delimiter("tab", &delimiter) && delimiter == '\t');
    assert_false(csv_read_delimiter("\"", &delimiter) || csv_read_delimiter("", &delimiter) ||
                 csv_read_delimiter(";;", &delimiter));
}

static void test_a_missing_quote_ends(void **state)
{
    static char line[1 << 20];
    struct csv *c = csv_new(&form);
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
        cmocka_unit_test(test_quotes), cmocka_unit_test(test_wrong_records),
        cmocka_unit_test(test_columns_that_are_left_out), cmocka_unit_test(test_delimiters),
        cmocka_unit_test(test_whole_numbers), cmocka_unit_test(test_times), cmocka_unit_test(test_files),
        cmocka_unit_test(test_columns_by_name), cmocka_unit_test(test_a_missing_quote_ends)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
