/* Buckets of numbers: names, order and middles. */
#include "support/cm.h"

#include "counts/bucket.h"
#include "counts/records.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define LAST BUCKET_LAST
#define ZEROS "0000000000000000000000000000000000000000"
#define MALFORMED "is not a decimal"
#define NEAR "is nearer to zero than 1e-9"
#define FAR "is 1e19 or more"

static void check(struct json_value v, const char *shown, const char *name)
{
    int bucket = 0;
    char out[BUCKET_TEXT_MAX];
    const char *why = bucket_read(&v, &bucket);
    if (!why)
        bucket_print(bucket, out);
    if (strcmp(why ? why : out, name) != 0)
        fail_msg("%s: %s, not %s", shown, why ? why : out, name);
}

static void texts(void **state)
{
    (void)state;
    static const char *const rows[][2] = {{"0", "0"}, {"-0", "0"}, {"-0.000", "0"}, {ZEROS, "0"}, {"1", "1"},
        {"-1", "-1"}, {"9", "9"}, {"10", "10"}, {"12", "12"}, {"12.999", "12"}, {"13", "13"}, {"99.99", "99"},
        {"100", "100"}, {"129", "120"}, {"1234.5", "1200"}, {"-35", "-35"}, {"-35.9", "-35"}, {"5.04", "5"},
        {"5.1", "5.1"}, {"007.10", "7.1"}, {"0.5", "0.5"}, {"0.05", "0.05"}, {"0.0012999", "0.0012"},
        {"0.000001", "0.000001"}, {"-0.0000012", "-0.0000012"}, {"0.0000009999", "9.9e-7"},
        {"0.0000005", "5e-7"}, {"0.000000001", "1e-9"}, {"0.00000000099999", NEAR}, {"-0.00000000001", NEAR},
        {"9999999999", "9900000000"}, {"10000000000", "1e10"}, {"-12345678901", "-1.2e10"},
        {"9223372036854775807", "9.2e18"}, {"9999999999999999999", "9.9e18"}, {"10000000000000000000", FAR},
        {"1" ZEROS, FAR}, {ZEROS "12." ZEROS "1", "12"}, {"0." ZEROS "1", NEAR}, {"", MALFORMED},
        {"-", MALFORMED}, {"1.", MALFORMED}, {".5", MALFORMED}, {"-.5", MALFORMED}, {"1.2.3", MALFORMED},
        {"1e3", MALFORMED}, {"+1", MALFORMED}, {" 1", MALFORMED}, {"1 ", MALFORMED}, {"12,5", MALFORMED},
        {"NaN", MALFORMED}, {"0x1", MALFORMED}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check((struct json_value){.type = JSON_STRING, .v.string = bytes_str(rows[i][0])}, rows[i][0],
            rows[i][1]);
}

static void numbers(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *name;
    } rows[] = {{0.0, "0"}, {-0.0, "0"}, {0.29, "0.29"}, {0.3, "0.3"}, {0.57, "0.57"}, {1.1, "1.1"},
        {-1.15, "-1.1"}, {0.30000000000000004, "0.3"}, {0.29999999999999993, "0.29"},
        {0.99999999999999989, "0.99"}, {4.35, "4.3"}, {1e3, "1000"}, {1e18, "1e18"},
        {9.9999999999999e18, "9.9e18"}, {1e19, FAR}, {-1e300, FAR}, {1e-9, "1e-9"}, {9.99e-10, NEAR},
        {5e-324, NEAR}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check((struct json_value){.type = JSON_F64, .v.f64 = rows[i].value}, rows[i].name, rows[i].name);
    check((struct json_value){.type = JSON_I64, .v.i64 = INT64_MIN}, "INT64_MIN", "-9.2e18");
    check((struct json_value){.type = JSON_I64, .v.i64 = -1299}, "-1299", "-1200");
    check((struct json_value){.type = JSON_U64, .v.u64 = UINT64_MAX}, "UINT64_MAX", FAR);
    check((struct json_value){.type = JSON_BOOL, .v.boolean = true}, "true", MALFORMED);
    check((struct json_value){.type = JSON_ARRAY}, "[]", MALFORMED);
}

/* Each name reads as its bucket, and the middle is at most 5 % from both ends of the bucket. */
static void every_bucket(void **state)
{
    (void)state;
    double before = -INFINITY;
    for (int i = -LAST; i <= LAST; i++) {
        char name[BUCKET_TEXT_MAX], middle[BUCKET_TEXT_MAX], *end;
        int again = LAST + 1;
        size_t n = bucket_print(i, name);
        assert_int_equal(n, strlen(name));
        assert_true(n < COMPONENT_HASH);
        assert_true(bucket_parse(bytes_of(name, n), &again));
        assert_int_equal(again, i);
        double value = strtod(name, &end);
        assert_true(*end == '\0' && value > before);
        before = value;
        check((struct json_value){.type = JSON_F64, .v.f64 = value}, name, name);
        n = bucket_print_middle(i, middle);
        assert_int_equal(n, strlen(middle));
        double at = strtod(middle, NULL);
        if (i == 0) {
            assert_string_equal(middle, "0");
            continue;
        }
        check((struct json_value){.type = JSON_F64, .v.f64 = at}, middle, name);
        double next = value + 2 * (at - value); /* the other end */
        assert_true(fabs(at - value) <= fabs(value) * 0.05000001 && fabs(at - next) <= fabs(next) * 0.05);
        assert_true(fabs(at - value) >= fabs(value) * 0.005);
    }
}

static void other_names(void **state)
{
    (void)state;
    static const char *const rows[] = {"", "None", "(other)", "-0", "00", "012", "123", "12.0", "1.25", "1e3",
        "1.2e9", "1e-3", "1.2e010", "+12", " 12", "12 ", "nan", "inf", "-inf", "1e400", "1e19", "1e-10",
        "0x12", "e", "-", ".", "1.2e10x", "0000000000000000000012"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int bucket;
        if (bucket_parse(bytes_str(rows[i]), &bucket))
            fail_msg("%s was read", rows[i]);
    }
    int bucket;
    assert_false(bucket_parse(bytes_of("12\0", 3), &bucket));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(texts), cmocka_unit_test(numbers),
        cmocka_unit_test(every_bucket), cmocka_unit_test(other_names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
