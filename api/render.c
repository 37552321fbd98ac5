#include "api/render.h"

#include "api/coarse_rows.h"
#include "counts/bucket.h"
#include "counts/mean.h"
#include <inttypes.h>

void render_member(struct buf *out, const char *name, struct bytes text)
{
    buf_printf(out, "\"%s\":", name);
    buf_append_json(out, text);
    buf_append_char(out, ',');
}

void render_number(const struct counter *c, int64_t n, struct buf *out)
{
    char text[DECIMAL_TEXT_MAX];
    if (c->value)
        buf_append(out, text, decimal_print(n, c->decimal.scale, text));
    else
        record_append_count(out, n);
}

/* Appends `"name":n` and `after`. */
static void render_sum(const struct query *q, const char *name, int64_t n, const char *after, struct buf *out)
{
    buf_printf(out, "\"%s\":", name);
    render_number(q->total, n, out); /* a removed subtotal has the scale of its total */
    buf_append_str(out, after);
}

/* Appends the number of events and the mean, as members or as columns. Both are null while the events are not known. */
static void render_mean(const struct query *q, int64_t n, int64_t events, bool is_known, struct buf *out)
{
    bool csv = q->format == QUERY_CSV;
    char text[MEAN_TEXT_MAX];
    buf_append_str(out, csv ? "," : ",\"events\":");
    if (is_known)
        record_append_count(out, events);
    else if (!csv)
        buf_append_str(out, "null");
    buf_append_str(out, csv ? "," : ",\"mean\":");
    if (is_known && events > 0)
        buf_append(out, text, mean_print(n, events, q->total->decimal.scale, text));
    else if (!csv)
        buf_append_str(out, "null");
}

/* True if the events of a span are those whose values were added. */
static bool knows_events(int64_t from, const struct completeness *complete)
{
    return complete->events_since <= from || complete->events_since == complete->counted_since;
}

void render_missing(const struct completeness *complete, struct buf *out)
{
    for (size_t i = 0; i < complete->n_missing; i++) {
        const struct source_missing *m = &complete->missing[i];
        buf_append_str(out, i ? ",{" : "[{");
        render_member(out, "source", bytes_str(m->name));
        render_member(out, "url", bytes_str(m->url));
        render_member(out, "error", bytes_str(m->why));
        buf_printf(out, "\"since\":%" PRId64 "}", m->since);
    }
    buf_append_str(out, complete->n_missing ? "]" : "[]");
}

void render_not_counted(const struct completeness *complete, struct buf *out)
{
    const char *cell = complete->not_counted_by ? complete->not_counted_by : "";
    if (complete->is_not_counted)
        buf_printf(out,
            "\"note\":\"the aggregator%s%s does not count this counter; restart it with this "
            "configuration\",",
            *cell ? " of cell " : "", cell);
}

void render_head(const struct query *q, const struct completeness *complete, struct buf *out)
{
    buf_append_char(out, '{');
    render_member(out, "ns", bytes_str(q->sub ? q->sub->ns : q->total->ns));
    if ((q->n_values == 0 || q->sub) && q->key.ptr)
        render_member(out, "key", q->key);
    render_member(out, "label", bytes_str(q->total->label));
    if (q->sub)
        render_member(out, "by", bytes_str(q->sub->label));
    if (q->total->value)
        buf_printf(out, "\"scale\":%u,", q->total->decimal.scale);
    const char *unit = q->unit ? q->unit : q->total->unit;
    if (unit)
        render_member(out, "value_unit", bytes_str(unit));
    if (q->is_former)
        render_member(out, "note",
            BYTES_LITERAL("this counter is not configured; it counted these events before it was removed"));
    else
        render_not_counted(complete, out);
}

/* If a counter has max_keys, the answer always contains the number of events over max_keys, even 0. */
static void render_over(const struct query *q, const struct query_over *over, struct buf *out)
{
    if (query_counter(q)->max_keys > 0 || over->counter != 0)
        render_sum(q, "over_max_keys", over->counter, ",", out);
    if (q->sub && (q->total->max_keys > 0 || over->total != 0))
        render_sum(q, "total_over_max_keys", over->total, ",", out);
}

