/* journal_open: opening for a repair. journal_open itself is in journal.h. */
#ifndef MILLRACE_JOURNAL_OPEN_H
#define MILLRACE_JOURNAL_OPEN_H

#include "journal/journal.h"

/* As journal_open, for a repair that has locked the directory. The descriptor belongs to the journal from now on, also if it
 * is refused. Newest segments that are missing are given up. */
enum journal_result journal_open_locked(struct journal_set *set, const struct journal_config *config,
    int dir_fd, struct journal **out, char *error, size_t error_size);

#endif
