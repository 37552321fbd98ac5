/* queues: the named queues of a daemon. With a data directory, DATA_DIR/queues/NAME/ is the journal of NAME.
 *
 * 1. queues_get creates queues. No function deletes a queue. If a creation fails, queues_get removes the new directory,
 *    because a later start on a full disk could not create a journal in it.
 * 2. Each call of queues_recover opens one queue of the directory. Call no other function before queues_recover returns
 *    QUEUES_RECOVERED.
 * 3. All queues share one heap of deadlines. queues_next_deadline and queues_tick handle the leases, delays and pauses
 *    of all queues.
 * 4. queues_may_add checks the first put of a queue before the queue exists. A refused first put therefore leaves an
 *    empty queue only if another program fills the disk between the check and the put.
 * 5. No queue is created after the data directory was moved, because a new directory at the old path would be neither
 *    locked nor complete.
 * 6. No queue is created if it would use descriptors that connections need. At the start, all existing queues are
 *    opened. */
#ifndef SIMPLEQUEUE_QUEUES_H
#define SIMPLEQUEUE_QUEUES_H

#include "simplequeue/queue/named_queue.h"

#define QUEUES_DEFAULT "default"

struct queues;

struct queues_config {
    const char *data_dir; /* NULL: memory only */
    struct queue_limits limits;
    size_t max_queues;
    bool restored;                      /* data_dir is a restored copy: give each queue a new id */
    int64_t sync_ms;                    /* sync interval of the journals, as in journal_set_config */
    uint64_t segment_bytes;             /* 0: the journal's default */
    bool (*owns)(const char *data_dir); /* returns true if the daemon still has the lock; NULL: assume true */
    int (*descriptors)(void);           /* returns the maximum number of open files; NULL: unlimited */
    void (*notify)(void *arg);          /* called when journal_set_poll of queues_journals is due */
    void *notify_arg;
    void (*on_new)(struct named_queue *q, void *arg);   /* called for each new queue; may be NULL */
    void (*on_ready)(struct named_queue *q, void *arg); /* see named_queue_config */
    void (*on_stray)(const char *name, void *arg); /* called for a file instead of a directory; may be NULL */
    void *hook_arg;
};

/* With the setting `restored`, checks that the directory contains queues, so that a mistyped path is not created as an
 * empty directory. Returns 0, or -1 with the error. */
int queues_check_copy(const char *data_dir, char *error, size_t error_size);

/* Returns NULL with the error and errno if the directory cannot be created or read. */
struct queues *queues_new(const struct queues_config *config, char *error, size_t error_size);
/* Commits the operations in progress, calls their `done`, and closes all queues. */
void queues_free(struct queues **qs);

/* QUEUES_RETRY: the disk is full, or no file descriptor is free. A later start may succeed. */
enum queues_recovery { QUEUES_RECOVERED, QUEUES_MORE, QUEUES_RETRY, QUEUES_FAILED };
/* Opens the next queue of the directory, and blocks meanwhile. The last call also waits until the journals have
 * committed all records of the recovery. */
enum queues_recovery queues_recover(struct queues *qs, struct queue_now now, char *error, size_t error_size);
size_t queues_unopened(const struct queues *qs); /* number of queues that are not yet opened */

/* The put that would create a queue. All fields are zero for a release or a pause. */
struct first_put {
    size_t n; /* number of messages */
    uint64_t bytes;
    bool late;     /* the put is delayed */
    uint64_t mark; /* the mark that the producer expects; in a new queue all marks are 0 */
};
/* Returns QUEUE_OK if another queue may be created and would accept the messages of the put. Ignores the mark. */
enum queue_result queues_may_add(const struct queues *qs, const struct first_put *put);

/* Returns the queue with this name, or NULL if it does not exist. */
struct named_queue *queues_find(const struct queues *qs, const char *name);
/* Returns the queue and creates it if needed. A creation blocks for several syncs (see queue_creation.h). If the
 * creation fails, returns NULL with *result and, for a system error, the error text. */
struct named_queue *queues_get(struct queues *qs, const char *name, struct queue_now now,
    enum queue_result *result, char *error, size_t error_size);
struct named_queue *queues_at(const struct queues *qs, size_t i); /* queue i in the order of names */
size_t queues_count(const struct queues *qs);
size_t queues_max(const struct queues *qs);
/* Returns the number of queues that can be open without using descriptors that connections need; SIZE_MAX without a
 * data directory. */
size_t queues_descriptor_limit(const struct queues *qs);
/* Returns the number of descriptors for n queues and the daemon's own files. */
size_t queues_descriptors_for(size_t n);

const struct queue_limits *queues_limits(const struct queues *qs);
/* Returns the bytes of memory that the messages of all queues use. */
uint64_t queues_memory(const struct queues *qs);
/* Returns the journals of all queues, or NULL without a data directory. */
struct journal_set *queues_journals(struct queues *qs);

/* Ends all erasures. Call queues_stop_erasures before queues_flush when the daemon stops. */
void queues_stop_erasures(struct queues *qs);
/* Waits until every operation in progress is committed or refused. Only for the daemon's stop and for tests. */
void queues_flush(struct queues *qs);
/* Stores the earliest deadline of all queues. Returns false if no queue has a deadline. */
bool queues_next_deadline(const struct queues *qs, usec_t *deadline);
/* Handles deadlines that have passed, at most TICK_TIMERS_MAX per call, so that the call does not block the loop. If
 * more deadlines have passed, queues_next_deadline returns one of them. */
void queues_tick(struct queues *qs, struct queue_now now);

#endif
