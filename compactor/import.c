#include "compactor/import.h"

#include "base/line_source.h"
#include "base/xxh3.h"
#include "compactor/external_sort.h"
#include "compactor/import_rollups.h"
#include "counts/counters.h"
#include "counts/record_check.h"
#include <inttypes.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define PROGRESS_EVERY 65536 /* lines */

/* A namespace of the imported records. */
struct import_ns {
    char ns[VALUE_SUM_NS_TEXT];
    bool is_value;        /* the counter has a value */
    struct value_sum sum; /* the sum of the namespace alone */
};

struct import {
    uint32_t shards, n_parts;
    struct external_sort **sorts;
    struct count_sources *parts; /* sources of the sorts, or of `views` */
    struct count_source **views; /* a view of each sort's sources, if the text has rollups; else NULL */
    struct manifest_import *entries;
    size_t n_entries;
    bool has_rollups;
    struct import_periods periods;
    int64_t newest_sub_hour;  /* the latest hour of a subtotal; 0: none */
    bool has_uniques;         /* the archive has unique counters */
    struct value_sums values; /* names the totals with a value */
    struct import_ns *namespaces;
    size_t n_namespaces, room_namespaces;
    struct value_sums sums;
    struct buf new_counters;
    struct buf lookup;     /* the text of a lookup that is checked */
    uint64_t bytes, total; /* bytes of the files: read so far, and in all */
    uint64_t records;
    struct import_csv *csv; /* NULL: the files are records */
    struct import_skipped skipped;
    char first_skipped[500];
};

/* A file that is being read. */
struct import_file {
    const struct import_spec *spec;
    struct import *import;
    const char *name;
    struct line_source *lines;
    struct manifest_import entry;
    uint64_t line;
    XXH3_state_t *hash;
};

/* The manifest is JSON, which would need more than a byte for a byte that is not UTF-8. */
static void set_name(struct manifest_import *entry, const char *path)
{
    const char *slash = strrchr(path, '/');
    snprintf(entry->name, sizeof entry->name, "%s", slash ? slash + 1 : path);
    if (bytes_is_utf8(bytes_str(entry->name)))
        return;
    for (char *c = entry->name; *c; c++)
        *c = *c & 0x80 ? '?' : *c;
}

static enum compact_result refuse_at(
    const struct import_file *f, uint64_t line, const char *why, struct error *error)
{
    return error_set(
        error, COMPACT_REFUSED, "%.300s:%" PRIu64 ": %.300s; nothing was imported", f->name, line, why);
}

static enum compact_result refuse_line(const struct import_file *f, const char *why, struct error *error)
{
    return refuse_at(f, f->line, why, error);
}

/* Adds the line to the checksum, and removes its LF. */
static struct bytes take_line(struct import_file *f, struct bytes line)
{
    f->line++;
    XXH3_64bits_update(f->hash, line.ptr, line.len);
    if (line.len > 0 && line.ptr[line.len - 1] == '\n')
        line.len--;
    else
        XXH3_64bits_update(f->hash, "\n", 1);
    f->entry.bytes += line.len + 1;
    return line;
}

/* Notes the periods of a total or a subtotal. The hour of a subtotal may be a rollup, if the text has quarter hours. */
static void note_periods(struct import *i, const struct record_key *key, struct bytes line)
{
    struct import_periods *p = &i->periods;
    struct bytes rest = bytes_of(key->key.ptr + key->key.len + 1, 0), name = BYTES_NONE;
    enum period_unit unit = key->unit;
    int64_t start = key->start;
    int64_t n;
    bool bad, is_total = !key->is_subtotal && !key->is_lookup;
    if (is_total)
        rest.len = line.len - (size_t)(rest.ptr - line.ptr);
    while (!is_total || record_next_count(&rest, &name, &n, &bad)) {
        if (is_total)
            period_decode(name, &unit, &start);
        if (is_total && unit == PERIOD_HOUR && start > p->newest_hour)
            p->newest_hour = start;
        if (key->is_subtotal && !key->is_set && unit == PERIOD_HOUR && start > i->newest_sub_hour)
            i->newest_sub_hour = start;
        if (unit == PERIOD_QUARTER && (p->oldest_quarter == 0 || start < p->oldest_quarter))
            p->oldest_quarter = start;
        if (!is_total)
            return;
    }
}

