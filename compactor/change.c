#include "compactor/change.h"

#include "compactor/archive.h"
#include "compactor/disk_space.h"
#include "compactor/forget.h"
#include "compactor/forget_sub.h"
#include "compactor/generation_merge.h"
#include "compactor/record_scan.h"
#include "counts/records.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

#define DATE_TEXT 10 /* "2012-11-18" */

struct change {
    const struct change_spec *spec;
    struct manifest archive;
    struct import *import;
    struct value_sums open_sums; /* of run_newest */
    struct forget *forget;
    struct forget_sub *forget_sub;
    struct record_filter filter;
    int64_t drop_before;
    struct bytes drop_ns;
    uint64_t imported;
    bool is_elsewhere; /* a generation that is not current has the key to be forgotten */
};

bool change_parse_date(const char *text, int64_t *seconds)
{
    struct tm tm = {0}, again;
    char printed[DATE_TEXT + 1];
    const char *end = strptime(text, "%Y-%m-%d", &tm);
    time_t t = end ? timegm(&tm) : -1;
    /* Printing the time again refuses 31 February. */
    if (!end || *end || strlen(text) != DATE_TEXT || t < 0 || !gmtime_r(&t, &again) ||
        strftime(printed, sizeof printed, "%Y-%m-%d", &again) != DATE_TEXT || strcmp(printed, text) != 0)
        return false;
    *seconds = t;
    return t >= HOUR_FIRST && t < HOUR_END;
}

static bool is_after_drop(void *arg, const struct record_key *key, int64_t start)
{
    const struct change *c = arg;
    return key->is_lookup || start >= c->drop_before ||
           (c->drop_ns.ptr && !record_filter_has_namespace(key->ns, c->drop_ns));
}

static void on_read(uint64_t bytes, uint64_t total, uint64_t records, void *arg)
{
    const struct change_spec *spec = arg;
    struct run_progress p = {.step = "read", .done = bytes, .total = total, .records = records};
    if (spec->on_progress)
        spec->on_progress(&p, spec->arg);
}

/* The space is for a copy of the archive, and twice the size of the files, because records are sorted in temporary
 * files and then merged. For compressed files, the estimate is too low. */
static uint64_t space_of_import(const struct change *c)
{
    uint64_t bytes = disk_space_of(&c->archive);
    struct stat st;
    for (size_t i = 0; i < c->spec->n_imports; i++)
        if (stat(c->spec->imports[i], &st) == 0 && S_ISREG(st.st_mode))
            bytes += 2 * (uint64_t)st.st_size;
    return bytes;
}

/* Reads from the newest slice the time from which the archive will have quarter hours. */
static enum compact_result take_newest(struct change *c, struct run_spec *run, struct error *error)
{
    if (!run->control->newest)
        return COMPACT_OK;
    enum compact_result r = run->control->newest(run->control->arg, &run->newest, error);
    c->open_sums = run->newest.sums;
    c->archive.quarters_since = run_earlier_quarters(c->archive.quarters_since, run->newest.quarters_since);
    return r;
}

static enum compact_result prepare_import(struct change *c, struct run_spec *run, struct error *error)
{
    const struct change_spec *spec = c->spec;
    struct import_spec import = {.files = spec->imports,
        .n_files = spec->n_imports,
        .directory = spec->archive,
        .memory = spec->memory,
        .again = spec->again,
        .archive = &c->archive,
        .csv = spec->csv,
        .counters = spec->counters,
        .shards = run->shards ? run->shards : c->archive.shards,
        .hours_from = run->hours_from > c->archive.hours_from ? run->hours_from : c->archive.hours_from,
        .on_progress = on_read,
        .arg = (void *)(uintptr_t)spec};
    uint32_t threads = generation_merge_threads(run->threads, import.shards),
             most = import_parts_max(spec->memory);
    import.parts = threads < most ? threads : most;
    enum compact_result r = disk_space_check(spec->archive, space_of_import(c), error);
    if (r != COMPACT_OK)
        return r;
    struct error why;
    enum compact_result asked = take_newest(c, run, &why);
    r = import_read(
        &import, &c->import, error); /* if a file is invalid, its error replaces that of take_newest */
    if (r == COMPACT_OK && asked != COMPACT_OK)
        r = error_set(error, asked, "%s", why.text);
    if (r != COMPACT_OK)
        return r;
    run->parts = import_parts(c->import);
    run->n_parts = import.parts;
    run->coarse = import_coarse(c->import);
    run->sums = import_sums(c->import);
    run->new_counters = import_new_counters(c->import);
    run->periods = import_periods(c->import);
    run->imports = import_entries(c->import, &run->n_imports);
    for (size_t i = 0; i < run->n_imports; i++)
        c->imported += run->imports[i].records;
    return COMPACT_OK;
}

