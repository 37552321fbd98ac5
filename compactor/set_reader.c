#include "compactor/set_reader.h"

#include "archive/mapping.h"
#include "base/io.h"
#include "compactor/record_reader.h"
#include "compactor/record_source.h"
#include "counts/records.h"
#include "counts/set_text.h"

#include <fcntl.h>
#include <stdlib.h>

#define READ_BYTES ((size_t)64 << 10)
#define KEY_SHOWN 200

struct set_reader {
    struct count_source *lines;
    struct mapping *mapping;
    struct sets_file *file;
    struct buf key, value; /* of the current line */
    struct record_key parts;
    uint64_t n_sets; /* sets with `#` up to the current one */
    struct set_opened opened;
    struct set *small; /* the current set, if its members are in the text */
    bool is_read;      /* `opened` or `small` has the current set */
};

void set_reader_close(struct set_reader **rp)
{
    struct set_reader *r = *rp;
    if (!r)
        return;
    set_opened_close(&r->opened);
    set_free(&r->small);
    sets_file_free(&r->file);
    mapping_close(&r->mapping);
    count_source_close(&r->lines);
    buf_free(&r->key);
    buf_free(&r->value);
    free(r);
    *rp = NULL;
}

static enum compact_result map_sets(
    struct set_reader *r, const char *path, const struct manifest_file *expected, struct error *error)
{
    if (mapping_open(path, false, &r->mapping, error) != 0)
        return error->code = COMPACT_FAILED;
    if (mapping_bytes(r->mapping).len != expected->bytes)
        return error_set(error, COMPACT_DAMAGED, "%.300s: its size does not match the manifest", path);
    mapping_expect_scan(r->mapping, true);
    return sets_file_open(mapping_bytes(r->mapping), path, &r->file, error) == SETS_OK
               ? COMPACT_OK
               : (enum compact_result)(error->code = COMPACT_DAMAGED);
}

