#include "compactor/generation_merge.h"

#include "base/io.h"
#include "compactor/archive.h"
#include "compactor/record_source.h"
#include "compactor/quarter_source.h"
#include "compactor/slice_audit.h"
#include "counts/records.h"
#include "counts/slice_files.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Number of buffers per shard: a reader and two writers of records, the same for texts, two for the blocks of slices, and
 * two for sets. */
#define BUFFERS_OF_SHARD 10
#define PAGE_BYTES 4096

struct job;

struct worker {
    struct job *job;
    uint32_t number;
    pthread_t thread;
    struct record_filter part; /* selects the records of the worker's shards, without derived records */
    struct merge_shard *shards;
    struct slice_reader **slices;
    struct slice_audit **audits;
    size_t n_slices;
    struct count_sources sources; /* the borrowed sources come last */
    size_t n_borrowed;
    struct merge_report report;
    _Atomic uint64_t records, bytes; /* copies of the report's fields, for the other threads */
    struct error error;              /* code COMPACT_OK: none */
};

struct job {
    const struct generation_merge *g;
    struct worker *workers;
    uint32_t n_workers;
    bool is_anew; /* the old files are added sources (merge.h) */
    size_t buffer_bytes;
    char directory[PATH_MAX], old_directory[PATH_MAX];
    atomic_bool stopped;
};

static bool is_of_part(void *arg, const struct record_key *key, int64_t start)
{
    const struct worker *w = arg;
    const struct generation_merge *g = w->job->g;
    if (!record_filter_is_counted((void *)(uintptr_t)g->old, key, start))
        return false;
    return w->job->n_workers == 1 || record_shard(key, g->made->shards) % w->job->n_workers == w->number;
}

static void add_source(struct worker *w, struct count_source *s)
{
    const struct record_filter *filter = w->job->g->filter;
    count_sources_add(&w->sources, filter ? record_filter_source(filter, s) : s);
}