static bool has_counter(const struct manifest *m, struct bytes ns)
{
    return counted_since_has(m->counters, ns) || counted_since_has(m->retired, ns);
}

/* Takes the totals with a value from the archive, and those that the archive does not have from the configuration. */
static void note_values(struct import *i, const struct import_spec *spec)
{
    const char *text = spec->counters ? spec->counters : "";
    struct bytes ns;
    unsigned scale;
    value_sums_note(&i->values, spec->archive->counters);
    value_sums_note(&i->values, spec->archive->retired);
    while (counters_text_next_value(&text, &ns, &scale))
        if (!has_counter(spec->archive, ns))
            value_sums_at(&i->values, ns);
}

/* Records of one counter usually follow each other, so the search begins with the latest namespace. */
static struct import_ns *find_namespace(struct import_file *f, struct bytes ns)
{
    struct import *i = f->import;
    for (size_t k = i->n_namespaces; k-- > 0;)
        if (bytes_equal_str(ns, i->namespaces[k].ns))
            return &i->namespaces[k];
    struct import_ns *n = ARRAY_ADD(i->namespaces, i->n_namespaces, i->room_namespaces);
    *n = (struct import_ns){.is_value = value_sums_find(&i->values, ns) != NULL};
    snprintf(n->ns, sizeof n->ns, "%.*s", (int)ns.len, ns.ptr);
    if (n->is_value && f->spec->counters && !has_counter(f->spec->archive, ns))
        counters_append_lines(f->spec->counters, ns, &i->new_counters);
    return n;
}

/* Adds the counts of a record to the sum of its namespace. A rollup that the archive derives from its parts adds
 * nothing. Returns NULL, or the reason why the counter cannot have more counts. */
static const char *add_counts(struct import_file *f, const struct record_key *key, struct bytes line)
{
    int64_t since = f->spec->archive->quarters_since;
    bool is_derived = key->is_subtotal && key->unit != PERIOD_QUARTER &&
                      !(key->unit == PERIOD_HOUR && (since == 0 || key->start < since)) &&
                      !(key->unit == PERIOD_DAY && key->start < f->spec->hours_from);
    struct import_ns *n = key->is_lookup || key->is_set || is_derived ? NULL : find_namespace(f, key->ns);
    struct record r;
    struct bytes name;
    int64_t count;
    bool bad;
    if (!n || !record_split(line, RECORD_SEPARATOR, &r))
        return NULL;
    bool fits = true;
    while (record_next_count(&r.value, &name, &count, &bad))
        fits = value_sum_add(&n->sum, value_magnitude(count)) && fits;
    if (n->is_value)
        return fits ? NULL : "the absolute values of the counter would exceed 64 bits";
    return n->sum.sum <= VALUE_SUM_IMPORTED_MAX ? NULL
                                                : "the imported counts of the counter would exceed 2^62";
}

/* The largest sum of a total and its subtotals bounds all of them. */
static void join_sums(struct import *i)
{
    for (size_t k = 0; k < i->n_namespaces; k++) {
        const struct import_ns *n = &i->namespaces[k];
        const char *dot = strchr(n->ns, '.');
        struct value_sum *sum = value_sums_at(&i->sums, bytes_str(dot ? dot + 1 : n->ns));
        sum->sum = sum->sum > n->sum.sum ? sum->sum : n->sum.sum;
    }
    buf_append_char(&i->new_counters, '\0');
}

