/* front: what the daemon keeps beside each queue (named_queue_data): who waits at it, and what was counted and told of it. */
#ifndef SIMPLEQUEUE_FRONT_H
#define SIMPLEQUEUE_FRONT_H

#include "simplequeue/server/overflow.h"
#include "simplequeue/server/parked.h"
#include "simplequeue/server/waiting.h"

struct stats_counter;

struct front {
    struct waiting_line line;
    struct parked_line parked;
    struct room_line room;
    char id_line[sizeof "X-Millrace-Queue-Id: \r\n" + JOURNAL_ID_TEXT]; /* of every reply that is about it */
    size_t id_line_len;
    struct stats_counter *overflowed, *rejected;
    bool told_full;                    /* the log says that the disk is full; */
    usec_t tell_full_at;               /* when it may say that next */
    bool told_overflow;                /* and that the overflow log fails; */
    usec_t tell_overflow_at;           /* and when it may say that next */
    uint64_t puts_before, gets_before; /* /stats?reset=1: those that it does not count any more */
};
static inline struct front *front_of(const struct named_queue *q)
{
    return named_queue_data(q);
}

/* A queue is there, recovered or made: it has a front from here on, and the log and /metrics know it. */
void front_open(struct app *app, struct named_queue *q);
/* A put to the queue was refused: `rejected` counts it if that was for want of room. */
void front_count_refused(const struct named_queue *q, enum queue_result why);
/* The queues are about to be freed, their clients are gone. */
void front_close_all(struct app *app);

#endif
