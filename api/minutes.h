/* minutes: answers queries for counts by minute (query.h, by_minute): series of one key, breakdowns and tops.
 *
 * Only the aggregator is asked, because its ring of minutes has all counts of these minutes (/minutes in
 * docs/guide/protocol.md). The texts of hashed keys that the aggregator no longer has in memory are asked from all
 * sources.
 *
 * 1. An answer has all counts of its minutes. If the ring does not hold the first of them, the reply is the aggregator's
 *    422, which names the first minute that it holds.
 * 2. A row is complete if its minute ends by complete_until; a row of a breakdown, if the span does. */
#ifndef MILLRACE_API_MINUTES_H
#define MILLRACE_API_MINUTES_H

#include "api/query.h"
#include "api/source.h"
#include "http/server/http_server.h"

/* Answers the request. The query's texts are borrowed until the request ends. */
void minutes_start(struct sources *sources, struct http_request *req, const struct query *q);

#endif
