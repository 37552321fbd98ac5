/* loop_timer: calls a function after a time, or at intervals. All functions are called on the event loop's thread. The function
 * may set, stop or free its timer. */
#ifndef MILLRACE_LOOP_TIMER_H
#define MILLRACE_LOOP_TIMER_H

#include "base/clock.h"

#include <stdbool.h>

struct event_base;
struct loop_timer;

struct loop_timer *loop_timer_new(struct event_base *base, void (*fn)(void *arg), void *arg);
/* Returns a timer that calls the function at intervals. */
struct loop_timer *loop_timer_every(
    struct event_base *base, usec_t interval, void (*fn)(void *arg), void *arg);
/* Calls the function once after this time, in place of an earlier set time. 0: after the loop has polled for events. */
void loop_timer_set(struct loop_timer *t, usec_t after);
void loop_timer_stop(struct loop_timer *t);
bool loop_timer_is_set(const struct loop_timer *t);
/* *t may be NULL. */
void loop_timer_free(struct loop_timer **t);

#endif
