/* lookup: finds counted keys by their texts (GET /v1/lookup).
 *
 *     prefix=TEXT                the beginning of the keys; may be empty
 *     contains=TEXT              a part of the keys, in any case of ASCII letters; prefix may then be missing
 *     counter=LABEL or ns=NS     only keys of this total
 *     limit=N                    maximum number of keys, 1..1000 (default 100)
 *     continuation=TOKEN         token of the previous answer
 *     format=json or csv
 *
 * The archive and the aggregator send keys in the same order (docs/formats/records.md, "Texts"). The lookup merges the
 * keys and adds up the counts.
 *
 * 1. A row is a key with counts in one total. A key of several totals has one row per total.
 * 2. An answer has at most `limit` keys. If more keys follow, the answer has a continuation. Such an answer has
 *    fewer keys than `limit`, or no key, if the sources have searched for long.
 * 3. An answer is never partial. If a source fails, the request fails.
 * 4. A search for a part reads the records and texts of all keys with the prefix, in requests of bounded work. A search
 *    of more than `max_search` bytes of the archive is refused.
 */
#ifndef MILLRACE_API_LOOKUP_H
#define MILLRACE_API_LOOKUP_H

#include "api/cells.h"
#include "counts/counters.h"
#include "http/server/http_server.h"

void lookup_start(
    struct cells *cells, const struct counters *counters, uint64_t max_search, struct http_request *req);

#endif
