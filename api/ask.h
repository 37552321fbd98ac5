/* ask: a client's query in progress. It asks the sources, adds up their records and makes the answer.
 *
 * 1. All queries together keep the loop busy for about a millisecond at a time, and take turns. Then the loop handles other events.
 * 2. All memory of a query counts towards max_buffered: sums, rows, and text that the client has not received. If the
 *    limit is exceeded, a breakdown frees its memory, waits until another breakdown has its rows, and begins anew.
 *    The breakdown that was asked for first waits the least. If there is no other breakdown to wait for, the query is
 *    answered with 503. If the query alone needs more than half of the limit, it is answered with 413.
 * 3. An answer of more than ASK_PIECE bytes is streamed, unless all its rows are complete and its text is short enough to be collected
 *    for an ETag. The next piece is made when the client has received the previous pieces.
 * 4. All counts are known before the reply begins. If the query allows a partial answer, the counts of a source may
 *    be missing, and the answer names this source. */
#ifndef MILLRACE_ASK_H
#define MILLRACE_ASK_H

#include "api/query.h"
#include "api/source.h"
#include "http/server/http_server.h"

#define ASK_PIECE ((size_t)64 << 10)

struct asks;

/* `max_age`: seconds for which caches may repeat an answer whose rows are all complete. */
struct asks *asks_new(struct event_base *base, struct sources *sources, struct stats *stats,
    uint64_t max_rows, int64_t max_age);
/* Call it after sources_free. */
void asks_free(struct asks **a);
/* Answers the request. The query's texts are borrowed until the request ends. `unknown` is NULL if the
 * counter is configured. Otherwise it is the error to send if the sources have no records of the counter. */
void ask_start(
    struct asks *asks, struct http_request *req, const struct query *q, const struct query_error *unknown);

#endif
