/* queues: the named queues of a daemon. With a data directory, DATA_DIR/queues/NAME/ is the journal of NAME.
 *
 * 1. queues_get creates queues. No function deletes a queue. If a creation fails, the directory is removed again.
 *    Otherwise a later start on a full disk would fail, because it could not create a journal there.
 * 2. Each call of queues_recover opens one queue of the directory. Until it returns QUEUES_RECOVERED, no other
 *    function may be called.
 * 3. All queues share one heap of deadlines. queues_next_deadline and queues_tick handle the leases, delays and
 *    pauses of all queues.
 * 4. A queue is created by its first put. queues_may_add checks this put before the queue exists. So an empty queue
 *    is left only if another program fills the disk between the check and the put.
 * 5. No queue is created if the data directory was moved away: a new one at its path would be neither locked nor
 *    complete.
 * 6. No queue is created if it would use descriptors that connections need. But queues that already exist are all
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
    bool restored;                      /* the directory is a restored copy: give each queue in it a new id */
    int64_t sync_ms;                    /* as journal_set_config */
    uint64_t segment_bytes;             /* 0: the journal's default */
    bool (*owns)(const char *data_dir); /* true if the daemon still has the lock; NULL: it has */
    int (*descriptors)(void);           /* the maximum number of open files; NULL: unlimited */
    void (*notify)(void *arg);          /* journal_set_poll of queues_journals is due */
    void *notify_arg;
    void (*on_new)(struct named_queue *q, void *arg);   /* a queue was opened or created; may be NULL */
    void (*on_ready)(struct named_queue *q, void *arg); /* see named_queue_config */
    void (*on_stray)(const char *name, void *arg); /* a file instead of a queue's directory; may be NULL */
    void *hook_arg;
};

/* For `restored`: checks that the directory contains queues. Without this check, a mistyped path would be created as
 * an empty directory. Returns 0, or -1 with the error. */
int queues_check_copy(const char *data_dir, char *error, size_t error_size);

/* Returns NULL with the error and errno if the directory cannot be created or read. */
struct queues *queues_new(const struct queues_config *config, char *error, size_t error_size);
/* Commits the operations in progress, calls their `done`, and closes all queues. */
void queues_free(struct queues **qs);

/* QUEUES_RETRY: the disk is full or descriptors are exhausted, so a later start may succeed. */
enum queues_recovery { QUEUES_RECOVERED, QUEUES_MORE, QUEUES_RETRY, QUEUES_FAILED };
/* Opens the next queue of the directory. Blocks. The last call also waits until all records that the recovery has
 * appended are committed. */
enum queues_recovery queues_recover(struct queues *qs, struct queue_now now, char *error, size_t error_size);
size_t queues_unopened(const struct queues *qs); /* queues that are still to be opened */

/* The put that would create a queue. All fields are zero for a release or a pause. */
struct first_put {
    size_t n; /* messages */
    uint64_t bytes;
    bool late;     /* the put is delayed */
    uint64_t mark; /* the mark that the producer expects; in a new queue all marks are 0 */
};
/* Returns QUEUE_OK if another queue may be created and would accept the messages of the put. Ignores the mark. */
enum queue_result queues_may_add(const struct queues *qs, const struct first_put *put);

/* NULL if there is no such queue. */
struct named_queue *queues_find(const struct queues *qs, const char *name);
/* Returns the queue and creates it if needed. A creation blocks for several syncs, see queue_creation.h. If it fails,
 * returns NULL and sets *result and, for a system error, the error text. */
struct named_queue *queues_get(struct queues *qs, const char *name, struct queue_now now,
    enum queue_result *result, char *error, size_t error_size);
struct named_queue *queues_at(const struct queues *qs, size_t i); /* in the order of names */
size_t queues_count(const struct queues *qs);
size_t queues_max(const struct queues *qs);
/* Returns the number of queues that can be open without using descriptors that connections need; SIZE_MAX without a
 * data directory. */
size_t queues_descriptor_limit(const struct queues *qs);
/* Returns the number of descriptors for n queues and the daemon's own files. */
size_t queues_descriptors_for(size_t n);

const struct queue_limits *queues_limits(const struct queues *qs);
/* Bytes of memory for messages of all queues. */
uint64_t queues_memory(const struct queues *qs);
/* The journals of all queues; NULL without a data directory. */
struct journal_set *queues_journals(struct queues *qs);

/* Ends the erasures. Before queues_flush at the stop. */
void queues_stop_erasures(struct queues *qs);
/* Waits until every operation in progress is committed or refused. For stopping and tests. */
void queues_flush(struct queues *qs);
/* False if there is no deadline. */
bool queues_next_deadline(const struct queues *qs, usec_t *deadline);
/* Handles deadlines that have passed. So that the loop is not blocked, a call handles only a limited number. If more
 * deadlines have passed, queues_next_deadline returns one of these. */
void queues_tick(struct queues *qs, struct queue_now now);

#endif
