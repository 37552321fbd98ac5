/* write_rate: the rate at which a table accepts writes, learned from its answers.
 *
 * A unit is what the table counts: one for each started KB of an item. Until a write is throttled, the rate has no limit. Then the
 * limit begins at the rate of the writes so far, and each answer moves it: accepted units raise it, throttled units
 * lower it ten times as much. The limit therefore settles just above the rate that the table allows,
 * where about a tenth of the units is throttled.
 *
 * 1. The limit rises only while it holds writes back, and faster the more units were accepted in a row.
 * 2. The limit is never below the rate that the table has accepted in the last seconds: answers to writes that were sent before
 *    a change of the limit come late, and would otherwise lower it too far. It is never below one unit a second, so a table
 *    that allows writes again is noticed.
 *
 * 3. If a lower limit lowers the accepted rate as well, a part of the writes is throttled at any rate, as by a partition with
 *    one hot key. The limit then returns, and for a while this part does not lower it.
 *
 * Times are monotonic. write_rate uses no clock. */
#ifndef MILLRACE_WRITE_RATE_H
#define MILLRACE_WRITE_RATE_H

#include "base/clock.h"

struct write_rate {
    double limit;               /* units a second; 0: none */
    double streak;              /* units accepted since the last throttled one */
    double accepted, throttled; /* units since `since` */
    usec_t since;               /* beginning of this window; 0: no write yet */
    double before;              /* units accepted in the window before */
    usec_t before_for;          /* length of the window before */
    double base;                /* part of the units that is throttled at any rate */
    usec_t base_at;             /* time when `base` was found */
    double ref_limit, ref_rate; /* an earlier limit, and the rate accepted then; 0: none */
    usec_t next;                /* time of the next write */
};

/* The units that a request should have at most, unless a single item has more: those of a second. Smaller requests learn faster. */
double write_rate_room(const struct write_rate *r);
/* Reserves `units`. Returns the time at which they may be written: `now` or later. */
usec_t write_rate_reserve(struct write_rate *r, double units, usec_t now);
/* Notes an answer with at least one unit. */
void write_rate_answer(struct write_rate *r, double accepted, double throttled, usec_t now);

#endif
