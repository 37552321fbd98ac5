/* Random sessions against a model in memory, with storage that fails, fills up or loses power at a random operation.
 *
 * MILLRACE_ROUNDS rounds (default 300) from MILLRACE_SEED (default 1), and on until MILLRACE_STEPS; the seed of a
 * failure is printed. */
#include "support/cm.h"
#include "support/journal_model.h"
#include "base/log.h"
#include "support/power.h"

static void session(enum power_fault fault, bool never)
{
    power_on(fault, 1 + model_below(model_below(3) == 0 ? 12 : 150));
    if (model_open() == JOURNAL_OK) {
        if (!power_is_cut())
            model_check(false);
        for (unsigned steps = model_below(120); steps > 0 && !power_is_cut(); steps--)
            model_step();
        model_close();
    }
    bool lost = power_is_cut();
    power_off(model_seed());
    if (lost)
        model_reboot();
    assert_int_equal(model_open(), JOURNAL_OK);
    model_check(lost && never);
    model_close();
}

static void round_of(unsigned seed)
{
    bool never = seed % 3 == 0;
    model_begin(seed, never ? JOURNAL_SYNC_NEVER : seed % 3 == 1 ? 0 : 1);
    for (int i = 0; i < 4; i++)
        session((enum power_fault)model_below(POWER_FAULTS), never);
    model_end();
}

static void test_random_sessions(void **state)
{
    (void)state;
    unsigned seed = model_setting("MILLRACE_SEED", 1), rounds = model_setting("MILLRACE_ROUNDS", 300), i;
    unsigned long steps = model_setting("MILLRACE_STEPS", 0);
    print_message("from MILLRACE_SEED=%u\n", seed);
    for (i = 0; i < rounds || model_steps() < steps; i++)
        round_of(seed + i);
    print_message("%u rounds, %lu steps\n", i, model_steps());
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_sessions)};
    log_init("test", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
