#include "api/uniques.h"

#include "api/completeness_reply.h"
#include "api/etag.h"
#include "api/unique_render.h"
#include "base/work_thread.h"
#include "daemon/loop_notify.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/queue.h>

#define UNIQUE_MAGIC 0x756e6971u
#define TURN_USEC (20 * USEC_PER_MSEC) /* work for one answer before the thread continues another */
#define HINT "ask for a shorter time or fewer keys, or raise --max-buffered"

TAILQ_HEAD(answer_list, answer);

struct uniques {
    struct uniques_config config;
    struct work_thread *thread;
    struct loop_notify *notify;
    struct answer_list waiting; /* answers whose numbers the thread makes; they take turns */
    struct answer *running;     /* the answer that the thread uses */
};

struct answer {
    unsigned magic;
    struct uniques *uniques;
    struct http_request *req; /* NULL: the client has disconnected */
    struct question *question;
    size_t at; /* index of the named set in progress */
    enum http_hold hold;
    TAILQ_ENTRY(answer) link; /* in uniques.waiting */
    bool is_waiting, is_finished;
    struct unique_query query;
    struct unique_count count;
    struct completeness complete;
    bool is_complete; /* all rows are complete */
    struct buf out;
};

static void answer_free(struct answer *a)
{
    if (a->is_waiting)
        TAILQ_REMOVE(&a->uniques->waiting, a, link);
    unique_count_free(&a->count);
    buf_free(&a->out);
    a->magic = 0;
    free(a);
}

/* The thread of a running answer, or the on_done of a cancelled question, frees the answer. */
static void on_gone(struct http_request *req, void *arg)
{
    struct answer *a = arg;
    assert(a->magic == UNIQUE_MAGIC && a->req == req);
    a->req = NULL;
    if (a->question)
        source_cancel(a->question);
    else if (a != a->uniques->running)
        answer_free(a);
}

static bool hold(struct answer *a, size_t piece)
{
    a->hold = http_hold(a->req, sizeof *a + piece + unique_count_bytes(&a->count));
    return a->hold == HTTP_HOLD_OK;
}

static void refuse_hold(struct answer *a)
{
    http_refuse_hold(a->req, a->hold, HINT);
    answer_free(a);
}

static void unavailable(struct answer *a, const struct completeness *complete, const char *why)
{
    completeness_refuse(a->req, complete, a->query.query.allows_partial, why);
    answer_free(a);
}

/* Runs in the thread. */
static void make_numbers(void *ctx, void *job)
{
    struct answer *a = job;
    (void)ctx;
    if (unique_count_run(&a->count, clock_monotonic() + TURN_USEC))
        return;
    a->is_finished = true;
    if (a->count.result == UNIQUE_OK)
        unique_render(&a->count, &a->complete, a->uniques->config.key_seconds, &a->out);
}

static void run_next(struct uniques *u)
{
    struct answer *a = TAILQ_FIRST(&u->waiting);
    if (u->running || !a)
        return;
    TAILQ_REMOVE(&u->waiting, a, link);
    a->is_waiting = false;
    u->running = a;
    work_thread_start(u->thread, a);
}

static void wait_for_turn(struct answer *a)
{
    TAILQ_INSERT_TAIL(&a->uniques->waiting, a, link);
    a->is_waiting = true;
}

static void reply(struct answer *a)
{
    bool is_csv = a->query.query.format == QUERY_CSV;
    if (a->count.result == UNIQUE_DAMAGED) {
        unavailable(a, &a->complete, a->count.error.text);
        return;
    }
    if (a->count.result == UNIQUE_CUT)
        http_problem(a->req, 422, "hours-dropped", "ask for whole UTC days, with timezone=UTC",
            "for a part of this time the archive has only sets by day; the hours were dropped, or days were "
            "imported");
    else
        etag_reply(a->req, is_csv ? "text/csv; charset=utf-8" : "application/json", buf_bytes(&a->out),
            a->is_complete ? a->uniques->config.max_age : 0);
    answer_free(a);
}

