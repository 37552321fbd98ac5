/* follower: subscribes to one stream at pubsub with a stream client (stream_client.h) and feeds its lines to the aggregate.
 *
 * 1. Only whole lines are counted. After every callback the cursors of the aggregate and of the stream client are
 *    equal.
 * 2. If a power cut left a hole in the stream, the follower logs the hole and continues after it. The follower
 *    stops if the stream was replaced or restored from an older copy, or if uncounted lines expired;
 *    follower_trouble has the reason. With `accepts_loss`, the follower logs a restored copy or expired lines, and
 *    continues.
 * 3. While aggregate_is_full, the follower reads nothing. */
#ifndef MILLRACE_FOLLOWER_H
#define MILLRACE_FOLLOWER_H

#include "aggregator/count_watermark.h"

struct daemon;
struct follower;
struct http_client;
struct stream_place;

struct follower_config {
    struct daemon *daemon;
    struct http_client *client; /* must outlive the follower, or be freed first */
    struct aggregate *aggregate;
    struct count_watermark *watermark; /* gets the statements about the stream */
    size_t stream;                     /* an index of the aggregate */
    size_t max_line;
    bool accepts_loss;
    bool accepts_place; /* stream_client.h */
    uint64_t accept_from;
    void (*changed)(
        void *arg); /* called when the stream begins or catches up, or when follower_trouble changes */
    void *arg;
};

struct follower *follower_new(const struct follower_config *config);
void follower_free(struct follower **f);
/* Ends the subscription. */
void follower_stop(struct follower *f);
/* Reads again after aggregate_is_full has caused a pause. Call it when there may be room again. */
void follower_resume(struct follower *f);
bool follower_is_caught_up(const struct follower *f);
/* The place of the stream as of the latest response (stream_client.h): another one after each start of pubsub. */
const struct stream_place *follower_place(const struct follower *f);
/* The reason why no lines arrive, or NULL. *refused: the follower has stopped, until an operator acts. */
const char *follower_trouble(const struct follower *f, bool *refused);

#endif
