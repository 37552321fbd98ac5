/* The trusted time under jumps of the wall clock. */
#include "support/cm.h"

#include "base/clock_watch.h"

#include <stdlib.h>

#define SECOND USEC_PER_SEC
#define DAY (86400 * SECOND)

static const usec_t begin = 1700000000 * SECOND;

struct world {
    struct clock_watch watch;
    usec_t boot, shift;
};

/* Lets time pass with a look every second. Returns how far the trusted time is behind the right time. */
static usec_t pass(struct world *w, usec_t time)
{
    usec_t trusted = 0;
    for (usec_t end = w->boot + time; w->boot < end;) {
        w->boot += SECOND;
        trusted = clock_watch_look(&w->watch, begin + w->boot + w->shift, w->boot);
        assert_true(trusted <= begin + w->boot + w->shift);
    }
    return begin + w->boot - trusted;
}

static struct world new_world(usec_t boot)
{
    struct world w = {.boot = boot};
    assert_int_equal(clock_watch_look(&w.watch, begin + boot, boot), begin + boot);
    return w;
}

static void a_clock_that_is_ahead_for_a_while_moves_nothing(void **state)
{
    (void)state;
    for (usec_t jump = 2 * SECOND; jump <= 400 * DAY; jump *= 3) {
        struct world w = new_world(5 * SECOND);
        w.shift = jump;
        assert_int_equal(pass(&w, 5 * SECOND), 0);
        assert_int_equal(w.watch.last_jump, jump);
        assert_int_equal(pass(&w, CLOCK_TRUST_AFTER - 10 * SECOND), 0);
        w.shift = 0;
        assert_int_equal(pass(&w, 3 * CLOCK_TRUST_AFTER), 0);
        assert_int_equal(w.watch.jumps, 2);
        assert_int_equal(w.watch.last_jump, -jump);
    }
}

static void a_fall_is_followed_at_once_and_so_is_its_end(void **state)
{
    (void)state;
    struct world w = new_world(5 * SECOND);
    w.shift = -DAY;
    assert_int_equal(pass(&w, SECOND), DAY);
    assert_int_equal(pass(&w, 60 * SECOND), DAY);
    w.shift = 0;
    assert_int_equal(pass(&w, SECOND), 0);
    assert_int_equal(w.watch.jumps, 2);
    w.shift = -DAY; /* for so long that the rise back is a jump ahead */
    assert_int_equal(pass(&w, 2 * CLOCK_TRUST_AFTER), DAY);
    w.shift = 0;
    assert_int_equal(pass(&w, SECOND), DAY);
    assert_int_equal(pass(&w, CLOCK_TRUST_AFTER), 0);
}

static void a_rise_that_lasts_is_trusted(void **state)
{
    (void)state;
    struct world w = new_world(400 * DAY);
    w.shift = DAY;
    assert_int_equal(pass(&w, CLOCK_TRUST_AFTER), 0);
    assert_int_equal(pass(&w, SECOND), -DAY);
    for (int i = 0; i < 1000; i++) { /* a machine that is stopped again and again */
        w.shift += 3 * SECOND;
        pass(&w, 60 * SECOND);
    }
    assert_true(w.shift + pass(&w, SECOND) <= 3 * SECOND * (CLOCK_TRUST_AFTER / (60 * SECOND) + 1));
}

static void slow_corrections_are_no_jumps(void **state)
{
    (void)state;
    struct world w = new_world(5 * SECOND);
    for (int i = 0; i < 20000; i++) {
        w.shift += (i < 10000 ? 1 : -1) * SECOND / 2000;
        assert_int_equal(pass(&w, SECOND), -w.shift);
    }
    assert_int_equal(w.watch.jumps, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_clock_that_is_ahead_for_a_while_moves_nothing),
        cmocka_unit_test(a_fall_is_followed_at_once_and_so_is_its_end),
        cmocka_unit_test(a_rise_that_lasts_is_trusted),
        cmocka_unit_test(slow_corrections_are_no_jumps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
