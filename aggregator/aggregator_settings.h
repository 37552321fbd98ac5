/* settings: what the aggregator's section of the configuration may say, and what is read from it and checked. */
#ifndef MILLRACE_AGGREGATOR_SETTINGS_H
#define MILLRACE_AGGREGATOR_SETTINGS_H

#include "counts/counters.h"
#include "config/options.h"
#include "aggregator/watermark_poll.h"

struct stream_names {
    size_t n;
    const char *names[WATERMARK_STREAMS_MAX];
    char *text; /* what they point into */
};

extern const struct option_row settings_rows[];

/* Each: 0, or -1 with the error, which names the setting and where it was set. */
int settings_read_streams(const struct options *o, struct stream_names *out, struct config_error *error);
void stream_names_free(struct stream_names *s);
int settings_read_counters(struct options *o, struct counters **out, struct config_error *error);
/* All of it, for --check-config too. */
int settings_check(struct options *o, struct config_error *error);

#endif
