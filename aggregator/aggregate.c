#include "aggregator/aggregate.h"

#include "aggregator/chain.h"
#include "aggregator/storage.h"
#include "base/amount.h"
#include "base/io.h"
#include "base/log.h"
#include "counts/slice_files.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECKPOINT_PAGES 4000 /* pages of 4 KiB; at this size of the log (16 MiB) a checkpoint is due */

enum phase {
    PHASE_COUNTING,
    PHASE_ENDING,    /* the last batch and the sealed state are being committed */
    PHASE_FOLDING,   /* the log is being moved into the file and removed, unless another process reads it */
    PHASE_BEGINNING, /* the slice is sealed; the next slice is being created */
};

struct aggregate {
    struct aggregate_config config;
    char *slices_dir, *rejects_dir;
    struct sealed sealed;
    uint64_t number;
    struct slice_tally before;
    char *slice_path;
    struct slice_reader *reader; /* NULL in PHASE_BEGINNING */
    struct storage *storage;
    struct tally *tally;
    struct batch flushing;
    struct slice_tally counted; /* tally of the slice that lines count into */
    struct slice_tally ending;  /* tally of the slice that is being sealed */
    struct value_sums ending_sums, job_sums;
    uint64_t archive; /* generation of the archive whose sums the tally has */
    uint64_t rejects_length;
    /* The arrays have one cursor for each stream, in the configuration's order, then one for each input. */
    struct slice_cursor *cursors, *job_cursors, *committed;
    size_t n_cursors, max_cursors;
    const char *input_path, *input_content;
    struct storage_job job, clear_job;
    struct storage_job *running; /* job that the storage thread runs; NULL: no job */
    bool job_waits;              /* `job` failed and waits for a retry */
    bool renewal_waits; /* `job` is complete, but the reader could not be renewed and waits for a retry */
    bool is_cleared;    /* `clear_job` has a result */
    bool is_held;
    enum phase phase;
    struct chain_next next; /* start of the next slice; job.begin points into it */
    int64_t open_started, quarters_since;
    usec_t last_swap, started_job, retry_at, background_at;
    bool has_flushed;
    usec_t turned_at; /* trusted time at which the current or latest seal began */
    usec_t trusted;
    usec_t latest;
    usec_t wall; /* wall clock, or `latest` if that is later */
    unsigned log_pages;
    bool merge_is_due, merge_is_behind;
    struct slice_reader **layers; /* readers of the latest result of aggregate_layers */
    bool latched;
    struct error failure; /* code SLICE_OK: no failure */
    struct aggregate_numbers numbers;
    struct slice_tally at_start; /* committed tally of all slices at the start */
    int64_t *newest;             /* latest event time of each stream that was counted since the start */
};

static struct slice_tally add_tallies(struct slice_tally x, struct slice_tally y)
{
    return (struct slice_tally){x.events + y.events, x.skipped + y.skipped, x.rejected + y.rejected};
}

static void prepare_begin(struct aggregate *a, usec_t wall)
{
    free(a->slice_path);
    a->slice_path = slice_path(a->slices_dir, a->next.number);
    a->job = (struct storage_job){.kind = STORAGE_BEGIN,
        .trusted = wall,
        .begin = {.path = a->slice_path,
            .number = a->next.number,
            .counters_text = a->config.counters->text,
            .started = wall / USEC_PER_SEC,
            .quarters_since = a->next.quarters_since,
            .before = a->next.before,
            .cursors = a->next.cursors,
            .n_cursors = a->next.n_cursors}};
}

static enum slice_result make_directory(const char *parent, const char *name, char **out, struct error *error)
{
    struct buf path = {0};
    buf_printf(&path, "%s/%s", parent, name);
    *out = bytes_dup(buf_bytes(&path));
    buf_free(&path);
    return io_make_dirs(*out) == 0 ? SLICE_OK : storage_fail_errno("make", *out, error);
}

