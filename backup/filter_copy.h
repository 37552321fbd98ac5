/* filter_copy: copies the files of spamfilter, except the journal, while spamfilter runs.
 *
 * 1. The sequence of the filter is the number up to which the files have all updates. A sync writes the exceptions first, and
 *    the exceptions are copied last. So their copy has at least these updates.
 * 2. spamfilter changes the filter only in a sync. A sync first writes the log of the filter, and ends with a new header and
 *    an empty log. If header and log have the same bytes before and after the copy of the filter, either no sync was in
 *    progress, or the copied log has all the changes of the sync. In both cases, filter_open makes the copy whole. */
#ifndef MILLRACE_FILTER_COPY_H
#define MILLRACE_FILTER_COPY_H

#include "backup/backup_result.h"

/* Copies the files from the directory `from` to the directory `to`, and checks the copied filter. Returns BACKUP_CHANGED if
 * syncs changed the filter during each of several attempts. */
enum backup_result filter_copy(const char *from, const char *to, struct error *error);

#endif
