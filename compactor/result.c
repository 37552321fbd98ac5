#include "compactor/result.h"

#include "base/bytes.h"
#include "base/io.h"
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>

const char *compact_strerror(enum compact_result r)
{
    switch (r) {
    case COMPACT_OK:
        return "ok";
    case COMPACT_TRY_AGAIN:
        return "try again";
    case COMPACT_REFUSED:
        return "refused";
    case COMPACT_DAMAGED:
        return "damaged";
    case COMPACT_FAILED:
        return "failed";
    }
    return "unknown";
}

int compact_exit_status(enum compact_result r)
{
    switch (r) {
    case COMPACT_OK:
        return EX_OK;
    case COMPACT_TRY_AGAIN:
    case COMPACT_FAILED:
        return EX_TEMPFAIL;
    case COMPACT_REFUSED:
        return EX_CONFIG;
    case COMPACT_DAMAGED:
        break;
    }
    return 1;
}

enum compact_result compact_fail(char error[COMPACT_ERROR_TEXT], enum compact_result r, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(error, COMPACT_ERROR_TEXT, fmt, ap);
    va_end(ap);
    return r;
}

enum compact_result compact_fail_errno(char error[COMPACT_ERROR_TEXT], const char *what)
{
    return compact_fail(error, COMPACT_FAILED, "%.400s: %s", what, strerror(errno));
}

enum compact_result compact_open_temporary(const char *directory, int *fd, char error[COMPACT_ERROR_TEXT])
{
    static atomic_uint number; /* several threads may share the directory */
    char *path = mem_printf("%s/records-%u.tmp", directory, atomic_fetch_add(&number, 1));
    enum compact_result r = COMPACT_OK;
    *fd = io->open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, IO_PRIVATE_MODE);
    if (*fd < 0 || io->unlink(path) != 0) {
        r = compact_fail_errno(error, path);
        if (*fd >= 0)
            io->close(*fd);
        *fd = -1;
    }
    free(path);
    return r;
}
