/* served: what the daemon keeps beside each queue (named_queue_data): who waits at it, and what was counted and told of it. */
#ifndef SIMPLEQUEUE_SERVED_QUEUE_H
#define SIMPLEQUEUE_SERVED_QUEUE_H

#include "simplequeue/server/overflow.h"
#include "simplequeue/server/load_wait.h"
#include "simplequeue/server/long_poll.h"

struct stats_counter;

struct served_queue {
    struct poll_line line;
    struct load_line loads;
    struct room_line room;
    char id_line[sizeof "X-Millrace-Queue-Id: \r\n" + JOURNAL_ID_TEXT]; /* of every reply that is about it */
    size_t id_line_len;
    struct stats_counter *overflowed, *rejected;
    bool disk_full_logged;             /* the log says that the disk is full; */
    usec_t log_disk_full_at;           /* when it may say that next */
    bool overflow_failure_logged;      /* and that the overflow log fails; */
    usec_t log_overflow_at;            /* and when it may say that next */
    uint64_t puts_before, gets_before; /* /stats?reset=1: those that it does not count any more */
};
static inline struct served_queue *served_of(const struct named_queue *q)
{
    return named_queue_data(q);
}

/* A queue is there, recovered or made: it has a served from here on, and the log and /metrics know it. */
void served_queue_open(struct queue_server *server, struct named_queue *q);
/* A put to the queue was refused: `rejected` counts it if that was for want of room. */
void served_queue_count_refused(const struct named_queue *q, enum queue_result why);
/* The queues are about to be freed, their clients are gone. */
void served_queue_close_all(struct queue_server *server);

#endif
