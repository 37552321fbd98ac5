#include "compactor/run.h"

#include "compactor/archive.h"
#include "compactor/disk_space.h"
#include "compactor/generation_merge.h"
#include "compactor/record_scan.h"
#include "compactor/record_source.h"
#include "compactor/replace.h"
#include "counts/counters.h"
#include "counts/slice_files.h"
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define COUNTER_SHOWN 200

struct run {
    const struct run_spec *spec;
    struct run_outcome *out;
    struct error *error;
    struct manifest old, made;   /* the current manifest at the start; the new manifest */
    struct manifest by;          /* manifest of the recounted archive; zeroed if nothing is to be replaced */
    const struct manifest *base; /* `old` or `by`: the generation whose records are merged */
    uint64_t open;               /* number of the slice that was open at the start */
    bool open_is_empty;
    uint64_t last;        /* number of the last sealed slice */
    struct error sealing; /* code COMPACT_TRY_AGAIN: the open slice could not be sealed */
    bool has_work;        /* the run makes a new generation */
    uint64_t total;       /* total size of the sources in bytes */
};

static enum compact_result step_recover(struct run *run)
{
    const struct run_spec *spec = run->spec;
    enum compact_result r = archive_recover(spec->archive, run->error);
    if (r == COMPACT_OK)
        r = archive_init(spec->archive, spec->shards ? spec->shards : 1, spec->now, run->error);
    if (r == COMPACT_OK)
        r = archive_read_current(spec->archive, &run->old, run->error);
    if (r != COMPACT_OK)
        return r;
    run->out->generation = run->old.generation;
    run->out->through = run->old.through;
    run->base = &run->old;
    if (!spec->replace)
        return COMPACT_OK;
    bool is_done;
    r = replace_read(spec->replace, &run->old, &run->by, &is_done, run->error);
    run->base = is_done ? &run->old : &run->by;
    return r;
}

static bool replaces(const struct run *run)
{
    return run->base == &run->by;
}

static enum compact_result step_look(struct run *run)
{
    const struct run_control *c = run->spec->control;
    enum compact_result r = c->look(c->arg, &run->open, &run->open_is_empty, run->error);
    if (r != COMPACT_OK)
        return r;
    if (run->open == 0)
        run->open = run->old.through + 1;
    if (run->open > run->old.through && replaces(run)) {
        uint64_t counters = 0;
        r = c->counters(c->arg, &counters, run->error);
        if (r == COMPACT_OK)
            r = replace_check_open(&run->by, counters, run->error);
        if (r != COMPACT_OK)
            return r;
    }
    if (run->open <= run->old.through)
        return error_set(run->error, COMPACT_REFUSED,
            "the archive includes slices through %" PRIu64 ", but the aggregator's open slice is %" PRIu64
            ": archive and aggregator belong to different data",
            run->old.through, run->open);
    return COMPACT_OK;
}

/* If the open slice is empty, it stays open, so that no new generation is made while no events arrive. If the open
 * slice cannot be sealed, the run still merges the sealed slices, because a full aggregator gets space only after
 * these slices are cleared. */
static enum compact_result step_seal(struct run *run)
{
    const struct run_control *c = run->spec->control;
    run->last = run->open - 1;
    if (run->open_is_empty)
        return COMPACT_OK;
    run->sealing.code = c->seal(c->arg, run->open, &run->sealing);
    if (run->sealing.code == COMPACT_OK)
        run->last = run->open;
    /* A replacement needs the sealed slice, because rejected lines may have been put back into it. */
    if (run->sealing.code == COMPACT_OK || (run->sealing.code == COMPACT_TRY_AGAIN && !replaces(run)))
        return COMPACT_OK;
    return error_set(run->error, run->sealing.code, "%s", run->sealing.text);
}

static void replace_text(char **text, char *by)
{
    free(*text);
    *text = by;
}

static int64_t latest(int64_t x, int64_t y)
{
    return x > y ? x : y;
}

