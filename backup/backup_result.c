#include "backup/backup_result.h"

#include "base/errno_class.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sysexits.h>

int backup_exit_status(enum backup_result r)
{
    static const int statuses[] = {[BACKUP_OK] = EX_OK,
        [BACKUP_CHANGED] = EX_TEMPFAIL,
        [BACKUP_EXISTS] = EX_CANTCREAT,
        [BACKUP_MISSING] = EX_NOINPUT,
        [BACKUP_DAMAGED] = EX_DATAERR,
        [BACKUP_BUSY] = EX_TEMPFAIL,
        [BACKUP_FULL] = EX_TEMPFAIL,
        [BACKUP_FAILED] = EX_IOERR};
    return statuses[r];
}

enum backup_result backup_fail(char error[BACKUP_ERROR_TEXT], enum backup_result r, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(error, BACKUP_ERROR_TEXT, fmt, ap);
    va_end(ap);
    return r;
}

enum backup_result backup_fail_errno(char error[BACKUP_ERROR_TEXT], const char *path)
{
    bool full = errno_is_full(errno);
    return backup_fail(error, full ? BACKUP_FULL : BACKUP_FAILED, "%.600s: %s%s", path, strerror(errno),
        full ? "; free space or choose another directory" : "");
}