static enum compact_result open_old(
    struct worker *w, const struct manifest_file *file, struct record_reader **out)
{
    enum compact_result r = COMPACT_OK;
    char *path = mem_printf("%s/%s", w->job->old_directory, file->name);
    int fd = io->open(path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        r = error_errno(&w->error, COMPACT_FAILED, path);
    else
        *out = record_reader_new(fd, path, file, w->job->buffer_bytes);
    free(path);
    return r;
}

static enum compact_result open_all_old(struct worker *w)
{
    const struct manifest *old = w->job->g->old;
    enum compact_result r = COMPACT_OK;
    for (uint32_t k = 0; k < old->shards && r == COMPACT_OK; k++) {
        struct record_reader *reader = NULL;
        r = open_old(w, &old->files[k], &reader);
        if (r == COMPACT_OK)
            add_source(w, record_filter_source(&w->part, &reader->base));
        struct set_reader *sets = NULL;
        if (r == COMPACT_OK)
            r = set_reader_open(w->job->old_directory, old, k, &sets, &w->error);
        if (sets)
            add_source(w, record_filter_source(&w->part, set_reader_source(sets)));
    }
    return r;
}

static enum compact_result open_slices(struct worker *w)
{
    const struct generation_merge *g = w->job->g;
    enum compact_result r = COMPACT_OK;
    size_t n = g->last >= g->first ? (size_t)(g->last - g->first + 1) : 0;
    int64_t since = g->made->quarters_since;
    w->slices = mem_zalloc((n + 1) * sizeof(struct slice_reader *));
    w->audits = mem_zalloc((n + 1) * sizeof(struct slice_audit *));
    for (size_t i = 0; i < n && r == COMPACT_OK; i++) {
        char *path = slice_path(g->slices, g->first + i);
        r = record_source_open_slice(path, &w->slices[i], &w->error);
        if (r == COMPACT_OK)
            w->audits[i] = slice_audit_new(path, slice_reader_state(w->slices[i]));
        free(path);
        if (r != COMPACT_OK)
            break;
        w->n_slices++;
        const struct slice_state *state = slice_reader_state(w->slices[i]);
        bool moves_hours = since > 0 && state->newest_hour >= since;
        for (size_t k = 0; k < slice_reader_runs(w->slices[i]); k++) {
            struct count_source *run = slice_reader_source(w->slices[i], k, BYTES_NONE);
            if (moves_hours) /* before the filter, which takes these hours for rollups */
                run = quarter_source(run, since, state->counters);
            if (w->job->n_workers > 1)
                run = record_filter_source(&w->part, run);
            add_source(w, slice_audit_source(w->audits[i], run));
        }
    }
    return r;
}

static enum compact_result open_sets(struct worker *w, uint32_t k)
{
    const struct generation_merge *g = w->job->g;
    struct set_merge_spec spec = {.directory = w->job->directory,
        .shard = k,
        .shards = g->made->shards,
        .hours_from = g->made->hours_from,
        .buffer_bytes = w->job->buffer_bytes};
    enum compact_result r = w->job->is_anew
                                ? COMPACT_OK
                                : set_reader_open(w->job->old_directory, g->old, k, &spec.old, &w->error);
    if (r == COMPACT_OK)
        w->shards[k].sets = set_merge_new(&spec);
    return r;
}

static enum compact_result open_shard(struct worker *w, uint32_t k)
{
    const struct generation_merge *g = w->job->g;
    struct merge_shard *s = &w->shards[k];
    size_t bytes = w->job->buffer_bytes;
    uint32_t n = g->made->shards;
    enum compact_result r = COMPACT_OK;
    if (!w->job->is_anew)
        r = open_old(w, &g->old->files[k], &s->old);
    if (!w->job->is_anew && r == COMPACT_OK)
        r = open_old(w, &g->old->texts[k], &s->old_texts);
    if (r == COMPACT_OK)
        r = shard_writer_open(w->job->directory, MANIFEST_RECORDS, k, n, bytes, &s->records, &w->error);
    if (r == COMPACT_OK)
        r = shard_writer_open(w->job->directory, MANIFEST_TEXTS, k, n, bytes, &s->texts, &w->error);
    return r == COMPACT_OK ? open_sets(w, k) : r;
}

static void on_merged(const struct merge_report *so_far, void *arg)
{
    struct worker *w = arg;
    const struct job *job = w->job;
    struct merge_report sum = {0};
    atomic_store(&w->records, so_far->records);
    atomic_store(&w->bytes, so_far->bytes);
    if (w->number > 0 || !job->g->on_progress)
        return;
    for (uint32_t i = 0; i < job->n_workers; i++) {
        sum.records += atomic_load(&job->workers[i].records);
        sum.bytes += atomic_load(&job->workers[i].bytes);
    }
    job->g->on_progress(&sum, job->g->arg);
}

static enum compact_result merge_part(struct worker *w)
{
    struct job *job = w->job;
    const struct generation_merge *g = job->g;
    w->shards = mem_zalloc(g->made->shards * sizeof *w->shards);
    enum compact_result r = open_slices(w);
    if (r == COMPACT_OK && job->is_anew)
        r = open_all_old(w);
    for (; g->n_parts > 0 && w->n_borrowed < g->parts[w->number].n; w->n_borrowed++)
        count_sources_add(&w->sources, g->parts[w->number].list[w->n_borrowed]);
    for (uint32_t k = w->number; k < g->made->shards && r == COMPACT_OK; k += job->n_workers)
        r = open_shard(w, k);
    struct merge_spec spec = {.sources = w->sources.list,
        .n_sources = w->sources.n,
        .shards = w->shards,
        .n_shards = g->made->shards,
        .hours_from = g->made->hours_from,
        .memory = g->memory / job->n_workers,
        .directory = job->directory,
        .stopped = &job->stopped,
        .on_progress = on_merged,
        .arg = w};
    if (r == COMPACT_OK)
        r = merge_run(&spec, &w->report, &w->error);
    for (uint32_t k = w->number; k < g->made->shards && r == COMPACT_OK; k += job->n_workers) {
        r = shard_writer_finish(w->shards[k].records, &g->made->files[k], &w->error);
        if (r == COMPACT_OK)
            r = shard_writer_finish(w->shards[k].texts, &g->made->texts[k], &w->error);
        if (r == COMPACT_OK)
            r = set_merge_finish(w->shards[k].sets, &g->made->set_texts[k], &g->made->sets[k], &w->error);
    }
    return r;
}

static void close_part(struct worker *w)
{
    w->sources.n -= w->n_borrowed;
    count_sources_free(&w->sources);
    for (size_t i = 0; i < w->n_slices; i++)
        slice_reader_close(&w->slices[i]);
    for (uint32_t k = 0; k < w->job->g->made->shards; k++) {
        struct merge_shard *s = &w->shards[k];
        struct count_source *old[] = {
            s->old ? &s->old->base : NULL, s->old_texts ? &s->old_texts->base : NULL};
        count_source_close(&old[0]);
        count_source_close(&old[1]);
        shard_writer_close(&s->records);
        shard_writer_close(&s->texts);
        set_merge_free(&s->sets);
    }
    free(w->slices);
    free(w->shards);
}

static void *work(void *arg)
{
    struct worker *w = arg;
    w->error.code = merge_part(w);
    if (w->error.code != COMPACT_OK)
        atomic_store(&w->job->stopped, true);
    close_part(w);
    return NULL;
}

/* Adds the audits of all threads to the audits of the first thread, and checks the sums. */
static enum compact_result check_audits(struct job *job, struct error *error)
{
    enum compact_result r = COMPACT_OK;
    struct worker *first = &job->workers[0];
    for (size_t i = 0; i < first->n_slices && r == COMPACT_OK; i++) {
        for (uint32_t k = 1; k < job->n_workers; k++)
            slice_audit_add(first->audits[i], job->workers[k].audits[i]);
        r = slice_audit_check(first->audits[i], error);
    }
    return r;
}

/* Adds up the reports. If threads have failed, prefers the error of a thread that no other thread has stopped. */
static enum compact_result gather(struct job *job, struct merge_report *report, struct error *error)
{
    const struct error *failed = NULL;
    for (uint32_t i = 0; i < job->n_workers; i++) {
        const struct worker *w = &job->workers[i];
        report->records += w->report.records;
        report->bytes += w->report.bytes;
        if (w->report.collisions > 0)
            memcpy(report->collision, w->report.collision, sizeof report->collision);
        report->collisions += w->report.collisions;
        if (w->error.code != COMPACT_OK && (!failed || failed->code == COMPACT_TRY_AGAIN))
            failed = &w->error;
    }
    return failed ? error_set(error, failed->code, "%s", failed->text) : (int)check_audits(job, error);
}

uint32_t generation_merge_threads(unsigned threads, uint32_t shards)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    uint32_t n = threads > 0 ? threads : processors > 0 ? (uint32_t)processors : 1;
    return n < shards ? n : shards;
}

