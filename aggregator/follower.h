/* follower: keeps one stream of a pubsub flowing into the aggregate, by a stream client (stream_client.h).
 *
 * 1. Only whole lines are counted; the aggregate's cursor and the stream client's are the same at every callback's end.
 * 2. A hole is crossed and reported. What the stream client refuses (another stream, one that is shorter or gone) is not
 *    counted: follower_trouble says why.
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
    void (*changed)(void *arg); /* lines came, it caught up, or got into trouble or out of it */
    void *arg;
};

struct follower *follower_new(const struct follower_config *config);
void follower_free(struct follower **f);
/* No more is asked and nothing more is counted. */
void follower_stop(struct follower *f);
/* Goes on when aggregate_is_full was why it paused. */
void follower_resume(struct follower *f);
bool follower_is_caught_up(const struct follower *f);
/* NULL, or why nothing comes. *refused: for a reason that waiting does not heal. */
const char *follower_trouble(const struct follower *f, bool *refused);

#endif
