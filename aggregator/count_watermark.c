#include "aggregator/count_watermark.h"

#include "base/log.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#define HELD_TEXT (2 * NAME_LEN_MAX + 2)

struct count_stream {
    struct watermark counted;
    struct stream_statement last;
    usec_t unknown_since; /* time since boot of the first of consecutive statements without a time; 0: none */
};

struct count_watermark {
    struct aggregate *aggregate;
    const char *const *names;
    size_t n;
    struct count_stream streams[COUNT_STREAMS_MAX];
    char held_by[HELD_TEXT];
};

struct count_watermark *count_watermark_new(
    struct aggregate *aggregate, const char *const *names, size_t n_streams)
{
    struct count_watermark *w = mem_zalloc(sizeof *w);
    assert(n_streams <= COUNT_STREAMS_MAX);
    w->aggregate = aggregate;
    w->names = names;
    w->n = n_streams;
    for (size_t i = 0; i < n_streams; i++)
        w->streams[i].counted.until = aggregate_cursor(aggregate, i)->until;
    return w;
}

void count_watermark_free(struct count_watermark **w)
{
    free(*w);
    *w = NULL;
}

static bool holds_back(const struct count_stream *c)
{
    const struct stream_statement *s = &c->last;
    if (!s->producer[0])
        return false;
    return c->unknown_since ? s->at - c->unknown_since >= COUNT_HELD : s->now - s->until >= COUNT_HELD;
}

static void note_held_by(struct count_watermark *w)
{
    const struct count_stream *least = NULL;
    char held_by[HELD_TEXT] = "";
    for (size_t i = 0; i < w->n; i++)
        if (holds_back(&w->streams[i]) && (!least || w->streams[i].last.until < least->last.until))
            least = &w->streams[i];
    if (least)
        snprintf(held_by, sizeof held_by, "%s/%s", w->names[least - w->streams], least->last.producer);
    if (strcmp(held_by, w->held_by) == 0)
        return;
    if (least)
        log_warn("a producer holds completeness back", LOG_S("producer", held_by),
            LOG_I("until", least->last.until / USEC_PER_SEC));
    else
        log_info("no producer holds completeness back");
    snprintf(w->held_by, sizeof w->held_by, "%s", held_by);
}

static usec_t counted_until(struct count_watermark *w, size_t i)
{
    usec_t until = watermark_until(&w->streams[i].counted, aggregate_cursor(w->aggregate, i)->offset);
    aggregate_set_until(w->aggregate, i, until);
    return until;
}

static usec_t stored_until(struct count_watermark *w, size_t i)
{
    counted_until(w, i);
    return aggregate_committed(w->aggregate, i)->until;
}

void count_watermark_on_statement(struct count_watermark *w, size_t stream, const struct stream_statement *s)
{
    struct count_stream *c = &w->streams[stream];
    c->last = *s;
    if (s->until > 0)
        c->unknown_since = 0;
    else if (!c->unknown_since)
        c->unknown_since = s->at;
    watermark_state(&c->counted, s);
    counted_until(w, stream);
    note_held_by(w);
}

void count_watermark_on_response_end(struct count_watermark *w, size_t stream)
{
    watermark_forget(&w->streams[stream].counted);
}

void count_watermark_on_cursor(struct count_watermark *w, size_t stream, bool is_copy)
{
    if (is_copy)
        w->streams[stream].counted = (struct watermark){0};
    counted_until(w, stream);
}

static int64_t least(struct count_watermark *w, usec_t (*of)(struct count_watermark *w, size_t i))
{
    usec_t until = of(w, 0);
    for (size_t i = 1; i < w->n; i++) {
        usec_t other = of(w, i);
        until = other < until ? other : until;
    }
    return until / USEC_PER_SEC;
}

int64_t count_watermark_until(struct count_watermark *w)
{
    return least(w, counted_until);
}

int64_t count_watermark_stored_until(struct count_watermark *w)
{
    return least(w, stored_until);
}

int64_t count_watermark_stream_until(struct count_watermark *w, size_t stream)
{
    return counted_until(w, stream) / USEC_PER_SEC;
}

const char *count_watermark_held_by(struct count_watermark *w)
{
    return w->held_by;
}

const char *count_watermark_stream_held_by(const struct count_watermark *w, size_t stream)
{
    const struct count_stream *c = &w->streams[stream];
    return holds_back(c) ? c->last.producer : "";
}

uint64_t count_watermark_lag(const struct count_watermark *w, size_t stream)
{
    uint64_t end = w->streams[stream].last.end;
    uint64_t offset = aggregate_cursor(w->aggregate, stream)->offset;
    return end > offset ? end - offset : 0;
}
