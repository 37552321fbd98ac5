/* loop_notify: runs a function in an event loop, from any thread. After any number of wakes fn(arg) runs at least once. */
#ifndef MILLRACE_LOOP_NOTIFY_H
#define MILLRACE_LOOP_NOTIFY_H

struct event_base;
struct loop_notify;

/* Called by the loop's thread. */
struct loop_notify *loop_notify_new(struct event_base *base, void (*fn)(void *arg), void *arg);
/* From any thread: fn runs in a later turn, after the loop has polled. Takes void *, so that it can be a callback itself. */
void loop_notify_wake(void *notify);
/* From the loop's thread: fn runs at the end of the current turn, without a system call, so that work from many connections is
 * done at once. From other threads: as loop_notify_wake. */
void loop_notify_defer(void *notify);
void loop_notify_free(struct loop_notify **n);

#endif
