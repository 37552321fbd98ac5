/* forget_stream: finds the lines of a stream that match, and has pubsub erase them. */
#ifndef MILLRACE_FORGET_STREAM_H
#define MILLRACE_FORGET_STREAM_H

#include "tools/forget_match.h"

#define FORGET_ERROR_TEXT 600

struct forget_stream {
    const char *url, *token; /* of pubsub; token NULL: none */
    const char *stream;
    struct forget_match *match;
    bool contains; /* erase lines with FORGET_CONTAINS too */
    bool quiet;    /* no progress */

    /* Results. */
    uint64_t read, matched, contained; /* lines; `contained` are not erased, unless `contains` */
    uint64_t end;                      /* the end of the stream at the beginning of the search */
    char id[33];                       /* of the stream */
    char opening[31];                  /* of the last line found (STREAM_OPENING_SHORT) */
    struct buf ranges;                 /* the body of /erase; free it */
    char error[FORGET_ERROR_TEXT];
};

/* Reads the stream up to its end. Returns 0, or an exit status with the error. */
int forget_stream_search(struct forget_stream *f);
/* Erases the lines found, and waits until they are erased. Returns 0, or an exit status with the error. */
int forget_stream_erase(struct forget_stream *f);

#endif
