#include "stream/watermark.h"

#include <stdlib.h>

/* The streams' ends at one moment. */
struct observation {
    struct watermark_time time;
    uint64_t *ends;
};

struct watermark {
    size_t n;
    struct observation oldest, newest;
    struct watermark_time reached;
};

struct watermark *watermark_new(size_t n_streams)
{
    struct watermark *w = mem_zalloc(sizeof(*w));
    w->n = n_streams;
    w->oldest.ends = mem_zalloc((n_streams + 1) * sizeof(uint64_t));
    w->newest.ends = mem_zalloc((n_streams + 1) * sizeof(uint64_t));
    return w;
}

void watermark_free(struct watermark **w)
{
    if (!*w)
        return;
    free((*w)->oldest.ends);
    free((*w)->newest.ends);
    free(*w);
    *w = NULL;
}

static void copy(
    struct watermark *w, struct observation *to, struct watermark_time time, const uint64_t *ends)
{
    to->time = time;
    memcpy(to->ends, ends, w->n * sizeof(*ends));
}

void watermark_observe(struct watermark *w, struct watermark_time time, const uint64_t *ends)
{
    copy(w, &w->newest, time, ends);
    if (w->oldest.time.at.boot == 0)
        copy(w, &w->oldest, time, ends);
}

void watermark_forget(struct watermark *w)
{
    w->oldest.time.at.boot = w->newest.time.at.boot = 0;
}

static bool is_reached(const struct watermark *w, const struct observation *t, const uint64_t *offsets)
{
    for (size_t i = 0; i < w->n; i++) {
        if (offsets[i] < t->ends[i])
            return false;
    }
    return t->time.at.boot != 0;
}

struct watermark_time watermark_complete_until(struct watermark *w, const uint64_t *offsets)
{
    if (!is_reached(w, &w->oldest, offsets))
        return w->reached;
    w->reached = w->oldest.time;
    w->oldest.time.at.boot = 0;
    if (is_reached(w, &w->newest, offsets))
        w->reached = w->newest.time;
    else if (w->newest.time.at.boot > w->reached.at.boot)
        copy(w, &w->oldest, w->newest.time, w->newest.ends);
    return w->reached;
}

uint64_t watermark_stream_end(const struct watermark *w, size_t stream)
{
    return w->newest.ends[stream];
}
