/* Times and periods as people write them, in zones with odd days. Expected values are from Python's zoneinfo. */
#include "support/cm.h"

#include "api/period.h"

#define NOW INT64_C(1332637200) /* Sunday, 25 March 2012, 01:00 UTC: the clocks of Berlin go from 2 to 3 */
#define DAY INT64_C(86400)

static struct calendar in(const char *zone)
{
    struct calendar c = {.unit = UNIT_DAY};
    assert_true(zone_find(bytes_str(zone), &c.zone));
    return c;
}

static void check_time(const char *zone, const char *text, int64_t expected)
{
    struct calendar c = in(zone);
    int64_t t = -1;
    if (!period_time(&c, bytes_str(text), &t) || t != expected)
        fail_msg("%s in %s: %lld instead of %lld", text, zone, (long long)t, (long long)expected);
}

static void check_period(const char *zone, const char *text, int64_t from, int64_t to)
{
    struct calendar c = in(zone);
    struct period p = {-1, -1, UNIT_HOUR, 0};
    bool found = period_named(&c, bytes_str(text), NOW, &p);
    int64_t a = p.from, b = p.to;
    if (!found || a != from || b != to)
        fail_msg("%s in %s: %lld to %lld instead of %lld to %lld", text, zone, (long long)a, (long long)b,
            (long long)from, (long long)to);
}

static void times(void **state)
{
    (void)state;
    check_time("UTC", "1332637200", NOW);
    check_time("UTC", "-5", -5);
    check_time("UTC", "2012-03-25", NOW - 3600);
    check_time("Europe/Berlin", "2012-03-25", NOW - 2 * 3600);
    check_time("Europe/Berlin", "2012-03-26", NOW + 21 * 3600);
    check_time("America/Los_Angeles", "2012-03-25", NOW + 6 * 3600);
    check_time("Asia/Kolkata", "2012-03-25", NOW - 23400);
    check_time("America/Sao_Paulo", "2018-11-04", INT64_C(1541300400)); /* begins at 1:00 */
    check_time("UTC", "2012-03-25T02:00:00+01:00", NOW);
    check_time("Europe/Berlin", "2012-03-25T01:00:00.999Z", NOW);
}

static void periods(void **state)
{
    (void)state;
    int64_t day = NOW - 3600, berlin = NOW - 2 * 3600;
    check_period("UTC", "today", day, day + DAY);
    check_period("UTC", "yesterday", day - DAY, day);
    check_period("UTC", "this-week", day, day + 7 * DAY);
    check_period("UTC", "last-week", day - 7 * DAY, day);
    check_period("UTC", "this-month", day - 24 * DAY, day + 7 * DAY);
    check_period("UTC", "last-month", day - 53 * DAY, day - 24 * DAY);
    check_period("UTC", "this-year", day - 84 * DAY, day + 282 * DAY);
    check_period("UTC", "last-year", day - 449 * DAY, day - 84 * DAY);
    check_period("UTC", "24h", NOW - 23 * 3600, NOW + 3600);
    check_period("UTC", "-24h", NOW - 23 * 3600, NOW + 3600);
    check_period("UTC", "7d", day - 6 * DAY, day + DAY);
    check_period("UTC", "1w", day, day + 7 * DAY);
    check_period("UTC", "12mo", day - 359 * DAY, day + 7 * DAY);
    check_period("UTC", "2012", day - 84 * DAY, day + 282 * DAY);
    check_period("UTC", "2012-02", day - 53 * DAY, day - 24 * DAY);
    check_period("UTC", "2011-12", day - 115 * DAY, day - 84 * DAY);
    check_period("UTC", "2012-03-25", day, day + DAY);
    check_period("Europe/Berlin", "today", berlin, berlin + 23 * 3600);
    check_period("Europe/Berlin", "2012-03", day - 24 * DAY - 3600, day + 7 * DAY - 7200);
    check_period("America/New_York", "today", day - DAY + 4 * 3600, day + 4 * 3600);
}

