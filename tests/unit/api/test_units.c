/* The calendar's units in zones that do unpleasant things. Instants are from the tz database by another reader
 * (Python's zoneinfo). */
#include "support/cm.h"

#include "api/units.h"
#include <stdio.h>

static struct calendar calendar(const char *zone, enum unit unit)
{
    struct calendar c = {.unit = unit};
    assert_true(zone_find(bytes_str(zone), &c.zone));
    return c;
}

static void zones_that_are_none_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "/", "/etc/passwd", "../../../etc/passwd", "Europe/",
        "Europe//Berlin", "Europe/Nowhere", "Europe", "UTC ", "right/UTC", "tzdata.zi", "zone.tab",
        "EST5EDT,M3.2.0", ":UTC"};
    struct zone z = {.name = "kept"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(zone_find(bytes_str(bad[i]), &z));
    assert_false(zone_find(bytes_of("UTC\0", 4), &z));
    assert_string_equal(z.name, "kept");
}

static void offsets_follow_the_zone_and_the_season(void **state)
{
    (void)state;
    struct zone newyork, tokyo, fixed;
    assert_true(zone_find(BYTES_LITERAL("America/New_York"), &newyork));
    assert_true(zone_find(BYTES_LITERAL("Asia/Tokyo"), &tokyo));
    zone_fixed(-5, &fixed);
    for (int round = 0; round < 2; round++) { /* the zones take turns */
        assert_int_equal(zone_offset(&newyork, 1331449199), -5 * 3600);
        assert_int_equal(zone_offset(&newyork, 1331449200), -4 * 3600);
        assert_int_equal(zone_offset(&tokyo, 1331449200), 9 * 3600);
        assert_int_equal(zone_offset(&fixed, 1331449200), -5 * 3600);
    }
    assert_string_equal(fixed.name, "-05:00");
    assert_int_equal(zone_offset(&newyork, INT64_C(4118011200)), -4 * 3600); /* June 2100 */
}

static void days_have_23_and_25_hours(void **state)
{
    (void)state;
    struct calendar c = calendar("America/New_York", UNIT_DAY);
    int64_t spring = units_start(&c, 1331449200), autumn = units_start(&c, 1352008800);
    assert_int_equal(spring, 1331442000);
    assert_int_equal(units_next(&c, spring) - spring, 23 * 3600);
    assert_int_equal(units_next(&c, autumn) - autumn, 25 * 3600);
    assert_int_equal(units_back(&c, units_next(&c, autumn), 1), autumn);
}

static void a_day_without_midnight_starts_at_the_jump(void **state)
{
    (void)state;
    struct calendar c = calendar("America/Sao_Paulo", UNIT_DAY);
    int64_t jump = 1350788400; /* 21 October 2012, 00:00 -> 01:00 */
    assert_int_equal(units_start(&c, 1350799200), jump);
    assert_int_equal(units_next(&c, jump) - jump, 23 * 3600);
}

static void a_date_that_never_was_is_no_day(void **state)
{
    (void)state;
    struct calendar c = calendar("Pacific/Apia", UNIT_DAY);
    int64_t last = units_start(&c, 1325239200 - 1); /* 29 December 2011 */
    int64_t next = units_next(&c, last);
    struct buf date = {0};
    units_print_date(&c, next, &date);
    assert_true(bytes_equal_str(buf_bytes(&date), "2011-12-31"));
    assert_int_equal(next, 1325239200);
    assert_int_equal(next - last, 86400);
    buf_free(&date);
}

static void clocks_that_go_back_over_midnight_keep_dates(void **state)
{
    (void)state;
    struct calendar c = calendar("America/St_Johns", UNIT_DAY);
    /* 2 November 2008, 00:01 -> 1 November 23:01: 03:00 UTC is 23:30 of the old day, behind the new one's start. */
    int64_t new_day = units_start(&c, 1225598400);
    assert_true(new_day < 1225594800);
    assert_true(units_start(&c, 1225594800) < new_day);
}

