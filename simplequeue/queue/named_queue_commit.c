/* What is under way: appending it, and finishing or undoing it when the journal has told its outcome. */
#include "simplequeue/queue/named_queue_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define RETRIES_MAX 3
#define PIECES_KEPT_MAX 4096
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

static void put_finish(struct op *o, const struct journal_commit *c, struct queue_outcome *outcome)
{
    struct named_queue *q = o->q;
    named_queue_mark_decided(q, o);
    if (c->result != JOURNAL_OK || c->duplicate) {
        queue_add_abort(q->core, o->first_id, o->n);
        outcome->count = 0;
        return;
    }
    if (o->producer[0] && !q->config.journal)
        named_queue_mark_set(q, o->producer, o->next);
    if (o->n && o->time)
        queue_add_commit_delayed(q->core, o->first_id, o->n, c->start, o->time);
    else if (o->n)
        queue_add_commit(q->core, o->first_id, o->n, c->start);
    queue_count_puts(q->core, o->n);
    queue_note_depth(q->core);
}

static void remove_finish(struct op *o, const struct journal_commit *c, struct queue_outcome *outcome)
{
    (void)outcome;
    (c->result == JOURNAL_OK ? queue_remove : queue_abort)(o->q->core, &o->ids);
}

static void delay_finish(struct op *o, const struct journal_commit *c, struct queue_outcome *outcome)
{
    (void)outcome;
    if (c->result == JOURNAL_OK)
        queue_delay(o->q->core, &o->ids, o->time);
    else
        queue_abort(o->q->core, &o->ids);
}

static void bury_finish(struct op *o, const struct journal_commit *c, struct queue_outcome *outcome)
{
    (void)outcome;
    if (c->result == JOURNAL_OK)
        queue_bury(o->q->core, &o->ids, bytes_of(o->reason, o->reason_len), o->time);
    else
        queue_abort(o->q->core, &o->ids);
}

static void move_finish(struct op *o, const struct journal_commit *c, struct queue_outcome *outcome)
{
    struct queue *core = o->q->core;
    /* what asked for more in vain has its own room, and goes into that at once */
    bool asked = c->result == JOURNAL_NO_SPACE && o->is_due && o->reserve;
    (void)outcome;
    op_move_decided(o, asked ? JOURNAL_BUSY : c->result);
    if (c->result != JOURNAL_OK) {
        queue_add_abort(core, o->first_id, o->n);
        named_queue_put_back(o->q, &o->ids, asked ? o->now.monotonic : o->time);
        return;
    }
    queue_add_commit(core, o->first_id, o->n, c->start);
    queue_remove(core, &o->ids);
    queue_note_depth(core);
}

static void open_finish(struct op *o, const struct journal_commit *c, struct queue_outcome *outcome)
{
    struct named_queue *q = o->q;
    (void)outcome;
    q->opening = false;
    if (c->result == JOURNAL_OK)
        q->open_record = c->start;
    else
        q->open_missing = true;
}

static void keep_finish(struct op *o, const struct journal_commit *c, struct queue_outcome *outcome)
{
    (void)outcome;
    named_queue_kept(o, c);
}

typedef void finish_fn(struct op *o, const struct journal_commit *c, struct queue_outcome *outcome);
static finish_fn *const finishes[] = {
    [OP_PUT] = put_finish,
    [OP_REMOVE] = remove_finish,
    [OP_DELAY] = delay_finish,
    [OP_BURY] = bury_finish,
    [OP_MOVE] = move_finish,
    [OP_OPEN] = open_finish,
    [OP_KEEP] = keep_finish,
};

struct op *op_new(struct named_queue *q, enum op_kind kind, queue_done_fn *done, void *arg)
{
    struct op *o = q->spare;
    if (!o)
        o = mem_zalloc(sizeof *o);
    q->spare = o->retry;
    *o = (struct op){.q = q, .kind = kind, .done = done, .arg = arg};
    return o;
}

void op_free(struct op *o)
{
    id_ranges_free(&o->ids);
    free(o->items);
    buf_free(&o->texts);
    free(o->reason);
    o->retry = o->q->spare;
    o->q->spare = o;
}

void op_free_spare(struct named_queue *q)
{
    struct op *o;
    while ((o = q->spare)) {
        q->spare = o->retry;
        free(o);
    }
}

/* What was refused together with a put that found no room, or because it asked for more, has room of its own: it is appended again. */
static bool append_again(struct op *o, const struct journal_commit *c)
{
    struct named_queue *q = o->q;
    bool may = o->kind == OP_REMOVE ? !q->lacked_room : o->kind == OP_BURY || o->kind == OP_OPEN;
    if (c->result != JOURNAL_NO_SPACE || !may || o->refused++ >= RETRIES_MAX)
        return false;
    buf_clear(&q->record);
    if (o->kind == OP_REMOVE)
        queue_log_remove(&q->record, queue_state(q->core)->next_id, &o->ids);
    else if (o->kind == OP_OPEN)
        queue_log_open(&q->record, queue_state(q->core)->next_id, q->lease_base);
    else
        queue_log_bury(&q->record, q->core, &o->ids, o->time, bytes_of(o->reason, o->reason_len));
    return !op_lacks_room(o) && op_append_record(o, q->now) == QUEUE_OK;
}

