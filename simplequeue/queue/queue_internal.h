/* queue_internal: what the queue's own files share. Nobody else includes it. */
#ifndef SIMPLEQUEUE_QUEUE_INTERNAL_H
#define SIMPLEQUEUE_QUEUE_INTERNAL_H

#include "simplequeue/queue/reader_fencing.h"
#include "simplequeue/queue/queue.h"

#include <uthash.h>

/* What message.owner points to begins with this. A ready or pending message has no owner. */
enum owner_kind { OWNER_LEASE, OWNER_DELAY, OWNER_BURIAL };

struct lease {
    enum owner_kind kind;
    struct queue_timer timer; /* timer.id is the number */
    UT_hash_handle hh;        /* by timer.id */
    bool ended;               /* only waits for what is busy */
    size_t leased, busy;      /* messages under it, by state */
    size_t n;
    uint64_t ids[]; /* rising */
};

struct delay {
    enum owner_kind kind;
    struct queue_timer timer; /* timer.id is the message's id */
};

struct burial {
    enum owner_kind kind;
    struct queue_burial info;
    char reason[];
};

/* A binary min-heap of ids. */
struct id_heap {
    uint64_t *ids;
    size_t n, cap;
};

#define QUEUE_MAGIC 0x7175e0e1u

struct queue {
    unsigned magic;
    struct queue_shared *shared;
    void *owner;
    struct store store;
    struct queue_state state;
    uint64_t frontier; /* no message below it is ready */
    /* Set aside by queue_take or queue_block_reserves; an id whose message is not busy any more is passed over. */
    struct id_heap taken;
    uint64_t demanded; /* what demand was before something was loaded */
    uint64_t demand;   /* no id up to here is spilled: somebody waits for what is ready before it */
    uint64_t spill_at; /* memory at which spilling is worth another try */
    struct lease *leases;
    struct reader_fencing fencing;
    struct queue_timer pause;
    uint64_t last_lease;
    char reader[NAME_LEN_MAX + 1];
};

#endif
