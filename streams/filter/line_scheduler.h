/* line_scheduler: lines that wait to be looked at, of several readers of streams in one loop, some milliseconds at a time.
 *
 * What one read brought may be thousands of lines, and each may take milliseconds to judge (text_pattern.h). Nothing else happens
 * meanwhile, so they are taken over several turns of the loop, which serves everything else between.
 *
 * 1. A turn ends with the first line after LINE_SLICE, of whichever queues; then the loop comes round.
 * 2. Queues take turns: one whose lines are costly has no more of the time than another that waits.
 * 3. Lines of a queue are handed out in their order, each once. */
#ifndef MILLRACE_LINE_SCHEDULER_H
#define MILLRACE_LINE_SCHEDULER_H

#include "base/bytes.h"
#include "base/clock.h"

#define LINE_SLICE (5 * USEC_PER_MSEC)
#define LINE_QUEUE_MAX ((size_t)256 << 10)

struct event_base;
struct line_scheduler;
struct line_queue;

struct line_scheduler *line_scheduler_new(struct event_base *base);
/* After its queues. */
void line_scheduler_free(struct line_scheduler **t);

struct line_queue_config {
    struct line_scheduler *scheduler; /* borrowed */
    /* Without its LF. It must neither add to the queue nor clear nor free it. */
    void (*on_line)(struct bytes line, void *arg);
    /* Lines were handed out, and this queue's part of the turn is over. It may do anything. */
    void (*on_slice)(void *arg);
    void *arg;
};
struct line_queue *line_queue_new(const struct line_queue_config *config);
void line_queue_free(struct line_queue **q);

/* Whole lines, each with its LF, copied; the last ends at this offset. */
void line_queue_add(struct line_queue *q, struct bytes lines, uint64_t end);
void line_queue_clear(struct line_queue *q);
bool line_queue_is_empty(const struct line_queue *q);
/* LINE_QUEUE_MAX and more waits: bring no more. */
bool line_queue_is_full(const struct line_queue *q);
/* Of the first line that waits; there is one. */
uint64_t line_queue_offset(const struct line_queue *q);

#endif
