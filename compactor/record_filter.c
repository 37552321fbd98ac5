#include "compactor/record_filter.h"

#include "sets/set_chunk.h"

#include <stdio.h>
#include <stdlib.h>

#define KEY_SHOWN 80

struct filtered {
    struct count_source base; /* first */
    struct count_source *inner;
    const struct record_filter *filter;
    struct record_key key;
    struct buf text;      /* copy of the key, valid while values are read */
    struct bytes without; /* the sub key to exclude from the record, or BYTES_NONE */
    bool by_value;        /* the filter decides on each hour or sub key of the record */
    struct buf chunk;     /* the inner source's current chunk without the excluded member */
    bool has_chunk;       /* `chunk` takes the place of the inner source's chunk */
    bool has_value;       /* the inner source's current value was not yet returned */
};

static enum count_next follow(struct filtered *s, enum count_next r)
{
    count_source_follow(&s->base, s->inner, r);
    if (s->by_value)
        s->base.line = BYTES_NONE;
    if (s->has_chunk)
        s->base.text = buf_bytes(&s->chunk);
    return r;
}

static enum count_next fail_at(struct filtered *s, const char *what)
{
    struct bytes key = s->inner->key;
    error_set(&s->base.error, COUNT_DAMAGED, "%.300s: %s: \"%.*s\"",
        s->base.container ? s->base.container : "memory", what,
        (int)(key.len < KEY_SHOWN ? key.len : KEY_SHOWN), key.ptr);
    return COUNT_FAILED;
}

/* Returns false if the current chunk has only the excluded member. */
static bool keep_chunk(struct filtered *s)
{
    char id[SET_CHUNK_ID];
    set_chunk_id(s->filter->member, id);
    s->has_chunk = bytes_equal(s->inner->name, bytes_of(id, sizeof id));
    if (!s->has_chunk)
        return true;
    buf_clear(&s->chunk);
    set_chunk_append_without(s->inner->name, s->inner->text, s->filter->member, &s->chunk);
    return s->chunk.len > 0;
}

/* Moves to the record's next value (a sub key, or an hour of a total) that the filter keeps. */
static enum count_next next_kept(struct filtered *s)
{
    enum count_next r;
    int64_t start;
    enum period_unit unit;
    s->has_chunk = false;
    while ((r = s->inner->kind->next_value(s->inner)) == COUNT_FOUND) {
        if (s->key.is_set) {
            if (keep_chunk(s))
                return COUNT_FOUND;
            continue;
        }
        if (s->key.is_subtotal) {
            if (!bytes_equal(s->inner->name, s->without))
                return COUNT_FOUND;
            continue;
        }
        if (!total_period_decode(s->inner->name, &unit, &start))
            return fail_at(s, "a total with an invalid hour");
        if (s->filter->keep(s->filter->arg, &s->key, start))
            return COUNT_FOUND;
    }
    return r == COUNT_FAILED ? follow(s, r) : r;
}

static void begin_record(struct filtered *s)
{
    const struct record_filter *f = s->filter;
    bool has_member = s->key.is_set && f->without_member && f->without_member(f->arg, &s->key);
    s->without =
        s->key.is_subtotal && !s->key.is_set && f->without ? f->without(f->arg, &s->key) : BYTES_NONE;
    s->by_value = has_member || s->without.ptr || (f->by_hour && !s->key.is_subtotal && !s->key.is_lookup);
}

static enum count_next next_record(struct count_source *base)
{
    struct filtered *s = (struct filtered *)base;
    enum count_next r;
    for (;;) {
        r = s->inner->kind->next_record(s->inner);
        s->by_value = s->has_value = s->has_chunk = false;
        if (r != COUNT_FOUND)
            return follow(s, r);
        struct bytes key = s->inner->key;
        key.len--; /* the separator */
        if (!record_key_parse(key, &s->key))
            return fail_at(s, "invalid key of a record");
        s->key.is_set = s->inner->is_set;
        begin_record(s);
        follow(s, r);
        bool by_hour = s->by_value && !s->key.is_subtotal;
        if (!by_hour && !s->filter->keep(s->filter->arg, &s->key, s->key.start))
            continue;
        if (!s->by_value)
            return COUNT_FOUND;
        buf_clear(&s->text);
        buf_append_bytes(&s->text, s->inner->key);
        record_key_parse(bytes_of(s->text.ptr, key.len), &s->key);
        s->key.is_set = s->inner->is_set;
        if ((r = next_kept(s)) != COUNT_END) {
            base->key = buf_bytes(&s->text);
            s->has_value = true;
            return r;
        }
    }
}

static enum count_next next_value(struct count_source *base)
{
    struct filtered *s = (struct filtered *)base;
    enum count_next r = COUNT_FOUND;
    if (s->by_value && !s->has_value)
        r = next_kept(s);
    else if (!s->by_value)
        r = s->inner->kind->next_value(s->inner);
    s->has_value = false;
    return r == COUNT_FAILED && s->by_value ? r : follow(s, r);
}

static void close_source(struct count_source *base)
{
    struct filtered *s = (struct filtered *)base;
    count_source_close(&s->inner);
    buf_free(&s->text);
    buf_free(&s->chunk);
    free(s);
}

bool record_filter_is_counted(void *manifest, const struct record_key *key, int64_t start)
{
    const struct manifest *m = manifest;
    if (key->is_set)
        return key->unit != PERIOD_MONTH;
    return !key->is_subtotal || manifest_is_counted(m, key->unit, start);
}

bool record_filter_has_namespace(struct bytes ns, struct bytes wanted)
{
    const char *dot = memchr(ns.ptr, '.', ns.len);
    size_t before = dot ? (size_t)(dot + 1 - ns.ptr) : 0;
    return bytes_equal(ns, wanted) || bytes_equal(bytes_of(ns.ptr + before, ns.len - before), wanted);
}

struct count_source *record_filter_source(const struct record_filter *f, struct count_source *inner)
{
    static const struct count_source_kind kind = {next_record, next_value, close_source, NULL};
    struct filtered *s = mem_zalloc(sizeof *s);
    s->base.kind = &kind;
    s->base.container = inner->container;
    s->inner = inner;
    s->filter = f;
    return &s->base;
}
