/* follower: feeds one stream of a pubsub to the aggregate, by a stream client (stream_client.h).
 *
 * 1. Only whole lines are counted. At the end of every callback the aggregate's cursor equals the stream client's.
 * 2. A hole is crossed and logged. A stream that the stream client refuses (another one, a shorter one, a deleted one) is not
 *    counted; follower_trouble has the reason.
 * 3. While aggregate_is_full nothing is read.
 */
#ifndef MILLRACE_FOLLOWER_H
#define MILLRACE_FOLLOWER_H

#include "aggregator/aggregate.h"

struct event_base;
struct follower;
struct http_client;

struct follower_config {
    struct event_base *base;
    struct http_client *client; /* must outlive it, or be freed first */
    struct aggregate *aggregate;
    size_t stream; /* its index in the aggregate */
    size_t max_line;
    void (*changed)(void *arg); /* it began, caught up, or its trouble changed */
    void *arg;
};

struct follower *follower_new(const struct follower_config *config);
void follower_free(struct follower **f);
/* Ends the subscription. */
void follower_stop(struct follower *f);
/* Resumes after a pause for aggregate_is_full. */
void follower_resume(struct follower *f);
bool follower_is_caught_up(const struct follower *f);
/* NULL, or why no lines arrive. *refused: waiting does not help. */
const char *follower_trouble(const struct follower *f, bool *refused);

#endif
