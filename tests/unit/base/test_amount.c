/* Numbers in messages for people. */
#include "support/cm.h"
#include "base/amount.h"

static void check(uint64_t bytes, const char *expected)
{
    char text[SIZE_TEXT];
    assert_string_equal(size_write(text, bytes), expected);
}

static void test_sizes_have_two_or_three_digits(void **state)
{
    (void)state;
    check(0, "0 B");
    check(999, "999 B");
    check(1000, "1.0 kB");
    check(25300000, "25.3 MB");
    check(268435456, "268 MB");
    check(912000000, "912 MB");
    check(1100000000, "1.1 GB");
    check(40000000000, "40.0 GB");
    check(UINT64_MAX, "18.4 EB");
}

static void test_a_size_that_rounds_up(void **state)
{
    (void)state;
    check(9960, "10.0 kB");
    check(99949, "99.9 kB");
    check(99951, "100 kB");
    check(999499, "999 kB");
    check(999500, "1.0 MB");
}

static void test_plurals(void **state)
{
    (void)state;
    assert_string_equal(plural(0, "event", "events"), "events");
    assert_string_equal(plural(1, "event", "events"), "event");
    assert_string_equal(plural(2, "event", "events"), "events");
    assert_string_equal(plural(UINT64_MAX, "event", "events"), "events");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes_have_two_or_three_digits),
        cmocka_unit_test(test_a_size_that_rounds_up),
        cmocka_unit_test(test_plurals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
