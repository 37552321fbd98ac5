/* mapping: a mapped file that may be truncated without ending the process.
 *
 * After a truncation, a page beyond the new end raises SIGBUS, and the rest of the last page is zeros. A check before
 * each read does not help, because the file can shrink right after the check. Therefore a caller reads first and checks
 * afterwards:
 *
 * 1. A read never fails. The SIGBUS handler finds the mapping of the address, replaces the page by zeros and marks the
 *    mapping. The signal is synchronous, and the handler only calls mmap and stores atomics. So the handler works in
 *    any thread, also inside memcpy.
 * 2. The caller reads or copies bytes, then calls mapping_is_whole. The bytes are valid only if mapping_is_whole
 *    returns true. Any truncation removes the file's last byte, so mapping_is_whole compares the last byte. If the last
 *    byte is a zero, mapping_is_whole also asks the kernel for the file's size.
 * 3. A system call that reads a missing page, such as a write to a socket, returns EFAULT.
 * 4. After a truncation the mapping stays invalid, even if the file grows again. Open the file again.
 *
 * mapping_is_untouched also detects writes in place, by size and modification time. Operators should replace files by
 * rename.
 *
 * A SIGBUS at any other address ends the process. Every mapping_open installs the handler again. */
#ifndef MILLRACE_MAPPING_H
#define MILLRACE_MAPPING_H

#include "base/bytes.h"
#include "base/error.h"

struct mapping;

/* Maps the file. `lock` locks the pages in memory (mlock). Returns 0, or -1 with errno and the error. */
int mapping_open(const char *path, bool lock, struct mapping **out, struct error *error);
void mapping_close(struct mapping **m);

/* The file's bytes, with the file's length at mapping_open. */
struct bytes mapping_bytes(const struct mapping *m);
/* Returns false if the file was truncated, so that bytes read may be zeros. Any thread may call. */
bool mapping_is_whole(struct mapping *m);
/* Returns false if the file was modified since mapping_open. Makes one system call. */
bool mapping_is_untouched(const struct mapping *m);
/* The file's modification time at mapping_open, in Unix seconds. */
int64_t mapping_modified(const struct mapping *m);
/* Advises the kernel to expect sequential reads if `scan` is true, or reads in any order otherwise. */
void mapping_expect_scan(struct mapping *m, bool scan);
/* Advises the kernel to read only the pages that are accessed, without read-ahead. */
void mapping_expect_searches(struct mapping *m);

#endif
