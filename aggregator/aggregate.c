#include "aggregator/aggregate.h"

#include "aggregator/batch_writer.h"
#include "aggregator/chain.h"
#include "base/errno_class.h"
#include "base/io.h"
#include "base/log.h"
#include "aggregator/tally.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECKPOINT_PAGES 4000 /* of 4 KiB: the log is about 16 MiB when it starts again */
#define SEAL_PAGES 256        /* a longer log is folded by the writer, before the loop stops to seal */

/* What is counted between two swaps. */
struct batch {
    struct count_map *rows;
    struct buf rejects;
    bool moved; /* some cursor did */
};

struct aggregate {
    struct aggregate_config config;
    char *slices_dir, *rejects_dir;
    struct sealed sealed;
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
    struct slice_cursor *committed; /* as of the last commit */
    bool job_running, job_waits;    /* with the writer; refused, to be tried again */
    usec_t last_swap, started_job, retry_at;
    bool has_flushed; /* since the opening */
    bool seals;       /* asked to, and flushing first */
    bool turns; /* the slice before state.number is sealed, and that one is not begun for want of room */
    usec_t turned_at;               /* wall clock */
    unsigned log_pages;             /* of the open slice */
    struct slice_snapshot **layers; /* what aggregate_layers gave last */
    bool latched;
    char failure[SLICE_ERROR_TEXT + 64];
    struct aggregate_numbers numbers;
};

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
    return errno_is_full(e) ? SLICE_FULL : SLICE_FAILED;
}

/* Opens the slice that begins there, or makes it, to read and to write. */
static enum slice_result open_slice(struct aggregate *a, const struct chain_next *b, usec_t wall, char *error)
{
    char *path = chain_slice_path(a->slices_dir, b->number);
    struct slice_config c = {.path = path,
        .number = b->number,
        .counters_text = a->config.counters->text,
        .started = wall / USEC_PER_SEC,
        .before = b->before,
        .cursors = b->cursors,
        .n_cursors = b->n_cursors,
        .max_pages = a->config.max_pages};
    enum slice_result r = slice_open(&c, &a->slice, &a->state, error);
    if (r == SLICE_OK)
        r = slice_snapshot_open(path, &a->snapshot, error);
    free(path);
    return r;
}

static enum slice_result open_slices(struct aggregate *a, usec_t wall, char *error)
{
    const struct chain_config c = {.slices_dir = a->slices_dir,
        .rejects_dir = a->rejects_dir,
        .archive = a->config.archive,
        .counters = a->config.counters};
    struct chain_next next;
    enum slice_result r = chain_open(&c, &a->sealed, &next, error);
    if (r == SLICE_OK)
        r = open_slice(a, &next, wall, error);
    chain_next_free(&next);
    return r;
}

static enum slice_result open_rejects(struct aggregate *a, char *error)
{
    char *path = chain_rejects_path(a->rejects_dir, a->state.number);
    enum slice_result r = SLICE_OK;
    if (rejects_open(path, a->state.rejects_length, &a->rejects) != 0)
        r = fail_errno("cannot open", path, error);
    else if (io_sync_dir(a->rejects_dir) != 0)
        r = fail_errno("cannot sync", a->rejects_dir, error);
    free(path);
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
    a->committed = mem_zalloc((n + 1) * sizeof(*a->committed));
    memcpy(a->committed, a->cursors, n * sizeof(*a->cursors));
    a->counted = a->state.tally;
}

static char *directory(const struct aggregate *a, const char *name)
{
    struct buf path = {0};
    buf_printf(&path, "%s/%s", a->config.dir, name);
    char *text = bytes_dup(buf_bytes(&path));
    buf_free(&path);
    return text;
}

static enum slice_result open_files(struct aggregate *a, usec_t wall, char *error)
{
    a->slices_dir = directory(a, "slices");
    a->rejects_dir = directory(a, "rejects");
    if (io_make_dirs(a->slices_dir) != 0)
        return fail_errno("cannot make", a->slices_dir, error);
    if (io_make_dirs(a->rejects_dir) != 0)
        return fail_errno("cannot make", a->rejects_dir, error);
    enum slice_result r = open_slices(a, wall, error);
    return r == SLICE_OK ? open_rejects(a, error) : r;
}

