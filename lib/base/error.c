#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int error_set(struct error *e, int code, const char *fmt, ...)
{
    char text[ERROR_TEXT];
    va_list ap;
    if (!e)
        return code;
    int saved = errno;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    e->code = code;
    memcpy(e->text, text, strlen(text) + 1);
    errno = saved;
    return code;
}
