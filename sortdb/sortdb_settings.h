/* sortdb_settings: the table and the checks of sortdb's settings. */
#ifndef MILLRACE_SORTDB_SETTINGS_H
#define MILLRACE_SORTDB_SETTINGS_H

#include "archive/generation.h"
#include "config/options.h"

extern const struct option_row settings_rows[];

/* Reads the settings of the files to serve. The texts in *s are valid until options_free. Returns 0, or -1 with the
 * error. */
int settings_read_source(const struct options *o, struct generation_source *s, struct error *error);
int settings_check(struct options *o, struct error *error);

#endif
