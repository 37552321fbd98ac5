/* ask: a client's query in progress. An ask sends questions to the sources, adds up the records and writes the
 * answer.
 *
 * 1. Queries take turns. After about one millisecond of work for queries, the loop handles other events.
 * 2. All memory of a query counts towards max_buffered: sums, rows, and text that the client has not received.
 *    - A breakdown that exceeds the limit frees its memory, waits until another breakdown has its rows, and starts
 *      again. The waiting breakdown with the earliest request starts first.
 *    - If no other breakdown collects sums, the query gets a 503.
 *    - A query that alone needs more than half of the limit gets a 413.
 * 3. An answer of more than ASK_PIECE bytes is streamed, unless all rows are complete and the text is short enough to
 *    be collected for an ETag. Each piece of a stream is written after the client has received the previous pieces.
 * 4. A reply begins only after all counts are known. If the query allows a partial answer, the answer may omit the
 *    counts of a failed source, and names the source.
 * 5. A query by minute asks only the aggregator for counts, because its ring of minutes has all counts of these minutes. If
 *    the ring does not hold the first minute, the reply is the aggregator's 422, which names the first minute held. */
#ifndef MILLRACE_ASK_H
#define MILLRACE_ASK_H

#include "api/inquiry.h"

#define ASK_PIECE ((size_t)64 << 10)

struct asks;

struct asks_config {
    struct event_base *base;
    struct cells *cells;
    struct stats *stats;
    uint64_t max_rows;
    int64_t max_age; /* seconds for which caches may repeat an answer if all rows are complete */
    inquiry_again_fn *again;
    void *arg;
};
struct asks *asks_new(const struct asks_config *config);
/* Call asks_free after the sources are freed. */
void asks_free(struct asks **a);
/* Answers the request. The query's texts are borrowed until the request ends. `unknown` is NULL if the counter is
 * configured. If the counter is not configured, `unknown` is the error to send if the sources have no records of
 * the counter. */
void ask_start(
    struct asks *asks, struct http_request *req, const struct query *q, const struct query_error *unknown);

#endif
