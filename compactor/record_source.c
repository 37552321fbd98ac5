#include "compactor/source_internal.h"

#include <assert.h>
#include <stdlib.h>

#define SOURCE_MAGIC 0x736f7263u
#define KEY_SHOWN 80 /* bytes of a key in an error text */

struct record_source {
    unsigned magic;
    const struct source_kind *kind;
    void *state;
    char *path;
    struct buf last; /* the previous key */
    uint64_t bytes;
};

struct record_source *source_new(const struct source_kind *kind, void *state, const char *path)
{
    struct record_source *s = mem_zalloc(sizeof(*s));
    *s =
        (struct record_source){.magic = SOURCE_MAGIC, .kind = kind, .state = state, .path = mem_strdup(path)};
    return s;
}

void record_source_close(struct record_source **sp)
{
    struct record_source *s = *sp;
    if (!s)
        return;
    assert(s->magic == SOURCE_MAGIC);
    s->magic = 0;
    s->kind->close(s->state);
    buf_free(&s->last);
    free(s->path);
    free(s);
    *sp = NULL;
}

const char *record_source_path(const struct record_source *s)
{
    return s->path;
}

uint64_t record_source_bytes(const struct record_source *s)
{
    return s->bytes;
}

enum compact_result record_source_next(
    struct record_source *s, struct record_line *out, char error[COMPACT_ERROR_TEXT])
{
    assert(s->magic == SOURCE_MAGIC);
    enum compact_result r = s->kind->next(s->state, out, error);
    if (r != COMPACT_OK || !out->text.ptr)
        return r;
    struct bytes key = bytes_of(out->text.ptr, out->key_len);
    if (s->last.len && bytes_compare(buf_bytes(&s->last), key) >= 0)
        return compact_fail(error, COMPACT_DAMAGED, "%.300s: out of order at \"%.*s\"", s->path,
            (int)(key.len < KEY_SHOWN ? key.len : KEY_SHOWN), key.ptr);
    buf_clear(&s->last);
    buf_append_bytes(&s->last, key);
    s->bytes += out->text.len + 1;
    return COMPACT_OK;
}
