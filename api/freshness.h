/* freshness: how recent the counts are. It asks the sources for their state and makes the answer of /v1/freshness.
 *
 * 1. The answer is 200 even if a source fails. It then names the source, and omits what only the source knows.
 * 2. All ages are relative to the clock of this process.
 *
 * The loop's thread only. */
#ifndef MILLRACE_FRESHNESS_H
#define MILLRACE_FRESHNESS_H

#include "api/source.h"
#include "http/server/http_server.h"

void freshness_ask(struct sources *sources, struct http_request *req);

#endif
