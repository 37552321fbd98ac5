/* forget_stream: finds the lines of a stream that match, and has pubsub erase them. */
#ifndef MILLRACE_FORGET_STREAM_H
#define MILLRACE_FORGET_STREAM_H

#include "stream/stream_client.h"
#include "tools/forget_match.h"
#include "tools/tool.h"

struct forget_stream {
    const struct pipeline *pipeline;
    const char *stream;
    struct forget_match *match;
    bool contains; /* erase lines with FORGET_CONTAINS too */

    /* Results. */
    uint64_t read; /* lines */
    uint64_t contained,
        erased_contained; /* lines without a key that contain the value, and those of `erased` */
    uint64_t erased;      /* lines found to be erased */
    uint64_t end;         /* the end of the stream at the beginning of the search */
    char id[33];          /* of the stream */
    struct forget_batch *batches;
    size_t n_batches, room_batches;
    struct error error;
};

/* Lines for one request. */
struct forget_batch {
    struct buf ranges;                 /* the body of /erase */
    char opening[STREAM_OPENING_TEXT]; /* of the last line */
};

/* Reads the stream up to its end. Returns 0, or an exit status with the error. */
int forget_stream_search(struct forget_stream *f);
/* Erases the lines found, and waits until they are erased. Without any, still erases what deleted lines have left in the stream's
 * files. Returns 0, or an exit status with the error. */
int forget_stream_erase(struct forget_stream *f);
void forget_stream_free(struct forget_stream *f);

#endif
