#include "simplequeue/queue/named_queue_internal.h"

#include <stdio.h>

static void put_finish(struct op *o, const struct journal_commit *c, struct queue_outcome *outcome)
{
    struct named_queue *q = o->q;
    producer_mark_decided(o);
    if (c->result != JOURNAL_OK || c->duplicate) {
        queue_add_abort(q->core, o->first_id, o->n);
        outcome->count = 0;
        return;
    }
    if (o->producer[0] && !q->config.journal)
        producer_mark_set(q, o->producer, o->next);
    if (o->n && o->time)
        queue_add_commit_delayed(q->core, o->first_id, o->n, c->start, o->time);
    else if (o->n)
        queue_add_commit(q->core, o->first_id, o->n, c->start);
    queue_count_puts(q->core, o->n);
    queue_note_depth(q->core);
}

/* Judges the put by its mark before the journal does: a duplicate needs neither ids nor space. Without a journal nothing else
 * judges it. */
static enum queue_result check_mark(const struct named_queue *q, const struct queue_put *put,
    const char *producer, bool *duplicate, uint64_t *mark)
{
    uint64_t expected = producer_mark_expected(q, producer);
    *duplicate = expected >= put->next;
    if (!*duplicate && expected != put->mark) {
        if (mark)
            *mark = named_queue_mark(q, producer, NULL);
        return QUEUE_CONFLICT;
    }
    return producer_marks_are_full(q, producer) ? QUEUE_TOO_MANY_PRODUCERS : QUEUE_OK;
}

/* A duplicate shares the outcome of the put that moved the mark. It does not reach the journal: if the original were refused
 * meanwhile, the journal would take the retry as new, without its messages. */
static void put_duplicate(struct op *o)
{
    struct op *original = o->q->oldest;
    while (original && (strcmp(original->producer, o->producer) != 0 || original->next < o->next))
        original = original->newer;
    o->q->under_way++;
    if (!original) {
        op_finish(&(struct journal_commit){.result = JOURNAL_OK, .duplicate = true}, o);
        return;
    }
    o->retry = original->retries;
    original->retries = o;
}

static enum queue_result put_new(
    struct op *o, const struct queue_put *put, struct amount in, struct queue_now now, uint64_t *mark)
{
    struct named_queue *q = o->q;
    struct journal_append a = {.producer = put->producer, .mark = put->mark, .next = put->next};
    uint64_t first_id = put->n ? queue_add(q->core, put->messages, put->n) : queue_state(q->core)->next_id;
    size_t n = put->n;
    o->n = n;
    o->first_id = first_id;
    o->time = put->delay ? now.monotonic + put->delay : 0;
    producer_mark_add(o);
    if (put->delay)
        reserve_expect_move(o, in);
    o->reserve = reserve_for_all(q, SPARE_OF_PUT);
    buf_clear(&q->record);
    if (q->config.journal && put->delay)
        queue_log_put_late(&q->record, first_id, put->messages, n, now.wall + put->delay);
    else if (q->config.journal)
        queue_log_put(&q->record, first_id, put->messages, n);
    enum queue_result r = op_append(o, &a, put->messages, n, now, mark);
    if (r != QUEUE_OK) {
        queue_add_abort(q->core, first_id, n);
        reserve_forget_move(o);
        producer_mark_decided(o);
        op_free(o);
    }
    return r;
}

enum queue_result named_queue_put(struct named_queue *q, const struct queue_put *put, struct queue_now now,
    queue_done_fn *done, void *arg, uint64_t *mark)
{
    static const struct op_type type = {OP_PUT, put_finish, NULL, false};
    bool duplicate = false;
    struct amount in = {.n = put->n};
    struct op *o = op_new(q, &type, done, arg);
    enum queue_result r = QUEUE_OK;
    for (size_t i = 0; i < put->n; i++)
        in.bytes += put->messages[i].len;
    if (put->producer.len) {
        snprintf(o->producer, sizeof o->producer, "%.*s", (int)put->producer.len, put->producer.ptr);
        o->next = put->next;
        r = check_mark(q, put, o->producer, &duplicate, mark);
    }
    if (duplicate) {
        put_duplicate(o);
        return QUEUE_OK;
    }
    if (r == QUEUE_OK && in.n && !limits_have_room(q, in, (struct amount){0}))
        r = named_queue_why_full(q, in.n, in.bytes);
    else if (r == QUEUE_OK && reserve_waits(q, OP_PUT, now))
        r = QUEUE_NO_SPACE;
    if (r == QUEUE_OK)
        return put_new(o, put, in, now, mark);
    op_free(o);
    return r;
}