enum compact_result set_reader_open(
    const char *directory, const struct manifest *m, uint32_t k, struct set_reader **out, struct error *error)
{
    *out = NULL;
    if (!manifest_has_sets(m, k))
        return COMPACT_OK;
    struct set_reader *r = mem_zalloc(sizeof *r);
    char *texts = mem_printf("%s/%s", directory, m->set_texts[k].name),
         *sets = mem_printf("%s/%s", directory, m->sets[k].name);
    enum compact_result result = COMPACT_OK;
    int fd = io->open(texts, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        result = error_errno(error, COMPACT_FAILED, texts);
    else
        r->lines = record_source_of_file(fd, texts, &m->set_texts[k], READ_BYTES);
    if (result == COMPACT_OK)
        result = map_sets(r, sets, &m->sets[k], error);
    free(texts);
    free(sets);
    if (result != COMPACT_OK)
        set_reader_close(&r);
    *out = r;
    return result;
}

static bool is_large(const struct set_reader *r)
{
    return r->value.len > 0 && r->value.ptr[0] == '#';
}

enum compact_result set_reader_next(struct set_reader *r, bool *is_end, struct error *error)
{
    struct count_source *s = r->lines;
    enum count_next next = s->kind->next_record(s);
    r->is_read = false;
    *is_end = next == COUNT_END;
    if (next == COUNT_FAILED)
        return record_source_failed(&s->error, error);
    if (*is_end)
        return r->n_sets == sets_file_count(r->file)
                   ? COMPACT_OK
                   : error_set(
                         error, COMPACT_DAMAGED, "%.300s: the file beside it has other sets", s->container);
    buf_clear(&r->key);
    buf_append(&r->key, s->key.ptr, s->key.len - 1);
    if (!s->line.ptr || !s->is_set || !record_key_parse(buf_bytes(&r->key), &r->parts) ||
        !r->parts.is_subtotal)
        return error_set(error, COMPACT_DAMAGED, "%.300s: not a set: \"%.*s\"", s->container,
            (int)(s->key.len < KEY_SHOWN ? s->key.len : KEY_SHOWN), s->key.ptr);
    buf_clear(&r->value);
    buf_append(&r->value, s->line.ptr + s->key.len, s->line.len - s->key.len);
    r->n_sets += is_large(r);
    return COMPACT_OK;
}

struct bytes set_reader_key(const struct set_reader *r)
{
    return buf_bytes(&r->key);
}

const struct record_key *set_reader_parts(const struct set_reader *r)
{
    return &r->parts;
}

struct bytes set_reader_value(const struct set_reader *r)
{
    return buf_bytes(&r->value);
}

static enum compact_result read_large(struct set_reader *r, struct error *error)
{
    uint64_t size;
    struct bytes value = buf_bytes(&r->value), key = buf_bytes(&r->key);
    set_opened_close(&r->opened);
    if (r->n_sets > sets_file_count(r->file) ||
        sets_file_view(r->file, r->n_sets - 1, &r->opened, error) != SETS_OK) {
        if (r->n_sets <= sets_file_count(r->file))
            return error->code = COMPACT_DAMAGED;
    } else if (bytes_equal(r->opened.key, key) &&
               bytes_to_u64(bytes_of(value.ptr + 1, value.len - 1), &size) &&
               size == set_view_size(&r->opened.view) && mapping_is_whole(r->mapping)) {
        return COMPACT_OK;
    }
    return error_set(error, COMPACT_DAMAGED, "%.300s: the file beside it has another set than \"%.*s\"",
        r->lines->container, (int)(key.len < KEY_SHOWN ? key.len : KEY_SHOWN), key.ptr);
}

static enum compact_result read_small(struct set_reader *r, struct error *error)
{
    struct set_text text = {0};
    struct bytes rest = buf_bytes(&r->value), id, chunk;
    const char *why = NULL;
    set_free(&r->small);
    r->small = set_new();
    while (set_text_next(&text, &rest, &id, &chunk, &why))
        set_add_chunk(r->small, id, chunk);
    set_text_free(&text);
    return why ? error_set(error, COMPACT_DAMAGED, "%.300s: %s: \"%.*s\"", r->lines->container, why,
                     (int)(r->key.len < KEY_SHOWN ? r->key.len : KEY_SHOWN), r->key.ptr)
               : (int)COMPACT_OK;
}

enum compact_result set_reader_view(struct set_reader *r, struct set_view *out, struct error *error)
{
    enum compact_result result = COMPACT_OK;
    if (!r->is_read)
        result = is_large(r) ? read_large(r, error) : read_small(r, error);
    r->is_read = result == COMPACT_OK;
    if (result == COMPACT_OK)
        *out = is_large(r) ? r->opened.view : set_view_of(r->small);
    return result;
}

struct set_source {
    struct count_source base; /* first */
    struct set_reader *reader;
    struct set_view view;
    struct set_chunks chunks;
    bool has_view;
    struct buf key;
};

static enum count_next fail(struct set_source *s, const struct error *error)
{
    error_set(
        &s->base.error, error->code == COMPACT_FAILED ? COUNT_UNREADABLE : COUNT_DAMAGED, "%s", error->text);
    return COUNT_FAILED;
}

static enum count_next next_record(struct count_source *base)
{
    struct set_source *s = (struct set_source *)base;
    struct error error;
    bool is_end;
    do {
        if (set_reader_next(s->reader, &is_end, &error) != COMPACT_OK)
            return fail(s, &error);
    } while (!is_end && s->reader->parts.unit == PERIOD_MONTH);
    buf_clear(&s->key);
    buf_append_bytes(&s->key, set_reader_key(s->reader));
    buf_append_char(&s->key, RECORD_SEPARATOR);
    s->base.key = buf_bytes(&s->key);
    s->base.is_set = true;
    s->base.line = s->base.text = BYTES_NONE;
    s->has_view = false;
    return is_end ? COUNT_END : COUNT_FOUND;
}

static enum count_next next_value(struct count_source *base)
{
    struct set_source *s = (struct set_source *)base;
    struct error error;
    if (!s->has_view) {
        if (set_reader_view(s->reader, &s->view, &error) != COMPACT_OK)
            return fail(s, &error);
        s->has_view = true;
        s->chunks.view = &s->view;
        s->chunks.container = s->chunks.hash = 0;
    }
    return set_chunks_next(&s->chunks, &s->base.name, &s->base.text) ? COUNT_FOUND : COUNT_END;
}

static void close_source(struct count_source *base)
{
    struct set_source *s = (struct set_source *)base;
    set_reader_close(&s->reader);
    set_chunks_free(&s->chunks);
    buf_free(&s->key);
    free(s);
}

static const struct count_source_kind set_source_kind = {
    .next_record = next_record, .next_value = next_value, .close = close_source};

struct count_source *set_reader_source(struct set_reader *r)
{
    struct set_source *s = mem_zalloc(sizeof *s);
    s->base.kind = &set_source_kind;
    s->base.container = r->lines->container;
    s->reader = r;
    return &s->base;
}

enum compact_result set_reader_add_sources(const char *directory, const struct manifest *m,
    const struct record_filter *filter, struct count_sources *out, struct error *error)
{
    enum compact_result result = COMPACT_OK;
    for (uint32_t k = 0; k < m->shards && result == COMPACT_OK; k++) {
        struct set_reader *r;
        result = set_reader_open(directory, m, k, &r, error);
        if (!r)
            continue;
        struct count_source *source = set_reader_source(r);
        count_sources_add(out, filter ? record_filter_source(filter, source) : source);
    }
    return result;
}