static bool has_values(const struct counters *c)
{
    bool has = false;
    for (size_t i = 0; i < c->n_totals; i++)
        has = has || c->totals[i].value;
    return has;
}

/* Gives the tally the sums of the archive and of all earlier slices that the archive does not include. */
static void renew_sums(struct aggregate *a)
{
    const struct chain_archive *archive = storage_archive(a->storage);
    struct value_sums earlier = value_sums_copy(&archive->sums);
    for (size_t i = 0; i < a->sealed.n; i++)
        if (a->sealed.slices[i].state.number > archive->through)
            value_sums_add(&earlier, &a->sealed.slices[i].state.sums);
    value_sums_add(&earlier, &a->ending_sums);
    tally_set_earlier_sums(a->tally, &earlier);
    value_sums_free(&earlier);
    a->archive = archive->generation;
}

static enum slice_result open_slices(struct aggregate *a, usec_t wall, struct error *error)
{
    const struct chain_config c = {.slices_dir = a->slices_dir,
        .rejects_dir = a->rejects_dir,
        .archive = a->config.archive,
        .counters = a->config.counters};
    enum slice_result r = chain_open(&c, &a->sealed, &a->next, error);
    if (r != SLICE_OK)
        return r;
    a->storage = storage_new(&(struct storage_config){.counters = a->config.counters,
        .rejects_dir = a->rejects_dir,
        .archive = has_values(a->config.counters) ? a->config.archive : NULL,
        .rejects_limits = a->config.rejects_limits,
        .notify = a->config.notify,
        .notify_arg = a->config.notify_arg});
    if (!a->storage)
        return storage_fail_errno("start", "the storage thread", error);
    prepare_begin(a, wall);
    storage_begin(a->storage, &a->job);
    a->reader = a->job.reader;
    if (a->job.result != SLICE_OK)
        return error_set(error, a->job.result, "%s", a->job.error.text);
    chain_next_free(&a->next);
    const struct slice_state *state = storage_state(a->storage);
    a->number = state->number;
    a->quarters_since = state->quarters_since;
    a->before = state->before;
    a->counted = state->tally;
    a->at_start = add_tallies(state->before, state->tally);
    a->rejects_length = state->rejects_length;
    a->merge_is_due = a->job.merge_is_due;
    a->merge_is_behind = a->job.merge_is_behind;
    a->max_cursors = a->config.n_streams + state->n_cursors + a->config.max_inputs;
    a->cursors = mem_zalloc((a->max_cursors + 1) * sizeof *a->cursors);
    a->job_cursors = mem_zalloc((a->max_cursors + 1) * sizeof *a->job_cursors);
    a->committed = mem_zalloc((a->max_cursors + 1) * sizeof *a->committed);
    for (; a->n_cursors < a->config.n_streams; a->n_cursors++) {
        struct slice_cursor *cursor = &a->cursors[a->n_cursors];
        snprintf(cursor->stream, sizeof cursor->stream, "%s", a->config.streams[a->n_cursors]);
        for (size_t k = 0; k < state->n_cursors; k++)
            if (strcmp(state->cursors[k].stream, cursor->stream) == 0)
                *cursor = state->cursors[k];
    }
    for (size_t k = 0; k < state->n_cursors; k++)
        if (state->cursors[k].stream[0] == AGGREGATE_INPUT_MARK)
            a->cursors[a->n_cursors++] = state->cursors[k];
    memcpy(a->committed, a->cursors, a->n_cursors * sizeof *a->cursors);
    return SLICE_OK;
}

