/* queue_openings: a list of the queue's openings (runs of the daemon, journal/opening.h) in which message ids were
 * assigned. The list is in memory. The OPEN records of the journal contain copies of the list.
 *
 * 1. The first ids of the openings ascend, so each id belongs to one opening. When an opening begins, the list deletes
 *    earlier openings without ids.
 * 2. The list contains the latest QUEUE_OPENINGS_MAX openings. The queue refuses marks of older or unknown openings.
 * 3. Ids that were skipped after a hole of the journal belong to no opening (""). No queue has other messages with
 *    these ids.
 *
 * The mark M of a destination names the opening of message M - 1. A mark belongs to the queue's past in
 * these cases:
 *
 * - The list contains the named opening, and M is at most the first id of the next opening.
 * - The queue skipped the id M - 1.
 *
 * In all other cases the queue is a copy, and the destination has messages of the queue that was copied. */
#ifndef SIMPLEQUEUE_QUEUE_OPENINGS_H
#define SIMPLEQUEUE_QUEUE_OPENINGS_H

#include "journal/opening.h"

#define QUEUE_OPENINGS_MAX 256

struct queue_opening {
    uint64_t first; /* the first id of the opening */
    char opening[OPENING_TEXT];
};

struct queue_openings {
    struct queue_opening at[QUEUE_OPENINGS_MAX]; /* the oldest first */
    size_t n;
};

/* Adds an opening to which the ids from `first` on belong; "": these ids belong to no opening. Has no effect if the
 * last opening in the list is the same. */
void queue_openings_add(struct queue_openings *o, const char *opening, uint64_t first);

/* Returns the opening of the id, or the oldest opening for a lower id, or NULL if the list is empty. */
const struct queue_opening *queue_openings_of(const struct queue_openings *o, uint64_t id);
/* Returns the first id of the opening after `of`, or UINT64_MAX if `of` is the last opening or NULL. */
uint64_t queue_openings_end(const struct queue_openings *o, const struct queue_opening *of);

struct queue_difference {
    uint64_t from;   /* the first id whose message differs between the copies; at most the mark */
    bool is_certain; /* false: `from` was found by comparing the times of openings (opening.h) */
};
/* Returns true if the mark belongs to the past of a queue with this next id. If false, fills *out. A mark without an
 * opening, which an operator has set, is only compared with the next id. */
bool queue_openings_is_past(const struct queue_openings *o, uint64_t next_id, uint64_t mark,
    struct bytes opening, struct queue_difference *out);

#endif
