#include "compactor/run.h"

#include "compactor/archive.h"
#include "counts/counters.h"
#include "compactor/merge.h"
#include "compactor/slice_audit.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define COUNTER_SHOWN 200

/* The records of a file that are not derived from others. */
struct records_view {
    int64_t hours_from;
    struct record_filter filter;
};

struct run {
    const struct run_spec *spec;
    struct run_outcome *out;
    char *error;
    struct manifest old, made; /* current at the start; the new one */
    uint64_t open;             /* the slice that was open */
    bool open_is_empty;
    uint64_t last;               /* the last sealed slice */
    enum compact_result sealing; /* COMPACT_TRY_AGAIN: the open slice could not be sealed */
    char seal_error[COMPACT_ERROR_TEXT];
    bool has_work; /* a new generation is needed */
    struct slice_reader **slices;
    struct slice_audit **audits; /* of the slices */
    size_t n_slices;
    struct records_view *views; /* of the old shards */
    struct count_source **sources;
    size_t n_sources, n_owned; /* spec's own sources come last and are not closed */
    uint64_t total;            /* bytes of the sources */
};

static enum compact_result step_recover(struct run *run)
{
    const struct run_spec *spec = run->spec;
    enum compact_result r = archive_recover(spec->archive, run->error);
    if (r == COMPACT_OK)
        r = archive_init(spec->archive, spec->shards ? spec->shards : 1, spec->now, run->error);
    if (r != COMPACT_OK)
        return r;
    enum manifest_result m = manifest_read_current(spec->archive, &run->old, run->error);
    if (m != MANIFEST_OK)
        return m == MANIFEST_NEWER    ? COMPACT_REFUSED
               : m == MANIFEST_FAILED ? COMPACT_FAILED
                                      : COMPACT_DAMAGED;
    run->out->generation = run->old.generation;
    run->out->through = run->old.through;
    return COMPACT_OK;
}

static enum compact_result step_look(struct run *run)
{
    const struct run_control *c = run->spec->control;
    enum compact_result r = c->look(c->arg, &run->open, &run->open_is_empty, run->error);
    if (r != COMPACT_OK)
        return r;
    if (run->open == 0)
        run->open = run->old.through + 1;
    if (run->open <= run->old.through)
        return compact_fail(run->error, COMPACT_REFUSED,
            "the archive includes slices through %" PRIu64 ", but the aggregator's open slice is %" PRIu64
            ": they belong to different data",
            run->old.through, run->open);
    return COMPACT_OK;
}

/* If the open slice is empty, it stays open, so that no new generation is made while no events arrive. If the open
 * slice cannot be sealed, the run still merges the sealed slices: a full aggregator gets space only after they are
 * cleared. */
static enum compact_result step_seal(struct run *run)
{
    const struct run_control *c = run->spec->control;
    run->last = run->open - 1;
    if (run->open_is_empty)
        return COMPACT_OK;
    run->sealing = c->seal(c->arg, run->open, run->seal_error);
    if (run->sealing == COMPACT_OK)
        run->last = run->open;
    if (run->sealing == COMPACT_OK || run->sealing == COMPACT_TRY_AGAIN)
        return COMPACT_OK;
    return compact_fail(run->error, run->sealing, "%s", run->seal_error);
}

static void replace_text(char **text, char *by)
{
    free(*text);
    *text = by;
}

