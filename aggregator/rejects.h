/* rejects: the file of a slice's rejected lines, each with its offset and the reason.
 *
 *     {"stream":"clicks","offset":"8120","reason":"not JSON: ...","bytes":42,"line":"{\"t\": oops"}
 *
 * `file` replaces `stream` in the entry of a line from a file.
 *
 * In `line`, U+FFFD replaces invalid UTF-8; a further member `hex` then has the original bytes. A line over max_line is
 * truncated.
 *
 * 1. The file is synced before the slice's transaction records its length. Opening cuts the file to the recorded length, so
 *    it contains every rejected line once.
 * 2. A file shorter than the recorded length is refused.
 */
#ifndef MILLRACE_REJECTS_H
#define MILLRACE_REJECTS_H

#include "base/bytes.h"

struct rejects;

/* Appends an entry. `origin` is "stream" or "file". `bytes` is the line's full length; `line` may be truncated. */
void rejects_format(struct buf *out, const char *origin, struct bytes name, uint64_t offset,
    const char *reason, uint64_t bytes, struct bytes line);

/* Opens or creates the file and cuts it to `length`. Returns 0, or -1 with errno (ERANGE: the file is shorter). */
int rejects_open(const char *path, uint64_t length, struct rejects **out);
void rejects_close(struct rejects **r);
/* Writes at offset `at` and syncs. This overwrites entries whose transaction failed. Returns 0, or -1 with errno. */
int rejects_write(struct rejects *r, struct bytes entries, uint64_t at);

#endif
