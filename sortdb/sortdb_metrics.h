/* metrics: what is served, and what becomes of requests and reloads, told to /metrics. */
#ifndef MILLRACE_SORTDB_METRICS_H
#define MILLRACE_SORTDB_METRICS_H

struct app;

/* The gauges are of `app`: stats_remove_gauges takes them away. */
void metrics_register(struct app *app);

#endif
