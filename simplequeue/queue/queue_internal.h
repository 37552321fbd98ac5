/* queue_internal: what queue.c and queue_spill.c share. Only they include it. */
#ifndef SIMPLEQUEUE_QUEUE_INTERNAL_H
#define SIMPLEQUEUE_QUEUE_INTERNAL_H

#include "simplequeue/queue/reader_fencing.h"
#include "simplequeue/queue/queue.h"

#include <uthash.h>

/* The first member of what message.owner points to. Ready and pending messages have no owner. */
enum owner_kind { OWNER_LEASE, OWNER_DELAY, OWNER_BURIAL };

struct lease {
    enum owner_kind kind;
    struct queue_timer timer; /* timer.id is the number */
    UT_hash_handle hh;        /* by timer.id */
    bool ended;               /* freed once its busy messages are decided */
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
    /* Set aside by queue_take or queue_block_reserves. Ids whose message is not busy any more are skipped. */
    struct id_heap taken;
    uint64_t demand;   /* requests wait for messages up to this id: none of them is spilled */
    uint64_t demanded; /* the same, of the load before */
    uint64_t spill_at; /* memory from which on spilling is tried again */
    struct lease *leases;
    struct reader_fencing fencing;
    struct queue_timer pause;
    uint64_t last_lease;
    char reader[NAME_LEN_MAX + 1];
};

#endif
