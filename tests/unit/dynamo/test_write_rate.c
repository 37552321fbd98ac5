/* write_rate: a table whose bucket fills at a fixed rate gets at least nine tenths of what it allows, whatever the rate. The clock
 * and the table are simulated. */
#include "support/cm.h"

#include "dynamo/write_rate.h"

#define BATCH 25
#define SLOTS 8
#define LATENCY (8 * USEC_PER_MSEC)
#define BACKOFF (50 * USEC_PER_MSEC)

struct table {
    double tokens, most, rate, lost, accepted, throttled;
    usec_t filled;
    bool is_random; /* throttles half of the units at any rate */
};

static uint64_t seed = 1;

static usec_t random_below(usec_t most)
{
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (usec_t)((seed >> 33) % (uint64_t)(most + 1));
}

static int take(struct table *t, int units, usec_t now)
{
    int halved = 0;
    for (int i = 0; i < units && t->is_random; i++)
        halved += random_below(1) == 0;
    units -= halved;
    t->throttled += halved;
    t->tokens += t->rate * (double)(now - t->filled) / USEC_PER_SEC;
    t->filled = now;
    if (t->tokens > t->most) {
        t->lost += t->tokens - t->most;
        t->tokens = t->most;
    }
    int taken = t->tokens < units ? (int)t->tokens : units;
    t->tokens -= taken;
    t->accepted += taken;
    t->throttled += units - taken;
    return taken;
}

/* A batch that waits for its next request, or that has one in progress. */
struct slot {
    int left, sent, taken;
    unsigned attempts;
    usec_t at;
    bool is_answer;
};

static void step(struct slot *s, struct table *t, struct write_rate *r)
{
    usec_t now = s->at;
    if (!s->is_answer) {
        s->taken = take(t, s->sent, now + LATENCY / 2);
        s->is_answer = true;
        s->at = now + LATENCY;
        return;
    }
    write_rate_answer(r, s->taken, s->sent - s->taken, now);
    s->attempts = s->taken > 0 ? 0 : s->attempts + 1;
    s->left -= s->taken;
    s->is_answer = false;
    usec_t after = now;
    if (s->taken < s->sent)
        after += random_below(BACKOFF << (s->attempts > 5 ? 5 : s->attempts));
    if (s->left == 0)
        s->left = BATCH;
    double room = write_rate_room(r);
    s->sent = s->left <= room ? s->left : (int)room;
    usec_t due = write_rate_reserve(r, s->sent, now);
    s->at = due < after ? after : due;
}

static void run(struct table *t, struct write_rate *r, struct slot slots[SLOTS], usec_t until)
{
    for (;;) {
        struct slot *first = slots;
        for (struct slot *s = slots; s < slots + SLOTS; s++)
            first = s->at < first->at ? s : first;
        if (first->at > until)
            return;
        step(first, t, r);
    }
}

static void check(double rate, double seconds_saved)
{
    struct table t = {.rate = rate, .most = rate * seconds_saved + BATCH, .filled = USEC_PER_SEC};
    struct write_rate r = {0};
    struct slot slots[SLOTS];
    for (size_t i = 0; i < SLOTS; i++)
        slots[i] =
            (struct slot){.left = BATCH, .sent = BATCH, .at = write_rate_reserve(&r, BATCH, USEC_PER_SEC)};
    run(&t, &r, slots, 61 * USEC_PER_SEC);
    double accepted = t.accepted, throttled = t.throttled;
    run(&t, &r, slots, 301 * USEC_PER_SEC);
    double used = t.accepted / (t.rate * 300), wasted = (t.throttled - throttled) / (t.accepted - accepted);
    print_message("rate %g: %.3f of the allowed units, later %.3f throttled, limit %.1f\n", rate, used,
        wasted, r.limit);
    assert_true(used >= 0.9);
    assert_true(wasted <= 0.25);
    t.rate *= 10; /* the table allows more */
    t.most *= 10;
    run(&t, &r, slots, 601 * USEC_PER_SEC);
    double before = t.accepted;
    run(&t, &r, slots, 901 * USEC_PER_SEC);
    print_message("then rate %g: %.3f\n", t.rate, (t.accepted - before) / (t.rate * 300));
    assert_true((t.accepted - before) / (t.rate * 300) >= 0.9 || t.rate > 20000);
}

static void shares(void **state)
{
    (void)state;
    static const double rates[] = {5, 20, 100, 500, 1000, 2000};
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++)
        for (int saved = 1; saved <= 300; saved *= 300)
            check(rates[i], saved);
}

/* Half of the units is throttled at any rate: the limit does not sink for ever. */
static void hot_keys(void **state)
{
    (void)state;
    struct table t = {.rate = 1e6, .most = 1e6, .filled = USEC_PER_SEC, .is_random = true};
    struct write_rate r = {0};
    struct slot slots[SLOTS];
    for (size_t i = 0; i < SLOTS; i++)
        slots[i] =
            (struct slot){.left = BATCH, .sent = BATCH, .at = write_rate_reserve(&r, BATCH, USEC_PER_SEC)};
    for (int i = 1; i <= 10; i++) {
        double before = t.accepted;
        run(&t, &r, slots, (60 * i + 1) * USEC_PER_SEC);
        print_message("minute %d: %.0f a second, limit %.1f\n", i, (t.accepted - before) / 60, r.limit);
        assert_true(t.accepted - before >= 60 * 100);
    }
}

static void limits(void **state)
{
    (void)state;
    struct write_rate r = {0};
    assert_int_equal(write_rate_reserve(&r, 1e9, 1000), 1000); /* no limit yet */
    write_rate_answer(&r, 1e9, 0, 2000);
    assert_true(r.limit == 0);
    write_rate_answer(&r, 0, 25, USEC_PER_SEC);
    assert_true(r.limit == 1e7); /* not below what was accepted a moment ago */
    for (int i = 0; i < 1000; i++)
        write_rate_answer(&r, 0, 25, 60 * USEC_PER_SEC + i);
    assert_true(r.limit == 1); /* never below one unit a second */
    usec_t first = write_rate_reserve(&r, 10, 100 * USEC_PER_SEC);
    assert_int_equal(first, 100 * USEC_PER_SEC);
    usec_t second = write_rate_reserve(&r, 1, 100 * USEC_PER_SEC);
    assert_true(second >= 109 * USEC_PER_SEC && second <= 110 * USEC_PER_SEC);
    double limit = r.limit;
    write_rate_answer(&r, 25, 0, 200 * USEC_PER_SEC); /* the limit did not hold this write back */
    assert_true(r.limit == limit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shares), cmocka_unit_test(hot_keys), cmocka_unit_test(limits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
