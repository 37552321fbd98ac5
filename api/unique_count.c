#include "api/unique_count.h"

#include "api/retention_count.h"

#include <stdlib.h>

#define OPENED_MAX ((size_t)64 << 20)
#define ROOM_MORE ((size_t)1 << 20)
#define SMALL_MAX 4096 /* members that are united one by one, because set_union_size visits all chunks */

void unique_count_init(struct unique_count *c, const struct unique_query *query, size_t n_cells)
{
    *c = (struct unique_count){
        .query = query, .n_cells = n_cells, .n_pieces = query->n_sets * n_cells, .daily = -1};
    c->sets = mem_zalloc(c->n_pieces * sizeof *c->sets);
    for (size_t i = 0; i < c->n_pieces; i++)
        set_pieces_init(&c->sets[i], &query->sets[i / n_cells]);
}

struct set_pieces *unique_count_pieces(const struct unique_count *c, size_t set, size_t cell)
{
    return &c->sets[set * c->n_cells + cell];
}

void unique_count_free(struct unique_count *c)
{
    for (size_t i = 0; i < c->n_pieces; i++)
        set_pieces_reset(&c->sets[i]);
    free(c->sets);
    free(c->rows);
    free(c->table);
    free(c->cover.parts);
}

size_t unique_count_bytes(const struct unique_count *c)
{
    size_t bytes = sizeof *c + c->room + c->n_pieces * sizeof *c->sets + c->rows_cap * sizeof *c->rows;
    for (size_t i = 0; i < c->n_pieces; i++)
        bytes += set_pieces_bytes(&c->sets[i]);
    return bytes;
}

/* Returns the start of the first piece without parts: the start of a month may be before its first day. */
static int64_t first_start(const struct set_list *l)
{
    size_t i = 0;
    while (i + 1 < l->n && l->pieces[i + 1].start < l->pieces[i].end)
        i++;
    return l->pieces[i].start;
}

/* Limits the time of period=all to the units from the first set to the present, or to a later set. */
static void trim(struct unique_count *c)
{
    const struct query *q = &c->query->query;
    int64_t first = q->now, last = q->now;
    for (size_t i = 0; i < c->n_pieces; i++) {
        for (size_t l = 0; l < PIECES_LISTS; l++) {
            const struct set_list *list = &c->sets[i].lists[l];
            if (list->n > 0 && first_start(list) < first)
                first = first_start(list);
            if (list->n > 0 && list->pieces[list->n - 1].start > last)
                last = list->pieces[list->n - 1].start;
        }
    }
    c->from = units_start(&q->calendar, first);
    c->to = units_next(&q->calendar, units_start(&q->calendar, last));
}

bool unique_count_begin(struct unique_count *c, uint64_t max_rows)
{
    const struct query *q = &c->query->query;
    const struct calendar *calendar = &q->calendar;
    c->from = q->from;
    c->to = q->to;
    if (q->is_all)
        trim(c);
    int64_t t, end;
    query_rows(q, c->from, c->to, &t, &end);
    if (q->kind == QUERY_COHORT)
        return true;
    if (q->kind == QUERY_RETENTION)
        t = units_back(calendar, t, c->query->lookback);
    for (; t < end; t = c->rows[c->n_rows - 1].end) {
        if (c->n_rows >= max_rows)
            return false;
        struct unique_row *row = ARRAY_ADD(c->rows, c->n_rows, c->rows_cap);
        *row = (struct unique_row){.start = t, .end = units_next(calendar, t), .daily = -1};
    }
    if (q->kind == QUERY_RETENTION)
        c->table = mem_zalloc(c->n_rows * c->n_rows * sizeof *c->table);
    return true;
}

/* The views of some pieces. A piece with few members is added to one set of all such pieces. */
struct views {
    struct set_view *list;
    size_t n, cap;
    struct set *few;
};

static void views_free(struct views *v)
{
    free(v->list);
    set_free(&v->few);
}

