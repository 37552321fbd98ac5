/* A move appends buried messages, or delayed messages that are due, to the end of the queue, with new ids and in one
 * record. A discard removes buried messages. */
#include "simplequeue/queue/named_queue_internal.h"

#include <assert.h>
#include <stdlib.h>

/* On a full disk, a put and a MOVE in the same commit are refused together. MOVE_RETRY is therefore shorter than
 * RETRY_SPACE, the pause after a refused put. */
#define MOVE_RETRY (USEC_PER_SEC / 2)
#define DISCARD_MAX 100000 /* messages per REMOVE record of a discard */

/* Undoes a move: makes the messages delayed or buried again. Delayed messages become due at `retry_at`, in the former
 * order. */
static void put_back(struct named_queue *q, const struct id_ranges *ids, usec_t retry_at)
{
    for (struct id_walk w = {.ids = ids}; id_walk_next(&w);)
        queue_put_back(q->core, w.id, retry_at++);
}

/* Halves the size of moves after a refusal and doubles it after a commit. */
static void adapt_move_limit(struct op *o, enum journal_result r)
{
    struct named_queue *q = o->q;
    if (!o->is_due)
        return;
    q->moving--;
    if (r == JOURNAL_NO_SPACE)
        q->move_limit = o->texts.len / 2;
    else if (r == JOURNAL_OK)
        q->move_limit = q->move_limit < MOVE_BYTES_MAX / 2 ? 2 * q->move_limit + 1 : MOVE_BYTES_MAX;
}

static void move_finish(struct op *o, const struct journal_commit *c, struct queue_outcome *outcome)
{
    struct queue *core = o->q->core;
    (void)outcome;
    adapt_move_limit(o, c->result);
    if (c->result != JOURNAL_OK) {
        queue_add_abort(core, o->first_id, o->n);
        put_back(o->q, &o->ids, o->time);
        return;
    }
    queue_add_commit(core, o->first_id, o->n, c->start);
    queue_remove(core, &o->ids);
    queue_note_depth(core);
}

static const struct op_type move_type = {OP_MOVE, move_finish, NULL, false};

/* Appends the MOVE record. QUEUE_OK: the op belongs to the journal. QUEUE_LOADING: a message is spilled. Until the
 * commit, the queue contains the old messages and their copies. */
static enum queue_result try_move(struct op *o)
{
    struct named_queue *q = o->q;
    struct journal_append a = {0};
    size_t n = o->n, at = 0;
    for (; o->gathered < n; o->gathered++) {
        struct queue_record_item *item = &o->items[o->gathered];
        enum queue_result r = named_queue_prepare_message(q, item->ids.first);
        if (r != QUEUE_OK)
            return r;
        item->message = queue_message(q->core, item->ids.first, &item->tries);
        struct bytes line = bytes_without_line_end(item->message);
        if (o->as_lines && line.len)
            item->message = line;
        buf_append_bytes(&o->texts, item->message);
    }
    struct bytes *texts = mem_alloc(n * sizeof *texts);
    for (size_t i = 0; i < n; at += texts[i++].len)
        texts[i] = bytes_of(o->texts.ptr + at, o->items[i].message.len);
    uint64_t first = o->first_id = queue_add(q->core, texts, n);
    for (size_t i = 0; i < n; i++)
        queue_set_tries(q->core, first + i, o->items[i].tries);
    o->reserve = o->is_due ? 0 : reserve_for_all(q, SPARE_FOR_KEEP);
    buf_clear(&q->record);
    queue_log_move(&q->record, first, o->items, n);
    enum queue_result result = op_append(o, &a, texts, n, o->now, NULL);
    if (result != QUEUE_OK)
        queue_add_abort(q->core, first, n);
    free(texts);
    return result;
}

static void wait_for_load(struct op *o)
{
    struct op **tail = &o->q->gathering;
    while (*tail)
        tail = &(*tail)->next_gathering;
    o->next_gathering = NULL;
    *tail = o;
}

static void undo_move(struct op *o)
{
    adapt_move_limit(o, JOURNAL_BUSY);
    put_back(o->q, &o->ids, o->time);
    op_free(o);
}

static enum queue_result move(struct op *o, struct queue_now now)
{
    struct named_queue *q = o->q;
    o->items = mem_zalloc(o->ids.count * sizeof *o->items);
    for (struct id_walk w = {.ids = &o->ids}; id_walk_next(&w);)
        o->items[o->n++].ids = (struct id_range){w.id, w.id};
    if (o->texts.len) { /* a kick with a new text moves one message */
        (void)queue_message(q->core, o->items[0].ids.first, &o->items[0].tries);
        o->items[0].message = buf_bytes(&o->texts);
        o->gathered = 1;
    }
    o->now = now;
    o->time = now.monotonic + MOVE_RETRY;
    enum queue_result r = try_move(o);
    if (r == QUEUE_LOADING)
        wait_for_load(o);
    else if (r != QUEUE_OK)
        undo_move(o);
    return r == QUEUE_LOADING ? QUEUE_OK : r;
}

