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

/* ---- what becomes of messages taken or leased ---- */

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

/* ---- becoming ready late ---- */

/* Moves the op's messages, which are set aside, to the end. The new ones are copies until that is
 * committed. */
static enum queue_result move(struct op *o, struct queue_now now)
{
    struct named_queue *q = o->q;
    struct queue_record_item *items = mem_alloc(o->ids.count * sizeof *items);
    struct bytes *texts = mem_alloc(o->ids.count * sizeof *texts);
    for (size_t r = 0; r < o->ids.n; r++)
        for (uint64_t id = o->ids.at[r].first; id <= o->ids.at[r].last; id++, o->n++) {
            struct queue_record_item *item = &items[o->n];
            item->ids = (struct id_range){id, id};
            texts[o->n] = item->message = queue_message(q->core, id, &item->tries);
        }
    uint64_t first = o->first_id = queue_add(q->core, texts, o->n);
    for (size_t i = 0; i < o->n; i++)
        queue_set_tries(q->core, first + i, items[i].tries);
    buf_clear(&q->record);
    queue_log_move(&q->record, first, items, o->n);
    o->time = now.monotonic + MOVE_RETRY;
    struct journal_append a = {0};
    enum queue_result result = op_append(o, &a, texts, o->n, now, NULL);
    if (result != QUEUE_OK) {
        queue_add_abort(q->core, first, o->n);
        named_queue_put_back(q, &o->ids, o->time);
        op_free(o);
    }
    free(items);
    free(texts);
    return result;
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
    struct op *o = op_new(q, OP_MOVE, NULL, NULL);
    id_ranges_add(&o->ids, timer->id);
    bool waits = queue_set_aside(q->core, timer->id);
    assert(waits);
    (void)waits;
    move(o, now);
}
