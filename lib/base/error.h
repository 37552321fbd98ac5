/* error: why a call failed, for the caller (code) and for the operator (text).
 *
 * 1. A function that fails sets the error of its caller. After a success the error has no meaning. Where a header allows
 *    NULL, the caller needs no error.
 * 2. The text names what failed, on which object and why. It ends without LF, and is cut after ERROR_TEXT - 1 bytes.
 * 3. All functions keep errno.
 */
#ifndef MILLRACE_ERROR_H
#define MILLRACE_ERROR_H

#include <stdarg.h>

#define ERROR_TEXT 2048 /* a text may name several paths */

struct error {
    int code; /* the result of the function: of its enum, an exit status or -1 */
    char text[ERROR_TEXT];
};

/* Sets both, and returns the code. The arguments may contain the error's own text. `e` may be NULL. */
int error_set(struct error *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Sets "PATH: " and the text of errno. */
int error_errno(struct error *e, int code, const char *path);
int error_vset(struct error *e, int code, const char *fmt, va_list ap) __attribute__((format(printf, 3, 0)));

#endif
