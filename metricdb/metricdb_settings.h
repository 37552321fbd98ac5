/* metricdb_settings: the settings of metricdb. */
#ifndef MILLRACE_METRICDB_SETTINGS_H
#define MILLRACE_METRICDB_SETTINGS_H

#include "config/options.h"
#include "metricdb/metric_query.h"
#include "metricdb/store/sample_store.h"

#define METRICDB_BLOCKS "blocks"

extern const struct option_row metricdb_settings[];

/* Returns 0, or -1 with the error. */
int metricdb_check_settings(struct options *o, struct error *error);
/* Set the members that settings determine. The directory of the store is METRICDB_BLOCKS below data_dir. */
void metricdb_configure(const struct options *o, struct sample_store_config *config);
struct metric_limits metricdb_limits(const struct options *o);

#endif