static enum compact_result add_record(struct import_file *f, struct bytes line, struct error *error)
{
    struct import *i = f->import;
    struct record_key key;
    const struct manifest *m = f->spec->archive;
    const char *wrong = record_check(line, &i->values, &key, &i->lookup);
    if (wrong && f->line == 1 && !memchr(line.ptr, '|', line.len))
        wrong = "not a record; to import a CSV file whose first row names the columns, add --format=csv";
    if (!wrong && key.is_subtotal && (key.is_set || i->has_uniques) &&
        (counters_text_is_other(m->counters, key.ns, key.is_set) ||
            counters_text_is_other(m->retired, key.ns, key.is_set)))
        wrong = key.is_set ? "a set, but the archive has a subtotal of this name"
                           : "counts, but the archive has a unique counter of this name";
    if (!wrong)
        wrong = add_counts(f, &key, line);
    if (wrong)
        return refuse_line(f, wrong, error);
    i->has_rollups = i->has_rollups || (key.is_subtotal && key.unit != PERIOD_HOUR);
    note_periods(i, &key, line);
    uint32_t part = i->n_parts > 1 ? record_shard(&key, i->shards) % i->n_parts : 0;
    enum compact_result r = external_sort_add(i->sorts[part], line, error);
    return r == COMPACT_REFUSED ? refuse_line(f, error->text, error) : r;
}

static enum compact_result add_records(struct import_file *f, struct error *error)
{
    struct bytes rest = import_csv_records(f->import->csv), line;
    enum compact_result r = COMPACT_OK;
    f->entry.records++;
    while (r == COMPACT_OK && bytes_take_line(&rest, &line))
        r = add_record(f, line, error);
    return r;
}

/* Handles a result of import_csv_add or import_csv_end. */
static enum compact_result take_row(
    struct import_file *f, enum import_csv_result row, const char *why, struct error *error)
{
    struct import *i = f->import;
    if (row == IMPORT_CSV_RECORDS)
        return add_records(f, error);
    if (row == IMPORT_CSV_NONE)
        return COMPACT_OK;
    size_t lines = import_csv_lines(i->csv);
    uint64_t first = f->line - (lines > 0 ? lines - 1 : 0);
    if (row == IMPORT_CSV_UNREADABLE || !f->spec->csv->skips_bad)
        return refuse_at(f, first, why, error);
    i->skipped.lines += lines;
    if (i->skipped.rows++ == 0)
        snprintf(i->first_skipped, sizeof i->first_skipped, "%.200s:%" PRIu64 ": %s", f->name, first, why);
    return COMPACT_OK;
}

static enum compact_result add_line(struct import_file *f, struct bytes line, struct error *error)
{
    const char *why = NULL;
    struct bytes text = take_line(f, line);
    if (f->import->csv) {
        enum import_csv_result row = import_csv_add(f->import->csv, line, &why);
        return take_row(f, row, why, error);
    }
    f->entry.records++;
    return add_record(f, text, error);
}

/* Handles the end of a CSV file. A file without a counted row is refused, because it is probably a mistake. */
static enum compact_result end_rows(struct import_file *f, struct error *error)
{
    const char *why = NULL;
    if (!f->import->csv)
        return COMPACT_OK;
    enum import_csv_result row = import_csv_end(f->import->csv, &why);
    enum compact_result r = take_row(f, row, why, error);
    return r == COMPACT_OK && f->entry.records == 0 ? refuse_line(f, "the file has no row to import", error)
                                                    : r;
}

static void show_progress(const struct import_file *f)
{
    const struct import_spec *spec = f->spec;
    if (spec->on_progress)
        spec->on_progress(f->import->bytes + line_source_consumed(f->lines), f->import->total,
            f->import->records + f->entry.records, spec->arg);
}

