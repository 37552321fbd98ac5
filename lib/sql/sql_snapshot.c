#include "sql/sql_snapshot.h"

#include "counts/manifest.h"
#include "counts/records.h"
#include "counts/slice_files.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#define ATTEMPTS 20 /* each compaction during sql_snapshot_begin takes one attempt */
#define CACHED_TEXTS 16384

struct cached_text {
    char hash[COMPONENT_HASH];
    struct buf text;
};

struct sql_snapshot {
    char *archive, *slices_dir;
    const atomic_bool *cancel;
    unsigned begun;
    struct generation *generation;
    struct slice_reader **slices; /* of the present counts */
    size_t n_slices, room;
    struct cached_text *texts; /* CACHED_TEXTS entries, by hash */
    struct buf key;
};

struct sql_snapshot *sql_snapshot_new(const char *archive, const char *slices, const atomic_bool *cancel)
{
    struct sql_snapshot *s = mem_zalloc(sizeof *s);
    s->archive = mem_strdup(archive);
    s->slices_dir = slices ? mem_strdup(slices) : NULL;
    s->cancel = cancel;
    return s;
}

bool sql_snapshot_is_cancelled(const struct sql_snapshot *s)
{
    return s->cancel && atomic_load_explicit(s->cancel, memory_order_relaxed);
}

/* Closes the slices, and frees the cached texts. */
static void forget(struct sql_snapshot *s)
{
    for (size_t i = 0; i < s->n_slices; i++)
        slice_reader_close(&s->slices[i]);
    s->n_slices = 0;
    for (size_t i = 0; s->texts && i < CACHED_TEXTS; i++)
        buf_free(&s->texts[i].text);
    free(s->texts);
    s->texts = NULL;
}

void sql_snapshot_free(struct sql_snapshot **sp)
{
    struct sql_snapshot *s = *sp;
    if (!s)
        return;
    forget(s);
    if (s->generation)
        generation_unref(&s->generation);
    buf_free(&s->key);
    free(s->slices);
    free(s->slices_dir);
    free(s->archive);
    free(s);
    *sp = NULL;
}

static enum sql_snapshot_result open_generation(struct sql_snapshot *s, struct error *error)
{
    const struct generation_source source = {.archive = s->archive, .separator = RECORD_SEPARATOR};
    uint64_t number;
    if (manifest_current(s->archive, &number, error) == MANIFEST_ABSENT)
        return (enum sql_snapshot_result)error_set(
            error, SQL_SNAPSHOT_ABSENT, "no archive in %.400s", s->archive);
    if (s->generation && generation_is_current(s->generation, &source))
        return SQL_SNAPSHOT_OK;
    if (s->generation)
        generation_unref(&s->generation);
    switch (generation_open(&source, NULL, s->cancel, &s->generation, error)) {
    case SORTED_FILE_OK:
        return SQL_SNAPSHOT_OK;
    case SORTED_FILE_ABSENT:
        return SQL_SNAPSHOT_ABSENT;
    case SORTED_FILE_REFUSED:
        return SQL_SNAPSHOT_DAMAGED;
    case SORTED_FILE_FAILED:
    case SORTED_FILE_CANCELLED:
        break;
    }
    return SQL_SNAPSHOT_FAILED;
}

/* Sets *is_gone if a slice does not exist. */
static enum slice_result open_slices(
    struct sql_snapshot *s, struct slice_range range, bool *is_gone, struct error *error)
{
    for (uint64_t n = range.first; n <= range.last; n++) {
        struct slice_reader *reader = NULL;
        char *path = slice_path(s->slices_dir, n);
        enum slice_result r = n < range.last ? slice_reader_open_sealed(path, &reader, error)
                                             : slice_reader_open(path, &reader, error);
        *is_gone = r != SLICE_OK && access(path, F_OK) != 0;
        free(path);
        if (r == SLICE_FOREIGN && n == range.last && !*is_gone)
            return SLICE_OK; /* the aggregator has not yet committed the new slice */
        if (r != SLICE_OK)
            return r;
        *ARRAY_ADD(s->slices, s->n_slices, s->room) = reader;
    }
    return SLICE_OK;
}

/* Opens the slices after the generation. Sets *is_gone if a slice does not exist, because the compactor cleared the slice, or
 * because it is lost. */
static enum sql_snapshot_result open_all(struct sql_snapshot *s, bool *is_gone, struct error *error)
{
    uint64_t through = generation_info(s->generation).through;
    struct slice_range range = {0};
    if (s->slices_dir && slice_files_find(s->slices_dir, through, &range) != 0 && errno != ENOENT)
        return (enum sql_snapshot_result)error_errno(error, SQL_SNAPSHOT_FAILED, s->slices_dir);
    if (range.last == 0)
        return SQL_SNAPSHOT_OK;
    uint64_t missing = slice_files_missing(s->slices_dir, through + 1, range.last);
    *is_gone = missing > 0;
    if (missing > 0)
        return (enum sql_snapshot_result)error_set(error, SQL_SNAPSHOT_DAMAGED,
            "slice %" PRIu64 " is missing from %.400s, and the archive %.400s does not include it", missing,
            s->slices_dir, s->archive);
    switch (open_slices(s, range, is_gone, error)) {
    case SLICE_OK:
        return SQL_SNAPSHOT_OK;
    case SLICE_FULL:
    case SLICE_FAILED:
        return SQL_SNAPSHOT_FAILED;
    default:
        return SQL_SNAPSHOT_DAMAGED;
    }
}

