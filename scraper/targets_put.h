/* targets_put: the command `scraper --put-targets=FILE`, which stores files of targets in ZooKeeper.
 *
 * 1. All files are read and checked before the first is stored, so a bad file changes nothing.
 * 2. Each file replaces one node as a whole. The scrapers read a changed node at once. An empty list, [], has no targets. */
#ifndef MILLRACE_TARGETS_PUT_H
#define MILLRACE_TARGETS_PUT_H

#include "config/options.h"

/* Returns false without the option. Otherwise does the work, prints errors, sets the exit status and returns true. The
 * settings are checked. */
bool targets_put(struct options *o, int *status);

#endif