/* Returns true if a counter in the canonical text (counters.h) has the namespace. */
static bool counters_have(const char *text, struct bytes wanted)
{
    for (const char *line = text; *line; line = strchrnul(line, '\n'), line += *line != '\0') {
        char ns[64];
        if (sscanf(line, "%*s %63s key = ", ns) == 1 && record_filter_has_namespace(bytes_str(ns), wanted))
            return true;
    }
    return false;
}

struct namespace_search {
    struct bytes wanted;
    bool has_records, is_found;
};

static enum compact_result see_namespace(
    void *arg, struct count_source *s, const struct record_key *key, struct error *error)
{
    struct namespace_search *n = arg;
    (void)s, (void)error;
    n->has_records = n->has_records || !key->is_lookup;
    n->is_found = n->is_found || (!key->is_lookup && record_filter_has_namespace(key->ns, n->wanted));
    return COMPACT_OK;
}

static enum compact_result check_namespace(const struct change *c, struct bytes ns, struct error *error)
{
    const struct manifest *m = &c->archive;
    struct namespace_search n = {.wanted = ns};
    if (!ns.ptr || counters_have(m->counters, ns) || counters_have(m->retired, ns))
        return COMPACT_OK;
    enum compact_result r = record_scan(c->spec->archive, m, see_namespace, &n, error);
    if (r != COMPACT_OK || n.is_found || !n.has_records)
        return r;
    return error_set(error, COMPACT_USAGE, "the archive has no namespace %.*s", (int)ns.len, ns.ptr);
}

static void drop_coarse(struct change *c, struct run_spec *run)
{
    struct coarse *coarse = &c->archive.coarse;
    for (size_t i = 0; i < coarse->n; i++)
        if (!c->drop_ns.ptr || record_filter_has_namespace(bytes_str(coarse->list[i].ns), c->drop_ns))
            coarse_drop_before(&coarse->list[i].counter, c->drop_before);
    run->kept_coarse = coarse;
}

struct coarse_search {
    const struct coarse *coarse;
    const struct record_filter *filter;
    bool *is_kept; /* for each counter: the filter keeps a record */
};

static enum compact_result see_kept(
    void *arg, struct count_source *s, const struct record_key *key, struct error *error)
{
    struct coarse_search *search = arg;
    (void)s, (void)error;
    for (size_t i = 0; i < search->coarse->n && !key->is_lookup; i++)
        if (!search->is_kept[i] && bytes_equal_str(key->ns, search->coarse->list[i].ns))
            search->is_kept[i] = search->filter->keep(search->filter->arg, key, 0);
    return COMPACT_OK;
}

/* Drops the spans of counters that lose their last record. */
static enum compact_result forget_coarse(struct change *c, struct run_spec *run, struct error *error)
{
    struct coarse *coarse = &c->archive.coarse;
    struct coarse_search search = {coarse, run->filter, mem_zalloc(coarse->n + 1)};
    enum compact_result r =
        coarse->n > 0 ? record_scan(c->spec->archive, &c->archive, see_kept, &search, error) : COMPACT_OK;
    for (size_t i = 0; i < coarse->n; i++)
        if (!search.is_kept[i])
            coarse->list[i].counter = (struct coarse_counter){0};
    run->kept_coarse = coarse;
    free(search.is_kept);
    return r;
}

static enum compact_result prepare_forget(struct change *c, struct run_spec *run, struct error *error)
{
    enum compact_result r = check_namespace(c, forget_namespace(c->spec->forget), error);
    if (r == COMPACT_OK)
        r = forget_scan(c->spec->archive, &c->archive, c->spec->forget, &c->forget, error);
    if (r != COMPACT_OK)
        return r;
    run->filter = forget_filter(c->forget);
    return forget_coarse(c, run, error);
}

