/* metrics_proxy: passes requests for /api/v1/ on to metricdb or the ruler, so that Grafana needs one address and one token.
 *
 * 1. A request becomes a POST with its parameters as a form. The reply is streamed, and at most METRICS_AHEAD bytes of it wait for
 *    a slow client.
 * 2. If the client disconnects, the request is cancelled, and metricdb cancels the query.
 * 3. At most METRICS_REQUESTS_MAX requests to each daemon are in progress. Further requests wait in their order. */
#ifndef MILLRACE_METRICS_PROXY_H
#define MILLRACE_METRICS_PROXY_H

#include "http/client/http_client.h"
#include "http/server/http_server.h"

#define METRICS_AHEAD ((size_t)1 << 20)
#define METRICS_REQUESTS_MAX 16
#define METRICS_TIMEOUT                                                                                      \
    (600 * USEC_PER_SEC) /* until the headers of a reply; metricdb has a shorter timeout of its own */

/* Answers the request with the reply of the daemon `name`, a string constant for errors. `daemon` NULL: the pipeline has no such
 * daemon, status 404. */
void metrics_proxy_pass(struct http_client *daemon, const char *name, struct http_request *req);

#endif
