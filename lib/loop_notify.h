/* loop_notify: wakes an event loop from other threads. loop_notify_wake may be called from any thread and any
 * number of times; fn(arg) then runs at least once in the loop afterwards. */
#ifndef MILLRACE_LOOP_NOTIFY_H
#define MILLRACE_LOOP_NOTIFY_H

struct event_base;
struct loop_notify;

struct loop_notify *loop_notify_new(struct event_base *base, void (*fn)(void *arg), void *arg);
void loop_notify_wake(void *notify); /* void *, so that it can be a callback itself */
void loop_notify_free(struct loop_notify **n);

#endif
