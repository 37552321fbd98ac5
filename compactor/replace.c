#include "compactor/replace.h"

#include "base/amount.h"
#include "base/xxh3.h"
#include "counts/rejects.h"

#include <inttypes.h>
#include <stdio.h>

#define SAME_COUNTERS                                                                                        \
    "; restart the aggregator with the configuration of the recount, run `millrace compact`, then "          \
    "`millrace "                                                                                             \
    "recount` again"

static bool is_stream(const struct manifest_stream *s)
{
    return s->name[0] != '.';
}

static bool is_file(const struct manifest_stream *s)
{
    return s->name[0] == '.' && strcmp(s->name, REJECTS_CURSOR) != 0;
}

/* Compares the streams' ids. If both archives know the opening before the end, also compares the openings, because a
 * restored copy has another opening. */
static bool has_same_history(const struct manifest_stream *x, const struct manifest_stream *y)
{
    size_t n = strcspn(x->id, ".");
    bool knows_both = x->id[n] && y->id[n];
    return n == strcspn(y->id, ".") && (knows_both ? strcmp(x->id, y->id) : strncmp(x->id, y->id, n)) == 0;
}

static const struct manifest_stream *find_stream(const struct manifest *m, const char *name)
{
    for (size_t i = 0; i < m->n_streams; i++)
        if (strcmp(m->streams[i].name, name) == 0)
            return &m->streams[i];
    return NULL;
}

static enum compact_result check_streams(
    const char *dir, const struct manifest *current, const struct manifest *by, struct error *error)
{
    for (size_t i = 0; i < current->n_streams; i++) {
        const struct manifest_stream *s = &current->streams[i], *r = find_stream(by, s->name);
        if (!is_stream(s) || (r && r->end == s->end && has_same_history(r, s)))
            continue;
        if (r && !has_same_history(r, s))
            return error_set(error, COMPACT_REFUSED,
                "%.200s has counts of another stream %s than the archive, or of a restored copy (%s, %s); "
                "remove %.200s and run `millrace recount` again",
                dir, s->name, r->id, s->id, dir);
        uint64_t end = r ? r->end : 0;
        return error_set(error, COMPACT_REFUSED,
            "%.200s ends at offset %" PRIu64 " of stream %s, the archive at %" PRIu64 "%s", dir, end, s->name,
            s->end,
            end < s->end
                ? "; run `millrace recount` again to continue to the end"
                : "; compact the pipeline with `millrace compact`, then run `millrace recount` again");
    }
    for (size_t i = 0; i < by->n_streams; i++)
        if (is_stream(&by->streams[i]) && !find_stream(current, by->streams[i].name))
            return error_set(error, COMPACT_REFUSED,
                "%.200s has counts of stream %s, which the archive does not include", dir,
                by->streams[i].name);
    return COMPACT_OK;
}

/* A file is identified by its content, because the file's cursors may have different names in the two archives. */
static bool has_file(const struct manifest *m, const struct manifest_stream *file)
{
    for (size_t i = 0; i < m->n_streams; i++)
        if (is_file(&m->streams[i]) && m->streams[i].end == file->end &&
            strcmp(m->streams[i].id, file->id) == 0)
            return true;
    return false;
}

static enum compact_result check_files(
    const char *dir, const struct manifest *current, const struct manifest *by, struct error *error)
{
    uint64_t missing = 0, more = 0, bytes = 0;
    for (size_t i = 0; i < current->n_streams; i++)
        if (is_file(&current->streams[i]) && !has_file(by, &current->streams[i])) {
            bytes = current->streams[i].end;
            missing++;
        }
    for (size_t i = 0; i < by->n_streams; i++)
        if (is_file(&by->streams[i]) && !has_file(current, &by->streams[i])) {
            bytes = by->streams[i].end;
            more++;
        }
    if (missing > 0)
        return error_set(error, COMPACT_REFUSED,
            "%.200s lacks %" PRIu64
            " %s that the archive counted with `aggregator --input`, the last with %" PRIu64
            " bytes; run `millrace recount --from FILE...` with %s",
            dir, missing, plural(missing, "file", "files"), bytes,
            plural(missing, "this file", "these files"));
    if (more > 0)
        return error_set(error, COMPACT_REFUSED,
            "%.200s has counts of %" PRIu64 " %s that the archive does not include, the last with %" PRIu64
            " bytes; remove %.200s and recount without %s",
            dir, more, plural(more, "file", "files"), bytes, dir, plural(more, "this file", "these files"));
    return COMPACT_OK;
}