void render_complete_until(const struct completeness *complete, struct buf *out)
{
    if (complete->until > 0)
        buf_printf(out, "\"complete_until\":%" PRId64, complete->until);
    else
        buf_append_str(out, "\"complete_until\":null");
}

void render_completeness(int64_t from, const struct completeness *complete, struct buf *out)
{
    render_complete_until(complete, out);
    buf_append_char(out, ',');
    if (from < complete->counted_since)
        buf_printf(out, "\"counted_since\":%" PRId64 ",", complete->counted_since);
    if (complete->held_by[0])
        render_member(out, "held_by", bytes_str(complete->held_by));
    if (complete->n_missing > 0) {
        buf_append_str(out, "\"partial\":true,\"missing\":");
        render_missing(complete, out);
        buf_append_char(out, ',');
    }
}

void render_zone(const struct query *q, struct buf *out)
{
    if (q->is_outward)
        render_member(out, "bounds", BYTES_LITERAL("outward"));
    render_member(out, "timezone", bytes_str(q->calendar.zone.name));
    if (q->is_rounded)
        buf_append_str(out, "\"round\":\"hour\",\"approximate\":true,");
}

static void render_span(const struct query *q, int64_t from, int64_t to, int64_t total,
    const struct query_over *over, const int64_t *events, const struct completeness *complete,
    struct buf *out)
{
    uint64_t max_keys = query_counter(q)->max_keys;
    if (max_keys > 0)
        buf_printf(out, "\"max_keys\":%" PRIu64 ",", max_keys);
    if (!q->by_minute)
        render_over(q, over, out);
    buf_printf(out, "\"from\":%" PRId64 ",\"to\":%" PRId64 ",", from, to);
    render_zone(q, out);
    render_sum(q, "total", total, "", out);
    if (events)
        render_mean(q, total, *events, knows_events(from, complete), out);
    buf_append_char(out, ',');
    render_completeness(from, complete, out);
}

void render_csv_names(
    const struct completeness *complete, const char *names, const char *more, const char *of, struct buf *out)
{
    buf_printf(out, "%s,complete%s%s", names, complete->is_approximate ? ",approximate" : "", more);
    buf_printf(out, "%s\n", coarse_rows_may_be(&complete->coarse) ? of : "");
}

void render_row_complete(bool is_complete, const struct completeness *complete, bool csv, struct buf *out)
{
    buf_append_str(out, csv ? "," : ",\"complete\":");
    buf_append_str(out, is_complete ? "true" : "false");
    if (complete->is_approximate)
        buf_append_str(out, csv ? ",true" : ",\"approximate\":true");
}

/* Appends the imported unit that the span cuts, as a member or a column `of`. */
static void render_of(const struct calendar *calendar, int64_t from, int64_t to,
    const struct completeness *complete, bool csv, struct buf *out)
{
    const char *of = coarse_rows_cut(&complete->coarse, calendar, from, to);
    if (csv && coarse_rows_may_be(&complete->coarse))
        buf_printf(out, ",%s", of ? of : "");
    else if (!csv && of)
        buf_printf(out, ",\"of\":\"%s\"", of);
}

static void render_series_head(const struct series *s, const struct completeness *complete, struct buf *out)
{
    const struct query *q = s->query;
    render_head(q, complete, out);
    if (q->sub)
        render_member(out, "sub", q->sub_key);
    render_member(out, "unit", bytes_str(unit_name(q->calendar.unit)));
    render_span(q, s->from, s->to, s->total, &s->over, s->events ? &s->events->total : NULL, complete, out);
}

static void series_begin(const struct series *s, const struct completeness *complete, struct buf *out)
{
    if (s->query->format == QUERY_CSV) {
        render_csv_names(complete, s->events ? "t,date,n,events,mean" : "t,date,n", "", ",of", out);
        return;
    }
    render_series_head(s, complete, out);
    buf_append_str(out, "\"rows\":[");
}

