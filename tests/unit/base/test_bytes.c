#include "support/cm.h"
#include "base/bytes.h"
#include <stdio.h>
#include <stdlib.h>

static void test_order(void **state)
{
    (void)state;
    assert_true(bytes_compare(bytes_str("a"), bytes_str("b")) < 0);
    assert_true(bytes_compare(bytes_str("a"), bytes_str("ab")) < 0);
    assert_true(bytes_compare(bytes_str("\x80"), bytes_str("a")) > 0);
    assert_true(bytes_compare(bytes_of("a\0b", 3), bytes_of("a\0c", 3)) < 0);
    assert_int_equal(bytes_compare(BYTES_NONE, bytes_str("")), 0);
    assert_true(bytes_starts_with(bytes_str("abc"), bytes_str("ab")));
    assert_false(bytes_starts_with(bytes_str("ab"), bytes_str("abc")));
}

static void test_numbers(void **state)
{
    static const char *const bad[] = {"", "-", "+1", " 1", "1 ", "1x", "18446744073709551616", "0x10", "1e3"};
    uint64_t u = 7;
    int64_t i = 7;
    (void)state;
    for (size_t n = 0; n < sizeof bad / sizeof *bad; n++) {
        assert_false(bytes_to_u64(bytes_str(bad[n]), &u));
        assert_false(bytes_to_i64(bytes_str(bad[n]), &i));
    }
    assert_int_equal(u, 7);
    assert_true(bytes_to_u64(bytes_str("18446744073709551615"), &u) && u == UINT64_MAX);
    assert_true(bytes_to_i64(bytes_str("-9223372036854775808"), &i) && i == INT64_MIN);
    assert_false(bytes_to_i64(bytes_str("9223372036854775808"), &i));
    assert_false(bytes_to_i64(bytes_str("-9223372036854775809"), &i));
}

static void test_sizes(void **state)
{
    uint64_t n;
    (void)state;
    assert_true(bytes_to_size(bytes_str("0"), &n) && n == 0);
    assert_true(bytes_to_size(bytes_str("64K"), &n) && n == 65536);
    assert_true(bytes_to_size(bytes_str("2GiB"), &n) && n == UINT64_C(2) << 30);
    assert_true(bytes_to_size(bytes_str("3mb"), &n) == false);
    assert_true(bytes_to_size(bytes_str("3mB"), &n) && n == 3 << 20);
    assert_false(bytes_to_size(bytes_str("99999999999T"), &n));
    assert_false(bytes_to_size(bytes_str("K"), &n));
    assert_false(bytes_to_size(bytes_str("1X"), &n));
}

static void test_names(void **state)
{
    char longest[NAME_LEN_MAX + 2];
    (void)state;
    memset(longest, 'a', sizeof longest);
    assert_true(bytes_is_name(bytes_str("clicks-2012_03.A")));
    assert_true(bytes_is_name(bytes_of(longest, NAME_LEN_MAX)));
    assert_false(bytes_is_name(bytes_of(longest, NAME_LEN_MAX + 1)));
    assert_false(bytes_is_name(bytes_str("")));
    assert_false(bytes_is_name(bytes_str(".")));
    assert_false(bytes_is_name(bytes_str("..")));
    assert_false(bytes_is_name(bytes_str("a/b")));
    assert_false(bytes_is_name(bytes_of("a\0b", 3)));
    assert_false(bytes_is_name(bytes_str("\xC3\xA9")));
}

static void test_buffer(void **state)
{
    struct buf b = {0};
    (void)state;
    for (unsigned i = 0; i < 1000; i++) {
        buf_append_u64(&b, i);
        buf_append_char(&b, '\0');
    }
    buf_append_u64(&b, UINT64_MAX);
    assert_int_equal(b.len, 10 * 2 + 90 * 3 + 900 * 4 + 20);
    buf_clear(&b);
    buf_printf(&b, "%s-%d", "x", 12);
    assert_true(bytes_equal_str(buf_bytes(&b), "x-12"));
    buf_free(&b);
    assert_null(b.ptr);
}

static void expect_json(struct bytes in, const char *out)
{
    struct buf b = {0};
    buf_append_json(&b, in);
    buf_append_char(&b, '\0');
    assert_string_equal(b.ptr, out);
    buf_free(&b);
}

static void test_csv(void **state)
{
    static const char *const fields[][2] = {{"", ""}, {"a b", "a b"}, {"a,b", "\"a,b\""},
        {"a\"b", "\"a\"\"b\""}, {"=1+1", "\"'=1+1\""}, {"+1", "\"'+1\""}, {"-1", "\"'-1\""},
        {"@a", "\"'@a\""}, {"\t=1", "\"'\t=1\""}, {"a=1", "a=1"}};
    (void)state;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        struct buf b = {0};
        buf_append_csv(&b, bytes_str(fields[i][0]));
        assert_true(bytes_equal_str(buf_bytes(&b), fields[i][1]));
        buf_free(&b);
    }
}

