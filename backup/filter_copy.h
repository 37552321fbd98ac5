/* filter_copy: copies the files of spamfilter, except the journal, while spamfilter runs.
 *
 * 1. The sequence of the filter is the number up to which the files have all updates. A sync writes the exceptions first, and
 *    the exceptions are copied last. So their copy has at least these updates.
 * 2. spamfilter changes the files only while it alone holds the lock of the file `sync.lock`, and filter_copy holds this lock
 *    during the copy. A start of spamfilter may complete an interrupted sync meanwhile; the log, which is copied first, has
 *    the changes of this sync. So filter_open makes the copy whole.
 * 3. A missing `sync.lock` means that no spamfilter has used the directory. */
#ifndef MILLRACE_FILTER_COPY_H
#define MILLRACE_FILTER_COPY_H

#include "backup/backup_result.h"

/* Copies the files from the directory `from` to the directory `to`, and checks the copied filter. Waits for a sync in progress. */
enum backup_result filter_copy(const char *from, const char *to, struct error *error);

#endif
