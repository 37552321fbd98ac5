/* loop_notify: wakes an event loop from other threads, or has its own thread do something later. The wakes may be called
 * any number of times; fn(arg) then runs at least once in the loop afterwards. */
#ifndef MILLRACE_LOOP_NOTIFY_H
#define MILLRACE_LOOP_NOTIFY_H

struct event_base;
struct loop_notify;

/* By the thread that will run the loop. */
struct loop_notify *loop_notify_new(struct event_base *base, void (*fn)(void *arg), void *arg);
/* From any thread: fn runs in another turn of the loop, after it has looked for what is ready meanwhile. void *, so that it can
 * be a callback itself. */
void loop_notify_wake(void *notify);
/* The same, but from the loop's own thread it costs no system call: fn runs in this turn, after all that was ready when the
 * turn began. So what comes from many connections at once is done at once. */
void loop_notify_defer(void *notify);
void loop_notify_free(struct loop_notify **n);

#endif
