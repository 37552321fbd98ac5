#include "compactor/result.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
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
