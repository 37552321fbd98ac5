#include "backup/backup_result.h"

#include "base/bytes.h"
#include "base/errno_class.h"
#include "base/io.h"

#include <errno.h>
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

int backup_fail_errno(struct error *error, const char *path)
{
    int why = errno;
    bool full = errno_is_full(why);
    struct buf owner = {0};
    if (why == EACCES || why == EPERM)
        io_append_owner(path, &owner);
    error_set(error, full ? BACKUP_FULL : BACKUP_FAILED, "%.600s: %s%s", path, strerror(why),
        full        ? "; free space or choose another directory"
        : owner.ptr ? owner.ptr
                    : "");
    buf_free(&owner);
    return full ? BACKUP_FULL : BACKUP_FAILED;
}
