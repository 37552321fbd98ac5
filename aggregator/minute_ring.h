/* minute_ring: the events of the last two hours, by minute and in memory, for reads by minute (minute_read.h).
 *
 * The ring has one row for each event: the ids of its keys and members (the texts of counters.h), and its values. A
 * read looks through the rows of its minutes, and counts the rows that have its key. So an event costs one short copy,
 * however many counters count it. Nothing is stored: after a restart the ring is filled again from the stream
 * (minute_refill.h).
 *
 * 1. An event has one row, in the minute of its time. A late event has a row if its minute is still in the ring. An
 *    event more than MINUTE_RING_AHEAD minutes ahead of the present minute has no row.
 * 2. The ring *holds* each minute from minute_ring_from on: it has the row of every event of the minute that is
 *    counted. An earlier minute may have rows of some of its events, until the ring drops the minute.
 * 3. The rows and the names (5) have at most max_bytes. If they need more, the ring drops its oldest minute with rows,
 *    and minute_ring_from is then later than this minute. An event of a dropped minute has no row.
 * 4. A minute is dropped once it is MINUTE_RING_MINUTES older than the present minute.
 * 5. A row has the ids of the interner in use when the row was added. When the interner is replaced, the ring copies
 *    the stored forms of its texts (the names), and does not use the interner any longer.
 * 6. While the ring is held (minute_ring_hold), it drops nothing. Rows and names that minute_ring_parts has returned stay
 *    valid and unchanged, so that another thread can read them while events are added.
 *
 * Unique counters are not in the ring. Times are Unix seconds, minutes are Unix seconds divided by 60. Except for reads
 * of its parts, one thread uses the ring. */
#ifndef MILLRACE_MINUTE_RING_H
#define MILLRACE_MINUTE_RING_H

#include "counts/interner.h"

#define MINUTE_RING_MINUTES 120
#define MINUTE_RING_AHEAD 10
#define SECONDS_PER_MINUTE 60
#define MINUTE_COUNTS SIZE_MAX    /* a counter that adds 1 for each event */
#define MINUTE_NO_VALUE INT64_MIN /* the value of an event that adds nothing to a counter */

struct minute_ring;

struct minute_ring *minute_ring_new(size_t max_bytes);
void minute_ring_free(struct minute_ring **r);
/* Sets the numbers of ids and values in each row. Call minute_ring_set_row before the first event. */
void minute_ring_set_row(struct minute_ring *r, size_t n_texts, size_t n_values);
/* Sets the interner of the ids of later events. Call minute_ring_set_texts while the former interner still exists. */
void minute_ring_set_texts(struct minute_ring *r, const struct interner *texts);
void minute_ring_set_now(struct minute_ring *r, int64_t now);
/* Adds an event. */
void minute_ring_add(struct minute_ring *r, int64_t time, const uint32_t *ids, const int64_t *values);

/* States that the ring has got, or will get, every counted event of the minutes from `minute` on. */
void minute_ring_cover(struct minute_ring *r, int64_t minute);
int64_t minute_ring_from(const struct minute_ring *r);
size_t minute_ring_bytes(const struct minute_ring *r);
void minute_ring_hold(struct minute_ring *r, bool hold);

/* Some rows of a minute. */
struct minute_part {
    int64_t minute;
    const char *rows;
    size_t n, row_bytes;
    const struct interner *texts; /* the interner of the ids; NULL: replaced */
    const char (*names)
        [COMPONENT_HASH]; /* the stored forms of the ids, padded with NUL, if the interner was replaced */
    uint32_t n_ids;       /* all ids of the part are below this number */
};
/* The values of a row come before its ids. */
static inline const uint32_t *minute_row_ids(const char *row, size_t n_values)
{
    return (const uint32_t *)(const void *)(row + n_values * sizeof(int64_t));
}
/* Returns the parts of the minutes from `from` on and before `to`; parts with the same ids are neighbours. The caller
 * frees the array. */
struct minute_part *minute_ring_parts(const struct minute_ring *r, int64_t from, int64_t to, size_t *n);

#endif
