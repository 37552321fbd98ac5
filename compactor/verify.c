#include "compactor/verify.h"

#include "archive/sorted_file.h"
#include "base/xxh3.h"
#include "compactor/archive.h"
#include "compactor/quarter_source.h"
#include "compactor/record_filter.h"
#include "compactor/record_source.h"
#include "compactor/verify_rollups.h"
#include "compactor/verify_sets.h"
#include "counts/counters.h"
#include "counts/record_check.h"
#include "counts/slice_files.h"
#include <stdlib.h>

#define KEY_SHOWN 120
#define PROGRESS_EVERY 65536 /* records */

struct verify {
    const struct verify_spec *spec;
    struct verify_report *report;
    struct error *error;
    struct manifest manifest;
    char directory[PATH_MAX];
    uint64_t done, total; /* bytes */
    bool has_more;        /* some subtotal has more counts than its total */
    struct record_filter compared;
    struct value_sums values; /* the totals with a value, with the sums of their records' absolute values */
    struct buf space;
};

static enum compact_result damaged(
    const struct verify *v, const char *file, struct bytes record, const char *why)
{
    record.len -= record.len > 0 && record.ptr[record.len - 1] == '\n';
    return error_set(v->error, COMPACT_DAMAGED, "%.200s: %.*s: %.100s", file,
        (int)(record.len < KEY_SHOWN ? record.len : KEY_SHOWN), record.ptr ? record.ptr : "", why);
}

static enum compact_result open_file(
    const struct verify *v, const struct manifest_file *f, struct sorted_file **out)
{
    struct buf path = {0};
    buf_printf(&path, "%s/%s", v->directory, f->name);
    struct sorted_file_config config = {
        .path = path.ptr, .separator = RECORD_SEPARATOR, .unique_keys = true, .expected = f};
    enum sorted_file_result r = sorted_file_open(&config, out, v->error);
    buf_free(&path);
    if (r == SORTED_FILE_OK)
        return COMPACT_OK;
    return v->error->code = r == SORTED_FILE_FAILED ? COMPACT_FAILED : COMPACT_DAMAGED;
}

static bool next_line(const struct sorted_file *f, size_t *at, struct bytes *line)
{
    if (*at >= f->text.text.len)
        return false;
    size_t end = sorted_line_end(&f->text, *at);
    *line = bytes_of(f->text.text.ptr + *at, end - *at);
    line->len -= line->ptr[line->len - 1] == '\n';
    *at = end;
    return true;
}

static void progress(struct verify *v, size_t bytes)
{
    if (v->spec->on_progress)
        v->spec->on_progress(v->done + bytes, v->total, v->spec->arg);
}

static enum compact_result check_unchanged(const struct verify *v, const struct sorted_file *f)
{
    if (!mapping_is_whole(f->mapping))
        return damaged(v, f->path, BYTES_NONE, "the file was truncated meanwhile");
    if (!mapping_is_untouched(f->mapping))
        return damaged(v, f->path, BYTES_NONE, "the file was written to meanwhile");
    return COMPACT_OK;
}

/* Adds a total's record to its sum of absolute values. */
static void add_values(struct verify *v, const struct record_key *key, struct bytes line)
{
    struct value_sum *sum = value_sums_find(&v->values, key->ns);
    struct record r;
    struct bytes name;
    int64_t n;
    bool bad;
    if (!sum || key->is_subtotal || !record_split(line, RECORD_SEPARATOR, &r))
        return;
    while (record_next_count(&r.value, &name, &n, &bad))
        value_sum_add(sum, value_magnitude(n));
}

/* The manifest's sums must bound those of the records, or else a merge could overflow. */
static enum compact_result check_values(const struct verify *v)
{
    for (size_t i = 0; i < v->values.n; i++) {
        const struct value_sum *is = &v->values.list[i],
                               *bound = value_sums_find(&v->manifest.sums, bytes_str(is->ns));
        if (is->sum > (bound ? bound->sum : 0))
            return error_set(v->error, COMPACT_DAMAGED,
                "%.200s: the manifest's sum of the absolute values of %s is less than that of its records",
                v->directory, is->ns);
    }
    return COMPACT_OK;
}

/* Checks every record of a shard. Sets *texts to a sum over the lookups, which does not depend on their order. */
static enum compact_result check_records(struct verify *v, uint32_t shard, const struct sorted_file *f,
    struct verify_rollups *rollups, uint64_t *texts)
{
    struct bytes line, wrong;
    const char *why = NULL;
    uint64_t n = 0;
    for (size_t at = 0; !why && next_line(f, &at, &line);) {
        struct record_key key;
        wrong = line;
        why = record_check(line, &v->values, &key, &v->space);
        if (!why && record_shard(&key, v->manifest.shards) != shard)
            why = "the record belongs to another shard";
        if (!why && v->values.n > 0)
            add_values(v, &key, line);
        if (!why && key.is_lookup)
            *texts += XXH3_64bits(line.ptr, line.len);
        if (!why && key.is_subtotal)
            why = verify_rollups_add(rollups, &key, line, &wrong);
        if (++n % PROGRESS_EVERY == 0)
            progress(v, at);
    }
    if (!why)
        why = verify_rollups_end(rollups, &wrong);
    return why ? damaged(v, f->path, wrong, why) : COMPACT_OK;
}

