#include "support/cm.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "counts/decimal.h"

#define MANY "0000000000000000000000000000000000000000"
#define DIGITS "has more digits after the point than the counter's scale"
#define SENDS "has more than 15 digits; send it as text"
#define MALFORMED "is not a decimal"
#define LARGE "is beyond 64 bits"

static const struct {
    const char *text;
    unsigned scale;
    bool rounds;
    const char *why; /* NULL: accepted */
    int64_t n;
} texts[] = {
    {"0", 0, false, NULL, 0},
    {"-0", 0, false, NULL, 0},
    {"-0.00", 2, false, NULL, 0},
    {"12.5", 2, false, NULL, 1250},
    {"12.50", 1, false, NULL, 125},
    {"12.500000000000000000000000000", 1, false, NULL, 125},
    {"-3", 2, false, NULL, -300},
    {"007.10", 2, false, NULL, 710},
    {MANY "7", 0, false, NULL, 7},
    {"-0.05", 2, false, NULL, -5},
    {"12.345", 2, false, DIGITS, 0},
    {"0.000000001", 9, false, NULL, 1},
    {"12.345", 2, true, NULL, 1234},
    {"12.355", 2, true, NULL, 1236},
    {"12.3450000000000000001", 2, true, NULL, 1235},
    {"-12.345", 2, true, NULL, -1234},
    {"-12.355", 2, true, NULL, -1236},
    {"0.5", 0, true, NULL, 0},
    {"1.5", 0, true, NULL, 2},
    {"0.4" MANY "9", 0, true, NULL, 0},
    {"9223372036854775807", 0, false, NULL, INT64_MAX},
    {"-9223372036854775808", 0, false, NULL, INT64_MIN},
    {"9223372036854775808", 0, false, LARGE, 0},
    {"-9223372036854775809", 0, false, LARGE, 0},
    {"18446744073709551616", 0, false, LARGE, 0},
    {"92233720368547758.07", 2, false, NULL, INT64_MAX},
    {"92233720368547758.08", 2, false, LARGE, 0},
    {"92233720368547758.074", 2, true, NULL, INT64_MAX},
    {"92233720368547758.075", 2, true, LARGE, 0},
    {"-92233720368547758.085", 2, true, NULL, INT64_MIN},
    {"-92233720368547758.086", 2, true, LARGE, 0},
    {"18446744073709551615.5", 0, true, LARGE, 0},
    {"1" MANY, 0, false, LARGE, 0},
    {"1" MANY ".5", 0, false, DIGITS, 0},
    {"", 0, false, MALFORMED, 0},
    {"-", 0, false, MALFORMED, 0},
    {"+1", 0, false, MALFORMED, 0},
    {" 1", 0, false, MALFORMED, 0},
    {"1 ", 0, false, MALFORMED, 0},
    {".5", 2, false, MALFORMED, 0},
    {"5.", 2, false, MALFORMED, 0},
    {"1.2.3", 2, false, MALFORMED, 0},
    {"12,50", 2, false, MALFORMED, 0},
    {"1e2", 2, false, MALFORMED, 0},
    {"NaN", 2, false, MALFORMED, 0},
    {"--1", 2, false, MALFORMED, 0},
};

static void check(const char *why, int64_t n, size_t i)
{
    if (!why != !texts[i].why || (why && strcmp(why, texts[i].why) != 0) || n != texts[i].n)
        fail_msg("'%s' at scale %u: %s, %lld", texts[i].text, texts[i].scale, why ? why : "accepted",
            (long long)n);
}

static void test_texts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        int64_t n = 0;
        struct bytes text = bytes_str(texts[i].text);
        struct decimal_rule rule = {texts[i].scale, texts[i].rounds};
        struct json_value v = {.type = JSON_STRING, .v.string = text};
        const char *why = decimal_read(text, rule, &n);
        check(why, n, i);
        n = 0;
        why = decimal_read_json(&v, rule, &n);
        check(why, n, i);
    }
    int64_t n = 0;
    assert_null(decimal_read(bytes_of("1\0", 1), (struct decimal_rule){0}, &n));
    assert_string_equal(decimal_read(bytes_of("1\0", 2), (struct decimal_rule){0}, &n), MALFORMED);
}

