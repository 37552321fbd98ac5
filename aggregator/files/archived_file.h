/* archived_file: a file that ps_to_file has written, as a part of its stream (docs/guide/stream-tools.md).
 *
 * The manifest beside the file names the stream's id and the range of offsets. If the range is as long as the
 * uncompressed file, the file is exactly this part of the stream. Files named by event time are not such parts.
 *
 * Bytes are verified before they are used: archived_file_verify reads the whole file once.
 */
#ifndef MILLRACE_ARCHIVED_FILE_H
#define MILLRACE_ARCHIVED_FILE_H

#include "base/line_source.h"
#include "counts/slice_state.h"
#include "stream/stream_client.h"

#include <signal.h>

struct archived_file {
    const char *path; /* borrowed */
    char stream[NAME_LEN_MAX + 1];
    char id[STREAM_ID_TEXT];
    char opening[STREAM_OPENING_TEXT]; /* of the byte before `end`; "": unknown */
    uint64_t first, end;               /* the range of offsets */
    uint64_t xxh3;                     /* of the lines */
    bool is_verified;
};

/* Parses the text of a manifest. Returns NULL, or why it is not a manifest of a part of a stream. `path` is not set. */
const char *archived_file_parse(struct bytes text, struct archived_file *out);
/* Reads the manifest beside the file. Returns 0, or -1 with the error. */
int archived_file_read(const char *path, struct archived_file *out, struct error *error);
/* Compares the file's lines with the manifest. Returns 0, or -1 with the error. Stops early once *stopped is set, with 0 and
 * is_verified false. */
int archived_file_verify(struct archived_file *f, const volatile sig_atomic_t *stopped, struct error *error);
/* Sorts by stream and offset. Returns the index of a file that overlaps the file before it, or `n`. */
size_t archived_files_sort(struct archived_file *files, size_t n);
/* The file with the stream's byte `offset`, or, without one, the next file behind it. NULL: there is none. */
struct archived_file *archived_files_at(
    struct archived_file *files, size_t n, const char *stream, uint64_t offset);

#endif
