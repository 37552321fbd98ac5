/* health: whether the aggregator is ready, for /health and for requests that need it.
 *
 * It is not ready while it opens its slices or catches up with its streams, when a stream is refused, and when its storage
 * fails. Reads continue in every state once all streams were caught up.
 */
#ifndef MILLRACE_AGGREGATOR_HEALTH_H
#define MILLRACE_AGGREGATOR_HEALTH_H

#include <stdbool.h>

struct app;
struct http_request;

void health_set_not_ready(struct app *app, const char *text);
/* Derives the state from the streams and the storage; the aggregate is open. */
void health_update(struct app *app);
/* False: the slices are still being opened, and the request was refused with 503. */
bool health_check_open(const struct app *app, struct http_request *req);
/* The same until every stream was caught up: before that an answer could be less than an earlier one. */
bool health_check_caught_up(const struct app *app, struct http_request *req);

#endif
