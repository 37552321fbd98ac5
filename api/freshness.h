/* freshness: how recent the counts are. The module asks the sources of all cells at once and answers /v1/freshness.
 *
 * 1. The status is 200 even if a source fails. The answer then names the failed source, and omits the data of this
 *    source.
 * 2. The times of several cells are those of the sum: the newest event, the earliest complete_until, and the oldest archive.
 *    Streams and archive name their cell.
 * 3. All ages are relative to the clock of this process.
 *
 * The loop's thread only. */
#ifndef MILLRACE_FRESHNESS_H
#define MILLRACE_FRESHNESS_H

#include "api/cells.h"
#include "http/server/http_server.h"

void freshness_ask(struct cells *cells, struct http_request *req);

#endif
