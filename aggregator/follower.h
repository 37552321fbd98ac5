/* follower: keeps one stream of a pubsub flowing into the aggregate.
 *
 * Asks /sub from the aggregate's cursor and never ends: what breaks is asked again, from the cursor, with backoff.
 *
 * 1. Only whole lines are counted; the cursor stands behind the last one, so asking again from it repeats nothing.
 * 2. The stream's id goes with every request: bytes of another stream are never counted under this one's offsets.
 * 3. A hole (410) is crossed and reported. A stream that is another (409), shorter than what is counted (416),
 *    or gone after it was counted (404) is refused: nothing of it is counted, follower_trouble says why, and it
 *    is asked again now and then, since an operator may put the right one in its place.
 * 4. Caught up, once and for all, is: counted up to the end that the first answer told. A stream that does not
 *    exist and never was counted is caught up.
 */
#ifndef MILLRACE_FOLLOWER_H
#define MILLRACE_FOLLOWER_H

#include "aggregate.h"

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
