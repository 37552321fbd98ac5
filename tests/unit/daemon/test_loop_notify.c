#include "daemon/loop_notify.h"
#include "support/cm.h"
#include <event2/event.h>
#include <pthread.h>
#include <string.h>

/* What happened, a letter each. */
static char trace[32];
static struct loop_notify *notify;
static struct event *second;

static void note(char what)
{
    trace[strlen(trace)] = what;
}

static int rounds; /* calls of on_notify that ask for another one */

static void on_notify(void *arg)
{
    (void)arg;
    note('n');
    if (rounds-- > 0)
        loop_notify_defer(notify);
}

static void on_first(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what, (void)arg;
    note('1');
    loop_notify_defer(notify);
    loop_notify_defer(notify);
}

static void on_second(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what, (void)arg;
    note('2');
    loop_notify_defer(notify);
}

static void test_in_this_turn_after_what_was_ready(void **state)
{
    struct event_base *base = *state;
    struct event *first = event_new(base, -1, 0, on_first, NULL);
    second = event_new(base, -1, 0, on_second, NULL);
    event_active(first, 0, 0);
    event_active(second, 0, 0);
    assert_int_not_equal(event_base_loop(base, EVLOOP_NONBLOCK), -1);
    assert_string_equal(trace, "12n");
    event_free(first);
    event_free(second);
}

static void on_once(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what, (void)arg;
    note('1');
    loop_notify_wake(notify);
    event_active(second, 0, 0);
}

static void on_more(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what, (void)arg;
    note('2');
}

/* A wake, even from the loop itself, lets the loop look for events first. */
static void test_a_wake_is_for_another_turn(void **state)
{
    struct event_base *base = *state;
    struct event *once = event_new(base, -1, 0, on_once, NULL);
    second = event_new(base, -1, 0, on_more, NULL);
    event_active(once, 0, 0);
    assert_int_not_equal(event_base_loop(base, EVLOOP_NONBLOCK), -1);
    assert_string_equal(trace, "12n"); /* loop_notify_defer would give 1n2 */
    event_free(once);
    event_free(second);
}

static void test_a_defer_from_the_function_is_for_another_turn(void **state)
{
    struct event_base *base = *state;
    rounds = 2;
    loop_notify_defer(notify);
    for (size_t turns = 1; turns <= 3; turns++) {
        assert_int_not_equal(event_base_loop(base, EVLOOP_ONCE), -1);
        assert_int_equal(strlen(trace), turns);
    }
}

static void *from_elsewhere(void *arg)
{
    (void)arg;
    loop_notify_defer(notify);
    loop_notify_wake(notify);
    return NULL;
}

static void test_from_another_thread(void **state)
{
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, from_elsewhere, NULL), 0);
    pthread_join(thread, NULL);
    assert_int_not_equal(event_base_loop(*state, EVLOOP_ONCE), -1);
    assert_string_equal(trace, "n");
}

static int setup(void **state)
{
    memset(trace, 0, sizeof trace);
    rounds = 0;
    *state = event_base_new();
    notify = loop_notify_new(*state, on_notify, NULL);
    return notify ? 0 : -1;
}

static int teardown(void **state)
{
    loop_notify_free(&notify);
    event_base_free(*state);
    return notify ? -1 : 0;
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_in_this_turn_after_what_was_ready),
        T(test_a_wake_is_for_another_turn),
        T(test_a_defer_from_the_function_is_for_another_turn),
        T(test_from_another_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