static void test_json_text(void **state)
{
    (void)state;
    expect_json(bytes_str("plain"), "\"plain\"");
    expect_json(bytes_of("\"\\\n\0\x7f", 5), "\"\\\"\\\\\\n\\u0000\\u007f\"");
    expect_json(bytes_str("\xC3\xA9\xF0\x9F\x98\x80"), "\"\xC3\xA9\xF0\x9F\x98\x80\"");
    /* A lone continuation, an overlong slash, a surrogate, past U+10FFFF, a sequence cut short. */
    expect_json(bytes_str("\x80"), "\"\xEF\xBF\xBD\"");
    expect_json(bytes_str("\xC0\xAF"), "\"\xEF\xBF\xBD\xEF\xBF\xBD\"");
    expect_json(bytes_str("\xED\xA0\x80"), "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");
    expect_json(bytes_str("\xF4\x90\x80\x80"), "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");
    expect_json(bytes_str("a\xE2\x82"), "\"a\xEF\xBF\xBD\xEF\xBF\xBD\"");
}

static void expect_decoded(const char *text, const char *decoded)
{
    struct buf b = {0};
    assert_int_equal(buf_append_json_text(&b, bytes_str(text)), decoded != NULL);
    assert_true(!decoded || bytes_equal_str(buf_bytes(&b), decoded));
    buf_free(&b);
}

static void escapes_are_decoded(void **state)
{
    static const char *const invalid[] = {"a\\", "\\x", "\\U0041", "\\u", "\\u12", "\\u12g4", "\\ud83d",
        "\\ud83d\\n", "\\ud83dxude00", "\\ud83d\\u0041", "\\ud83d\\ude0", "\\ud83d\\ue000", "\\ude00",
        "\\udfff"};
    (void)state;
    expect_decoded("", "");
    expect_decoded("a\\\"\\\\\\/\\b\\f\\n\\r\\tz", "a\"\\/\b\f\n\r\tz");
    expect_decoded("\\u0041\\u007f\\u0080\\u07FF\\u0800\\ud7ff\\ue000\\uffff",
        "A\x7F\xC2\x80\xDF\xBF\xE0\xA0\x80\xED\x9F\xBF\xEE\x80\x80\xEF\xBF\xBF");
    expect_decoded("\\ud800\\udc00\\uDBFF\\uDFFF", "\xF0\x90\x80\x80\xF4\x8F\xBF\xBF");
    for (size_t i = 0; i < sizeof invalid / sizeof *invalid; i++)
        expect_decoded(invalid[i], NULL);
    for (int c = 0; c < 0x80; c++) { /* what buf_append_json has written */
        struct buf json = {0}, text = {0};
        char byte = (char)c;
        buf_append_json(&json, bytes_of(&byte, 1));
        assert_true(buf_append_json_text(&text, bytes_of(json.ptr + 1, json.len - 2)));
        assert_true(bytes_equal(buf_bytes(&text), bytes_of(&byte, 1)));
        buf_free(&json);
        buf_free(&text);
    }
}

static void test_words(void **state)
{
    static const char *const want[] = {"a", "b/c", "d"};
    const char *list = " ,a, \tb/c,,d ", *none = NULL;
    struct bytes word;
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        assert_true(bytes_next_word(&list, " ,\t", &word));
        assert_true(bytes_equal_str(word, want[i]));
    }
    assert_false(bytes_next_word(&list, " ,\t", &word));
    assert_false(bytes_next_word(&list, " ,\t", &word));
    assert_false(bytes_next_word(&none, " ,\t", &word));
}

static void test_counts_lines(void **state)
{
    (void)state;
    assert_int_equal(bytes_count_lines(BYTES_LITERAL("a\n\nb\n\0\nc")), 4);
    assert_int_equal(bytes_count_lines(BYTES_NONE), 0);
}

/* More than a lane of a vector counts to, and ends that fill none. */
static void test_counts_many_lines(void **state)
{
    enum { MOST = 10000 };
    char *text = malloc(MOST);
    (void)state;
    assert_non_null(text);
    memset(text, '\n', MOST);
    for (size_t n = 0; n <= MOST; n = 2 * n + 1)
        assert_int_equal(bytes_count_lines(bytes_of(text, n)), n);
    assert_int_equal(bytes_count_lines(bytes_of(text + 1, MOST - 1)), MOST - 1);
    for (size_t i = 0; i < MOST; i += 2)
        text[i] = 'x';
    assert_int_equal(bytes_count_lines(bytes_of(text, MOST)), MOST / 2);
    free(text);
}

