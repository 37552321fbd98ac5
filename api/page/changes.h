/* changes: GET /v1/changes pushes which answers of the API may have changed, as Server-Sent Events, so that a web page
 * asks again only for those.
 *
 * The data of an event are {"counts":"HASH","daemons":"HASH","complete_until":T,"time":T,"published":N}. An answer for counts
 * depends on `counts`, complete_until, and the time; /v1/pipeline depends on `daemons`, apart from the daemons' statistics. The
 * lines published between two events, divided by the time between them, are the rate that the page shows.
 *
 * 1. The first event follows at once, and one event follows each report of pipeline.h, which is every second. A client
 *    without an event for some seconds may assume that the reply is cut.
 * 2. An event has no key. A token with a list of keys, or without the views Overview and Live, gets events without `time` and
 *    `published`, which would show the number of events.
 * 3. At most CHANGES_CLIENTS_MAX clients are connected. Further clients get a 503 with Retry-After, and poll meanwhile.
 * 4. All clients share the polls of pipeline.h. */
#ifndef MILLRACE_API_CHANGES_H
#define MILLRACE_API_CHANGES_H

#include "api/page/pipeline.h"

#define CHANGES_CLIENTS_MAX 128
#define CHANGES_RETRY_AFTER 10 /* seconds */

struct changes;

/* `pipeline` is borrowed; at most one `changes` may use it. */
struct changes *changes_new(struct pipeline *pipeline);
/* Ends all replies. */
void changes_drain(struct changes *c);
void changes_free(struct changes **c);
void changes_reply(struct changes *c, struct http_request *req);

#endif