static void weeks_and_months_start_where_they_say(void **state)
{
    (void)state;
    struct calendar c = calendar("UTC", UNIT_WEEK);
    const int64_t wednesday = 1332288000; /* 21 March 2012 */
    assert_int_equal(units_start(&c, wednesday), wednesday - 3 * 86400);
    c.week_start = 6;
    assert_int_equal(units_start(&c, wednesday), wednesday - 4 * 86400);
    c.unit = UNIT_MWEEK;
    assert_int_equal(units_start(&c, wednesday), wednesday - 2 * 86400);
    c.unit = UNIT_MONTH;
    assert_int_equal(units_start(&c, wednesday), wednesday - 20 * 86400);
    assert_int_equal(units_next(&c, units_start(&c, wednesday)), wednesday + 11 * 86400);
    assert_int_equal(units_back(&c, units_start(&c, wednesday), 2), wednesday - 80 * 86400);
}

static void dates_are_local_and_hours_show_their_offset(void **state)
{
    (void)state;
    struct calendar c = calendar("Asia/Kolkata", UNIT_HOUR);
    struct buf date = {0};
    units_print_date(&c, 1332637200, &date);
    assert_true(bytes_equal_str(buf_bytes(&date), "2012-03-25T06:30:00+05:30"));
    buf_clear(&date);
    c = calendar("America/New_York", UNIT_DAY);
    units_print_date(&c, 1331442000, &date);
    assert_true(bytes_equal_str(buf_bytes(&date), "2012-03-11"));
    buf_free(&date);
}

static void hours_start_when_clocks_show_full_hours(void **state)
{
    (void)state;
    struct calendar c = calendar("Asia/Kolkata", UNIT_HOUR);
    int64_t midnight = 1332613800; /* 2012-03-25 */
    assert_int_equal(units_start(&c, midnight + 1800), midnight);
    assert_int_equal(units_start(&c, midnight - 1800), midnight - 3600);
    assert_int_equal(units_next(&c, midnight), midnight + 3600);
    assert_int_equal(units_back(&c, midnight, 2), midnight - 7200);
    c = calendar("Australia/Lord_Howe", UNIT_HOUR);
    int64_t change = 1333206000; /* at 2:00 clocks go back to 1:30 */
    assert_int_equal(units_start(&c, change - 1), change - 3600);
    assert_int_equal(units_next(&c, change - 3600), change);
    assert_int_equal(units_next(&c, change), change + 1800);
}

static void every_hour_is_in_the_span_of_its_unit(void **state)
{
    (void)state;
    static const char *const zones[] = {"UTC", "America/New_York", "America/Sao_Paulo", "Antarctica/Casey",
        "Pacific/Apia", "Asia/Kolkata", "Australia/Lord_Howe"};
    const int64_t first = INT64_C(1262304000), end = INT64_C(1388534400); /* 2010 to 2013 */
    for (size_t z = 0; z < sizeof zones / sizeof *zones; z++)
        for (enum unit unit = UNIT_HOUR; unit <= UNIT_MONTH; unit++) {
            struct calendar c = calendar(zones[z], unit);
            int64_t from = 0, to = 0, span = 0, start = units_start(&c, first), next = units_next(&c, start);
            for (int64_t t = first; t < end; t += HOUR_SECONDS) {
                if (t >= to) {
                    span = units_span(&c, t, &from, &to);
                    assert_true(from <= t && t < to);
                }
                assert_int_equal(units_order(&c, t), span);
                while (t >= next) {
                    start = next;
                    next = units_next(&c, start);
                    assert_int_equal(units_start(&c, start), start);
                    assert_true(units_order(&c, start) > units_order(&c, start - 1) || unit == UNIT_DAY);
                }
                assert_true(units_start(&c, t) == start || units_order(&c, t) < units_order(&c, start));
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zones_that_are_none_are_refused),
        cmocka_unit_test(offsets_follow_the_zone_and_the_season),
        cmocka_unit_test(days_have_23_and_25_hours),
        cmocka_unit_test(a_day_without_midnight_starts_at_the_jump),
        cmocka_unit_test(a_date_that_never_was_is_no_day),
        cmocka_unit_test(clocks_that_go_back_over_midnight_keep_dates),
        cmocka_unit_test(weeks_and_months_start_where_they_say),
        cmocka_unit_test(dates_are_local_and_hours_show_their_offset),
        cmocka_unit_test(hours_start_when_clocks_show_full_hours),
        cmocka_unit_test(every_hour_is_in_the_span_of_its_unit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