static bool is_counted(const struct series_row *row, const struct completeness *complete)
{
    return row->start >= complete->counted_since;
}

static bool is_row_complete(const struct series_row *row, const struct completeness *complete)
{
    return is_counted(row, complete) && !complete->is_approximate && completeness_reaches(complete, row->end);
}

/* Appends the count of a row. The count is not known if the counter was added after the start of the row. */
static void render_n(
    const struct query *q, const struct series_row *row, const struct completeness *complete, struct buf *out)
{
    if (is_counted(row, complete))
        render_number(q->total, row->n, out);
    else if (q->format != QUERY_CSV)
        buf_append_str(out, "null");
    if (q->events.total && q->kind == QUERY_SERIES)
        render_mean(
            q, row->n, row->events, is_counted(row, complete) && row->start >= complete->events_since, out);
}

void render_row_begin(const struct query *q, int64_t t, struct buf *out)
{
    bool csv = q->format == QUERY_CSV;
    buf_append_str(out, csv ? "" : "{\"t\":");
    buf_append_str(out, t < 0 ? "-" : "");
    buf_append_u64(out, t < 0 ? -(uint64_t)t : (uint64_t)t);
    buf_append_str(out, csv ? "," : ",\"date\":\"");
    units_print_date(&q->calendar, t, out);
    buf_append_str(out, csv ? "," : "\",");
}

/* Appends the beginning of a row or of the row to compare with: its time, date and count. */
static void render_counted(
    const struct query *q, const struct series_row *row, const struct completeness *complete, struct buf *out)
{
    render_row_begin(q, row->start, out);
    buf_append_str(out, q->format == QUERY_CSV ? "" : "\"n\":");
    render_n(q, row, complete, out);
}

enum row_state render_row_state(const struct series_row *row, const struct completeness *complete)
{
    return !is_counted(row, complete)       ? ROW_UNCOUNTED
           : is_row_complete(row, complete) ? ROW_COMPLETE
                                            : ROW_INCOMPLETE;
}

void render_series_row(const struct series *s, const struct series_row *row,
    const struct completeness *complete, struct buf *out)
{
    const struct query *q = s->query;
    bool csv = q->format == QUERY_CSV;
    if (!csv && s->n_rows > 1)
        buf_append_char(out, ',');
    render_counted(q, row, complete, out);
    render_row_complete(is_row_complete(row, complete), complete, csv, out);
    render_of(&q->calendar, row->start, row->end, complete, csv, out);
    buf_append_char(out, csv ? '\n' : '}');
}

void render_series_end(const struct series *s, struct buf *out)
{
    if (s->query->format != QUERY_CSV)
        buf_append_str(out, "]}\n");
}

/* Appends rows; in CSV each row begins with `name`. Returns true if more rows follow. */
static bool series_some(
    struct series *s, struct bytes name, const struct completeness *complete, size_t most, struct buf *out)
{
    struct series_row row;
    for (size_t begin = out->len; series_next(s, &row);) {
        if (s->query->format == QUERY_CSV)
            buf_append_bytes(out, name);
        render_series_row(s, &row, complete, out);
        if (out->len - begin >= most)
            return true;
    }
    return false;
}

static bool series_rows(const struct render_answer *a, size_t most, struct buf *out)
{
    struct series *s = &a->counts->series;
    bool more = series_some(s, BYTES_LITERAL(""), a->complete, most, out);
    if (!more)
        render_series_end(s, out);
    return more;
}

static void set_begin(const struct series_set *set, const struct completeness *complete, struct buf *out)
{
    const struct query *q = set->query;
    const struct series *first = &set->members[0].series;
    if (q->format == QUERY_CSV) {
        render_csv_names(complete, q->sub ? "sub,t,date,n" : "key,t,date,n", "", ",of", out);
        return;
    }
    render_head(q, complete, out);
    render_member(out, "unit", bytes_str(unit_name(q->calendar.unit)));
    render_span(q, first->from, first->to, set->total, &first->over, NULL, complete, out);
    buf_append_str(out, "\"series\":[");
}