static bool fail(struct unique_count *c, enum unique_result result)
{
    c->result = result;
    return false;
}

static bool has_room(const struct unique_count *c)
{
    return c->opened <= c->room;
}

/* Appends the views of the pieces in c->cover from `first` on. Returns false if a set is damaged or has no room. */
static bool add_views(struct unique_count *c, size_t first, struct views *v)
{
    for (size_t i = first; i < c->cover.n; i++) {
        struct set_piece *piece = c->cover.parts[i].piece;
        if (!piece->set && piece->n <= SET_TEXT_MEMBERS) {
            v->few = v->few ? v->few : set_new();
            for (size_t k = 0; k < piece->n; k++)
                set_add(v->few, piece->few[k]);
            continue;
        }
        if (!piece->set && set_pieces_open(c->cover.parts[i].of, piece, &c->opened, &c->error) != 0)
            return fail(c, UNIQUE_DAMAGED);
        if (!has_room(c))
            return false;
        *ARRAY_ADD(v->list, v->n, v->cap) = piece->set ? set_view_of(piece->set) : piece->opened.view;
    }
    return true;
}

/* Appends the view of the pieces with few members. No pieces may be added afterwards. */
static void end_views(struct views *v)
{
    if (v->few)
        *ARRAY_ADD(v->list, v->n, v->cap) = set_view_of(v->few);
}

static uint64_t unite_few(const struct views *v)
{
    struct set *all = set_new();
    for (size_t i = 0; i < v->n; i++)
        set_add_view(all, &v->list[i]);
    struct set_view view = set_view_of(all);
    uint64_t n = set_view_size(&view);
    set_free(&all);
    return n;
}

/* Sets c->cover to the pieces of the named sets [first, end) in a time. */
static bool find_pieces(struct unique_count *c, size_t first, size_t end, int64_t from, int64_t to)
{
    c->cover.n = 0;
    for (size_t i = first * c->n_cells; i < end * c->n_cells; i++)
        set_pieces_cover(&c->sets[i], from, to, &c->cover);
    return !c->cover.is_cut || fail(c, UNIQUE_CUT);
}

/* Sets *n to the size of the union of the named sets [first, end) in a time. */
static bool count_union(
    struct unique_count *c, size_t first, size_t end, int64_t from, int64_t to, uint64_t *n)
{
    struct views v = {.n = 0};
    uint64_t sum = 0;
    if (!find_pieces(c, first, end, from, to))
        return false;
    for (size_t i = 0; i < c->cover.n; i++)
        sum += set_piece_size(c->cover.parts[i].piece);
    *n = sum;
    if (c->cover.n <= 1)
        return true;
    bool ok = add_views(c, 0, &v);
    end_views(&v);
    if (ok)
        *n = sum <= SMALL_MAX ? unite_few(&v) : set_union_size(v.list, v.n);
    views_free(&v);
    return ok;
}

/* Sets *mean to the mean of the numbers of the days that have begun. */
static bool count_days(struct unique_count *c, int64_t from, int64_t to, double *mean)
{
    struct calendar days = c->query->query.calendar;
    uint64_t n, sum = 0, count = 0;
    days.unit = UNIT_DAY;
    for (int64_t t = units_start(&days, from), next; t < to && t <= c->query->query.now; t = next, count++) {
        next = units_next(&days, t);
        if (!count_union(c, 0, c->query->n_sets, t > from ? t : from, next < to ? next : to, &n))
            return false;
        sum += n;
    }
    *mean = count ? (double)sum / (double)count : 0;
    return true;
}

static bool count_row(struct unique_count *c, struct unique_row *row)
{
    const struct unique_query *u = c->query;
    const struct calendar *calendar = &u->query.calendar;
    int64_t from = row->start > c->from ? row->start : c->from, to = row->end < c->to ? row->end : c->to;
    bool has_days = u->is_sticky && calendar->unit > UNIT_DAY && u->window == 1;
    if (u->window > 1)
        from = units_back(calendar, row->start, u->window - 1);
    return count_union(c, 0, u->n_sets, from, to, &row->n) &&
           (!has_days || count_days(c, from, to, &row->daily));
}

