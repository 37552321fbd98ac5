/* slice_files: the slices in a directory. A slice has a number from 1 on, and the file NUMBER.db with 10 digits. */
#ifndef MILLRACE_SLICE_FILES_H
#define MILLRACE_SLICE_FILES_H

#include "base/bytes.h"

/* "DIRECTORY/0000000042.db". The caller frees the result. */
char *slice_path(const char *directory, uint64_t number);
/* False if the name is not that of a slice. */
bool slice_file_number(const char *name, uint64_t *number);
/* True if the slice has an SQLite log that is not empty. A killed aggregator may leave counts of a sealed slice in its log. */
bool slice_has_log(const char *path);

/* The lowest and the highest number; 0: there is no slice. */
struct slice_range {
    uint64_t first, last;
};
/* Finds the slices with a number over `after`. Returns 0, or -1 with errno. */
int slice_files_find(const char *directory, uint64_t after, struct slice_range *out);
/* The first number in first..last without a file; 0: all are there. */
uint64_t slice_files_missing(const char *directory, uint64_t first, uint64_t last);

#endif
