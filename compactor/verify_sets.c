#include "compactor/verify_sets.h"

#include "archive/sorted_file.h"
#include "base/xxh3.h"
#include "counts/records.h"
#include "sets/set_algebra.h"

#include <stdlib.h>

#define KEY_SHOWN 120

/* The current hour or day. */
struct level {
    struct buf key;        /* "v.u|jehiah.c41"; empty: none */
    struct set *own, *sum; /* the set of the period, and the union of the sets of its parts; NULL: none */
    size_t parts;          /* quarter hours or hours that have sets */
};

struct verify_sets {
    const char *directory;
    struct error *error;
    struct buf group; /* "v.u|jehiah.c4" */
    struct level levels[PERIOD_DAY + 1];
    struct set *month_set, *month_union;
    size_t days;
};

static enum compact_result damaged(const struct verify_sets *v, struct bytes key, const char *why)
{
    return error_set(v->error, COMPACT_DAMAGED, "%.300s: %.*s: %s", v->directory,
        (int)(key.len < KEY_SHOWN ? key.len : KEY_SHOWN), key.ptr ? key.ptr : "", why);
}

static bool is_equal(struct set *a, struct set *b)
{
    struct set_view views[2] = {set_view_of(a), set_view_of(b)};
    uint64_t size = set_union_size(views, 2);
    return size == set_view_size(&views[0]) && size == set_view_size(&views[1]);
}

static enum compact_result end_level(struct verify_sets *v, enum period_unit unit)
{
    struct level *l = &v->levels[unit];
    enum compact_result r = COMPACT_OK;
    bool is_day = unit == PERIOD_DAY;
    if (l->own && l->parts > 0) {
        struct set_view views[2] = {set_view_of(l->own), set_view_of(l->sum)};
        if (set_union_size(views, 2) != set_view_size(&views[0]))
            r = damaged(v, buf_bytes(&l->key),
                is_day ? "the day does not have all members of its hours"
                       : "the hour does not have all members of its quarter hours");
    }
    if (!l->own && l->parts > 1)
        r = damaged(v, buf_bytes(&l->key),
            is_day ? "two or more hours have sets, but the day has none"
                   : "two or more quarter hours have sets, but the hour has none");
    set_free(&l->own);
    set_free(&l->sum);
    buf_clear(&l->key);
    l->parts = 0;
    return r;
}

static enum compact_result end_levels(struct verify_sets *v)
{
    enum compact_result r = end_level(v, PERIOD_HOUR);
    return r == COMPACT_OK ? end_level(v, PERIOD_DAY) : r;
}

static enum compact_result end_month(struct verify_sets *v)
{
    enum compact_result r = end_levels(v);
    if (r == COMPACT_OK && v->group.len > 0 && (v->days > 1) != (v->month_set != NULL))
        r = damaged(
            v, buf_bytes(&v->group), "a month has a set if and only if two or more of its days have sets");
    if (r == COMPACT_OK && v->month_set && !is_equal(v->month_set, v->month_union))
        r = damaged(v, buf_bytes(&v->group), "the month is not the union of its days");
    set_free(&v->month_set);
    set_free(&v->month_union);
    buf_clear(&v->group);
    v->days = 0;
    return r;
}

static void copy_to(struct set **to, const struct set_view *from)
{
    if (!*to)
        *to = set_new();
    set_add_view(*to, from);
}

static void keep(struct buf *to, struct bytes text)
{
    buf_clear(to);
    buf_append_bytes(to, text);
}

/* Adds the set `view` of `text`, a key of a day, hour or quarter hour, to the periods around it. */
static enum compact_result add_part(
    struct verify_sets *v, struct bytes text, const struct record_key *key, const struct set_view *view)
{
    enum compact_result r = COMPACT_OK;
    for (enum period_unit at = PERIOD_HOUR; at <= PERIOD_DAY && r == COMPACT_OK; at++) {
        struct bytes around = at < key->unit ? BYTES_NONE : period_enclosing(text, key->unit, at);
        if (!bytes_equal(around, buf_bytes(&v->levels[at].key)))
            r = end_level(v, at);
    }
    bool is_new = true; /* the part begins a new period of the next level */
    for (enum period_unit at = PERIOD_HOUR; at <= PERIOD_DAY; at++) {
        struct level *l = &v->levels[at];
        if (at < key->unit)
            continue;
        bool is_first = l->key.len == 0;
        if (is_first)
            keep(&l->key, period_enclosing(text, key->unit, at));
        copy_to(at == key->unit ? &l->own : &l->sum, view);
        l->parts += at > key->unit && is_new;
        is_new = is_first;
    }
    v->days += is_new;
    copy_to(&v->month_union, view);
    return r;
}

