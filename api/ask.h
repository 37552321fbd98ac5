/* ask: a client's query in progress. It asks the sources, adds up their records and makes the answer.
 *
 * 1. All queries together take the loop for a few milliseconds, then other events have their turn.
 * 2. A query counts all its memory towards max_buffered: records being added up, rows, and text that the client has not taken.
 *    Above the limit the query gets 503. A query that needs more than half of the limit gets 413.
 * 3. An answer of more than ASK_PIECE bytes is streamed. The next piece is made when the client has taken the previous ones.
 * 4. An answer is never partial: all counts are known before the reply begins. */
#ifndef MILLRACE_ASK_H
#define MILLRACE_ASK_H

#include "api/query.h"
#include "api/source.h"
#include "http/server/http_server.h"

#define ASK_PIECE ((size_t)64 << 10)

struct asks;

struct asks *asks_new(struct event_base *base, struct sources *sources);
/* After sources_free and the end of all requests. */
void asks_free(struct asks **a);
/* Answers the request. The query's texts are borrowed until the request ends. `unknown`: of a counter that is not configured, the
 * error with which the request is refused unless the sources have records of it. */
void ask_start(
    struct asks *asks, struct http_request *req, const struct query *q, const struct query_error *unknown);

#endif
