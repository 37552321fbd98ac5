/* uniques: answers questions about sets of members: /v1/uniques, /v1/retention and /v1/cohort.
 *
 * An answer asks the sources (source.h) for each of its named sets, one after the other: first the archive, then the
 * aggregator for all later slices. The replies become pieces (set_pieces.h). Then a thread makes the numbers
 * (unique_count.h) and the text.
 *
 * 1. Each number is the size of one union of the archive's and the aggregator's sets, so numbers of different rows or keys
 *    cannot be added. Every answer has `additive: false`.
 * 2. Each named set obeys the rules of source.h: the aggregator is asked for the slices after the archive's last one, and a
 *    410 discards the pieces and starts again. A union may get a member twice, but never misses one. Different named sets
 *    may be some milliseconds apart, which affects only rows that are not complete.
 * 3. Completeness is that of the named set with the earliest complete_until and the latest counted_since.
 * 4. A set is used whole or not at all. A damaged or truncated set of a mapped archive is a 503 that names the set, also
 *    with partial=.
 * 5. The loop never reads a mapped set. The thread makes numbers for about 20 ms, and then continues another answer. Other
 *    requests are not delayed.
 * 6. Sets in memory count towards max_buffered, as for other queries (ask.h). The members of a mapped archive stay
 *    in the mapping, and the memory for opening its sets counts.
 *
 * The loop's thread only. */
#ifndef MILLRACE_UNIQUES_H
#define MILLRACE_UNIQUES_H

#include "api/inquiry.h"
#include "api/unique_query.h"
#include "http/server/http_server.h"

struct uniques;

struct uniques_config {
    struct event_base *base;
    struct cells *cells;
    uint64_t max_rows;
    inquiry_again_fn *again;
    void *arg;
    int64_t max_age;     /* seconds for which caches may repeat a complete answer */
    int64_t key_seconds; /* time for which a door's visitor key is valid; 0: no limit is known */
};

/* Returns NULL if the thread cannot be started. */
struct uniques *uniques_new(const struct uniques_config *config);
/* Call uniques_free after the sources are freed. */
void uniques_free(struct uniques **u);
/* Answers the request. `q` is copied; its texts are borrowed until the request ends. */
void uniques_start(struct uniques *u, struct http_request *req, const struct unique_query *q);

#endif
