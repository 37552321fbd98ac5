/* Puts. */
#include "simplequeue/queue/named_queue_internal.h"

#include <stdio.h>

static void put_finish(struct op *o, const struct journal_commit *c, struct queue_outcome *outcome)
{
    struct named_queue *q = o->q;
    producer_mark_finish(o, c);
    if (c->result != JOURNAL_OK || c->duplicate) {
        queue_add_abort(q->core, o->first_id, o->n);
        outcome->count = 0;
        return;
    }
    if (o->n && o->time)
        queue_add_commit_delayed(q->core, o->first_id, o->n, c->start, o->time);
    else if (o->n)
        queue_add_commit(q->core, o->first_id, o->n, c->start);
    queue_count_puts(q->core, o->n);
    queue_note_depth(q->core);
}

/* A duplicate gets the result of the put in progress that raises the mark. A duplicate is not passed to the journal,
 * because after a refusal of the first put, the journal would accept the duplicate without its messages. */
static void put_again(struct op *o)
{
    struct named_queue *q = o->q;
    struct op *original = q->oldest;
    while (original && (strcmp(original->producer, o->producer) != 0 || original->next < o->next))
        original = original->newer;
    q->under_way++;
    if (original) {
        o->retry = original->retries;
        original->retries = o;
    } else {
        op_finish(&(struct journal_commit){.result = JOURNAL_OK, .duplicate = true}, o);
    }
}

/* Checks the mark of the put before the journal checks it, because a duplicate needs neither ids nor space. Without a
 * journal, only this function checks the mark. */
static enum queue_result check_mark(
    struct op *o, const struct queue_put *put, uint64_t *mark, bool *duplicate)
{
    struct named_queue *q = o->q;
    snprintf(o->producer, sizeof o->producer, "%.*s", (int)put->producer.len, put->producer.ptr);
    o->next = put->next;
    o->sets_mark = put->sets_mark;
    /* `expected` is the mark after all operations in progress are committed. */
    const struct op *last = producer_newest_put(q, o->producer);
    uint64_t expected = last ? last->next : named_queue_mark(q, o->producer, NULL);
    if (last && (put->sets_mark || last->sets_mark))
        return QUEUE_MARK_BUSY;
    *duplicate = !put->sets_mark && expected >= put->next;
    if (!*duplicate && !put->sets_mark && expected != put->mark) {
        if (mark)
            *mark = named_queue_mark(q, o->producer, NULL);
        return QUEUE_CONFLICT;
    }
    return *duplicate || producer_has_room(q, o->producer) ? QUEUE_OK : QUEUE_TOO_MANY_PRODUCERS;
}

enum queue_result named_queue_put(struct named_queue *q, const struct queue_put *put, struct queue_now now,
    queue_done_fn *done, void *arg, uint64_t *mark)
{
    static const struct op_type type = {OP_PUT, put_finish, NULL, false};
    struct journal_append a = {.producer = put->producer,
        .tag = put->opening,
        .mark = put->mark,
        .next = put->next,
        .sets_mark = put->sets_mark};
    struct amount in = {.n = put->n};
    struct op *o = op_new(q, &type, done, arg);
    bool duplicate = false;
    for (size_t i = 0; i < put->n; i++)
        in.bytes += put->messages[i].len;
    enum queue_result r = put->producer.len ? check_mark(o, put, mark, &duplicate) : QUEUE_OK;
    if (duplicate) {
        put_again(o);
        return QUEUE_OK;
    }
    if (r == QUEUE_OK && in.n && !limits_have_room(q, in, (struct amount){0}))
        r = named_queue_why_full(q, in.n, in.bytes);
    else if (r == QUEUE_OK && reserve_waits(q, OP_PUT, now))
        r = QUEUE_NO_SPACE;
    if (r != QUEUE_OK) {
        op_free(o);
        return r;
    }
    o->n = put->n;
    o->first_id = put->n ? queue_add(q->core, put->messages, put->n) : queue_state(q->core)->next_id;
    o->time = put->delay ? now.monotonic + put->delay : 0;
    if (o->producer[0]) /* lets producer_newest_put find this put until producer_mark_decided */
        producer_mark_begin(o);
    if (put->delay)
        reserve_expect_move(o, in);
    o->reserve = reserve_for_all(q, SPARE_OF_PUT);
    buf_clear(&q->record);
    if (q->config.journal && put->delay)
        queue_log_put_late(&q->record, o->first_id, put->messages, put->n, now.wall + put->delay);
    else if (q->config.journal)
        queue_log_put(&q->record, o->first_id, put->messages, put->n);
    r = op_append(o, &a, put->messages, put->n, now, mark);
    if (r != QUEUE_OK) {
        queue_add_abort(q->core, o->first_id, o->n);
        reserve_forget_move(o);
        producer_mark_decided(o);
        op_free(o);
    }
    return r;
}
