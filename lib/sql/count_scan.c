#include "sql/count_scan.h"

#include "sql/archive_source.h"
#include "sql/sql_period.h"

#include <stdlib.h>

#define AFTER_NS "}"      /* after the `|` of a namespace */
#define AFTER_PERIODS "~" /* after every text of a period */
#define SKIP_MAX 32       /* records out of bounds before a search */

/* A count of the current group. */
struct grouped {
    size_t name, name_len; /* in `names` */
    int64_t n;
};

/* The counts of one key in one unit, of several records. */
struct group {
    struct buf key, names; /* `key` is NS|KEY */
    size_t ns_len;
    bool is_subtotal, is_open;
    int64_t start;
    struct grouped *counts;
    size_t n, room, next;
};

struct count_scan {
    struct sql_snapshot *snapshot;
    struct buf ns, key, sub; /* the bounds; NULL pointer: no bound */
    int64_t from, end;
    enum period_unit unit;
    uint32_t shard; /* GENERATION_NO_SHARD: all */
    struct count_sources sources;
    struct count_merge *merge;
    struct buf target; /* the key of the next search */
    unsigned skipped;
    bool in_record;
    struct record_key record; /* borrows from the merge */
    struct group group;
    struct count_row ahead; /* the first row after the group; valid if has_ahead */
    bool has_ahead;
};

static void copy_bound(struct bytes bound, struct buf *out)
{
    if (!bound.ptr)
        return;
    buf_reserve(out, bound.len + 1);
    buf_append_bytes(out, bound);
}

/* Sets `target` to the first key of one total's or subtotal's key. */
static void aim_at_key(struct count_scan *s, struct bytes ns, struct bytes key)
{
    char hour[HOUR_TEXT_MAX + 1];
    buf_clear(&s->target);
    buf_append_bytes(&s->target, ns);
    buf_append_char(&s->target, '|');
    buf_append_bytes(&s->target, key);
    if (!memchr(ns.ptr, '.', ns.len))
        return;
    struct bytes from = bytes_of(hour, hour_encode(s->from, hour));
    buf_append_char(&s->target, '.');
    buf_append_bytes(
        &s->target, period_enclosing(from, PERIOD_HOUR, s->unit > PERIOD_DAY ? s->unit : PERIOD_DAY));
}

static void aim(struct count_scan *s, struct bytes begin, const char *more)
{
    buf_clear(&s->target);
    buf_append_bytes(&s->target, begin);
    buf_append_str(&s->target, more);
}

/* Makes `target` the next record, or the first one after it. */
static void seek(struct count_scan *s)
{
    const struct generation *g = sql_snapshot_generation(s->snapshot);
    struct bytes from = buf_bytes(&s->target);
    count_sources_free(&s->sources);
    uint32_t shards = generation_info(g).shards;
    for (uint32_t i = 0; i < shards; i++)
        if (s->shard == GENERATION_NO_SHARD || s->shard == i)
            count_sources_add(
                &s->sources, archive_source_new(generation_text(g, i), "archive", from, s->unit));
    buf_append_char(&s->target, RECORD_SEPARATOR);
    for (size_t i = 0; i < sql_snapshot_slices(s->snapshot); i++)
        slice_reader_add_sources(sql_snapshot_slice(s->snapshot, i), buf_bytes(&s->target), &s->sources);
    if (s->merge)
        count_merge_reset(s->merge, s->sources.list, s->sources.n);
    else
        s->merge = count_merge_new(s->sources.list, s->sources.n);
    s->skipped = 0;
    s->in_record = false;
}

struct count_scan *count_scan_new(struct sql_snapshot *snapshot, const struct count_scan_bounds *b)
{
    struct count_scan *s = mem_zalloc(sizeof *s);
    s->snapshot = snapshot;
    copy_bound(b->ns, &s->ns);
    copy_bound(b->key, &s->key);
    copy_bound(b->sub, &s->sub);
    s->unit = b->unit;
    s->from = b->from < HOUR_FIRST ? HOUR_FIRST : b->from >= HOUR_END ? HOUR_END - 3600 : b->from;
    s->from = sql_period_floor(s->unit, s->from);
    s->end = b->end > HOUR_END ? HOUR_END : b->end;
    if (s->end > s->from)
        s->end = period_end(s->unit, sql_period_floor(s->unit, s->end - 1));
    s->shard = GENERATION_NO_SHARD;
    if (s->ns.ptr && s->key.ptr) {
        aim_at_key(s, buf_bytes(&s->ns), buf_bytes(&s->key));
        s->shard = generation_shard(sql_snapshot_generation(snapshot), buf_bytes(&s->target));
    } else if (s->ns.ptr) {
        aim(s, buf_bytes(&s->ns), "|");
    }
    seek(s);
    return s;
}

void count_scan_free(struct count_scan **sp)
{
    struct count_scan *s = *sp;
    if (!s)
        return;
    count_merge_free(&s->merge);
    count_sources_free(&s->sources);
    struct buf *bufs[] = {&s->ns, &s->key, &s->sub, &s->target, &s->group.key, &s->group.names};
    for (size_t i = 0; i < sizeof bufs / sizeof *bufs; i++)
        buf_free(bufs[i]);
    free(s->group.counts);
    free(s);
    *sp = NULL;
}

