#include "api/ask.h"

#include "api/render.h"

#include <assert.h>
#include <event2/event.h>
#include <stdlib.h>
#include <sys/queue.h>

#define ASK_MAGIC 0x61736b21u
#define TURN_USEC                                                                                            \
    (4 * USEC_PER_MSEC) /* time for the steps of all queries before the loop polls the sockets again */
#define STEP_BYTES ((size_t)8 << 10) /* of an answer's text, made in one step */
#define LOOKUPS_MAX 1000             /* hashes in one request; as many rows are worth a range */
#define OTHERS_A_ROW 8               /* lookups of no row that a range may have for each row */
#define HINT "ask for a shorter period or fewer rows, or raise --max-buffered"

TAILQ_HEAD(ask_list, ask);

struct asks {
    struct sources *sources;
    uint64_t max_rows;
    struct ask_list making;  /* queries whose next step can run now; they take turns in this order */
    struct ask_list waiting; /* breakdowns that wait for memory, in the order of their requests */
    size_t n_large;          /* breakdowns that collect sums */
    uint64_t n_asked;
    struct event *turn;
};

struct ask {
    unsigned magic;
    struct asks *asks;
    struct http_request *req;
    struct question *question;   /* in progress */
    TAILQ_ENTRY(ask) link;       /* in `making` or in `waiting` */
    uint64_t number;             /* in the order of the requests */
    struct buf target;           /* of the question for the counts */
    void (*step)(struct ask *a); /* the next step of the query; NULL: the query is not in `making` */
    enum http_hold hold;         /* the result of the latest hold() */
    struct query query;
    struct series series;
    struct query query_before; /* of a comparison: the same question for the span before */
    struct series series_before;
    struct breakdown breakdown;
    struct query_error
        *unknown;     /* the error to send if the sources have no records; NULL: the counter is configured */
    size_t texts_max; /* of one request with a list of hashes */
    bool has_records, is_large, is_waiting;
    bool is_sparse; /* most lookups between two hashes of the rows belong to no row, so ask with lists */
    size_t others;  /* lookups of no row, in the range asked for */
    size_t looked_up,
        batch; /* number of rows whose texts were requested, in all and before the latest request */
    struct completeness complete;
    bool is_begun, is_streaming; /* the text of the answer was begun; the reply was begun as a stream */
    size_t rendered;             /* rows of a breakdown */
    struct buf out;
};

static void schedule(struct asks *asks)
{
    static const struct timeval soon = {0, 0};
    if (!TAILQ_EMPTY(&asks->making) && !evtimer_pending(asks->turn, NULL))
        evtimer_add(asks->turn, &soon);
}

/* Makes `step` the query's next step, and puts the query into `making`. */
static void next_step(struct ask *a, void (*step)(struct ask *))
{
    if (!a->step)
        TAILQ_INSERT_TAIL(&a->asks->making, a, link);
    a->step = step;
    schedule(a->asks);
}

static void begin(struct ask *a);

static void set_large(struct ask *a, bool is_large)
{
    a->asks->n_large = a->asks->n_large + is_large - a->is_large;
    a->is_large = is_large;
}

/* A breakdown has its rows and needs little memory from now on, or has ended. The next one can begin. */
static void end_large(struct ask *a)
{
    struct ask *next = TAILQ_FIRST(&a->asks->waiting);
    if (!a->is_large)
        return;
    set_large(a, false);
    if (!next)
        return;
    TAILQ_REMOVE(&a->asks->waiting, next, link);
    next->is_waiting = false;
    set_large(next, true);
    next_step(next, begin);
}

static void wait_for_memory(struct ask *a)
{
    struct ask *later = TAILQ_FIRST(&a->asks->waiting);
    while (later && later->number < a->number)
        later = TAILQ_NEXT(later, link);
    if (later)
        TAILQ_INSERT_BEFORE(later, a, link);
    else
        TAILQ_INSERT_TAIL(&a->asks->waiting, a, link);
    a->is_waiting = true;
}

static void ask_free(struct ask *a)
{
    if (a->step)
        TAILQ_REMOVE(&a->asks->making, a, link);
    if (a->is_waiting)
        TAILQ_REMOVE(&a->asks->waiting, a, link);
    end_large(a);
    buf_free(&a->target);
    a->magic = 0;
    series_reset(&a->series);
    series_reset(&a->series_before);
    breakdown_reset(&a->breakdown);
    buf_free(&a->out);
    free(a->unknown);
    free(a);
}

