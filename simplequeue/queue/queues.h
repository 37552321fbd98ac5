/* queues: the named queues of one daemon, and their place on disk: DATA_DIR/queues/NAME/ is the journal of
 * NAME.
 *
 * 1. A queue is made by queues_get and is never unmade. One that could not be made leaves nothing behind: were its directory to
 *    stay, a start on a disk that is still full would want to begin a journal there.
 * 2. queues_recover opens what the directory holds, one queue a call; nothing else may be called before it
 *    said that all are open.
 * 3. The set has one heap of deadlines: queues_next_deadline and queues_tick serve all leases and delays.
 * 4. A queue is made by the first put that it takes, and not by one that is refused: what can be told of the put before there is a
 *    queue is told by queues_may_add. (What only the writing of it shows, a disk that something else fills in between, leaves the
 *    queue, empty.)
 * 5. No queue is made under a data directory that was moved away: what is put there would be with neither the lock nor the
 *    other queues.
 * 6. No queue is made that would take the descriptors that are for connections. What the directory holds is opened all the same.
 */
#ifndef SIMPLEQUEUE_QUEUES_H
#define SIMPLEQUEUE_QUEUES_H

#include "simplequeue/queue/named_queue.h"

#define QUEUES_DEFAULT "default"

struct queues;

struct queues_config {
    const char *data_dir; /* NULL: memory only */
    struct queue_limits limits;
    size_t max_queues;
    bool restored;          /* what the directory holds is a copy: each queue found there gets a new id */
    int64_t sync_ms;        /* as journal_set_config */
    uint64_t segment_bytes; /* 0: the journal's default */
    bool (*owns)(const char *data_dir); /* whether it is still ours; NULL: it is */
    int (*descriptors)(void);           /* how many files may stay open; NULL: any number */
    void (*notify)(void *arg);          /* from the journal's threads: queues_poll is wanted */
    void *notify_arg;
    void (*on_new)(struct named_queue *q, void *arg);   /* a queue is there: recovered or made; may be NULL */
    void (*on_ready)(struct named_queue *q, void *arg); /* see named_queue_config */
    void (*on_stray)(const char *name, void *arg); /* has a queue's name and is no directory; may be NULL */
    void *hook_arg;
};

/* Whether a directory holds queues, for `restored`: a name that was mistyped would be made as an empty directory, and the copy
 * stay as it is. 0, or -1 with the reason. */
int queues_check_copy(const char *data_dir, char *error, size_t error_size);

/* NULL with the reason, and errno, when the directory cannot be made or read. */
struct queues *queues_new(const struct queues_config *config, char *error, size_t error_size);
/* Commits what is under way, telling its outcome, and closes. */
void queues_free(struct queues **qs);

/* LACKING: a failure that may pass, of room on the disk or of descriptors. */
enum queues_recovery { QUEUES_RECOVERED, QUEUES_MORE, QUEUES_RETRY, QUEUES_FAILED };
/* Opens the next queue of the directory; blocks for that long. The last step waits until what it wrote is
 * committed. */
enum queues_recovery queues_recover(struct queues *qs, struct queue_now now, char *error, size_t error_size);

/* The put that a queue is made for; all 0 where there is none, as when a reader releases. */
struct first_put {
    size_t n; /* messages */
    uint64_t bytes;
    bool late;     /* they are delayed */
    uint64_t mark; /* that it begins at: a new queue's are all 0 */
};

/* NULL when there is none of that name. */
struct named_queue *queues_find(const struct queues *qs, const char *name);
/* Makes it when there is none and queues_may_add, for no put, allows it (blocking: a few small files and their syncs; see queue_creation.h for who has others to serve
 * meanwhile). NULL with *result and, for a failure of the
 * system, the error filled. */
struct named_queue *queues_get(struct queues *qs, const char *name, struct queue_now now,
    enum queue_result *result, char *error, size_t error_size);
size_t queues_count(const struct queues *qs);
size_t queues_max(const struct queues *qs);
/* For how many there are descriptors, those for connections left alone; SIZE_MAX in memory. */
size_t queues_descriptor_limit(const struct queues *qs);
/* What n queues and the daemon's own files take. */
size_t queues_descriptors_for(size_t n);
/* QUEUE_OK when another one may be made, and would take that put as far as its messages go (its mark is not judged). */
enum queue_result queues_may_add(const struct queues *qs, const struct first_put *put);
/* How many of the directory are yet to be opened. */
size_t queues_unopened(const struct queues *qs);
struct named_queue *queues_at(const struct queues *qs, size_t i); /* in the order of names */

const struct queue_limits *queues_limits(const struct queues *qs);
/* Bytes of messages held by all queues. */
uint64_t queues_bytes(const struct queues *qs);
/* What messages take of memory, by which they are spilled. */
uint64_t queues_memory(const struct queues *qs);

/* The set of all queues' journals; NULL without a data directory. */
struct journal_set *queues_journals(struct queues *qs);

void queues_poll(struct queues *qs);
/* Waits until the outcome of everything under way is told: for stopping and tests. */
void queues_flush(struct queues *qs);
/* False when nothing has a deadline. */
bool queues_next_deadline(const struct queues *qs, usec_t *deadline);
/* Ends what has come due, but only so much of it that the loop is not held up: queues_next_deadline tells whether there
 * is more. */
void queues_tick(struct queues *qs, struct queue_now now);

#endif
