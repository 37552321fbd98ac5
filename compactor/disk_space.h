/* disk_space: refuses a run early if the disk has too little space, and names the required space. */
#ifndef MILLRACE_DISK_SPACE_H
#define MILLRACE_DISK_SPACE_H

#include "compactor/result.h"
#include "counts/manifest.h"

/* Compares the free space of the file system with an estimate. COMPACT_FAILED: the error has both numbers. */
enum compact_result disk_space_check(const char *directory, uint64_t needed, struct error *error);
/* The bytes of a generation's files of records and texts. */
uint64_t disk_space_of(const struct manifest *m);

#endif