/* The client disconnected. If a question is in progress, cancels it, and its on_done frees the query. */
static void ask_gone(struct http_request *req, void *arg)
{
    struct ask *a = arg;
    assert(a->magic == ASK_MAGIC && a->req == req);
    a->req = NULL;
    if (a->question)
        source_cancel(a->question);
    else
        ask_free(a);
}

/* This query goes before the other queries, because a finished breakdown frees the most memory. */
static void next_step_first(struct ask *a, void (*step)(struct ask *))
{
    assert(!a->step);
    TAILQ_INSERT_HEAD(&a->asks->making, a, link);
    a->step = step;
    schedule(a->asks);
}

static void on_turn(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct asks *asks = arg;
    struct ask *a;
    usec_t end = clock_monotonic() + TURN_USEC;
    while ((a = TAILQ_FIRST(&asks->making)) && clock_monotonic() < end) {
        void (*step)(struct ask *) = a->step;
        TAILQ_REMOVE(&asks->making, a, link);
        a->step = NULL;
        step(a);
    }
    schedule(asks);
}

/* Reports the query's memory to max_buffered. `piece` is the memory of the query's question. If false, there is no
 * room, and the caller ends the query. */
static bool hold(struct ask *a, size_t piece)
{
    size_t bytes = sizeof *a + piece + series_bytes(&a->series) + series_bytes(&a->series_before) +
                   a->breakdown.bytes + a->out.cap;
    a->hold = http_hold(a->req, bytes);
    return a->hold == HTTP_HOLD_OK;
}

static void ask_restart(void *arg)
{
    struct ask *a = arg;
    series_reset(&a->series);
    series_reset(&a->series_before);
    breakdown_reset(&a->breakdown);
}

/* Frees the memory of a breakdown for other breakdowns, and begins it anew once one of them has its rows. Returns false
 * if there are no others. */
static bool make_way(struct ask *a)
{
    if (a->hold != HTTP_HOLD_OVERLOADED || !a->is_large || a->asks->n_large < 2)
        return false;
    ask_restart(a);
    a->has_records = a->is_sparse = false;
    a->texts_max = LOOKUPS_MAX;
    http_set_held_bytes(a->req, sizeof *a);
    set_large(a, false);
    wait_for_memory(a);
    return true;
}

static void refuse(struct ask *a)
{
    if (make_way(a))
        return;
    http_refuse_hold(a->req, a->hold, HINT);
    ask_free(a);
}

static void unavailable(struct ask *a, const char *why)
{
    http_problem(a->req, 503, "upstream-unavailable", "try again; answers are never partial", "%s", why);
    ask_free(a);
}

static void render(struct ask *a);

static void on_drain(struct http_request *req, void *arg)
{
    (void)req;
    next_step(arg, render);
}

static void render_begin(struct ask *a)
{
    if (a->query.kind == QUERY_SERIES)
        render_series_begin(&a->series, &a->complete, &a->out);
    else if (a->query.kind == QUERY_COMPARE)
        render_compare_begin(&a->series, &a->series_before, &a->complete, &a->out);
    else
        render_breakdown_begin(&a->breakdown, &a->complete, &a->out);
    a->is_begun = true;
}

/* Appends some rows to the text. Returns false if the text is complete. */
static bool render_rows(struct ask *a)
{
    if (!a->is_begun)
        render_begin(a);
    if (a->query.kind == QUERY_SERIES)
        return render_series_rows(&a->series, &a->complete, STEP_BYTES, &a->out);
    if (a->query.kind == QUERY_COMPARE)
        return render_compare_rows(&a->series, &a->series_before, &a->complete, STEP_BYTES, &a->out);
    return render_breakdown_rows(&a->breakdown, &a->rendered, STEP_BYTES, &a->out);
}

static void add_completeness(struct ask *a)
{
    http_add_header(a->req, "X-Millrace-Complete-Until", "%lld", (long long)a->complete.until);
    if (a->complete.held_by[0])
        http_add_header(a->req, "X-Millrace-Held-By", "%s", a->complete.held_by);
}