static enum compact_result read_lines(struct import_file *f, struct error *error)
{
    struct bytes line;
    enum compact_result r = COMPACT_OK;
    while (r == COMPACT_OK) {
        switch (line_source_next(f->lines, false, &line, error)) {
        case LINE_SOURCE_LINE:
            r = add_line(f, line, error);
            break;
        case LINE_SOURCE_END:
            return end_rows(f, error);
        case LINE_SOURCE_FAILED:
            return error_set(error, COMPACT_DAMAGED, "%s; nothing was imported", error->text);
        default:
            f->line++;
            return refuse_line(
                f, "the line is longer than a half of the memory allowed; set memory higher", error);
        }
        if (f->line % PROGRESS_EVERY == 0)
            show_progress(f);
    }
    return r;
}

static const struct manifest_import *find_entry(
    const struct manifest_import *entries, size_t n, const struct manifest_import *like)
{
    for (size_t i = 0; i < n; i++)
        if (entries[i].xxh3 == like->xxh3 && entries[i].bytes == like->bytes)
            return &entries[i];
    return NULL;
}

static enum compact_result check_new(const struct import_file *f, struct error *error)
{
    const struct manifest *m = f->spec->archive;
    const struct manifest_import *known = find_entry(m->imports, m->n_imports, &f->entry);
    if (!known)
        known = find_entry(f->import->entries, f->import->n_entries, &f->entry);
    if (!known || f->spec->again)
        return COMPACT_OK;
    return error_set(error, COMPACT_REFUSED,
        "%.200s: the same text was imported before (%.150s); add --again to add its counts once more",
        f->name, known->name);
}

/* Opens the file. The namespace of a CSV file's counter is a part of the checksum, so that the file can be imported
 * once to each counter. */
static enum compact_result open_file(struct import_file *f, const char *path, struct error *error)
{
    const struct import_csv_spec *csv = f->spec->csv;
    XXH3_64bits_reset(f->hash);
    f->lines = line_source_open(path, error);
    if (!f->lines)
        return error->code = COMPACT_MISSING;
    if (csv)
        line_source_as_text(f->lines, csv->encoding);
    line_source_limit(f->lines, f->spec->memory / 2);
    if (csv) {
        const char *ns = import_csv_ns(f->import->csv);
        XXH3_64bits_update(f->hash, ns, strlen(ns) + 1);
        import_csv_begin(f->import->csv);
    }
    return COMPACT_OK;
}

static enum compact_result read_file(
    const struct import_spec *spec, struct import *i, const char *path, struct error *error)
{
    struct import_file f = {.spec = spec,
        .import = i,
        .name = strcmp(path, "-") == 0 ? "standard input" : path,
        .hash = XXH3_createState()};
    set_name(&f.entry, path);
    enum compact_result r = open_file(&f, path, error);
    if (r == COMPACT_OK) {
        r = read_lines(&f, error);
        f.entry.xxh3 = XXH3_64bits_digest(f.hash);
        i->bytes += line_source_consumed(f.lines);
        i->records += f.entry.records;
    }
    if (r == COMPACT_OK)
        r = check_new(&f, error);
    if (r == COMPACT_OK)
        i->entries[i->n_entries++] = f.entry;
    line_source_close(&f.lines);
    XXH3_freeState(f.hash);
    return r;
}

/* Returns the time from which the text's hours are rollups: the quarters_since of the archive after the import. */
static int64_t quarters_from(const struct import *i, const struct manifest *archive)
{
    int64_t newest =
        archive->newest_hour > i->periods.newest_hour ? archive->newest_hour : i->periods.newest_hour;
    if (i->periods.oldest_quarter == 0 || archive->quarters_since > 0)
        return i->periods.oldest_quarter == 0 ? 0 : archive->quarters_since;
    return newest > 0 ? newest + SECONDS_PER_HOUR : HOUR_FIRST;
}

