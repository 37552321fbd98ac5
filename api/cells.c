#include "api/cells.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

/* The question to one cell. */
struct part {
    struct cells_question *whole;
    struct question *question; /* NULL: the cell has answered, or is missing */
    size_t held;               /* bytes that the question stores */
    int restarts;
    bool has_passed; /* records were passed on since the last restart */
};

struct cells_question {
    struct cells *cells;
    struct source_question spec;
    char *target;
    size_t at;        /* cell of the callback in progress */
    size_t n_answers; /* number of cells whose completeness is in `complete` */
    bool is_refused;  /* on_refused was called */
    struct completeness complete;
    struct part parts[];
};

/* Counts of quarter hours of a sum need those of every cell. */
static int64_t later_quarters(int64_t a, int64_t b)
{
    return a == 0 || b == 0 ? 0 : a > b ? a : b;
}

int64_t cells_quarters_since(const struct cells *c)
{
    int64_t since = sources_quarters_since(c->list[0].sources);
    for (size_t i = 1; i < c->n; i++)
        since = later_quarters(since, sources_quarters_since(c->list[i].sources));
    return since;
}

size_t cells_at(const struct cells_question *q)
{
    return q->at;
}

size_t cells_source(const struct cells_question *q)
{
    return q->at * SOURCES_MAX + source_at(q->parts[q->at].question);
}

bool cells_is_archive(const struct cells_question *q)
{
    return source_at(q->parts[q->at].question) + 1 < sources_count(q->cells->list[q->at].sources);
}

bool cells_is_mapped(const struct cells_question *q)
{
    return cells_is_archive(q) && sources_local(q->cells->list[q->at].sources);
}

void completeness_miss(struct completeness *c, const struct source_missing *missing)
{
    size_t at = 0;
    while (at < c->n_missing && strcmp(c->missing[at].name, missing->name) != 0)
        at++;
    c->missing[at] = *missing;
    c->n_missing += at == c->n_missing;
}

static void add_missing(struct completeness *all, const struct completeness *c)
{
    for (size_t i = 0; i < c->n_missing; i++)
        completeness_miss(all, &c->missing[i]);
}

/* Adds the completeness of a cell's answer (rule 5). */
static void add_answer(struct cells_question *q, const struct cell *cell, const struct completeness *c)
{
    struct completeness *all = &q->complete;
    if (c->until < all->until) {
        all->until = c->until;
        const char *cell_name = c->held_by[0] ? cell->name : "";
        snprintf(all->held_by, sizeof all->held_by, "%.*s%s%.*s", NAME_LEN_MAX, cell_name,
            *cell_name ? "/" : "", 2 * NAME_LEN_MAX + 1, c->held_by);
    }
    if (c->counted_since > all->counted_since)
        all->counted_since = c->counted_since;
    if (c->is_not_counted && !all->is_not_counted)
        all->not_counted_by = cell->name;
    all->is_not_counted |= c->is_not_counted;
    all->quarters_since =
        q->n_answers == 0 ? c->quarters_since : later_quarters(all->quarters_since, c->quarters_since);
    coarse_counter_join(&all->coarse, &c->coarse);
    add_missing(all, c);
    q->n_answers++;
}

/* Ends a part without an answer. */
static void drop(struct part *p)
{
    struct question *open = p->question;
    p->question = NULL; /* so that on_done has no effect */
    p->held = 0;
    if (open)
        source_cancel(open);
}

static bool is_missing(const struct part *p)
{
    const struct cells_question *q = p->whole;
    return sources_are_missing(q->cells->list[p - q->parts].sources, &q->complete);
}

static void finish(struct cells_question *q, enum source_result result, const char *why)
{
    for (size_t i = 0; i < q->cells->n; i++) {
        drop(&q->parts[i]);
        if (result == SOURCE_OK && is_missing(&q->parts[i])) {
            q->complete.until = 0;
            q->complete.held_by[0] = '\0';
        }
    }
    q->spec.on_done(q->spec.arg, result, &q->complete, why);
    free(q->target);
    free(q);
}

static struct cells_question *enter(struct part *p)
{
    p->whole->at = (size_t)(p - p->whole->parts);
    return p->whole;
}

static bool on_record(void *arg, const struct record *r)
{
    struct part *p = arg;
    const struct cells_question *q = enter(p);
    p->has_passed = true;
    return q->spec.on_record(q->spec.arg, r);
}

static void on_source(void *arg, struct bytes next)
{
    struct part *p = arg;
    const struct cells_question *q = enter(p);
    p->has_passed = true;
    q->spec.on_source(q->spec.arg, next);
}

static void on_refused(void *arg, struct bytes problem)
{
    struct cells_question *q = enter(arg);
    q->is_refused = true;
    q->spec.on_refused(q->spec.arg, problem);
}

static bool on_recall(void *arg, const struct source_generation *g)
{
    struct part *p = arg;
    const struct cells_question *q = enter(p);
    bool is_kept = q->spec.on_recall(q->spec.arg, g);
    p->has_passed |= is_kept;
    return is_kept;
}

static void on_archive(void *arg, const struct source_generation *g, struct generation *mapped)
{
    struct part *p = arg;
    const struct cells_question *q = enter(p);
    p->has_passed = true;
    q->spec.on_archive(q->spec.arg, g, mapped);
}

