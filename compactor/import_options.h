/* import_options: the settings of --import --format=csv, as import_csv.h takes them. */
#ifndef MILLRACE_IMPORT_OPTIONS_H
#define MILLRACE_IMPORT_OPTIONS_H

#include "compactor/import_csv.h"
#include "config/options.h"

/* Refuses settings that exclude each other. Returns the same as import_options_read. */
int import_options_check(const struct options *o, struct error *error);
/* Sets *out, whose counters are NULL without --format=csv; free it with import_options_free. Makes --time-zone the
 * zone of the process. Returns 0, or -1; error->code is then an exit status. */
int import_options_read(const struct options *o, struct import_csv_spec *out, struct error *error);
void import_options_free(struct import_csv_spec *spec);

#endif