static void on_notify(void *arg)
{
    struct uniques *u = arg;
    struct answer *a = u->thread ? work_thread_done(u->thread) : NULL;
    if (!a)
        return;
    u->running = NULL;
    if (!a->req)
        answer_free(a);
    else if (a->is_finished)
        reply(a);
    else if (unique_count_make_room(&a->count) && !hold(a, 0))
        refuse_hold(a);
    else
        wait_for_turn(a);
    run_next(u);
}

/* If all rows are complete, complete_until is the end of the last row, so that repeated answers have the same text. */
static void judge_completeness(struct answer *a)
{
    int64_t end = unique_render_end(&a->count);
    completeness_add_headers(a->req, &a->complete);
    a->complete.is_approximate = a->query.query.is_rounded;
    a->is_complete = a->complete.until >= end && a->complete.n_missing == 0 && !a->complete.is_approximate;
    if (a->is_complete)
        a->complete = (struct completeness){.until = end,
            .counted_since = a->complete.counted_since,
            .quarters_since = a->complete.quarters_since};
}

static void begin_count(struct answer *a)
{
    uint64_t max_rows = a->uniques->config.max_rows;
    if (!unique_count_begin(&a->count, max_rows)) {
        http_problem(a->req, 400, "bad-parameter", "ask for a longer unit, or for a period",
            "more than %llu rows", (unsigned long long)max_rows);
        answer_free(a);
        return;
    }
    if (!hold(a, 0)) {
        refuse_hold(a);
        return;
    }
    judge_completeness(a);
    wait_for_turn(a);
    run_next(a->uniques);
}

static void note_completeness(struct answer *a, const struct completeness *c)
{
    struct completeness *all = &a->complete;
    bool is_first = a->at == 0;
    all->quarters_since = c->quarters_since;
    if (is_first || c->until < all->until) {
        all->until = c->until;
        memcpy(all->held_by, c->held_by, sizeof all->held_by);
    }
    if (c->counted_since > all->counted_since)
        all->counted_since = c->counted_since;
    all->is_not_counted |= c->is_not_counted;
    if (c->n_missing > all->n_missing) {
        all->n_missing = c->n_missing;
        memcpy(all->missing, c->missing, sizeof all->missing);
    }
    if (all->is_not_counted)
        all->until = 0;
}

static void on_restart(void *arg)
{
    struct answer *a = arg;
    set_pieces_reset(&a->count.sets[a->at]);
}

static bool on_record(void *arg, const struct record *r)
{
    struct answer *a = arg;
    bool is_archive = source_is_archive(a->question),
         is_mapped = sources_local(a->uniques->config.sources) != NULL;
    return set_pieces_add(
        &a->count.sets[a->at], is_archive ? PIECES_ARCHIVE : PIECES_LIVE, is_archive && is_mapped, r);
}

static void on_archive(void *arg, const struct source_generation *g, struct generation *mapped)
{
    struct answer *a = arg;
    (void)g;
    set_pieces_map(&a->count.sets[a->at], mapped);
}

static bool on_piece(void *arg, size_t held)
{
    return hold(arg, held);
}

static void on_done(
    void *arg, enum source_result result, const struct completeness *complete, const char *why);

/* A set of days has its records under days, which sort before the hours of the same day. */
static void append_key(const struct query_set *s, int64_t t, enum period_unit by, struct buf *target)
{
    char period[PERIOD_TEXT_MAX + 1];
    struct buf key = {0};
    buf_printf(&key, "%s|%s.", s->unique->ns, s->stored);
    buf_append(&key, period, period_encode(by, t, period));
    url_encode(buf_bytes(&key), target);
    buf_free(&key);
}

/* Returns the longest period that is within every time of the answer. sortdb sends such periods without their parts. */
static enum period_unit largest_period(const struct unique_query *u)
{
    const struct query *q = &u->query;
    enum period_unit largest = query_largest_period(q);
    if (u->window > 1 && q->from != units_start(&q->calendar, q->from))
        return q->cuts_hours ? PERIOD_QUARTER : PERIOD_HOUR; /* a window begins before `from` */
    return u->is_sticky && largest == PERIOD_MONTH ? PERIOD_DAY : largest;
}