enum verdict { TAKE, SKIP, SEEK, DONE };

/* The records of the namespace are out of bounds from here on. */
static enum verdict leave_ns(struct count_scan *s)
{
    if (s->ns.ptr)
        return DONE;
    aim(s, s->record.ns, AFTER_NS);
    return SEEK;
}

/* The records of the key are out of bounds from here on. */
static enum verdict leave_key(struct count_scan *s, struct bytes key)
{
    if (s->key.ptr)
        return leave_ns(s);
    if (++s->skipped < SKIP_MAX)
        return SKIP;
    aim(s, bytes_of(key.ptr, key.len - s->record.period.len), AFTER_PERIODS);
    return SEEK;
}

static enum verdict judge_key(struct count_scan *s, struct bytes key)
{
    if (!s->key.ptr || bytes_equal(s->record.key, buf_bytes(&s->key)))
        return TAKE;
    aim_at_key(s, s->record.ns, buf_bytes(&s->key));
    return record_key_compare(key, buf_bytes(&s->target), RECORD_SEPARATOR) < 0 ? SEEK : leave_ns(s);
}

/* Decides on the current record of the merge, whose key is without its separator. */
static enum verdict judge(struct count_scan *s, struct bytes key)
{
    const struct record_key *k = &s->record;
    if (s->ns.ptr && !bytes_equal(k->ns, buf_bytes(&s->ns)))
        return DONE;
    if (k->is_lookup || count_merge_is_set(s->merge) || (s->sub.ptr && !k->is_subtotal))
        return leave_ns(s);
    enum verdict v = judge_key(s, key);
    if (v != TAKE || !k->is_subtotal)
        return v;
    if (s->unit != PERIOD_QUARTER && k->unit > s->unit) /* a day without hours, or a month without days */
        return SKIP;
    if (k->start >= s->end)
        return leave_key(s, key);
    if (k->start >= s->from) {
        s->skipped = 0;
        return TAKE;
    }
    if (++s->skipped < SKIP_MAX)
        return SKIP;
    aim_at_key(s, k->ns, k->key);
    return record_key_compare(key, buf_bytes(&s->target), RECORD_SEPARATOR) < 0 ? SEEK : SKIP;
}

static enum count_next malformed(struct error *error, struct bytes key)
{
    error_set(
        error, COUNT_DAMAGED, "malformed record \"%.*s\"", (int)(key.len < 100 ? key.len : 100), key.ptr);
    return COUNT_FAILED;
}

/* Moves to the next record in the bounds, and skips its values out of the bounds. */
static enum count_next next_record(struct count_scan *s, struct error *error)
{
    char hour[HOUR_TEXT_MAX + 1];
    for (;;) {
        enum count_next r = count_merge_next_record(s->merge);
        if (r == COUNT_FAILED)
            *error = *count_merge_error(s->merge);
        if (r != COUNT_FOUND)
            return r;
        if (sql_snapshot_is_cancelled(s->snapshot)) {
            error_set(error, COUNT_UNREADABLE, "interrupted");
            return COUNT_FAILED;
        }
        struct bytes key = count_merge_key(s->merge);
        key.len--;
        if (!record_key_parse(key, &s->record))
            return malformed(error, key);
        enum verdict v = judge(s, key);
        if (v == DONE)
            return COUNT_END;
        if (v == SEEK)
            seek(s);
        if (v == TAKE)
            break;
    }
    s->in_record = true;
    struct bytes first = buf_bytes(&s->sub);
    if (!s->record.is_subtotal)
        first = s->from > HOUR_FIRST ? bytes_of(hour, hour_encode(s->from, hour)) : BYTES_NONE;
    if (first.len == 0 || count_merge_skip_values(s->merge, first) == COUNT_FOUND)
        return COUNT_FOUND;
    *error = *count_merge_error(s->merge);
    return COUNT_FAILED;
}

/* Sets *row to a value of the current record. Returns COUNT_END at the last value in the bounds. */
static enum count_next next_value(struct count_scan *s, struct count_row *row, struct error *error)
{
    struct count_value v;
    const struct record_key *k = &s->record;
    for (;;) {
        enum count_next r = count_merge_next_value(s->merge, &v);
        if (r == COUNT_FAILED)
            *error = *count_merge_error(s->merge);
        if (r != COUNT_FOUND)
            return r;
        *row = (struct count_row){
            .ns = k->ns, .key = k->key, .sub = v.name, .unit = k->unit, .start = k->start, .n = v.count};
        if (k->is_subtotal) {
            int order = s->sub.ptr ? bytes_compare(v.name, buf_bytes(&s->sub)) : 0;
            if (order == 0)
                return COUNT_FOUND;
            if (order > 0)
                return COUNT_END;
            continue;
        }
        row->sub = BYTES_NONE;
        if (!total_period_decode(v.name, &row->unit, &row->start))
            return malformed(error, v.name);
        if (row->start >= s->end)
            return COUNT_END;
        if (row->start >= s->from)
            return COUNT_FOUND;
    }
}

