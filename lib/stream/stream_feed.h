/* stream_feed: feeds the lines of one stream to a daemon that stores their results together with the stream's cursor.
 *
 * 1. on_lines gets every line after `from` once, in the order of the stream. During on_lines the client's cursor is already
 *    after the lines. A daemon that stores this cursor in one step with the results stores every line's result once.
 * 2. The feed stops if lines at the cursor have expired, or the stream is not that of the cursor, unless the daemon has
 *    STREAM_ACCEPT_LOSS_OPTIONS. The notice `stream` of the daemon says why, and the daemon's other work continues.
 * 3. /metrics has `lag_bytes` and `lag_seconds`: the distance from config.stored to the end of the stream.
 *
 * The daemon has the settings pubsub_url, pubsub_token_file and `stream`. Only the loop's thread uses a feed. */
#ifndef MILLRACE_STREAM_FEED_H
#define MILLRACE_STREAM_FEED_H

#include "daemon/daemon.h"
#include "stream/stream_client.h"

struct stream_feed;

struct stream_feed_config {
    struct stream_cursor from;
    size_t max_line; /* as in stream_client.h */
    /* Gets whole lines, each with its LF. Without lines, the cursor has passed an overlong or lost line. */
    void (*on_lines)(struct bytes lines, void *arg);
    /* Gets the beginning of a line that is longer than max_line. on_lines without lines follows. */
    void (*on_overlong)(struct bytes head, void *arg);
    /* Called when a stream without a cursor has begun. May be NULL. */
    void (*on_begin)(void *arg);
    /* Called when the feed has caught up with the stream, or cannot read the stream. May be NULL. */
    void (*on_change)(bool is_current, void *arg);
    uint64_t (*stored)(void *arg); /* returns the offset before which the results of all lines are stored */
    void *arg;
};

/* Returns NULL with the error if the token of pubsub cannot be read. */
struct stream_feed *stream_feed_new(
    struct daemon *d, const struct stream_feed_config *config, struct error *error);
/* After stream_feed_stop, the feed calls no callback. */
void stream_feed_stop(struct stream_feed *f);
/* *f may be NULL. */
void stream_feed_free(struct stream_feed **f);
/* The client, for its cursor, and to pause and resume. Owned by the feed. */
struct stream_client *stream_feed_client(const struct stream_feed *f);
/* The client of the stream's pubsub. Owned by the feed. */
struct http_client *stream_feed_pubsub(const struct stream_feed *f);
/* Logs that a line was skipped, at most 10 lines a second. */
void stream_feed_log_skipped(struct stream_feed *f, const char *error, struct bytes line);

#endif