static enum compact_result prepare_forget_sub(struct change *c, struct run_spec *run, struct error *error)
{
    const struct change_spec *spec = c->spec;
    enum compact_result r =
        forget_sub_scan(spec->archive, &c->archive, spec->forget_sub, spec->memory, &c->forget_sub, error);
    if (r != COMPACT_OK)
        return r;
    run->filter = forget_sub_filter(c->forget_sub);
    run->parts = forget_sub_sources(c->forget_sub);
    run->n_parts = run->parts ? 1 : 0;
    return COMPACT_OK;
}

/* A damaged generation may have the key. */
static enum compact_result see_generation(void *arg, const struct manifest *m, struct error *error)
{
    struct change *c = arg;
    const struct change_spec *spec = c->spec;
    struct forget *f = NULL;
    struct forget_sub *sub = NULL;
    uint64_t found = 0, lookups = 0, ignored;
    enum compact_result r =
        spec->forget ? forget_scan(spec->archive, m, spec->forget, &f, error)
                     : forget_sub_scan(spec->archive, m, spec->forget_sub, spec->memory, &sub, error);
    if (r == COMPACT_OK && f)
        forget_report(f, &found, &ignored);
    if (r == COMPACT_OK && sub)
        forget_sub_report(sub, &found, &lookups);
    c->is_elsewhere = c->is_elsewhere || found + lookups > 0 || r == COMPACT_DAMAGED;
    forget_free(&f);
    forget_sub_free(&sub);
    return r == COMPACT_DAMAGED || r == COMPACT_USAGE ? COMPACT_OK : r;
}

bool change_is_needed(const struct change *c)
{
    struct change_report r = change_report(c);
    return (!c->forget && !c->forget_sub) || c->is_elsewhere || r.forgotten + r.moved + r.lookups > 0;
}

enum compact_result change_prepare(
    const struct change_spec *spec, struct run_spec *run, struct change **out, struct error *error)
{
    struct change *c = *out = mem_zalloc(sizeof *c);
    c->spec = spec;
    enum compact_result r = archive_read_current(spec->archive, &c->archive, error);
    if (r != COMPACT_OK)
        return r;
    run->hours_from = spec->drop_hours_before;
    run->change = spec->n_imports > 0 ? "import" : spec->forget || spec->forget_sub ? "forget" : "drop";
    if (spec->drop_before) {
        c->drop_before = spec->drop_before;
        c->drop_ns = bytes_str(spec->drop_ns);
        c->filter = (struct record_filter){.keep = is_after_drop, .arg = c, .by_hour = true};
        run->filter = &c->filter;
        drop_coarse(c, run);
        r = check_namespace(c, c->drop_ns, error);
    }
    if (r == COMPACT_OK && spec->n_imports > 0)
        r = prepare_import(c, run, error);
    if (r == COMPACT_OK && spec->forget)
        r = prepare_forget(c, run, error);
    if (r == COMPACT_OK && spec->forget_sub)
        r = prepare_forget_sub(c, run, error);
    if (r == COMPACT_OK && !change_is_needed(c))
        r = archive_visit_others(spec->archive, c->archive.generation, see_generation, c, error);
    return r;
}

void change_free(struct change **cp)
{
    struct change *c = *cp;
    if (!c)
        return;
    import_free(&c->import);
    value_sums_free(&c->open_sums);
    forget_free(&c->forget);
    forget_sub_free(&c->forget_sub);
    manifest_free(&c->archive);
    free(c);
    *cp = NULL;
}

struct change_report change_report(const struct change *c)
{
    struct change_report r = {.imported = c->imported};
    if (c->import) {
        r.collisions = import_collisions(c->import, &r.collision);
        r.skipped = import_skipped(c->import, &r.first_skipped);
    }
    if (c->forget)
        forget_report(c->forget, &r.forgotten, &r.as_sub);
    if (c->forget_sub)
        forget_sub_report(c->forget_sub, &r.moved, &r.lookups);
    r.is_of_sets = c->forget_sub && forget_sub_is_of_sets(c->forget_sub);
    return r;
}