enum slice_result aggregate_open(
    const struct aggregate_config *config, usec_t wall, struct aggregate **out, struct error *error)
{
    struct aggregate *a = mem_zalloc(sizeof *a);
    a->config = *config;
    a->newest = mem_zalloc((config->n_streams + 1) * sizeof *a->newest);
    enum slice_result r = make_directory(config->dir, "slices", &a->slices_dir, error);
    if (r == SLICE_OK)
        r = make_directory(config->dir, "rejects", &a->rejects_dir, error);
    if (r == SLICE_OK)
        r = open_slices(a, wall, error);
    size_t aside = AGGREGATE_MEMORY_MIN / 2 + key_limits_bytes_max(config->counters);
    assert(aside < config->max_memory);
    a->config.max_memory -= aside;
    a->tally = tally_new(config->counters, a->config.max_memory, config->minutes, a->quarters_since);
    if (r == SLICE_OK)
        r = tally_load_keys(a->tally, a->reader, error);
    if (r == SLICE_OK) {
        tally_begin_sums(a->tally, &storage_state(a->storage)->sums);
        renew_sums(a);
        int64_t started = a->open_started = storage_state(a->storage)->started;
        a->latest = started < HOUR_END ? started * USEC_PER_SEC : 0;
        aggregate_set_wall(a, wall, wall);
    } else {
        aggregate_close(&a);
    }
    *out = a;
    return r;
}

void aggregate_close(struct aggregate **ap)
{
    struct aggregate *a = *ap;
    if (!a)
        return;
    storage_free(&a->storage);
    batch_free(&a->flushing);
    tally_free(&a->tally);
    slice_reader_close(&a->reader);
    sealed_free(&a->sealed);
    chain_next_free(&a->next);
    free(a->slices_dir);
    free(a->rejects_dir);
    free(a->slice_path);
    free(a->newest);
    free(a->cursors);
    free(a->job_cursors);
    free(a->committed);
    free(a->layers);
    value_sums_free(&a->ending_sums);
    value_sums_free(&a->job_sums);
    free(a);
    *ap = NULL;
}

const struct slice_cursor *aggregate_cursor(const struct aggregate *a, size_t stream)
{
    assert(stream < a->n_cursors);
    return &a->cursors[stream];
}

const struct slice_cursor *aggregate_committed(const struct aggregate *a, size_t stream)
{
    assert(stream < a->n_cursors);
    return &a->committed[stream];
}

void aggregate_set_until(struct aggregate *a, size_t stream, usec_t until)
{
    struct slice_cursor *c = &a->cursors[stream], *committed = &a->committed[stream];
    assert(stream < a->config.n_streams);
    c->until = until;
    if (until < committed->until || (c->offset == committed->offset && strcmp(c->id, committed->id) == 0))
        committed->until = until;
}

void aggregate_keep_untils(struct aggregate *a)
{
    tally_batch(a->tally)->moved = true;
}

void aggregate_begin_stream(struct aggregate *a, size_t stream, const char *id, uint64_t offset)
{
    struct slice_cursor *c = &a->cursors[stream];
    assert(stream < a->n_cursors && c->id[0] == '\0');
    snprintf(c->id, sizeof c->id, "%s", id);
    c->offset = offset;
    a->committed[stream] = *c;
}

static void count(struct aggregate *a, enum counters_verdict verdict)
{
    struct slice_tally *tallies[] = {&a->counted, &a->numbers.counted};
    for (int i = 0; i < 2; i++) {
        tallies[i]->events += verdict == COUNTERS_EVENT;
        tallies[i]->skipped += verdict == COUNTERS_SKIPPED;
        tallies[i]->rejected += verdict == COUNTERS_REJECTED;
    }
}

static void reject(struct aggregate *a, size_t stream, struct bytes line, uint64_t length, const char *reason)
{
    const struct slice_cursor *c = &a->cursors[stream];
    bool is_input = stream >= a->config.n_streams;
    const struct rejects_entry entry = {.is_file = is_input,
        .name = bytes_str(is_input ? a->input_path : c->stream),
        .content = is_input ? bytes_str(a->input_content) : BYTES_NONE,
        .offset = c->offset,
        .reason = bytes_str(reason),
        .time = a->wall / USEC_PER_SEC,
        .length = length,
        .line = line};
    rejects_format(&tally_batch(a->tally)->rejects, &entry);
    count(a, COUNTERS_REJECTED);
    if (a->config.on_reject)
        a->config.on_reject(&entry, a->config.reject_arg);
}