static void render_member_begin(const struct series_member *m, bool is_first, struct buf *out)
{
    buf_append_str(out, is_first ? "{" : ",{");
    if (m->text.ptr)
        render_member(out, m->query.sub ? "sub" : "key", m->text);
    else
        buf_append_str(out, "\"sub\":null,\"other\":true,");
    render_sum(&m->query, "total", m->series.total, ",\"rows\":[", out);
}

static bool set_rows(const struct render_answer *a, size_t most, struct buf *out)
{
    struct series_set *set = &a->counts->set;
    size_t *at = a->at;
    bool csv = set->query->format == QUERY_CSV;
    for (size_t begin = out->len; *at < set->n; ++*at) {
        struct series_member *m = &set->members[*at];
        struct buf name = {0};
        if (out->len - begin >= most)
            return true;
        if (!csv && m->series.n_rows == 0)
            render_member_begin(m, *at == 0, out);
        if (csv)
            buf_append_csv(&name, m->text);
        buf_append_char(&name, ',');
        bool more = series_some(&m->series, buf_bytes(&name), a->complete, most, out);
        buf_free(&name);
        if (more)
            return true;
        buf_append_str(out, csv ? "" : "]}");
    }
    buf_append_str(out, csv ? "" : "]}\n");
    return false;
}

/* Appends the change in percent. A change from zero or from a negative sum has no percentage. */
static void render_change(int64_t n, int64_t before, bool csv, struct buf *out)
{
    if (before > 0)
        buf_printf(out, "%.2f", 100 * ((double)n - (double)before) / (double)before);
    else if (!csv)
        buf_append_str(out, "null");
}

/* True if the counts of both spans before part_end are known. */
static bool knows_parts(const struct series *s, const struct series *before)
{
    return !s->is_part_unknown && !before->is_part_unknown;
}

/* Appends the member so_far: the counts of equal parts of two spans, or of two rows. */
static void render_so_far(
    const struct series *s, const struct series *before, bool is_row, int64_t n, int64_t old, struct buf *out)
{
    const struct query *q = s->query, *b = before->query;
    const char *name = is_row ? "n" : "total";
    buf_printf(out, "\"so_far\":{\"to\":%" PRId64 ",\"before_to\":%" PRId64, q->part_end,
        is_row ? b->row_part_end : b->part_end);
    buf_append_char(out, ',');
    if (knows_parts(s, before)) {
        render_sum(s->query, name, n, ",", out);
        render_sum(s->query, "before", old, "},", out);
    } else {
        buf_printf(out, "\"%s\":null,\"before\":null},", name);
    }
}

static void comparison_begin(
    const struct series *s, const struct series *before, const struct completeness *complete, struct buf *out)
{
    bool is_part = s->query->part_end > 0, is_known = before->from >= complete->counted_since &&
                                                      s->from >= complete->counted_since &&
                                                      (!is_part || knows_parts(s, before));
    if (s->query->format == QUERY_CSV) {
        render_csv_names(complete, "t,date,n",
            is_part ? ",before_t,before_date,before_n,change,so_far_n,so_far_before"
                    : ",before_t,before_date,before_n,change",
            ",of,before_of", out);
        return;
    }
    render_series_head(s, complete, out);
    buf_append_str(out, "\"before\":{");
    render_over(s->query, &before->over, out);
    buf_printf(out, "\"from\":%" PRId64 ",\"to\":%" PRId64 ",", before->from, before->to);
    render_sum(s->query, "total", before->total, "},", out);
    if (is_part)
        render_so_far(s, before, false, s->so_far, before->so_far, out);
    int64_t n = is_part ? s->so_far : s->total, old = is_part ? before->so_far : before->total;
    buf_append_str(out, "\"change\":");
    render_change(n, is_known ? old : 0, false, out);
    buf_append_str(out, ",\"rows\":[");
}

