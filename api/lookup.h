/* lookup: the keys that were counted, by the beginning of their texts (GET /v1/lookup).
 *
 *     prefix=TEXT                the beginning of the keys; may be empty
 *     counter=LABEL or ns=NS     only keys of this total
 *     limit=N                    keys, 1..1000 (default 100)
 *     continuation=TOKEN         of the answer before
 *     format=json or csv
 *
 * The archive and the aggregator answer with keys in one order (docs/formats/records.md, "Texts"); the lookup merges them and adds
 * up their counts.
 *
 * 1. A row is a key of a total that has counts. A key of several totals has a row for each.
 * 2. An answer has at most `limit` keys. It may have fewer although more follow; then it has a continuation. If the sources find no key
 *    for long, it may have none.
 * 3. An answer is never partial: a source that fails makes it fail.
 */
#ifndef MILLRACE_API_LOOKUP_H
#define MILLRACE_API_LOOKUP_H

#include "api/source.h"
#include "counts/counters.h"
#include "http/server/http_server.h"

/* Answers the request. */
void lookup_start(struct sources *sources, const struct counters *counters, struct http_request *req);

#endif
