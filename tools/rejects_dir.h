/* rejects_dir: where the committed rejects of an aggregator begin and end. */
#ifndef MILLRACE_REJECTS_DIR_H
#define MILLRACE_REJECTS_DIR_H

#include "counts/rejects.h"
#include "counts/slice_reader.h"

/* Stores where the committed rejects begin (the front) and end; the newest slice states both. Without a slice, both are zero. `dir` is the
 * data directory of the aggregator, whose subdirectory `rejects` has the entries. Returns 0, or an exit status with the reason. */
int rejects_dir_ends(
    const char *dir, struct rejects_place *from, struct rejects_place *end, struct error *error);

#endif