static enum compact_result plan_slice(struct run *run, const char *path, uint64_t n)
{
    struct slice_facts f;
    struct manifest *m = &run->made;
    enum compact_result r = slice_facts_read(path, &f, run->error);
    if (r != COMPACT_OK)
        return r;
    if (f.number != n)
        r = error_set(run->error, COMPACT_DAMAGED, "%.300s: contains slice %" PRIu64, path, f.number);
    if (r == COMPACT_OK && replaces(run))
        r = replace_check_slice(&run->old, &run->by, path, &f, run->error);
    /* If the key of a counter changed, old and new counts must not add up under one namespace. */
    struct bytes line = counters_conflict(m->counters, f.counters);
    if (line.len == 0)
        line = counters_conflict(m->retired, f.counters);
    if (r == COMPACT_OK && line.len > 0)
        r = error_set(run->error, COMPACT_REFUSED,
            "%.200s defines the archive's `%.*s` differently; give the counter another name", path,
            (int)(line.len < COUNTER_SHOWN ? line.len : COUNTER_SHOWN), line.ptr);
    /* A slice must start where the previous slice ended, so that no event is missing or counted twice. A new stream
     * may start anywhere. */
    for (size_t i = 0; i < m->n_streams && r == COMPACT_OK; i++) {
        const struct manifest_stream *end = &m->streams[i], *begin = NULL;
        for (size_t k = 0; k < f.n_begins && !begin; k++)
            begin = strcmp(f.begins[k].name, end->name) == 0 ? &f.begins[k] : NULL;
        if (!begin || begin->end != end->end || strcmp(begin->id, end->id) != 0)
            r = error_set(run->error, COMPACT_REFUSED,
                "%.200s does not start where the archive ends in stream %s (offset %" PRIu64
                " of %s): slice and archive do not belong together",
                path, end->name, end->end, end->id);
    }
    if (r == COMPACT_OK) {
        /* The manifest gets the counters and cursors of the newest slice. `retired` keeps the counters that this slice
         * no longer has, so that a later slice cannot reuse their names with another key. */
        struct buf retired = {0};
        counters_append_missing(m->retired, f.counters, &retired);
        counters_append_missing(m->counters, f.counters, &retired);
        replace_text(&m->retired, bytes_dup(buf_bytes(&retired)));
        value_sums_add(&m->sums, &f.sums);
        counted_since_follow(&m->since, m->counters, f.counters, f.started);
        replace_text(&m->counters, f.counters);
        f.counters = NULL;
        m->until = f.until;
        m->quarters_since = run_earlier_quarters(m->quarters_since, f.quarters_since);
        m->newest_hour = latest(m->newest_hour, f.newest_hour);
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
    m->imports = mem_alloc((old->n_imports + run->spec->n_imports + 1) * sizeof *m->imports);
    for (; m->n_imports < old->n_imports; m->n_imports++)
        m->imports[m->n_imports] = old->imports[m->n_imports];
    for (size_t i = 0; i < run->spec->n_imports; i++) {
        m->imports[m->n_imports++] = run->spec->imports[i];
        run->total += run->spec->imports[i].bytes;
    }
}

static void plan_recount(struct run *run)
{
    const struct manifest_recount *old = &run->old.recounted;
    struct manifest_recount *r = &run->made.recounted;
    if (replaces(run)) {
        replace_describe(&run->old, &run->by, &run->made);
        return;
    }
    *r = *old;
    r->streams = mem_alloc((old->n_streams + 1) * sizeof *r->streams);
    if (old->n_streams > 0)
        memcpy(r->streams, old->streams, old->n_streams * sizeof *r->streams);
}

/* Checks that hours are imported before quarters_since, and quarter hours from it on. */
static enum compact_result plan_periods(struct run *run)
{
    struct manifest *m = &run->made;
    const struct import_periods *p = &run->spec->periods;
    char text[PERIOD_TEXT_MAX + 1] = "";
    const struct run_newest *slice = &run->spec->newest;
    int64_t newest = latest(m->newest_hour, p->newest_hour);
    m->quarters_since = run_earlier_quarters(m->quarters_since, slice->quarters_since);
    bool is_by_hour = slice->exists ? slice->quarters_since == 0
                                    : m->counters[0] && !counters_text_has_quarters(m->counters);
    if (p->oldest_quarter > 0 && is_by_hour)
        return error_set(run->error, COMPACT_REFUSED,
            "the import has quarter hours, but the archive counts by hour; set [input] resolution = 15m "
            "first");
    if (m->quarters_since == 0 && p->oldest_quarter > 0)
        m->quarters_since = newest > 0 ? newest + SECONDS_PER_HOUR : HOUR_FIRST;
    m->newest_hour = newest;
    if (m->quarters_since == 0)
        return COMPACT_OK;
    period_encode(PERIOD_HOUR, m->quarters_since, text);
    if (p->newest_hour >= m->quarters_since)
        return error_set(run->error, COMPACT_REFUSED,
            "the import has counts of whole hours from %s on, where the archive has quarter hours", text);
    if (p->oldest_quarter > 0 && p->oldest_quarter < m->quarters_since)
        return error_set(run->error, COMPACT_REFUSED,
            "the import has quarter hours before %s, where the archive has whole hours", text);
    return COMPACT_OK;
}

static bool is_value(const char *counters, struct bytes ns)
{
    unsigned scale;
    return counters_text_scale(counters, ns, &scale);
}

/* Adds the counts of an import to the sums of the archive and the slices. */
static enum compact_result plan_values(struct run *run)
{
    struct manifest *m = &run->made;
    const char *counters = run->spec->new_counters ? run->spec->new_counters : "";
    struct buf retired = {0};
    struct bytes line = counters_conflict(counters, m->counters);
    if (line.len > 0)
        return error_set(run->error, COMPACT_REFUSED,
            "the configuration's `%.*s` differs from the counter in the slices; nothing was imported",
            (int)(line.len < COUNTER_SHOWN ? line.len : COUNTER_SHOWN), line.ptr);
    /* The sums of the slices are already added, because the slices are merged even if the import does not fit. */
    for (size_t i = 0; run->spec->sums && i < run->spec->sums->n; i++) {
        const struct value_sum *sum = &run->spec->sums->list[i];
        struct bytes ns = bytes_str(sum->ns);
        const struct value_sum *open = value_sums_find(&run->spec->newest.sums, ns);
        struct value_sum *made = value_sums_at(&m->sums, ns);
        bool fits = value_sum_add(made, sum->sum),
             has_value = is_value(m->counters, ns) || is_value(m->retired, ns) || is_value(counters, ns);
        if (!has_value && made->sum > VALUE_SUM_IMPORTED_MAX)
            return error_set(run->error, COMPACT_REFUSED,
                "the imported counts of %s would exceed 2^62; nothing was imported", sum->ns);
        if (has_value && (!fits || (open && open->sum > VALUE_SUM_MAX - made->sum)))
            return error_set(run->error, COMPACT_REFUSED,
                "%s would exceed 64 bits: the absolute values of the archive, the slices and the import; "
                "nothing was imported",
                sum->ns);
    }
    buf_append_str(&retired, m->retired);
    counters_append_missing(counters, m->counters, &retired);
    replace_text(&m->retired, bytes_dup(buf_bytes(&retired)));
    buf_free(&retired);
    return COMPACT_OK;
}

static enum compact_result step_plan(struct run *run)
{
    const struct manifest *old = &run->old, *base = run->base;
    struct manifest *m = &run->made;
    enum compact_result r = COMPACT_OK;
    *m = (struct manifest){.generation = archive_newest(run->spec->archive, old->generation) + 1,
        .through = run->last,
        .until = old->until,
        .made = run->spec->now,
        .counters = mem_strdup(base->counters),
        .retired = mem_strdup(base->retired),
        .n_streams = old->n_streams,
        .streams = mem_alloc((old->n_streams + 1) * sizeof *m->streams)};
    manifest_set_shards(m, run->spec->shards ? run->spec->shards : old->shards);
    memcpy(m->streams, old->streams, old->n_streams * sizeof *m->streams);
    m->hours_from = latest(run->spec->hours_from, latest(old->hours_from, base->hours_from));
    m->quarters_since = base->quarters_since;
    m->newest_hour = base->newest_hour;
    snprintf(m->change, sizeof m->change, "%s", run->spec->change ? run->spec->change : "");
    plan_recount(run);
    m->sums = value_sums_copy(&base->sums);
    counted_since_copy(&base->since, &m->since);
    coarse_join(&m->coarse, run->spec->kept_coarse ? run->spec->kept_coarse : &base->coarse);
    if (run->spec->coarse)
        coarse_join(&m->coarse, run->spec->coarse);
    plan_imports(run);
    /* A filter with `without` must not be applied to slices, because no source has the counts that it drops
     * (forget_sub.h). */
    assert(run->last == run->old.through || !run->spec->filter || !run->spec->filter->without);
    run->has_work = run->last > run->old.through || run->made.shards != run->old.shards ||
                    run->spec->filter || run->spec->n_parts > 0 || m->hours_from > old->hours_from ||
                    replaces(run);
    for (uint32_t k = 0; k < base->shards; k++)
        run->total += base->files[k].bytes + base->set_texts[k].bytes + base->sets[k].bytes;
    for (uint64_t n = run->old.through + 1; n <= run->last && r == COMPACT_OK; n++) {
        char *path = slice_path(run->spec->slices, n);
        r = plan_slice(run, path, n);
        free(path);
    }
    run->out->slices = run->last - run->old.through;
    if (r == COMPACT_OK)
        r = plan_periods(run);
    return r == COMPACT_OK ? plan_values(run) : r;
}

/* Removes the generations that an interrupted run has published, because this run merges their slices again. The
 * step also removes the generations that an operator has discarded. */
static enum compact_result step_undo(struct run *run)
{
    return archive_undo(
        run->spec->archive, &run->old, run->last, run->spec->discards_newer, &run->out->must_ask, run->error);
}

static void on_merged(const struct merge_report *so_far, void *arg)
{
    struct run *run = arg;
    struct run_progress p = {"merge", so_far->bytes, run->total, so_far->records};
    if (run->spec->on_progress)
        run->spec->on_progress(&p, run->spec->arg);
}

/* The estimate is the size of all files that the merge reads. A run that removes counts may write far less, so such
 * a run is not refused. */
static enum compact_result step_space(struct run *run)
{
    if (run->spec->filter || run->made.hours_from > run->base->hours_from)
        return COMPACT_OK;
    return disk_space_check(run->spec->archive, run->total, run->error);
}

static enum compact_result step_merge(struct run *run)
{
    const struct run_spec *spec = run->spec;
    struct manifest *made = &run->made;
    struct merge_report report = {0};
    struct generation_merge merge = {.archive = spec->archive,
        .slices = spec->slices,
        .old = run->base,
        .old_archive = replaces(run) ? spec->replace : spec->archive,
        .made = made,
        .first = run->old.through + 1,
        .last = run->last,
        .parts = spec->parts,
        .n_parts = spec->n_parts,
        .filter = spec->filter,
        .threads = spec->threads,
        .memory = spec->memory > 0 ? spec->memory : RUN_MEMORY,
        .on_progress = on_merged,
        .arg = run};
    enum compact_result r = archive_begin(spec->archive, made->generation, run->error);
    if (r == COMPACT_OK)
        r = generation_merge(&merge, &report, run->error);
    run->out->collisions = report.collisions;
    memcpy(run->out->collision, report.collision, sizeof report.collision);
    for (uint32_t k = 0; k < made->shards && r == COMPACT_OK; k++) {
        run->out->records += made->files[k].records + made->set_texts[k].records;
        run->out->bytes += made->files[k].bytes + made->set_texts[k].bytes + made->sets[k].bytes;
    }
    return r == COMPACT_OK ? archive_describe(spec->archive, made, run->error) : r;
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

static enum compact_result see_record(
    void *arg, struct count_source *s, const struct record_key *key, struct error *error)
{
    (void)arg, (void)s, (void)key, (void)error;
    return COMPACT_OK;
}

/* If a daemon does not load the generation, another attempt helps only if the files are intact. */
static enum compact_result step_reload(struct run *run)
{
    const struct run_control *c = run->spec->control;
    const struct manifest *served = run->out->published ? &run->made : &run->old;
    struct error damage;
    enum compact_result r =
        c->reload(c->arg, served->generation, manifest_content(served), &run->out->served, run->error);
    if (r == COMPACT_TRY_AGAIN &&
        record_scan(run->spec->archive, served, see_record, NULL, &damage) == COMPACT_DAMAGED)
        return error_set(run->error, COMPACT_DAMAGED, "%s", damage.text);
    return r;
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
    bool makes; /* the step is only for a new generation */
} steps[] = {
    {"recover", step_recover, false},
    {"look", step_look, false},
    {"seal", step_seal, false},
    {"plan", step_plan, false},
    {"undo", step_undo, false},
    {"space", step_space, true},
    {"merge", step_merge, true},
    {"publish", step_publish, true},
    {"switch", step_switch, true},
    {"reload", step_reload, false},
    {"clear", step_clear, false},
    {"prune", step_prune, false},
};

enum compact_result run_compact(const struct run_spec *spec, struct run_outcome *out, struct error *error)
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
    if (r == COMPACT_OK && run.sealing.code != COMPACT_OK)
        r = error_set(error, run.sealing.code, "%s", run.sealing.text);
    if (r != COMPACT_OK && run.made.shards > 0)
        archive_discard(spec->archive, run.made.generation);
    manifest_free(&run.old);
    manifest_free(&run.by);
    manifest_free(&run.made);
    return r;
}
