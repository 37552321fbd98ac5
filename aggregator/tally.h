/* tally: what one line of a stream adds to the counts.
 *
 * 1. An event adds one to one row of every total and one row of every subtotal, and puts a lookup for every
 *    hashed component among them; a line that is skipped or rejected adds nothing.
 * 2. So the counts under one hour of a subtotal add up to the total's count of that hour.
 * One thread.
 */
#ifndef MILLRACE_TALLY_H
#define MILLRACE_TALLY_H

#include "aggregator/count_map.h"
#include "counts/counters.h"

struct tally;

struct tally *tally_new(const struct counters *counters); /* counters must outlive it */
void tally_free(struct tally **t);

/* Of COUNTERS_REJECTED *reason is set, valid until the next line. */
enum counters_verdict tally_line(
    struct tally *t, struct bytes line, struct count_map *rows, const char **reason);
/* Lookups that met another text under their hash in the map. */
uint64_t tally_collisions(const struct tally *t);

#endif
