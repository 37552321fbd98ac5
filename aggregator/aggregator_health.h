/* health: whether the aggregator is ready, for /health and for requests that need it.
 *
 * The aggregator is not ready while it opens its slices or catches up with its streams, if a stream is refused, or if its
 * storage fails. Once all streams have caught up, reads continue in every state.
 */
#ifndef MILLRACE_AGGREGATOR_HEALTH_H
#define MILLRACE_AGGREGATOR_HEALTH_H

#include <stdbool.h>

struct app;
struct http_request;

void health_set_not_ready(struct app *app, const char *text);
/* Updates the state from the streams and the storage. Requires an open aggregate. */
void health_update(struct app *app);
/* Refuses the request with 503 and returns false until the slices are open. */
bool health_check_open(const struct app *app, struct http_request *req);
/* Refuses the request with 503 and returns false until every stream has caught up. Before that, counts could be lower than
 * those answered before a restart. */
bool health_check_caught_up(const struct app *app, struct http_request *req);

#endif
