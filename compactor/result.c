#include "compactor/result.h"

#include "base/bytes.h"
#include "base/io.h"
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

const char *compact_strerror(enum compact_result r)
{
    static const char *const texts[] = {[COMPACT_OK] = "ok",
        [COMPACT_TRY_AGAIN] = "try again",
        [COMPACT_MISSING] = "missing",
        [COMPACT_USAGE] = "wrong usage",
        [COMPACT_REFUSED] = "refused",
        [COMPACT_DAMAGED] = "damaged",
        [COMPACT_FAILED] = "failed"};
    return texts[r];
}

int compact_exit_status(enum compact_result r)
{
    static const int statuses[] = {[COMPACT_OK] = EX_OK,
        [COMPACT_TRY_AGAIN] = EX_TEMPFAIL,
        [COMPACT_MISSING] = EX_NOINPUT,
        [COMPACT_USAGE] = EX_USAGE,
        [COMPACT_REFUSED] = EX_CONFIG,
        [COMPACT_DAMAGED] = 1,
        [COMPACT_FAILED] = EX_TEMPFAIL};
    return statuses[r];
}

enum compact_result compact_open_temporary(const char *directory, int *fd, struct error *error)
{
    static atomic_uint number; /* several threads may share the directory */
    char *path = mem_printf("%s/records-%u.tmp", directory, atomic_fetch_add(&number, 1));
    enum compact_result r = COMPACT_OK;
    *fd = io->open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, IO_PRIVATE_MODE);
    if (*fd < 0 || io->unlink(path) != 0) {
        r = error_errno(error, COMPACT_FAILED, path);
        if (*fd >= 0)
            io->close(*fd);
        *fd = -1;
    }
    free(path);
    return r;
}
