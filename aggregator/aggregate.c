#include "aggregate.h"

#include "batch_writer.h"
#include "io.h"
#include "log.h"
#include "tally.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECKPOINT_PAGES 4000 /* of 4 KiB: the log is about 16 MiB when it starts again */

/* What is counted between two swaps. */
struct batch {
    struct count_map *rows;
    struct buf rejects;
    bool moved; /* some cursor did */
};

struct aggregate {
    struct aggregate_config config;
    struct slice *slice;
    struct slice_snapshot *snapshot;
    struct rejects *rejects;
    struct batch_writer *writer;
    struct tally *tally;
    struct slice_state state;     /* as committed */
    struct slice_tally counted;   /* of the open slice, in memory too */
    struct slice_cursor *cursors; /* likewise; one a stream, in the configuration's order */
    struct batch active, flushing;
    struct batch_job job;
    struct slice_cursor *job_cursors;
    bool job_running, job_waits; /* with the writer; refused, to be tried again */
    usec_t last_swap, started_job, retry_at;
    bool latched;
    char failure[SLICE_ERROR_TEXT + 64];
    struct aggregate_numbers numbers;
};

/* ---- opening ---- */

static void batch_init(struct batch *b)
{
    *b = (struct batch){.rows = count_map_new()};
}

static void batch_free(struct batch *b)
{
    count_map_free(&b->rows);
    buf_free(&b->rejects);
    *b = (struct batch){0};
}

static enum slice_result fail_errno(const char *what, const char *path, char *error)
{
    int e = errno;
    snprintf(error, SLICE_ERROR_TEXT, "%s %s: %s", what, path,
        e == ERANGE ? "shorter than recorded" : strerror(e));
    return e == ENOSPC || e == EDQUOT ? SLICE_FULL : SLICE_FAILED;
}

/* The highest slice there is; 1 when there is none. */
static enum slice_result newest_slice(const char *dir, uint64_t *number, char *error)
{
    DIR *d = opendir(dir);
    if (!d)
        return fail_errno("cannot read", dir, error);
    *number = 1;
    uint64_t n;
    for (struct dirent *e; (e = readdir(d));) {
        if (slice_file_number(e->d_name, &n) && n > *number)
            *number = n;
    }
    closedir(d);
    return SLICE_OK;
}

static enum slice_result open_slice(struct aggregate *a, const char *dir, usec_t wall, char *error)
{
    char name[SLICE_NAME_TEXT];
    struct buf path = {0};
    struct slice_config c = {.counters_text = a->config.counters->text,
        .started = wall / USEC_PER_SEC,
        .max_pages = a->config.max_pages};
    enum slice_result r = newest_slice(dir, &c.number, error);
    if (r != SLICE_OK)
        return r;
    slice_file_name(c.number, name);
    buf_printf(&path, "%s/%s", dir, name);
    buf_append_char(&path, '\0');
    c.path = path.ptr;
    r = slice_open(&c, &a->slice, &a->state, error);
    if (r == SLICE_OK)
        r = slice_snapshot_open(path.ptr, &a->snapshot, error);
    buf_free(&path);
    return r;
}

static enum slice_result open_rejects(struct aggregate *a, const char *dir, char *error)
{
    struct buf path = {0};
    buf_printf(&path, "%s/%010llu.ndjson", dir, (unsigned long long)a->state.number);
    buf_append_char(&path, '\0');
    enum slice_result r = SLICE_OK;
    if (rejects_open(path.ptr, a->state.rejects_length, &a->rejects) != 0)
        r = fail_errno("cannot open", path.ptr, error);
    else if (io_sync_dir(dir) != 0)
        r = fail_errno("cannot sync", dir, error);
    buf_free(&path);
    return r;
}

static void open_cursors(struct aggregate *a)
{
    size_t n = a->config.n_streams;
    a->cursors = mem_zalloc((n + 1) * sizeof(*a->cursors));
    a->job_cursors = mem_zalloc((n + 1) * sizeof(*a->job_cursors));
    for (size_t i = 0; i < n; i++) {
        snprintf(a->cursors[i].stream, sizeof(a->cursors[i].stream), "%s", a->config.streams[i]);
        for (size_t k = 0; k < a->state.n_cursors; k++) {
            if (strcmp(a->state.cursors[k].stream, a->config.streams[i]) == 0)
                a->cursors[i] = a->state.cursors[k];
        }
    }
    a->counted = a->state.tally;
}

