/* rejects_dir: where the rejects of a pipeline's aggregator are. */
#ifndef MILLRACE_REJECTS_DIR_H
#define MILLRACE_REJECTS_DIR_H

#include "config/config.h"
#include "counts/rejects.h"
#include "counts/slice_reader.h"

/* The data directory of the aggregator, whose subdirectory `rejects` has the entries. config and data_dir may be NULL. The
 * caller frees the result. */
char *rejects_dir_find(const struct config *config, const char *data_dir);
/* Stores where the committed rejects begin (the front) and end; the newest slice states both. Without a slice, both are
 * zero. Returns 0, or an exit status with the reason. */
int rejects_dir_ends(
    const char *dir, struct rejects_place *from, struct rejects_place *end, char error[SLICE_ERROR_TEXT]);

#endif
