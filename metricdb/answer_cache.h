/* answer_cache: keeps the answers of range queries, so that a repeated or moved query evaluates only its new steps.
 *
 * 1. An answer is kept for one expression, lookback and step, and for starts that differ by multiples of the step.
 *    Only stepwise queries (promql.h) are kept.
 * 2. A step is used again only if the buckets that it reads ended before the time that the source called closed, and
 *    if the source's epoch is still the same. So an answer is always the one that a new evaluation would give.
 * 3. Answers need at most max_bytes together. The least recently used answers are dropped first. An answer of more
 *    than half of max_bytes is not kept.
 *
 * Any thread may call the functions. */
#ifndef MILLRACE_METRICDB_ANSWER_CACHE_H
#define MILLRACE_METRICDB_ANSWER_CACHE_H

#include "promql/promql.h"

struct answer_cache;
struct cached_answer;

struct answer_cache *answer_cache_new(size_t max_bytes);
/* Call after all answers are released. */
void answer_cache_free(struct answer_cache **c);
/* The bytes of the kept answers. */
size_t answer_cache_bytes(struct answer_cache *c);

/* Like promql_evaluate, but uses kept steps. `text` is the text of the query. On PROMQL_OK, *answer needs
 * answer_cache_release. `c` may be NULL. */
enum promql_result_code answer_cache_evaluate(struct answer_cache *c, struct bytes text,
    const struct promql *query, const struct metric_source *source, const struct promql_request *request,
    struct cached_answer **answer, struct error *error);
/* The result is valid until answer_cache_release. */
const struct promql_result *cached_answer_result(const struct cached_answer *answer);
/* The number of steps that were not evaluated again. */
size_t cached_answer_reused(const struct cached_answer *answer);
void answer_cache_release(struct answer_cache *c, struct cached_answer **answer);

#endif
