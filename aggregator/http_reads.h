/* http_reads: the read protocol over the aggregate (docs/guide/protocol.md).
 *
 * The loop answers a small read at once. A thread answers large reads, one after another, so that no other request waits
 * for them and counting continues. If many clients ask at once, small reads take the loop at most a part of each turn, and
 * the thread answers the others. Meanwhile the aggregate is held (aggregate_hold): the counts that the read shows stay
 * as they are. Between two large reads the aggregate takes the results of the storage thread.
 *
 * 1. An answer shows one moment, and its X-Millrace headers describe that moment.
 * 2. If the client of a large read is gone, the thread completes the read, and the answer is dropped.
 * The loop's thread only.
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
    usec_t turn, spent; /* when the loop's current turn began, and how long small reads have taken in it */
};

/* The thread calls `notify` after each read. Returns 0, or -1 with errno. */
int http_reads_start(struct http_reads *reads, void (*notify)(void *arg), void *notify_arg);
/* Waits for the current read. Call it after the HTTP server is freed and before the aggregate is closed. */
void http_reads_stop(struct http_reads *reads);
/* Answers the completed read and releases the aggregate. Call it before aggregate_poll. */
void http_reads_finish(struct app *app);
/* Begins the next large read. Call it after aggregate_poll. */
void http_reads_next(struct app *app);

/* Until the slices are open, and for check_caught_up until every stream has caught up, these answer 503 and return
 * false. */
bool http_reads_check_open(const struct app *app, struct http_request *req);
bool http_reads_check_caught_up(const struct app *app, struct http_request *req);

http_handler http_reads_get, http_reads_mget, http_reads_fwmatch, http_reads_range, http_reads_keys;

#endif
