/* share: which targets this scraper has, and until when.
 *
 * Each member has a seed, and a target belongs to the member with the highest hash of seed and target (rendezvous hashing).
 * Members are either the shards 1 to N of a setting, or the scrapers that hold a node in a coordinator.
 *
 * 1. Each target belongs to one member. A member that comes or goes moves only its own targets.
 * 2. A scraper begins a scrape only while its lease is *certain*. The coordinator counts a session's timeout from its
 *    last request, so a request that was answered proves the session for `timeout` from its sending. In a group of
 *    servers the leader decides, and hears of a request up to a quarter of the timeout late. So the lease ends at two
 *    thirds of the timeout, by clock_boot: before the targets can belong to another scraper, also if the process was
 *    stopped meanwhile.
 * 3. Scrapers need not agree about the members. Two scrapers with one target publish the same times, and readers of
 *    the stream drop a sample that is not later than the last of its series.
 *
 * The core knows neither the coordinator nor clocks. */
#ifndef MILLRACE_SHARE_H
#define MILLRACE_SHARE_H

#include "base/bytes.h"
#include "base/clock.h"

struct share {
    uint64_t *seeds; /* of the members, in ascending order */
    size_t n, own;   /* `own`: the index of this scraper's seed; n: this scraper is not a member */
    usec_t until;    /* the end of the lease, clock_boot */
};

/* Sets a share without end: shard 1 to `n_shards`. */
void share_set_shard(struct share *s, unsigned shard, unsigned n_shards);
/* Sets the members by their names, in any order. `own` NULL: this scraper is not among them. Returns true if
 * the targets of this scraper may have changed. */
bool share_set_members(struct share *s, const char *const *names, size_t n, const char *own);
/* Extends the lease: a request sent at `sent` was answered, and the session's timeout is `timeout`. */
void share_renew(struct share *s, usec_t sent, usec_t timeout);
/* Ends the lease: the session is over, or the node belongs to another process. */
void share_lose(struct share *s);
bool share_is_certain(const struct share *s, usec_t now);
/* True if the target with this hash belongs to this scraper. */
bool share_has(const struct share *s, uint64_t target);
void share_free(struct share *s);

#endif
