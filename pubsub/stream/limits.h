/* limits: what each stream may keep, from the daemon's settings and the file's [stream NAME] sections.
 *
 *     [pubsub]              [stream clicks]           [stream raw*]
 *     retain_age = 7d       retain_bytes = 100G       retain_age = 1d
 *
 * A section overrides the daemon's settings for one stream, or with a final `*` for all names with that prefix. Only the most
 * exact section applies.
 */
#ifndef MILLRACE_PUBSUB_LIMITS_H
#define MILLRACE_PUBSUB_LIMITS_H

#include "config/options.h"
#include "pubsub/stream/stream.h"

struct limits;

/* `rows` has the three settings. 0, or -1 with the error. */
int limits_read(
    const struct options *o, const struct option_row *rows, struct limits **out, struct config_error *error);
void limits_free(struct limits **l);
struct stream_limits limits_of(void *limits, const char *stream); /* void *: streams_config's callback */

#endif
