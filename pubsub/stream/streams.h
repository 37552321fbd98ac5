/* streams: the named streams of one daemon, each in DIR/streams/NAME, in one journal set.
 *
 * 1. A stream exists, also after a crash, once streams_obtain has returned it, and is never removed.
 * 2. Names satisfy bytes_is_name; other entries of DIR/streams are ignored.
 * 3. streams_at returns them in byte order of their names.
 *
 * One owner thread at a time: streams_recover may run on another than the loop, before the loop uses anything but streams_new.
 */
#ifndef MILLRACE_PUBSUB_STREAMS_H
#define MILLRACE_PUBSUB_STREAMS_H

#include "pubsub/stream/stream.h"

struct streams;

enum streams_result {
    STREAMS_OK,
    STREAMS_UNKNOWN,  /* and auto_create is off */
    STREAMS_TOO_MANY, /* max_streams */
    STREAMS_NO_SPACE, /* the disk is full. This and the next two fill the error text */
    STREAMS_OUT_OF_DESCRIPTORS,
    STREAMS_STORAGE,
};

struct streams_config {
    const char *dir; /* copied; it exists, and this process owns it */
    bool auto_create;
    size_t max_streams;
    size_t max_producers;   /* a stream; 0: the journal's default */
    uint64_t segment_bytes; /* 0: the journal's default */
    /* The limits of the stream of a name; NULL: no limits. */
    struct stream_limits (*limits)(void *arg, const char *name);
    void *limits_arg;
    struct journal_set_config set;
};

struct streams *streams_new(const struct streams_config *config);
/* Closes every stream; pending publishes are committed and their callbacks run. */
void streams_free(struct streams **ss);

/* Opens the streams in DIR/streams. Blocks. */
enum streams_result streams_recover(struct streams *ss, char *error, size_t error_size);

struct stream *streams_find(const struct streams *ss, const char *name); /* NULL: unknown */
/* Finds it, or makes it if auto_create is on. */
enum streams_result streams_obtain(
    struct streams *ss, const char *name, struct stream **out, char *error, size_t error_size);
/* Finds or makes it whatever auto_create is: for streams named in the settings. */
enum streams_result streams_make(
    struct streams *ss, const char *name, struct stream **out, char *error, size_t error_size);

size_t streams_count(const struct streams *ss);
struct stream *streams_at(const struct streams *ss, size_t i);

struct journal_set *streams_set(struct streams *ss);

#endif
