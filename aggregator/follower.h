/* follower: subscribes to one stream at pubsub with a stream client (stream_client.h) and feeds its lines to the aggregate.
 *
 * 1. Only whole lines are counted. At the end of every callback the aggregate's cursor equals the stream client's.
 * 2. The follower logs and crosses a hole that a power cut left. It stops at a stream that was replaced, cut short, deleted or
 *    restored from an older copy, and at lines that expired before they were counted; follower_trouble has the reason. With
 *    `accepts_loss` the last two are logged and crossed.
 * 3. While aggregate_is_full, the follower reads nothing.
 */
#ifndef MILLRACE_FOLLOWER_H
#define MILLRACE_FOLLOWER_H

#include "aggregator/aggregate.h"

struct daemon;
struct follower;
struct http_client;

struct follower_config {
    struct daemon *daemon;
    struct http_client *client; /* must outlive the follower, or be freed first */
    struct aggregate *aggregate;
    size_t stream; /* an index of the aggregate */
    size_t max_line;
    bool accepts_loss;
    void (*changed)(void *arg); /* called when the stream begins, catches up, or its trouble changes */
    void *arg;
};

struct follower *follower_new(const struct follower_config *config);
void follower_free(struct follower **f);
/* Ends the subscription. */
void follower_stop(struct follower *f);
/* Resumes after a pause for aggregate_is_full. */
void follower_resume(struct follower *f);
bool follower_is_caught_up(const struct follower *f);
/* The reason why no lines arrive, or NULL. *refused: the stream was refused, and only an operator can help. */
const char *follower_trouble(const struct follower *f, bool *refused);

#endif
