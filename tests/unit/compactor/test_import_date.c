/* import_date: forms of dates, units, zones, and clocks that skip the start of a day. Instants are from Python's zoneinfo. */
#include "support/cm.h"

#include "base/rfc3339.h"
#include "compactor/import_date.h"

#define HOUR 3600
#define DAY (24 * HOUR)
#define JAN31 INT64_C(1706659200) /* 2024-01-31T00:00:00Z */

static struct import_date read(const char *text, enum import_unit unit)
{
    struct import_date date = {0};
    const char *why = import_date_read(bytes_str(text), unit, &date);
    if (why)
        fail_msg("%s: %s", text, why);
    return date;
}

static void check(const char *text, enum import_unit unit, int64_t from, int64_t to)
{
    struct import_date date = read(text, IMPORT_TIME);
    assert_int_equal(date.unit, unit);
    assert_int_equal(date.from, from);
    assert_int_equal(date.to, to);
}

static void the_form_tells_the_unit(void **state)
{
    (void)state;
    assert_true(rfc3339_use_zone("UTC"));
    check("2024-01", IMPORT_MONTH, JAN31 - 30 * DAY, JAN31 + DAY);
    check("202402", IMPORT_MONTH, JAN31 + DAY, JAN31 + 30 * DAY);
    check("202412", IMPORT_MONTH, JAN31 + 305 * DAY, JAN31 + 336 * DAY);
    check("2024-01-31", IMPORT_DAY, JAN31, JAN31 + DAY);
    check("20240131", IMPORT_DAY, JAN31, JAN31 + DAY);
    check("2024-01-31+01:00", IMPORT_DAY, JAN31 - HOUR, JAN31 + DAY - HOUR);
    check("2024-01-31T13", IMPORT_HOUR, JAN31 + 13 * HOUR, JAN31 + 14 * HOUR);
    check("2024-01-31 13", IMPORT_HOUR, JAN31 + 13 * HOUR, JAN31 + 14 * HOUR);
    check("2024013113", IMPORT_HOUR, JAN31 + 13 * HOUR, JAN31 + 14 * HOUR);
    check("2024-01-31T13:05:07Z", IMPORT_TIME, JAN31 + 13 * HOUR + 307, JAN31 + 13 * HOUR + 307);
    check("2024-01-31 13:05", IMPORT_TIME, JAN31 + 13 * HOUR + 300, JAN31 + 13 * HOUR + 300);
    check("2024-01-31T13:05:07.25-05:00", IMPORT_TIME, JAN31 + 18 * HOUR + 307, JAN31 + 18 * HOUR + 307);
}

static void a_zone_moves_the_bounds(void **state)
{
    (void)state;
    assert_true(rfc3339_use_zone("Europe/Berlin"));
    check("2024-01-31", IMPORT_DAY, JAN31 - HOUR, JAN31 + DAY - HOUR);
    check("2024-03-31", IMPORT_DAY, 1711839600, 1711839600 + 23 * HOUR);
    check("2024-10", IMPORT_MONTH, 1727733600, 1730415600);
    assert_true(read("2024-01-31", IMPORT_TIME).is_naive);
    assert_false(read("2024-01-31Z", IMPORT_TIME).is_naive);
    assert_true(rfc3339_use_zone("Africa/Cairo")); /* its clocks skip midnight */
    check("2024-04-26", IMPORT_DAY, 1714082400, 1714082400 + 23 * HOUR);
    check("2024-04-25", IMPORT_DAY, 1714082400 - DAY, 1714082400);
    assert_string_equal(
        import_date_read(BYTES_LITERAL("2024-04-26T00"), IMPORT_TIME, &(struct import_date){0}),
        "the clocks of --time-zone skip this time");
    assert_true(rfc3339_use_zone("America/Havana")); /* its clocks show midnight twice */
    check("2024-11-03", IMPORT_DAY, 1730606400, 1730606400 + 25 * HOUR);
    check("2024-11-03T00", IMPORT_HOUR, 1730606400, 1730606400 + HOUR);
    assert_false(rfc3339_use_zone("Europe/Nowhere"));
    assert_true(rfc3339_use_zone("UTC"));
}

static void a_unit_may_be_given(void **state)
{
    (void)state;
    struct import_date day = read("2024-01-31T00:00:00Z", IMPORT_DAY), month = read("20240101", IMPORT_MONTH);
    assert_int_equal(day.unit, IMPORT_DAY);
    assert_int_equal(day.to, JAN31 + DAY);
    assert_int_equal(month.unit, IMPORT_MONTH);
    assert_int_equal(month.to, JAN31 + DAY);
    assert_int_equal(read("2024-01-31 13:00", IMPORT_HOUR).to, JAN31 + 14 * HOUR);
    assert_int_equal(import_unit_named("day"), IMPORT_DAY);
    assert_int_equal(import_unit_named("week"), IMPORT_TIME);
}

static void wrong_dates(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum import_unit unit;
        const char *why;
    } wrong[] = {{"", IMPORT_TIME, "not a month"}, {"31.01.2024", IMPORT_TIME, "not a month"},
        {"2024-1-31", IMPORT_TIME, "not a month"}, {"2024", IMPORT_TIME, "not a month"},
        {"Grand total", IMPORT_TIME, "not a month"}, {"20240131131", IMPORT_TIME, "not a month"},
        {"2024-01-31,2024-02-06", IMPORT_TIME, "no such date"}, {"2024-02-30", IMPORT_TIME, "no such date"},
        {"20241301", IMPORT_TIME, "no such date"}, {"2024-01-31T25", IMPORT_TIME, "no such date"},
        {"2024-01-31+1", IMPORT_TIME, "no such date"}, {"20240131Z", IMPORT_TIME, "text after"},
        {"2024-01-31", IMPORT_HOUR, "less exact"}, {"2024-01", IMPORT_DAY, "less exact"},
        {"2024-01-31T01:00:00Z", IMPORT_DAY, "not the start"}, {"2024-01-31", IMPORT_MONTH, "not the start"},
        {"2024-01-31T13:30", IMPORT_HOUR, "not the start"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct import_date date;
        const char *why = import_date_read(bytes_str(wrong[i].text), wrong[i].unit, &date);
        if (!why || !strstr(why, wrong[i].why))
            fail_msg("%s: %s", wrong[i].text, why ? why : "taken");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_form_tells_the_unit),
        cmocka_unit_test(a_zone_moves_the_bounds), cmocka_unit_test(a_unit_may_be_given),
        cmocka_unit_test(wrong_dates)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
