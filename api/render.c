#include "api/render.h"

#include "api/coarse_rows.h"
#include <inttypes.h>

void render_member(struct buf *out, const char *name, struct bytes text)
{
    buf_printf(out, "\"%s\":", name);
    buf_append_json(out, text);
    buf_append_char(out, ',');
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

static void render_head(const struct query *q, const struct completeness *complete, struct buf *out)
{
    buf_append_char(out, '{');
    render_member(out, "ns", bytes_str(q->sub ? q->sub->ns : q->total->ns));
    if (q->n_values == 0 || q->sub)
        render_member(out, "key", q->key);
    render_member(out, "label", bytes_str(q->total->label));
    if (q->sub)
        render_member(out, "by", bytes_str(q->sub->label));
    if (q->is_former)
        render_member(out, "note",
            BYTES_LITERAL("this counter is not configured; it counted these events before it was removed"));
    else if (complete->is_not_counted)
        render_member(out, "note", BYTES_LITERAL(RENDER_NOT_COUNTED));
}

/* If a counter has max_keys, the answer always contains the number of events over max_keys, even 0. */
static void render_over(const struct query *q, const struct query_over *over, struct buf *out)
{
    if (query_counter(q)->max_keys > 0 || over->counter > 0)
        buf_printf(out, "\"over_max_keys\":%" PRIu64 ",", over->counter);
    if (q->sub && (q->total->max_keys > 0 || over->total > 0))
        buf_printf(out, "\"total_over_max_keys\":%" PRIu64 ",", over->total);
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

static void render_span(const struct query *q, int64_t from, int64_t to, uint64_t total,
    const struct query_over *over, const struct completeness *complete, struct buf *out)
{
    uint64_t max_keys = query_counter(q)->max_keys;
    if (max_keys > 0)
        buf_printf(out, "\"max_keys\":%" PRIu64 ",", max_keys);
    render_over(q, over, out);
    buf_printf(out, "\"from\":%" PRId64 ",\"to\":%" PRId64 ",", from, to);
    render_zone(q, out);
    buf_printf(out, "\"total\":%" PRIu64 ",", total);
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
    render_span(q, s->from, s->to, s->total, &s->over, complete, out);
}

void render_series_begin(const struct series *s, const struct completeness *complete, struct buf *out)
{
    if (s->query->format == QUERY_CSV) {
        render_csv_names(complete, "t,date,n", "", ",of", out);
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
    return is_counted(row, complete) && !complete->is_approximate &&
           units_hours_end(row->end) <= complete->until;
}

/* Appends the count of a row. The count is not known if the counter was added after the start of the row. */
static void render_n(
    const struct series_row *row, const struct completeness *complete, bool csv, struct buf *out)
{
    if (is_counted(row, complete))
        buf_append_u64(out, row->n);
    else if (!csv)
        buf_append_str(out, "null");
}

void render_time(int64_t t, struct buf *out)
{
    if (t < 0)
        buf_append_char(out, '-');
    buf_append_u64(out, t < 0 ? -(uint64_t)t : (uint64_t)t);
}

static void render_json_row(const struct calendar *calendar, const struct series_row *row,
    const struct completeness *complete, struct buf *out)
{
    buf_append_str(out, "{\"t\":");
    render_time(row->start, out);
    buf_append_str(out, ",\"date\":\"");
    units_print_date(calendar, row->start, out);
    buf_append_str(out, "\",\"n\":");
    render_n(row, complete, false, out);
    render_row_complete(is_row_complete(row, complete), complete, false, out);
    render_of(calendar, row->start, row->end, complete, false, out);
    buf_append_char(out, '}');
}

static void render_csv_row(const struct calendar *calendar, const struct series_row *row,
    const struct completeness *complete, struct buf *out)
{
    render_time(row->start, out);
    buf_append_char(out, ',');
    units_print_date(calendar, row->start, out);
    buf_append_char(out, ',');
    render_n(row, complete, true, out);
    render_row_complete(is_row_complete(row, complete), complete, true, out);
    render_of(calendar, row->start, row->end, complete, true, out);
    buf_append_char(out, '\n');
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
    if (q->format == QUERY_CSV) {
        render_csv_row(&q->calendar, row, complete, out);
        return;
    }
    if (s->n_rows > 1)
        buf_append_char(out, ',');
    render_json_row(&q->calendar, row, complete, out);
}

void render_series_end(const struct series *s, struct buf *out)
{
    if (s->query->format != QUERY_CSV)
        buf_append_str(out, "]}\n");
}

/* Appends rows; in CSV each row begins with `name`. Returns true if more rows follow. */
static bool render_rows(
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

bool render_series_rows(struct series *s, const struct completeness *complete, size_t most, struct buf *out)
{
    if (render_rows(s, BYTES_LITERAL(""), complete, most, out))
        return true;
    render_series_end(s, out);
    return false;
}

void render_set_begin(const struct series_set *set, const struct completeness *complete, struct buf *out)
{
    const struct query *q = set->query;
    const struct series *first = &set->members[0].series;
    if (q->format == QUERY_CSV) {
        render_csv_names(complete, q->sub ? "sub,t,date,n" : "key,t,date,n", "", ",of", out);
        return;
    }
    render_head(q, complete, out);
    render_member(out, "unit", bytes_str(unit_name(q->calendar.unit)));
    render_span(q, first->from, first->to, set->total, &first->over, complete, out);
    buf_append_str(out, "\"series\":[");
}

static void render_member_begin(const struct series_member *m, bool is_first, struct buf *out)
{
    buf_append_str(out, is_first ? "{" : ",{");
    if (m->text.ptr)
        render_member(out, m->query.sub ? "sub" : "key", m->text);
    else
        buf_append_str(out, "\"sub\":null,\"other\":true,");
    buf_printf(out, "\"total\":%" PRIu64 ",\"rows\":[", m->series.total);
}

bool render_set_rows(
    struct series_set *set, const struct completeness *complete, size_t *at, size_t most, struct buf *out)
{
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
        bool more = render_rows(&m->series, buf_bytes(&name), complete, most, out);
        buf_free(&name);
        if (more)
            return true;
        buf_append_str(out, csv ? "" : "]}");
    }
    buf_append_str(out, csv ? "" : "]}\n");
    return false;
}

/* Appends the change in percent. A change from zero has no percentage. */
static void render_change(uint64_t n, uint64_t before, bool csv, struct buf *out)
{
    if (before > 0)
        buf_printf(out, "%.2f", 100 * ((double)n - (double)before) / (double)before);
    else if (!csv)
        buf_append_str(out, "null");
}

void render_compare_begin(
    const struct series *s, const struct series *before, const struct completeness *complete, struct buf *out)
{
    if (s->query->format == QUERY_CSV) {
        render_csv_names(complete, "t,date,n", ",before_t,before_date,before_n,change", ",of,before_of", out);
        return;
    }
    render_series_head(s, complete, out);
    buf_append_str(out, "\"before\":{");
    render_over(s->query, &before->over, out);
    buf_printf(out,
        "\"from\":%" PRId64 ",\"to\":%" PRId64 ",\"total\":%" PRIu64 "},\"change\":", before->from,
        before->to, before->total);
    bool is_whole = before->from >= complete->counted_since && s->from >= complete->counted_since;
    render_change(s->total, is_whole ? before->total : 0, false, out);
    buf_append_str(out, ",\"rows\":[");
}

bool render_compare_rows(struct series *s, struct series *before, const struct completeness *complete,
    size_t most, struct buf *out)
{
    const struct calendar *calendar = &s->query->calendar;
    bool csv = s->query->format == QUERY_CSV;
    struct series_row row, old;
    for (size_t begin = out->len; series_next(s, &row);) {
        bool has_old = series_next(before, &old);
        bool is_complete = is_row_complete(&row, complete) && (!has_old || is_row_complete(&old, complete));
        buf_printf(out, csv ? "%s%" PRId64 "," : "%s{\"t\":%" PRId64 ",\"date\":\"",
            csv || s->n_rows == 1 ? "" : ",", row.start);
        units_print_date(calendar, row.start, out);
        buf_append_str(out, csv ? "," : "\",\"n\":");
        render_n(&row, complete, csv, out);
        render_row_complete(is_complete, complete, csv, out);
        buf_append_str(out, csv ? "," : ",\"before\":");
        if (has_old) {
            buf_printf(out, csv ? "%" PRId64 "," : "{\"t\":%" PRId64 ",\"date\":\"", old.start);
            units_print_date(calendar, old.start, out);
            buf_append_str(out, csv ? "," : "\",\"n\":");
            render_n(&old, complete, csv, out);
            if (!csv)
                render_of(calendar, old.start, old.end, complete, false, out);
            buf_append_str(out, csv ? "" : "}");
        } else {
            buf_append_str(out, csv ? ",," : "null");
        }
        buf_append_str(out, csv ? "," : ",\"change\":");
        render_change(
            row.n, has_old && is_counted(&old, complete) && is_counted(&row, complete) ? old.n : 0, csv, out);
        render_of(calendar, row.start, row.end, complete, csv, out);
        if (csv)
            render_of(calendar, has_old ? old.start : 0, has_old ? old.end : 0, complete, true, out);
        buf_append_str(out, csv ? "\n" : "}");
        if (out->len - begin >= most)
            return true;
    }
    if (!csv)
        buf_append_str(out, "]}\n");
    return false;
}

void render_breakdown_begin(const struct breakdown *b, const struct completeness *complete, struct buf *out)
{
    if (b->query->format == QUERY_CSV) {
        render_csv_names(complete, "key,n,share", "", ",of", out);
        return;
    }
    render_head(b->query, complete, out);
    render_span(b->query, b->query->from, b->query->to, b->total, &b->over, complete, out);
    buf_printf(out, "\"distinct\":%zu", b->distinct);
    render_of(&b->query->calendar, b->query->from, b->query->to, complete, false, out);
    buf_append_str(out, ",\"rows\":[");
}

bool render_breakdown_rows(
    const struct breakdown *b, const struct completeness *complete, size_t *at, size_t most, struct buf *out)
{
    const struct query *q = b->query;
    const struct series_row span = {.start = q->from, .end = q->to};
    bool is_whole = is_row_complete(&span, complete);
    bool csv = b->query->format == QUERY_CSV;
    for (size_t begin = out->len; *at < b->n_rows; ++*at) {
        const struct breakdown_row *row = &b->rows[*at];
        double share = b->total ? (double)row->sum.n / (double)b->total : 0;
        if (out->len - begin >= most)
            return true;
        if (csv) {
            buf_append_csv(out, breakdown_text(row));
            buf_printf(out, ",%" PRIu64 ",%.6f", row->sum.n, share);
            render_row_complete(is_whole, complete, true, out);
            render_of(&q->calendar, q->from, q->to, complete, true, out);
            buf_append_char(out, '\n');
        } else {
            buf_append_str(out, *at ? ",{" : "{");
            render_member(out, "key", breakdown_text(row));
            buf_printf(out, "\"n\":%" PRIu64 ",\"share\":%.6f", row->sum.n, share);
            render_row_complete(is_whole, complete, false, out);
            buf_append_char(out, '}');
        }
    }
    if (!csv)
        buf_printf(out, "],\"other\":%" PRIu64 "}\n", b->total - b->shown);
    return false;
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
}

void render_counters(const struct counters *c, const char *script, struct buf *out)
{
    buf_append_char(out, '{');
    render_member(out, "time", bytes_str(c->time_field));
    render_member(out, "time_unit", bytes_str(c->time_unit));
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
            buf_printf(out, ",\"by\":\"%s\"}", c->uniques[j].by == PERIOD_DAY ? "day" : "hour");
        }
        buf_append_str(out, "]}");
    }
    buf_append_str(out, "],\"script\":");
    buf_append_json(out, bytes_str(script));
    buf_append_str(out, "}\n");
}