static enum slice_result start_writer(struct aggregate *a, char *error)
{
    a->writer = batch_writer_new(a->slice, a->rejects, a->config.notify, a->config.notify_arg);
    return a->writer ? SLICE_OK : fail_errno("cannot start", "the writer thread", error);
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
        r = start_writer(a, error);
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
    sealed_free(&a->sealed);
    free(a->slices_dir);
    free(a->rejects_dir);
    free(a->cursors);
    free(a->job_cursors);
    free(a->layers);
    free(a->committed);
    free(a);
    *ap = NULL;
}

const struct slice_cursor *aggregate_cursor(const struct aggregate *a, size_t stream)
{
    assert(stream < a->config.n_streams);
    return &a->cursors[stream];
}

const struct slice_cursor *aggregate_committed(const struct aggregate *a, size_t stream)
{
    assert(stream < a->config.n_streams);
    return &a->committed[stream];
}

void aggregate_begin_stream(struct aggregate *a, size_t stream, const char *id, uint64_t offset)
{
    struct slice_cursor *c = &a->cursors[stream];
    assert(stream < a->config.n_streams && c->id[0] == '\0');
    snprintf(c->id, sizeof(c->id), "%s", id);
    c->offset = offset;
    a->committed[stream] = *c;
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

static void start_job(struct aggregate *a, usec_t now)
{
    a->job_running = true;
    a->job_waits = false;
    a->started_job = now;
    batch_writer_start(a->writer, &a->job);
}

void aggregate_flush(struct aggregate *a, usec_t now)
{
    if (a->latched || a->turns || is_writing(a) || a->job_running || !a->active.moved)
        return;
    a->flushing = a->active;
    batch_init(&a->active);
    a->last_swap = now;
    a->has_flushed = true;
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

static void turn_over(struct aggregate *a, usec_t now);

bool aggregate_tick(struct aggregate *a, usec_t now)
{
    if (a->turns && !a->latched && now >= a->retry_at)
        turn_over(a, now);
    if (a->job_waits && now >= a->retry_at) {
        start_job(a, now);
        return true;
    }
    bool is_due = !a->has_flushed || now - a->last_swap >= a->config.flush_interval;
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

static void heal(struct aggregate *a)
{
    if (a->failure[0] && !a->latched)
        log_info("storage takes writes again");
    if (!a->latched)
        a->failure[0] = '\0';
}

static void lack_room(struct aggregate *a, usec_t now, const char *error)
{
    if (!a->failure[0])
        log_warn("no room to write; counting goes on in memory", LOG_S("error", error));
    snprintf(a->failure, sizeof(a->failure), "storage full: %s", error);
    a->retry_at = now + AGGREGATE_RETRY;
}

static void start_checkpoint(struct aggregate *a, usec_t now)
{
    a->job = (struct batch_job){.checkpoint = true};
    start_job(a, now);
}

static void job_committed(struct aggregate *a, usec_t now)
{
    const struct slice_written *w = &a->job.written;
    heal(a);
    a->state.rejects_length = a->job.batch.rejects_length;
    a->state.tally = a->job.batch.tally;
    memcpy(a->committed, a->job_cursors, a->config.n_streams * sizeof(*a->committed));
    a->numbers.flushes++;
    a->numbers.rows_flushed += w->rows;
    a->numbers.collisions += w->collisions;
    a->numbers.last_flush = now - a->started_job;
    if (w->collisions > 0)
        log_warn("two texts have one hash; the smaller is kept", LOG_S("key", w->collision));
    renew(a);
    batch_free(&a->flushing);
    a->log_pages = w->wal_pages;
    if (a->log_pages >= CHECKPOINT_PAGES && !a->latched)
        start_checkpoint(a, now);
}

/* A snapshot that looks past the log lets the log start again. */
static void job_checkpointed(struct aggregate *a)
{
    heal(a);
    a->log_pages = 0;
    renew(a);
}

static void job_refused(struct aggregate *a, usec_t now)
{
    if (a->job.result != SLICE_FULL) {
        latch(a, a->job.error);
        return;
    }
    lack_room(a, now, a->job.error);
    a->job_waits = true;
}

void aggregate_poll(struct aggregate *a, usec_t now)
{
    struct batch_job *job = a->writer ? batch_writer_done(a->writer) : NULL;
    if (!job)
        return;
    a->job_running = false;
    if (job->result != SLICE_OK)
        job_refused(a, now);
    else if (job->checkpoint)
        job_checkpointed(a);
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

/* What ends a slice: the last batch, with the mark. The active batch stays as it is until that is committed. */
static enum slice_result commit_last(struct aggregate *a, usec_t now, char *error)
{
    struct batch_job job = {
        .batch = {.rows = a->active.rows,
            .cursors = a->cursors,
            .n_cursors = a->config.n_streams,
            .tally = a->counted,
            .rejects_length = a->state.rejects_length + a->active.rejects.len,
            .seal = true},
        .rejects = buf_bytes(&a->active.rejects),
        .rejects_at = a->state.rejects_length,
    };
    batch_writer_run(a->writer, &job);
    a->numbers.flushes++;
    a->numbers.rows_flushed += job.written.rows;
    a->numbers.collisions += job.written.collisions;
    a->last_swap = now;
    if (job.result != SLICE_OK)
        snprintf(error, SLICE_ERROR_TEXT, "%s", job.error);
    else
        memcpy(a->committed, a->cursors, a->config.n_streams * sizeof(*a->committed));
    return job.result;
}

static struct slice_tally total_tally(const struct aggregate *a)
{
    return (struct slice_tally){a->counted.events + a->state.before.events,
        a->counted.skipped + a->state.before.skipped, a->counted.rejected + a->state.before.rejected};
}

/* Everything of the open slice that is open; its number, and what was counted before it, stay known. */
static void close_files(struct aggregate *a)
{
    uint64_t number = a->state.number;
    struct slice_tally before = a->state.before;
    batch_writer_free(&a->writer);
    slice_snapshot_close(&a->snapshot);
    rejects_close(&a->rejects);
    slice_close(&a->slice);
    slice_state_free(&a->state);
    a->state.number = number;
    a->state.before = before;
    a->log_pages = 0;
}

static void leave_sealed(struct aggregate *a, usec_t wall)
{
    struct slice_tally before = total_tally(a);
    close_files(a);
    batch_free(&a->active);
    batch_init(&a->active);
    a->counted = (struct slice_tally){0};
    a->state.number++;
    a->state.before = before;
    a->turns = true;
    a->turned_at = wall;
}

static enum slice_result begin_next(struct aggregate *a, char *error)
{
    struct chain_next next;
    uint64_t number = a->state.number;
    struct slice_tally before = a->state.before;
    chain_follow(&a->sealed, &next);
    enum slice_result r = open_slice(a, &next, a->turned_at, error);
    chain_next_free(&next);
    if (r == SLICE_OK)
        r = open_rejects(a, error);
    if (r == SLICE_OK)
        r = start_writer(a, error);
    if (r != SLICE_OK) {
        a->state.number = number;
        a->state.before = before;
        close_files(a);
    }
    return r;
}

/* Reads see the sealed slice's rows in its own snapshot from here on. */
static enum slice_result take_in_ended(struct aggregate *a, char *error)
{
    uint64_t number = a->state.number - 1;
    if (sealed_find(&a->sealed, number))
        return SLICE_OK;
    char *path = chain_slice_path(a->slices_dir, number);
    enum slice_result r = sealed_add(&a->sealed, path, number, error);
    free(path);
    return r;
}

/* From the sealed slice to the next one, as far as there is room: what is left is tried again. */
static void turn_over(struct aggregate *a, usec_t now)
{
    char error[SLICE_ERROR_TEXT] = "";
    enum slice_result r = take_in_ended(a, error);
    if (r == SLICE_OK)
        r = begin_next(a, error);
    a->turns = r != SLICE_OK;
    if (r == SLICE_OK)
        heal(a);
    else if (r == SLICE_FULL)
        lack_room(a, now, error);
    else
        latch(a, error);
}

/* What must be over before the loop stops for the last batch: the bulk is written, and moved out of the log. */
static bool is_preparing(struct aggregate *a, usec_t now)
{
    if (a->latched || a->turns)
        return false;
    if (!a->seals) {
        a->seals = true;
        aggregate_flush(a, now);
    }
    if (!a->job_running && !is_writing(a) && !a->job_waits && a->log_pages > SEAL_PAGES)
        start_checkpoint(a, now);
    return a->job_running || (is_writing(a) && !a->job_waits);
}

static enum slice_result refuse_seal(const struct aggregate *a, char *error)
{
    if (a->latched || a->job_waits || a->turns) {
        snprintf(error, SLICE_ERROR_TEXT, "%.*s", SLICE_ERROR_TEXT - 1, a->failure);
        return a->latched ? SLICE_FAILED : SLICE_FULL;
    }
    size_t most = a->config.max_sealed ? a->config.max_sealed : SEALED_MANY;
    if (a->sealed.n < most)
        return SLICE_OK;
    snprintf(error, SLICE_ERROR_TEXT, "%zu sealed slices wait to be cleared", most);
    return SLICE_FULL;
}

enum slice_result aggregate_seal(
    struct aggregate *a, usec_t now, usec_t wall, bool *busy, char error[SLICE_ERROR_TEXT])
{
    *busy = is_preparing(a, now);
    if (*busy)
        return SLICE_OK;
    a->seals = false;
    enum slice_result r = refuse_seal(a, error);
    if (r == SLICE_OK)
        r = commit_last(a, now, error);
    if (r == SLICE_FULL)
        return r;
    if (r == SLICE_OK) {
        leave_sealed(a, wall);
        turn_over(a, now);
    } else if (!a->latched) {
        latch(a, error);
    }
    if (a->latched || !sealed_find(&a->sealed, a->state.number - 1)) {
        snprintf(error, SLICE_ERROR_TEXT, "%.*s", SLICE_ERROR_TEXT - 1, a->failure);
        return a->latched ? SLICE_FAILED : SLICE_FULL;
    }
    return SLICE_OK;
}

enum aggregate_clear aggregate_clear(struct aggregate *a, uint64_t through, char error[SLICE_ERROR_TEXT])
{
    uint64_t archived;
    if (through >= a->state.number)
        return AGGREGATE_CLEAR_OPEN;
    if (!a->config.archive) {
        snprintf(error, SLICE_ERROR_TEXT, "no archive is known: the setting archive names it");
        return AGGREGATE_CLEAR_NOT_ARCHIVED;
    }
    if (chain_archived(a->config.archive, &a->sealed, &archived, error) != SLICE_OK)
        return AGGREGATE_CLEAR_NOT_ARCHIVED;
    if (through > archived) {
        snprintf(error, SLICE_ERROR_TEXT, "the archive in force goes through slice %" PRIu64, archived);
        return AGGREGATE_CLEAR_NOT_ARCHIVED;
    }
    return sealed_clear(&a->sealed, through, error) == SLICE_OK ? AGGREGATE_CLEAR_OK : AGGREGATE_CLEAR_FAILED;
}

const struct sealed *aggregate_sealed(const struct aggregate *a)
{
    return &a->sealed;
}

static uint64_t oldest_slice(const struct aggregate *a)
{
    return a->sealed.n > 0 ? a->sealed.slices[0].state.number : a->state.number;
}

/* Every count that was committed is in a snapshot: the open slice's, or that of the sealed ones when it is not begun. */
static bool has_all_rows(const struct aggregate *a)
{
    return a->snapshot || (a->turns && sealed_find(&a->sealed, a->state.number - 1));
}

enum aggregate_after aggregate_layers(struct aggregate *a, uint64_t after, struct reads_layers *out)
{
    if (!has_all_rows(a))
        return AGGREGATE_AFTER_LOST;
    if (after + 1 < oldest_slice(a))
        return AGGREGATE_AFTER_CLEARED;
    if (after >= a->state.number)
        return AGGREGATE_AFTER_AHEAD;
    a->layers = mem_realloc(a->layers, (a->sealed.n + 1) * sizeof(struct slice_snapshot *));
    *out = (struct reads_layers){.snapshots = a->layers};
    for (size_t i = 0; i < a->sealed.n; i++)
        if (a->sealed.slices[i].state.number > after)
            a->layers[out->n_snapshots++] = a->sealed.slices[i].snapshot;
    if (a->snapshot)
        a->layers[out->n_snapshots++] = a->snapshot;
    if (is_writing(a))
        out->maps[out->n_maps++] = a->flushing.rows;
    out->maps[out->n_maps++] = a->active.rows;
    return AGGREGATE_AFTER_OK;
}

bool aggregate_is_turning(const struct aggregate *a)
{
    return a->turns;
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
    out->total = total_tally(a);
    out->memory = batch_memory(&a->active) + batch_memory(&a->flushing);
}
