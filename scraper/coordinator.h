/* coordinator: this scraper's session with ZooKeeper, through which scrapers share their targets (share.h).
 *
 *     PATH/scrapers/NAME    ephemeral: a live scraper
 *     PATH/targets/NAME     texts in the form of a file of targets
 *
 * A *round* asks, in this order: the leader for an answer (sync), for the scraper's own node, and for the list of nodes. A
 * round runs several times in the session's timeout, and at once after ZooKeeper has reported a change.
 *
 * 1. A round whose three answers have come renews the lease, counted from the moment before its first request. The list of
 *    members is as new as that moment, also if the server is behind its leader. A round changes members and lease at once.
 * 2. The scraper is a member only while its node belongs to its session. If another process has the node, for example
 *    this scraper before it was killed, the scraper waits until the node is gone.
 * 3. An expired session is replaced. Until the new session has a node, the lease is over.
 * 4. Everything runs in the loop, and nothing blocks it: the library gets only addresses, which target_names resolves in its
 *    thread. Only coordinator_free may wait, at most 5 s, until ZooKeeper has removed the node. */
#ifndef MILLRACE_COORDINATOR_H
#define MILLRACE_COORDINATOR_H

#include "base/clock.h"

struct coordinator;
struct event_base;
struct share;
struct stats;
struct target_files;
struct target_names;

#define COORDINATOR_PORT 2181 /* of a server without a port */

struct coordinator_config {
    struct event_base *base;
    struct target_names *names; /* freed after the coordinator, as the following two */
    struct share *share;        /* the coordinator sets members and lease */
    struct target_files *files; /* the coordinator sets the nodes */
    const char *servers;        /* HOST:PORT,...; borrowed, as the following two */
    const char *path, *name;
    usec_t timeout; /* of the session; the servers may choose another */
    struct stats *stats;
    void (*on_change)(void *arg); /* the share or the nodes have changed */
    void *arg;
};

struct coordinator *coordinator_new(const struct coordinator_config *config);
/* Ends the session, so that other scrapers take the targets at once. */
void coordinator_free(struct coordinator **c);
/* Call after target_names has reported a change. */
void coordinator_resolve(struct coordinator *c);
/* Returns NULL, or the reason why the lease is not certain. The text is valid until the loop's turn ends. */
const char *coordinator_trouble(const struct coordinator *c);

#endif