static void move_cursor(struct aggregate *a, size_t stream, uint64_t to)
{
    assert(to >= a->cursors[stream].offset);
    a->cursors[stream].offset = to;
    tally_batch(a->tally)->moved = true;
}

enum counters_verdict aggregate_take_rejected(struct aggregate *a, const struct rejects_entry *entry)
{
    struct rejects_entry again = *entry;
    const char *reason;
    int64_t time;
    enum counters_verdict verdict = tally_line(a->tally, entry->line, &reason, &time);
    if (verdict != COUNTERS_REJECTED) {
        count(a, verdict);
        return verdict;
    }
    again.reason = bytes_str(reason);
    rejects_format(&tally_batch(a->tally)->rejects, &again);
    return verdict;
}

void aggregate_keep_rejected(struct aggregate *a, struct bytes entry)
{
    struct buf *rejects = &tally_batch(a->tally)->rejects;
    buf_append_bytes(rejects, entry);
    buf_append_char(rejects, '\n');
}

void aggregate_set_front(struct aggregate *a, size_t input, struct rejects_place front)
{
    struct slice_cursor *c = &a->cursors[input];
    snprintf(c->id, sizeof c->id, "%" PRIu64, front.slice);
    c->offset = front.offset;
    tally_batch(a->tally)->moved = true;
}

bool aggregate_rejects_end(const struct aggregate *a, struct rejects_place *end)
{
    *end = (struct rejects_place){a->number, a->rejects_length};
    return a->phase == PHASE_COUNTING;
}

const char *aggregate_rejects_dir(const struct aggregate *a)
{
    return a->rejects_dir;
}

size_t aggregate_inputs_end(const struct aggregate *a)
{
    return a->n_cursors;
}

size_t aggregate_add_input(struct aggregate *a, const char *name)
{
    assert(name[0] == AGGREGATE_INPUT_MARK && a->n_cursors < a->max_cursors);
    snprintf(a->cursors[a->n_cursors].stream, sizeof a->cursors->stream, "%s", name);
    return a->n_cursors++;
}

void aggregate_set_input_file(struct aggregate *a, const char *path, const char *content)
{
    a->input_path = path;
    a->input_content = content;
}

void aggregate_pass(struct aggregate *a, size_t stream, uint64_t bytes)
{
    move_cursor(a, stream, a->cursors[stream].offset + bytes);
}

void aggregate_set_wall(struct aggregate *a, usec_t wall, usec_t trusted)
{
    a->trusted = trusted;
    a->latest = trusted > a->latest ? trusted : a->latest;
    a->wall = wall > a->latest ? wall : a->latest;
    tally_set_now(a->tally, a->wall / USEC_PER_SEC);
    if (a->config.minutes)
        minute_ring_set_now(a->config.minutes, trusted / USEC_PER_SEC);
}

/* If the clock was ahead at the start, *newest may be in the future now. In this case the next event replaces
 * *newest. */
static void keep_newest(const struct aggregate *a, int64_t time, int64_t *newest)
{
    int64_t now = a->trusted / USEC_PER_SEC;
    bool is_past = time <= a->latest / USEC_PER_SEC;
    if (is_past && (time > *newest || (*newest > now && time <= now)))
        *newest = time;
}

static void note_time(struct aggregate *a, size_t stream, int64_t time)
{
    bool is_stream = stream < a->config.n_streams;
    keep_newest(a, time, &a->numbers.newest_event);
    if (is_stream)
        keep_newest(a, time, &a->newest[stream]);
    if (is_stream && a->config.lateness)
        stats_observe(a->config.lateness, a->wall - time * USEC_PER_SEC);
}

