/* mapping: a mapped file that may be truncated without ending the process.
 *
 * Touching a page behind the new end of a truncated file raises SIGBUS, and the rest of the last page reads as zeros. A check
 * before each read does not help, because the file can shrink right after it. So reading and checking are separate:
 *
 * 1. A read never fails. The SIGBUS handler finds the mapping of the address, maps a page of zeros there and marks the mapping. The
 *    signal is synchronous and the handler only calls mmap and stores atomics, so this works in any thread, inside memcpy too.
 * 2. After reading or copying, the caller asks mapping_is_whole; only then are the bytes valid. Any truncation removes the last
 *    byte of the file, so the check reads that byte and needs no system call, unless the last byte is zero.
 * 3. A system call that reads a missing page (a write to a socket) returns EFAULT.
 * 4. A mapping that was truncated once stays invalid, even if the file grows back: open it again.
 *
 * A write in place that keeps the length is not detected this way; mapping_is_untouched compares size and time. Replace files by rename.
 *
 * A SIGBUS elsewhere ends the process. Every mapping_open installs the handler again.
 */
#ifndef MILLRACE_MAPPING_H
#define MILLRACE_MAPPING_H

#include "base/bytes.h"

#define MAPPING_ERROR_TEXT 256

struct mapping;

/* `lock` locks it in memory (mlock). 0, or -1 with errno and the text. */
int mapping_open(const char *path, bool lock, struct mapping **out, char error[MAPPING_ERROR_TEXT]);
void mapping_close(struct mapping **m);

/* Of the file's length at the opening. */
struct bytes mapping_bytes(const struct mapping *m);
/* False: the file was truncated, and bytes read may be zeros. Any thread. */
bool mapping_is_whole(struct mapping *m);
/* False: the file was modified since it was opened. One system call. */
bool mapping_is_untouched(const struct mapping *m);
/* Advises the kernel: sequential reading, or random. */
void mapping_expect_scan(struct mapping *m, bool scan);

#endif
