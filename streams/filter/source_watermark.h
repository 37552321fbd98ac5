/* source_watermark: the time up to which a stream that is being republished is complete, below an offset.
 *
 * Every second pubsub is asked for the source's end and the times that its producers state (stream/stream_watermark.h). Once
 * the republisher has passed on all lines below that end, the least of these times holds for the destination too. Lines of
 * producers that state no time count as accepted when they are published, so the time is never later than the request.
 * An answer counts only if it is from the process of pubsub that serves the lines: another one may have an older copy.
 *
 * For the loop thread only. */
#ifndef MILLRACE_SOURCE_WATERMARK_H
#define MILLRACE_SOURCE_WATERMARK_H

#include "base/bytes.h"
#include "base/clock.h"

struct daemon;
struct http_client;
struct remote_moment;
struct source_watermark;
struct stream_client;

/* `source` is borrowed. *lines follows the stream; it may be replaced, but is never NULL while the source_watermark is used. */
struct source_watermark *source_watermark_new(
    struct daemon *d, struct http_client *source, const char *stream, struct stream_client *const *lines);
void source_watermark_free(struct source_watermark **w);
/* Asks, unless a request is under way. Answers about another stream are ignored. */
void source_watermark_ask(struct source_watermark *w);
/* Call this if the destination may have fewer lines than before: a time that it had reached counts again only once it has. */
void source_watermark_restart(struct source_watermark *w);
/* Appends &until= and its age (docs/guide/protocol.md) for a destination that has all lines below `offset`. */
void source_watermark_append(struct source_watermark *w, uint64_t offset,
    const struct remote_moment *destination, char *target, size_t size);

#endif