void aggregate_take_line(struct aggregate *a, size_t stream, struct bytes line)
{
    const char *reason;
    int64_t time;
    assert(stream < a->n_cursors);
    enum counters_verdict verdict = tally_line(a->tally, line, &reason, &time);
    if (verdict == COUNTERS_EVENT) {
        note_time(a, stream, time);
        if (stream < a->config.n_streams)
            tally_count_minute(a->tally, time);
    }
    if (verdict == COUNTERS_REJECTED)
        reject(a, stream, line, line.len, reason);
    else
        count(a, verdict);
    move_cursor(a, stream, a->cursors[stream].offset + line.len + 1);
}

void aggregate_refill_line(struct aggregate *a, struct bytes line)
{
    tally_refill_line(a->tally, line);
    if (tally_is_large(a->tally)) /* a flush must replace the interner, even if no other line comes */
        tally_batch(a->tally)->moved = true;
}

void aggregate_take_overlong(struct aggregate *a, size_t stream, struct bytes head, uint64_t length)
{
    reject(a, stream, head, length, "the line is longer than max_line");
    move_cursor(a, stream, a->cursors[stream].offset + length + 1);
}

void aggregate_set_stream_id(struct aggregate *a, size_t stream, const char *id)
{
    struct slice_cursor *c = &a->cursors[stream];
    if (strcmp(c->id, id) == 0)
        return;
    snprintf(c->id, sizeof c->id, "%s", id);
    tally_batch(a->tally)->moved = true;
}

void aggregate_cross_hole(struct aggregate *a, size_t stream, uint64_t after)
{
    a->cursors[stream].offset = after;
    tally_batch(a->tally)->moved = true;
    a->numbers.holes++;
}

static size_t memory_of(const struct aggregate *a)
{
    size_t texts = a->flushing.owns_texts ? interner_bytes(a->flushing.texts) : 0;
    return tally_bytes(a->tally) + batch_bytes(&a->flushing) + texts;
}

static bool is_writing(const struct aggregate *a)
{
    return a->flushing.table != NULL;
}

bool aggregate_is_full(const struct aggregate *a)
{
    uint64_t max_batch = a->config.max_batch ? a->config.max_batch : TALLY_EVENTS_MAX;
    return a->latched || memory_of(a) >= a->config.max_memory || tally_batch(a->tally)->events >= max_batch;
}

static void start_job(struct aggregate *a, struct storage_job *job, usec_t now)
{
    a->running = job;
    a->job_waits = a->job_waits && job != &a->job;
    a->started_job = now;
    storage_start(a->storage, job);
}

/* Makes the active batch the flushing batch and starts its commit. */
static void start_flush(struct aggregate *a, usec_t now, bool seal)
{
    value_sums_free(&a->job_sums);
    a->job_sums = value_sums_copy(tally_sums(a->tally));
    a->flushing = tally_take(a->tally, seal);
    a->last_swap = now;
    a->has_flushed = true;
    memcpy(a->job_cursors, a->cursors, a->n_cursors * sizeof *a->cursors);
    a->job = (struct storage_job){.kind = STORAGE_COMMIT,
        .trusted = a->trusted,
        .batch = &a->flushing,
        .commit = {.cursors = a->job_cursors,
            .n_cursors = a->n_cursors,
            .tally = a->counted,
            .sums = &a->job_sums,
            .rejects_length = a->rejects_length + a->flushing.rejects.len,
            .newest_hour = a->flushing.newest_hour,
            .seal = seal},
        .rejects_at = a->rejects_length};
    if (seal) {
        a->ending = a->counted;
        a->counted = (struct slice_tally){0};
        a->ending_sums = value_sums_copy(&a->job_sums);
        renew_sums(a);
    }
    start_job(a, &a->job, now);
}

static bool is_idle(const struct aggregate *a)
{
    return !a->latched && a->phase == PHASE_COUNTING && !is_writing(a) && !a->running && !a->job_waits &&
           !a->renewal_waits;
}

