/* What becomes of messages that were taken, leased, delayed or buried. */
#include "named_queue_internal.h"

#include <assert.h>
#include <stdlib.h>

#define MOVE_RETRY (1 * USEC_PER_SEC)
#define MOVE_MAX_BYTES (1u << 20) /* of messages kicked in one record, but at least one message */

void named_queue_tell_ready(struct named_queue *q)
{
    if (q->config.on_ready)
        q->config.on_ready(q, q->config.on_ready_arg);
}

void named_queue_put_back(struct named_queue *q, const struct id_ranges *ids, usec_t retry_at)
{
    for (size_t i = 0; i < ids->n; i++)
        for (uint64_t id = ids->at[i].first; id <= ids->at[i].last; id++)
            queue_put_back(q->core, id, retry_at);
}

/* Appends the record for the op's busy messages; on refusal they are what they were. */
static enum queue_result settle_busy(struct op *o, struct queue_now now)
{
    o->n = o->ids.count;
    enum queue_result r = op_append_record(o, now);
    if (r != QUEUE_OK) {
        queue_abort(o->q->core, &o->ids);
        op_free(o);
    }
    return r;
}

enum queue_result named_queue_remove(
    struct named_queue *q, struct id_ranges *taken, struct queue_now now, queue_done_fn *done, void *arg)
{
    struct op *o = op_new(q, OP_REMOVE, done, arg);
    o->ids = *taken;
    *taken = (struct id_ranges){0};
    buf_clear(&q->record);
    queue_log_remove(&q->record, queue_state(q->core)->next_id, &o->ids);
    return settle_busy(o, now);
}

void named_queue_give_back(struct named_queue *q, struct id_ranges *ids)
{
    queue_abort(q->core, ids);
    id_ranges_free(ids);
    named_queue_tell_ready(q);
}

/* An op over what of `ids` is under the lease; NULL when nothing is. */
static struct op *hold(struct named_queue *q, enum op_kind kind, uint64_t lease, const struct id_range *ids,
    size_t n, queue_done_fn *done, void *arg)
{
    struct id_ranges held = {0};
    if (queue_hold(q->core, lease, ids, n, &held) == 0)
        return NULL;
    struct op *o = op_new(q, kind, done, arg);
    o->ids = held;
    buf_clear(&q->record);
    return o;
}

enum queue_result named_queue_ack(struct named_queue *q, uint64_t lease, const struct id_range *ids, size_t n,
    struct queue_now now, queue_done_fn *done, void *arg)
{
    struct op *o = hold(q, OP_REMOVE, lease, ids, n, done, arg);
    if (!o)
        return QUEUE_LEASE_LOST;
    queue_log_remove(&q->record, queue_state(q->core)->next_id, &o->ids);
    return settle_busy(o, now);
}

enum queue_result named_queue_delay(struct named_queue *q, uint64_t lease, const struct id_range *ids,
    size_t n, usec_t delay, struct queue_now now, queue_done_fn *done, void *arg)
{
    struct op *o = hold(q, OP_DELAY, lease, ids, n, done, arg);
    if (!o)
        return QUEUE_LEASE_LOST;
    queue_bar(q->core, &o->ids);
    o->time = now.monotonic + delay;
    queue_log_delay(&q->record, q->core, &o->ids, now.wall + delay);
    return settle_busy(o, now);
}

enum queue_result named_queue_bury(struct named_queue *q, uint64_t lease, const struct id_range *ids,
    size_t n, struct bytes reason, struct queue_now now, queue_done_fn *done, void *arg)
{
    struct op *o = hold(q, OP_BURY, lease, ids, n, done, arg);
    if (!o)
        return QUEUE_LEASE_LOST;
    queue_bar(q->core, &o->ids);
    o->time = now.wall;
    o->reason = bytes_dup(reason);
    o->reason_len = reason.len;
    queue_log_bury(&q->record, q->core, &o->ids, now.wall, reason);
    return settle_busy(o, now);
}

uint64_t named_queue_return(struct named_queue *q, uint64_t lease, const struct id_range *ids, size_t n)
{
    uint64_t count = queue_return(q->core, lease, ids, n);
    named_queue_tell_ready(q);
    return count;
}

uint64_t named_queue_release(struct named_queue *q, const char *reader, uint64_t *epoch)
{
    uint64_t count = queue_release(q->core, reader, epoch);
    named_queue_tell_ready(q);
    return count;
}

void named_queue_pause(struct named_queue *q, usec_t length, struct queue_now now)
{
    if (length)
        queue_pause(q->core, length == QUEUE_PAUSE_OPEN ? length : now.monotonic + length);
    else
        queue_resume(q->core);
    named_queue_tell_ready(q);
}

/* Copies the bytes of the op's messages, which are set aside, as far as they are in memory. */
static enum queue_result gather(struct op *o)
{
    struct queue *core = o->q->core;
    for (; o->gathered < o->n; o->gathered++) {
        struct queue_record_item *item = &o->items[o->gathered];
        enum queue_result r = named_queue_prepare_message(o->q, item->ids.first);
        if (r != QUEUE_OK)
            return r;
        item->message = queue_message(core, item->ids.first, &item->tries);
        buf_append_bytes(&o->texts, item->message);
    }
    return QUEUE_OK;
}

