/* line_scheduler: processes queued lines in time slices of the event loop.
 *
 * One read of a stream may bring thousands of lines, and filtering one line may take milliseconds (text_pattern.h). The
 * scheduler spreads this work over many iterations of the loop, which serves other events in between.
 *
 * 1. All queues share a slice. A slice ends with the first line that is finished after LINE_SLICE.
 * 2. Queues take turns, so a queue with costly lines gets no more time than the other waiting queues.
 * 3. Each line of a queue is handed out once, in order. */
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
/* Free its queues first. */
void line_scheduler_free(struct line_scheduler **t);

struct line_queue_config {
    struct line_scheduler *scheduler; /* borrowed */
    /* Handles a line, without its LF. Must not add to, clear or free the queue. */
    void (*on_line)(struct bytes line, void *arg);
    /* Called after the queue has used its part of a slice. May free the queue. */
    void (*on_slice)(void *arg);
    void *arg;
};
struct line_queue *line_queue_new(const struct line_queue_config *config);
void line_queue_free(struct line_queue **q);

/* Copies whole lines, each with its LF. `end` is the offset behind the last line. */
void line_queue_add(struct line_queue *q, struct bytes lines, uint64_t end);
void line_queue_clear(struct line_queue *q);
bool line_queue_is_empty(const struct line_queue *q);
/* Whether LINE_QUEUE_MAX bytes or more wait, so that the source should pause. */
bool line_queue_is_full(const struct line_queue *q);
/* Returns the offset of the first waiting line. */
uint64_t line_queue_offset(const struct line_queue *q);

#endif
