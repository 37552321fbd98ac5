/* archive_options: the settings that change an archive, of the compactor and of `millrace compact`, which passes them on. */
#ifndef MILLRACE_ARCHIVE_OPTIONS_H
#define MILLRACE_ARCHIVE_OPTIONS_H

#include "config/options.h"

extern const struct option_row archive_options[];
/* The settings of --import --format=csv. */
extern const struct option_row import_options[];

#endif
