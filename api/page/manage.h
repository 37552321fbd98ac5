/* manage: /v1/manage, with which the web page shows and changes queues and streams.
 *
 * GET shows the buried messages of a queue, or the producers, cursors or subscribers of a stream. POST changes a queue or a
 * stream, for example empties a queue.
 *
 * 1. Each act is a row of a fixed table: one request to one daemon. A client chooses the act, a configured daemon and the
 *    values of the act's parameters. It cannot choose another path, parameter or address.
 * 2. POST requires an admin (http_is_admin) and a page of the API's own origin, because a daemon on this host permits its
 *    API more than a web page.
 * 3. Each POST that reaches a daemon is logged with its outcome, even if the client has disconnected: the token's name, the
 *    client's address, the daemon and the request, but no body and no token.
 * 4. The body of an act is only sent if the act takes one. A request that changes something is sent at most once. */
#ifndef MILLRACE_API_MANAGE_H
#define MILLRACE_API_MANAGE_H

#include "api/page/pipeline.h"

#define MANAGE_TIMEOUT (10 * USEC_PER_SEC)

/* Answers GET /v1/manage?show=NAME[&url=DAEMON] and POST /v1/manage?act=NAME[&url=DAEMON], with the parameters of the act.
 * `url` is the address of a daemon as in /v1/pipeline; default: the first daemon of its kind. */
void manage_reply(struct http_request *req, const struct pipeline *p);

#endif