static enum compact_result add(
    struct verify_sets *v, struct set_reader *reader, const struct manifest *m, uint32_t shard)
{
    struct bytes text = set_reader_key(reader);
    const struct record_key *key = set_reader_parts(reader);
    struct set_view view;
    if (record_shard(key, m->shards) != shard)
        return damaged(v, text, "the set belongs to another shard");
    enum compact_result r = set_reader_view(reader, &view, v->error);
    struct bytes month = period_enclosing(text, key->unit, PERIOD_MONTH);
    if (r == COMPACT_OK && !bytes_equal(month, buf_bytes(&v->group))) {
        r = end_month(v);
        keep(&v->group, month);
    }
    if (r != COMPACT_OK)
        return r;
    if (key->unit != PERIOD_MONTH)
        return add_part(v, text, key, &view);
    copy_to(&v->month_set, &view);
    return COMPACT_OK;
}

/* Compares the whole file of sets with the manifest. */
static enum compact_result check_file(const struct verify_sets *v, const struct manifest_file *expected)
{
    struct mapping *mapping;
    char *path = mem_printf("%s/%s", v->directory, expected->name);
    enum compact_result r = COMPACT_OK;
    if (mapping_open(path, false, &mapping, v->error) != 0) {
        r = v->error->code = COMPACT_FAILED;
    } else {
        struct bytes all = mapping_bytes(mapping);
        mapping_expect_scan(mapping, true);
        if (all.len != expected->bytes || XXH3_64bits(all.ptr, all.len) != expected->xxh3 ||
            !mapping_is_whole(mapping))
            r = error_set(
                v->error, COMPACT_DAMAGED, "%.300s: its checksum does not match the manifest", path);
        mapping_close(&mapping);
    }
    free(path);
    return r;
}

/* Checks the order of the texts. */
static enum compact_result check_texts(const struct verify_sets *v, const struct manifest_file *expected)
{
    struct sorted_file *f = NULL;
    char *path = mem_printf("%s/%s", v->directory, expected->name);
    enum sorted_file_result r = sorted_file_open(
        &(struct sorted_file_config){
            .path = path, .separator = RECORD_SEPARATOR, .unique_keys = true, .expected = expected},
        &f, v->error);
    sorted_file_close(&f);
    free(path);
    return r == SORTED_FILE_OK
               ? COMPACT_OK
               : (enum compact_result)(
                     v->error->code = r == SORTED_FILE_FAILED ? COMPACT_FAILED : COMPACT_DAMAGED);
}

enum compact_result verify_sets(
    const char *directory, const struct manifest *m, uint32_t shard, struct error *error)
{
    struct verify_sets v = {.directory = directory, .error = error};
    struct set_reader *reader = NULL;
    bool is_end = false;
    if (!manifest_has_sets(m, shard))
        return COMPACT_OK;
    enum compact_result r = check_texts(&v, &m->set_texts[shard]);
    if (r == COMPACT_OK)
        r = check_file(&v, &m->sets[shard]);
    if (r == COMPACT_OK)
        r = set_reader_open(directory, m, shard, &reader, error);
    while (r == COMPACT_OK && !is_end) {
        r = set_reader_next(reader, &is_end, error);
        if (r == COMPACT_OK && !is_end)
            r = add(&v, reader, m, shard);
    }
    if (r == COMPACT_OK)
        r = end_month(&v);
    set_reader_close(&reader);
    set_free(&v.month_set);
    set_free(&v.month_union);
    buf_free(&v.group);
    for (enum period_unit unit = PERIOD_HOUR; unit <= PERIOD_DAY; unit++) {
        set_free(&v.levels[unit].own);
        set_free(&v.levels[unit].sum);
        buf_free(&v.levels[unit].key);
    }
    return r;
}
