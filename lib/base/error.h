/* error: why a call failed, for the caller (code) and for the operator (text).
 *
 * 1. A function that fails sets the struct error that its caller passes. After a success the struct has no meaning. A
 *    caller may pass NULL only where a header allows NULL.
 * 2. The text names the failed action, the object and the reason. The text has no LF at its end, and is truncated to
 *    ERROR_TEXT - 1 bytes.
 * 3. The functions of this header do not change errno. */
#ifndef MILLRACE_ERROR_H
#define MILLRACE_ERROR_H

#include <stdarg.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ERROR_TEXT 2048 /* a text may name several paths */

struct error {
    int code; /* the result of the failed function: a value of its enum, an exit status or -1 */
    char text[ERROR_TEXT];
};

/* Sets code and text of `e`, and returns the code. The arguments may include e->text. `e` may be NULL. */
int error_set(struct error *e, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Sets the text to "PATH: " and the text of errno. */
int error_errno(struct error *e, int code, const char *path);
int error_vset(struct error *e, int code, const char *fmt, va_list ap) __attribute__((format(printf, 3, 0)));

#ifdef __cplusplus
}
#endif

#endif
