#include "compactor/import.h"

#include "base/line_source.h"
#include "base/xxh3.h"
#include "compactor/external_sort.h"
#include "compactor/import_rollups.h"
#include "counts/record_check.h"
#include <inttypes.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define PROGRESS_EVERY 65536 /* lines */

struct import {
    uint32_t shards, n_parts;
    struct external_sort **sorts;
    struct count_sources *parts; /* of the sorts, or of `views` */
    struct count_source **views; /* over each sort's sources, if the text has rollups; else NULL */
    struct manifest_import *entries;
    size_t n_entries;
    bool has_rollups;
    struct buf lookup;     /* the text of a lookup that is checked */
    uint64_t bytes, total; /* of the files, read and in all */
    uint64_t records;
};

/* A file that is being read. */
struct import_file {
    const struct import_spec *spec;
    struct import *import;
    const char *name;
    struct line_source *lines;
    struct manifest_import entry;
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

static enum compact_result refuse_line(const struct import_file *f, const char *why, struct error *error)
{
    return error_set(error, COMPACT_REFUSED, "%.300s:%" PRIu64 ": %.120s; nothing was imported", f->name,
        f->entry.records, why);
}

static enum compact_result add_line(struct import_file *f, struct bytes line, struct error *error)
{
    struct import *i = f->import;
    struct record_key key;
    f->entry.records++;
    XXH3_64bits_update(f->hash, line.ptr, line.len);
    if (line.len > 0 && line.ptr[line.len - 1] == '\n')
        line.len--;
    else
        XXH3_64bits_update(f->hash, "\n", 1);
    f->entry.bytes += line.len + 1;
    const char *wrong = record_check(line, &key, &i->lookup);
    if (wrong)
        return refuse_line(f, wrong, error);
    i->has_rollups = i->has_rollups || (key.is_subtotal && key.unit != PERIOD_HOUR);
    uint32_t part = i->n_parts > 1 ? record_shard(&key, i->shards) % i->n_parts : 0;
    enum compact_result r = external_sort_add(i->sorts[part], line, error);
    return r == COMPACT_REFUSED ? refuse_line(f, error->text, error) : r;
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
            return COMPACT_OK;
        case LINE_SOURCE_FAILED:
            return error_set(error, COMPACT_FAILED, "%s; nothing was imported", error->text);
        default:
            f->entry.records++;
            return refuse_line(
                f, "the line is longer than a half of the memory allowed; set memory higher", error);
        }
        if (f->entry.records % PROGRESS_EVERY == 0)
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

static enum compact_result read_file(
    const struct import_spec *spec, struct import *i, const char *path, struct error *error)
{
    struct import_file f = {.spec = spec,
        .import = i,
        .name = strcmp(path, "-") == 0 ? "standard input" : path,
        .hash = XXH3_createState()};
    set_name(&f.entry, path);
    XXH3_64bits_reset(f.hash);
    bool is_missing = strcmp(path, "-") != 0 && access(path, F_OK) != 0 && errno == ENOENT;
    f.lines = line_source_open(path, error);
    enum compact_result r =
        f.lines ? COMPACT_OK : (error->code = is_missing ? COMPACT_MISSING : COMPACT_REFUSED);
    if (r == COMPACT_OK) {
        line_source_limit(f.lines, spec->memory / 2);
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

static enum compact_result finish_part(struct import *i, uint32_t k, int64_t hours_from, struct error *error)
{
    enum compact_result r = external_sort_finish(i->sorts[k], error);
    if (r != COMPACT_OK)
        return r;
    i->parts[k] = *external_sort_sources(i->sorts[k]);
    if (i->has_rollups) {
        i->views[k] = import_rollups_source(i->parts[k].list, i->parts[k].n, hours_from);
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
    i->n_parts = spec->parts;
    i->sorts = mem_zalloc(i->n_parts * sizeof(struct external_sort *));
    i->views = mem_zalloc(i->n_parts * sizeof(struct count_source *));
    i->parts = mem_zalloc(i->n_parts * sizeof *i->parts);
    for (uint32_t k = 0; k < i->n_parts; k++)
        i->sorts[k] = external_sort_new(spec->directory, spec->memory / i->n_parts);
    i->entries = mem_zalloc((spec->n_files + 1) * sizeof *i->entries);
    for (size_t k = 0; k < spec->n_files; k++)
        i->total += stat(spec->files[k], &st) == 0 && S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
    for (size_t k = 0; k < spec->n_files && r == COMPACT_OK; k++)
        r = read_file(spec, i, spec->files[k], error);
    for (uint32_t k = 0; k < i->n_parts && r == COMPACT_OK; k++)
        r = finish_part(i, k, spec->hours_from, error);
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
    free(i->parts);
    buf_free(&i->lookup);
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
