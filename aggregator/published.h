/* published: how far the streams go, asked of pubsub each second; so how far behind the counts are, and until when they
 * are complete (completeness.h).
 *
 * An answer counts only when every stream of ours in it has the id that is counted: the end of another stream under
 * the same name says nothing. The loop's thread only.
 */
#ifndef MILLRACE_PUBLISHED_H
#define MILLRACE_PUBLISHED_H

#include "aggregator/aggregate.h"

#define PUBLISHED_MAX_STREAMS 64

struct event_base;
struct http_client;
struct published;

struct published_config {
    struct event_base *base;
    struct http_client *client; /* freed before it: an answer under way comes no more then */
    const struct aggregate *aggregate;
    const char *const *streams; /* names, as long as it lives; in the aggregate's order */
    size_t n_streams;
};

/* Asks at once, and then each second. */
struct published *published_new(const struct published_config *config);
void published_free(struct published **p);

/* All that was published before is counted: by wall clock seconds; 0 until known. */
int64_t published_complete_until(struct published *p);
/* Bytes published and not yet counted, as last told. */
uint64_t published_lag(const struct published *p, size_t stream);

#endif
