#include "api/ask.h"

#include "api/completeness_reply.h"
#include "api/earlier_counts.h"
#include "api/etag.h"
#include "api/render.h"
#include "api/series_cache.h"

#include <assert.h>
#include <event2/event.h>
#include <stdlib.h>
#include <sys/queue.h>

#define ASK_MAGIC 0x61736b21u
#define TURN_USEC                                                                                            \
    (1 * USEC_PER_MSEC) /* time for the steps of all queries before the loop polls the sockets again */
#define STEP_BYTES ((size_t)8 << 10) /* size of the text that one step of a query appends to the answer */
#define WHOLE_MAX ((size_t)1 << 20)  /* maximum size of an answer that is collected for an ETag */
#define LOOKUPS_MAX 1000             /* maximum number of hashes in one request */
#define HINT                                                                                                 \
    "ask for a shorter period or fewer rows, for the series of one sub key (sub=), or raise --max-buffered"

TAILQ_HEAD(ask_list, ask);

struct asks {
    struct asks_config config;
    struct series_cache *cache;
    struct ask_list making;  /* queries whose next step can run now; they take turns in this order */
    struct ask_list waiting; /* breakdowns that wait for memory, oldest request first */
    size_t n_large;          /* number of breakdowns that collect sums */
    uint64_t n_asked;
    struct event *turn;
};

struct ask {
    unsigned magic;
    struct asks *asks;
    struct http_request *req;
    struct question *question;   /* question to the sources in progress; NULL: none */
    TAILQ_ENTRY(ask) link;       /* link in asks.making or asks.waiting */
    uint64_t number;             /* number of the request; later requests have larger numbers */
    struct buf target;           /* target of the question for the counts */
    void (*step)(struct ask *a); /* the next step of the query; NULL: the query is not in `making` */
    enum http_hold hold;         /* the result of the latest hold() */
    struct query query;
    struct series series;
    struct source_generation generation; /* generation that the archive's part of the series is from */
    struct query query_before;           /* the same query for the earlier span of a comparison */
    struct series series_before;
    struct histogram histogram; /* of QUERY_QUANTILE */
    struct query query_events;  /* mean=1: the query for the events by which means divide */
    struct series series_events;
    struct breakdown events;
    struct query query_total; /* for a subtotal: query for the events that the total counted as `(other)` */
    struct series series_total;
    struct series_bounds bounds; /* of a sum of all time */
    struct series_set set;       /* used if the query asks for several series */
    bool is_set;                 /* the current question asks for the counts of `set` */
    struct query
        query_top; /* breakdown that finds the largest sub keys, before the counts of `set` are asked for */
    struct breakdown breakdown;
    struct earlier_counts
        earlier; /* counts of the rows of a compared breakdown in the span of query_before */
    struct query_error
        *unknown;     /* the error to send if the sources have no records; NULL: the counter is configured */
    size_t texts_max; /* maximum number of hashes in the next request for texts */
    bool has_records, is_large, is_waiting;
    bool is_kept; /* series_cache may contain the archive's part of the series */
    size_t looked_up,
        batch; /* numbers of rows whose texts were requested: in all, and before the latest request */
    struct completeness complete;
    bool is_complete;            /* all rows are complete; set when the text of the answer is begun */
    bool is_begun, is_streaming; /* the text is begun; the reply is begun as a stream */
    size_t rendered; /* number of rows of a breakdown, or of series of a set, that are in the text */
    struct buf out;
};

static void schedule(struct asks *asks)
{
    static const struct timeval soon = {0, 0};
    if (!TAILQ_EMPTY(&asks->making) && !evtimer_pending(asks->turn, NULL))
        evtimer_add(asks->turn, &soon);
}

/* Sets the next step of the query, and appends the query to asks.making. */
static void next_step(struct ask *a, void (*step)(struct ask *))
{
    if (!a->step)
        TAILQ_INSERT_TAIL(&a->asks->making, a, link);
    a->step = step;
    schedule(a->asks);
}

static void begin(struct ask *a);

/* True while the query asks for a breakdown, also if the breakdown only finds the largest sub keys. */
static bool is_breakdown(const struct ask *a)
{
    return a->query.kind == QUERY_BREAKDOWN || (a->query.top > 0 && !a->is_set);
}