void aggregate_flush(struct aggregate *a, usec_t now)
{
    if (is_idle(a) && tally_batch(a->tally)->moved)
        start_flush(a, now, false);
}

static void latch(struct aggregate *a, enum slice_result r, const struct error *error)
{
    a->latched = true;
    error_set(&a->failure, r, "storage %s: %s", r == SLICE_DAMAGED ? "damaged" : "failed", error->text);
    log_error("storage failed; counting stops until a restart", LOG_S("error", error->text));
}

static void wait_for_space(struct aggregate *a, usec_t now, const struct error *error)
{
    if (a->failure.code == SLICE_OK)
        log_warn("disk full; counting continues in memory", LOG_S("error", error->text));
    error_set(&a->failure, SLICE_FULL, "storage full: %s", error->text);
    a->retry_at = a->background_at = now + AGGREGATE_RETRY;
}

/* Renews the reader if the completed job requires it, and starts the next job of a seal. */
static void finish_job(struct aggregate *a, usec_t now)
{
    enum storage_kind kind = a->job.kind;
    enum slice_result r = SLICE_OK;
    /* The reader must show a new commit. After the renewal, SQLite can also overwrite the log from its start. */
    if (kind == STORAGE_COMMIT || kind == STORAGE_CHECKPOINT || a->job.runs_changed)
        r = slice_reader_renew(a->reader);
    a->renewal_waits = r == SLICE_FULL;
    if (r == SLICE_FULL)
        wait_for_space(a, now, slice_reader_failure(a->reader));
    else if (r != SLICE_OK)
        latch(a, r, slice_reader_failure(a->reader));
    if (r != SLICE_OK)
        return;
    if (a->failure.code != SLICE_OK)
        log_info("storage recovered; writing continues");
    a->failure.code = SLICE_OK;
    if (kind == STORAGE_COMMIT)
        batch_free(&a->flushing);
    if (kind == STORAGE_COMMIT && a->job.commit.seal) {
        a->phase = PHASE_FOLDING;
        a->job = (struct storage_job){.kind = STORAGE_FOLD, .begin.path = a->slice_path};
        start_job(a, &a->job, now);
    } else if (kind == STORAGE_FOLD) {
        if (a->job.reader) {
            slice_reader_close(&a->reader);
            a->reader = a->job.reader;
        }
        a->job = (struct storage_job){.kind = STORAGE_CLOSE};
        start_job(a, &a->job, now);
    } else if (kind == STORAGE_CLOSE) {
        sealed_add(&a->sealed, a->slice_path, a->reader);
        value_sums_free(&a->ending_sums);
        a->reader = NULL;
        chain_follow(&a->sealed, &a->next);
        a->number = a->next.number;
        a->before = a->next.before;
        a->ending = (struct slice_tally){0};
        a->rejects_length = 0;
        a->phase = PHASE_BEGINNING;
        prepare_begin(a, a->turned_at);
        start_job(a, &a->job, now);
    } else if (kind == STORAGE_BEGIN) {
        a->reader = a->job.reader;
        chain_next_free(&a->next);
        a->phase = PHASE_COUNTING;
    }
}

bool aggregate_tick(struct aggregate *a, usec_t now)
{
    a->is_cleared = false;
    if (a->running)
        return false;
    if (a->renewal_waits && !a->latched && now >= a->retry_at) {
        if (!a->is_held)
            finish_job(a, now);
        return false;
    }
    if (a->job_waits && now >= a->retry_at) {
        start_job(a, &a->job, now);
        return a->job.kind == STORAGE_COMMIT;
    }
    bool is_due =
        !a->has_flushed || now - a->last_swap >= a->config.flush_interval || tally_is_large(a->tally);
    /* Flushes wait while too many runs await a merge, unless a merge failed recently. The first flush never waits,
     * because otherwise no line would be counted if every restart came before the end of a long merge. */
    bool merge_first = a->merge_is_behind && a->has_flushed && now >= a->background_at;
    if (is_due && !merge_first)
        aggregate_flush(a, now);
    if (a->running)
        return true;
    if (!is_idle(a) || now < a->background_at || (a->log_pages < CHECKPOINT_PAGES && !a->merge_is_due))
        return false;
    a->job =
        (struct storage_job){.kind = a->log_pages >= CHECKPOINT_PAGES ? STORAGE_CHECKPOINT : STORAGE_MERGE};
    start_job(a, &a->job, now);
    return false;
}

