/* What becomes of messages that were taken, leased, delayed or buried. */
#include "simplequeue/queue/named_queue_internal.h"

#include <assert.h>
#include <stdlib.h>

#define MOVE_RETRY                                                                                           \
    (USEC_PER_SEC / 2) /* before puts, which on a full disk would be refused together with it, try again */

void named_queue_notify_ready(struct named_queue *q)
{
    if (q->config.on_ready)
        q->config.on_ready(q, q->config.on_ready_arg);
}

void named_queue_put_back(struct named_queue *q, const struct id_ranges *ids, usec_t retry_at)
{
    for (size_t i = 0; i < ids->n; i++)
        for (uint64_t id = ids->at[i].first; id <= ids->at[i].last; id++)
            queue_put_back(q->core, id, retry_at++); /* so they stay in their order */
}

static void give_up(struct op *o)
{
    op_late_decided(o);
    queue_abort(o->q->core, &o->ids);
    op_free(o);
}

/* Appends the record for the op's busy messages; on refusal they are what they were. */
static enum queue_result settle_busy(struct op *o, struct queue_now now)
{
    struct journal_append a = {.reserve = o->late.n ? op_reserve(o->q, 0) : 0};
    o->n = o->ids.count;
    enum queue_result r = op_lacks_room(o) ? QUEUE_NO_SPACE : op_append(o, &a, NULL, 0, now, NULL);
    if (r != QUEUE_OK)
        give_up(o);
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

void named_queue_undo_evict(struct named_queue *q, struct id_ranges *ids)
{
    queue_abort(q->core, ids);
    id_ranges_free(ids);
    named_queue_notify_ready(q);
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

static uint64_t bytes_of_all(struct queue *core, const struct id_ranges *ids)
{
    uint64_t bytes = 0;
    for (size_t r = 0; r < ids->n; r++)
        for (uint64_t id = ids->at[r].first; id <= ids->at[r].last; id++)
            bytes += queue_message(core, id, NULL).len;
    return bytes;
}

enum queue_result named_queue_delay(struct named_queue *q, uint64_t lease, const struct id_range *ids,
    size_t n, usec_t delay, struct queue_now now, queue_done_fn *done, void *arg)
{
    struct op *o = hold(q, OP_DELAY, lease, ids, n, done, arg);
    if (!o)
        return QUEUE_LEASE_LOST;
    op_expect_late(o, o->ids.count, bytes_of_all(q->core, &o->ids));
    if (named_queue_waits(q, OP_DELAY, now) || !named_queue_reserve_bits(o, 0, now)) {
        give_up(o);
        return QUEUE_NO_SPACE;
    }
    queue_block_reserves(q->core, &o->ids);
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
    queue_block_reserves(q->core, &o->ids);
    o->time = now.wall;
    o->reason = bytes_dup(reason);
    o->reason_len = reason.len;
    queue_log_bury(&q->record, q->core, &o->ids, now.wall, reason);
    return settle_busy(o, now);
}

uint64_t named_queue_return(struct named_queue *q, uint64_t lease, const struct id_range *ids, size_t n)
{
    uint64_t count = queue_return(q->core, lease, ids, n);
    named_queue_notify_ready(q);
    return count;
}

uint64_t named_queue_release(struct named_queue *q, const char *reader, uint64_t *epoch)
{
    uint64_t count = queue_release(q->core, reader, epoch);
    named_queue_notify_ready(q);
    return count;
}

void named_queue_pause(struct named_queue *q, usec_t length, struct queue_now now)
{
    if (length)
        queue_pause(q->core, length == QUEUE_PAUSE_OPEN ? length : now.monotonic + length);
    else
        queue_resume(q->core);
    named_queue_notify_ready(q);
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

/* The new messages are copies until that is committed. What is due has its room, and on a full disk uses it. */
static enum queue_result append_move(struct op *o)
{
    struct queue *core = o->q->core;
    if (!named_queue_reserve_bits(o, o->is_due ? 0 : o->n, o->now) && !o->is_due)
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
    struct journal_append a = {.reserve = o->is_due && o->q->full ? 0 : op_reserve(o->q, 0)};
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

void op_move_decided(struct op *o, enum journal_result r)
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

static void undo_move(struct op *o)
{
    op_move_decided(o, JOURNAL_BUSY);
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
    if (named_queue_waits(q, OP_MOVE, now))
        return QUEUE_NO_SPACE;
    struct op *o = op_new(q, OP_MOVE, done, arg);
    while (o->ids.count < max_items && queue_next_buried(q->core, id + 1, &id, &burial)) {
        bytes += queue_message(q->core, id, NULL).len;
        if (o->ids.count && bytes > MOVE_BYTES_MAX)
            break;
        queue_set_aside(q->core, id);
        id_ranges_add(&o->ids, id);
    }
    if (o->ids.count)
        return move(o, now);
    op_free(o);
    return QUEUE_NOTHING;
}

/* Of what is due, while the disk had no room for all at once: as much as there may be room for, and that alone. The rest is due later. */
static void leave_for_later(struct named_queue *q, struct queue_now now)
{
    struct id_ranges few = {0};
    size_t bytes = 0;
    usec_t later = now.monotonic + MOVE_RETRY +
                   (usec_t)q->due.count; /* behind those of the few, should they be refused */
    for (size_t r = 0; r < q->due.n; r++)
        for (uint64_t id = q->due.at[r].first; id <= q->due.at[r].last; id++) {
            size_t len = queue_message(q->core, id, NULL).len;
            if (q->moving || (few.count && bytes + len > q->move_limit)) {
                queue_put_back(q->core, id, later++);
                continue;
            }
            bytes += len;
            id_ranges_add(&few, id);
        }
    id_ranges_free(&q->due);
    q->due = few;
}

void named_queue_move_due(struct named_queue *q, struct queue_now now)
{
    if (q->move_limit < MOVE_BYTES_MAX)
        leave_for_later(q, now);
    q->due_bytes = 0;
    if (q->due.count == 0)
        return;
    struct op *o = op_new(q, OP_MOVE, NULL, NULL);
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
        named_queue_notify_ready(q);
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
