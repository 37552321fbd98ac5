/* loop_notify: makes an event loop run a function. After any number of calls from any thread, fn(arg) runs at least once. */
#ifndef MILLRACE_LOOP_NOTIFY_H
#define MILLRACE_LOOP_NOTIFY_H

struct event_base;
struct loop_notify;

/* From the loop's thread. */
struct loop_notify *loop_notify_new(struct event_base *base, void (*fn)(void *arg), void *arg);
/* From any thread: fn runs in a later turn, after the loop has polled. Takes a void *, so that it can serve as a callback. */
void loop_notify_wake(void *notify);
/* From the loop's thread: fn runs at the end of the current turn, without a system call. So one run handles work from many
 * connections. From other threads: as loop_notify_wake. */
void loop_notify_defer(void *notify);
void loop_notify_free(struct loop_notify **n);

#endif