static enum slice_result open_files(struct aggregate *a, usec_t wall, char *error)
{
    struct buf dir = {0};
    enum slice_result r = SLICE_OK;
    buf_printf(&dir, "%s/slices", a->config.dir);
    buf_append_char(&dir, '\0');
    if (io_make_dirs(dir.ptr) != 0)
        r = fail_errno("cannot make", dir.ptr, error);
    if (r == SLICE_OK)
        r = open_slice(a, dir.ptr, wall, error);
    buf_clear(&dir);
    buf_printf(&dir, "%s/rejects", a->config.dir);
    buf_append_char(&dir, '\0');
    if (r == SLICE_OK && io_make_dirs(dir.ptr) != 0)
        r = fail_errno("cannot make", dir.ptr, error);
    if (r == SLICE_OK)
        r = open_rejects(a, dir.ptr, error);
    buf_free(&dir);
    return r;
}

enum slice_result aggregate_open(
    const struct aggregate_config *config, usec_t wall, struct aggregate **out, char error[SLICE_ERROR_TEXT])
{
    struct aggregate *a = mem_zalloc(sizeof(*a));
    a->config = *config;
    enum slice_result r = open_files(a, wall, error);
    if (r == SLICE_OK) {
        open_cursors(a);
        a->tally = tally_new(config->counters);
        batch_init(&a->active);
        a->writer = batch_writer_new(a->slice, a->rejects, config->notify, config->notify_arg);
        if (!a->writer)
            r = fail_errno("cannot start", "the writer thread", error);
    }
    if (r != SLICE_OK)
        aggregate_close(&a);
    *out = a;
    return r;
}

void aggregate_close(struct aggregate **ap)
{
    struct aggregate *a = *ap;
    if (!a)
        return;
    batch_writer_free(&a->writer);
    batch_free(&a->active);
    batch_free(&a->flushing);
    tally_free(&a->tally);
    slice_snapshot_close(&a->snapshot);
    rejects_close(&a->rejects);
    slice_close(&a->slice);
    slice_state_free(&a->state);
    free(a->cursors);
    free(a->job_cursors);
    free(a);
    *ap = NULL;
}

/* ---- feeding ---- */

const struct slice_cursor *aggregate_cursor(const struct aggregate *a, size_t stream)
{
    assert(stream < a->config.n_streams);
    return &a->cursors[stream];
}

void aggregate_begin_stream(struct aggregate *a, size_t stream, const char *id, uint64_t offset)
{
    struct slice_cursor *c = &a->cursors[stream];
    assert(stream < a->config.n_streams && c->id[0] == '\0');
    snprintf(c->id, sizeof(c->id), "%s", id);
    c->offset = offset;
    a->active.moved = true;
}

static void reject(struct aggregate *a, size_t stream, struct bytes line, uint64_t length, const char *reason)
{
    const struct slice_cursor *c = &a->cursors[stream];
    rejects_format(&a->active.rejects, bytes_str(c->stream), c->offset, reason, length, line);
    a->counted.rejected++;
}

static void move_cursor(struct aggregate *a, size_t stream, uint64_t to)
{
    assert(to >= a->cursors[stream].offset);
    a->cursors[stream].offset = to;
    a->active.moved = true;
}

void aggregate_take_line(struct aggregate *a, size_t stream, struct bytes line)
{
    const char *reason;
    assert(stream < a->config.n_streams);
    switch (tally_line(a->tally, line, a->active.rows, &reason)) {
    case COUNTERS_EVENT:
        a->counted.events++;
        break;
    case COUNTERS_SKIPPED:
        a->counted.skipped++;
        break;
    case COUNTERS_REJECTED:
        reject(a, stream, line, line.len, reason);
        break;
    }
    move_cursor(a, stream, a->cursors[stream].offset + line.len + 1);
}

void aggregate_take_overlong(struct aggregate *a, size_t stream, struct bytes head, uint64_t length)
{
    reject(a, stream, head, length, "the line is over max_line");
    move_cursor(a, stream, a->cursors[stream].offset + length + 1);
}

void aggregate_cross_hole(struct aggregate *a, size_t stream, uint64_t after)
{
    move_cursor(a, stream, after);
    a->numbers.holes++;
}

static size_t batch_memory(const struct batch *b)
{
    return (b->rows ? count_map_bytes(b->rows) : 0) + b->rejects.cap;
}

static bool is_writing(const struct aggregate *a)
{
    return a->flushing.rows != NULL;
}

bool aggregate_is_full(const struct aggregate *a)
{
    return a->latched || batch_memory(&a->active) + batch_memory(&a->flushing) >= a->config.max_memory;
}

/* ---- flushing ---- */

static void start_job(struct aggregate *a, usec_t now)
{
    a->job_running = true;
    a->job_waits = false;
    a->started_job = now;
    batch_writer_start(a->writer, &a->job);
}