/* A row of a comparison. If the unit is in progress, `n` and `old_n` are the counts of equal parts of both units. */
struct compared_row {
    struct series_row row, old;
    bool has_old;
    bool is_part; /* the unit is in progress */
    bool has_change;
    int64_t n, old_n;
};

static bool next_compared(
    struct series *s, struct series *before, const struct completeness *complete, struct compared_row *r)
{
    const struct query *q = s->query;
    *r = (struct compared_row){0};
    if (!series_next(s, &r->row))
        return false;
    r->has_old = series_next(before, &r->old);
    bool is_future = q->part_end > 0 && r->row.start > q->now;
    r->is_part = q->part_end > 0 && !is_future && r->row.end > q->now;
    r->n = r->is_part ? series_part(s, &r->row) : r->row.n;
    r->old_n = r->is_part && r->has_old ? series_part(before, &r->old) : r->old.n;
    r->has_change = r->has_old && !is_future && is_counted(&r->old, complete) &&
                    is_counted(&r->row, complete) && (!r->is_part || knows_parts(s, before));
    return true;
}

/* Appends the row or the row to compare with `old`, as members or columns. In CSV, both units `of` are the last columns. */
static void render_compared(const struct series *s, const struct series *before, const struct compared_row *r,
    const struct completeness *complete, struct buf *out)
{
    const struct query *q = s->query;
    bool csv = q->format == QUERY_CSV, has_part = r->is_part && r->has_old;
    bool is_complete =
        is_row_complete(&r->row, complete) && (!r->has_old || is_row_complete(&r->old, complete));
    buf_append_str(out, csv || s->n_rows == 1 ? "" : ",");
    render_counted(q, &r->row, complete, out);
    render_row_complete(is_complete, complete, csv, out);
    buf_append_str(out, csv ? (r->has_old ? "," : ",,,") : r->has_old ? ",\"before\":" : ",\"before\":null");
    if (r->has_old)
        render_counted(q, &r->old, complete, out);
    if (r->has_old && !csv) {
        render_of(&q->calendar, r->old.start, r->old.end, complete, false, out);
        buf_append_char(out, '}');
    }
    buf_append_char(out, ',');
    if (has_part && !csv)
        render_so_far(s, before, true, r->n, r->old_n, out);
    buf_append_str(out, csv ? "" : "\"change\":");
    render_change(r->n, r->has_change ? r->old_n : 0, csv, out);
    if (csv && has_part && knows_parts(s, before)) {
        buf_append_char(out, ',');
        render_number(q->total, r->n, out);
        buf_append_char(out, ',');
        render_number(q->total, r->old_n, out);
    } else if (csv && q->part_end > 0) {
        buf_append_str(out, ",,");
    }
    render_of(&q->calendar, r->row.start, r->row.end, complete, csv, out);
    if (csv)
        render_of(&q->calendar, r->old.start, r->old.end, complete, true, out);
    buf_append_char(out, csv ? '\n' : '}');
}

static bool comparison_rows(const struct render_answer *a, size_t most, struct buf *out)
{
    struct series *s = &a->counts->series, *before = &a->counts->before;
    struct compared_row r;
    for (size_t begin = out->len; next_compared(s, before, a->complete, &r);) {
        render_compared(s, before, &r, a->complete, out);
        if (out->len - begin >= most)
            return true;
    }
    render_series_end(s, out);
    return false;
}

/* True if the counts of the earlier span are known. */
static bool knows_earlier(const struct breakdown *e, const struct completeness *complete)
{
    return !e->needs_dropped_hours && e->query->from >= complete->counted_since;
}

/* Appends an earlier count and the change from this count, as members or columns. */
static void render_earlier(const struct query *q, int64_t n, int64_t before, bool is_known, struct buf *out)
{
    bool csv = q->format == QUERY_CSV;
    buf_append_str(out, csv ? "," : ",\"before\":");
    if (is_known)
        render_number(q->total, before, out);
    else if (!csv)
        buf_append_str(out, "null");
    buf_append_str(out, csv ? "," : ",\"change\":");
    render_change(n, is_known ? before : 0, csv, out);
}

