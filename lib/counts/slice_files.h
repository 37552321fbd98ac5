/* slice_files: finds the slices in a directory. Slices are numbered from 1. The name of a slice's file is NUMBER.db,
 * with 10 digits. */
#ifndef MILLRACE_SLICE_FILES_H
#define MILLRACE_SLICE_FILES_H

#include "base/bytes.h"
#include "base/error.h"

/* Returns a path such as "DIRECTORY/0000000042.db". The caller frees the path. */
char *slice_path(const char *directory, uint64_t number);
/* Parses the name of a slice's file. Returns false if the name is not that of a slice. */
bool slice_file_number(const char *name, uint64_t *number);
/* True if the slice has an SQLite log that is not empty. The log of a sealed slice may contain counts if another process
 * had the slice open at its seal, or if the aggregator was killed. */
bool slice_has_log(const char *path);
/* Deletes a slice and its log. Returns 0, or -1 with errno; a repeated call deletes the rest. */
int slice_unlink(const char *path);

/* The lowest and the highest slice number; both are 0 if there is no slice. */
struct slice_range {
    uint64_t first, last;
};
/* Finds the lowest and the highest slice number over `after`. Returns 0, or -1 with errno. */
int slice_files_find(const char *directory, uint64_t after, struct slice_range *out);
/* Returns the lowest number from `first` to `last` without a slice file, or 0 if no file is missing. */
uint64_t slice_files_missing(const char *directory, uint64_t first, uint64_t last);

/* Returns -1 with the error if the directory has slices but the archive has no current generation. Only a pipeline
 * without slices may create its archive: later, an empty archive would replace the counts of a missing archive. */
int slice_files_check_archive(const char *directory, const char *archive, struct error *error);

#endif