static void check_before(const char *zone, const char *text, int64_t expected)
{
    struct calendar c = in(zone);
    struct period p;
    assert_true(period_named(&c, bytes_str(text), NOW, &p));
    assert_int_equal(period_before(&c, &p), expected);
}

static void the_period_before(void **state)
{
    (void)state;
    int64_t day = NOW - 3600;
    check_before("UTC", "today", day - DAY);
    check_before("UTC", "7d", day - 13 * DAY);
    check_before("UTC", "24h", NOW - 47 * 3600);
    check_before("UTC", "2012-03", day - 53 * DAY);
    check_before("UTC", "this-month", day - 53 * DAY);
    check_before("UTC", "2012", day - 449 * DAY);
    check_before("Europe/Berlin", "2012-03-26", NOW - 2 * 3600);
    struct calendar utc = in("UTC"), berlin = in("Europe/Berlin");
    assert_int_equal(period_year_before(&utc, NOW), NOW - 366 * DAY);
    assert_int_equal(period_year_before(&berlin, NOW + 12 * 3600), NOW + 12 * 3600 - 366 * DAY + 3600);
    assert_int_equal(
        period_year_before(&utc, INT64_C(1330473600)), INT64_C(1298937600)); /* 29 February 2012 */
}

static void what_is_neither(void **state)
{
    static const char *const wrong[] = {"", "-", "d", "0d", "-0h", "7", "7x", "7days", "tomorrow", "2012-13",
        "2012-00", "2012-02-30", "2012-2", "20120", "1969", "2012-03-25T01:00:00Z", "99999999999999999999d",
        "100001d", "all", "Today"};
    struct calendar c = in("UTC"), samoa = in("Pacific/Apia");
    struct period p;
    int64_t from;
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (period_named(&c, bytes_str(wrong[i]), NOW, &p))
            fail_msg("%s", wrong[i]);
    static const char *const not_times[] = {
        "", "2012-03", "2012-02-30", "2012-03-25T01:00:00", "now", "1e9", "2012-03-25x"};
    for (size_t i = 0; i < sizeof not_times / sizeof *not_times; i++)
        if (period_time(&c, bytes_str(not_times[i]), &from))
            fail_msg("%s", not_times[i]);
    assert_false(period_time(&samoa, BYTES_LITERAL("2011-12-30"), &from)); /* Samoa skipped this day */
    assert_true(period_time(&samoa, BYTES_LITERAL("2011-12-31"), &from));
}

static void what_has_the_form_of_a_date(void **state)
{
    (void)state;
    static const char *const dates[] = {"2012-02-30", "2012-13-01", "1969-12-31", "2012-02-30T01:00:00Z",
        "2012-02-30 25:00:00.125-99:99", "2012-02-30t25:00:00z"};
    static const char *const others[] = {"", "2012", "2012-02", "2012-02-3", "2012-02-3O", "2012-02-030",
        "2012/02/30", "2012-W54", "2012-02-30T01:00:00", "2012-02-30T01:00Z", "2012-02-30T01:00:00.Z",
        "2012-02-30T01:00:00+1:00", "2012-02-30T01:00:00Zz", "30 February"};
    for (size_t i = 0; i < sizeof dates / sizeof *dates; i++)
        assert_true(period_time_is_date(bytes_str(dates[i])));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_false(period_time_is_date(bytes_str(others[i])));
    static const char *const spans[] = {"1969", "2012-13", "2012-00", "2012-02-30"};
    static const char *const not_spans[] = {
        "", "201", "20123", "2012-", "2012-1", "2012-W5", "2012-02-30T01:00:00Z", "30d"};
    for (size_t i = 0; i < sizeof spans / sizeof *spans; i++)
        assert_true(period_is_date(bytes_str(spans[i])));
    for (size_t i = 0; i < sizeof not_spans / sizeof *not_spans; i++)
        assert_false(period_is_date(bytes_str(not_spans[i])));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times),
        cmocka_unit_test(periods),
        cmocka_unit_test(the_period_before),
        cmocka_unit_test(what_is_neither),
        cmocka_unit_test(what_has_the_form_of_a_date),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