static void render_earlier_span(
    const struct breakdown *b, const struct completeness *complete, struct buf *out)
{
    const struct breakdown *e = b->earlier;
    const struct query *q = b->query, *before = e->query;
    bool is_known = knows_earlier(e, complete);
    struct buf total = {0};
    if (is_known)
        render_number(q->total, e->total, &total);
    else
        buf_append_str(&total, "null");
    buf_append_str(out, "\"before\":{");
    render_over(before, &e->over, out);
    buf_printf(out, "\"from\":%" PRId64 ",\"to\":%" PRId64 ",\"total\":", before->from, before->to);
    buf_append_bytes(out, buf_bytes(&total));
    buf_append_str(out, "},");
    if (q->is_so_far) {
        buf_printf(out, "\"so_far\":{\"to\":%" PRId64 ",\"before_to\":%" PRId64 ",", q->to, before->to);
        render_sum(q, "total", b->total, ",\"before\":", out);
        buf_append_bytes(out, buf_bytes(&total));
        buf_append_str(out, "},");
    }
    buf_free(&total);
    buf_append_str(out, "\"change\":");
    render_change(b->total, is_known && q->from >= complete->counted_since ? e->total : 0, false, out);
    buf_append_char(out, ',');
}

static void breakdown_begin(const struct breakdown *b, const struct completeness *complete, struct buf *out)
{
    if (b->query->format == QUERY_CSV) {
        render_csv_names(complete, b->events ? "key,n,share,events,mean" : "key,n,share",
            b->earlier ? ",before,change" : "", ",of", out);
        return;
    }
    render_head(b->query, complete, out);
    render_span(b->query, b->query->from, b->query->to, b->total, &b->over,
        b->events ? &b->events->total : NULL, complete, out);
    if (b->earlier)
        render_earlier_span(b, complete, out);
    buf_printf(out, "\"distinct\":%zu", b->distinct);
    render_of(&b->query->calendar, b->query->from, b->query->to, complete, false, out);
    buf_append_str(out, ",\"rows\":[");
}

/* False if a row of the answer, or the rest, is negative, because shares of such a sum mislead. */
static bool has_shares(const struct breakdown *b)
{
    return b->total - b->before >= b->shown && (b->n_rows == 0 || b->rows[b->n_rows - 1].sum.n >= 0);
}

/* Appends the share of a row, and its mean if the query asks for means. */
static void render_share(const struct breakdown *b, const struct breakdown_row *row,
    const struct completeness *complete, struct buf *out)
{
    if (has_shares(b))
        buf_printf(out, "%.6f", b->total ? (double)row->sum.n / (double)b->total : 0);
    else if (b->query->format != QUERY_CSV)
        buf_append_str(out, "null");
    if (b->events)
        render_mean(b->query, row->sum.n, row->events, knows_events(b->query->from, complete), out);
}

static void render_breakdown_row(
    const struct breakdown *b, const struct completeness *complete, size_t at, struct buf *out)
{
    const struct query *q = b->query;
    const struct breakdown *earlier = b->earlier;
    const struct breakdown_row *row = &b->rows[at];
    bool csv = q->format == QUERY_CSV;
    int64_t end = earlier && earlier->query->to > q->to ? earlier->query->to : q->to;
    const struct series_row span = {.start = q->from, .end = end};
    if (csv) {
        buf_append_csv(out, breakdown_text(row));
        buf_append_char(out, ',');
        render_number(q->total, row->sum.n, out);
        buf_append_char(out, ',');
    } else {
        buf_append_str(out, at ? ",{" : "{");
        render_member(out, "key", breakdown_text(row));
        render_sum(q, "n", row->sum.n, ",\"share\":", out);
    }
    render_share(b, row, complete, out);
    render_row_complete(is_row_complete(&span, complete), complete, csv, out);
    if (earlier)
        render_earlier(q, row->sum.n, row->earlier,
            knows_earlier(earlier, complete) && q->from >= complete->counted_since, out);
    if (csv)
        render_of(&q->calendar, q->from, q->to, complete, true, out);
    buf_append_char(out, csv ? '\n' : '}');
}