static void render(struct ask *a)
{
    const char *type = a->query.format == QUERY_CSV ? "text/csv; charset=utf-8" : "application/json";
    bool more = render_rows(a);
    if (!a->is_streaming && (!more || a->out.len >= ASK_PIECE))
        add_completeness(a);
    if (!a->is_streaming && !more) {
        http_reply(a->req, 200, type, buf_bytes(&a->out));
        ask_free(a);
        return;
    }
    if (!a->is_streaming && a->out.len >= ASK_PIECE) {
        a->is_streaming = true;
        http_stream_start(a->req, 200, type);
        http_on_drain(a->req, ASK_PIECE / 2, on_drain, a);
    }
    if (a->is_streaming) {
        http_stream_write(a->req, buf_bytes(&a->out));
        buf_free(&a->out);
    }
    if (!more) {
        http_stream_end(a->req);
        ask_free(a);
    } else if (!a->is_streaming || http_stream_pending(a->req) < ASK_PIECE) {
        next_step(a, render);
    }
}

static void gather(struct ask *a);

static bool lookup_record(void *arg, const struct record *r)
{
    struct ask *a = arg;
    enum breakdown_lookup found = breakdown_add_lookup(&a->breakdown, r);
    a->others += found == BREAKDOWN_LOOKUP_OTHER;
    return found != BREAKDOWN_LOOKUP_BAD;
}

/* True if the range that was asked for has many lookups of no row. */
static bool has_many_others(const struct ask *a)
{
    return a->others > OTHERS_A_ROW * (a->looked_up - a->batch);
}

static bool lookup_piece(void *arg, size_t held)
{
    return hold(arg, held) && !has_many_others(arg);
}

static bool on_piece(void *arg, size_t held)
{
    return hold(arg, held);
}

static void lookup_done(
    void *arg, enum source_result result, const struct completeness *complete, const char *why);

/* Appends a range from the first to the last hash of the rows left, which are sorted. Returns false if they are too few for one. */
static bool append_range(struct ask *a, struct buf *target)
{
    const struct breakdown *b = &a->breakdown;
    size_t first = b->n_rows, last = 0, n = 0;
    for (size_t i = a->looked_up; i < b->n_rows; i++)
        if (breakdown_wants_text(b, i)) {
            first = i < first ? i : first;
            last = i;
            n++;
        }
    if (a->is_sparse || n < LOOKUPS_MAX)
        return false;
    buf_append_str(target, "/range?start=lookup%7C");
    url_encode(bytes_of(b->rows[first].sum.stored, COMPONENT_HASH), target);
    buf_append_str(target, "&end=lookup%7C");
    url_encode(bytes_of(b->rows[last].sum.stored, COMPONENT_HASH), target);
    a->looked_up = b->n_rows;
    return true;
}

/* Appends a list of the next hashes. Returns false if there are none. */
static bool append_list(struct ask *a, struct buf *target)
{
    const struct breakdown *b = &a->breakdown;
    size_t n = 0;
    buf_append_str(target, "/mget?");
    for (; a->looked_up < b->n_rows && n < a->texts_max; a->looked_up++) {
        if (!breakdown_wants_text(b, a->looked_up))
            continue;
        buf_append_str(target, n++ ? "&k=lookup%7C" : "k=lookup%7C");
        url_encode(bytes_of(b->rows[a->looked_up].sum.stored, COMPONENT_HASH), target);
    }
    return n > 0;
}

/* Requests the next batch of texts of hashed subtotals. */
static void look_up(struct ask *a)
{
    struct breakdown *b = &a->breakdown;
    struct buf target = {0};
    a->batch = a->looked_up;
    a->others = 0;
    bool is_range = append_range(a, &target), more = is_range || append_list(a, &target);
    buf_append_char(&target, '\0');
    if (more) {
        const struct source_question q = {.target = target.ptr,
            .arg = a,
            .on_record = lookup_record,
            .on_piece = lookup_piece,
            .on_done = lookup_done};
        a->question = source_ask(a->asks->sources, &q);
    } else {
        breakdown_keep_largest(b);
        next_step_first(a, gather);
    }
    buf_free(&target);
}