static void test_doubles(void **state)
{
    static const struct {
        double value;
        unsigned scale;
        bool rounds;
        const char *why;
        int64_t n;
    } rows[] = {
        {0.1, 1, false, NULL, 1},
        {-0.0, 2, false, NULL, 0},
        {12.50, 2, false, NULL, 1250},
        {-12.34, 2, false, NULL, -1234},
        {1e3, 0, false, NULL, 1000},
        {123456789012345e-6, 6, false, NULL, 123456789012345},
        {0.1 + 0.2, 2, false, SENDS, 0},
        {0.1 + 0.2, 2, true, SENDS, 0},
        {1.0 / 3, 2, true, SENDS, 0},
        {0.125, 2, false, DIGITS, 0},
        {0.125, 2, true, NULL, 12},
        {0.375, 2, true, NULL, 38},
        {1.23456789012345e18, 0, false, NULL, 1234567890123450000},
        {9.2e18, 0, false, NULL, 9200000000000000000},
        {-9.2e18, 0, false, NULL, -9200000000000000000},
        {1e19, 0, false, LARGE, 0},
        {1e300, 9, false, LARGE, 0},
        {5e-324, 9, true, NULL, 0},
        {5e-324, 9, false, DIGITS, 0},
        {-1e-9, 9, false, NULL, -1},
        {1e-5, 5, false, NULL, 1},
        {1e15, 0, false, NULL, 1000000000000000},
        {1234567.5, 0, true, NULL, 1234568},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t n = 0;
        struct json_value v = {.type = JSON_F64, .v.f64 = rows[i].value};
        const char *why = decimal_read_json(&v, (struct decimal_rule){rows[i].scale, rows[i].rounds}, &n);
        if (!why != !rows[i].why || (why && strcmp(why, rows[i].why) != 0) || n != rows[i].n)
            fail_msg("%g at scale %u: %s, %lld", rows[i].value, rows[i].scale, why ? why : "accepted",
                (long long)n);
    }
}

static void test_other_values(void **state)
{
    struct json_value i64 = {.type = JSON_I64, .v.i64 = INT64_MIN}, small = {.type = JSON_I64, .v.i64 = -7},
                      u64 = {.type = JSON_U64, .v.u64 = UINT64_MAX};
    static const enum json_type refused[] = {JSON_MISSING, JSON_NULL, JSON_BOOL, JSON_ARRAY, JSON_OBJECT};
    struct decimal_rule whole = {0}, cents = {.scale = 2};
    int64_t n = 0;
    (void)state;
    assert_null(decimal_read_json(&i64, whole, &n));
    assert_true(n == INT64_MIN);
    assert_null(decimal_read_json(&small, cents, &n));
    assert_int_equal(n, -700);
    assert_string_equal(decimal_read_json(&i64, cents, &n), LARGE);
    assert_string_equal(decimal_read_json(&u64, whole, &n), LARGE);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct json_value v = {.type = refused[i]};
        assert_string_equal(decimal_read_json(&v, whole, &n), MALFORMED);
    }
    assert_int_equal(n, -700);
}

static void check_print(int64_t n, unsigned scale, const char *expected)
{
    char text[DECIMAL_TEXT_MAX];
    int64_t again = 1;
    assert_int_equal(decimal_print(n, scale, text), strlen(expected));
    assert_string_equal(text, expected);
    assert_null(decimal_read(bytes_str(text), (struct decimal_rule){.scale = scale}, &again));
    assert_true(again == n);
}

static void test_print(void **state)
{
    (void)state;
    check_print(0, 0, "0");
    check_print(0, 2, "0.00");
    check_print(-5, 2, "-0.05");
    check_print(1250, 2, "12.50");
    check_print(-1250, 0, "-1250");
    check_print(1, 9, "0.000000001");
    check_print(INT64_MAX, 0, "9223372036854775807");
    check_print(INT64_MIN, 0, "-9223372036854775808");
    check_print(INT64_MIN, 9, "-9223372036.854775808");
    check_print(INT64_MAX, 2, "92233720368547758.07");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_doubles),
        cmocka_unit_test(test_other_values),
        cmocka_unit_test(test_print),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