void render_next(const struct breakdown *b, struct buf *out)
{
    const struct breakdown_row *last = &b->rows[b->n_rows - 1];
    buf_printf(out, "%" PRId64 "-", last->sum.n);
    buf_append_hex(out, breakdown_text(last));
}

static bool breakdown_rows(const struct render_answer *a, size_t most, struct buf *out)
{
    const struct breakdown *b = &a->counts->breakdown;
    for (size_t begin = out->len; *a->at < b->n_rows; ++*a->at) {
        if (out->len - begin >= most)
            return true;
        render_breakdown_row(b, a->complete, *a->at, out);
    }
    if (b->query->format == QUERY_CSV)
        return false;
    buf_append_str(out, "],");
    render_sum(b->query, "other", b->total - b->before - b->shown, "", out);
    if (breakdown_has_more(b)) {
        buf_append_str(out, ",\"next\":\"");
        render_next(b, out);
        buf_append_char(out, '"');
    }
    buf_append_str(out, "}\n");
    return false;
}

static void quantile_begin(const struct series *s, const struct completeness *complete, struct buf *out)
{
    const struct query *q = s->query;
    if (q->format == QUERY_CSV) {
        render_csv_names(complete, q->is_over_time ? "t,date,q,value,n" : "q,value,n", "", ",of", out);
        return;
    }
    render_head(q, complete, out);
    if (q->is_over_time)
        render_member(out, "unit", bytes_str(unit_name(q->calendar.unit)));
    render_span(q, q->is_over_time ? s->from : q->from, q->is_over_time ? s->to : q->to, s->total, &s->over,
        NULL, complete, out);
    buf_append_str(out, "\"rows\":[");
}

/* Appends a quantile without the zeros at its end. */
static void render_q(int64_t q, struct buf *out)
{
    char text[DECIMAL_TEXT_MAX];
    size_t n = decimal_print(q, QUERY_QUANTILE_SCALE, text);
    while (text[n - 1] == '0')
        n--;
    buf_append(out, text, text[n - 1] == '.' ? n - 1 : n);
}

static void render_quantile_row(const struct query *q, const struct histogram *h, size_t at,
    const struct series_row *row, const struct completeness *complete, struct buf *out)
{
    bool csv = q->format == QUERY_CSV;
    int64_t unit = q->is_over_time ? units_order(&q->calendar, row->start) : 0;
    char middle[BUCKET_TEXT_MAX];
    int bucket;
    if (q->is_over_time)
        render_row_begin(q, row->start, out);
    else
        buf_append_str(out, csv ? "" : "{");
    buf_append_str(out, csv ? "" : "\"q\":");
    render_q(q->quantiles[at], out);
    buf_append_str(out, csv ? "," : ",\"value\":");
    if (is_counted(row, complete) && histogram_quantile(h, unit, q->quantiles[at], &bucket))
        buf_append(out, middle, bucket_print_middle(bucket, middle));
    else if (!csv)
        buf_append_str(out, "null");
    buf_append_str(out, csv ? "," : ",\"n\":");
    render_n(q, row, complete, out);
    render_row_complete(is_row_complete(row, complete), complete, csv, out);
    render_of(&q->calendar, row->start, row->end, complete, csv, out);
    buf_append_char(out, csv ? '\n' : '}');
}

static bool quantile_rows(const struct render_answer *a, size_t most, struct buf *out)
{
    struct series *s = &a->counts->series;
    const struct query *q = s->query;
    struct series_row row = {.start = q->from, .end = q->to, .n = s->total};
    bool is_first = s->n_rows == 0, csv = q->format == QUERY_CSV;
    for (size_t begin = out->len; !q->is_over_time || series_next(s, &row); is_first = false) {
        for (size_t i = 0; i < q->n_quantiles; i++) {
            buf_append_str(out, csv || (is_first && i == 0) ? "" : ",");
            render_quantile_row(q, &a->counts->histogram, i, &row, a->complete, out);
        }
        if (!q->is_over_time)
            break;
        if (out->len - begin >= most)
            return true;
    }
    render_series_end(s, out);
    return false;
}

