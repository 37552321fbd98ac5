/* rejects: a slice's file of lines that could not be counted, each with its place and the reason.
 *
 *     {"stream":"clicks","offset":"8120","reason":"not JSON: ...","bytes":42,"line":"{\"t\": oops"}
 *
 * `line` is the line as text, with U+FFFD for bytes that are not UTF-8; then `hex` has its bytes. Of a line over max_line only
 * the first part is kept.
 *
 * 1. The length in a slice's transaction is synced before the transaction. Opening cuts the file to it, so every rejected line
 *    is in the file once.
 * 2. A file shorter than its recorded length is refused.
 */
#ifndef MILLRACE_REJECTS_H
#define MILLRACE_REJECTS_H

#include "base/bytes.h"

struct rejects;

/* Appends an entry. `bytes` is the line's whole length; `line` may be its first part. */
void rejects_format(struct buf *out, struct bytes stream, uint64_t offset, const char *reason, uint64_t bytes,
    struct bytes line);

/* Opens or makes the file, cut to `length`. 0, or -1 with errno (ERANGE: shorter than that). */
int rejects_open(const char *path, uint64_t length, struct rejects **out);
void rejects_close(struct rejects **r);
/* Writes at `at`, over an attempt that was not recorded, and syncs. 0, or -1 with errno. */
int rejects_write(struct rejects *r, struct bytes entries, uint64_t at);

#endif
