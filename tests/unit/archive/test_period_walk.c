/* Walks over random archives of hours, days and months against a model: every count of the range once, in the fewest records. */
#include "support/build_index.h"
#include "support/cm.h"

#include "archive/period_walk.h"

#include <stdio.h>
#include <stdlib.h>

#define FIRST_DAY (HOUR_FIRST + INT64_C(30) * 86400) /* 31 January 2000 */
#define DAYS 100
#define HOURS (DAYS * 24)
#define LINES_MAX 4000

struct archive {
    int64_t n[HOURS];
    bool has_hours[DAYS];
    struct buf text;
};

static int compare_lines(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void add_line(
    char **lines, size_t *n, const char *key, enum period_unit unit, int64_t t, int64_t count)
{
    char hour[HOUR_TEXT_MAX + 1];
    struct buf line = {0};
    hour_encode(t, hour);
    struct bytes period = period_enclosing(bytes_str(hour), PERIOD_HOUR, unit);
    buf_printf(&line, "%s.%.*s,x:%llu\n", key, (int)period.len, period.ptr, (unsigned long long)count);
    assert_true(*n < LINES_MAX);
    lines[(*n)++] = bytes_dup(buf_bytes(&line));
    buf_free(&line);
}

/* The month of a day as the number of months since 2000. */
static int month_of(int day)
{
    char hour[HOUR_TEXT_MAX + 1];
    hour_encode(FIRST_DAY + (int64_t)day * 86400, hour);
    return hour[1] - '0';
}

static int64_t day_start(int day)
{
    return FIRST_DAY + (int64_t)day * 86400;
}

static void add_rollups(struct archive *a, char **lines, size_t *n, int dropped)
{
    int64_t month = 0;
    int days = 0;
    for (int d = 0; d < DAYS; d++) {
        int64_t day = 0;
        int hours = 0;
        for (int h = 0; h < 24; h++) {
            day += a->n[24 * d + h];
            hours += a->n[24 * d + h] > 0;
            if (a->n[24 * d + h] > 0 && d >= dropped)
                add_line(lines, n, "c.u|k", PERIOD_HOUR, day_start(d) + 3600 * h, a->n[24 * d + h]);
        }
        a->has_hours[d] = d >= dropped;
        if (hours > 1 || (hours > 0 && d < dropped))
            add_line(lines, n, "c.u|k", PERIOD_DAY, day_start(d), day);
        month += day;
        days += day > 0;
        if (d + 1 == DAYS || month_of(d + 1) != month_of(d)) {
            if (days > 1)
                add_line(lines, n, "c.u|k", PERIOD_MONTH, day_start(d), month);
            month = 0;
            days = 0;
        }
    }
}

static void make(struct archive *a, int dense, int dropped)
{
    static char *lines[LINES_MAX];
    size_t n = 0;
    *a = (struct archive){0};
    for (int h = 0; h < HOURS; h++)
        if (rand() % 100 < dense)
            a->n[h] = rand() % 9 + 1;
    add_rollups(a, lines, &n, dropped);
    add_line(lines, &n, "c.u|j", PERIOD_HOUR, day_start(3), 7);
    add_line(lines, &n, "c.u|k!", PERIOD_HOUR, day_start(3), 7);
    add_line(lines, &n, "c.u|kk", PERIOD_DAY, day_start(3), 7);
    qsort(lines, n, sizeof *lines, compare_lines);
    for (size_t i = 0; i < n; i++) {
        buf_append_str(&a->text, lines[i]);
        free(lines[i]);
    }
}

static void key_of(enum period_unit unit, int64_t t, char out[32])
{
    char hour[HOUR_TEXT_MAX + 1];
    hour_encode(t, hour);
    struct bytes period = period_enclosing(bytes_str(hour), PERIOD_HOUR, unit);
    snprintf(out, 32, "c.u|k.%.*s", (int)period.len, period.ptr);
}

/* Returns the number of records. */
static size_t check_walk(const struct archive *a, int first, int last, enum period_unit largest)
{
    char start[32], end[32];
    struct sorted_index *index = build_index(buf_bytes(&a->text));
    struct sorted_text text = {buf_bytes(&a->text), ',', index};
    struct period_walk w;
    struct bytes line;
    int64_t sum = 0, expected = 0, n;
    int64_t reached = 0, from = FIRST_DAY + (int64_t)first * 3600,
            to = FIRST_DAY + (int64_t)(last + 1) * 3600;
    size_t records = 0;
    bool is_partial = false, bad;
    key_of(PERIOD_HOUR, from, start);
    key_of(PERIOD_HOUR, to - 3600, end);
    assert_true(period_walk_init(&w, bytes_str(start), bytes_str(end), largest));
    period_walk_begin(&w, &text);
    for (; period_walk_next(&w, &line); records++) {
        struct record r;
        struct record_key k;
        struct bytes name;
        assert_true(record_split(bytes_of(line.ptr, line.len - 1), ',', &r) && record_key_parse(r.key, &k));
        assert_true(k.start >= reached);
        reached = period_end(k.unit, k.start);
        is_partial |= k.start < from || reached > to;
        assert_true(
            k.unit <= largest || (k.unit == PERIOD_DAY && !a->has_hours[(k.start - FIRST_DAY) / 86400]));
        assert_true(record_next_count(&r.value, &name, &n, &bad));
        sum += n;
    }
    for (int h = first; h <= last; h++)
        expected += a->n[h];
    if (!is_partial)
        assert_int_equal(sum, expected);
    else
        assert_true(!a->has_hours[first / 24] || !a->has_hours[last / 24]);
    sorted_index_free(&index);
    return records;
}

static void test_random_ranges(void **state)
{
    (void)state;
    static const int densities[] = {1, 5, 40, 100};
    struct archive a;
    srand(7);
    for (int round = 0; round < 24; round++) {
        make(&a, densities[round % 4], round % 3 == 2 ? rand() % DAYS : 0);
        for (int i = 0; i < 300; i++) {
            int first = rand() % HOURS, last = first + rand() % (HOURS - first);
            for (enum period_unit u = PERIOD_HOUR; u <= PERIOD_MONTH; u++) {
                size_t records = check_walk(&a, first, last, u);
                if (u == PERIOD_MONTH)
                    assert_true(records <= 2 * (23 + 30) + DAYS / 28);
            }
        }
        buf_free(&a.text);
    }
}

static void test_a_year_is_about_a_hundred_records(void **state)
{
    (void)state;
    struct archive a;
    make(&a, 100, 0);
    assert_int_equal(check_walk(&a, 0, HOURS - 1, PERIOD_MONTH),
        1 + 3 + 9); /* 31 January, three months, nine days of May */
    assert_int_equal(check_walk(&a, 24, HOURS - 1, PERIOD_MONTH), 3 + 9);
    assert_int_equal(check_walk(&a, 23, 24 + 29 * 24, PERIOD_MONTH), 1 + 1 + 1);
    assert_int_equal(check_walk(&a, 24, 47, PERIOD_DAY), 1);
    assert_int_equal(check_walk(&a, 24, 47, PERIOD_HOUR), 24);
    buf_free(&a.text);
}

static void test_keys_of_one_subtotal(void **state)
{
    (void)state;
    static const char *const bad[][2] = {{"c.u|k.c413", "c.u|l.c413"}, {"c.u|k", "c.u|k.c413"},
        {"u|k", "u|k"}, {"c.u|k.c413", "d.u|k.c413"}, {"", ""}, {"c.u|k.x", "c.u|k.x"},
        {"c.u|k.c4", "c.u|k.c5"}};
    struct period_walk w;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(period_walk_init(&w, bytes_str(bad[i][0]), bytes_str(bad[i][1]), PERIOD_MONTH));
    assert_true(period_walk_init(&w, BYTES_LITERAL("c.u|k.c4"), BYTES_LITERAL("c.u|k.c5vn"), PERIOD_MONTH));
    assert_int_equal(w.to - w.from, INT64_C(61) * 86400); /* April and May */
    assert_true(period_walk_init(&w, BYTES_LITERAL("c.u|k.zvc"), BYTES_LITERAL("c.u|k.zvcvn"), PERIOD_MONTH));
    assert_int_equal(w.to, HOUR_END);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_ranges),
        cmocka_unit_test(test_a_year_is_about_a_hundred_records),
        cmocka_unit_test(test_keys_of_one_subtotal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