static enum compact_result plan_slice(struct run *run, const char *path, uint64_t n)
{
    struct slice_facts f;
    struct manifest *m = &run->made;
    enum compact_result r = slice_facts_read(path, &f, run->error);
    if (r != COMPACT_OK)
        return r;
    if (f.number != n)
        r = compact_fail(run->error, COMPACT_DAMAGED, "%.300s: contains slice %" PRIu64, path, f.number);
    /* If the key of a namespace changed, its old and new counts must not add up under one name. */
    struct bytes line = counters_conflict(m->counters, f.counters);
    if (line.len == 0)
        line = counters_conflict(m->retired, f.counters);
    if (r == COMPACT_OK && line.len > 0)
        r = compact_fail(run->error, COMPACT_REFUSED,
            "%.200s counts another key than the archive's `%.*s`; give the counter another name", path,
            (int)(line.len < COUNTER_SHOWN ? line.len : COUNTER_SHOWN), line.ptr);
    /* A slice must start where the previous slice ended, else events would be missing or counted twice. A new stream may
     * start anywhere. */
    for (size_t i = 0; i < m->n_streams && r == COMPACT_OK; i++) {
        const struct manifest_stream *end = &m->streams[i], *begin = NULL;
        for (size_t k = 0; k < f.n_begins && !begin; k++)
            begin = strcmp(f.begins[k].name, end->name) == 0 ? &f.begins[k] : NULL;
        if (!begin || begin->end != end->end || strcmp(begin->id, end->id) != 0)
            r = compact_fail(run->error, COMPACT_REFUSED,
                "%.200s does not start where the archive ends in stream %s (offset %" PRIu64
                " of %s): they do not belong together",
                path, end->name, end->end, end->id);
    }
    if (r == COMPACT_OK) {
        /* The manifest gets the counters and cursors of the newest slice. `retired` keeps the counters that this slice
         * no longer has, so that a later slice cannot reuse their names with another key. */
        struct buf retired = {0};
        counters_append_missing(m->retired, f.counters, &retired);
        counters_append_missing(m->counters, f.counters, &retired);
        replace_text(&m->retired, bytes_dup(buf_bytes(&retired)));
        replace_text(&m->counters, f.counters);
        f.counters = NULL;
        free(m->streams);
        m->streams = f.streams;
        m->n_streams = f.n_streams;
        f.streams = NULL;
        run->total += f.bytes;
        buf_free(&retired);
    }
    slice_facts_free(&f);
    return r;
}

static void plan_imports(struct run *run)
{
    const struct manifest *old = &run->old;
    struct manifest *m = &run->made;
    m->imports = mem_alloc((old->n_imports + run->spec->n_imports + 1) * sizeof(*m->imports));
    for (; m->n_imports < old->n_imports; m->n_imports++)
        m->imports[m->n_imports] = old->imports[m->n_imports];
    for (size_t i = 0; i < run->spec->n_imports; i++) {
        m->imports[m->n_imports++] = run->spec->imports[i];
        run->total += run->spec->imports[i].bytes;
    }
}

static enum compact_result step_plan(struct run *run)
{
    const struct manifest *old = &run->old;
    struct manifest *m = &run->made;
    enum compact_result r = COMPACT_OK;
    struct buf path = {0};
    *m = (struct manifest){.generation = old->generation + 1,
        .through = run->last,
        .made = run->spec->now,
        .shards = run->spec->shards ? run->spec->shards : old->shards,
        .counters = mem_strdup(old->counters),
        .retired = mem_strdup(old->retired),
        .n_streams = old->n_streams,
        .streams = mem_alloc((old->n_streams + 1) * sizeof(*m->streams))};
    m->files = mem_zalloc(m->shards * sizeof(*m->files));
    memcpy(m->streams, old->streams, old->n_streams * sizeof(*m->streams));
    m->hours_from = run->spec->hours_from > old->hours_from ? run->spec->hours_from : old->hours_from;
    snprintf(m->change, sizeof(m->change), "%s", run->spec->change ? run->spec->change : "");
    plan_imports(run);
    run->has_work = run->last > run->old.through || run->made.shards != run->old.shards ||
                    run->spec->filter || run->spec->n_sources > 0 || m->hours_from > old->hours_from;
    for (uint32_t k = 0; k < run->old.shards; k++)
        run->total += run->old.files[k].bytes;
    for (uint64_t n = run->old.through + 1; n <= run->last && r == COMPACT_OK; n++) {
        buf_clear(&path);
        slice_path(run->spec->slices, n, &path);
        r = plan_slice(run, path.ptr, n);
    }
    buf_free(&path);
    run->out->slices = run->last - run->old.through;
    return r;
}

/* Removes generations that an interrupted run published. This run merges their slices again. */
static enum compact_result step_undo(struct run *run)
{
    return archive_undo(run->spec->archive, run->old.generation, run->last, run->error);
}