void aggregate_flush(struct aggregate *a, usec_t now)
{
    if (a->latched || is_writing(a) || a->job_running || !a->active.moved)
        return;
    a->flushing = a->active;
    batch_init(&a->active);
    a->last_swap = now;
    memcpy(a->job_cursors, a->cursors, a->config.n_streams * sizeof(*a->cursors));
    a->job = (struct batch_job){
        .batch = {.rows = a->flushing.rows,
            .cursors = a->job_cursors,
            .n_cursors = a->config.n_streams,
            .tally = a->counted,
            .rejects_length = a->state.rejects_length + a->flushing.rejects.len},
        .rejects = buf_bytes(&a->flushing.rejects),
        .rejects_at = a->state.rejects_length,
    };
    start_job(a, now);
}

bool aggregate_tick(struct aggregate *a, usec_t now)
{
    if (a->job_waits && now >= a->retry_at) {
        start_job(a, now);
        return true;
    }
    bool is_due = now - a->last_swap >= a->config.flush_interval;
    bool is_large = batch_memory(&a->active) >= a->config.max_memory / 4;
    if (!is_due && !is_large)
        return false;
    aggregate_flush(a, now);
    return a->job_running;
}

static void latch(struct aggregate *a, const char *error)
{
    a->latched = true;
    snprintf(a->failure, sizeof(a->failure), "storage failed: %s", error);
    log_error("storage failed; counting stops until a restart", LOG_S("error", error));
}

static void renew(struct aggregate *a)
{
    char error[SLICE_ERROR_TEXT];
    /* Without a snapshot there is nothing to answer reads from. */
    if (slice_snapshot_renew(a->snapshot, error) != SLICE_OK)
        latch(a, error);
}

static void job_committed(struct aggregate *a, usec_t now)
{
    const struct slice_written *w = &a->job.written;
    if (a->failure[0])
        log_info("storage takes writes again");
    a->failure[0] = '\0';
    a->state.rejects_length = a->job.batch.rejects_length;
    a->state.tally = a->job.batch.tally;
    a->numbers.flushes++;
    a->numbers.rows_flushed += w->rows;
    a->numbers.collisions += w->collisions;
    a->numbers.last_flush = now - a->started_job;
    if (w->collisions > 0)
        log_warn("two texts have one hash; the smaller is kept", LOG_S("key", w->collision));
    renew(a);
    batch_free(&a->flushing);
    if (w->wal_pages >= CHECKPOINT_PAGES && !a->latched) {
        a->job = (struct batch_job){.checkpoint = true};
        start_job(a, now);
    }
}

static void job_refused(struct aggregate *a, usec_t now)
{
    if (a->job.result != SLICE_FULL) {
        latch(a, a->job.error);
        return;
    }
    if (!a->failure[0])
        log_warn("no room to write; counting goes on in memory", LOG_S("error", a->job.error));
    snprintf(a->failure, sizeof(a->failure), "storage full: %s", a->job.error);
    a->job_waits = !a->job.checkpoint;
    a->retry_at = now + AGGREGATE_RETRY;
}

void aggregate_poll(struct aggregate *a, usec_t now)
{
    struct batch_job *job = batch_writer_done(a->writer);
    if (!job)
        return;
    a->job_running = false;
    if (job->result != SLICE_OK)
        job_refused(a, now);
    else if (job->checkpoint)
        renew(a); /* a snapshot that looks past the log lets the log start again */
    else
        job_committed(a, now);
}

bool aggregate_is_clean(const struct aggregate *a)
{
    return !a->active.moved && !is_writing(a) && !a->job_running;
}

const char *aggregate_failure(const struct aggregate *a, bool *latched)
{
    *latched = a->latched;
    return a->failure[0] ? a->failure : NULL;
}

/* ---- reading ---- */

enum aggregate_after aggregate_layers(struct aggregate *a, uint64_t after, struct reads_layers *out)
{
    /* The open slice is the only one kept: everything up to the one before it is in an archive or gone. */
    if (after + 1 < a->state.number)
        return AGGREGATE_AFTER_CLEARED;
    if (after >= a->state.number)
        return AGGREGATE_AFTER_AHEAD;
    out->n_snapshots = out->n_maps = 0;
    out->snapshots[out->n_snapshots++] = a->snapshot;
    if (is_writing(a))
        out->maps[out->n_maps++] = a->flushing.rows;
    out->maps[out->n_maps++] = a->active.rows;
    return AGGREGATE_AFTER_OK;
}

uint64_t aggregate_open_slice(const struct aggregate *a)
{
    return a->state.number;
}

void aggregate_numbers(const struct aggregate *a, struct aggregate_numbers *out)
{
    *out = a->numbers;
    out->collisions += tally_collisions(a->tally);
    out->slice = a->counted;
    out->total = (struct slice_tally){a->counted.events + a->state.before.events,
        a->counted.skipped + a->state.before.skipped, a->counted.rejected + a->state.before.rejected};
    out->memory = batch_memory(&a->active) + batch_memory(&a->flushing);
}
