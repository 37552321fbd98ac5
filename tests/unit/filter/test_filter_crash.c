/* Crash points of a filter: an update or a sync meets a fault at each of its file operations. The filter is then opened
 * again. It has the updates up to the last sync or up to the interrupted one, and no others. The updates after them are
 * repeated, and the filter equals the model: all members are in it, and after their removal every counter is 0.
 *
 * MILLRACE_POINTS points (default 150) from MILLRACE_SEED (default 1). */
#include "support/cm.h"
#include "support/filter_model.h"
#include "support/power.h"
#include "support/test_dir.h"
#include "support/trees.h"

#include <stdio.h>

#define UPDATES 200 /* three layers */
#define EVERY 8

static struct filter_config config_of(const char *path)
{
    return (struct filter_config){.path = path, .capacity = 24, .rate = 0.01};
}

struct life {
    char dir[64], path[80];
    struct filter_model model;
    uint64_t synced; /* acknowledged */
    unsigned seed;
};

static void begin(struct life *l, unsigned seed)
{
    *l = (struct life){.seed = seed};
    make_test_dir(l->dir, sizeof l->dir);
    snprintf(l->path, sizeof l->path, "%s/filter", l->dir);
    l->model = filter_model_new(seed, UPDATES, UPDATES * 2, 1);
}

/* Opens the filter, continues after its sequence, and closes it. Returns false if a fault stopped it. */
static bool live(struct life *l)
{
    struct filter_config config = config_of(l->path);
    struct filter *f;
    struct error error;
    if (filter_open(&config, &f, &error) != FILTER_OK)
        return false;
    uint64_t from = filter_sequence(f);
    assert_true(from >= l->synced && (from == l->synced || from <= l->synced + EVERY));
    filter_model_check(&l->model, f, from);
    enum filter_result r = filter_model_apply(&l->model, f, from + 1, UPDATES, EVERY, &l->synced, &error);
    assert_true(r == FILTER_OK || r == FILTER_FAILED || r == FILTER_NO_SPACE);
    filter_close(&f);
    return r == FILTER_OK;
}

/* The file without faults: the caller repeats more than it must, and nothing counts twice. */
static void end(struct life *l)
{
    struct filter_config config = config_of(l->path);
    struct filter *f, *reader;
    struct error error;
    assert_true(live(l));
    assert_int_equal(filter_open(&config, &f, &error), FILTER_OK);
    assert_int_equal(filter_sequence(f), UPDATES);
    assert_int_equal(
        filter_model_apply(&l->model, f, 1, UPDATES, EVERY, &l->synced, &error), FILTER_REPEATED);
    assert_int_equal(filter_open_reader(l->path, &reader, &error), FILTER_OK);
    filter_model_check(&l->model, reader, UPDATES);
    filter_close(&reader);
    filter_model_empty(&l->model, f, UPDATES);
    assert_int_equal(filter_sync(f, &error), FILTER_OK);
    filter_close(&f);
    assert_no_counters(l->path);
    filter_model_free(&l->model);
    remove_tree(l->dir);
}

/* Returns the number of operations. */
static unsigned crash_at(unsigned seed, enum power_fault fault, unsigned at)
{
    struct life l;
    begin(&l, seed);
    power_on(fault, at);
    (void)live(&l);
    unsigned operations = power_operations();
    if (!power_is_cut()) { /* an error, and another life, which the power ends */
        power_revive(POWER_NONE, 0);
        (void)live(&l);
        power_cut_now();
    }
    power_off(&l.seed);
    end(&l);
    return operations;
}

/* Killed, and the power is cut at the `then`-th operation of the next life. */
static void kill_at(unsigned seed, unsigned at, unsigned then)
{
    static const enum power_fault cuts[] = {POWER_CUT, POWER_CUT_ALL, POWER_CUT_TORN};
    struct life l;
    begin(&l, seed);
    power_on(POWER_KILL, at);
    (void)live(&l);
    power_revive(cuts[(seed + at) % 3], then);
    (void)live(&l);
    power_cut_now();
    power_off(&l.seed);
    end(&l);
}

static void test_crash_points(void **state)
{
    (void)state;
    const char *given = getenv("MILLRACE_POINTS"), *first = getenv("MILLRACE_SEED");
    unsigned wanted = given ? (unsigned)atoi(given) : 150, seed = first ? (unsigned)atoi(first) : 1;
    unsigned stride = given ? 1 : 13, points = 0;
    print_message("from MILLRACE_SEED=%u\n", seed);
    for (; points < wanted; seed++) {
        unsigned operations = crash_at(seed, POWER_NONE, 0);
        for (unsigned at = 1 + seed % stride; at <= operations; at += stride, points++)
            kill_at(seed, at, 1 + (seed + at) % 9);
        for (enum power_fault fault = POWER_CUT; fault < POWER_FAULTS; fault++)
            for (unsigned at = 1 + (seed + fault) % stride; at <= operations; at += stride, points++)
                (void)crash_at(seed, fault, at);
    }
    print_message("%u crash points\n", points);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_crash_points)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
