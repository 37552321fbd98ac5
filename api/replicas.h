/* replicas: the hosts that serve one archive, and the choice of the host for a question.
 *
 * `millrace distribute` copies generations to other hosts, whose sortdbs then serve the same archive. Each reply names
 * its generation and the last slice that this generation includes.
 *
 * 1. A question reads the archive from one host, in one generation. The request to the aggregator names the last slice of
 *    this generation, and the aggregator refuses a slice that it has cleared (source.h). So counts of slices are exact
 *    with any generation.
 * 2. Imports and removals change counts without slices. Therefore only hosts whose latest reply has the *newest*
 *    generation are asked: the highest of the latest replies of all hosts. No later answer is from an older generation.
 *    The latest reply of a host that is away counts too. After an operator has returned to an older generation, the
 *    hosts with a newer generation are asked until they serve the older one.
 * 3. Hosts that have the newest generation with different counts serve different archives, so no reply of them is used
 *    until they agree.
 * 4. Before the first reply, the host that is named first is asked. This host decides which archive is read: a host with
 *    the streams of another pipeline is *foreign*, and is not asked.
 * 5. A host is *away* after a failed request, until it replies. A host that is away is asked only if no other host has the
 *    newest generation. The checks of readiness.h find out that a host replies again, or has another generation.
 *
 * An archive with one host is asked at this host in any generation. */
#ifndef MILLRACE_REPLICAS_H
#define MILLRACE_REPLICAS_H

#include "base/bytes.h"
#include "base/clock.h"
#include "base/error.h"

#define REPLICAS_MAX 8
#define REPLICAS_NONE SIZE_MAX

struct http_reply_view;

struct replica {
    char *url;
    uint64_t generation; /* of the latest reply; 0: no reply, or the empty archive */
    uint64_t content;    /* checksum of this generation (manifest_content); 0: not known */
    uint64_t pipeline;   /* checksum of its streams (manifest_pipeline); 0: not known */
    usec_t replied_at;   /* time of this reply; 0: none */
    bool is_away;
};
struct replicas {
    size_t n;
    size_t turn; /* the host after the last one that was asked */
    struct replica list[REPLICAS_MAX];
};

/* Reads addresses, separated by spaces or commas. Without an error, the caller frees *out with replicas_free. `out` may
 * be NULL, for a check. Returns 0, or -1 with the error. */
int replicas_read(const char *urls, struct replicas *out, struct error *error);
void replicas_free(struct replicas *r);

/* Returns the host to ask, or REPLICAS_NONE. Omits the hosts whose bit (1 << index) is in `but`. */
size_t replicas_choose(const struct replicas *r, unsigned but);
/* Stores the generation of a reply. Of replies that overtake each other, the highest generation counts. Returns false if the
 * reply does not have the newest generation, another host has this generation with other counts, or the host is foreign. */
bool replicas_replied(struct replicas *r, size_t host, const struct http_reply_view *reply);
void replicas_failed(struct replicas *r, size_t host);
/* Appends the hosts whose replies are not used: "URL is away, URL has generation 7, not 8, URL has another generation 8 than
 * the other hosts". */
void replicas_describe(const struct replicas *r, struct buf *out);

#endif