void moves_resume(struct named_queue *q, enum queue_result result)
{
    struct op *waiting = q->gathering, *after;
    q->gathering = NULL;
    for (struct op *o = waiting; o; o = after) {
        after = o->next_gathering;
        enum queue_result r = result == QUEUE_OK ? try_move(o) : result;
        if (r == QUEUE_LOADING) {
            wait_for_load(o);
        } else if (r != QUEUE_OK) {
            struct queue_outcome outcome = {.result = r};
            if (o->done)
                o->done(&outcome, o->arg);
            undo_move(o);
        }
    }
}

/* Makes up to max_items buried messages of the range busy. Several messages have at most max_bytes bytes. Returns false
 * if a limit is reached. */
static bool set_aside_buried(
    struct op *o, struct id_range range, size_t max_items, size_t max_bytes, size_t *bytes)
{
    struct queue *core = o->q->core;
    const struct queue_burial *burial;
    uint64_t id;
    for (uint64_t from = range.first; queue_next_buried(core, from, &id, &burial) && id <= range.last;
         from = id + 1) {
        *bytes += queue_message(core, id, NULL).len;
        if (o->ids.count == max_items || (o->ids.count && *bytes > max_bytes))
            return false;
        queue_set_aside(core, id);
        id_ranges_add(&o->ids, id);
    }
    return true;
}

enum queue_result named_queue_kick(struct named_queue *q, const struct queue_kick *what, struct queue_now now,
    queue_done_fn *done, void *arg)
{
    size_t bytes = 0;
    if (reserve_waits(q, OP_MOVE, now))
        return QUEUE_NO_SPACE;
    struct op *o = op_new(q, &move_type, done, arg);
    o->as_lines = what->as_lines;
    for (size_t i = 0;
         i < what->n && set_aside_buried(o, what->ids[i], what->max_items, MOVE_BYTES_MAX, &bytes); i++)
        ;
    struct amount in = {1, what->text.len}, out = {1, bytes};
    bool has_room = in.bytes <= out.bytes || limits_have_room(q, in, out);
    if (o->ids.count && has_room) {
        buf_append_bytes(&o->texts, what->text);
        return move(o, now);
    }
    enum queue_result r = o->ids.count ? named_queue_why_full(q, in.n, in.bytes) : QUEUE_NOTHING;
    put_back(q, &o->ids, 0);
    op_free(o);
    return r;
}

static void discard_encode(struct op *o)
{
    queue_log_remove(&o->q->record, queue_state(o->q->core)->next_id, &o->ids);
}

static void discard_finish(struct op *o, const struct journal_commit *c, struct queue_outcome *outcome)
{
    (void)outcome;
    if (c->result == JOURNAL_OK)
        queue_remove(o->q->core, &o->ids);
    else
        put_back(o->q, &o->ids, 0);
}

enum queue_result named_queue_discard(struct named_queue *q, const struct id_range *ids, size_t n,
    struct queue_now now, queue_done_fn *done, void *arg)
{
    static const struct op_type type = {OP_REMOVE, discard_finish, discard_encode, true};
    size_t bytes = 0;
    if (reserve_waits(q, OP_REMOVE, now))
        return QUEUE_NO_SPACE;
    struct op *o = op_new(q, &type, done, arg);
    for (size_t i = 0; i < n && set_aside_buried(o, ids[i], DISCARD_MAX, SIZE_MAX, &bytes); i++)
        ;
    o->n = o->ids.count;
    enum queue_result r = o->n ? op_append_record(o, now) : QUEUE_NOTHING;
    if (r != QUEUE_OK) {
        put_back(q, &o->ids, 0);
        op_free(o);
    }
    return r;
}

void named_queue_move_due(struct named_queue *q, struct queue_now now)
{
    if (q->move_limit < MOVE_BYTES_MAX) {
        /* A full disk has refused a MOVE. If no other MOVE is in progress, try again with at most move_limit bytes. The
         * other messages become due later, in the same order. */
        struct id_ranges few = {0};
        size_t bytes = 0;
        usec_t later = now.monotonic + MOVE_RETRY + (usec_t)q->due.count;
        for (struct id_walk w = {.ids = &q->due}; id_walk_next(&w);) {
            size_t len = queue_message(q->core, w.id, NULL).len;
            if (q->moving || (few.count && bytes + len > q->move_limit)) {
                queue_put_back(q->core, w.id, later++);
                continue;
            }
            bytes += len;
            id_ranges_add(&few, w.id);
        }
        id_ranges_free(&q->due);
        q->due = few;
    }
    q->due_bytes = 0;
    if (q->due.count == 0)
        return;
    struct op *o = op_new(q, &move_type, NULL, NULL);
    o->is_due = true;
    o->ids = q->due;
    q->due = (struct id_ranges){0};
    q->moving++;
    move(o, now);
}

void named_queue_timer(struct named_queue *q, const struct queue_timer *timer, struct queue_now now)
{
    if (timer->kind != QUEUE_TIMER_DELAY) {
        if (timer->kind == QUEUE_TIMER_LEASE)
            queue_lease_expire(q->core, timer->id);
        else
            queue_resume(q->core);
        notify_ready(q);
        return;
    }
    bool waits = queue_set_aside(q->core, timer->id);
    assert(waits);
    (void)waits;
    q->due_bytes += queue_message(q->core, timer->id, NULL).len;
    id_ranges_add(&q->due, timer->id);
    if (q->due_bytes > MOVE_BYTES_MAX)
        named_queue_move_due(q, now);
}
