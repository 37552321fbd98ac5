#include "sql/count_scan.h"

#include "sql/archive_source.h"
#include "sql/sql_period.h"

#include <stdlib.h>

#define AFTER_NS "}"      /* sorts after the `|` of a namespace */
#define AFTER_PERIODS "~" /* sorts after every text of a period */
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
    bool is_subtotal;
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
    struct buf target; /* no record before this key is in the bounds */
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

static void aim(struct count_scan *s, struct bytes begin, const char *more)
{
    buf_clear(&s->target);
    buf_append_bytes(&s->target, begin);
    buf_append_str(&s->target, more);
}

/* Sets `target` to the first key of one total's or subtotal's key. */
static void aim_at_key(struct count_scan *s, struct bytes ns, struct bytes key)
{
    char hour[HOUR_TEXT_MAX + 1];
    aim(s, ns, "|");
    buf_append_bytes(&s->target, key);
    if (!memchr(ns.ptr, '.', ns.len))
        return;
    struct bytes from = bytes_of(hour, hour_encode(s->from, hour));
    buf_append_char(&s->target, '.');
    buf_append_bytes(
        &s->target, period_enclosing(from, PERIOD_HOUR, s->unit > PERIOD_DAY ? s->unit : PERIOD_DAY));
}

/* Moves before the first record at or after `target`. */
static void seek(struct count_scan *s)
{
    const struct generation *g = sql_snapshot_generation(s->snapshot);
    count_sources_free(&s->sources);
    uint32_t shards = generation_info(g).shards;
    for (uint32_t i = 0; i < shards; i++)
        if (s->shard == GENERATION_NO_SHARD || s->shard == i)
            count_sources_add(&s->sources,
                archive_source_new(generation_text(g, i), "archive", buf_bytes(&s->target), s->unit));
    buf_append_char(&s->target, RECORD_SEPARATOR);
    sql_snapshot_add_slices(s->snapshot, buf_bytes(&s->target), &s->sources);
    s->target.len--;
    if (s->merge)
        count_merge_reset(s->merge, s->sources.list, s->sources.n);
    else
        s->merge = count_merge_new(s->sources.list, s->sources.n);
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

enum verdict { TAKE, SKIP, DONE };

/* Decides on the current record of the merge, whose key is without its separator. If all records up to a later key are
 * out of bounds, sets `target` to this key. */
static enum verdict judge(struct count_scan *s, struct bytes key)
{
    const struct record_key *k = &s->record;
    if (s->ns.ptr && !bytes_equal(k->ns, buf_bytes(&s->ns)))
        return DONE;
    bool leaves_ns = k->is_lookup || count_merge_is_set(s->merge) || (s->sub.ptr && !k->is_subtotal);
    bool is_other = !leaves_ns && s->key.ptr && !bytes_equal(k->key, buf_bytes(&s->key));
    bool is_late = k->is_subtotal && k->start >= s->end;
    if (is_other)
        aim_at_key(s, k->ns, buf_bytes(&s->key));
    if (is_other && record_key_compare(key, buf_bytes(&s->target), RECORD_SEPARATOR) < 0)
        return SKIP;
    if (leaves_ns || is_other || (is_late && s->key.ptr)) {
        aim(s, k->ns, AFTER_NS);
        return s->ns.ptr ? DONE : SKIP;
    }
    if (is_late)
        aim(s, bytes_of(key.ptr, key.len - k->period.len), AFTER_PERIODS);
    else if (k->is_subtotal && k->start < s->from)
        aim_at_key(s, k->ns, k->key);
    else if (!k->is_subtotal || s->unit == PERIOD_QUARTER || k->unit <= s->unit)
        return TAKE; /* else a day without hours, or a month without days */
    return SKIP;
}

static enum count_next malformed(struct error *error, struct bytes key)
{
    error_set(
        error, COUNT_DAMAGED, "malformed record \"%.*s\"", (int)(key.len < 100 ? key.len : 100), key.ptr);
    return COUNT_FAILED;
}

/* Moves to the next record in the bounds. */
static enum count_next find_record(struct count_scan *s, struct error *error)
{
    for (unsigned skipped = 0;;) {
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
        bool is_before = record_key_compare(key, buf_bytes(&s->target), RECORD_SEPARATOR) < 0;
        if (!is_before && !record_key_parse(key, &s->record))
            return malformed(error, key);
        enum verdict v = is_before ? SKIP : judge(s, key);
        if (v != SKIP)
            return v == TAKE ? COUNT_FOUND : COUNT_END;
        if (++skipped < SKIP_MAX || record_key_compare(key, buf_bytes(&s->target), RECORD_SEPARATOR) >= 0)
            continue;
        seek(s);
        skipped = 0;
    }
}

/* Moves to the next record in the bounds, and skips its values before the bounds. */
static enum count_next next_record(struct count_scan *s, struct error *error)
{
    char hour[HOUR_TEXT_MAX + 1];
    enum count_next r = find_record(s, error);
    if (r != COUNT_FOUND)
        return r;
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

static struct bytes ns_of(const struct group *g)
{
    return bytes_of(g->key.ptr, g->ns_len);
}

static struct bytes key_of(const struct group *g)
{
    return bytes_of(g->key.ptr + g->ns_len + 1, g->key.len - g->ns_len - 1);
}

static struct bytes name_of(const struct group *g, const struct grouped *c)
{
    return bytes_of(g->names.ptr + c->name, c->name_len);
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
    g->n = g->next = 0;
}

static bool is_of_group(const struct count_scan *s, const struct count_row *row)
{
    const struct group *g = &s->group;
    return sql_period_floor(s->unit, row->start) == g->start && bytes_equal(row->ns, ns_of(g)) &&
           bytes_equal(row->key, key_of(g));
}

static void add_to_group(struct group *g, const struct count_row *row)
{
    struct grouped *last = g->n > 0 ? &g->counts[g->n - 1] : NULL;
    if (last && bytes_equal(name_of(g, last), row->sub)) {
        count_sum_add(&last->n, row->n);
        return;
    }
    *ARRAY_ADD(g->counts, g->n, g->room) = (struct grouped){g->names.len, row->sub.len, row->n};
    buf_append_bytes(&g->names, row->sub);
}

static int compare_grouped(const void *a, const void *b, void *group)
{
    return bytes_compare(name_of(group, a), name_of(group, b));
}

/* Adds up counts with equal names. */
static void sum_group(struct group *g)
{
    size_t kept = 0;
    qsort_r(g->counts, g->n, sizeof *g->counts, compare_grouped, g);
    for (size_t i = 1; i < g->n; i++)
        if (bytes_equal(name_of(g, &g->counts[kept]), name_of(g, &g->counts[i])))
            count_sum_add(&g->counts[kept].n, g->counts[i].n);
        else
            g->counts[++kept] = g->counts[i];
    g->n = kept + 1;
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
    do {
        add_to_group(&s->group, &row);
        r = next_count(s, &row, error);
    } while (r == COUNT_FOUND && is_of_group(s, &row));
    s->has_ahead = r == COUNT_FOUND;
    s->ahead = row;
    sum_group(&s->group);
    return r == COUNT_FAILED ? r : COUNT_FOUND;
}

enum count_next count_scan_next(struct count_scan *s, struct count_row *row, struct error *error)
{
    struct group *g = &s->group;
    if (s->end <= s->from)
        return COUNT_END;
    if (s->unit == PERIOD_QUARTER)
        return next_count(s, row, error);
    enum count_next r = g->next < g->n ? COUNT_FOUND : next_group(s, error);
    if (r != COUNT_FOUND)
        return r;
    const struct grouped *c = &g->counts[g->next++];
    *row = (struct count_row){.ns = ns_of(g),
        .key = key_of(g),
        .sub = g->is_subtotal ? name_of(g, c) : BYTES_NONE,
        .unit = s->unit,
        .start = g->start,
        .n = c->n};
    if (c->n != COUNT_SUM_TOO_LARGE)
        return COUNT_FOUND;
    error_set(error, COUNT_TOO_LARGE, "the sum of a %s exceeds 64 bits: %.*s", period_unit_name(s->unit),
        (int)g->key.len, g->key.ptr);
    return COUNT_FAILED;
}