static void test_seconds(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t usec;
    } good[] = {{"0", 0}, {"0.000001", 1}, {"1332612345.25", 1332612345250000}, {"1.9999999", 1999999},
        {"9223372036853.999999", 9223372036853999999}, {"007.5", 7500000}};
    static const char *const bad[] = {"", ".", "1.", ".5", "-1", "+1", "1e3", "1.5.2", "1.x", " 1",
        "9223372036854", "18446744073709551615", "99999999999999999999"};
    int64_t usec;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        assert_true(bytes_to_usec(bytes_str(good[i].text), &usec) && usec == good[i].usec);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(bytes_to_usec(bytes_str(bad[i]), &usec));
    assert_false(bytes_to_usec(BYTES_NONE, &usec));
}

static void hex_digits_become_bytes(void **state)
{
    (void)state;
    struct buf out = {0};
    assert_true(buf_append_unhex(&out, BYTES_LITERAL("00fFa5")));
    assert_true(bytes_equal(buf_bytes(&out), BYTES_LITERAL("\0\xff\xa5")));
    assert_true(buf_append_unhex(&out, BYTES_NONE));
    assert_int_equal(out.len, 3);
    assert_false(buf_append_unhex(&out, BYTES_LITERAL("0")));
    assert_false(buf_append_unhex(&out, BYTES_LITERAL("0g")));
    assert_false(buf_append_unhex(&out, BYTES_LITERAL("g0")));
    assert_false(buf_append_unhex(&out, BYTES_LITERAL("001")));
    buf_free(&out);
}

/* A short decimal is the number of strtod, to the bit. */
static void test_short_decimals(void **state)
{
    (void)state;
    static const char *const others[] = {
        "", "-", ".", "-.", "+1", "1e5", "1.2.3", "1234567890123456", " 1", "1 ", "0x1", "--1", "nan"};
    static const char *const shown[] = {"0", "-0", "0.1", "-1.5", "1.", ".5", "00012", "999999999999999",
        "1732977600.125", "0.00000000000001"};
    double d;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_false(bytes_to_short_decimal(bytes_str(others[i]), &d));
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
        double expected = strtod(shown[i], NULL);
        assert_true(bytes_to_short_decimal(bytes_str(shown[i]), &d));
        assert_memory_equal(&d, &expected, sizeof d);
    }
    srandom(1);
    for (int i = 0; i < 200000; i++) {
        char text[40];
        int places = (int)(random() % 15);
        snprintf(text, sizeof text, "%s%.*f", random() % 2 ? "-" : "", places,
            (double)random() / (double)(1 + random() % 100000));
        if (!bytes_to_short_decimal(bytes_str(text), &d))
            continue;
        double expected = strtod(text, NULL);
        assert_memory_equal(&d, &expected, sizeof d);
    }
}

/* Each place of a malformed or escaped byte in a text, around the eight bytes that are read at once. */
static void test_every_place_in_a_text(void **state)
{
    (void)state;
    for (size_t n = 1; n < 30; n++)
        for (size_t at = 0; at < n; at++) {
            char text[30], expected[40];
            struct buf out = {0};
            memset(text, 'x', n);
            text[at] = '\xff';
            assert_false(bytes_is_utf8(bytes_of(text, n)));
            text[at] = '\x7e';
            assert_true(bytes_is_utf8(bytes_of(text, n)));
            text[at] = '"';
            int len = snprintf(expected, sizeof expected, "\"%.*s\\\"%.*s\"", (int)at, text,
                (int)(n - at - 1), text + at + 1);
            buf_append_json(&out, bytes_of(text, n));
            assert_true(bytes_equal(buf_bytes(&out), bytes_of(expected, (size_t)len)));
            buf_free(&out);
        }
}

static void control_bytes_become_printable(void **state)
{
    (void)state;
    struct buf out = {0};
    buf_append_printable(&out, BYTES_LITERAL("a\n\x1b[2J\x7f \xc2\x85\xc3\xa9\xc2"));
    assert_true(bytes_equal_str(buf_bytes(&out), "a\\x0a\\x1b[2J\\x7f \\xc2\\x85\xc3\xa9\xc2"));
    buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_seconds),
        cmocka_unit_test(test_counts_lines),
        cmocka_unit_test(test_counts_many_lines),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_buffer),
        cmocka_unit_test(test_json_text),
        cmocka_unit_test(escapes_are_decoded),
        cmocka_unit_test(test_csv),
        cmocka_unit_test(test_words),
        cmocka_unit_test(hex_digits_become_bytes),
        cmocka_unit_test(test_short_decimals),
        cmocka_unit_test(test_every_place_in_a_text),
        cmocka_unit_test(control_bytes_become_printable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
