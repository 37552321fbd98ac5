#include "daemon/loop_timer.h"
#include "stream/line_scheduler.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/queue.h>

/* Lines that one call of line_queue_add has added. In the stream, a gap or an overlong line may precede the lines. */
struct piece {
    STAILQ_ENTRY(piece) entry;
    uint64_t end;
    size_t done, len;
    char text[];
};

struct line_queue {
    TAILQ_ENTRY(line_queue) entry; /* entry in the scheduler's `waiting` while the queue has lines */
    struct line_queue_config config;
    STAILQ_HEAD(, piece) pieces;
    size_t waiting; /* number of waiting bytes */
};
TAILQ_HEAD(line_queue_list, line_queue);

struct line_scheduler {
    struct loop_timer *slice;
    struct line_queue_list waiting;
};

static void schedule_slice(struct line_scheduler *t)
{
    if (!TAILQ_EMPTY(&t->waiting) && !loop_timer_is_set(t->slice))
        loop_timer_set(t->slice, 0);
}

static void on_slice(void *arg)
{
    struct line_scheduler *t = arg;
    struct line_queue *q;
    usec_t now = clock_monotonic(), until = now + LINE_SLICE;
    for (; now < until && (q = TAILQ_FIRST(&t->waiting)); now = clock_monotonic()) {
        do {
            struct piece *p = STAILQ_FIRST(&q->pieces);
            const char *at = p->text + p->done, *lf = memchr(at, '\n', p->len - p->done);
            size_t length = (size_t)(lf - at);
            q->config.on_line(bytes_of(at, length), q->config.arg);
            p->done += length + 1;
            q->waiting -= length + 1;
            if (p->done == p->len) {
                STAILQ_REMOVE_HEAD(&q->pieces, entry);
                free(p);
            }
        } while (!line_queue_is_empty(q) && clock_monotonic() < until);
        TAILQ_REMOVE(&t->waiting, q, entry);
        if (!line_queue_is_empty(q))
            TAILQ_INSERT_TAIL(&t->waiting, q, entry);
        q->config.on_slice(q->config.arg);
    }
    schedule_slice(t);
}

struct line_scheduler *line_scheduler_new(struct event_base *base)
{
    struct line_scheduler *t = mem_zalloc(sizeof *t);
    t->slice = loop_timer_new(base, on_slice, t);
    TAILQ_INIT(&t->waiting);
    return t;
}

void line_scheduler_free(struct line_scheduler **tp)
{
    if (!*tp)
        return;
    loop_timer_free(&(*tp)->slice);
    free(*tp);
    *tp = NULL;
}

struct line_queue *line_queue_new(const struct line_queue_config *config)
{
    struct line_queue *q = mem_zalloc(sizeof *q);
    q->config = *config;
    STAILQ_INIT(&q->pieces);
    return q;
}

void line_queue_free(struct line_queue **qp)
{
    if (!*qp)
        return;
    line_queue_clear(*qp);
    free(*qp);
    *qp = NULL;
}

void line_queue_add(struct line_queue *q, struct bytes lines, uint64_t end)
{
    if (lines.len == 0)
        return;
    struct piece *p = mem_alloc(sizeof *p + lines.len);
    p->end = end;
    p->done = 0;
    p->len = lines.len;
    memcpy(p->text, lines.ptr, lines.len);
    if (line_queue_is_empty(q))
        TAILQ_INSERT_TAIL(&q->config.scheduler->waiting, q, entry);
    STAILQ_INSERT_TAIL(&q->pieces, p, entry);
    q->waiting += lines.len;
    schedule_slice(q->config.scheduler);
}

void line_queue_clear(struct line_queue *q)
{
    struct piece *p;
    if (!line_queue_is_empty(q))
        TAILQ_REMOVE(&q->config.scheduler->waiting, q, entry);
    while ((p = STAILQ_FIRST(&q->pieces))) {
        STAILQ_REMOVE_HEAD(&q->pieces, entry);
        free(p);
    }
    q->waiting = 0;
}

bool line_queue_is_empty(const struct line_queue *q)
{
    return STAILQ_EMPTY(&q->pieces);
}

bool line_queue_is_full(const struct line_queue *q)
{
    return q->waiting >= LINE_QUEUE_MAX;
}

uint64_t line_queue_offset(const struct line_queue *q)
{
    const struct piece *p = STAILQ_FIRST(&q->pieces);
    assert(p);
    return p->end - (p->len - p->done);
}
