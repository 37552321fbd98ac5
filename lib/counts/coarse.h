/* coarse: the time span in which a counter has counts of whole days or months, each stored as the count of one hour.
 *
 * An import of counts by day (docs/guide/import.md) adds the count of a day to the day's first hour. The manifest
 * keeps a span for each counter and unit: the time from the first imported unit to the end of the last one. Answers
 * mark each row in this span whose bounds cut a unit.
 *
 * 1. Spans of one counter and unit are joined, also across a gap. The zone of a joined span is "" if the zones of its
 *    parts differ.
 * 2. The text of a counter's spans, such as "day 1704067200 1706745600 UTC", is the same in the manifest and in replies.
 */
#ifndef MILLRACE_COARSE_H
#define MILLRACE_COARSE_H

#include "base/bytes.h"
#include "counts/counted_since.h"

#define COARSE_ZONE_TEXT 65 /* buffer for the name of a zone */

enum coarse_unit { COARSE_DAY, COARSE_MONTH, COARSE_UNITS };

struct coarse_span {
    int64_t from, to;            /* Unix seconds; `to` is 0 if no unit was imported */
    char zone[COARSE_ZONE_TEXT]; /* zone of the units; "": not known, or several zones */
};

/* The spans of one counter. */
struct coarse_counter {
    struct coarse_span of[COARSE_UNITS];
};

struct coarse {
    size_t n;
    struct {
        char ns[COUNTED_SINCE_NS_TEXT];
        struct coarse_counter counter;
    } * list;
};

const char *coarse_unit_name(enum coarse_unit unit);
/* Joins a span to the span of the counter and unit. */
void coarse_add(struct coarse *c, struct bytes ns, enum coarse_unit unit, const struct coarse_span *span);
/* Adds all spans of another list. */
void coarse_join(struct coarse *c, const struct coarse *more);
/* Joins the spans of one counter in two archives. */
void coarse_counter_join(struct coarse_counter *counter, const struct coarse_counter *more);
/* Shortens the spans of a counter whose counts before `time` are dropped. A remainder that is shorter than the
 * shortest day (23 hours) or month (28 days) is dropped, too, because its unit began before `time`. */
void coarse_drop_before(struct coarse_counter *counter, int64_t time);
/* Returns the spans of a counter. All zero: the counter has no span. */
struct coarse_counter coarse_of(const struct coarse *c, struct bytes ns);
void coarse_free(struct coarse *c);

/* Appends the text of a counter's spans, which is empty without spans. */
void coarse_print(const struct coarse_counter *counter, struct buf *out);
/* Reads the text of coarse_print. Returns false if the text is malformed. */
bool coarse_read(struct bytes text, struct coarse_counter *out);

#endif
