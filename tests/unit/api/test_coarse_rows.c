/* coarse_rows: rows whose bounds cut days and months that were imported whole, in several zones. */
#include "support/cm.h"

#include "api/coarse_rows.h"

#define HOUR INT64_C(3600)
#define DAY (24 * HOUR)
#define FROM INT64_C(1706745600) /* 2024-02-01T00:00:00Z */
#define TO (FROM + 29 * DAY)     /* 2024-03-01T00:00:00Z */

static const char *cut(const struct coarse_counter *c, const char *zone, int64_t from, int64_t to)
{
    struct calendar calendar = {.unit = UNIT_HOUR};
    assert_true(zone_find(bytes_str(zone), &calendar.zone));
    const char *unit = coarse_rows_cut(c, &calendar, from, to);
    return unit ? unit : "";
}

static void hours_of_days(void **state)
{
    (void)state;
    const struct coarse_counter c = {.of[COARSE_DAY] = {FROM, TO, "UTC"}};
    assert_true(coarse_rows_may_be(&c));
    for (int64_t t = FROM; t < TO; t += HOUR)
        assert_string_equal(cut(&c, "UTC", t, t + HOUR), "day");
    assert_string_equal(cut(&c, "UTC", FROM - HOUR, FROM), "");
    assert_string_equal(cut(&c, "UTC", TO, TO + HOUR), "");
    assert_string_equal(cut(&c, "UTC", FROM - HOUR, FROM + HOUR), "day");
    assert_string_equal(cut(&c, "UTC", FROM + 3 * DAY, FROM + 4 * DAY), "");
    assert_string_equal(cut(&c, "UTC", FROM + 4 * DAY, FROM + 11 * DAY), "");
    assert_string_equal(cut(&c, "UTC", FROM + HOUR, FROM + HOUR + 7 * DAY), "day");
}

static void other_zones_cut_days(void **state)
{
    (void)state;
    const struct coarse_counter c = {.of[COARSE_DAY] = {FROM, TO, "UTC"}},
                                several = {.of[COARSE_DAY] = {FROM, TO, ""}};
    assert_string_equal(cut(&c, "Europe/Berlin", FROM + DAY - HOUR, FROM + 2 * DAY - HOUR), "day");
    assert_string_equal(cut(&c, "Europe/Berlin", FROM - DAY, TO + DAY), ""); /* it has all of them */
    assert_string_equal(cut(&c, "Europe/Berlin", FROM, TO), "");
    assert_string_equal(cut(&several, "UTC", FROM + DAY, FROM + 2 * DAY), "day");
    const struct coarse_counter berlin = {.of[COARSE_DAY] = {FROM - HOUR, TO - HOUR, "Europe/Berlin"}};
    assert_string_equal(cut(&berlin, "Europe/Berlin", FROM + DAY - HOUR, FROM + 2 * DAY - HOUR), "");
}

static void days_of_months(void **state)
{
    (void)state;
    const struct coarse_counter c = {.of = {{FROM, TO, "UTC"}, {FROM - 31 * DAY, TO, "UTC"}}}, none = {0};
    assert_string_equal(cut(&c, "UTC", FROM + DAY, FROM + 2 * DAY), "month");
    assert_string_equal(cut(&c, "UTC", FROM, TO), "");
    assert_string_equal(cut(&none, "UTC", FROM + HOUR, FROM + 2 * HOUR), "");
    assert_false(coarse_rows_may_be(&none));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(hours_of_days),
        cmocka_unit_test(other_zones_cut_days), cmocka_unit_test(days_of_months)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