/* The new messages are copies until that is committed. */
static enum queue_result append_move(struct op *o)
{
    struct queue *core = o->q->core;
    if (!named_queue_reserve_bits(o->q, o->n, o->now))
        return QUEUE_NO_SPACE;
    struct bytes *texts = mem_alloc(o->n * sizeof *texts), rest = buf_bytes(&o->texts);
    for (size_t i = 0; i < o->n; i++) {
        texts[i] = bytes_of(rest.ptr, o->items[i].message.len);
        rest = bytes_of(rest.ptr + texts[i].len, rest.len - texts[i].len);
    }
    uint64_t first = o->first_id = queue_add(core, texts, o->n);
    size_t n = o->n;
    for (size_t i = 0; i < n; i++)
        queue_set_tries(core, first + i, o->items[i].tries);
    buf_clear(&o->q->record);
    queue_log_move(&o->q->record, first, o->items, n);
    struct journal_append a = {.reserve = op_reserve(o->q, 0)};
    enum queue_result result = op_append(o, &a, texts, n, o->now, NULL);
    if (result != QUEUE_OK)
        queue_add_abort(core, first, n);
    free(texts);
    return result;
}

/* QUEUE_OK: the op is the journal's. QUEUE_LOADING: later. */
static enum queue_result try_move(struct op *o)
{
    enum queue_result r = gather(o);
    return r == QUEUE_OK ? append_move(o) : r;
}

static void wait_for_loading(struct op *o)
{
    struct named_queue *q = o->q;
    struct op **tail = &q->gathering;
    while (*tail)
        tail = &(*tail)->next_gathering;
    o->next_gathering = NULL;
    *tail = o;
}

static void undo_move(struct op *o)
{
    named_queue_put_back(o->q, &o->ids, o->time);
    op_free(o);
}

/* Moves the op's messages, which are set aside, to the end. */
static enum queue_result move(struct op *o, struct queue_now now)
{
    o->items = mem_zalloc(o->ids.count * sizeof *o->items);
    for (size_t r = 0; r < o->ids.n; r++)
        for (uint64_t id = o->ids.at[r].first; id <= o->ids.at[r].last; id++)
            o->items[o->n++].ids = (struct id_range){id, id};
    o->now = now;
    o->time = now.monotonic + MOVE_RETRY;
    enum queue_result r = try_move(o);
    if (r == QUEUE_LOADING)
        wait_for_loading(o);
    else if (r != QUEUE_OK)
        undo_move(o);
    return r == QUEUE_LOADING ? QUEUE_OK : r;
}

void named_queue_resume(struct named_queue *q, enum queue_result give_up)
{
    struct op *waits = q->gathering, *after;
    q->gathering = NULL;
    for (struct op *o = waits; o; o = after) {
        after = o->next_gathering;
        enum queue_result r = give_up == QUEUE_OK ? try_move(o) : give_up;
        if (r == QUEUE_LOADING) {
            wait_for_loading(o);
        } else if (r != QUEUE_OK) {
            struct queue_outcome outcome = {.result = r};
            if (o->done)
                o->done(&outcome, o->arg);
            undo_move(o);
        }
    }
}

enum queue_result named_queue_kick(
    struct named_queue *q, size_t max_items, struct queue_now now, queue_done_fn *done, void *arg)
{
    uint64_t id = 0;
    size_t bytes = 0;
    const struct queue_burial *burial;
    struct op *o = op_new(q, OP_MOVE, done, arg);
    while (o->ids.count < max_items && queue_next_buried(q->core, id + 1, &id, &burial)) {
        bytes += queue_message(q->core, id, NULL).len;
        if (o->ids.count && bytes > MOVE_MAX_BYTES)
            break;
        queue_set_aside(q->core, id);
        id_ranges_add(&o->ids, id);
    }
    if (o->ids.count)
        return move(o, now);
    op_free(o);
    return QUEUE_NOTHING;
}

void named_queue_move_due(struct named_queue *q, struct queue_now now)
{
    if (q->due.count == 0)
        return;
    struct op *o = op_new(q, OP_MOVE, NULL, NULL);
    o->ids = q->due;
    q->due = (struct id_ranges){0};
    q->due_bytes = 0;
    move(o, now);
}

void named_queue_timer(struct named_queue *q, const struct queue_timer *timer, struct queue_now now)
{
    if (timer->kind != QUEUE_TIMER_DELAY) {
        if (timer->kind == QUEUE_TIMER_LEASE)
            queue_lease_expire(q->core, timer->id);
        else
            queue_resume(q->core);
        named_queue_tell_ready(q);
        return;
    }
    bool waits = queue_set_aside(q->core, timer->id);
    assert(waits);
    (void)waits;
    q->due_bytes += queue_message(q->core, timer->id, NULL).len;
    id_ranges_add(&q->due, timer->id);
    if (q->due_bytes > MOVE_MAX_BYTES)
        named_queue_move_due(q, now);
}