static void lookup_done(
    void *arg, enum source_result result, const struct completeness *complete, const char *why)
{
    struct ask *a = arg;
    bool missing = false;
    (void)complete; /* the query has the value that came with the counts */
    a->question = NULL;
    for (size_t i = a->batch; i < a->looked_up; i++)
        missing = missing || breakdown_wants_text(&a->breakdown, i);
    if (!a->req) {
        ask_free(a);
    } else if (result == SOURCE_STOPPED && has_many_others(a)) {
        a->is_sparse = true;
        breakdown_forget_texts(&a->breakdown, a->batch, a->looked_up);
        a->looked_up = a->batch;
        look_up(a);
    } else if (result == SOURCE_STOPPED) {
        refuse(a);
    } else if (result == SOURCE_TOO_LARGE && a->texts_max > 1) {
        a->texts_max /= 2;
        breakdown_forget_texts(&a->breakdown, a->batch, a->looked_up);
        a->looked_up = a->batch;
        look_up(a);
    } else if (result != SOURCE_OK) {
        unavailable(a, why);
    } else if (missing) {
        unavailable(a, "a hashed key has no lookup record");
    } else {
        look_up(a);
    }
}

static void gather(struct ask *a)
{
    if (breakdown_gather(&a->breakdown)) {
        a->looked_up = a->breakdown.kept;
        look_up(a);
    } else {
        hold(a, 0);
        end_large(a);
        next_step(a, render);
    }
}

static void select_rows(struct ask *a)
{
    bool done = breakdown_select(&a->breakdown);
    if (hold(a, 0))
        next_step_first(a, done ? gather : select_rows);
    else
        refuse(a);
}

static bool ask_record(void *arg, const struct record *r)
{
    struct ask *a = arg;
    a->has_records = true;
    if (a->query.kind == QUERY_BREAKDOWN)
        return breakdown_add(&a->breakdown, r);
    return series_add(&a->series, r) && (a->query.kind == QUERY_SERIES || series_add(&a->series_before, r));
}

static void counts_done(
    void *arg, enum source_result result, const struct completeness *complete, const char *why)
{
    struct ask *a = arg;
    a->question = NULL;
    a->complete = *complete;
    if (!a->req)
        ask_free(a);
    else if (result == SOURCE_STOPPED)
        refuse(a);
    else if (result != SOURCE_OK)
        unavailable(a, why);
    else if (a->unknown && !a->has_records) {
        http_problem(
            a->req, a->unknown->status, a->unknown->code, a->unknown->hint, "%s", a->unknown->detail);
        ask_free(a);
    } else if (a->series.needs_dropped_hours || a->series_before.needs_dropped_hours ||
               a->breakdown.needs_dropped_hours) {
        http_problem(a->req, 422, "hours-dropped",
            "ask for whole UTC days, and for a series for days or longer units with timezone=UTC",
            "the archive has only days of a part of this time; its hours were dropped");
        ask_free(a);
    } else if (a->series.is_too_large || a->series_before.is_too_large || a->breakdown.is_too_large) {
        http_problem(a->req, 422, "sum-too-large", "ask for a shorter time",
            "the counts add up to more than 2^64 - 1");
        ask_free(a);
    } else if (!series_trim(&a->series, a->asks->max_rows)) {
        http_problem(a->req, 400, "bad-parameter", "ask for a longer unit, or for a period",
            "more than %llu rows", (unsigned long long)a->asks->max_rows);
        ask_free(a);
    } else
        next_step(a, a->query.kind == QUERY_BREAKDOWN ? select_rows : render);
}

static void append_key(struct buf *target, const char *ns, const char *stored, int64_t hour)
{
    char text[HOUR_TEXT_MAX + 1];
    struct buf raw = {0};
    buf_append_str(&raw, ns);
    buf_append_char(&raw, '|');
    buf_append_str(&raw, stored);
    if (hour >= 0) {
        hour_encode(hour, text);
        buf_append_char(&raw, '.');
        buf_append_str(&raw, text);
    }
    url_encode(buf_bytes(&raw), target);
    buf_free(&raw);
}

/* Returns the nearest hour that a key can contain. */
static int64_t countable_hour(int64_t t)
{
    int64_t last = HOUR_END - HOUR_SECONDS, hour = t / HOUR_SECONDS * HOUR_SECONDS;
    return hour < HOUR_FIRST ? HOUR_FIRST : hour > last ? last : hour;
}

