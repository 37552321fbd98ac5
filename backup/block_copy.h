/* block_copy: copies the blocks of metricdb while metricdb runs.
 *
 * Blocks never change. A merge makes a new block and then deletes its parts, so a listing of the directory may show neither. Therefore
 * the links count only if a second listing is the same as the first. Otherwise the result is BACKUP_CHANGED. */
#ifndef MILLRACE_BLOCK_COPY_H
#define MILLRACE_BLOCK_COPY_H

#include "backup/backup_result.h"

/* Links the blocks of the daemon's directory `from` into the directory `to`, and copies the key of its cursor. */
enum backup_result block_copy(const char *from, const char *to, struct error *error);

#endif
