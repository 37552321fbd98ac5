/* archived_file: reads and verifies a file that ps_to_file has written, as a part of its stream
 * (docs/guide/stream-tools.md).
 *
 * The manifest beside the file has the stream's id and a range of offsets. If the range is as long as the uncompressed
 * file, the file is exactly this part of the stream. A file that is named by event time is not a part of a stream.
 *
 * The bytes of a file are verified before they are used: archived_file_verify first reads the whole file once.
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
    /* opening (a run of pubsub) in which the byte before `end` was written; "": unknown */
    char opening[STREAM_OPENING_TEXT];
    uint64_t first, end; /* offsets in the stream */
    uint64_t xxh3;
    bool is_verified;
};

/* Parses the text of a manifest. Returns NULL, or the reason why the text is not a manifest of a part of a stream. Does
 * not set `path`. */
const char *archived_file_parse(struct bytes text, struct archived_file *out);
/* Reads the manifest beside the file `path`. Returns 0, or -1 with the error. */
int archived_file_read(const char *path, struct archived_file *out, struct error *error);
/* Compares the file's lines with the manifest. Returns 0, or -1 with the error. Once *stopped is set, returns 0 early,
 * with is_verified false. */
int archived_file_verify(struct archived_file *f, const volatile sig_atomic_t *stopped, struct error *error);
/* Sorts files by stream and offset. Returns the index of a file that overlaps the previous file, or `n` if no files
 * overlap. */
size_t archived_files_sort(struct archived_file *files, size_t n);
/* Returns the file that contains the stream's byte `offset`. If no file contains the byte, returns the next file after
 * it, or NULL. */
struct archived_file *archived_files_at(
    struct archived_file *files, size_t n, const char *stream, uint64_t offset);

#endif
