/* click_feed: generated clicks with the fields of bitly's public feed, one JSON object a line.
 *
 * 1. The same settings produce the same bytes on every machine: integers only, no clock, no locale.
 * 2. A link belongs to one user and has one address. Users, links, countries and referrers are Zipf-distributed.
 * 3. Times rise from `start` to before `end` with a daily rhythm, a few seconds out of order.
 * 4. The sample configuration (etc/clicks.conf) must reject a damaged line. A hostile line is valid and has a key that is hard to store:
 *    reserved bytes, control bytes, long, not ASCII, or at the limit of hashing.
 */
#ifndef MILLRACE_CLICK_FEED_H
#define MILLRACE_CLICK_FEED_H

#include "base/bytes.h"

#define FEED_MILLION 1000000 /* shares are parts per million */

struct feed_settings {
    uint64_t events, seed;
    int64_t start, end; /* unix seconds; start < end */
    size_t users, links, countries, referrers;
    unsigned zipf_milli;
    uint32_t heartbeats, damaged, hostile; /* shares of the lines, in parts per million */
};

struct click_feed;
struct click_feed *click_feed_new(const struct feed_settings *settings);
void click_feed_free(struct click_feed **f);
/* Appends the next line with its LF; false, and nothing appended, after the last. `events` counts every line. */
bool click_feed_next(struct click_feed *f, struct buf *out);

#endif
