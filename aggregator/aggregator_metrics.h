/* metrics: what the aggregate counts, told to /metrics. */
#ifndef MILLRACE_AGGREGATOR_METRICS_H
#define MILLRACE_AGGREGATOR_METRICS_H

struct app;
struct metrics;

/* The aggregate is open; freed before it. */
struct metrics *metrics_new(struct app *app);
void metrics_free(struct metrics **m);
/* Takes in what has changed since. */
void metrics_update(struct metrics *m);

#endif
