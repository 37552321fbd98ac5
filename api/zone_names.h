/* zone_names: the name of the tz database nearest to a mistyped one.
 *
 * The first question lists the directory of the tz database, and its names are kept until the process ends. One thread only. */
#ifndef MILLRACE_ZONE_NAMES_H
#define MILLRACE_ZONE_NAMES_H

#include "base/bytes.h"

/* Returns Europe/Berlin for Europe/Berlln, and for Berlin or Berlln, or NULL if no name is near. A long name is not near any. */
const char *zone_names_nearest(struct bytes written);

#endif
