#include "simplequeue/queue/named_queue_internal.h"

#include <stdlib.h>

#define RETRY_SPACE (1 * USEC_PER_SEC)
#define RETRIES_MAX 3
#define PIECES_KEPT_MAX 4096 /* a larger array is freed after the append */
#define RECORD_KEPT_MAX 65536

static enum queue_result result_of(enum journal_result r)
{
    switch (r) {
    case JOURNAL_OK:
        return QUEUE_OK;
    case JOURNAL_CONFLICT:
        return QUEUE_CONFLICT;
    case JOURNAL_TOO_MANY_PRODUCERS:
        return QUEUE_TOO_MANY_PRODUCERS;
    case JOURNAL_TOO_LARGE:
        return QUEUE_TOO_LARGE;
    case JOURNAL_MARK_BUSY:
        return QUEUE_MARK_BUSY;
    case JOURNAL_BUSY:
        return QUEUE_OVERLOADED;
    case JOURNAL_NO_SPACE:
        return QUEUE_NO_SPACE;
    case JOURNAL_CLOSED:
        return QUEUE_CLOSED;
    default:
        return QUEUE_LATCHED;
    }
}

struct op *op_new(struct named_queue *q, const struct op_type *type, queue_done_fn *done, void *arg)
{
    struct op *o = mem_alloc(sizeof *o);
    *o = (struct op){.q = q, .type = type, .done = done, .arg = arg};
    return o;
}

void op_free(struct op *o)
{
    id_ranges_free(&o->ids);
    free(o->items);
    buf_free(&o->texts);
    free(o->reason);
    free(o);
}

enum queue_result op_append(struct op *o, struct journal_append *a, const struct bytes *texts, size_t n,
    struct queue_now now, uint64_t *mark)
{
    struct named_queue *q = o->q;
    q->now = now;
    q->under_way++;
    if (!q->config.journal) {
        op_finish(&(struct journal_commit){.result = JOURNAL_OK}, o);
        notify_ready(q);
        return QUEUE_OK;
    }
    ARRAY_ROOM(q->pieces, q->pieces_cap, n + 1);
    q->pieces[0] = buf_bytes(&q->record);
    if (n)
        memcpy(q->pieces + 1, texts, n * sizeof *texts);
    a->pieces = q->pieces;
    a->n_pieces = n + 1;
    a->reserve = (size_t)o->reserve;
    enum journal_result r = journal_append(q->config.journal, a, now.wall, op_finish, o, mark);
    if (q->pieces_cap > PIECES_KEPT_MAX) {
        free(q->pieces);
        q->pieces = NULL;
        q->pieces_cap = 0;
    }
    if (q->record.cap > RECORD_KEPT_MAX)
        buf_free(&q->record);
    if (r != JOURNAL_OK)
        q->under_way--;
    return result_of(r);
}

enum queue_result op_append_record(struct op *o, struct queue_now now)
{
    struct journal_append a = {0};
    buf_clear(&o->q->record);
    o->type->encode(o);
    if (o->moves_mark && !o->refused && o->q->config.journal) {
        a.producer = bytes_str(o->producer);
        a.mark = journal_mark(o->q->config.journal, a.producer, NULL);
        a.next = o->next;
    }
    enum queue_result r = op_append(o, &a, NULL, 0, now, NULL);
    if (r == QUEUE_OK || r == QUEUE_CLOSED || r == QUEUE_LATCHED || !a.producer.len)
        return r;
    a = (struct journal_append){0}; /* the mark may be too low */
    producer_mark_decided(o);
    return op_append(o, &a, NULL, 0, now, NULL);
}

void notify_ready(struct named_queue *q)
{
    q->notify_again = q->config.on_ready != NULL;
    if (q->notifying)
        return;
    q->notifying = true;
    while (q->notify_again) {
        q->notify_again = false;
        q->config.on_ready(q, q->config.on_ready_arg);
    }
    q->notifying = false;
}

void op_finish(const struct journal_commit *c, void *arg)
{
    struct op *o = arg;
    struct named_queue *q = o->q;
    enum op_kind kind = o->type->kind;
    q->under_way--;
    reserve_forget_move(o);
    if (c->result == JOURNAL_OK && kind == OP_PUT && !c->duplicate)
        q->full = false;
    /* The journal refuses all appends of a commit together. Another op of the commit may therefore be the reason why an
     * op without reserved space is refused. A refused MOVE always counts, because an unclean stop may have lost its
     * reserved space. */
    if (c->result == JOURNAL_NO_SPACE && (o->reserve || kind == OP_MOVE)) {
        q->full = true;
        if (o->reserve)
            q->retry_space[kind] = q->now.monotonic + RETRY_SPACE;
    }
    /* Another op in the same commit may be the reason for the refusal. */
    if (c->result == JOURNAL_NO_SPACE && o->type->repeats && o->refused++ < RETRIES_MAX &&
        op_append_record(o, q->now) == QUEUE_OK)
        return;
    q->committed = c->result == JOURNAL_OK;
    if (q->committed && !c->duplicate)
        q->last_record = c->start;
    struct queue_outcome outcome = {
        .result = result_of(c->result),
        .duplicate = c->duplicate,
        .first_id = o->first_id,
        .count = o->n,
    };
    o->type->finish(o, c, &outcome);
    if (o->done)
        o->done(&outcome, o->arg);
    for (struct op *r = o->retries, *after; r; r = after) {
        after = r->retry;
        op_finish(&(struct journal_commit){.result = c->result, .duplicate = true}, r);
    }
    op_free(o);
}
