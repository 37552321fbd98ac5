/* rejects_dir: finds the begin and the end of an aggregator's committed rejects. */
#ifndef MILLRACE_REJECTS_DIR_H
#define MILLRACE_REJECTS_DIR_H

#include "counts/rejects.h"
#include "counts/slice_reader.h"

/* Reads the begin (the front) and the end of the committed rejects from the newest slice. Without a slice, both numbers
 * are zero. `dir` is the data directory of the aggregator; the subdirectory `rejects` contains the entries. Returns 0,
 * or an exit status with the error. */
int rejects_dir_ends(
    const char *dir, struct rejects_place *from, struct rejects_place *end, struct error *error);

#endif
