/* archive_manifest: NAME.manifest.json, which describes a finished file.
 *
 *     {"format":1,"file":"clicks-05.ndjson.gz","stream":"clicks","id":"62528bf0...","first":"120000","end":"123456",
 *      "lines":"12","bytes":"3456","xxh3":"00f3...","compression":"gzip","stored_bytes":"871"}
 *
 * lines, bytes and xxh3 (64 bits, seed 0) describe the uncompressed lines. The stream's id and the offsets identify the lines: a
 * manifest with equal ones was written by an earlier attempt to publish the same file. */
#ifndef MILLRACE_ARCHIVE_MANIFEST_H
#define MILLRACE_ARCHIVE_MANIFEST_H

#include "streams/archive/archive_state.h"

enum archive_compression { ARCHIVE_PLAIN, ARCHIVE_GZIP, ARCHIVE_ZSTD };
#define ARCHIVE_COMPRESSIONS 3

extern const char *const archive_suffixes[ARCHIVE_COMPRESSIONS]; /* "", ".gz", ".zst" */

/* A manifest's text is built in two steps. The summary is the text behind the file's name. */
void archive_manifest_identity(
    const char *stream, const char *id, const struct archive_file_state *file, struct buf *out);
void archive_manifest_summary(
    struct bytes identity, uint64_t xxh3, enum archive_compression c, uint64_t stored_bytes, struct buf *out);
/* Returns ARCHIVE_PLAIN if the summary names no other compression. */
enum archive_compression archive_summary_compression(struct bytes summary);
/* `path` is the published file, with its suffix. */
void archive_manifest_print(const char *path, struct bytes summary, struct buf *out);
/* Whether `path` is a manifest of these lines. */
bool archive_manifest_has_identity(const char *path, struct bytes identity);

/* Reads a manifest or summary. Returns false if there is none. */
bool archive_manifest_read(const char *path, struct buf *out);

#endif