void render_begin(const struct render_answer *a, struct buf *out)
{
    const struct sums *c = a->counts;
    if (c->shape == SUMS_SET)
        set_begin(&c->set, a->complete, out);
    else if (c->shape == SUMS_COMPARISON)
        comparison_begin(&c->series, &c->before, a->complete, out);
    else if (c->shape == SUMS_HISTOGRAM)
        quantile_begin(&c->series, a->complete, out);
    else if (c->shape == SUMS_BREAKDOWN)
        breakdown_begin(&c->breakdown, a->complete, out);
    else
        series_begin(&c->series, a->complete, out);
}

bool render_rows(const struct render_answer *a, size_t most, struct buf *out)
{
    static bool (*const rows[])(const struct render_answer *, size_t, struct buf *) = {
        [SUMS_SERIES] = series_rows,
        [SUMS_COMPARISON] = comparison_rows,
        [SUMS_HISTOGRAM] = quantile_rows,
        [SUMS_SET] = set_rows,
        [SUMS_BREAKDOWN] = breakdown_rows,
    };
    return rows[a->counts->shape](a, most, out);
}

/* `setting` is the setting of the counter's section that names the field. */
static void counter_json(const struct counter *c, const char *setting, struct buf *out)
{
    render_member(out, "ns", bytes_str(c->ns));
    render_member(out, "label", bytes_str(c->label));
    buf_printf(out, "\"%s\":", setting);
    buf_append_json(out, bytes_str(c->key_text));
    if (c->max_keys > 0)
        buf_printf(out, ",\"max_keys\":%" PRIu64, c->max_keys);
    if (c->value) {
        buf_append_str(out, ",\"value\":");
        buf_append_json(out, bytes_str(c->value));
        buf_printf(out, ",\"scale\":%u", c->decimal.scale);
    }
    if (c->unit) {
        buf_append_str(out, ",\"unit\":");
        buf_append_json(out, bytes_str(c->unit));
    }
    if (c->having) {
        buf_append_str(out, ",\"having\":");
        buf_append_json(out, bytes_str(c->having));
    }
}

void render_counters(const struct counters *c, const char *script, struct buf *out)
{
    buf_append_char(out, '{');
    render_member(out, "time", bytes_str(c->time_field));
    render_member(out, "time_unit", bytes_str(c->time_unit));
    render_member(out, "resolution", bytes_str(c->has_quarters ? "15m" : "1h"));
    buf_append_str(out, "\"totals\":[");
    for (size_t i = 0; i < c->n_totals; i++) {
        buf_append_str(out, i ? ",{" : "{");
        counter_json(&c->totals[i], "key", out);
        buf_append_str(out, ",\"subtotals\":[");
        for (size_t j = 0, n = 0; j < c->n_subtotals; j++) {
            if (c->subtotals[j].total != i)
                continue;
            buf_append_str(out, n++ ? ",{" : "{");
            counter_json(&c->subtotals[j], "key", out);
            buf_append_char(out, '}');
        }
        buf_append_str(out, "],\"uniques\":[");
        for (size_t j = 0, n = 0; j < c->n_uniques; j++) {
            if (c->uniques[j].total != i)
                continue;
            buf_append_str(out, n++ ? ",{" : "{");
            counter_json(&c->uniques[j], "member", out);
            buf_printf(out, ",\"by\":\"%s\"}", period_unit_name(c->uniques[j].by));
        }
        buf_append_str(out, "]}");
    }
    buf_append_str(out, "],\"script\":");
    buf_append_json(out, bytes_str(script));
    buf_append_str(out, "}\n");
}
