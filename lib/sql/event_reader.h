/* event_reader: reads the lines of a stream from pubsub, up to the end that the stream has when the reader begins, or the
 * lines of files (plain, gzip or zstd), such as those of ps_to_file. Reads block.
 *
 * Erased lines are skipped. Lines that retention has deleted, or that a power cut has lost, are missing. */
#ifndef MILLRACE_EVENT_READER_H
#define MILLRACE_EVENT_READER_H

#include "base/bytes.h"
#include "base/error.h"

#include <stdatomic.h>

struct event_reader;

struct event_reader_line {
    struct bytes line;  /* without LF */
    uint64_t offset;    /* in the stream or the uncompressed file */
    const char *source; /* the stream or the file */
};

/* `begin` is as in stream_client.h. `url` and `token` (which may be NULL) are those of pubsub. Once *cancel is set, reads fail. */
struct event_reader *event_reader_of_stream(
    const char *url, const char *token, const char *stream, const char *begin, const atomic_bool *cancel);
/* `pattern` is a path or a pattern of the shell (glob(7)). */
struct event_reader *event_reader_of_files(const char *pattern);
void event_reader_free(struct event_reader **r);

/* Sets *out, valid until the next call. Returns 1, 0 at the end, or -1 with the error. */
int event_reader_next(struct event_reader *r, struct event_reader_line *out, struct error *error);

#endif
