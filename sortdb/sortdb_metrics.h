/* sortdb_metrics: metrics of the served generation, of requests and of reloads. */
#ifndef MILLRACE_SORTDB_METRICS_H
#define MILLRACE_SORTDB_METRICS_H

struct app;

/* The gauges read `app` until stats_remove_gauges. */
void metrics_register(struct app *app);

#endif
