/* line_scheduler: processes queued lines in time slices of the event loop.
 *
 * One read of a stream may return thousands of lines, and filtering one line may take milliseconds (text_pattern.h).
 * The scheduler spreads the filtering over many iterations of the loop, so that the loop can serve other events.
 *
 * 1. All queues share the time slices. A slice ends with the first line that is finished after LINE_SLICE.
 * 2. Queues take turns, so that a queue with costly lines gets no more time than the other waiting queues.
 * 3. on_line is called once for each line of a queue, in order. */
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
/* The caller must first free all queues of the scheduler. */
void line_scheduler_free(struct line_scheduler **t);

struct line_queue_config {
    struct line_scheduler *scheduler; /* borrowed */
    /* Processes a line without its LF. Must not add lines to the queue, clear the queue or free the queue. */
    void (*on_line)(struct bytes line, void *arg);
    /* Called after the queue has used its part of a slice. May free the queue. */
    void (*on_slice)(void *arg);
    void *arg;
};
struct line_queue *line_queue_new(const struct line_queue_config *config);
void line_queue_free(struct line_queue **q);

/* Adds copies of whole lines, each with its LF. `end` is the stream's offset after the last line. */
void line_queue_add(struct line_queue *q, struct bytes lines, uint64_t end);
void line_queue_clear(struct line_queue *q);
bool line_queue_is_empty(const struct line_queue *q);
/* Returns whether LINE_QUEUE_MAX bytes or more wait, so that the source should pause. */
bool line_queue_is_full(const struct line_queue *q);
/* Returns the offset of the first waiting line. */
uint64_t line_queue_offset(const struct line_queue *q);

#endif
