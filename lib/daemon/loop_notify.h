/* loop_notify: makes an event loop run a function. The loop calls fn(arg) at least once after a call of
 * loop_notify_wake or loop_notify_defer. Several calls may result in one. */
#ifndef MILLRACE_LOOP_NOTIFY_H
#define MILLRACE_LOOP_NOTIFY_H

struct event_base;
struct loop_notify;

/* From the loop's thread. */
struct loop_notify *loop_notify_new(struct event_base *base, void (*fn)(void *arg), void *arg);
/* May be called from any thread. The loop first polls for events and then calls fn. The argument is a void *, so that
 * this function can serve as a callback. */
void loop_notify_wake(void *notify);
/* Called from the loop's thread, this function needs no system call: the loop calls fn after the events that are
 * already active. So one call of fn can handle the work of many connections. Called from another thread, it does the
 * same as loop_notify_wake. */
void loop_notify_defer(void *notify);
void loop_notify_free(struct loop_notify **n);

#endif
