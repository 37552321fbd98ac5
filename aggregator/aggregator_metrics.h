/* metrics: the aggregate's numbers on /metrics. Totals count from the start of the process and never decrease. */
#ifndef MILLRACE_AGGREGATOR_METRICS_H
#define MILLRACE_AGGREGATOR_METRICS_H

struct app;
struct metrics;

/* The aggregate must be open; free the metrics before it. */
struct metrics *metrics_new(struct app *app);
void metrics_free(struct metrics **m);
/* Updates the metrics from the aggregate. */
void metrics_update(struct metrics *m);

#endif
