/* streams: the named streams of one daemon, each in DIR/streams/NAME, behind one journal set.
 *
 * 1. A stream exists from the return of streams_obtain on, survives a crash from then on, and is never removed.
 * 2. Names are bytes_is_name; entries of DIR/streams with other names are left alone.
 * 3. streams_at gives them in byte order of their names.
 *
 * One owner thread at a time: streams_recover may run on another than the loop, before the loop uses anything
 * here but streams_new.
 */
#ifndef MILLRACE_PUBSUB_STREAMS_H
#define MILLRACE_PUBSUB_STREAMS_H

#include "pubsub/stream/stream.h"

struct streams;

enum streams_result {
    STREAMS_OK,
    STREAMS_UNKNOWN,  /* and may not be made */
    STREAMS_TOO_MANY, /* max_streams */
    STREAMS_NO_SPACE, /* the disk is full: as STREAMS_STORAGE and STREAMS_LACK, see the error text */
    STREAMS_LACK,     /* out of descriptors */
    STREAMS_STORAGE,  /* the storage refuses */
};

struct streams_config {
    const char *dir; /* copied; it exists, and this process owns it */
    bool auto_create;
    size_t max_streams;
    size_t max_producers;   /* a stream; 0: the journal's default */
    uint64_t segment_bytes; /* 0: the journal's default */
    /* The limits of a stream of that name; may be NULL: none have any. */
    struct stream_limits (*limits)(void *arg, const char *name);
    void *limits_arg;
    struct journal_set_config set;
};

struct streams *streams_new(const struct streams_config *config);
/* Closes every stream; what is pending is committed and its callbacks run. */
void streams_free(struct streams **ss);

/* Opens what DIR/streams holds. Blocks. STREAMS_OK or one of those with an error text. */
enum streams_result streams_recover(struct streams *ss, char *error, size_t error_size);

struct stream *streams_find(const struct streams *ss, const char *name); /* NULL: unknown */
/* Finds it, or makes it when auto_create allows. */
enum streams_result streams_obtain(
    struct streams *ss, const char *name, struct stream **out, char *error, size_t error_size);
/* Makes it, if it is not there, whatever auto_create says: for those named in the settings. */
enum streams_result streams_make(
    struct streams *ss, const char *name, struct stream **out, char *error, size_t error_size);

size_t streams_count(const struct streams *ss);
struct stream *streams_at(const struct streams *ss, size_t i);

struct journal_set *streams_set(struct streams *ss);

#endif
