/* schedule: due times, missed times, retries, and clocks that were set. */
#include "support/cm.h"

#include "compactor/schedule.h"

#define HOUR 3600
#define DAY (24 * HOUR)
#define NOON INT64_C(1353240000) /* Sunday, 18 November 2012, 12:00 UTC */

static const struct schedule daily = {DAY, 4 * HOUR};

static void times_of_day(void **state)
{
    (void)state;
    static const char *const wrong[] = {"", "4:00", "24:00", "04:60", "04-00", "-1:00", "04:0 ", "04:000"};
    int64_t at;
    assert_true(schedule_parse_at(bytes_str("04:00"), &at));
    assert_int_equal(at, 4 * HOUR);
    assert_true(schedule_parse_at(bytes_str("23:59"), &at));
    assert_int_equal(at, DAY - 60);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(schedule_parse_at(bytes_str(wrong[i]), &at));
}

static void the_next_time_is_after_now(void **state)
{
    (void)state;
    const struct schedule weekly = {7 * DAY, 4 * HOUR}, often = {6 * HOUR, 4 * HOUR + 60};
    assert_int_equal(schedule_next(&daily, NOON), NOON + 16 * HOUR);
    assert_int_equal(schedule_next(&daily, NOON + 16 * HOUR - 1), NOON + 16 * HOUR);
    assert_int_equal(schedule_next(&daily, NOON + 16 * HOUR), NOON + 40 * HOUR);
    assert_int_equal(schedule_next(&weekly, NOON), NOON + 16 * HOUR); /* a Monday */
    assert_int_equal(schedule_next(&weekly, NOON + 16 * HOUR), NOON + 16 * HOUR + 7 * DAY);
    assert_int_equal(schedule_next(&often, NOON), NOON + 4 * HOUR + 60);
    assert_int_equal(schedule_next(&daily, 0), 4 * HOUR);
    assert_int_equal(schedule_next(&daily, -DAY), 4 * HOUR - DAY);
}

static void a_missed_run_is_due(void **state)
{
    (void)state;
    assert_int_equal(schedule_due(&daily, NOON, 0, 0, NOON + HOUR), NOON + 16 * HOUR);
    assert_true(schedule_due(&daily, NOON - 10 * DAY, 0, 0, NOON) <= NOON);
    assert_true(schedule_due(&daily, 0, 0, 0, NOON) <= NOON);
    /* a last run in the future, after the clock was set back */
    assert_int_equal(schedule_due(&daily, NOON + 400 * DAY, 0, 0, NOON), NOON + 16 * HOUR);
}

static void a_failed_run_is_repeated(void **state)
{
    (void)state;
    static const int64_t delays[] = {60, 120, 240, 480, 960, 1920, 3600, 3600};
    int64_t last = NOON - 9 * HOUR;
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(schedule_due(&daily, last, NOON, i + 1, NOON), NOON + delays[i]);
    assert_int_equal(schedule_due(&daily, last, NOON, UINT32_MAX, NOON), NOON + HOUR);
    const struct schedule often = {300, 0};
    assert_int_equal(schedule_due(&often, NOON - 600, NOON + 1, 5, NOON + 1), NOON + 300);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_of_day),
        cmocka_unit_test(the_next_time_is_after_now),
        cmocka_unit_test(a_missed_run_is_due),
        cmocka_unit_test(a_failed_run_is_repeated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