void aggregate_poll(struct aggregate *a, usec_t now)
{
    struct storage_job *job = a->is_held ? NULL : storage_done(a->storage);
    if (!job)
        return;
    a->running = NULL;
    if (storage_archive(a->storage)->generation != a->archive)
        renew_sums(a);
    if (job == &a->clear_job && job->kind == STORAGE_CLEAR) {
        job->kind = STORAGE_CLOSE_CLEARED;
        job->readers = sealed_forget(&a->sealed, job->removed);
        start_job(a, job, now);
        return;
    }
    if (job == &a->clear_job) {
        a->is_cleared = true;
        return;
    }
    if (job->result == SLICE_FULL) {
        wait_for_space(a, now, &job->error);
        /* A failed merge or checkpoint begins again later. Any other job is retried unchanged. */
        a->job_waits = job->kind != STORAGE_MERGE && job->kind != STORAGE_CHECKPOINT;
        return;
    }
    if (job->result != SLICE_OK) {
        latch(a, job->result, &job->error);
        return;
    }
    a->numbers.collisions += job->written.collisions;
    if (job->written.collisions > 0)
        log_warn("two texts have the same hash; the lookup keeps the smaller text",
            LOG_S("key", job->written.collision));
    a->log_pages = job->log_pages;
    a->merge_is_due = job->merge_is_due;
    a->merge_is_behind = job->merge_is_behind;
    if (job->kind == STORAGE_COMMIT) {
        a->rejects_length = job->commit.rejects_length;
        for (size_t i = 0; i < job->commit.n_cursors; i++)
            if (a->job_cursors[i].id[0] != '\0') /* empty: the stream may have begun after the commit */
                a->committed[i] = a->job_cursors[i];
        a->numbers.flushes++;
        a->numbers.rows_flushed += job->written.counts;
        a->numbers.last_flush = now - a->started_job;
    }
    finish_job(a, now);
}

bool aggregate_is_clean(const struct aggregate *a)
{
    return !tally_batch(a->tally)->moved && !is_writing(a) && a->phase == PHASE_COUNTING;
}

const struct error *aggregate_failure(const struct aggregate *a)
{
    return a->failure.code == SLICE_OK ? NULL : &a->failure;
}

enum slice_result aggregate_seal(struct aggregate *a, usec_t now, usec_t wall, struct error *error)
{
    if (a->latched || a->job_waits || a->renewal_waits)
        return error_set(error, a->latched ? SLICE_FAILED : SLICE_FULL, "%s", a->failure.text);
    if (!is_idle(a))
        return SLICE_OK;
    size_t most = a->config.max_sealed ? a->config.max_sealed : SEALED_MAX;
    if (a->sealed.n >= most)
        return error_set(error, SLICE_FULL, "%zu %s sealed but not cleared, which is the limit", most,
            plural(most, "slice is", "slices are"));
    a->turned_at = wall;
    a->phase = PHASE_ENDING;
    start_flush(a, now, true);
    return SLICE_OK;
}