/* Checks that the texts, converted back to lookups, have the same sum as the shard's lookups. */
static enum compact_result check_texts(struct verify *v, uint32_t shard, uint64_t expected)
{
    struct sorted_file *f = NULL;
    struct buf lookup = {0};
    uint64_t sum = 0;
    struct bytes line;
    struct record r;
    enum compact_result result = open_file(v, &v->manifest.texts[shard], &f);
    if (result != COMPACT_OK)
        return result;
    for (size_t at = 0; next_line(f, &at, &line) && record_split(line, RECORD_SEPARATOR, &r);) {
        buf_clear(&lookup);
        buf_printf(&lookup, "lookup|%.*s,", (int)r.value.len, r.value.ptr);
        text_key_unescape(r.key, &lookup);
        sum += XXH3_64bits(lookup.ptr, lookup.len);
    }
    if (sum != expected)
        result = damaged(v, f->path, BYTES_NONE, "the texts are not the texts of the shard's lookups");
    enum compact_result unchanged = check_unchanged(v, f);
    result = unchanged == COMPACT_OK ? result : unchanged;
    buf_free(&lookup);
    sorted_file_close(&f);
    return result;
}

static enum compact_result check_shard(struct verify *v, uint32_t shard)
{
    const struct manifest *m = &v->manifest;
    struct sorted_file *f = NULL;
    uint64_t texts = 0;
    enum compact_result r = open_file(v, &m->files[shard], &f);
    if (r != COMPACT_OK)
        return r;
    struct verify_rollups *rollups = verify_rollups_new(&f->text, m, &v->values, v->report);
    r = check_records(v, shard, f, rollups, &texts);
    v->has_more = v->has_more || verify_rollups_has_more(rollups);
    enum compact_result unchanged = check_unchanged(v, f);
    r = unchanged == COMPACT_OK ? r : unchanged;
    verify_rollups_free(&rollups);
    sorted_file_close(&f);
    uint64_t bytes = m->files[shard].bytes + m->set_texts[shard].bytes + m->sets[shard].bytes;
    v->done += bytes;
    v->report->records += m->files[shard].records + m->set_texts[shard].records;
    v->report->bytes += bytes;
    if (r == COMPACT_OK)
        r = check_texts(v, shard, texts);
    return r == COMPACT_OK ? verify_sets(v->directory, m, shard, v->error) : r;
}

/* A generation, with slices that are added to it, in the comparison of two generations. */
struct side {
    struct manifest manifest; /* manifest of the previous generation */
    struct count_sources sources;
    struct slice_reader **slices;
    size_t n_slices;
    struct count_merge *merge;
    struct buf line;
};

/* Excludes rollups: days of counts, and the sets of days of counters by hour. Before hours_from, the archive has days where
 * the slices have hours, so these subtotals are excluded. The counters include those that only the slices have. */
static bool is_compared(void *manifest, const struct record_key *key, int64_t start)
{
    const struct manifest *m = manifest;
    if (key->is_subtotal && start < m->hours_from)
        return false;
    return !key->is_subtotal || manifest_is_counted(m, key->unit, start) ||
           (key->is_set && counters_text_period(m->counters, key->ns) == PERIOD_DAY &&
               counters_text_period(m->retired, key->ns) == PERIOD_DAY);
}

static enum compact_result add_slices(struct verify *v, struct side *s, uint64_t first, uint64_t last)
{
    enum compact_result r = COMPACT_OK;
    int64_t since = v->manifest.quarters_since;
    s->slices = mem_zalloc((last - first + 1) * sizeof(struct slice_reader *));
    for (uint64_t n = first; n <= last && r == COMPACT_OK; n++) {
        char *path = slice_path(v->spec->slices, n);
        r = record_source_open_slice(path, &s->slices[s->n_slices], v->error);
        free(path);
        if (r != COMPACT_OK)
            break;
        struct slice_reader *slice = s->slices[s->n_slices++];
        for (size_t k = 0; k < slice_reader_runs(slice); k++) {
            const struct slice_state *state = slice_reader_state(slice);
            struct count_source *run = slice_reader_source(slice, k, BYTES_NONE);
            if (since > 0 && state->newest_hour >= since)
                run = quarter_source(run, since, state->counters);
            count_sources_add(&s->sources, record_filter_source(&v->compared, run));
        }
    }
    return r;
}

