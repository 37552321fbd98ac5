/* archive_options: the settings that change an archive. The compactor has these settings, and `millrace compact`
 * passes them to the compactor. */
#ifndef MILLRACE_ARCHIVE_OPTIONS_H
#define MILLRACE_ARCHIVE_OPTIONS_H

#include "config/options.h"

extern const struct option_row archive_options[];
/* The settings of --import --format=csv. */
extern const struct option_row import_options[];

#endif
