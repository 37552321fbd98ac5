#include "api/uniques.h"

#include "api/etag.h"
#include "api/inquiry.h"
#include "api/unique_render.h"
#include "base/work_thread.h"
#include "daemon/loop_notify.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/queue.h>

#define UNIQUE_MAGIC 0x756e6971u
#define TURN_USEC (20 * USEC_PER_MSEC) /* work for one answer before the thread continues another */

TAILQ_HEAD(answer_list, answer);

struct uniques {
    struct uniques_config config;
    struct work_thread *thread;
    struct loop_notify *notify;
    struct answer_list waiting; /* answers whose numbers the thread makes; they take turns */
    struct answer *running;     /* the answer that the thread uses */
};

struct answer {
    struct inquiry inquiry; /* its `n` is the index of the named set in progress */
    unsigned magic;
    struct uniques *uniques;
    TAILQ_ENTRY(answer) link; /* in uniques.waiting */
    bool is_waiting, is_finished;
    struct unique_query query;
    struct unique_count count;
    bool is_complete; /* all rows are complete */
    struct buf out;
};

/* on_notify frees the answer that the thread uses. */
static void answer_free(void *arg)
{
    struct answer *a = arg;
    assert(a->magic == UNIQUE_MAGIC);
    if (a == a->uniques->running)
        return;
    if (a->is_waiting)
        TAILQ_REMOVE(&a->uniques->waiting, a, link);
    unique_count_free(&a->count);
    buf_free(&a->out);
    a->magic = 0;
    free(a);
}

static size_t bytes(const void *arg)
{
    const struct answer *a = arg;
    return sizeof *a + unique_count_bytes(&a->count);
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
        unique_render(&a->count, &a->inquiry.complete, a->uniques->config.key_seconds, &a->out);
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
    const char *note = is_csv ? unique_render_key_note(&a->count, a->uniques->config.key_seconds) : NULL;
    if (a->count.result == UNIQUE_DAMAGED) {
        inquiry_fail(&a->inquiry, SOURCE_UNAVAILABLE, a->count.error.text);
        return;
    }
    if (note)
        http_add_header(a->inquiry.req, "X-Millrace-Visitor-Key", "%s", note);
    if (a->count.result == UNIQUE_CUT)
        http_problem(a->inquiry.req, 422, "hours-dropped", "ask for whole UTC days, with timezone=UTC",
            "for a part of this time the archive has only sets by day; the hours were dropped, or days were "
            "imported");
    else
        etag_reply(a->inquiry.req, is_csv ? "text/csv; charset=utf-8" : "application/json",
            buf_bytes(&a->out), a->is_complete ? a->uniques->config.max_age : 0);
    answer_free(a);
}

static void on_notify(void *arg)
{
    struct uniques *u = arg;
    struct answer *a = u->thread ? work_thread_done(u->thread) : NULL;
    if (!a)
        return;
    u->running = NULL;
    if (!a->inquiry.req)
        answer_free(a);
    else if (a->is_finished)
        reply(a);
    else if (unique_count_make_room(&a->count) && !inquiry_hold(&a->inquiry, 0))
        inquiry_fail(&a->inquiry, SOURCE_STOPPED, NULL);
    else
        wait_for_turn(a);
    run_next(u);
}

static void begin_count(void *arg)
{
    struct answer *a = arg;
    uint64_t max_rows = a->uniques->config.max_rows;
    if (!unique_count_begin(&a->count, max_rows)) {
        http_problem(a->inquiry.req, 400, "bad-parameter", "ask for a longer unit or a shorter time",
            "more than %llu rows", (unsigned long long)max_rows);
        answer_free(a);
        return;
    }
    if (!inquiry_hold(&a->inquiry, 0)) {
        inquiry_fail(&a->inquiry, SOURCE_STOPPED, NULL);
        return;
    }
    a->is_complete = inquiry_settle(&a->inquiry, unique_render_end(&a->count), a->query.query.is_rounded);
    wait_for_turn(a);
    run_next(a->uniques);
}

static void on_restart(void *arg)
{
    struct answer *a = arg;
    for (size_t i = 0; i < a->count.n_cells; i++)
        set_pieces_reset(unique_count_pieces(&a->count, a->inquiry.n, i));
}

static bool on_record(void *arg, const struct record *r)
{
    struct answer *a = arg;
    const struct cells_question *q = a->inquiry.question;
    return set_pieces_add(unique_count_pieces(&a->count, a->inquiry.n, cells_at(q)),
        cells_is_archive(q) ? PIECES_ARCHIVE : PIECES_LIVE, cells_is_mapped(q), r);
}

static void on_archive(void *arg, const struct source_generation *g, struct generation *mapped)
{
    struct answer *a = arg;
    (void)g;
    set_pieces_map(unique_count_pieces(&a->count, a->inquiry.n, cells_at(a->inquiry.question)), mapped);
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
static enum inquiry_next ask(void *arg, size_t n, struct source_question *question, struct buf *target)
{
    const struct answer *a = arg;
    const struct query_set *s = &a->query.sets[n];
    if (n == a->query.n_sets)
        return INQUIRY_NEXT;
    const struct query_range range = {.ns = s->unique->ns,
        .stored = s->stored,
        .from = s->from,
        .to = s->to,
        .is_by_day = s->unique->by == PERIOD_DAY,
        .largest = largest_period(&a->query)};
    query_append_range(&a->query.query, &range, target);
    buf_append_str(target, "&members=1");
    question->ns = bytes_str(s->unique->ns);
    return INQUIRY_ASK;
}

/* Completeness is that of the set that has been counted for the shortest time. */
static bool end_set(void *arg)
{
    struct answer *a = arg;
    struct completeness *all = &a->inquiry.complete, *latest = &a->inquiry.latest;
    if (latest->counted_since > all->counted_since)
        all->counted_since = latest->counted_since;
    if (latest->is_not_counted && !all->is_not_counted)
        all->not_counted_by = latest->not_counted_by;
    all->is_not_counted |= latest->is_not_counted;
    if (all->is_not_counted)
        all->until = 0;
    return true;
}

static const struct inquiry_step step = {
    ask, end_set, {.on_restart = on_restart, .on_record = on_record, .on_archive = on_archive}};

static const struct inquiry_spec spec = {.steps = &step,
    .n_steps = 1,
    .bytes = bytes,
    .answer = begin_count,
    .free = answer_free,
    .hint = "ask for a shorter time or fewer keys, or raise --max-buffered"};

void uniques_start(struct uniques *u, struct http_request *req, const struct unique_query *q)
{
    struct answer *a = mem_zalloc(sizeof *a);
    *a = (struct answer){.magic = UNIQUE_MAGIC,
        .inquiry = {.spec = &spec,
            .cells = u->config.cells,
            .req = req,
            .allows_partial = q->query.allows_partial,
            .patience = q->query.patience,
            .query = &a->query.query,
            .again = u->config.again,
            .again_arg = u->config.arg},
        .uniques = u,
        .query = *q};
    unique_count_init(&a->count, &a->query, u->config.cells->n);
    inquiry_begin(&a->inquiry);
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
    struct answer *running = u->running;
    u->running = NULL;
    if (running)
        answer_free(running);
    assert(TAILQ_EMPTY(&u->waiting));
    loop_notify_free(&u->notify);
    free(u);
}
