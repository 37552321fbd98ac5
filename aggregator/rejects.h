/* rejects: the file of lines that could not be counted, one a slice, each with where it came from and why.
 *
 *     {"stream":"clicks","offset":"8120","reason":"not JSON: ...","bytes":42,"line":"{\"t\": oops"}
 *
 * A line is JSON, for grep and jq alike. `line` is the line as text; of one that is no UTF-8 it has U+FFFD where
 * that cannot be shown, and `hex` has the very bytes. Of a line over the bound only the beginning is kept.
 *
 * 1. The file's length that a slice's transaction records is synced before that transaction; so opening cuts back
 *    to the recorded length, and every rejected line is there once.
 * 2. A shorter file than recorded is refused: it was tampered with.
 */
#ifndef MILLRACE_REJECTS_H
#define MILLRACE_REJECTS_H

#include "base/bytes.h"

struct rejects;

/* Appends one entry. `bytes` is the line's whole length, of which `line` may be the beginning. */
void rejects_format(struct buf *out, struct bytes stream, uint64_t offset, const char *reason, uint64_t bytes,
    struct bytes line);

/* Opens or makes the file, cut to `length`. 0, or -1 with errno (ERANGE: shorter than that). */
int rejects_open(const char *path, uint64_t length, struct rejects **out);
void rejects_close(struct rejects **r);
/* Writes and syncs at `at`, over whatever an attempt that was not recorded left there. 0, or -1 with errno. */
int rejects_write(struct rejects *r, struct bytes entries, uint64_t at);

#endif
