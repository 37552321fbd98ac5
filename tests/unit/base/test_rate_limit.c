#include "support/cm.h"
#include "base/rate_limit.h"
#include <stdlib.h>

#define SECONDS 20
#define MAX_SPENT 2000000

struct spent {
    usec_t at;
    size_t n;
};
static struct spent spent[MAX_SPENT];
static size_t times;

static const uint64_t rates[] = {1, 3, 10, 19, 20, 100, 101, 999, 2000, 30000, 90000};

/* From `now` on for SECONDS, always with something to do; what waited begins up to `late` after it might. How many were done. */
static uint64_t run(struct rate_limit *p, usec_t now, usec_t late, unsigned seed)
{
    usec_t end = now + SECONDS * USEC_PER_SEC;
    uint64_t done = 0;
    for (times = 0; times < MAX_SPENT; times++) {
        size_t n = 1 + (size_t)rand_r(&seed) % rate_limit_batch(p);
        usec_t when = rate_limit_when(p, n, now);
        if (when >= end)
            return done;
        if (when > now && late > 0)
            when += rand_r(&seed) % late;
        now = when;
        rate_limit_spend(p, n, now);
        spent[times] = (struct spent){.at = now, .n = n};
        done += n;
    }
    fail_msg("more than can be");
    return 0;
}

/* In no stretch from one to another: the most that is ahead of the rate, seen from the farthest behind before. */
static void assert_bound(uint64_t rate)
{
    double done = 0, behind = 0, r = (double)rate;
    for (size_t i = 0; i < times; i++) {
        double due = (double)(spent[i].at - spent[0].at) * r / USEC_PER_SEC;
        behind = i == 0 || done - due < behind ? done - due : behind;
        done += (double)spent[i].n;
        assert_true(done - due - behind <= r / 10 + 1.001);
    }
}

static void test_the_rate_is_reached_though_waits_end_late(void **state)
{
    static const usec_t late[] = {0, 1, 300, 2500, 20 * USEC_PER_MSEC, 49 * USEC_PER_MSEC};
    (void)state;
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        for (size_t k = 0; k < sizeof late / sizeof *late; k++) {
            struct rate_limit p;
            rate_limit_init(&p, rates[i]);
            uint64_t done = run(&p, 12345, late[k], (unsigned)k + 1), whole = SECONDS * rates[i];
            assert_in_range(done + rate_limit_burst(&p), whole, whole + rate_limit_burst(&p) + 1);
            assert_bound(rates[i]);
        }
    }
}

static void test_no_stretch_has_more_whatever_was_unused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        struct rate_limit p;
        rate_limit_init(&p, rates[i]);
        run(&p, 0, 700 * USEC_PER_MSEC, (unsigned)i + 1);
        assert_bound(rates[i]);
        run(&p, INT64_MAX / 4, 0, 1); /* a pause that no multiplication survives */
        assert_bound(rates[i]);
    }
}

static void test_the_bound_is_met_and_no_more(void **state)
{
    (void)state;
    struct rate_limit p;
    rate_limit_init(&p, 100);
    assert_int_equal(rate_limit_when(&p, 1, 5000000), 5000000);
    assert_int_equal(rate_limit_when(&p, 2, 5000000), 5010000);
    assert_int_equal(rate_limit_burst(&p), 11);
    assert_int_equal(rate_limit_when(&p, 11, 9000000), 9000000);
    rate_limit_spend(&p, 11, 9000000);
    assert_int_equal(rate_limit_when(&p, 1, 9000000), 9010000);
    assert_int_equal(
        rate_limit_when(&p, 1, 8000000), 8010000); /* a clock that stood still or fell behind brings none */
}

static void test_more_than_the_depth_at_once_is_waited_for_afterwards(void **state)
{
    (void)state;
    struct rate_limit p;
    rate_limit_init(&p, 10);
    rate_limit_when(&p, 1, 0);
    assert_int_equal(rate_limit_when(&p, 50, 1000000), 1000000);
    rate_limit_spend(&p, 50, 1000000);
    assert_int_equal(rate_limit_when(&p, 1, 1000000), 1000000 + 4900000);
}

static void test_without_a_rate(void **state)
{
    (void)state;
    struct rate_limit p;
    rate_limit_init(&p, 0);
    for (usec_t now = 0; now < 1000; now++) {
        assert_int_equal(rate_limit_when(&p, SIZE_MAX, now), now);
        rate_limit_spend(&p, SIZE_MAX, now);
    }
    rate_limit_init(&p, RATE_LIMIT_RATE_MAX);
    assert_int_equal(rate_limit_when(&p, rate_limit_batch(&p), 0), 50000);
    assert_int_equal(rate_limit_when(&p, rate_limit_batch(&p), INT64_MAX / 2), INT64_MAX / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_rate_is_reached_though_waits_end_late),
        cmocka_unit_test(test_no_stretch_has_more_whatever_was_unused),
        cmocka_unit_test(test_the_bound_is_met_and_no_more),
        cmocka_unit_test(test_more_than_the_depth_at_once_is_waited_for_afterwards),
        cmocka_unit_test(test_without_a_rate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
