#include "journal/journal_error.h"

#include "journal/journal.h"

#include <errno.h>
#include <stdio.h>

const char *journal_strerror(enum journal_result r)
{
    static const char *const text[] = {
        [JOURNAL_OK] = "no error",
        [JOURNAL_CONFLICT] = "the producer's mark differs",
        [JOURNAL_TOO_MANY_PRODUCERS] = "too many producers",
        [JOURNAL_TOO_LARGE] = "too large for one append",
        [JOURNAL_BUSY] = "too many bytes wait for their commit",
        [JOURNAL_NO_SPACE] = "no space left on the device",
        [JOURNAL_LATCHED] = "storage failed: no more writes until a restart",
        [JOURNAL_GONE] = "the offset has expired or lies in a hole",
        [JOURNAL_BEYOND] = "the offset is past the end",
        [JOURNAL_END] = "at the end",
        [JOURNAL_DAMAGED] = "a segment is damaged",
        [JOURNAL_NEWER] = "written by a newer version",
        [JOURNAL_IN_USE] = "in use by another process",
        [JOURNAL_IO] = "input or output failed",
        [JOURNAL_NO_DESCRIPTORS] = "out of file descriptors",
        [JOURNAL_CLOSED] = "the journal is being closed",
    };
    return (size_t)r < sizeof text / sizeof *text ? text[r] : "unknown error";
}

int sync_or_eio(int failed)
{
    if (failed && errno_is_full(errno))
        errno = EIO;
    return failed;
}

void failure_set(char text[JOURNAL_ERROR_TEXT], const char *path, const char *what, int system)
{
    if (system)
        snprintf(text, JOURNAL_ERROR_TEXT, "%s: %s: %s", path, what, strerror(system));
    else
        snprintf(text, JOURNAL_ERROR_TEXT, "%s: %s", path, what);
}