/* Rollups are derived from hours, except the days whose hours were dropped. */
static bool is_not_derived(void *arg, const struct record_key *key, int64_t start)
{
    const int64_t *hours_from = arg;
    return key->unit == PERIOD_HOUR || (key->unit == PERIOD_DAY && start < *hours_from);
}

static void add_source(struct run *run, struct count_source *s)
{
    run->sources = mem_realloc(run->sources, (run->n_sources + 1) * sizeof(struct count_source *));
    run->sources[run->n_sources++] = run->spec->filter ? record_filter_source(run->spec->filter, s) : s;
}

/* Adds the records of a file, without the derived ones. `view` must outlive the source. */
static enum compact_result add_records(struct run *run, const char *path,
    const struct manifest_file *expected, int64_t hours_from, struct records_view *view)
{
    struct count_source *s;
    *view = (struct records_view){hours_from, {is_not_derived, &view->hours_from, false}};
    enum compact_result r = record_source_open_shard(path, expected, &s, run->error);
    if (r == COMPACT_OK)
        add_source(run, record_filter_source(&view->filter, s));
    return r;
}

static enum compact_result open_sources(struct run *run)
{
    enum compact_result r = COMPACT_OK;
    char directory[PATH_MAX];
    struct buf path = {0};
    archive_path(run->spec->archive, run->old.generation, false, directory);
    run->slices = mem_zalloc((run->last - run->old.through + 1) * sizeof(struct slice_reader *));
    run->audits = mem_zalloc((run->last - run->old.through + 1) * sizeof(struct slice_audit *));
    struct records_view *view = mem_zalloc(run->old.shards * sizeof(*view));
    run->views = view;
    for (uint32_t k = 0; k < run->old.shards && r == COMPACT_OK; k++) {
        buf_clear(&path);
        buf_printf(&path, "%s/%s", directory, run->old.files[k].name);
        r = add_records(run, path.ptr, &run->old.files[k], run->old.hours_from, view++);
    }
    for (uint64_t n = run->old.through + 1; n <= run->last && r == COMPACT_OK; n++) {
        buf_clear(&path);
        slice_path(run->spec->slices, n, &path);
        r = record_source_open_slice(path.ptr, &run->slices[run->n_slices], run->error);
        if (r != COMPACT_OK)
            break;
        struct slice_reader *slice = run->slices[run->n_slices];
        struct slice_audit *audit = slice_audit_new(path.ptr, slice_reader_state(slice));
        run->audits[run->n_slices++] = audit;
        size_t runs = slice_reader_runs(slice);
        for (size_t i = 0; i < runs; i++)
            add_source(run, slice_audit_source(audit, slice_reader_source(slice, i, BYTES_NONE)));
    }
    run->n_owned = run->n_sources;
    for (size_t i = 0; i < run->spec->n_sources; i++) {
        run->sources = mem_realloc(run->sources, (run->n_sources + 1) * sizeof(struct count_source *));
        run->sources[run->n_sources++] = run->spec->sources[i];
    }
    buf_free(&path);
    return r;
}

static void on_merged(const struct merge_report *so_far, void *arg)
{
    struct run *run = arg;
    struct run_progress p = {"merge", so_far->bytes, run->total, so_far->records};
    if (run->spec->on_progress)
        run->spec->on_progress(&p, run->spec->arg);
}

