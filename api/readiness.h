/* readiness: whether the API can answer queries, for /health.
 *
 * A check asks every host of every source of every cell over HTTP for a key that does not exist. A mapped archive needs no
 * check. A request for /health waits for a check, unless the last check ended within the last second. While a source
 * fails, a check follows every second; otherwise, with several cells, every 10 seconds, and with several hosts of an
 * archive every 2 seconds. Each outcome of a host is stored in its replicas (replicas.h).
 *
 * 1. A check ends within 2 seconds, because `millrace status` waits no longer. Requests share the check in progress.
 * 2. The metric cell_ready{cell="NAME"} is 1 if all sources of the cell have answered the last check.
 * 3. If a source fails, /health is 503 with the source, the reason and a remedy. Events do not need the sources, so the
 *    daemon itself is ready (daemon_set_ready) without them, and a pipeline's daemons may start in any order.
 *
 * The loop's thread only. */
#ifndef MILLRACE_READINESS_H
#define MILLRACE_READINESS_H

#include "api/cells.h"
#include "http/server/http_server.h"

struct daemon;
struct readiness;

/* `config` has the sources of each cell. The daemon, the cells, the names and the URLs must outlive the readiness. */
struct readiness *readiness_new(
    struct daemon *daemon, const struct cells *cells, const struct sources_config *config);
void readiness_free(struct readiness **r); /* after all requests have ended */
/* Returns why queries cannot be answered, valid until the loop continues, or NULL. */
const char *readiness_error(const struct readiness *r);
/* Must be called after a change of the mapped archive (local_archive.h). */
void readiness_judge(struct readiness *r);
/* Starts a check if the last check ended more than a second ago. */
void readiness_check(struct readiness *r);
/* check_health of http_server_config. */
bool readiness_answers(struct readiness *r, struct http_request *req);

#endif
