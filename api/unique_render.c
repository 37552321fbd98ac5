#include "api/unique_render.h"

#include "api/render.h"

#include <inttypes.h>

#define HASH_NOTE "two texts with the same 64-bit hash count as one member"
#define FIRST_MONDAY (4 * SECONDS_PER_DAY) /* 5 January 1970 */
#define KEY_NOTE                                                                                             \
    "the visitor key changes during this time, so one person counts once for each key (visitor_key_period)"

int64_t unique_render_end(const struct unique_count *c)
{
    int64_t end = c->n_rows > 0 ? c->rows[c->n_rows - 1].end : 0;
    for (size_t i = 0; i < c->query->n_sets && c->n_rows == 0; i++)
        if (c->query->sets[i].to > end)
            end = c->query->sets[i].to;
    return query_whole_after(&c->query->query, end);
}

static bool is_complete(int64_t from, int64_t to, const struct completeness *complete)
{
    return from >= complete->counted_since && !complete->is_approximate && completeness_reaches(complete, to);
}

static void append_n(uint64_t n, bool is_counted, bool csv, struct buf *out)
{
    if (is_counted)
        buf_append_u64(out, n);
    else
        buf_append_str(out, csv ? "" : "null");
}

static void append_daily(double daily, uint64_t n, bool csv, struct buf *out)
{
    double stickiness = n ? daily / (double)n : 0;
    if (daily >= 0)
        buf_printf(out, csv ? ",%.2f,%.6f" : ",\"daily\":%.2f,\"stickiness\":%.6f", daily, stickiness);
    else if (csv)
        buf_append_str(out, ",,");
}

/* Sets [*from, *to) to the time from the first to the last set of a cohort. */
static void cohort_span(const struct unique_query *u, int64_t *from, int64_t *to)
{
    *from = INT64_MAX;
    *to = 0;
    for (size_t i = 0; i < u->n_sets; i++) {
        *from = u->sets[i].from < *from ? u->sets[i].from : *from;
        *to = u->sets[i].to > *to ? u->sets[i].to : *to;
    }
}

/* True if a door's key changes in [from, to). Keys are of UTC days, or of weeks that begin on Monday. */
static bool has_two_keys(int64_t from, int64_t to, int64_t key_seconds)
{
    int64_t first = key_seconds > SECONDS_PER_DAY ? FIRST_MONDAY : 0;
    return key_seconds > 0 && (from - first) / key_seconds != (to - 1 - first) / key_seconds;
}

const char *unique_render_key_note(const struct unique_count *c, int64_t key_seconds)
{
    const struct unique_query *u = c->query;
    int64_t from = c->from, to = c->to;
    if (strcmp(u->sets[0].unique->key_text, "visitor") != 0)
        return NULL;
    if (u->query.kind == QUERY_COHORT)
        cohort_span(u, &from, &to);
    else if (u->query.kind == QUERY_RETENTION)
        from = c->rows[0].start; /* of the lookback */
    else if (u->window > 1)
        from = units_back(&u->query.calendar, from, u->window - 1);
    return has_two_keys(from, to, key_seconds) ? KEY_NOTE : NULL;
}

/* Appends notes that explain what counts as one member. */
static void append_notes(
    const struct unique_count *c, const struct completeness *complete, int64_t key_seconds, struct buf *out)
{
    const char *note = unique_render_key_note(c, key_seconds);
    render_not_counted(complete, out);
    if (note)
        render_member(out, "visitor_key", bytes_str(note));
    render_member(out, "hash", BYTES_LITERAL(HASH_NOTE));
}

static void append_head(
    const struct unique_count *c, const struct completeness *complete, int64_t key_seconds, struct buf *out)
{
    const struct unique_query *u = c->query;
    const struct query *q = &u->query;
    buf_append_char(out, '{');
    render_member(out, "ns", bytes_str(q->unique->ns));
    if (u->n_sets == 1)
        render_member(out, "key", u->sets[0].key);
    for (size_t i = 0; i < u->n_sets && u->n_sets > 1; i++) {
        buf_append_str(out, i ? "," : "\"keys\":[");
        buf_append_json(out, u->sets[i].key);
        buf_append_str(out, i + 1 < u->n_sets ? "" : "],");
    }
    render_member(out, "label", bytes_str(q->total->label));
    render_member(out, "count", bytes_str(q->unique->label));
    append_notes(c, complete, key_seconds, out);
    if (q->total->max_keys > 0)
        buf_printf(out, "\"max_keys\":%" PRIu64 ",", q->total->max_keys);
    render_member(out, "unit", bytes_str(unit_name(q->calendar.unit)));
    buf_printf(out, "\"from\":%" PRId64 ",\"to\":%" PRId64 ",", c->from, c->to);
    render_zone(q, out);
    buf_append_str(out, "\"additive\":false,");
}

