/* period_walk: reads the smallest set of records that covers a time range of one subtotal.
 *
 * An archive has rollups beside the hours of a subtotal (docs/formats/records.md): a day is the sum of its hours, and a
 * month is the sum of its days. An hour may be the sum of its quarter hours. A rollup comes before the records of the
 * periods inside it. Therefore the walk reads the records in order. After the walk returns a rollup, it skips the
 * periods inside the rollup.
 *
 * 1. The records of a walk do not overlap. Together, the records have every count of the range.
 * 2. Each record lies within the range, with one exception: a day whose hours the archive no longer has (compactor
 *    --drop-hours-before), or an hour that was not counted by quarter hour. The walk returns such a record even if only a
 *    part of the period lies in the range, because the counts of the part are unknown.
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

/* `start` and `end` are keys of one subtotal: the range is from the beginning of the period of `start` to the hour or
 * quarter hour of `end`, inclusive. Periods longer than `largest` are returned only if the archive has no parts of them.
 * Both keys are borrowed until the walk ends. Returns false if the keys are not of one subtotal, or if `end` is a day or
 * month. */
bool period_walk_init(struct period_walk *w, struct bytes start, struct bytes end, enum period_unit largest);
/* Sets the text to search. Call period_walk_begin before the first period_walk_next. */
void period_walk_begin(struct period_walk *w, const struct sorted_text *text);
/* Sets *line to the next record's line, with the LF if the line has an LF. Returns false at the end. */
bool period_walk_next(struct period_walk *w, struct bytes *line);

#endif
