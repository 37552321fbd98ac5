/* Rows of a series, computed one by one from the counts of several sources. */
#include "support/cm.h"

#include "api/series.h"

#define APRIL INT64_C(1330560000) /* 1 March 2012 */

static const struct counter total = {.ns = "u"};
static struct query query = {.kind = QUERY_SERIES, .total = &total};

static void begin(struct series *s, const char *zone, enum unit unit, int64_t from, int64_t to)
{
    assert_true(zone_find(bytes_str(zone), &query.calendar.zone));
    query.calendar.unit = unit;
    query.from = from;
    query.to = to;
    series_init(s, &query);
}

static bool add_hours(struct series *s, int64_t first, int64_t step, size_t n)
{
    struct buf value = {0};
    char hour[HOUR_TEXT_MAX + 1];
    for (size_t i = 0; i < n; i++) {
        assert_true(hour_encode(first + (int64_t)i * step, hour) > 0);
        buf_printf(&value, "%s%s:%zu", i ? " " : "", hour, i + 1);
    }
    bool ok = series_add(s, &(struct record){bytes_str("u|k"), buf_bytes(&value)});
    buf_free(&value);
    return ok;
}

/* Adds up the hours that units_start assigns to the row. */
static uint64_t count_of(const struct series_row *row, int64_t first, int64_t step, size_t n)
{
    const int64_t day = 24 * HOUR_SECONDS;
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        int64_t hour = first + (int64_t)i * step;
        bool is_near = hour > row->start - day && hour < row->end + day;
        if (is_near && hour >= query.from && hour < query.to &&
            units_start(&query.calendar, hour) == row->start)
            sum += i + 1;
    }
    return sum;
}

static void test_rows_are_the_sums_of_their_hours(void **state)
{
    (void)state;
    static const char *const zones[] = {
        "UTC", "America/New_York", "Antarctica/Casey", "America/St_Johns", "Pacific/Apia"};
    enum { HOURS = 24 * 400, LATE = 700 };
    const int64_t first =
        INT64_C(1262304000) + 5 * HOUR_SECONDS; /* 2010: Casey's clocks went back over midnight in March */
    for (size_t z = 0; z < sizeof zones / sizeof *zones; z++)
        for (enum unit unit = UNIT_HOUR; unit <= UNIT_MONTH; unit++) {
            struct series s;
            struct series_row row;
            uint64_t sum = 0;
            int64_t last = 0;
            int64_t from = first + 48 * HOUR_SECONDS,
                    to = from + (unit == UNIT_HOUR ? 300 : HOURS - 100) * HOUR_SECONDS;
            begin(&s, zones[z], unit, from, to);
            assert_true(add_hours(&s, first, HOUR_SECONDS, HOURS));
            assert_true(add_hours(&s, first + 60 * HOUR_SECONDS, 7 * HOUR_SECONDS, LATE));
            while (series_next(&s, &row)) {
                assert_true(
                    row.start == units_start(&query.calendar, row.start) && (last == 0 || row.start == last));
                assert_int_equal(
                    row.n, count_of(&row, first, HOUR_SECONDS, HOURS) +
                               count_of(&row, first + 60 * HOUR_SECONDS, 7 * HOUR_SECONDS, LATE));
                sum += row.n;
                last = row.end;
            }
            assert_true(last > to - HOUR_SECONDS); /* the last row contains the last hour */
            assert_int_equal(sum, s.total);
            series_reset(&s);
        }
}

static void test_a_long_series_of_few_counts_takes_little_memory(void **state)
{
    (void)state;
    struct series s;
    struct series_row row;
    size_t rows = 0;
    begin(&s, "UTC", UNIT_HOUR, APRIL, APRIL + 100000 * HOUR_SECONDS);
    assert_true(add_hours(&s, APRIL, 1000 * HOUR_SECONDS, 10));
    assert_in_range(series_bytes(&s), 1, 4096);
    while (series_next(&s, &row))
        rows++;
    assert_int_equal(rows, 100000);
    series_reset(&s);
    assert_int_equal(series_bytes(&s), 0);
}

static void test_hours_without_order_are_refused(void **state)
{
    (void)state;
    struct series s;
    bool ok = true;
    begin(&s, "UTC", UNIT_HOUR, APRIL, APRIL + 1000 * HOUR_SECONDS);
    for (int i = 0; i < 10; i++)
        ok = ok && add_hours(&s, APRIL, HOUR_SECONDS, 100);
    assert_false(ok);
    assert_true(series_add_count(&s, APRIL + 999 * HOUR_SECONDS, 1)); /* of another cell */
    series_reset(&s);
}

static void test_sources_of_many_cells_may_send_in_turn(void **state)
{
    (void)state;
    enum { CELLS = 30, SOURCES = 2 * CELLS, HOURS = 400 };
    struct series s;
    struct series_row row;
    int64_t at[SOURCES] = {0}, expected[HOURS] = {0};
    size_t left = SOURCES;
    unsigned random = 1;
    query.n_cells = CELLS;
    begin(&s, "UTC", UNIT_HOUR, APRIL, APRIL + HOURS * HOUR_SECONDS);
    while (left > 0) {
        random = random * 1103515245 + 12345;
        int64_t *hour = &at[random / 65536 % SOURCES];
        if (*hour >= HOURS)
            continue;
        assert_true(series_add_count(&s, APRIL + *hour * HOUR_SECONDS, random % 1000));
        expected[*hour] += random % 1000;
        *hour += 1 + random / 1024 % 3;
        left -= *hour >= HOURS;
    }
    assert_in_range(s.n_runs, 2, SOURCES);
    for (size_t i = 0; series_next(&s, &row); i++)
        assert_int_equal(row.n, expected[i]);
    series_reset(&s);
    query.n_cells = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_are_the_sums_of_their_hours),
        cmocka_unit_test(test_a_long_series_of_few_counts_takes_little_memory),
        cmocka_unit_test(test_hours_without_order_are_refused),
        cmocka_unit_test(test_sources_of_many_cells_may_send_in_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
