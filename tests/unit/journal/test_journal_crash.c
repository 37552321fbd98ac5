/* Crash points: each is an operation, a fault and a policy. A fixed piece of work runs once to count its changing operations. It
 * then runs again for each operation, which meets the fault. Afterwards the journal is opened, compared with the model, written
 * to, and the power is cut: everything ever acknowledged must be there. Or the program is killed at the operation and started
 * again, and the power is cut during that second life: everything it served must be there.
 *
 * MILLRACE_POINTS points (default 300) from MILLRACE_SEED (default 1). */
#include "support/cm.h"
#include "support/journal_model.h"
#include "base/log.h"
#include "support/power.h"

#include <stdio.h>

#define STEPS 30

static const int64_t policies[] = {0, 1, JOURNAL_SYNC_NEVER};
#define POLICIES (sizeof policies / sizeof *policies)

/* Settles after each step, so that every run has the same order of operations. */
static void work(unsigned steps)
{
    while (steps-- > 0 && !power_is_cut()) {
        model_step();
        model_settle();
    }
}

static void open_and_check(bool may_lose)
{
    assert_int_equal(model_open(), JOURNAL_OK);
    model_check(may_lose);
}

/* Returns the number of operations. */
static unsigned crash_at(unsigned seed, int64_t policy, enum power_fault fault, unsigned at)
{
    bool never = policy == JOURNAL_SYNC_NEVER;
    model_begin(seed, policy);
    power_on(fault, at);
    if (model_open() == JOURNAL_OK) {
        work(STEPS);
        model_close();
    }
    unsigned operations = power_operations();
    if (power_is_cut()) {
        power_off(model_seed());
        model_reboot();
        power_on(POWER_NONE, 0);
        open_and_check(never);
    } else {
        power_revive(
            POWER_NONE, 0); /* a fault that a run with fewer operations has not met is not for the check */
        open_and_check(false);
    }
    work(4);
    power_cut_now();
    model_close();
    power_off(model_seed());
    model_reboot();
    open_and_check(never);
    model_close();
    model_end();
    return operations;
}

/* Killed, opened again, and the power is cut at the `then`-th operation from the opening on (0: after some work). */
static void kill_at(unsigned seed, int64_t policy, unsigned at, unsigned then)
{
    static const enum power_fault cuts[] = {POWER_CUT, POWER_CUT_ALL, POWER_CUT_TORN};
    model_begin(seed, policy);
    power_on(POWER_KILL, at);
    if (model_open() == JOURNAL_OK) {
        work(STEPS);
        model_close();
    }
    power_revive(cuts[(seed + at) % 3], then);
    if (model_open() == JOURNAL_OK) {
        model_check(false);
        work(4);
        if (!power_is_cut())
            power_cut_now();
        model_close();
    }
    power_off(model_seed());
    model_reboot();
    open_and_check(policy == JOURNAL_SYNC_NEVER);
    model_close();
    model_end();
}

static unsigned points_of(unsigned seed, int64_t policy, unsigned stride)
{
    unsigned operations = crash_at(seed, policy, POWER_NONE, 0), points = 0;
    for (unsigned at = 1 + seed % stride; at <= operations; at += stride, points++)
        kill_at(seed, policy, at, (seed + at) % 7);
    for (enum power_fault fault = POWER_CUT; fault < POWER_FAULTS; fault++)
        for (unsigned at = 1 + (seed + fault) % stride; at <= operations; at += stride)
            points += crash_at(seed, policy, fault, at) >= at;
    return points;
}

static void test_crash_points(void **state)
{
    (void)state;
    unsigned wanted = model_setting("MILLRACE_POINTS", 300), seed = model_setting("MILLRACE_SEED", 1);
    unsigned stride = wanted < 5000 ? 7 : 1, points = 0;
    print_message("from MILLRACE_SEED=%u\n", seed);
    for (; points < wanted; seed++)
        for (size_t p = 0; p < POLICIES; p++)
            points += points_of(seed, policies[p], stride);
    print_message("%u distinct crash points\n", points);
}

/* All faults of the work that once failed: a close frame vouched for a trimmed segment that was neither removed nor
 * synced. */
static void test_a_segment_that_could_not_be_removed(void **state)
{
    (void)state;
    for (unsigned at = 1; at <= 40; at++)
        (void)crash_at(6004, JOURNAL_SYNC_NEVER, POWER_EIO, at);
}

/* Damage to the last frame is refused after a clean stop. After a kill it is refused, or cut and reported. */
static void test_damage_to_the_last_frame_is_never_silent(void **state)
{
    (void)state;
    unsigned seed = model_setting("MILLRACE_SEED", 1), rounds = model_setting("MILLRACE_POINTS", 300) / 10;
    struct model_verdicts stopped = {0}, killed = {0};
    for (unsigned i = 0; i < rounds; i++) {
        bool kill = i % 2;
        model_begin(seed + i, policies[i / 2 % POLICIES]);
        assert_int_equal(model_open(), JOURNAL_OK);
        for (unsigned steps = 1 + model_below(STEPS); steps > 0; steps--)
            model_step();
        kill ? model_kill() : model_close();
        model_damage(kill, 4, kill ? &killed : &stopped);
        assert_int_equal(model_open(), JOURNAL_OK);
        model_check(false);
        model_close();
        model_end();
    }
    print_message("stopped: %u refused, %u whole; killed: %u refused, %u whole, %u said\n", stopped.refused,
        stopped.whole, killed.refused, killed.whole, killed.said);
    /* Zeroed padding leaves a frame whole; model_damage has checked that nothing acknowledged is missing. */
    assert_true(stopped.refused > 10 * stopped.whole && stopped.said == 0 && killed.said > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_segment_that_could_not_be_removed),
        cmocka_unit_test(test_crash_points), cmocka_unit_test(test_damage_to_the_last_frame_is_never_silent)};
    log_init("test", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