/* Says by bits what a removal's record would. Once that has failed in another way than for want of room, nothing is said so any
 * more. */
static enum journal_result remove_by_bits(struct op *o)
{
    struct named_queue *q = o->q;
    if (!q->config.gone || q->failure[0])
        return JOURNAL_NO_SPACE;
    if (gone_set(q->config.gone, &o->ids) == 0)
        return JOURNAL_OK;
    if (errno == ENOSPC || errno == EDQUOT || errno == EMFILE || errno == ENFILE)
        return JOURNAL_NO_SPACE; /* or no descriptor to make the file with: either passes */
    snprintf(q->failure, sizeof q->failure, "gone: %s", strerror(errno));
    return JOURNAL_IO;
}

/* What the journal said of the op, or the bits where it had no room for a removal. */
static struct journal_commit outcome_of(struct op *o, const struct journal_commit *c)
{
    struct named_queue *q = o->q;
    struct journal_commit told = *c;
    if (o->kind != OP_REMOVE)
        return told;
    q->lacked_room = c->result == JOURNAL_NO_SPACE;
    if (q->lacked_room && (told.result = remove_by_bits(o)) == JOURNAL_OK)
        told.start = q->last_record;
    return told;
}

/* The op is decided: tells its outcome and that of the duplicates that wait for it, and frees it. */
static void finish(struct op *o, const struct journal_commit *c)
{
    struct named_queue *q = o->q;
    struct queue_outcome outcome = {
        .result = result_of(c->result),
        .duplicate = c->duplicate,
        .first_id = o->first_id,
        .count = o->n,
    };
    if (c->result == JOURNAL_OK && !c->duplicate)
        q->last_record = c->start;
    finishes[o->kind](o, c, &outcome);
    if (o->done)
        o->done(&outcome, o->arg);
    for (struct op *r = o->retries, *after; r; r = after) {
        after = r->retry;
        op_finish(&(struct journal_commit){.result = c->result, .duplicate = true}, r);
    }
    op_free(o);
}

void op_finish(const struct journal_commit *c, void *arg)
{
    struct op *o = arg;
    struct named_queue *q = o->q;
    q->under_way--;
    op_late_decided(o);
    op_note_room(o, c);
    if (append_again(o, c))
        return;
    struct journal_commit told = outcome_of(o, c);
    finish(o, &told);
    if (q->open_missing && c->result == JOURNAL_OK)
        named_queue_append_open(q);
    named_queue_notify_ready(q);
    named_queue_maintain(q);
}

/* What one append of very many messages needed is not kept for all that follow. */
static void shed(struct named_queue *q)
{
    if (q->pieces_cap > PIECES_KEPT_MAX) {
        free(q->pieces);
        q->pieces = NULL;
        q->pieces_cap = 0;
    }
    if (q->record.cap > RECORD_KEPT_MAX)
        buf_free(&q->record);
}

static struct bytes *pieces(struct named_queue *q, size_t n)
{
    if (n > q->pieces_cap) {
        q->pieces_cap = n;
        q->pieces = mem_realloc(q->pieces, n * sizeof *q->pieces);
    }
    return q->pieces;
}

enum queue_result op_append(struct op *o, struct journal_append *a, const struct bytes *texts, size_t n,
    struct queue_now now, uint64_t *mark)
{
    struct named_queue *q = o->q;
    q->now = now;
    q->under_way++;
    if (!q->config.journal) {
        op_finish(&(struct journal_commit){.result = JOURNAL_OK}, o);
        return QUEUE_OK;
    }
    if (op_bits_are_due(o) && remove_by_bits(o) == JOURNAL_OK) {
        o->reserve = 0;
        op_finish(&(struct journal_commit){.result = JOURNAL_OK, .start = q->last_record}, o);
        return QUEUE_OK;
    }
    if (a->reserve == 0)
        a->reserve = op_reserve_again(o);
    o->reserve = a->reserve;
    struct bytes *all = pieces(q, n + 1);
    size_t size = q->record.len;
    all[0] = buf_bytes(&q->record);
    for (size_t i = 0; i < n; i++) {
        all[i + 1] = texts[i];
        size += texts[i].len;
    }
    op_use_room(o, size);
    a->pieces = all;
    a->n_pieces = n + 1;
    enum journal_result r = journal_append(q->config.journal, a, now.wall, op_finish, o, mark);
    shed(q);
    if (r != JOURNAL_OK) {
        q->under_way--;
        op_give_room_back(o);
    }
    return result_of(r);
}

enum queue_result op_append_record(struct op *o, struct queue_now now)
{
    struct journal_append a = {0};
    return op_append(o, &a, NULL, 0, now, NULL);
}
