/* loop_notify: makes an event loop run a function. After each call of loop_notify_wake or loop_notify_defer, the loop
 * calls fn(arg). The loop may answer several calls with one call of fn. */
#ifndef MILLRACE_LOOP_NOTIFY_H
#define MILLRACE_LOOP_NOTIFY_H

struct event_base;
struct loop_notify;

/* Must be called from the loop's thread. Returns NULL if resources run short. */
struct loop_notify *loop_notify_new(struct event_base *base, void (*fn)(void *arg), void *arg);
/* May be called from any thread. The loop first polls for events and then calls fn. `notify` is a void *, so that
 * loop_notify_wake can serve as a callback. */
void loop_notify_wake(void *notify);
/* Called from the loop's thread, loop_notify_defer needs no system call: the loop calls fn after all active events.
 * Therefore one call of fn can handle the work of many connections. Called from another thread or from fn
 * itself, loop_notify_defer does the same as loop_notify_wake: fn can leave a part of long work to a later turn. fn must not
 * free the notify. */
void loop_notify_defer(void *notify);
void loop_notify_free(struct loop_notify **n);

#endif
