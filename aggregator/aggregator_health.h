/* health: what /health says of the aggregator: that it opens, catches up, is refused a stream, or what is wrong with its
 * storage. Reads go on whatever it says, once every stream was caught up. */
#ifndef MILLRACE_AGGREGATOR_HEALTH_H
#define MILLRACE_AGGREGATOR_HEALTH_H

struct app;

void health_say_not_ready(struct app *app, const char *text);
/* Looks at the streams and the storage; the aggregate is open. */
void health_update(struct app *app);

#endif