/* Asks for the next named set. */
static void ask(struct answer *a)
{
    const struct query_set *s = &a->query.sets[a->at];
    enum period_unit largest = largest_period(&a->query);
    const struct query *q = &a->query.query;
    int64_t first = query_whole_after(q, s->from), last = query_whole_before(q, s->to - 1);
    enum period_unit start = s->unique->by == PERIOD_DAY ? PERIOD_DAY
                             : first % HOUR_SECONDS == 0 ? PERIOD_HOUR
                                                         : PERIOD_QUARTER;
    struct buf target = {0};
    buf_append_str(&target, "/range?start=");
    append_key(s, first < HOUR_END ? first : last, start, &target);
    buf_append_str(&target, "&end=");
    append_key(s, last < first ? first : last, last < query_quarters_from(q) ? PERIOD_HOUR : PERIOD_QUARTER,
        &target);
    buf_printf(&target, "&rollups=%s&members=1", period_unit_name(largest));
    buf_append_char(&target, '\0');
    const struct source_question question = {.target = target.ptr,
        .ns = bytes_str(s->unique->ns),
        .arg = a,
        .allows_partial = a->query.query.allows_partial,
        .patience = a->query.query.patience,
        .on_restart = on_restart,
        .on_record = on_record,
        .on_archive = on_archive,
        .on_piece = on_piece,
        .on_done = on_done};
    a->question = source_ask(a->uniques->config.sources, &question);
    buf_free(&target);
}

static void ask_again_of(struct answer *a, int64_t quarters_since)
{
    const struct uniques_config *config = &a->uniques->config;
    struct http_request *req = a->req;
    enum query_kind asked = a->query.query.asked;
    answer_free(a);
    config->again(req, asked, quarters_since, config->arg);
}

static void on_done(
    void *arg, enum source_result result, const struct completeness *complete, const char *why)
{
    struct answer *a = arg;
    assert(a->magic == UNIQUE_MAGIC);
    a->question = NULL;
    if (!a->req) {
        answer_free(a);
        return;
    }
    note_completeness(a, complete);
    if (result == SOURCE_OK && complete->quarters_since != a->query.query.quarters_since) {
        ask_again_of(a, complete->quarters_since);
    } else if (result == SOURCE_STOPPED) {
        refuse_hold(a);
    } else if (result != SOURCE_OK) {
        unavailable(a, complete, why);
    } else if (++a->at < a->query.n_sets) {
        ask(a);
    } else {
        begin_count(a);
    }
}

void uniques_start(struct uniques *u, struct http_request *req, const struct unique_query *q)
{
    struct answer *a = mem_zalloc(sizeof *a);
    *a = (struct answer){.magic = UNIQUE_MAGIC, .uniques = u, .req = req, .query = *q};
    unique_count_init(&a->count, &a->query);
    http_on_gone(req, on_gone, a);
    ask(a);
}

struct uniques *uniques_new(const struct uniques_config *config)
{
    struct uniques *u = mem_zalloc(sizeof *u);
    u->config = *config;
    TAILQ_INIT(&u->waiting);
    u->notify = loop_notify_new(config->base, on_notify, u);
    u->thread = u->notify ? work_thread_new(&(struct work_thread_config){
                                .run = make_numbers, .notify = loop_notify_wake, .notify_arg = u->notify})
                          : NULL;
    if (!u->thread)
        uniques_free(&u);
    return u;
}

void uniques_free(struct uniques **up)
{
    struct uniques *u = *up;
    *up = NULL;
    if (!u)
        return;
    work_thread_free(&u->thread);
    if (u->running)
        answer_free(u->running);
    assert(TAILQ_EMPTY(&u->waiting));
    loop_notify_free(&u->notify);
    free(u);
}
