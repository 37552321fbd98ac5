/* streams: the named streams of a daemon. Each stream is in DIR/streams/NAME. All streams share a journal set.
 *
 * 1. After streams_make has returned a stream, the stream exists even after a crash. Streams are never removed. After a refusal there is
 *    no directory.
 * 2. A stream's name satisfies bytes_is_name. Other entries of DIR/streams are ignored.
 * 3. No stream is made that would use descriptors that connections need, so the next start has enough descriptors for
 *    all streams. Streams that exist are all opened.
 * 4. streams_at returns the streams in byte order of their names.
 *
 * Only one thread at a time may call the functions of this header. streams_recover may run in another thread. Until
 * streams_recover returns, the event loop must not call any other function. */
#ifndef MILLRACE_PUBSUB_STREAMS_H
#define MILLRACE_PUBSUB_STREAMS_H

#include "pubsub/stream/stream.h"

struct streams;

/* STREAMS_NO_SPACE, STREAMS_OUT_OF_DESCRIPTORS and STREAMS_STORAGE come with an error text. */
enum streams_result {
    STREAMS_OK,
    STREAMS_TOO_MANY, /* max_streams streams already exist */
    STREAMS_NO_SPACE, /* the disk is full */
    STREAMS_OUT_OF_DESCRIPTORS,
    STREAMS_STORAGE,
};

struct streams_config {
    const char *dir; /* an existing directory, locked by this process; copied */
    size_t max_streams;
    int (*descriptors)(void); /* the maximum number of open files; NULL: unlimited */
    size_t max_producers;     /* limit of producers of each stream; 0: the journal's default */
    uint64_t
        segment_bytes; /* limit of a segment, but at most an eighth of retain_bytes; 0: the journal's default */
    /* Returns the limits of a stream; NULL: no stream has limits. */
    struct stream_limits (*limits)(void *arg, const char *name);
    void *limits_arg;
    struct journal_set_config set;
};

struct streams *streams_new(const struct streams_config *config);
/* Commits pending publishes, runs their callbacks and closes every stream. */
void streams_free(struct streams **ss);

/* Opens the streams in DIR/streams. Blocks. */
enum streams_result streams_recover(struct streams *ss, struct error *error);

struct stream *streams_find(const struct streams *ss, const char *name); /* NULL: unknown */
/* Finds or creates the stream. */
enum streams_result streams_make(
    struct streams *ss, const char *name, struct stream **out, struct error *error);

size_t streams_count(const struct streams *ss);
struct stream *streams_at(const struct streams *ss, size_t i);

struct journal_set *streams_set(struct streams *ss);

#endif
