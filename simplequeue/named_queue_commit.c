/* What is under way: appending it, and finishing or undoing it when the journal has told its outcome. */
#include "named_queue_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define REFUSED_MOST 3
#define KEEP_PIECES 4096
#define KEEP_RECORD 65536
#define FULL_RETRY (1 * USEC_PER_SEC)       /* puts are refused without asking the journal for so long */
#define RESERVE_EACH 96                     /* a frame with the removal of one message */
#define FRAME 64                            /* less than that of it is the frame's */
#define RESERVE_LEAST ((uint64_t)64 << 10)  /* for what else must be said: */
#define RESERVE_OTHERS ((uint64_t)48 << 10) /* removals on a full disk leave so much of it */

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
    (void)outcome;
    if (c->result != JOURNAL_OK) {
        queue_add_abort(core, o->first_id, o->n);
        named_queue_put_back(o->q, &o->ids, o->time);
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

/* A removal that was refused together with a put that found no room has room of its own: it is appended again. */
static bool append_again(struct op *o, const struct journal_commit *c)
{
    struct named_queue *q = o->q;
    if (c->result != JOURNAL_NO_SPACE || o->kind != OP_REMOVE || q->lacked_room ||
        o->refused++ >= REFUSED_MOST)
        return false;
    buf_clear(&q->record);
    queue_log_remove(&q->record, queue_state(q->core)->next_id, &o->ids);
    return op_append_record(o, q->now) == QUEUE_OK;
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

/* What removals leave in the journal on a full disk is for what lets go of its oldest segment. */
static bool bits_are_due(const struct op *o)
{
    const struct named_queue *q = o->q;
    return o->kind == OP_REMOVE && q->config.gone && q->full && q->room < q->record.len + RESERVE_OTHERS;
}

static void use_room(struct named_queue *q, const struct journal_append *a)
{
    size_t bytes = a->reserve ? 0 : q->record.len + FRAME;
    q->room -= bytes < q->room ? bytes : q->room;
}

static void note_space(struct op *o, const struct journal_commit *c)
{
    if (o->reserve && c->result == JOURNAL_OK && !c->duplicate)
        o->q->room = o->reserve;
    if (o->kind != OP_PUT && o->kind != OP_MOVE)
        return;
    o->q->full = c->result == JOURNAL_NO_SPACE;
    o->q->full_until = o->q->now.monotonic + FULL_RETRY;
    if (!o->q->full)
        o->q->kept_when_full = 0;
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
    note_space(o, c);
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
    if (append_again(o, c))
        return;
    struct journal_commit told = outcome_of(o, c);
    finish(o, &told);
    if (q->open_missing && c->result == JOURNAL_OK)
        named_queue_append_open(q);
    named_queue_tell_ready(q);
    named_queue_tend(q);
}

/* For removing one by one all that is held, or the oldest segment's: that gives its place back, which is enough for the next.
 * Where it is not, as with many messages put at once that are shorter than what removing each writes, there are the bits. */
size_t op_reserve(const struct named_queue *q, size_t n)
{
    const uint64_t *held = queue_state(q->core)->n;
    uint64_t segment = 4 * q->config.trim_step;
    for (int s = MESSAGE_PENDING; s < MESSAGE_STATES; s++)
        n += held[s];
    uint64_t removals = n * RESERVE_EACH;
    return RESERVE_LEAST + (size_t)(removals < segment ? removals : segment);
}

/* Block by block: between two messages may be ids that nobody has, by the thousand million. */
int named_queue_reserve_held(struct named_queue *q)
{
    uint64_t from = 1, id;
    q->bits_owed = true;
    for (; queue_next_held_id(q->core, from, &id); from = (id / GONE_BLOCK_IDS + 1) * GONE_BLOCK_IDS)
        if (gone_reserve(q->config.gone, id, id) != 0)
            return -1;
    q->bits_owed = false;
    return 0;
}

/* Where it is not for want of room that there is no file, as when there is no descriptor, the messages are taken all the same:
 * it may have passed by the next time. */
bool named_queue_reserve_bits(struct named_queue *q, size_t n, struct queue_now now)
{
    uint64_t first = queue_next_add(q->core);
    if (n == 0 || !q->config.gone)
        return true;
    if (!(q->bits_owed && named_queue_reserve_held(q) != 0) &&
        gone_reserve(q->config.gone, first, first + n - 1) == 0)
        return true;
    if (errno != ENOSPC && errno != EDQUOT) {
        q->bits_owed = true;
        return true;
    }
    q->full = true;
    q->full_until = now.monotonic + FULL_RETRY;
    return false;
}

/* What one append of very many messages needed is not kept for all that follow. */
static void shed(struct named_queue *q)
{
    if (q->pieces_cap > KEEP_PIECES) {
        free(q->pieces);
        q->pieces = NULL;
        q->pieces_cap = 0;
    }
    if (q->record.cap > KEEP_RECORD)
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
    if (bits_are_due(o) && remove_by_bits(o) == JOURNAL_OK) {
        op_finish(&(struct journal_commit){.result = JOURNAL_OK, .start = q->last_record}, o);
        return QUEUE_OK;
    }
    o->reserve = a->reserve;
    use_room(q, a);
    struct bytes *all = pieces(q, n + 1);
    all[0] = buf_bytes(&q->record);
    for (size_t i = 0; i < n; i++)
        all[i + 1] = texts[i];
    a->pieces = all;
    a->n_pieces = n + 1;
    enum journal_result r = journal_append(q->config.journal, a, now.wall, op_finish, o, mark);
    shed(q);
    if (r != JOURNAL_OK)
        q->under_way--;
    return result_of(r);
}

enum queue_result op_append_record(struct op *o, struct queue_now now)
{
    struct journal_append a = {0};
    return op_append(o, &a, NULL, 0, now, NULL);
}