static void side_free(struct side *s)
{
    count_merge_free(&s->merge);
    count_sources_free(&s->sources);
    for (size_t i = 0; i < s->n_slices; i++)
        slice_reader_close(&s->slices[i]);
    free(s->slices);
    buf_free(&s->line);
    manifest_free(&s->manifest);
}

/* Sets s->line to the next record of a side, with an LF, or to an empty line at the end. */
static bool side_next(struct side *s)
{
    enum count_next r = count_merge_next_record(s->merge);
    buf_clear(&s->line);
    if (r != COUNT_FOUND)
        return r == COUNT_END;
    struct bytes line = count_merge_line(s->merge);
    buf_append_bytes(&s->line, line);
    if (line.ptr)
        buf_append_char(&s->line, '\n');
    return line.ptr || count_merge_print(s->merge, &s->line) != COUNT_FAILED;
}

static enum compact_result compare_sides(struct verify *v, struct side *before, struct side *now)
{
    before->merge = count_merge_new(before->sources.list, before->sources.n);
    now->merge = count_merge_new(now->sources.list, now->sources.n);
    for (;;) {
        if (!side_next(before))
            return record_source_failed(count_merge_error(before->merge), v->error);
        if (!side_next(now))
            return record_source_failed(count_merge_error(now->merge), v->error);
        if (!bytes_equal(buf_bytes(&before->line), buf_bytes(&now->line)))
            return damaged(v, v->directory, buf_bytes(now->line.len ? &now->line : &before->line),
                "differs from the previous generation and its slices");
        if (now->line.len == 0)
            return COMPACT_OK;
    }
}

/* Adds the records and the sets of a generation to a side. */
static enum compact_result add_generation(
    const struct verify *v, struct side *s, const struct manifest *m, const char *directory)
{
    enum compact_result r = record_source_add_shards(directory, m, &v->compared, &s->sources, v->error);
    return r == COMPACT_OK ? set_reader_add_sources(directory, m, &v->compared, &s->sources, v->error) : r;
}

/* Compares the generation with the previous generation and its slices, if these exist and no other change was made. */
static enum compact_result compare_generations(struct verify *v)
{
    struct side before = {0}, now = {0};
    char directory[PATH_MAX];
    const struct manifest *m = &v->manifest;
    if (!v->spec->slices || m->generation == 0 || m->change[0] != '\0')
        return COMPACT_OK;
    v->compared = (struct record_filter){.keep = is_compared, .arg = &v->manifest};
    archive_path(v->spec->archive, m->generation - 1, false, directory);
    if (manifest_read(directory, &before.manifest, NULL) != MANIFEST_OK)
        return COMPACT_OK;
    enum compact_result r = COMPACT_OK;
    if (slice_files_missing(v->spec->slices, before.manifest.through + 1, m->through) == 0) {
        r = add_generation(v, &before, &before.manifest, directory);
        if (r == COMPACT_OK)
            r = add_slices(v, &before, before.manifest.through + 1, m->through);
        if (r == COMPACT_OK)
            r = add_generation(v, &now, &v->manifest, v->directory);
        if (r == COMPACT_OK)
            r = compare_sides(v, &before, &now);
        v->report->compared = r == COMPACT_OK;
    }
    side_free(&before);
    side_free(&now);
    return r;
}

enum compact_result verify_archive(
    const struct verify_spec *spec, struct verify_report *report, struct error *error)
{
    struct verify v = {.spec = spec, .report = report, .error = error};
    *report = (struct verify_report){0};
    enum compact_result r = archive_read_current(spec->archive, &v.manifest, error);
    if (r != COMPACT_OK)
        return r;
    report->generation = v.manifest.generation;
    archive_path(spec->archive, v.manifest.generation, false, v.directory);
    for (uint32_t k = 0; k < v.manifest.shards; k++)
        v.total += v.manifest.files[k].bytes + v.manifest.set_texts[k].bytes + v.manifest.sets[k].bytes;
    value_sums_note(&v.values, v.manifest.counters);
    value_sums_note(&v.values, v.manifest.retired);
    for (uint32_t k = 0; k < v.manifest.shards && r == COMPACT_OK; k++)
        r = check_shard(&v, k);
    if (r == COMPACT_OK)
        r = check_values(&v);
    if (r == COMPACT_OK && v.has_more && v.manifest.n_imports == 0)
        r = error_set(error, COMPACT_DAMAGED, "%.200s: %.100s: a subtotal has more counts than its total",
            v.directory, report->example);
    if (r == COMPACT_OK)
        r = compare_generations(&v);
    value_sums_free(&v.values);
    buf_free(&v.space);
    manifest_free(&v.manifest);
    return r;
}
