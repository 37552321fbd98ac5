/* period_walk: reads the fewest records that make up a range of one subtotal's hours.
 *
 * An archive has rollups beside the hours of a subtotal (docs/formats/records.md): a day is the sum of its hours, a month the sum of its
 * days. A record comes after the records of its enclosing periods. So the walk goes through the records in order, and after a rollup
 * that it takes it continues behind the hours and days of that rollup.
 *
 * 1. The records of a walk do not overlap. Together they have every count of the range.
 * 2. A record lies in the range as a whole, except for a day of which the archive has no hours (compactor --drop-hours-before). Such a
 *    day is also returned if only a part of it lies in the range, because its counts in the range are unknown.
 * 3. A walk of a year takes about a hundred searches.
 */
#ifndef MILLRACE_PERIOD_WALK_H
#define MILLRACE_PERIOD_WALK_H

#include "archive/sorted_text.h"
#include "counts/records.h"

struct period_walk {
    const struct sorted_text *text;
    struct bytes prefix; /* "c.u|jehiah."; borrowed */
    int64_t from, to;
    enum period_unit largest;
    size_t at;
};

/* `start` and `end` are keys of one subtotal: the range is from the first hour of the period of `start` to the hour of `end`, inclusive.
 * Periods over `largest` are not returned. Both keys are borrowed until the walk ends. False: the keys are not of one subtotal, or `end`
 * is not an hour. */
bool period_walk_init(struct period_walk *w, struct bytes start, struct bytes end, enum period_unit largest);
/* Before the first record: the text to search. */
void period_walk_begin(struct period_walk *w, const struct sorted_text *text);
/* The next record's line, with its LF if it has one. False at the end. */
bool period_walk_next(struct period_walk *w, struct bytes *line);

#endif
