#include "api/ask.h"

#include "api/etag.h"
#include "api/inquiry.h"
#include "api/render.h"
#include "api/series_cache.h"
#include "api/sums.h"
#include "daemon/loop_timer.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/queue.h>

#define ASK_MAGIC 0x61736b21u
#define TURN_USEC                                                                                            \
    (1 * USEC_PER_MSEC) /* time for the steps of all queries before the loop polls the sockets again */
#define STEP_BYTES ((size_t)8 << 10) /* size of the text that one step of a query appends to the answer */
#define WHOLE_MAX ((size_t)1 << 20)  /* maximum size of an answer that is collected for an ETag */
#define LOOKUPS_MAX 1000             /* maximum number of hashes in one request */

TAILQ_HEAD(ask_list, ask);

struct asks {
    struct asks_config config;
    struct series_cache *cache;
    struct ask_list making;  /* queries whose next step can run now; they take turns in this order */
    struct ask_list waiting; /* breakdowns that wait for memory, oldest request first */
    size_t n_large;          /* number of breakdowns that collect sums */
    uint64_t n_asked;
    struct loop_timer *turn;
};

/* The questions for counts, in the order in which a query asks them. */
enum ask_part {
    PART_TOP,     /* top=: the breakdown that finds the largest sub keys */
    PART_COUNTS,  /* the counts of the answer */
    PART_TOTAL,   /* of a subtotal: the events that the total counted as `(other)`; of all time: the total */
    PART_EVENTS,  /* mean=1: the divisors of the means */
    PART_EARLIER, /* of a compared breakdown: the earlier counts of its rows */
    PARTS
};

struct ask {
    struct inquiry inquiry;
    unsigned magic;
    struct asks *asks;
    TAILQ_ENTRY(ask) link;       /* link in asks.making or asks.waiting */
    uint64_t number;             /* number of the request; later requests have larger numbers */
    void (*step)(struct ask *a); /* the next step of the query; NULL: the query is not in `making` */
    struct query query;
    struct sums *parts[PARTS];           /* NULL: not asked, or not yet */
    struct sums *counting;               /* sums of the current question */
    struct source_generation generation; /* generation that the archive's part of the series is from */
    struct query_error
        *unknown;     /* the error to send if the sources have no records; NULL: the counter is configured */
    size_t texts_max; /* maximum number of hashes in the next request for texts */
    bool has_records, is_large, is_waiting;
    bool is_kept;     /* series_cache may contain the archive's part of the series */
    bool is_selected; /* rows of a breakdown are selected, and their texts are looked up */
    size_t looked_up,
        batch;        /* numbers of rows whose texts were requested: in all, and before the latest request */
    bool is_complete; /* all rows are complete; set when the text of the answer is begun */
    bool is_begun, is_streaming; /* the text is begun; the reply is begun as a stream */
    size_t rendered; /* number of rows of a breakdown, or of series of a set, that are in the text */
    struct buf out;
};

static void schedule(struct asks *asks)
{
    if (!TAILQ_EMPTY(&asks->making) && !loop_timer_is_set(asks->turn))
        loop_timer_set(asks->turn, 0);
}

/* Sets the next step of the query, and appends the query to asks.making. */
static void next_step(struct ask *a, void (*step)(struct ask *))
{
    if (!a->step)
        TAILQ_INSERT_TAIL(&a->asks->making, a, link);
    a->step = step;
    schedule(a->asks);
}

static void set_large(struct ask *a, bool is_large)
{
    a->asks->n_large = a->asks->n_large + is_large - a->is_large;
    a->is_large = is_large;
}