static size_t buffer_of(const struct generation_merge *g, bool is_anew, uint32_t workers)
{
    size_t n = (size_t)g->made->shards * BUFFERS_OF_SHARD + (is_anew ? (size_t)g->old->shards * workers : 0);
    size_t bytes = g->memory / 4 / n;
    bytes -= bytes % PAGE_BYTES;
    return bytes < RECORD_READER_BYTES_MIN ? RECORD_READER_BYTES_MIN
           : bytes > SHARD_WRITER_BYTES    ? SHARD_WRITER_BYTES
                                           : bytes;
}

enum compact_result generation_merge(
    const struct generation_merge *g, struct merge_report *report, struct error *error)
{
    const struct manifest *old = g->old;
    struct job job = {.g = g,
        .n_workers = g->n_parts > 0 ? g->n_parts : generation_merge_threads(g->threads, g->made->shards)};
    uint32_t begun = 1;
    *report = (struct merge_report){0};
    job.is_anew = old->shards != g->made->shards || g->filter || g->made->hours_from > old->hours_from;
    job.buffer_bytes = buffer_of(g, job.is_anew, job.n_workers);
    archive_path(g->archive, g->made->generation, true, job.directory);
    archive_path(g->old_archive, old->generation, false, job.old_directory);
    job.workers = mem_zalloc(job.n_workers * sizeof *job.workers);
    for (uint32_t i = 0; i < job.n_workers; i++) {
        struct worker *w = &job.workers[i];
        w->job = &job;
        w->number = i;
        w->part = (struct record_filter){.keep = is_of_part, .arg = w};
    }
    while (begun < job.n_workers &&
           pthread_create(&job.workers[begun].thread, NULL, work, &job.workers[begun]) == 0)
        begun++;
    work(&job.workers[0]);
    for (uint32_t i = 1; i < job.n_workers; i++) {
        if (i < begun)
            pthread_join(job.workers[i].thread, NULL);
        else
            work(&job.workers[i]); /* the thread could not be created */
    }
    enum compact_result r = gather(&job, report, error);
    for (uint32_t i = 0; i < job.n_workers; i++) {
        for (size_t k = 0; k < job.workers[i].n_slices; k++)
            slice_audit_free(&job.workers[i].audits[k]);
        free(job.workers[i].audits);
    }
    free(job.workers);
    return r;
}