static void append_unique_row(
    const struct unique_count *c, size_t i, const struct completeness *complete, bool csv, struct buf *out)
{
    const struct unique_query *u = c->query;
    const struct unique_row *row = &c->rows[i];
    int64_t from = row->start;
    if (u->window > 1)
        from = units_back(&u->query.calendar, from, u->window - 1);
    render_row_begin(&c->query->query, row->start, out);
    buf_append_str(out, csv ? "" : "\"n\":");
    append_n(row->n, from >= complete->counted_since, csv, out);
    render_row_complete(is_complete(from, row->end, complete), complete, csv, out);
    if (u->is_sticky)
        append_daily(from >= complete->counted_since ? row->daily : -1, row->n, csv, out);
}

static void render_uniques(const struct unique_count *c, const struct completeness *complete,
    int64_t key_seconds, bool csv, struct buf *out)
{
    if (csv) {
        render_csv_names(complete, "t,date,n", c->query->is_sticky ? ",daily,stickiness" : "", "", out);
    } else {
        append_head(c, complete, key_seconds, out);
        if (c->query->window > 1)
            buf_printf(out, "\"window\":%" PRId64 ",", c->query->window);
        bool is_counted = c->n_rows == 0 || c->rows[c->n_rows - 1].start >= complete->counted_since;
        buf_append_str(out, "\"total\":");
        append_n(c->total, is_counted, false, out);
        append_daily(is_counted ? c->daily : -1, c->total, false, out);
        buf_append_char(out, ',');
        render_completeness(c->from, complete, out);
        buf_append_str(out, "\"rows\":[");
    }
    for (size_t i = 0; i < c->n_rows; i++) {
        buf_append_str(out, !csv && i ? "," : "");
        append_unique_row(c, i, complete, csv, out);
        buf_append_char(out, csv ? '\n' : '}');
    }
    buf_append_str(out, csv ? "" : "]}\n");
}

/* Appends a cell of a retention: the members of the unit `first` that were seen `after` units later. */
static void append_cell(const struct unique_count *c, size_t first, size_t after,
    const struct completeness *complete, bool csv, struct buf *out)
{
    const uint64_t *row = c->table + first * c->n_rows + first;
    bool whole = is_complete(c->rows[first].start, c->rows[first + after].end, complete),
         is_counted = c->rows[first].start >= complete->counted_since;
    double share = row[0] ? (double)row[after] / (double)row[0] : 0;
    buf_append_str(out, csv ? "" : "\"n\":");
    append_n(row[after], is_counted, csv, out);
    if (!is_counted && (csv || after > 0))
        buf_append_str(out, csv ? "," : ",\"share\":null");
    else if (csv || after > 0)
        buf_printf(out, csv ? ",%.6f" : ",\"share\":%.6f", share);
    render_row_complete(whole, complete, csv, out);
}

static void render_retention(const struct unique_count *c, const struct completeness *complete,
    int64_t key_seconds, bool csv, struct buf *out)
{
    size_t lookback = (size_t)c->query->lookback;
    if (csv) {
        render_csv_names(complete, "t,date,after,n,share", "", "", out);
    } else {
        append_head(c, complete, key_seconds, out);
        buf_printf(out, "\"lookback\":%zu,", lookback);
        render_completeness(c->rows[0].start, complete, out);
        buf_append_str(out, "\"rows\":[");
    }
    for (size_t i = lookback; i < c->n_rows; i++) {
        for (size_t after = 0; i + after < c->n_rows; after++) {
            if (csv || after == 0) {
                buf_append_str(out, !csv && i > lookback ? "," : "");
                render_row_begin(&c->query->query, c->rows[i].start, out);
            } else {
                buf_append_str(out, after > 1 ? ",{" : "{");
            }
            if (csv)
                buf_printf(out, "%zu,", after);
            append_cell(c, i, after, complete, csv, out);
            buf_append_str(out, csv ? "\n" : after == 0 ? ",\"retained\":[" : "}");
        }
        buf_append_str(out, csv ? "" : "]}");
    }
    buf_append_str(out, csv ? "" : "]}\n");
}