/* Sets *row to the next count of a record. */
static enum count_next next_count(struct count_scan *s, struct count_row *row, struct error *error)
{
    for (;;) {
        enum count_next r = s->in_record ? next_value(s, row, error) : COUNT_END;
        if (r != COUNT_END)
            return r;
        s->in_record = false;
        r = next_record(s, error);
        if (r != COUNT_FOUND)
            return r;
    }
}

static bool is_of_group(const struct count_scan *s, const struct count_row *row)
{
    const struct group *g = &s->group;
    size_t n = g->ns_len;
    return g->is_open && sql_period_floor(s->unit, row->start) == g->start && row->ns.len == n &&
           g->key.len == n + 1 + row->key.len && memcmp(g->key.ptr, row->ns.ptr, n) == 0 &&
           (row->key.len == 0 || memcmp(g->key.ptr + n + 1, row->key.ptr, row->key.len) == 0);
}

static void open_group(struct count_scan *s, const struct count_row *row)
{
    struct group *g = &s->group;
    buf_clear(&g->key);
    buf_clear(&g->names);
    buf_append_bytes(&g->key, row->ns);
    buf_append_char(&g->key, '|');
    buf_append_bytes(&g->key, row->key);
    g->ns_len = row->ns.len;
    g->is_subtotal = row->sub.ptr != NULL;
    g->start = sql_period_floor(s->unit, row->start);
    g->is_open = true;
    g->n = g->next = 0;
}

static struct bytes name_of(const struct group *g, const struct grouped *c)
{
    return bytes_of(g->names.ptr + c->name, c->name_len);
}

/* Returns false if the sum exceeds 64 bits. */
static bool add_to_group(struct group *g, const struct count_row *row)
{
    struct grouped *last = g->n > 0 ? &g->counts[g->n - 1] : NULL;
    if (last && bytes_equal(name_of(g, last), row->sub))
        return !__builtin_add_overflow(last->n, row->n, &last->n);
    *ARRAY_ADD(g->counts, g->n, g->room) = (struct grouped){g->names.len, row->sub.len, row->n};
    buf_append_bytes(&g->names, row->sub);
    return true;
}

static int compare_grouped(const void *a, const void *b, void *group)
{
    return bytes_compare(name_of(group, a), name_of(group, b));
}

static bool is_sorted(const struct group *g)
{
    for (size_t i = 1; i < g->n; i++)
        if (bytes_compare(name_of(g, &g->counts[i - 1]), name_of(g, &g->counts[i])) >= 0)
            return false;
    return true;
}

/* Sorts the counts by name, and adds up those of one name. Returns false if a sum exceeds 64 bits. */
static bool sum_group(struct group *g)
{
    size_t kept = 0;
    bool fits = true;
    if (is_sorted(g))
        return true;
    qsort_r(g->counts, g->n, sizeof *g->counts, compare_grouped, g);
    for (size_t i = 1; i < g->n; i++) {
        struct grouped *last = &g->counts[kept];
        if (bytes_equal(name_of(g, last), name_of(g, &g->counts[i])))
            fits = !__builtin_add_overflow(last->n, g->counts[i].n, &last->n) && fits;
        else
            g->counts[++kept] = g->counts[i];
    }
    g->n = kept + 1;
    return fits;
}

/* Reads all counts of the next unit of a key. */
static enum count_next next_group(struct count_scan *s, struct error *error)
{
    struct count_row row = s->ahead;
    enum count_next r = s->has_ahead ? COUNT_FOUND : next_count(s, &row, error);
    s->has_ahead = false;
    if (r != COUNT_FOUND)
        return r;
    open_group(s, &row);
    bool fits = true;
    do {
        fits = add_to_group(&s->group, &row) && fits;
        r = next_count(s, &row, error);
    } while (r == COUNT_FOUND && is_of_group(s, &row));
    if (r == COUNT_FAILED)
        return r;
    s->has_ahead = r == COUNT_FOUND;
    s->ahead = row;
    if (sum_group(&s->group) && fits)
        return COUNT_FOUND;
    error_set(error, COUNT_TOO_LARGE, "the sum of a %s exceeds 64 bits: %.*s", sql_unit_name(s->unit),
        (int)s->group.key.len, s->group.key.ptr);
    return COUNT_FAILED;
}

enum count_next count_scan_next(struct count_scan *s, struct count_row *row, struct error *error)
{
    struct group *g = &s->group;
    if (s->end <= s->from)
        return COUNT_END;
    if (s->unit == PERIOD_QUARTER)
        return next_count(s, row, error);
    if (g->next == g->n) {
        enum count_next r = next_group(s, error);
        if (r != COUNT_FOUND)
            return r;
    }
    const struct grouped *c = &g->counts[g->next++];
    *row = (struct count_row){.ns = bytes_of(g->key.ptr, g->ns_len),
        .key = bytes_of(g->key.ptr + g->ns_len + 1, g->key.len - g->ns_len - 1),
        .sub = g->is_subtotal ? name_of(g, c) : BYTES_NONE,
        .unit = s->unit,
        .start = g->start,
        .n = c->n};
    return COUNT_FOUND;
}
