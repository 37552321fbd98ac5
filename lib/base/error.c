#include "base/error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define PATH_SHOWN (ERROR_TEXT - 200) /* leaves room for the reason after the path */

int error_set(struct error *e, int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    error_vset(e, code, fmt, ap);
    va_end(ap);
    return code;
}

int error_errno(struct error *e, int code, const char *path)
{
    return error_set(e, code, "%.*s: %s", PATH_SHOWN, path, strerror(errno));
}

int error_vset(struct error *e, int code, const char *fmt, va_list ap)
{
    char text[ERROR_TEXT];
    if (!e)
        return code;
    int saved = errno;
    vsnprintf(text, sizeof text, fmt, ap);
    e->code = code;
    memcpy(e->text, text, strlen(text) + 1);
    errno = saved;
    return code;
}
