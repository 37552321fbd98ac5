#include "compactor/quarter_source.h"

#include "counts/counters.h"
#include "counts/records.h"

#include <stdlib.h>

struct moved {
    struct count_source base; /* first */
    struct count_source *inner;
    int64_t quarters_since;
    const char *counters;
    bool is_total, is_moved; /* the current record is of a total; is of an hour that becomes a quarter hour */
    struct buf key, name;
};

/* Appends a period, which becomes a quarter hour if it is an hour from quarters_since on. Returns false if the period
 * does not change. */
static bool append_moved(const struct moved *s, struct bytes period, struct buf *out)
{
    enum period_unit unit;
    int64_t start;
    if (!period_decode(period, &unit, &start) || unit != PERIOD_HOUR || start < s->quarters_since)
        return false;
    buf_append_bytes(out, period);
    buf_append_char(out, '0');
    return true;
}

static enum count_next follow(struct moved *s, enum count_next r)
{
    count_source_follow(&s->base, s->inner, r);
    s->base.line = BYTES_NONE;
    if (s->is_moved)
        s->base.key = buf_bytes(&s->key);
    return r;
}

static enum count_next next_record(struct count_source *base)
{
    struct moved *s = (struct moved *)base;
    enum count_next r = s->inner->kind->next_record(s->inner);
    struct record_key key;
    s->is_total = s->is_moved = false;
    if (r != COUNT_FOUND || !record_key_parse(bytes_of(s->inner->key.ptr, s->inner->key.len - 1), &key) ||
        key.is_lookup)
        return follow(s, r);
    s->is_total = !key.is_subtotal;
    if (s->is_total || (s->inner->is_set && counters_text_period(s->counters, key.ns) != PERIOD_QUARTER))
        return follow(s, r);
    buf_clear(&s->key);
    buf_append(&s->key, s->inner->key.ptr, (size_t)(key.period.ptr - s->inner->key.ptr));
    s->is_moved = append_moved(s, key.period, &s->key);
    buf_append_char(&s->key, RECORD_SEPARATOR);
    return follow(s, r);
}

static enum count_next next_value(struct count_source *base)
{
    struct moved *s = (struct moved *)base;
    enum count_next r = follow(s, s->inner->kind->next_value(s->inner));
    buf_clear(&s->name);
    if (r == COUNT_FOUND && s->is_total && append_moved(s, base->name, &s->name))
        base->name = buf_bytes(&s->name);
    return r;
}

static void close_source(struct count_source *base)
{
    struct moved *s = (struct moved *)base;
    count_source_close(&s->inner);
    buf_free(&s->key);
    buf_free(&s->name);
    free(s);
}

struct count_source *quarter_source(struct count_source *inner, int64_t quarters_since, const char *counters)
{
    static const struct count_source_kind kind = {next_record, next_value, close_source, NULL};
    struct moved *s = mem_zalloc(sizeof *s);
    s->base.kind = &kind;
    s->base.container = inner->container;
    s->inner = inner;
    s->quarters_since = quarters_since;
    s->counters = counters;
    return &s->base;
}