static void begin(struct ask *a)
{
    inquiry_begin(&a->inquiry);
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

static void free_parts(struct ask *a)
{
    for (size_t i = 0; i < PARTS; i++)
        sums_free(&a->parts[i]);
    a->counting = NULL;
}

static void ask_free(void *arg)
{
    struct ask *a = arg;
    assert(a->magic == ASK_MAGIC);
    if (a->step)
        TAILQ_REMOVE(&a->asks->making, a, link);
    if (a->is_waiting)
        TAILQ_REMOVE(&a->asks->waiting, a, link);
    end_large(a);
    a->magic = 0;
    free_parts(a);
    buf_free(&a->out);
    free(a->unknown);
    free(a);
}

static void on_turn(void *arg)
{
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

static size_t ask_bytes(const void *arg)
{
    const struct ask *a = arg;
    size_t bytes = sizeof *a + a->out.cap;
    for (size_t i = 0; i < PARTS; i++)
        bytes += sums_bytes(a->parts[i]);
    return bytes;
}

static void ask_reset(void *arg)
{
    struct ask *a = arg;
    free_parts(a);
    a->has_records = a->is_selected = false;
    a->texts_max = LOOKUPS_MAX;
    http_set_held_bytes(a->inquiry.req, sizeof *a);
}

/* Frees the memory of this breakdown, which starts again once another breakdown has its rows. Returns false if no
 * other breakdown collects sums. */
static bool make_way(struct ask *a)
{
    if (a->inquiry.hold != HTTP_HOLD_OVERLOADED || !a->is_large || a->asks->n_large < 2)
        return false;
    ask_reset(a);
    set_large(a, false);
    wait_for_memory(a);
    return true;
}

static void render(struct ask *a);

static void on_drain(struct http_request *req, void *arg)
{
    (void)req;
    next_step(arg, render);
}

static int64_t unit_end(const struct series *s)
{
    const struct calendar *c = &s->query->calendar;
    return units_next(c, units_start(c, s->to - 1));
}

/* Returns the end of the counted periods that all rows of the answer need. */
static int64_t end_of(struct sums *counts)
{
    const struct query *q = &counts->query;
    bool is_one_span = q->kind == QUERY_BREAKDOWN || (q->kind == QUERY_QUANTILE && !q->is_over_time);
    int64_t end = is_one_span ? q->to : unit_end(sums_first_series(counts));
    int64_t before = q->kind == QUERY_COMPARE ? unit_end(&counts->before) : q->compares ? q->before_to : end;
    return query_whole_after(q, before > end ? before : end);
}

/* Adds the header for the next rows, because CSV has no place for a member `next`. */
static void add_next(struct ask *a)
{
    struct buf next = {0};
    const struct breakdown *b = &a->parts[PART_COUNTS]->breakdown;
    if (a->query.kind != QUERY_BREAKDOWN || a->query.format != QUERY_CSV || !breakdown_has_more(b))
        return;
    render_next(b, &next);
    http_add_header(a->inquiry.req, "X-Millrace-Next", "%.*s", (int)next.len, next.ptr);
    buf_free(&next);
}

/* Appends some rows to the text of the answer. Returns false if the text is complete. */
static bool render_some(struct ask *a)
{
    struct sums *counts = a->parts[PART_COUNTS];
    const struct completeness *complete = &a->inquiry.complete;
    const struct render_answer answer = {.counts = counts, .complete = complete, .at = &a->rendered};
    if (!a->is_begun) {
        add_next(a);
        if (a->query.by_minute)
            inquiry_add_headers(a->inquiry.req, complete);
        else
            a->is_complete = inquiry_settle(&a->inquiry, end_of(counts), a->query.is_rounded);
        render_begin(&answer, &a->out);
        a->is_begun = true;
        /* series_cache may contain the text of most rows */
        if (a->is_kept &&
            series_cache_print(a->asks->cache, &a->generation, &counts->series, complete, &a->out))
            return false;
    }
    return render_rows(&answer, STEP_BYTES, &a->out);
}

/* True if the text must be sent as a stream. A complete answer is collected as a whole to compute its ETag, while
 * memory is available. */
static bool wants_stream(struct ask *a)
{
    return a->out.len >= ASK_PIECE &&
           !(a->is_complete && a->out.len < WHOLE_MAX && inquiry_hold(&a->inquiry, 0));
}

static void render(struct ask *a)
{
    const char *type = a->query.format == QUERY_CSV ? "text/csv; charset=utf-8" : "application/json";
    struct http_request *req = a->inquiry.req;
    bool more = render_some(a);
    if (!a->is_streaming && !more) {
        etag_reply(req, type, buf_bytes(&a->out), a->is_complete ? a->asks->config.max_age : 0);
        ask_free(a);
        return;
    }
    if (!a->is_streaming && wants_stream(a)) {
        a->is_streaming = true;
        http_add_header_text(req, "Cache-Control", "private, no-cache");
        http_stream_start(req, 200, type);
        http_on_drain(req, ASK_PIECE / 2, on_drain, a);
    }
    if (a->is_streaming) {
        http_stream_write(req, buf_bytes(&a->out));
        buf_free(&a->out);
    }
    if (!more) {
        http_stream_end(req);
        ask_free(a);
    } else if (!a->is_streaming || http_stream_pending(req) < ASK_PIECE) {
        next_step(a, render);
    }
}

/* Returns the sums with the breakdown whose rows are looked up. NULL: there are none. */
static struct sums *rows_of(const struct ask *a)
{
    struct sums *s = a->parts[a->parts[PART_COUNTS] ? PART_COUNTS : PART_TOP];
    return s && s->shape == SUMS_BREAKDOWN ? s : NULL;
}

/* Appends a list of the next hashes to `target`. Returns false if no hashes remain. */
static bool append_list(struct ask *a, struct buf *target)
{
    const struct breakdown *b = &rows_of(a)->breakdown;
    size_t n = 0;
    a->batch = a->looked_up;
    for (; a->looked_up < b->n_rows && n < a->texts_max; a->looked_up++) {
        if (!breakdown_wants_text(b, a->looked_up))
            continue;
        buf_append_str(target, n++ ? "&k=lookup%7C" : "/mget?k=lookup%7C");
        url_encode(bytes_of(b->rows[a->looked_up].sum.stored, COMPONENT_HASH), target);
    }
    return n > 0;
}

static void select_rows(struct ask *a)
{
    struct breakdown *b = &rows_of(a)->breakdown;
    a->is_selected = breakdown_select(b);
    a->looked_up = b->kept;
    if (!inquiry_hold(&a->inquiry, 0))
        inquiry_fail(&a->inquiry, SOURCE_STOPPED, NULL);
    else if (a->is_selected)
        inquiry_go_on(&a->inquiry);
    else
        next_step(a, select_rows);
}

/* Selects the rows of a breakdown, and asks for the next batch of texts of hashed subtotals. */
static enum inquiry_next ask_texts(void *arg, size_t n, struct source_question *question, struct buf *target)
{
    struct ask *a = arg;
    (void)n, (void)question;
    if (!rows_of(a))
        return INQUIRY_NEXT;
    if (a->is_selected && append_list(a, target))
        return INQUIRY_ASK;
    bool is_ordered = a->is_selected && breakdown_order(&rows_of(a)->breakdown);
    a->is_selected = false;
    if (!is_ordered) {
        next_step(a, select_rows);
        return INQUIRY_WAIT;
    }
    inquiry_hold(&a->inquiry, 0);
    end_large(a);
    return INQUIRY_NEXT;
}

static bool text_record(void *arg, const struct record *r)
{
    return breakdown_add_lookup(&rows_of(arg)->breakdown, r);
}

static bool end_texts(void *arg)
{
    struct ask *a = arg;
    bool missing = false;
    for (size_t i = a->batch; i < a->looked_up; i++)
        missing = missing || breakdown_wants_text(&rows_of(a)->breakdown, i);
    if (missing && a->query.by_minute)
        return true; /* the row has its hash */
    if (missing)
        inquiry_fail(&a->inquiry, SOURCE_UNAVAILABLE, "a hashed key has no lookup record");
    return !missing;
}

static bool ask_record(void *arg, const struct record *r)
{
    struct ask *a = arg;
    a->has_records = true;
    return sums_add(a->counting, r);
}

static void ask_restart(void *arg)
{
    sums_reset(((struct ask *)arg)->counting);
}

static bool ask_recall(void *arg, const struct source_generation *g)
{
    struct ask *a = arg;
    a->generation = *g;
    if (!series_cache_recall(a->asks->cache, g, &a->counting->series))
        return false;
    if (inquiry_hold(&a->inquiry, 0))
        return true;
    sums_reset(a->counting);
    return false;
}

static void ask_archive(void *arg, const struct source_generation *g, struct generation *mapped)
{
    (void)mapped;
    struct ask *a = arg;
    a->generation = *g;
    series_cache_keep(a->asks->cache, g, &a->counting->series);
}

static void refuse_sum(struct ask *a)
{
    http_problem(a->inquiry.req, 422, "sum-too-large", "ask for a shorter time",
        "the counts add up to more than 64 bits");
}

/* Refuses a query whose counts cannot be answered. Returns false if the counts can be answered. */
static bool refuse_counts(struct ask *a)
{
    struct http_request *req = a->inquiry.req;
    struct sums *s = a->counting;
    uint64_t max_rows = a->asks->config.max_rows;
    bool fits = sums_finish(s, max_rows);
    if (a->unknown && !a->has_records)
        http_problem(req, a->unknown->status, a->unknown->code, a->unknown->hint, "%s", a->unknown->detail);
    else if (s->histogram.has_others)
        http_problem(req, 422, "no-histogram", "raise max_keys of the subtotal, or ask for another time",
            "some events were counted over max_keys, or under keys that are not buckets; quantiles would not "
            "be exact");
    else if (sums_need_dropped_hours(s))
        http_problem(req, 422, "hours-dropped",
            "ask for whole UTC days; for a series, use timezone=UTC and a unit of a day or longer",
            "for a part of this time the archive has only counts by day; the hours were dropped");
    else if (sums_are_too_large(s))
        refuse_sum(a);
    else if (!fits)
        http_problem(req, 400, "bad-parameter", "ask for a longer unit or a shorter time",
            "more than %llu rows", (unsigned long long)max_rows);
    else
        return false;
    return true;
}

static struct sums *begin_part(
    struct ask *a, enum ask_part part, const struct query *q, enum sums_shape shape)
{
    return a->counting = a->parts[part] = sums_new(q, shape);
}

static enum inquiry_next ask_part(struct ask *a, struct source_question *question, struct buf *target)
{
    const struct query *q = &a->counting->query;
    if (!q->is_former && !q->by_minute)
        question->ns = bytes_str(query_counter(q)->ns);
    sums_append_target(a->counting, target);
    return INQUIRY_ASK;
}

/* Waits for memory if other breakdowns wait. end_large continues the query as a large one. */
static enum inquiry_next wait_turn(void *arg, size_t n, struct source_question *question, struct buf *target)
{
    struct ask *a = arg;
    (void)n, (void)question, (void)target;
    bool is_large = (a->query.kind == QUERY_BREAKDOWN && !a->query.by_minute) || a->query.top > 0;
    if (is_large && !a->is_large && !TAILQ_EMPTY(&a->asks->waiting)) {
        wait_for_memory(a);
        return INQUIRY_WAIT;
    }
    set_large(a, is_large);
    return INQUIRY_NEXT;
}

static enum inquiry_next ask_top(void *arg, size_t n, struct source_question *question, struct buf *target)
{
    struct ask *a = arg;
    if (n > 0 || a->query.top == 0)
        return INQUIRY_NEXT;
    struct sums *s = begin_part(a, PART_TOP, &a->query, SUMS_BREAKDOWN);
    s->query.kind = QUERY_BREAKDOWN;
    s->query.limit = a->query.top;
    return ask_part(a, question, target);
}

/* Adds a series to the set for each key or sub key that the query lists. */
static void name_values(struct series_set *set, const struct query *q)
{
    char stored[COMPONENT_HASH + 1];
    series_set_init(set, q, q->n_values);
    for (size_t i = 0; i < q->n_values; i++) {
        query_store(query_value(q, i), stored);
        series_set_name(set, query_value(q, i), bytes_str(stored));
    }
}

/* Adds the series of the largest sub keys, which the breakdown has found, and of all others. */
static void name_largest(struct series_set *set, const struct query *q, const struct breakdown *b)
{
    series_set_init(set, q, b->n_rows + 1);
    for (size_t i = 0; i < b->n_rows; i++)
        series_set_name(set, breakdown_text(&b->rows[i]), breakdown_stored(&b->rows[i].sum));
    series_set_name_others(set);
}

static enum sums_shape shape_of(const struct query *q)
{
    return q->kind == QUERY_BREAKDOWN      ? SUMS_BREAKDOWN
           : q->kind == QUERY_COMPARE      ? SUMS_COMPARISON
           : q->kind == QUERY_QUANTILE     ? SUMS_HISTOGRAM
           : q->n_values > 0 || q->top > 0 ? SUMS_SET
                                           : SUMS_SERIES;
}

static enum inquiry_next ask_counts(void *arg, size_t n, struct source_question *question, struct buf *target)
{
    struct ask *a = arg;
    if (n > 0)
        return INQUIRY_NEXT;
    struct sums *s = begin_part(a, PART_COUNTS, &a->query, shape_of(&a->query));
    if (a->query.top > 0)
        name_largest(&s->set, &s->query, &a->parts[PART_TOP]->breakdown);
    else if (s->shape == SUMS_SET)
        name_values(&s->set, &s->query);
    question->skips_archive = a->query.by_minute;
    question->on_refused = a->query.by_minute ? inquiry_pass_refusal : NULL;
    question->on_recall = a->is_kept ? ask_recall : NULL;
    question->on_archive = a->is_kept ? ask_archive : NULL;
    return ask_part(a, question, target);
}

static bool end_counts(void *arg)
{
    struct ask *a = arg;
    struct completeness *complete = &a->inquiry.complete;
    const struct completeness *latest = &a->inquiry.latest;
    complete->counted_since =
        latest->counted_since; /* with top=, the first question was for another counter */
    complete->is_not_counted = latest->is_not_counted;
    complete->coarse = latest->coarse;
    complete->by_minute = a->query.by_minute;
    complete->not_counted_by = latest->not_counted_by;
    complete->is_not_counted &= !a->query.is_former;
    if (complete->is_not_counted)
        complete->until = 0;
    if (!refuse_counts(a))
        return true;
    ask_free(a);
    return false;
}

static bool wants_over(const struct query *q)
{
    return q->sub && !q->by_minute && q->total->kind != COUNTER_CONSTANT &&
           strcmp(q->stored, COMPONENT_OTHER) != 0;
}

/* Asks for the number of events that the total counted as `(other)`, because no subtotal of a key includes these
 * events. A removed max_keys still affects earlier counts. For a sum of all time, also asks for the total of the key. */
static enum inquiry_next ask_total(void *arg, size_t n, struct source_question *question, struct buf *target)
{
    struct ask *a = arg;
    bool is_of_all = query_is_sum_of_all(&a->query);
    if (n > 0 || (!wants_over(&a->query) && !is_of_all))
        return INQUIRY_NEXT;
    struct sums *s = begin_part(a, PART_TOTAL, &a->query, SUMS_SERIES);
    s->query.sub = NULL;
    if (!is_of_all)
        memcpy(s->query.stored, COMPONENT_OTHER, sizeof COMPONENT_OTHER);
    return ask_part(a, question, target);
}

static bool end_total(void *arg)
{
    struct ask *a = arg;
    struct sums *counts = a->parts[PART_COUNTS];
    struct series *total = &a->counting->series;
    if (wants_over(&a->query))
        sums_first_series(counts)->over.total = counts->breakdown.over.total = total->over.counter;
    if (query_is_sum_of_all(&a->query))
        series_bound_all(total, &counts->bounds, &counts->query);
    return true;
}

static enum inquiry_next ask_events(void *arg, size_t n, struct source_question *question, struct buf *target)
{
    struct ask *a = arg;
    const struct sums *counts = a->parts[PART_COUNTS];
    struct query q;
    if (n > 0 || !a->query.events.total)
        return INQUIRY_NEXT;
    query_copy(&q, &counts->query);
    q.total = q.events.total;
    q.sub = q.events.sub;
    if (counts->shape != SUMS_BREAKDOWN) { /* for all time, the span of the rows */
        q.from = counts->series.from;
        q.to = counts->series.to;
    }
    bool is_breakdown = counts->shape == SUMS_BREAKDOWN;
    struct sums *s = begin_part(a, PART_EVENTS, &q, is_breakdown ? SUMS_BREAKDOWN : SUMS_SERIES);
    breakdown_follow(&s->breakdown, &counts->breakdown);
    return ask_part(a, question, target);
}

static bool end_events(void *arg)
{
    struct ask *a = arg;
    const struct completeness *latest = &a->inquiry.latest;
    struct sums *counts = a->parts[PART_COUNTS], *events = a->counting;
    a->inquiry.complete.events_since = latest->is_not_counted ? INT64_MAX : latest->counted_since;
    counts->series.events = &events->series;
    breakdown_take_events(&counts->breakdown, &events->breakdown);
    if (!sums_are_too_large(events) && !sums_need_dropped_hours(events))
        return true;
    inquiry_fail(&a->inquiry, SOURCE_UNAVAILABLE,
        "the means have no divisor: their numbers of events cannot be added up");
    return false;
}

static enum inquiry_next ask_earlier(
    void *arg, size_t n, struct source_question *question, struct buf *target)
{
    struct ask *a = arg;
    const struct sums *counts = a->parts[PART_COUNTS];
    if (n > 0 || !a->query.compares || counts->shape != SUMS_BREAKDOWN)
        return INQUIRY_NEXT;
    struct sums *s = begin_part(a, PART_EARLIER, &counts->query_before, SUMS_BREAKDOWN);
    breakdown_follow(&s->breakdown, &counts->breakdown);
    return ask_part(a, question, target);
}

static bool end_earlier(void *arg)
{
    struct ask *a = arg;
    breakdown_take_earlier(&a->parts[PART_COUNTS]->breakdown, &a->counting->breakdown);
    if (!sums_are_too_large(a->counting))
        return true;
    refuse_sum(a);
    ask_free(a);
    return false;
}

static bool ask_fail(void *arg, enum source_result result, const char *why)
{
    struct ask *a = arg;
    if (result == SOURCE_STOPPED)
        return make_way(a);
    if (result == SOURCE_TOO_LARGE && a->is_selected && a->texts_max > 1) {
        a->texts_max /= 2;
        breakdown_forget_texts(&rows_of(a)->breakdown, a->batch, a->looked_up);
        a->looked_up = a->batch;
        inquiry_go_on(&a->inquiry);
        return true;
    }
    if (result != SOURCE_TOO_LARGE || a->counting->shape != SUMS_SET)
        return false;
    http_problem(a->inquiry.req, 413, "answer-too-large", "ask for fewer keys", "%s", why);
    ask_free(a);
    return true;
}

static void ask_answer(void *arg)
{
    next_step(arg, render);
}

#define COUNTING                                                                                             \
    {                                                                                                        \
        .on_restart = ask_restart, .on_record = ask_record                                                   \
    }

static const struct inquiry_step steps[] = {
    {.prepare = wait_turn},
    {ask_top, end_counts, COUNTING},
    {ask_texts, end_texts, {.on_record = text_record}},
    {ask_counts, end_counts, COUNTING},
    {ask_total, end_total, COUNTING},
    {ask_texts, end_texts, {.on_record = text_record}},
    {ask_events, end_events, COUNTING},
    {ask_earlier, end_earlier, COUNTING},
};

static const struct inquiry_spec spec = {.steps = steps,
    .n_steps = sizeof steps / sizeof *steps,
    .bytes = ask_bytes,
    .answer = ask_answer,
    .fail = ask_fail,
    .reset = ask_reset,
    .free = ask_free,
    .hint = "ask for a shorter period or fewer rows, for the series of one sub key (sub=), or raise "
            "--max-buffered"};

void ask_start(
    struct asks *asks, struct http_request *req, const struct query *query, const struct query_error *unknown)
{
    struct ask *a = mem_zalloc(sizeof *a);
    *a = (struct ask){.magic = ASK_MAGIC,
        .asks = asks,
        .inquiry = {.spec = &spec,
            .cells = asks->config.cells,
            .req = req,
            .allows_partial = query->allows_partial && !query->by_minute,
            .patience = query->by_minute ? 0 : query->patience,
            .retry = query->by_minute ? "try again" : NULL,
            .query = query->by_minute ? NULL : &a->query,
            .again = asks->config.again,
            .again_arg = asks->config.arg},
        .number = asks->n_asked++,
        .texts_max = LOOKUPS_MAX,
        .is_kept = asks->config.cells->n == 1 && series_cache_takes(query)};
    query_copy(&a->query, query);
    a->query.n_cells = asks->config.cells->n;
    if (unknown) {
        a->unknown = mem_alloc(sizeof *unknown);
        *a->unknown = *unknown;
    }
    begin(a);
}
struct asks *asks_new(const struct asks_config *config)
{
    struct asks *asks = mem_zalloc(sizeof *asks);
    asks->config = *config;
    asks->cache = series_cache_new(config->stats);
    TAILQ_INIT(&asks->making);
    TAILQ_INIT(&asks->waiting);
    asks->turn = loop_timer_new(config->base, on_turn, asks);
    return asks;
}

void asks_free(struct asks **ap)
{
    struct asks *asks = *ap;
    if (!asks)
        return;
    assert(TAILQ_EMPTY(&asks->making) && TAILQ_EMPTY(&asks->waiting));
    loop_timer_free(&asks->turn);
    series_cache_free(&asks->cache);
    free(asks);
    *ap = NULL;
}