static void set_large(struct ask *a, bool is_large)
{
    a->asks->n_large = a->asks->n_large + is_large - a->is_large;
    a->is_large = is_large;
}

/* Starts the next waiting breakdown, because this breakdown has ended, or has its rows and needs little memory. */
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
    series_reset(&a->series_total);
    series_reset(&a->series_events);
    breakdown_reset(&a->events);
    histogram_free(&a->histogram);
    series_set_free(&a->set);
    earlier_counts_free(&a->earlier);
    breakdown_reset(&a->breakdown);
    buf_free(&a->out);
    free(a->unknown);
    free(a);
}

/* Ends the query of a client that has disconnected. If a question is in progress, the on_done of the cancelled
 * question frees the query. */
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

/* Counts the query's memory towards max_buffered. `piece` is the memory of the query's question. Returns false if
 * the limit is exceeded; the caller then ends the query. */
static bool hold(struct ask *a, size_t piece)
{
    size_t bytes = sizeof *a + piece + series_bytes(&a->series) + series_bytes(&a->series_before) +
                   series_bytes(&a->series_total) + series_bytes(&a->series_events) +
                   series_set_bytes(&a->set) + a->breakdown.bytes + a->events.bytes +
                   earlier_counts_bytes(&a->earlier) + histogram_bytes(&a->histogram) + a->out.cap;
    a->hold = http_hold(a->req, bytes);
    return a->hold == HTTP_HOLD_OK;
}

static void ask_restart(void *arg)
{
    struct ask *a = arg;
    series_reset(&a->series);
    series_reset(&a->series_before);
    histogram_free(&a->histogram);
    if (a->is_set)
        series_set_reset(&a->set);
    else
        breakdown_reset(&a->breakdown);
}

/* Frees the memory of this breakdown, which starts again once another breakdown has its rows. Returns false if no
 * other breakdown collects sums. */
