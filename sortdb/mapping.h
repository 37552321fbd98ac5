/* mapping: a file in memory that may shrink without ending the process.
 *
 * A mapped file that somebody truncates is a trap twice over: a page wholly behind the new end raises SIGBUS when
 * it is touched, and what is left of the last page silently reads as zeros. Asking fstat before each read is no cure: the file can
 * shrink right behind the answer. So reading and judging are apart here:
 *
 * 1. Reading never fails. The handler of SIGBUS finds the mapping that the address lies in, puts a page of zeros there and
 *    marks the mapping; the read goes on with zeros. The signal is synchronous, and the handler only does mmap and
 *    atomic stores, so this is right in any thread, inside memchr and memcpy too, and nothing is jumped out of.
 * 2. Whoever has read, or copied, then asks mapping_is_whole, and only a yes makes it an answer. Whatever the file
 *    lost before the question, its last byte is lost too, and that byte was not zero when the file was opened: so
 *    the question is one byte, looked at through rule 1, and no system call. (A file whose last byte is zero is
 *    asked for its size.)
 * 3. What the kernel reads of a page that is gone (a write to a socket) is EFAULT to the caller, and no signal.
 * 4. A mapping that was not whole once never is again, also when the file grows back: open it anew.
 *
 * Writing into the file in place, at the same length, cannot be noticed so; mapping_is_untouched looks at the file's
 * size and time, for a look every now and then. Files are to be replaced by rename.
 *
 * A SIGBUS elsewhere ends the process as ever. Every mapping_open installs the handler, so that of whoever
 * took the signal meanwhile is gone.
 */
#ifndef MILLRACE_MAPPING_H
#define MILLRACE_MAPPING_H

#include "base/bytes.h"

#define MAPPING_ERROR_TEXT 256

struct mapping;

/* `lock` keeps it in memory (mlock). 0, or -1 with errno kept and the text saying what failed. */
int mapping_open(const char *path, bool lock, struct mapping **out, char error[MAPPING_ERROR_TEXT]);
void mapping_close(struct mapping **m);

/* As long as the file was when opened. */
struct bytes mapping_bytes(const struct mapping *m);
/* False: the file has been truncated, what was read may be zeros. Any thread. */
bool mapping_is_whole(struct mapping *m);
/* False: the file was written to since it was opened. A system call. */
bool mapping_is_untouched(const struct mapping *m);
/* Tells the kernel how it will be read: once from front to end, or here and there. */
void mapping_expect_scan(struct mapping *m, bool scan);

#endif
