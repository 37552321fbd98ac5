/* freshness: how recent the counts are. The module asks the sources for their state and answers /v1/freshness.
 *
 * 1. The status is 200 even if a source fails. The answer then names the failed source, and omits the data of this
 *    source.
 * 2. All ages are relative to the clock of this process.
 *
 * The loop's thread only. */
#ifndef MILLRACE_FRESHNESS_H
#define MILLRACE_FRESHNESS_H

#include "api/source.h"
#include "http/server/http_server.h"

void freshness_ask(struct sources *sources, struct http_request *req);

#endif