static enum compact_result step_merge(struct run *run)
{
    struct merge_report report = {0};
    struct merge_spec spec = {.shards = run->made.shards, .on_progress = on_merged, .arg = run};
    char directory[PATH_MAX];
    enum compact_result r = open_sources(run);
    if (r == COMPACT_OK)
        r = archive_begin(run->spec->archive, run->made.generation, run->error);
    archive_path(run->spec->archive, run->made.generation, true, directory);
    struct shard_writer **writers = mem_zalloc(run->made.shards * sizeof(struct shard_writer *));
    for (uint32_t k = 0; k < run->made.shards && r == COMPACT_OK; k++)
        r = shard_writer_open(directory, k, run->made.shards, &writers[k], run->error);
    spec.sources = run->sources;
    spec.n_sources = run->n_sources;
    spec.writers = writers;
    if (r == COMPACT_OK)
        r = merge_run(&spec, &report, run->error);
    for (size_t i = 0; i < run->n_slices && r == COMPACT_OK; i++)
        r = slice_audit_check(run->audits[i], run->error);
    run->out->collisions = report.collisions;
    memcpy(run->out->collision, report.collision, sizeof(report.collision));
    for (uint32_t k = 0; k < run->made.shards && r == COMPACT_OK; k++) {
        r = shard_writer_finish(writers[k], &run->made.files[k], run->error);
        run->out->records += run->made.files[k].records;
        run->out->bytes += run->made.files[k].bytes;
    }
    for (size_t i = 0; i < run->n_owned; i++)
        count_source_close(&run->sources[i]);
    for (size_t i = 0; i < run->n_slices; i++) {
        slice_reader_close(&run->slices[i]);
        slice_audit_free(&run->audits[i]);
    }
    for (uint32_t k = 0; k < run->made.shards; k++)
        shard_writer_close(&writers[k]);
    free(run->slices);
    free(run->audits);
    free(run->sources);
    free(run->views);
    free(writers);
    return r == COMPACT_OK ? archive_describe(run->spec->archive, &run->made, run->error) : r;
}

static enum compact_result step_check(struct run *run)
{
    return archive_check(run->spec->archive, run->made.generation, run->error);
}

static enum compact_result step_publish(struct run *run)
{
    return archive_publish(run->spec->archive, run->made.generation, run->error);
}

static enum compact_result step_switch(struct run *run)
{
    enum compact_result r = archive_switch(run->spec->archive, run->made.generation, run->error);
    if (r != COMPACT_OK)
        return r;
    run->out->published = true;
    run->out->generation = run->made.generation;
    run->out->through = run->made.through;
    return COMPACT_OK;
}

static enum compact_result step_reload(struct run *run)
{
    const struct run_control *c = run->spec->control;
    const struct manifest *served = run->out->published ? &run->made : &run->old;
    return c->reload(c->arg, served->generation, manifest_content(served), &run->out->served, run->error);
}

static enum compact_result step_clear(struct run *run)
{
    const struct run_control *c = run->spec->control;
    if (!run->out->served || run->out->through == 0)
        return COMPACT_OK;
    return c->clear(c->arg, run->out->through, run->error);
}

static enum compact_result step_prune(struct run *run)
{
    return archive_prune(run->spec->archive, run->out->generation, run->spec->keep, run->error);
}

static const struct step {
    const char *name;
    enum compact_result (*take)(struct run *run);
    bool makes; /* only for a new generation */
} steps[] = {
    {"recover", step_recover, false},
    {"look", step_look, false},
    {"seal", step_seal, false},
    {"plan", step_plan, false},
    {"undo", step_undo, false},
    {"merge", step_merge, true},
    {"check", step_check, true},
    {"publish", step_publish, true},
    {"switch", step_switch, true},
    {"reload", step_reload, false},
    {"clear", step_clear, false},
    {"prune", step_prune, false},
};

enum compact_result run_compact(
    const struct run_spec *spec, struct run_outcome *out, char error[COMPACT_ERROR_TEXT])
{
    struct run run = {.spec = spec, .out = out, .error = error};
    enum compact_result r = COMPACT_OK;
    *out = (struct run_outcome){0};
    for (size_t i = 0; i < sizeof steps / sizeof *steps && r == COMPACT_OK; i++) {
        struct run_progress p = {.step = steps[i].name};
        if (steps[i].makes && !run.has_work)
            continue;
        if (spec->on_progress)
            spec->on_progress(&p, spec->arg);
        r = steps[i].take(&run);
    }
    if (r == COMPACT_OK && run.sealing != COMPACT_OK)
        r = compact_fail(error, run.sealing, "%s", run.seal_error);
    if (r != COMPACT_OK && run.made.shards > 0)
        archive_discard(spec->archive, run.made.generation);
    manifest_free(&run.old);
    manifest_free(&run.made);
    return r;
}
