/* queue_openings: the openings of a queue (journal/opening.h) that assigned message ids. In memory only: the OPEN records of
 * the journal contain the list.
 *
 * 1. The first ids ascend, so each id belongs to one opening. An opening without ids falls away when the next one begins.
 * 2. The list has the latest QUEUE_OPENINGS_MAX openings. The queue refuses marks of older openings, as of unknown ones.
 *
 * 3. Ids that were skipped after a hole of the journal belong to no opening (""). No queue has other messages with these ids.
 *
 * The mark M of a destination names the opening that assigned message M - 1. The mark is of the queue's past if the queue knows the
 * opening, and M is not above the first id of the next one, or if M - 1 was skipped. Otherwise the queue is a copy, and the
 * destination has messages of the original. */
#ifndef SIMPLEQUEUE_QUEUE_OPENINGS_H
#define SIMPLEQUEUE_QUEUE_OPENINGS_H

#include "journal/opening.h"

#define QUEUE_OPENINGS_MAX 256

struct queue_opening {
    uint64_t first; /* id */
    char opening[OPENING_TEXT];
};

struct queue_openings {
    struct queue_opening at[QUEUE_OPENINGS_MAX]; /* the oldest first */
    size_t n;
};

/* Ids from `first` on belong to the opening; "": to none. No effect for the opening that the list ends with. */
void queue_openings_add(struct queue_openings *o, const char *opening, uint64_t first);

/* The opening that assigned the id, or the oldest in the list. NULL: the list is empty. */
const struct queue_opening *queue_openings_of(const struct queue_openings *o, uint64_t id);
/* The first id after those of this opening. UINT64_MAX: it is the latest, or NULL. */
uint64_t queue_openings_end(const struct queue_openings *o, const struct queue_opening *of);

struct queue_difference {
    uint64_t from;   /* messages from this id on differ; at most the mark */
    bool is_certain; /* false: found by the clocks (opening.h) */
};
/* Whether the mark is of the past of a queue with this next id. False: *out is filled. An operator sets marks without an
 * opening, so these are only compared with the next id. */
bool queue_openings_is_past(const struct queue_openings *o, uint64_t next_id, uint64_t mark,
    struct bytes opening, struct queue_difference *out);

#endif
