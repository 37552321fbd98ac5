/* put_batch: posts lines to a queue, one request at a time.
 *
 * 1. With a producer each batch moves the mark from the offset of its first byte to the offset after its last. A
 *    batch can then be sent again after any failure, and an interrupted input continues at the mark. If the queue has
 *    another mark, the lines before it count as stored only if its tag is the tag that this batch has at this offset.
 *    Any other tag shows that another put uses the producer: put_batch_flush then fails with EX_TEMPFAIL, and no line
 *    counts as stored.
 * 2. Without a producer a batch is sent again only if the queue cannot have stored it.
 * 3. After a 413, smaller and smaller parts are sent until the refused line is found and passed to refused().
 *
 * Calls block. The first wait for the queue in a call is reported. Soon after *stopped is set, the call stops
 * waiting, and a request in progress is cancelled after PUT_BATCH_STOP_TIMEOUT. The timeout also cancels a request. */
#ifndef MILLRACE_PUT_BATCH_H
#define MILLRACE_PUT_BATCH_H

#include "base/bytes.h"
#include "base/clock.h"

#include <signal.h>

#define PUT_BATCH_STOP_TIMEOUT (2 * USEC_PER_SEC)

struct put_batch;

/* A refused line without its LF, its offset in the input, and the reason with its remedy. Borrowed. */
struct put_batch_refusal {
    struct bytes line, why;
    uint64_t start;
};

struct put_batch_config {
    /* The queue's address, valid until the next call. Called before each attempt, because a restarted pipeline may
     * have other ports. NULL: the queue is stopped. */
    const char *(*url)(void *arg);
    void *arg;
    const char *queue, *producer; /* producer NULL: none */
    /* The tag of the mark after a line that was added with `sum`, valid until the next call. Tags of different
     * inputs differ. */
    const char *(*tag)(void *arg, uint64_t sum);
    const char *auth_token; /* NULL: none */
    const char *advice;     /* follows "retrying" in the log; may be empty */
    /* Returns 0 once the line is stored elsewhere, or an exit status after printing the error. */
    int (*refused)(const struct put_batch_refusal *refusal, void *arg);
    usec_t timeout; /* longest time without progress; 0: unlimited */
    const volatile sig_atomic_t *stopped;
};

struct put_batch *put_batch_new(const struct put_batch_config *config);
void put_batch_free(struct put_batch **b);

/* Asks for the producer's mark, and its tag, which is borrowed until the next call; 0 without a producer. Returns
 * 0, or an exit status after printing the error. */
int put_batch_ask_mark(struct put_batch *b, uint64_t *mark, struct bytes *tag);
/* Sets the producer's mark, and the offset at which the next line begins. Allowed only while the batch is empty. */
void put_batch_begin_at(struct put_batch *b, uint64_t mark, uint64_t offset);
/* Adds a line with or without LF that ends at `end` in the input. Drops one CR before the LF; an empty line only
 * moves the offset. */
void put_batch_add(struct put_batch *b, struct bytes line, uint64_t end, uint64_t sum);
/* Sends until all lines are stored. Returns 0, or an exit status after printing the error and the number of stored
 * events. */
int put_batch_flush(struct put_batch *b);

struct put_batch_numbers {
    uint64_t posted, duplicates, refused; /* lines */
};
struct put_batch_state {
    struct buf body; /* the lines of the batch, each with an LF */
    size_t lines;
    uint64_t mark;   /* offset of the batch's first byte */
    bool has_stored; /* the queue has confirmed that it stored a batch up to the mark */
    struct put_batch_numbers numbers;
};
const struct put_batch_state *put_batch_state(const struct put_batch *b);

#endif