/* True if the last hour or day of the set was counted. */
static bool set_is_counted(const struct query_set *s, const struct completeness *complete)
{
    int64_t last = s->unique->by == PERIOD_DAY    ? SECONDS_PER_DAY
                   : s->unique->by == PERIOD_HOUR ? HOUR_SECONDS
                                                  : QUARTER_SECONDS;
    return s->to - last >= complete->counted_since;
}

static void append_set(
    const struct query_set *s, uint64_t n, const struct completeness *complete, bool csv, struct buf *out)
{
    static const char *const roles[] = {"all", "any", "not"}; /* in the order of enum set_role */
    bool whole = is_complete(s->from, s->to, complete), is_counted = set_is_counted(s, complete);
    if (csv) {
        buf_printf(out, "%s,%s,%s,", roles[s->role], s->unique->ns, s->total->label);
        buf_append_csv(out, s->key);
        buf_printf(out, ",%" PRId64 ",%" PRId64 ",", s->from, s->to);
        append_n(n, is_counted, true, out);
        render_row_complete(whole, complete, true, out);
        buf_append_char(out, '\n');
        return;
    }
    buf_printf(out, "{\"role\":\"%s\",", roles[s->role]);
    render_member(out, "ns", bytes_str(s->unique->ns));
    render_member(out, "label", bytes_str(s->total->label));
    render_member(out, "key", s->key);
    buf_printf(out, "\"from\":%" PRId64 ",\"to\":%" PRId64 ",\"n\":", s->from, s->to);
    append_n(n, is_counted, false, out);
    render_row_complete(whole, complete, false, out);
    buf_append_char(out, '}');
}

static void render_cohort(const struct unique_count *c, const struct completeness *complete,
    int64_t key_seconds, bool csv, struct buf *out)
{
    const struct unique_query *u = c->query;
    int64_t from, to;
    bool is_counted = true;
    for (size_t i = 0; i < u->n_sets; i++)
        is_counted &= set_is_counted(&u->sets[i], complete);
    cohort_span(u, &from, &to);
    bool whole = is_complete(from, to, complete);
    if (csv) {
        render_csv_names(complete, "set,ns,label,key,from,to,n", "", "", out);
    } else {
        buf_append_char(out, '{');
        render_member(out, "count", bytes_str(u->sets[0].unique->label));
        append_notes(c, complete, key_seconds, out);
        render_zone(&u->query, out);
        buf_append_str(out, "\"additive\":false,\"n\":");
        append_n(c->total, is_counted, false, out);
        buf_printf(out, ",\"complete\":%s,", whole ? "true" : "false");
        render_completeness(from, complete, out);
        buf_append_str(out, "\"sets\":[");
    }
    for (size_t i = 0; i < u->n_sets; i++) {
        buf_append_str(out, !csv && i ? "," : "");
        append_set(&u->sets[i], c->sizes[i], complete, csv, out);
    }
    if (csv) {
        buf_append_str(out, "cohort,,,,,,");
        append_n(c->total, is_counted, true, out);
        render_row_complete(whole, complete, true, out);
        buf_append_char(out, '\n');
    } else {
        buf_append_str(out, "]}\n");
    }
}

void unique_render(
    const struct unique_count *c, const struct completeness *complete, int64_t key_seconds, struct buf *out)
{
    const struct query *q = &c->query->query;
    bool csv = q->format == QUERY_CSV;
    if (q->kind == QUERY_UNIQUES)
        render_uniques(c, complete, key_seconds, csv, out);
    else if (q->kind == QUERY_RETENTION)
        render_retention(c, complete, key_seconds, csv, out);
    else
        render_cohort(c, complete, key_seconds, csv, out);
}
