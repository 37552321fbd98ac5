#include "api/page/cell_watch.h"

#include "api/source.h"
#include "base/amount.h"
#include "base/bit_ranges.h"
#include "daemon/daemon.h"
#include "json/json_fields.h"

#include <stdlib.h>

/* nats_to_pubsub of a cell. */
struct copier {
    const char *cell;
    char stream[NAME_LEN_MAX + 1]; /* of JetStream */
    uint64_t partitions;
};

struct cell_watch {
    struct daemon *daemon;
    uint64_t counters_hash;
    struct buf others; /* names of the cells with other counters */
    size_t n_others;
    struct copier copiers[CELLS_MAX];
    size_t n_copiers;
    bool is_partial; /* nats_to_pubsub of a cell has not answered */
};

struct cell_watch *cell_watch_new(struct daemon *daemon, uint64_t counters_hash)
{
    struct cell_watch *w = mem_zalloc(sizeof *w);
    w->daemon = daemon;
    w->counters_hash = counters_hash;
    return w;
}

void cell_watch_free(struct cell_watch **w)
{
    if (*w)
        buf_free(&(*w)->others);
    free(*w);
    *w = NULL;
}

static void see_copier(struct cell_watch *w, const char *cell, const struct json_doc *stats)
{
    char partitions[BIT_RANGES_TEXT];
    struct bytes bad;
    struct copier *c = &w->copiers[w->n_copiers];
    c->cell = cell;
    if (w->n_copiers < CELLS_MAX && json_doc_copy(stats, c->stream, sizeof c->stream, "/nats_stream") &&
        json_doc_copy(stats, partitions, sizeof partitions, "/partitions") &&
        bit_ranges_read(partitions, &c->partitions, &bad))
        w->n_copiers++;
    else
        w->is_partial = true;
}

void cell_watch_see(struct cell_watch *w, const char *cell, const char *daemon, const struct json_doc *stats)
{
    uint64_t hash;
    if (strcmp(daemon, "nats_to_pubsub") == 0)
        see_copier(w, cell, stats);
    if (strcmp(daemon, "aggregator") == 0 && json_doc_u64(stats, "/counters", &hash) &&
        hash != w->counters_hash)
        buf_printf(&w->others, "%s%s", w->n_others++ > 0 ? ", " : "", cell);
}

static void judge_counters(const struct cell_watch *w)
{
    char *text = w->n_others > 0 ? mem_printf("%s %.*s %s differently from this configuration",
                                       plural(w->n_others, "cell", "cells"), (int)w->others.len,
                                       w->others.ptr, plural(w->n_others, "counts", "count"))
                                 : NULL;
    daemon_set_notice(w->daemon, "counters of cells", NOTICE_WARNING,
        "millrace doctor names a difference; give all cells the counters of this configuration, and reload "
        "them",
        text);
    free(text);
}

/* Appends the partitions that the cell and an earlier cell copy. */
static void append_doubles(const struct cell_watch *w, size_t at, struct buf *out)
{
    char partitions[BIT_RANGES_TEXT];
    const struct copier *c = &w->copiers[at];
    for (const struct copier *other = w->copiers; other < c; other++) {
        uint64_t both = strcmp(other->stream, c->stream) == 0 ? other->partitions & c->partitions : 0;
        if (both)
            buf_printf(out, "%scells %s and %s copy partitions %s of %s", out->len > 0 ? "; " : "",
                other->cell, c->cell, bit_ranges_write(both, partitions), c->stream);
    }
}

/* Appends the partitions of the cell's stream that no cell copies, unless an earlier cell has the same stream. */
static void append_gaps(const struct cell_watch *w, size_t at, struct buf *out)
{
    char partitions[BIT_RANGES_TEXT];
    const struct copier *c = &w->copiers[at];
    uint64_t copied = 0;
    for (size_t i = 0; i < w->n_copiers; i++) {
        bool is_same = strcmp(w->copiers[i].stream, c->stream) == 0;
        if (is_same && i < at)
            return;
        copied |= is_same ? w->copiers[i].partitions : 0;
    }
    if (copied != UINT64_MAX)
        buf_printf(out, "%sno cell copies partitions %s of %s", out->len > 0 ? "; " : "",
            bit_ranges_write(~copied, partitions), c->stream);
}

static void judge_partitions(const struct cell_watch *w)
{
    struct buf doubles = {0}, gaps = {0};
    for (size_t i = 0; i < w->n_copiers; i++) {
        append_doubles(w, i, &doubles);
        if (!w->is_partial)
            append_gaps(w, i, &gaps);
    }
    daemon_set_notice(w->daemon, "partitions of two cells", NOTICE_WARNING,
        "stop nats_to_pubsub of one cell and correct its `partitions`: both cells count these events",
        doubles.ptr);
    daemon_set_notice(w->daemon, "partitions of no cell", NOTICE_WARNING,
        "complete the move that millrace cell list names, add the partitions to one cell, or set the URL of "
        "the cell that copies them",
        gaps.ptr);
    buf_free(&doubles);
    buf_free(&gaps);
}

void cell_watch_judge(struct cell_watch *w)
{
    judge_counters(w);
    judge_partitions(w);
    buf_clear(&w->others);
    w->n_others = w->n_copiers = 0;
    w->is_partial = false;
}
