/* result: how the compactor's parts report, and the exit status that each outcome has. */
#ifndef MILLRACE_COMPACTOR_RESULT_H
#define MILLRACE_COMPACTOR_RESULT_H

#define COMPACT_ERROR_TEXT 512 /* room for a failure's text */

enum compact_result {
    COMPACT_OK,
    COMPACT_TRY_AGAIN, /* a daemon is away or not ready: nothing is lost, another run goes on from here */
    COMPACT_REFUSED,   /* archive, slices and settings do not belong together */
    COMPACT_DAMAGED,   /* a file is not what it says it is */
    COMPACT_FAILED,    /* the system refused: no room, no permission */
};
const char *compact_strerror(enum compact_result r);
/* 0, 75 (try again, failed), 78 (refused), 1 (damaged). */
int compact_exit_status(enum compact_result r);

/* Fills the text and returns r, for `return compact_fail(...)`. */
enum compact_result compact_fail(char error[COMPACT_ERROR_TEXT], enum compact_result r, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The same with "WHAT: " and errno's text, as COMPACT_FAILED. */
enum compact_result compact_fail_errno(char error[COMPACT_ERROR_TEXT], const char *what);

#endif
