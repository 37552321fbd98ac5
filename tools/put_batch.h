/* put_batch: lines on their way to a queue, a request at a time.
 *
 * With a producer's name a batch moves its mark from the offset of the batch's first byte to that behind its last. So a
 * batch can be sent again after any trouble, and what was cut off can go on from the mark. Without one only what was surely
 * not taken is tried again.
 *
 * What the queue refuses with 413 is sent again in ever smaller parts, until what it refuses is one line: that one is refused
 * for itself. refused() says what becomes of it; the mark has not passed it then.
 *
 * It blocks: for programs that do nothing else. What waits for a queue that is away says so once, and ends soon after *stopped is
 * set: what is under way then has PUT_BATCH_STOP_TIMEOUT to be answered. */
#ifndef MILLRACE_PUT_BATCH_H
#define MILLRACE_PUT_BATCH_H

#include "base/bytes.h"
#include "base/clock.h"

#include <signal.h>

#define PUT_BATCH_STOP_TIMEOUT (2 * USEC_PER_SEC)

struct put_batch;

/* A line that the queue refuses for itself, without its LF; it begins at `start` in the input. `why`: what the queue answered. All is
 * borrowed. */
struct put_batch_refusal {
    struct bytes line, why;
    uint64_t start;
};

struct put_batch_config {
    /* Where the queue is, asked again before each try: a pipeline that was started again may have other ports. The text
     * lives until the next call. */
    const char *(*url)(void *arg);
    void *arg;
    const char *queue, *producer; /* producer NULL: none */
    const char *auth_token;       /* NULL: none */
    /* 0: it is kept elsewhere, durably, and the rest goes on; else an exit status, after saying why. */
    int (*refused)(const struct put_batch_refusal *refusal, void *arg);
    usec_t timeout; /* without progress; 0: it goes on trying */
    const volatile sig_atomic_t *stopped;
};

struct put_batch *put_batch_new(const struct put_batch_config *config);
void put_batch_free(struct put_batch **b);

/* The producer's mark, 0 without one. 0, or an exit status after saying why on standard error. */
int put_batch_ask_mark(struct put_batch *b, uint64_t *mark);
/* Where the input is: what is added next begins at this offset. Only while the batch is empty. */
void put_batch_begin_at(struct put_batch *b, uint64_t offset);
/* A line with or without LF, and where it ends in the input. One CR before the LF is dropped; an empty line moves the
 * offset only. */
void put_batch_add(struct put_batch *b, struct bytes line, uint64_t end);
size_t put_batch_lines(const struct put_batch *b);
size_t put_batch_bytes(const struct put_batch *b);
/* Sends until it is stored. 0, or an exit status after saying why and how much is stored. */
int put_batch_flush(struct put_batch *b);

struct put_batch_numbers {
    uint64_t posted, duplicates, refused; /* lines */
};
struct put_batch_numbers put_batch_numbers(const struct put_batch *b);

#endif
