/* events: the endpoints that accept events. The endpoints check events and send them to the local queue.
 *
 * 1. 200 means that the queue has stored the events. If the queue refuses the events, the client gets the
 *    queue's reply.
 * 2. If the client disconnects, the request to the queue continues. All events of disconnected clients together are
 *    limited.
 * 3. A web page of another origin may post events and use the pixel. Such a page cannot name a queue or a producer, or
 *    set a mark.
 *
 * The context of each handler is a struct api. */
#ifndef MILLRACE_API_EVENTS_H
#define MILLRACE_API_EVENTS_H

#include "api/http.h"

void events_post(struct http_request *req, void *api);  /* POST /v1/events, and OPTIONS for browsers */
void events_pixel(struct http_request *req, void *api); /* GET /v1/pixel.gif */
void events_incr(struct http_request *req, void *api);  /* /v1/incr */

#endif