static size_t count_imports(const struct manifest *m, const struct manifest_import *import)
{
    size_t n = 0;
    for (size_t i = 0; i < m->n_imports; i++)
        n += m->imports[i].xxh3 == import->xxh3 && m->imports[i].bytes == import->bytes;
    return n;
}

static enum compact_result check_imports(
    const char *dir, const struct manifest *current, const struct manifest *by, struct error *error)
{
    for (size_t i = 0; i < current->n_imports; i++) {
        const struct manifest_import *import = &current->imports[i];
        size_t has = count_imports(by, import);
        if (has < count_imports(current, import))
            return error_set(error, COMPACT_REFUSED,
                "%.100s has fewer imports of %.100s than the archive; to import it: millrace compactor "
                "--archive=%.100s "
                "--aggregator-url=none --sortdb-url=none --import FILE%s",
                dir, import->name, dir, has > 0 ? " --again" : "");
    }
    for (size_t i = 0; i < by->n_imports; i++)
        if (count_imports(by, &by->imports[i]) > count_imports(current, &by->imports[i]))
            return error_set(error, COMPACT_REFUSED, "%.100s has more imports of %.100s than the archive",
                dir, by->imports[i].name);
    return COMPACT_OK;
}

enum compact_result replace_read(
    const char *dir, const struct manifest *current, struct manifest *by, bool *is_done, struct error *error)
{
    enum manifest_result m = manifest_read_current(dir, by, error);
    *is_done = false;
    if (m != MANIFEST_OK)
        return error_set(error, m == MANIFEST_FAILED ? COMPACT_FAILED : COMPACT_REFUSED,
            "%.200s: no recounted archive: %s", dir, error->text);
    if (current->recounted.made > 0 && current->recounted.content == manifest_content(by)) {
        *is_done = true;
        return COMPACT_OK;
    }
    if (by->through == 0)
        return error_set(
            error, COMPACT_REFUSED, "%.200s has no counts yet; run `millrace recount` again", dir);
    enum compact_result r = check_streams(dir, current, by, error);
    if (r == COMPACT_OK)
        r = check_files(dir, current, by, error);
    return r == COMPACT_OK ? check_imports(dir, current, by, error) : r;
}

enum compact_result replace_check_slice(const struct manifest *current, const struct manifest *by,
    const char *path, const struct slice_facts *slice, struct error *error)
{
    const struct manifest_stream *before = find_stream(current, REJECTS_CURSOR), *after = NULL;
    if (strcmp(slice->counters, by->counters) != 0)
        return error_set(error, COMPACT_REFUSED,
            "%.200s, which the archive does not include, has other counters than the recount" SAME_COUNTERS,
            path);
    for (size_t i = 0; i < slice->n_streams && !after; i++)
        after = strcmp(slice->streams[i].name, REJECTS_CURSOR) == 0 ? &slice->streams[i] : NULL;
    if (after && (!before || strcmp(before->id, after->id) != 0 || before->end != after->end))
        return error_set(error, COMPACT_REFUSED,
            "rejected lines were put back into %.200s, which the archive does not include; run `millrace "
            "compact`, then `millrace recount` again",
            path);
    return COMPACT_OK;
}

enum compact_result replace_check_open(const struct manifest *by, uint64_t counters, struct error *error)
{
    if (counters == XXH3_64bits(by->counters, strlen(by->counters)))
        return COMPACT_OK;
    return error_set(
        error, COMPACT_REFUSED, "the aggregator has other counters than the recount" SAME_COUNTERS);
}

void replace_describe(const struct manifest *current, const struct manifest *by, struct manifest *made)
{
    struct manifest_recount *r = &made->recounted;
    *r = (struct manifest_recount){.content = manifest_content(by), .made = by->made};
    r->streams = mem_zalloc((current->n_streams + 1) * sizeof *r->streams);
    for (size_t i = 0; i < current->n_streams; i++) {
        const struct manifest_stream *from = &current->streams[i];
        struct manifest_stream *s = &r->streams[r->n_streams];
        if (is_stream(from))
            memcpy(s->name, from->name, sizeof s->name);
        else if (is_file(from) && strchr(from->id, '.'))
            snprintf(s->name, sizeof s->name, "%.*s", NAME_LEN_MAX, strchr(from->id, '.'));
        else
            continue;
        s->end = from->end;
        r->n_streams++;
    }
    snprintf(made->change, sizeof made->change, "replace");
}
