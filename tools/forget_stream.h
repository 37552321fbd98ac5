/* forget_stream: finds the matching lines of a stream, and makes pubsub erase these lines. */
#ifndef MILLRACE_FORGET_STREAM_H
#define MILLRACE_FORGET_STREAM_H

#include "stream/stream_client.h"
#include "tools/forget_match.h"
#include "tools/tool.h"

struct forget_stream {
    const struct pipeline *pipeline;
    const char *stream;
    struct forget_match *match;
    bool contains; /* also erase lines with FORGET_CONTAINS */

    /* Results. */
    uint64_t read; /* number of lines that were read */
    uint64_t contained,
        erased_contained; /* number of lines without a key that contain the value, and how many of these are erased */
    uint64_t erased; /* number of lines to erase */
    uint64_t end;    /* end of the stream when the search began */
    char id[33];     /* id of the stream */
    struct forget_batch *batches;
    size_t n_batches, room_batches;
    struct error error;
};

/* Lines of one request to pubsub. */
struct forget_batch {
    struct buf ranges;                 /* body of the request to /erase */
    char opening[STREAM_OPENING_TEXT]; /* opening (id of a run of pubsub) of the last line */
};

/* Reads the stream up to its end. Returns 0, or an exit status with the error. */
int forget_stream_search(struct forget_stream *f);
/* Erases the found lines and remains of deleted lines in the stream's files. Waits until pubsub has erased all of
 * them. Returns 0, or an exit status with the error. */
int forget_stream_erase(struct forget_stream *f);
void forget_stream_free(struct forget_stream *f);

#endif