enum aggregate_clear aggregate_clear(struct aggregate *a, usec_t now, uint64_t through, struct error *error)
{
    if (through >= a->number)
        return AGGREGATE_CLEAR_OPEN;
    if (!a->config.archive)
        return error_set(error, AGGREGATE_CLEAR_NOT_ARCHIVED,
            "the setting archive is missing; set it to the archive's directory");
    if (a->is_cleared && a->clear_job.through == through) {
        a->is_cleared = false;
        error_set(error, a->clear_job.result, "%s", a->clear_job.error.text);
        return a->clear_job.result == SLICE_OK        ? AGGREGATE_CLEAR_OK
               : a->clear_job.result == SLICE_FOREIGN ? AGGREGATE_CLEAR_NOT_ARCHIVED
                                                      : AGGREGATE_CLEAR_FAILED;
    }
    /* The clear does not replace a job that waits for space, because the clear may free that space. */
    if (!a->running) {
        a->clear_job = (struct storage_job){
            .kind = STORAGE_CLEAR, .archive = a->config.archive, .sealed = &a->sealed, .through = through};
        start_job(a, &a->clear_job, now);
    }
    return AGGREGATE_CLEAR_BUSY;
}

const struct sealed *aggregate_sealed(const struct aggregate *a)
{
    return &a->sealed;
}

uint64_t aggregate_cleared_slice(const struct aggregate *a)
{
    return (a->sealed.n > 0 ? a->sealed.slices[0].state.number : a->number) - 1;
}

enum aggregate_after aggregate_layers(struct aggregate *a, uint64_t after, struct reads_layers *out)
{
    if (after < aggregate_cleared_slice(a))
        return AGGREGATE_AFTER_CLEARED;
    if (after >= a->number)
        return AGGREGATE_AFTER_AHEAD;
    a->layers = mem_realloc(a->layers, (a->sealed.n + 1) * sizeof(struct slice_reader *));
    *out = (struct reads_layers){.readers = a->layers, .counters = a->config.counters};
    for (size_t i = 0; i < a->sealed.n; i++)
        if (a->sealed.slices[i].state.number > after)
            a->layers[out->n_readers++] = a->sealed.slices[i].reader;
    if (a->reader)
        a->layers[out->n_readers++] = a->reader;
    if (is_writing(a))
        out->batches[out->n_batches++] = &a->flushing;
    out->batches[out->n_batches++] = tally_batch(a->tally);
    return AGGREGATE_AFTER_OK;
}

void aggregate_hold(struct aggregate *a, bool hold)
{
    a->is_held = hold;
    if (a->config.minutes)
        minute_ring_hold(a->config.minutes, hold);
}

struct minute_columns aggregate_minute_columns(const struct aggregate *a)
{
    return tally_minute_columns(a->tally);
}

int64_t aggregate_open_started(const struct aggregate *a)
{
    return a->open_started;
}

uint64_t aggregate_open_slice(const struct aggregate *a)
{
    return a->number;
}

int64_t aggregate_quarters_since(const struct aggregate *a)
{
    return a->quarters_since;
}

int64_t aggregate_newest_event(const struct aggregate *a, size_t stream)
{
    return a->newest[stream];
}

static struct slice_tally committed_tally(const struct aggregate *a)
{
    const struct slice_state *state = a->reader ? slice_reader_state(a->reader) : NULL;
    return state ? add_tallies(state->before, state->tally) : a->next.before;
}

void aggregate_numbers(const struct aggregate *a, struct aggregate_numbers *out)
{
    struct slice_tally now = committed_tally(a), then = a->at_start;
    *out = a->numbers;
    out->committed = (struct slice_tally){
        now.events - then.events, now.skipped - then.skipped, now.rejected - then.rejected};
    out->slice = add_tallies(a->counted, a->ending);
    out->total = add_tallies(out->slice, a->before);
    out->memory = memory_of(a);
}

uint64_t aggregate_over_max_keys(const struct aggregate *a, size_t counter)
{
    const struct key_limit *limit = tally_limit(a->tally, counter);
    return limit ? key_limit_exceeded(limit) : 0;
}

const char *aggregate_absent_field(const struct aggregate *a, size_t i)
{
    return counters_reader_absent(tally_reader(a->tally), i);
}

int64_t aggregate_time_beyond(const struct aggregate *a)
{
    return counters_reader_beyond(tally_reader(a->tally));
}
