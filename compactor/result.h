/* result: the results of the compactor's functions, and the exit status of each result. */
#ifndef MILLRACE_COMPACTOR_RESULT_H
#define MILLRACE_COMPACTOR_RESULT_H

#include "base/error.h"

enum compact_result {
    COMPACT_OK,
    COMPACT_TRY_AGAIN, /* a daemon is down or not ready; the next run continues */
    COMPACT_MISSING,   /* an input is missing or cannot be read, or an output cannot be created */
    COMPACT_USAGE,     /* an option names a counter that does not exist */
    COMPACT_REFUSED,   /* archive, slices and settings do not belong together */
    COMPACT_DAMAGED,   /* a file is corrupt */
    COMPACT_FAILED,    /* a system error: disk full, no permission */
};
const char *compact_strerror(enum compact_result r);
/* The exit status: 0 (ok), 75 (try again, or failed), 66 (missing), 64 (usage), 78 (refused) or 1 (damaged). */
int compact_exit_status(enum compact_result r);

/* Opens a new file and unlinks it, so that a killed process leaves no file. Sets *fd to -1 on failure. */
enum compact_result compact_open_temporary(const char *directory, int *fd, struct error *error);

#endif