static bool on_piece(void *arg, size_t held)
{
    struct part *p = arg;
    const struct cells_question *q = enter(p);
    size_t sum = 0;
    p->held = held;
    for (size_t i = 0; i < q->cells->n; i++)
        sum += q->parts[i].held;
    return q->spec.on_piece(q->spec.arg, sum);
}

static void on_restart(void *arg);
static void on_done(
    void *arg, enum source_result result, const struct completeness *complete, const char *why);

static void ask(struct part *p)
{
    struct cells_question *q = enter(p);
    struct source_question question = q->spec;
    question.target = q->target;
    question.arg = p;
    question.without = &q->complete;
    question.restarts = p->restarts;
    question.on_restart = on_restart;
    question.on_record = on_record;
    question.on_source = q->spec.on_source ? on_source : NULL;
    question.on_refused = q->spec.on_refused ? on_refused : NULL;
    question.on_recall = q->spec.on_recall && q->cells->n == 1 ? on_recall : NULL;
    question.on_archive = q->spec.on_archive ? on_archive : NULL;
    question.on_piece = on_piece;
    question.on_done = on_done;
    p->has_passed = false;
    p->question = source_ask(q->cells->list[q->at].sources, &question);
}

/* Omits the sources of the other cells that are late too (rule 3). */
static void omit_late(const struct part *p)
{
    struct cells_question *q = p->whole;
    struct source_missing late;
    for (size_t i = 0; i < q->cells->n; i++) {
        struct part *other = &q->parts[i];
        if (other == p || !other->question || !source_give_up_late(other->question, &late))
            continue;
        completeness_miss(&q->complete, &late);
        drop(other);
    }
}

/* Discards all records, and asks the other cells again (rule 3). */
static void ask_others_again(struct part *p)
{
    struct cells_question *q = p->whole;
    q->n_answers = 0;
    q->complete.until = INT64_MAX;
    q->complete.held_by[0] = '\0';
    q->complete.counted_since = 0;
    q->complete.is_not_counted = false;
    q->complete.not_counted_by = NULL;
    q->complete.coarse = (struct coarse_counter){0};
    if (q->spec.on_restart)
        q->spec.on_restart(q->spec.arg);
    for (size_t i = 0; i < q->cells->n; i++) {
        if (&q->parts[i] == p)
            continue;
        drop(&q->parts[i]);
        if (!is_missing(&q->parts[i]))
            ask(&q->parts[i]);
    }
}

static void on_restart(void *arg)
{
    struct part *p = arg;
    bool has_passed = p->has_passed;
    add_missing(&p->whole->complete, source_progress(p->question, &p->restarts));
    p->has_passed = false;
    if (!has_passed)
        return;
    omit_late(p);
    ask_others_again(p);
}

/* Goes on without the cell, whose question has failed. Returns false if no cell is left. */
static bool omit(struct part *p, const char *why)
{
    struct cells_question *q = p->whole;
    struct sources *s = q->cells->list[p - q->parts].sources;
    for (size_t i = 0; i < sources_count(s) && !is_missing(p); i++) {
        const struct source_missing missing = sources_fail(s, i, SOURCE_READS, why);
        completeness_miss(&q->complete, &missing);
    }
    if (p->has_passed)
        omit_late(p);
    size_t n_missing = 0;
    for (size_t i = 0; i < q->cells->n; i++)
        n_missing += is_missing(&q->parts[i]);
    if (n_missing == q->cells->n)
        return false;
    if (p->has_passed)
        ask_others_again(p);
    return true;
}

static void on_done(
    void *arg, enum source_result result, const struct completeness *complete, const char *why)
{
    struct part *p = arg;
    if (!p->question)
        return;
    struct cells_question *q = enter(p);
    bool may_omit =
        result == SOURCE_UNAVAILABLE && q->spec.allows_partial && !q->is_refused && q->cells->n > 1;
    p->question = NULL;
    p->held = 0;
    q->complete.remedy = complete->remedy;
    if (result == SOURCE_OK)
        add_answer(q, &q->cells->list[q->at], complete);
    else
        add_missing(&q->complete, complete);
    if (result != SOURCE_OK && (!may_omit || !omit(p, why))) {
        finish(q, result, why);
        return;
    }
    size_t open = 0;
    for (size_t i = 0; i < q->cells->n; i++)
        open += q->parts[i].question != NULL;
    if (open == 0)
        finish(q, SOURCE_OK, why);
}

struct cells_question *cells_ask(struct cells *c, const struct source_question *question)
{
    struct cells_question *q = mem_zalloc(sizeof *q + c->n * sizeof *q->parts);
    q->cells = c;
    q->spec = *question;
    q->target = mem_strdup(question->target);
    q->complete.until = INT64_MAX;
    if (question->without)
        add_missing(&q->complete, question->without);
    for (size_t i = 0; i < c->n; i++) {
        q->parts[i].whole = q;
        if (!is_missing(&q->parts[i]))
            ask(&q->parts[i]);
    }
    return q;
}

void cells_cancel(struct cells_question *q)
{
    finish(q, SOURCE_CANCELLED, "");
}
