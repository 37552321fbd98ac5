/* http_reads: answers the read protocol (docs/guide/protocol.md) from the aggregate.
 *
 * The loop answers a small read at once. A thread answers large reads one after another, so that other requests do not
 * wait and counting continues. If many clients ask at once, small reads take only a limited part of each turn of the
 * loop, and the thread answers the remaining reads. During a large read the aggregate is held (aggregate_hold), so the
 * counts that the read shows do not change. Between two large reads, the aggregate takes the results of the storage
 * thread.
 *
 * The thread also answers every read of the minutes (minute_read.h).
 *
 * 1. An answer shows one moment, and its X-Millrace headers describe that moment.
 * 2. If the client of a large read disconnects, the thread completes the read, and the answer is dropped.
 * Only the loop's thread may call the functions of http_reads.
 */
#ifndef MILLRACE_HTTP_READS_H
#define MILLRACE_HTTP_READS_H

#include "base/work_thread.h"
#include "http/server/http_server.h"

struct app;
struct large_read;

struct http_reads {
    struct work_thread *thread;
    struct large_read *running, *queue, **end; /* in the order of the requests */
    usec_t turn, spent; /* time at which the loop's current turn began, and time spent on small reads in it */
};

/* Starts the thread, which calls `notify` after each read. Returns 0, or -1 with errno. */
int http_reads_start(struct http_reads *reads, void (*notify)(void *arg), void *notify_arg);
/* Waits for the current read and ends the thread. Call http_reads_stop after the HTTP server is freed and before the
 * aggregate is closed. */
void http_reads_stop(struct http_reads *reads);
/* Answers the completed large read and releases the aggregate. Call http_reads_finish before aggregate_poll. */
void http_reads_finish(struct app *app);
/* Begins the next large read. Call http_reads_next after aggregate_poll. */
void http_reads_next(struct app *app);

/* Answer 503 and return false until the slices are open. http_reads_check_caught_up also does so until every stream has
 * caught up. */
bool http_reads_check_open(const struct app *app, struct http_request *req);
bool http_reads_check_caught_up(const struct app *app, struct http_request *req);

http_handler http_reads_get, http_reads_mget, http_reads_fwmatch, http_reads_range, http_reads_keys,
    http_reads_minutes;

#endif