enum sql_snapshot_result sql_snapshot_begin(struct sql_snapshot *s, struct error *error)
{
    enum sql_snapshot_result r = SQL_SNAPSHOT_OK;
    bool is_gone = s->begun == 0, is_same = false;
    for (int attempt = 0; attempt < ATTEMPTS && is_gone && !is_same; attempt++) {
        uint64_t last = s->generation ? generation_info(s->generation).number : 0;
        forget(s);
        is_gone = false;
        r = open_generation(s, error);
        if (r == SQL_SNAPSHOT_OK) {
            is_same = attempt > 0 && generation_info(s->generation).number == last;
            r = open_all(s, &is_gone, error);
        }
    }
    if (r == SQL_SNAPSHOT_OK)
        s->begun++;
    else
        forget(s);
    return r;
}

void sql_snapshot_end(struct sql_snapshot *s)
{
    if (--s->begun == 0)
        forget(s);
}

bool sql_snapshot_is_begun(const struct sql_snapshot *s)
{
    return s->begun > 0;
}

const struct generation *sql_snapshot_generation(const struct sql_snapshot *s)
{
    return s->generation;
}

void sql_snapshot_add_slices(struct sql_snapshot *s, struct bytes from, struct count_sources *out)
{
    for (size_t i = 0; i < s->n_slices; i++)
        slice_reader_add_sources(s->slices[i], from, out);
}

/* Searches the slices for the lookup s->key, which ends with its separator. Appends its text to `out`. */
static int find_in_slices(struct sql_snapshot *s, struct buf *out, struct error *error)
{
    struct count_sources sources = {0};
    struct count_value v;
    sql_snapshot_add_slices(s, buf_bytes(&s->key), &sources);
    struct count_merge *m = count_merge_new(sources.list, sources.n);
    enum count_next r = count_merge_next_record(m);
    if (r == COUNT_FOUND && !bytes_equal(count_merge_key(m), buf_bytes(&s->key)))
        r = COUNT_END;
    if (r == COUNT_FOUND)
        r = count_merge_next_value(m, &v);
    if (r == COUNT_FOUND)
        buf_append_bytes(out, v.text);
    if (r == COUNT_FAILED)
        *error = *count_merge_error(m);
    count_merge_free(&m);
    count_sources_free(&sources);
    return r == COUNT_FAILED ? -1 : 0;
}

/* Appends the text of a hash to `out`, or nothing if it has no lookup. */
static int find_text(struct sql_snapshot *s, struct bytes hash, struct buf *out, struct error *error)
{
    struct bytes line;
    struct record r;
    uint32_t shard;
    buf_clear(&s->key);
    buf_append_str(&s->key, "lookup|");
    buf_append_bytes(&s->key, hash);
    if (!generation_find(s->generation, buf_bytes(&s->key), &line, &shard)) {
        buf_append_char(&s->key, RECORD_SEPARATOR);
        return find_in_slices(s, out, error);
    }
    line.len -= line.len > 0 && line.ptr[line.len - 1] == '\n';
    if (record_split(line, RECORD_SEPARATOR, &r) && lookup_unescape(r.value, out) == 0)
        return 0;
    return error_set(error, -1, "malformed lookup %.*s", (int)hash.len, hash.ptr);
}

static struct cached_text *cached(struct sql_snapshot *s, struct bytes hash)
{
    uint64_t bits;
    if (!s->texts)
        s->texts = mem_zalloc(CACHED_TEXTS * sizeof *s->texts);
    memcpy(&bits, hash.ptr, sizeof bits);
    bits *= UINT64_C(0x9e3779b97f4a7c15);
    return &s->texts[bits >> 50];
}

int sql_snapshot_text(struct sql_snapshot *s, struct bytes stored, struct bytes *text, struct error *error)
{
    *text = stored;
    if (!component_is_hash(stored))
        return 0;
    struct cached_text *c = cached(s, stored);
    if (c->text.ptr && memcmp(c->hash, stored.ptr, COMPONENT_HASH) == 0) {
        *text = buf_bytes(&c->text);
        return 0;
    }
    buf_clear(&c->text);
    if (find_text(s, stored, &c->text, error) != 0) {
        buf_free(&c->text);
        return -1;
    }
    if (c->text.len == 0)
        buf_append_bytes(&c->text, stored);
    memcpy(c->hash, stored.ptr, COMPONENT_HASH);
    *text = buf_bytes(&c->text);
    return 0;
}
