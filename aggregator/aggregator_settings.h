/* settings: the table of the aggregator's settings, and checks that the table cannot express. */
#ifndef MILLRACE_AGGREGATOR_SETTINGS_H
#define MILLRACE_AGGREGATOR_SETTINGS_H

#include "counts/counters.h"
#include "config/options.h"
#include "aggregator/aggregate.h"
#include "aggregator/count_watermark.h"

struct stream_names {
    size_t n;
    const char *names[COUNT_STREAMS_MAX];
    char *text; /* buffer that `names` points into */
};

extern const struct option_row settings_rows[];

/* Each function returns 0, or -1 with an error that names the setting and its origin. */
int settings_read_streams(const struct options *o, struct stream_names *out, struct error *error);
void stream_names_free(struct stream_names *s);
int settings_read_counters(struct options *o, struct counters **out, struct error *error);
struct rejects_limits settings_rejects_limits(const struct options *o);
/* Checks all settings; --check-config calls only this function. */
int settings_check(struct options *o, struct error *error);

#endif