/* The sub key of a series, and with max_keys the sub key that stands for others. */
static void append_sub(struct buf *target, const struct query *q)
{
    buf_append_str(target, "&sub=");
    url_encode(bytes_str(q->stored_sub), target);
    if (q->sub->max_keys > 0 && strcmp(q->stored_sub, COMPONENT_OTHER) != 0) {
        buf_append_str(target, "&sub=");
        url_encode(BYTES_LITERAL(COMPONENT_OTHER), target);
    }
}

/* A total is one record. A subtotal has one record for each hour, and an archive also for days and months, adjacent in key order. If no
 * hour starts in the span,
 * the query still asks the sources for one hour, to learn complete_until. The answer omits that hour. */
static void append_question(struct buf *target, const struct query *q)
{
    static const char *const periods[] = {"hour", "day", "month"}; /* as enum period_unit */
    if (!q->sub) {
        buf_append_str(target, "/mget?k=");
        append_key(target, q->total->ns, q->stored, -1);
        if (q->total->max_keys > 0 && strcmp(q->stored, COMPONENT_OTHER) != 0) {
            buf_append_str(target, "&k=");
            append_key(target, q->total->ns, COMPONENT_OTHER, -1);
        }
    } else {
        bool compares = q->kind == QUERY_COMPARE;
        int64_t from = compares && q->before_from < q->from ? q->before_from : q->from;
        int64_t to = compares && q->before_to > q->to ? q->before_to : q->to;
        int64_t first = countable_hour(from + HOUR_SECONDS - 1), last = countable_hour(to - 1);
        buf_append_str(target, "/range?start=");
        append_key(target, q->sub->ns, q->stored, first);
        buf_append_str(target, "&end=");
        append_key(target, q->sub->ns, q->stored, last < first ? first : last);
        buf_printf(target, "&rollups=%s", periods[query_largest_period(q)]);
        if (q->kind != QUERY_BREAKDOWN)
            append_sub(target, q);
    }
    buf_append_char(target, '\0');
}

static void begin(struct ask *a)
{
    const struct source_question question = {.target = a->target.ptr,
        .arg = a,
        .on_restart = ask_restart,
        .on_record = ask_record,
        .on_piece = on_piece,
        .on_done = counts_done};
    if (hold(a, 0))
        a->question = source_ask(a->asks->sources, &question);
    else
        refuse(a);
}

void ask_start(
    struct asks *asks, struct http_request *req, const struct query *query, const struct query_error *unknown)
{
    struct ask *a = mem_zalloc(sizeof *a);
    *a = (struct ask){
        .magic = ASK_MAGIC, .asks = asks, .req = req, .number = asks->n_asked++, .texts_max = LOOKUPS_MAX};
    query_copy(&a->query, query);
    if (unknown) {
        a->unknown = mem_alloc(sizeof *unknown);
        *a->unknown = *unknown;
    }
    const struct query *q = &a->query;
    query_copy(&a->query_before, q);
    a->query_before.from = q->before_from;
    a->query_before.to = q->before_to;
    series_init(&a->series, q);
    series_init(&a->series_before, &a->query_before);
    breakdown_init(&a->breakdown, q);
    append_question(&a->target, q);
    http_on_gone(req, ask_gone, a);
    if (q->kind == QUERY_BREAKDOWN && !TAILQ_EMPTY(&asks->waiting)) {
        wait_for_memory(a);
        return;
    }
    set_large(a, q->kind == QUERY_BREAKDOWN);
    begin(a);
}

struct asks *asks_new(struct event_base *base, struct sources *sources, uint64_t max_rows)
{
    struct asks *asks = mem_zalloc(sizeof *asks);
    asks->sources = sources;
    asks->max_rows = max_rows;
    TAILQ_INIT(&asks->making);
    TAILQ_INIT(&asks->waiting);
    asks->turn = evtimer_new(base, on_turn, asks);
    return asks;
}

void asks_free(struct asks **ap)
{
    struct asks *asks = *ap;
    if (!asks)
        return;
    event_free(asks->turn);
    free(asks);
    *ap = NULL;
}
