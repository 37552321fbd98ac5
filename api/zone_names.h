/* zone_names: finds the name in the tz database that is nearest to a mistyped name.
 *
 * The first call lists the directory of the tz database. The names are kept until the process ends. One thread only. */
#ifndef MILLRACE_ZONE_NAMES_H
#define MILLRACE_ZONE_NAMES_H

#include "base/bytes.h"

/* Returns Europe/Berlin for Europe/Berlln, Berlin or Berlln. Returns NULL if no name is near, or if `written` is
 * longer than ZONE_NAME_MAX. */
const char *zone_names_nearest(struct bytes written);

#endif