static bool make_way(struct ask *a)
{
    if (a->hold != HTTP_HOLD_OVERLOADED || !a->is_large || a->asks->n_large < 2)
        return false;
    ask_restart(a);
    a->has_records = false;
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

static void unavailable(struct ask *a, const struct completeness *complete, const char *why)
{
    completeness_refuse(a->req, complete, a->query.allows_partial, why);
    ask_free(a);
}

static void render(struct ask *a);

static void on_drain(struct http_request *req, void *arg)
{
    (void)req;
    next_step(arg, render);
}

/* Returns a series with the same units as every series of the answer. */
static struct series *first_series(struct ask *a)
{
    return a->is_set ? &a->set.members[0].series : &a->series;
}

static int64_t unit_end(const struct series *s)
{
    const struct calendar *c = &s->query->calendar;
    return units_next(c, units_start(c, s->to - 1));
}

/* Sets is_complete. In a complete answer, complete_until is the end of the last unit, so that repeated answers have
 * the same text. */
static void judge_completeness(struct ask *a)
{
    bool is_one_span =
        a->query.kind == QUERY_BREAKDOWN || (a->query.kind == QUERY_QUANTILE && !a->query.is_over_time);
    int64_t end = is_one_span ? a->query.to : unit_end(first_series(a));
    if (a->query.kind == QUERY_COMPARE && unit_end(&a->series_before) > end)
        end = unit_end(&a->series_before);
    else if (a->query.compares && a->query.before_to > end)
        end = a->query.before_to;
    end = query_whole_after(&a->query, end);
    a->complete.is_approximate = a->query.is_rounded;
    a->is_complete = a->complete.until >= end && a->complete.n_missing == 0 && !a->complete.is_approximate;
    if (a->is_complete)
        a->complete = (struct completeness){.until = end,
            .counted_since = a->complete.counted_since,
            .events_since = a->complete.events_since,
            .quarters_since = a->complete.quarters_since,
            .coarse = a->complete.coarse};
}

static const struct earlier_counts *earlier_of(const struct ask *a)
{
    return a->query.compares ? &a->earlier : NULL;
}

/* Adds the header for the next rows, because CSV has no place for a member `next`. */
static void add_next(struct ask *a)
{
    struct buf next = {0};
    if (a->query.kind != QUERY_BREAKDOWN || a->query.format != QUERY_CSV ||
        !breakdown_has_more(&a->breakdown))
        return;
    render_next(&a->breakdown, &next);
    http_add_header(a->req, "X-Millrace-Next", "%.*s", (int)next.len, next.ptr);
    buf_free(&next);
}

static void render_begin(struct ask *a)
{
    completeness_add_headers(a->req, &a->complete);
    add_next(a);
    judge_completeness(a);
    if (a->is_set)
        render_set_begin(&a->set, &a->complete, &a->out);
    else if (a->query.kind == QUERY_SERIES)
        render_series_begin(&a->series, &a->complete, &a->out);
    else if (a->query.kind == QUERY_COMPARE)
        render_compare_begin(&a->series, &a->series_before, &a->complete, &a->out);
    else if (a->query.kind == QUERY_QUANTILE)
        render_quantile_begin(&a->series, &a->complete, &a->out);
    else
        render_breakdown_begin(&a->breakdown, earlier_of(a), &a->complete, &a->out);
    a->is_begun = true;
}

/* Appends all rows at once if series_cache contains the text of most rows. */
static bool print_kept(struct ask *a)
{
    return a->is_kept &&
           series_cache_print(a->asks->cache, &a->generation, &a->series, &a->complete, &a->out);
}

/* Appends some rows to the text of the answer. Returns false if the text is complete. */
static bool render_rows(struct ask *a)
{
    bool is_first = !a->is_begun;
    if (is_first)
        render_begin(a);
    if (is_first && print_kept(a))
        return false;
    if (a->is_set)
        return render_set_rows(&a->set, &a->complete, &a->rendered, STEP_BYTES, &a->out);
    if (a->query.kind == QUERY_SERIES)
        return render_series_rows(&a->series, &a->complete, STEP_BYTES, &a->out);
    if (a->query.kind == QUERY_COMPARE)
        return render_compare_rows(&a->series, &a->series_before, &a->complete, STEP_BYTES, &a->out);
    if (a->query.kind == QUERY_QUANTILE)
        return render_quantile_rows(&a->series, &a->histogram, &a->complete, STEP_BYTES, &a->out);
    return render_breakdown_rows(
        &a->breakdown, earlier_of(a), &a->complete, &a->rendered, STEP_BYTES, &a->out);
}

/* True if the text must be sent as a stream. A complete answer is collected for an ETag while memory is available. */
static bool wants_stream(struct ask *a)
{
    return a->out.len >= ASK_PIECE && !(a->is_complete && a->out.len < WHOLE_MAX && hold(a, 0));
}

static void render(struct ask *a)
{
    const char *type = a->query.format == QUERY_CSV ? "text/csv; charset=utf-8" : "application/json";
    bool more = render_rows(a);
    if (!a->is_streaming && !more) {
        etag_reply(a->req, type, buf_bytes(&a->out), a->is_complete ? a->asks->config.max_age : 0);
        ask_free(a);
        return;
    }
    if (!a->is_streaming && wants_stream(a)) {
        a->is_streaming = true;
        http_add_header_text(a->req, "Cache-Control", "private, no-cache");
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

static bool lookup_record(void *arg, const struct record *r)
{
    struct ask *a = arg;
    return breakdown_add_lookup(&a->breakdown, r);
}

static bool on_piece(void *arg, size_t held)
{
    return hold(arg, held);
}

static void lookup_done(
    void *arg, enum source_result result, const struct completeness *complete, const char *why);

/* Appends a list of the next hashes to `target`. Returns false if no hashes remain. */
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

static void begin_set(struct ask *a);
static void finish(struct ask *a);
static void select_rows(struct ask *a);

/* Requests the next batch of texts of hashed subtotals. */
static void look_up(struct ask *a)
{
    struct buf target = {0};
    a->batch = a->looked_up;
    bool more = append_list(a, &target);
    buf_append_char(&target, '\0');
    if (more) {
        const struct source_question q = {.target = target.ptr,
            .arg = a,
            .allows_partial = a->query.allows_partial,
            .patience = a->query.patience,
            .on_record = lookup_record,
            .on_piece = on_piece,
            .on_done = lookup_done};
        a->question = source_ask(a->asks->config.sources, &q);
    } else if (!breakdown_order(&a->breakdown)) {
        next_step(a, select_rows);
    } else {
        hold(a, 0);
        end_large(a);
        next_step(a, a->query.top > 0 ? begin_set : finish);
    }
    buf_free(&target);
}

static void lookup_done(
    void *arg, enum source_result result, const struct completeness *complete, const char *why)
{
    struct ask *a = arg;
    bool missing = false;
    a->question = NULL;
    for (size_t i = a->batch; i < a->looked_up; i++)
        missing = missing || breakdown_wants_text(&a->breakdown, i);
    if (!a->req) {
        ask_free(a);
    } else if (result == SOURCE_STOPPED) {
        refuse(a);
    } else if (result == SOURCE_TOO_LARGE && a->texts_max > 1) {
        a->texts_max /= 2;
        breakdown_forget_texts(&a->breakdown, a->batch, a->looked_up);
        a->looked_up = a->batch;
        look_up(a);
    } else if (result != SOURCE_OK) {
        unavailable(a, complete, why);
    } else if (missing) {
        unavailable(a, complete, "a hashed key has no lookup record");
    } else {
        look_up(a);
    }
}

static void select_rows(struct ask *a)
{
    bool done = breakdown_select(&a->breakdown);
    a->looked_up = a->breakdown.kept;
    if (hold(a, 0))
        next_step(a, done ? look_up : select_rows);
    else
        refuse(a);
}

static bool ask_record(void *arg, const struct record *r)
{
    struct ask *a = arg;
    a->has_records = true;
    if (query_is_sum_of_all(&a->query))
        series_bounds_note(&a->bounds, r);
    if (is_breakdown(a))
        return breakdown_add(&a->breakdown, r);
    if (a->query.kind == QUERY_QUANTILE)
        return histogram_add(&a->histogram, &a->series, r);
    if (a->is_set)
        return series_set_add(&a->set, r);
    return series_add(&a->series, r) && (a->query.kind == QUERY_SERIES || series_add(&a->series_before, r));
}

static bool ask_recall(void *arg, const struct source_generation *g)
{
    struct ask *a = arg;
    a->generation = *g;
    if (!series_cache_recall(a->asks->cache, g, &a->series))
        return false;
    if (hold(a, 0))
        return true;
    series_reset(&a->series);
    return false;
}

static void ask_archive(void *arg, const struct source_generation *g, struct generation *mapped)
{
    (void)mapped;
    struct ask *a = arg;
    a->generation = *g;
    series_cache_keep(a->asks->cache, g, &a->series);
}

static void refuse_sum(struct ask *a)
{
    http_problem(
        a->req, 422, "sum-too-large", "ask for a shorter time", "the counts add up to more than 64 bits");
}

/* Refuses a query whose counts cannot be answered. Returns false if the counts can be answered. */
static bool refuse_counts(struct ask *a)
{
    const struct series *first = first_series(a), *before = &a->series_before;
    uint64_t max_rows = a->asks->config.max_rows;
    bool fits = a->is_set ? series_set_trim(&a->set, max_rows) : series_trim(&a->series, max_rows);
    if (a->unknown && !a->has_records)
        http_problem(
            a->req, a->unknown->status, a->unknown->code, a->unknown->hint, "%s", a->unknown->detail);
    else if (a->histogram.has_others)
        http_problem(a->req, 422, "no-histogram", "raise max_keys of the subtotal, or ask for another time",
            "some events were counted over max_keys, or under keys that are not buckets; quantiles would not "
            "be exact");
    else if (first->needs_dropped_hours || before->needs_dropped_hours || a->breakdown.needs_dropped_hours)
        http_problem(a->req, 422, "hours-dropped",
            "ask for whole UTC days; for a series, use timezone=UTC and a unit of a day or longer",
            "for a part of this time the archive has only counts by day; the hours were dropped");
    else if (first->is_too_large || before->is_too_large || a->breakdown.is_too_large || a->set.is_too_large)
        refuse_sum(a);
    else if (!fits)
        http_problem(a->req, 400, "bad-parameter", "ask for a longer unit, or for a period",
            "more than %llu rows", (unsigned long long)max_rows);
    else
        return false;
    return true;
}

/* Stores the completeness of a question. A set asks two questions; a source that failed in one of the two is
 * missing. */
static void note_completeness(struct ask *a, const struct completeness *complete)
{
    if (!a->is_set || a->complete.n_missing == 0 || complete->n_missing > 0)
        a->complete = *complete;
    else
        a->complete.until = 0;
    a->complete.is_not_counted &= !a->query.is_former;
    if (a->complete.is_not_counted)
        a->complete.until = 0;
}

static void after_counts(struct ask *a)
{
    next_step(a, is_breakdown(a) ? select_rows : finish);
}

/* Appends the key of a total, or with a time at or after 0 the key of a subtotal. */
static void append_key(
    struct buf *target, const char *ns, const char *stored, int64_t time, enum period_unit unit)
{
    char text[PERIOD_TEXT_MAX + 1];
    struct buf raw = {0};
    buf_append_str(&raw, ns);
    buf_append_char(&raw, '|');
    buf_append_str(&raw, stored);
    if (time >= 0) {
        period_encode(unit, time, text);
        buf_append_char(&raw, '.');
        buf_append_str(&raw, text);
    }
    url_encode(buf_bytes(&raw), target);
    buf_free(&raw);
}

static bool total_record(void *arg, const struct record *r)
{
    struct ask *a = arg;
    return series_add(&a->series_total, r);
}

static void total_restart(void *arg)
{
    struct ask *a = arg;
    series_reset(&a->series_total);
}

/* Notes the sources that failed in a further question. */
static void note_missing(struct ask *a, const struct completeness *complete)
{
    if (a->complete.n_missing > 0 || complete->n_missing == 0)
        return;
    memcpy(a->complete.missing, complete->missing, sizeof complete->missing);
    a->complete.n_missing = complete->n_missing;
    a->complete.until = 0;
}

/* Ends a further question. Returns false, and ends the query, if the client is gone or a source has failed. */
static bool end_further(
    struct ask *a, enum source_result result, const struct completeness *complete, const char *why)
{
    a->question = NULL;
    note_missing(a, complete);
    if (!a->req)
        ask_free(a);
    else if (result == SOURCE_STOPPED)
        refuse(a);
    else if (result != SOURCE_OK)
        unavailable(a, complete, why);
    else
        return true;
    return false;
}

/* False for the question that finds the largest sub keys of a set, because the question for the set follows. */
static bool wants_total_over(const struct ask *a)
{
    const struct query *q = &a->query;
    return q->sub && q->total->kind != COUNTER_CONSTANT && strcmp(q->stored, COMPONENT_OTHER) != 0 &&
           (q->top == 0 || a->is_set);
}

static void total_done(
    void *arg, enum source_result result, const struct completeness *complete, const char *why)
{
    struct ask *a = arg;
    if (!end_further(a, result, complete, why))
        return;
    if (wants_total_over(a))
        first_series(a)->over.total = a->breakdown.over.total = a->series_total.over.counter;
    if (query_is_sum_of_all(&a->query))
        series_bound_all(&a->series_total, &a->bounds, &a->query);
    after_counts(a);
}

/* Asks for the number of events that the total counted as `(other)`, because no subtotal of a key includes these
 * events. A removed max_keys still affects earlier counts. For a sum of all time, also asks for the total of the key. */
static void ask_total(struct ask *a)
{
    struct buf target = {0};
    buf_append_str(&target, "/mget?k=");
    append_key(&target, a->query.total->ns, COMPONENT_OTHER, -1, PERIOD_HOUR);
    if (query_is_sum_of_all(&a->query)) {
        buf_append_str(&target, "&k=");
        append_key(&target, a->query.total->ns, a->query.stored, -1, PERIOD_HOUR);
    }
    buf_append_char(&target, '\0');
    const struct source_question question = {.target = target.ptr,
        .arg = a,
        .allows_partial = a->query.allows_partial,
        .patience = a->query.patience,
        .on_restart = total_restart,
        .on_record = total_record,
        .on_piece = on_piece,
        .on_done = total_done};
    a->question = source_ask(a->asks->config.sources, &question);
    buf_free(&target);
}

static void ask_again_of(struct ask *a, int64_t quarters_since)
{
    const struct asks_config *config = &a->asks->config;
    struct http_request *req = a->req;
    enum query_kind asked = a->query.asked;
    ask_free(a);
    config->again(req, asked, quarters_since, config->arg);
}

static void counts_done(
    void *arg, enum source_result result, const struct completeness *complete, const char *why)
{
    struct ask *a = arg;
    a->question = NULL;
    note_completeness(a, complete);
    if (!a->req)
        ask_free(a);
    else if (result == SOURCE_OK && complete->quarters_since != a->query.quarters_since)
        ask_again_of(a, complete->quarters_since);
    else if (result == SOURCE_STOPPED)
        refuse(a);
    else if (result == SOURCE_TOO_LARGE && a->is_set) {
        http_problem(a->req, 413, "answer-too-large", "ask for fewer keys", "%s", why);
        ask_free(a);
    } else if (result != SOURCE_OK)
        unavailable(a, complete, why);
    else if (refuse_counts(a))
        ask_free(a);
    else if (wants_total_over(a) || query_is_sum_of_all(&a->query))
        ask_total(a);
    else
        after_counts(a);
}

/* Returns the start of the counted period nearest to `t` that a record's key can contain. */
static int64_t countable(const struct query *q, int64_t t)
{
    return query_whole_before(q, t < HOUR_FIRST ? HOUR_FIRST : t >= HOUR_END ? HOUR_END - 1 : t);
}

static void append_sub(struct buf *target, const char *stored)
{
    buf_append_str(target, "&sub=");
    url_encode(bytes_str(stored), target);
}

/* Appends the sub keys of a series, and `(other)` if the counter may have this key. */
static void append_subs(struct buf *target, const struct query *q, const struct series_set *set)
{
    bool has_other = !query_may_have_other(q);
    for (size_t i = 0; i < set->n; i++) {
        append_sub(target, set->members[i].stored);
        has_other = has_other || strcmp(set->members[i].stored, COMPONENT_OTHER) == 0;
    }
    if (set->n == 0) {
        append_sub(target, q->stored_sub);
        has_other = has_other || strcmp(q->stored_sub, COMPONENT_OTHER) == 0;
    }
    if (!has_other)
        append_sub(target, COMPONENT_OTHER);
}

/* Appends the keys of totals, and `(other)` if the counter may have this key. */
static void append_totals(struct buf *target, const struct query *q, const struct series_set *set)
{
    bool has_other = !query_may_have_other(q);
    buf_append_str(target, "/mget?");
    for (size_t i = 0; i == 0 || i < set->n; i++) {
        const char *stored = set->n > 0 ? set->members[i].stored : q->stored;
        buf_append_str(target, i ? "&k=" : "k=");
        append_key(target, q->total->ns, stored, -1, PERIOD_HOUR);
        has_other = has_other || strcmp(stored, COMPONENT_OTHER) == 0;
    }
    if (!has_other) {
        buf_append_str(target, "&k=");
        append_key(target, q->total->ns, COMPONENT_OTHER, -1, PERIOD_HOUR);
    }
}

/* A total has one record. A subtotal has one record per hour, and in an archive also per day and per month,
 * adjacent in key order. If no hour starts in the span, one hour is still requested for complete_until; the answer
 * omits this hour. */
static void append_question(struct buf *target, const struct query *q, const struct series_set *set)
{
    /* in the order of enum period_unit, from PERIOD_QUARTER on */
    static const char *const periods[] = {"quarter", "hour", "day", "month"};
    if (!q->sub) {
        append_totals(target, q, set);
    } else {
        bool compares = q->kind == QUERY_COMPARE; /* a breakdown asks for its earlier span later */
        int64_t from = compares && q->before_from < q->from ? q->before_from : q->from;
        int64_t to = compares && q->before_to > q->to ? q->before_to : q->to;
        int64_t first = countable(q, query_whole_after(q, from)), last = countable(q, to - 1);
        buf_append_str(target, "/range?start=");
        append_key(target, q->sub->ns, q->stored, first, first % HOUR_SECONDS ? PERIOD_QUARTER : PERIOD_HOUR);
        buf_append_str(target, "&end=");
        append_key(target, q->sub->ns, q->stored, last < first ? first : last,
            last < query_quarters_from(q) ? PERIOD_HOUR : PERIOD_QUARTER);
        buf_printf(target, "&rollups=%s", periods[query_largest_period(q) - PERIOD_QUARTER]);
        if (q->kind != QUERY_BREAKDOWN && q->kind != QUERY_QUANTILE && q->top == 0)
            append_subs(target, q, set);
    }
    buf_append_char(target, '\0');
}

static void begin(struct ask *a)
{
    const struct source_question question = {.target = a->target.ptr,
        .ns = a->query.is_former ? BYTES_NONE : bytes_str(query_counter(&a->query)->ns),
        .arg = a,
        .allows_partial = a->query.allows_partial,
        .patience = a->query.patience,
        .on_restart = ask_restart,
        .on_record = ask_record,
        .on_recall = a->is_kept ? ask_recall : NULL,
        .on_archive = a->is_kept ? ask_archive : NULL,
        .on_piece = on_piece,
        .on_done = counts_done};
    if (hold(a, 0))
        a->question = source_ask(a->asks->config.sources, &question);
    else
        refuse(a);
}

static bool earlier_record(void *arg, const struct record *r)
{
    struct ask *a = arg;
    return earlier_counts_add(&a->earlier, r);
}

static void earlier_restart(void *arg)
{
    struct ask *a = arg;
    earlier_counts_reset(&a->earlier);
}

static void earlier_done(
    void *arg, enum source_result result, const struct completeness *complete, const char *why)
{
    struct ask *a = arg;
    if (!end_further(a, result, complete, why))
        return;
    if (a->earlier.is_too_large) {
        refuse_sum(a);
        ask_free(a);
    } else {
        next_step(a, render);
    }
}

/* Asks for the earlier counts of the rows of a compared breakdown. */
static void begin_earlier(struct ask *a)
{
    earlier_counts_init(&a->earlier, &a->query_before, &a->breakdown);
    buf_clear(&a->target);
    append_question(&a->target, &a->query_before, &a->set);
    const struct source_question question = {.target = a->target.ptr,
        .arg = a,
        .allows_partial = a->query.allows_partial,
        .patience = a->query.patience,
        .on_restart = earlier_restart,
        .on_record = earlier_record,
        .on_piece = on_piece,
        .on_done = earlier_done};
    if (hold(a, 0))
        a->question = source_ask(a->asks->config.sources, &question);
    else
        refuse(a);
}

/* Renders the answer, after a question for the earlier counts if the query compares a breakdown. */
static void finish_earlier(struct ask *a)
{
    if (a->query.compares && a->query.kind == QUERY_BREAKDOWN)
        begin_earlier(a);
    else
        render(a);
}

static bool events_record(void *arg, const struct record *r)
{
    struct ask *a = arg;
    return is_breakdown(a) ? breakdown_add(&a->events, r) : series_add(&a->series_events, r);
}

static void events_restart(void *arg)
{
    struct ask *a = arg;
    series_reset(&a->series_events);
    breakdown_reset(&a->events);
}

static void events_done(
    void *arg, enum source_result result, const struct completeness *complete, const char *why)
{
    struct ask *a = arg;
    if (!end_further(a, result, complete, why))
        return;
    if (complete->until < a->complete.until)
        a->complete.until = complete->until;
    a->complete.events_since = complete->is_not_counted ? INT64_MAX : complete->counted_since;
    a->series.events = &a->series_events;
    a->breakdown.events = &a->events;
    if (a->series_events.is_too_large || a->events.is_too_large || a->series_events.needs_dropped_hours ||
        a->events.needs_dropped_hours)
        unavailable(a, complete, "the events by which means divide cannot be added up");
    else
        next_step(a, finish_earlier);
}

/* Asks for the events by which means divide. */
static void ask_events(struct ask *a)
{
    struct buf target = {0};
    struct query *q = &a->query_events;
    query_copy(q, &a->query);
    q->total = q->events.total;
    q->sub = q->events.sub;
    if (!is_breakdown(a)) { /* of all time, only the rows' */
        q->from = a->series.from;
        q->to = a->series.to;
    }
    series_init(&a->series_events, q);
    breakdown_init(&a->events, q);
    append_question(&target, q, &a->set);
    const struct source_question question = {.target = target.ptr,
        .ns = bytes_str(query_counter(q)->ns),
        .arg = a,
        .allows_partial = q->allows_partial,
        .patience = q->patience,
        .on_restart = events_restart,
        .on_record = events_record,
        .on_piece = on_piece,
        .on_done = events_done};
    if (hold(a, 0))
        a->question = source_ask(a->asks->config.sources, &question);
    else
        refuse(a);
    buf_free(&target);
}

/* Renders the answer, after a question for events if the query asks for means. */
static void finish(struct ask *a)
{
    histogram_finish(&a->histogram);
    if (a->query.events.total)
        ask_events(a);
    else
        finish_earlier(a);
}

/* Adds a series to the set for each key or sub key that the query lists. */
static void name_values(struct ask *a)
{
    const struct query *q = &a->query;
    char stored[COMPONENT_HASH + 1];
    a->is_set = true;
    series_set_init(&a->set, q, q->n_values);
    for (size_t i = 0; i < q->n_values; i++) {
        query_store(query_value(q, i), stored);
        series_set_name(&a->set, query_value(q, i), bytes_str(stored));
    }
}

/* Asks for the series of the largest sub keys, which the breakdown has found. */
static void begin_set(struct ask *a)
{
    const struct breakdown *b = &a->breakdown;
    a->is_set = true;
    series_set_init(&a->set, &a->query, b->n_rows + 1);
    for (size_t i = 0; i < b->n_rows; i++)
        series_set_name(
            &a->set, breakdown_text(&b->rows[i]), bytes_of(b->rows[i].sum.stored, b->rows[i].sum.len));
    series_set_name_others(&a->set);
    buf_clear(&a->target);
    append_question(&a->target, &a->query, &a->set);
    begin(a);
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
    a->is_kept = series_cache_takes(q);
    query_copy(&a->query_before, q);
    a->query_before.from = q->before_from;
    a->query_before.to = q->before_to;
    a->query_before.part_end = q->before_part_end;
    series_init(&a->series, q);
    series_init(&a->series_before, &a->query_before);
    query_copy(&a->query_total, q);
    a->query_total.sub = NULL;
    series_init(&a->series_total, &a->query_total);
    series_init(&a->series_events, q);
    breakdown_init(&a->events, q);
    query_copy(&a->query_top, q);
    a->query_top.kind = QUERY_BREAKDOWN;
    a->query_top.limit = q->top;
    const struct query *first = q->top > 0 ? &a->query_top : q;
    breakdown_init(&a->breakdown, first);
    if (q->n_values > 0)
        name_values(a);
    append_question(&a->target, first, &a->set);
    http_on_gone(req, ask_gone, a);
    if (is_breakdown(a) && !TAILQ_EMPTY(&asks->waiting)) {
        wait_for_memory(a);
        return;
    }
    set_large(a, is_breakdown(a));
    begin(a);
}

struct asks *asks_new(const struct asks_config *config)
{
    struct asks *asks = mem_zalloc(sizeof *asks);
    asks->config = *config;
    asks->cache = series_cache_new(config->stats);
    TAILQ_INIT(&asks->making);
    TAILQ_INIT(&asks->waiting);
    asks->turn = evtimer_new(config->base, on_turn, asks);
    return asks;
}

void asks_free(struct asks **ap)
{
    struct asks *asks = *ap;
    if (!asks)
        return;
    assert(TAILQ_EMPTY(&asks->making) && TAILQ_EMPTY(&asks->waiting));
    event_free(asks->turn);
    series_cache_free(&asks->cache);
    free(asks);
    *ap = NULL;
}
