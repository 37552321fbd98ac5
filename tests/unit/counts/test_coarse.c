/* coarse: spans of counts that were imported for whole days or months, joined, printed and read again. */
#include "support/cm.h"

#include "counts/coarse.h"
#include <stdio.h>

static void add(
    struct coarse *c, const char *ns, enum coarse_unit unit, int64_t from, int64_t to, const char *zone)
{
    struct coarse_span span = {.from = from, .to = to};
    snprintf(span.zone, sizeof span.zone, "%s", zone);
    coarse_add(c, bytes_str(ns), unit, &span);
}

static void check(const struct coarse *c, const char *ns, const char *expected)
{
    struct coarse_counter counter = coarse_of(c, bytes_str(ns)), again;
    struct buf text = {0};
    coarse_print(&counter, &text);
    assert_true(bytes_equal_str(buf_bytes(&text), expected));
    assert_true(coarse_read(buf_bytes(&text), &again));
    assert_memory_equal(&again, &counter, sizeof again);
    buf_free(&text);
}

static void spans_are_joined(void **state)
{
    (void)state;
    struct coarse c = {.n = 0}, all = {.n = 0};
    add(&c, "u", COARSE_DAY, 200, 300, "UTC");
    add(&c, "u", COARSE_DAY, 500, 600, "UTC");
    add(&c, "u", COARSE_DAY, 100, 200, "UTC");
    add(&c, "c.u", COARSE_MONTH, 1, 9, "Europe/Berlin");
    check(&c, "u", "day 100 600 UTC");
    check(&c, "c.u", "month 1 9 Europe/Berlin");
    check(&c, "c", "");
    add(&all, "u", COARSE_DAY, 700, 800, "Europe/Berlin");
    add(&all, "u", COARSE_MONTH, 2, 3, "UTC");
    coarse_join(&all, &c);
    check(&all, "u", "day 100 800 - month 2 3 UTC");
    check(&all, "c.u", "month 1 9 Europe/Berlin");
    coarse_free(&c);
    coarse_free(&all);
}

static void spans_are_cut(void **state)
{
    static const struct {
        int64_t time;
        const char *expected;
    } cuts[] = {{1000, "day 1000 2593000 UTC month 1000 5185000 UTC"},
        {2000, "day 2000 2593000 UTC month 2000 5185000 UTC"},
        {2593000 - 23 * 3600, "day 2510200 2593000 UTC month 2510200 5185000 UTC"},
        {2593000 - 23 * 3600 + 1, "month 2510201 5185000 UTC"}, {5185000 - 28 * 86400 + 1, ""},
        {6000000, ""}};
    (void)state;
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        struct coarse c = {.n = 0};
        add(&c, "u", COARSE_DAY, 1000, 1000 + 30 * 86400, "UTC");
        add(&c, "u", COARSE_MONTH, 1000, 1000 + 60 * 86400, "UTC");
        coarse_drop_before(&c.list[0].counter, cuts[i].time);
        check(&c, "u", cuts[i].expected);
        coarse_free(&c);
    }
}

static void other_texts_are_refused(void **state)
{
    (void)state;
    static const char *const wrong[] = {"week 1 2 UTC", "day 1 2", "day 2 1 UTC", "day x 2 UTC", "day",
        "day -5 0 UTC", "day 1 2 1234567890123456789012345678901234567890123456789012345678901234567890"};
    struct coarse_counter counter;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (coarse_read(bytes_str(wrong[i]), &counter))
            fail_msg("%s", wrong[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(spans_are_joined), cmocka_unit_test(spans_are_cut),
        cmocka_unit_test(other_texts_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