static enum compact_result finish_part(
    struct import *i, uint32_t k, const struct import_spec *spec, struct error *error)
{
    enum compact_result r = external_sort_finish(i->sorts[k], error);
    if (r != COMPACT_OK)
        return r;
    i->parts[k] = *external_sort_sources(i->sorts[k]);
    if (i->has_rollups || i->periods.oldest_quarter > 0) {
        i->views[k] = import_rollups_source(i->parts[k].list, i->parts[k].n, spec->archive, spec->hours_from,
            quarters_from(i, spec->archive));
        i->parts[k] = (struct count_sources){&i->views[k], 1};
    }
    return r;
}

enum compact_result import_read(const struct import_spec *spec, struct import **out, struct error *error)
{
    struct import *i = mem_zalloc(sizeof *i);
    enum compact_result r = COMPACT_OK;
    struct stat st;
    *out = i;
    i->shards = spec->shards;
    i->has_uniques = strstr(spec->archive->counters, "unique ") || strstr(spec->archive->retired, "unique ");
    note_values(i, spec);
    i->n_parts = spec->parts;
    i->sorts = mem_zalloc(i->n_parts * sizeof(struct external_sort *));
    i->views = mem_zalloc(i->n_parts * sizeof(struct count_source *));
    i->parts = mem_zalloc(i->n_parts * sizeof *i->parts);
    for (uint32_t k = 0; k < i->n_parts; k++)
        i->sorts[k] = external_sort_new(spec->directory, spec->memory / i->n_parts);
    i->entries = mem_zalloc((spec->n_files + 1) * sizeof *i->entries);
    i->csv = spec->csv ? import_csv_new(spec->csv, spec->archive->quarters_since, error) : NULL;
    if (spec->csv && !i->csv)
        return error->code = COMPACT_USAGE;
    for (size_t k = 0; k < spec->n_files; k++)
        i->total += stat(spec->files[k], &st) == 0 && S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
    for (size_t k = 0; k < spec->n_files && r == COMPACT_OK; k++)
        r = read_file(spec, i, spec->files[k], error);
    if (i->periods.oldest_quarter == 0 && i->newest_sub_hour > i->periods.newest_hour)
        i->periods.newest_hour = i->newest_sub_hour;
    for (uint32_t k = 0; k < i->n_parts && r == COMPACT_OK; k++)
        r = finish_part(i, k, spec, error);
    join_sums(i);
    return r;
}

void import_free(struct import **ip)
{
    struct import *i = *ip;
    if (!i)
        return;
    for (uint32_t k = 0; k < i->n_parts; k++) {
        count_source_close(&i->views[k]);
        external_sort_free(&i->sorts[k]);
    }
    free(i->sorts);
    free(i->views);
    value_sums_free(&i->values);
    value_sums_free(&i->sums);
    free(i->namespaces);
    buf_free(&i->new_counters);
    free(i->parts);
    buf_free(&i->lookup);
    import_csv_free(&i->csv);
    free(i->entries);
    free(i);
    *ip = NULL;
}

const struct count_sources *import_parts(const struct import *i)
{
    return i->parts;
}

const struct manifest_import *import_entries(const struct import *i, size_t *n)
{
    *n = i->n_entries;
    return i->entries;
}

struct import_periods import_periods(const struct import *i)
{
    return i->periods;
}

const struct value_sums *import_sums(const struct import *i)
{
    return &i->sums;
}

const char *import_new_counters(const struct import *i)
{
    return i->new_counters.ptr;
}

const struct coarse *import_coarse(const struct import *i)
{
    return i->csv ? import_csv_coarse(i->csv) : NULL;
}

struct import_skipped import_skipped(const struct import *i, const char **first)
{
    *first = i->first_skipped;
    return i->skipped;
}

uint64_t import_collisions(const struct import *i, const char **key)
{
    uint64_t n = 0;
    *key = "";
    for (uint32_t k = 0; k < i->n_parts; k++) {
        const char *last;
        uint64_t collisions = external_sort_collisions(i->sorts[k], &last);
        *key = collisions > 0 ? last : *key;
        n += collisions;
    }
    return n;
}
