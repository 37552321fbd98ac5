/* follower: subscribes to one stream at pubsub with a stream client (stream_client.h) and feeds its lines to the
 * aggregate.
 *
 * 1. Only whole lines are counted. After every callback of the stream client, the cursors of the aggregate and of the
 *    stream client are equal.
 * 2. If a power cut left a hole in the stream, the follower logs the hole and continues after it. The follower stops if
 *    the stream was replaced, if it was restored from an older copy, or if uncounted lines expired. follower_trouble
 *    then returns the reason. With the option accept_loss, the follower logs a restored copy or expired lines, and continues.
 * 3. While aggregate_is_full returns true, the follower reads no lines. */
#ifndef MILLRACE_FOLLOWER_H
#define MILLRACE_FOLLOWER_H

#include "aggregator/count_watermark.h"

struct daemon;
struct follower;
struct http_client;
struct stream_place;

struct follower_config {
    struct daemon *daemon;
    struct http_client *client; /* must outlive the follower, or be freed before the follower */
    struct aggregate *aggregate;
    struct count_watermark *watermark; /* receives the statements of the stream (stream/watermark.h) */
    size_t stream;                     /* index in the aggregate */
    size_t max_line;
    /* called when the stream begins or catches up, or when the result of follower_trouble changes */
    void (*changed)(void *arg);
    void *arg;
};

struct follower *follower_new(const struct follower_config *config);
void follower_free(struct follower **f);
void follower_stop(struct follower *f);
/* Continues to read after a pause that aggregate_is_full has caused. Call follower_resume when the aggregate may have
 * room again. */
void follower_resume(struct follower *f);
bool follower_is_caught_up(const struct follower *f);
/* Returns the place of the stream (stream_client.h) as of the latest response. The place changes with each start of
 * pubsub. */
const struct stream_place *follower_place(const struct follower *f);
/* Returns the reason why no lines arrive, or NULL. If *refused is set, the follower has stopped until an operator
 * acts. */
const char *follower_trouble(const struct follower *f, bool *refused);

#endif
