/* pubsub_settings: pubsub's settings, and the storage limits of each stream.
 *
 *     [pubsub]              [stream clicks]           [stream raw*]
 *     retain_age = 7d       retain_bytes = 100G       retain_age = 1d
 *
 * A section [stream NAME] overrides three settings for one stream, and [stream PREFIX*] for all streams whose name
 * begins with PREFIX. If several sections match, only the most specific section applies. Without a section and a limit, the
 * stream `metrics_stream` keeps a day, because metricdb stores the samples. */
#ifndef MILLRACE_PUBSUB_SETTINGS_H
#define MILLRACE_PUBSUB_SETTINGS_H

#include "config/options.h"
#include "pubsub/stream/stream.h"

#define SETTINGS_SEPARATORS " ,\t" /* between the names in `streams` */
#define NNG_PUBLISH_SETTING "nng_publish"

extern const struct option_row settings_rows[];

/* Checks the settings and the [stream NAME] sections. Returns 0, or -1 with the error. */
int settings_check(struct options *o, struct error *error);
/* Returns the limits of one stream from checked settings. `options` is a struct options; its type is void because
 * streams_config requires it. */
struct stream_limits settings_limits(void *options, const char *stream);

#endif