static bool count_total(struct unique_count *c)
{
    bool is_row = c->n_rows == 1 && c->query->window == 1;
    c->total = is_row ? c->rows[0].n : 0;
    return (is_row || count_union(c, 0, c->query->n_sets, c->from, c->to, &c->total)) &&
           (!c->query->is_sticky || count_days(c, c->from, c->to, &c->daily));
}

static bool count_retention(struct unique_count *c)
{
    struct views v = {.n = 0};
    uint32_t *unit_of = NULL;
    size_t n = 0, cap = 0;
    bool ok = true;
    struct set *few[RETENTION_UNITS_MAX] = {NULL};
    for (uint32_t unit = 0; unit < c->n_rows && ok; unit++) {
        ok = find_pieces(c, 0, c->query->n_sets, c->rows[unit].start, c->rows[unit].end) &&
             add_views(c, 0, &v);
        end_views(&v);
        few[unit] = v.few;
        v.few = NULL;
        while (n < v.n)
            *ARRAY_ADD(unit_of, n, cap) = unit;
    }
    if (ok)
        retention_count(v.list, unit_of, n, (uint32_t)c->n_rows, c->table);
    for (size_t i = 0; i < c->n_rows; i++)
        set_free(&few[i]);
    free(unit_of);
    views_free(&v);
    return ok;
}

static bool count_cohort(struct unique_count *c)
{
    const struct unique_query *u = c->query;
    struct views *v = mem_zalloc(u->n_sets * sizeof *v);
    struct set_operand operands[SET_OPERANDS_MAX];
    bool ok = true;
    for (size_t i = 0; i < u->n_sets && ok; i++) {
        ok = find_pieces(c, i, i + 1, u->sets[i].from, u->sets[i].to) && add_views(c, 0, &v[i]);
        end_views(&v[i]);
        operands[i] = (struct set_operand){u->sets[i].role, v[i].list, v[i].n};
    }
    if (ok)
        c->total = set_cohort_size(operands, u->n_sets);
    for (size_t i = 0; i < u->n_sets; i++)
        views_free(&v[i]);
    free(v);
    return ok;
}

/* Makes the next number. Sets *more to false after the last number. */
static bool step(struct unique_count *c, bool *more)
{
    const struct unique_query *u = c->query;
    size_t i = c->at++;
    if (u->query.kind == QUERY_RETENTION) {
        *more = false;
        return count_retention(c);
    }
    if (u->query.kind == QUERY_COHORT) {
        *more = i < u->n_sets;
        return *more ? count_union(c, i, i + 1, u->sets[i].from, u->sets[i].to, &c->sizes[i])
                     : count_cohort(c);
    }
    *more = i < c->n_rows;
    return *more ? count_row(c, &c->rows[i]) : count_total(c);
}

bool unique_count_run(struct unique_count *c, usec_t end)
{
    bool more = true, ok = true;
    while (more && ok && clock_monotonic() < end) {
        ok = step(c, &more);
        if (!has_room(c) && c->result == UNIQUE_OK) {
            c->at--; /* the step is repeated */
            return true;
        }
        if (c->opened > OPENED_MAX || !more || !ok) {
            for (size_t i = 0; i < c->n_pieces; i++)
                set_pieces_close(&c->sets[i]);
            c->opened = 0;
        }
    }
    for (size_t i = 0; i < c->n_pieces && ok && !more; i++)
        if (set_pieces_check(&c->sets[i], &c->error) != 0)
            ok = fail(c, UNIQUE_DAMAGED);
    return more && ok;
}

bool unique_count_make_room(struct unique_count *c)
{
    if (has_room(c))
        return false;
    c->room = c->opened + c->opened / 4 + ROOM_MORE;
    return true;
}
