/* Operations on leased, sent and taken messages: remove, delay, bury, return. */
#include "simplequeue/queue/named_queue_internal.h"

/* Appends the record for the op's busy messages. If the record is refused, the messages return to their lease, or
 * become ready. */
static enum queue_result settle(struct op *o, struct queue_now now, queue_done_fn *done, void *arg)
{
    o->done = done;
    o->arg = arg;
    o->n = o->ids.count;
    enum queue_result r = op_append_record(o, now);
    if (r != QUEUE_OK) {
        struct named_queue *q = o->q;
        reserve_forget_move(o);
        producer_mark_decided(o);
        queue_abort(q->core, &o->ids);
        op_free(o);
        notify_ready(q);
    }
    return r;
}

static void remove_encode(struct op *o)
{
    queue_log_remove(&o->q->record, queue_state(o->q->core)->next_id, &o->ids);
}

static void remove_finish(struct op *o, const struct journal_commit *c, struct queue_outcome *outcome)
{
    (void)outcome;
    producer_mark_finish(o, c);
    (c->result == JOURNAL_OK ? queue_remove : queue_abort)(o->q->core, &o->ids);
}

static const struct op_type remove_type = {OP_REMOVE, remove_finish, remove_encode, true};

enum queue_result named_queue_remove(
    struct named_queue *q, struct id_ranges *taken, struct queue_now now, queue_done_fn *done, void *arg)
{
    struct op *o = op_new(q, &remove_type, NULL, NULL);
    o->ids = *taken;
    *taken = (struct id_ranges){0};
    return settle(o, now, done, arg);
}

void named_queue_undo_evict(struct named_queue *q, struct id_ranges *ids)
{
    queue_abort(q->core, ids);
    id_ranges_free(ids);
    notify_ready(q);
}

/* Begins an op on the messages `held`. Fails if `held` is empty, or if a full disk has just refused an op of this
 * type. */
static enum queue_result begin(struct named_queue *q, const struct op_type *type, struct id_ranges *held,
    struct queue_now now, struct op **out)
{
    if (held->count == 0)
        return QUEUE_LEASE_LOST;
    if (reserve_waits(q, type->kind, now)) {
        queue_abort(q->core, held);
        id_ranges_free(held);
        return QUEUE_NO_SPACE;
    }
    *out = op_new(q, type, NULL, NULL);
    (*out)->ids = *held;
    return QUEUE_OK;
}

enum queue_result named_queue_ack(struct named_queue *q, uint64_t lease, const struct id_range *ids, size_t n,
    struct queue_now now, queue_done_fn *done, void *arg)
{
    struct op *o;
    struct id_ranges held = {0};
    queue_hold(q->core, lease, ids, n, &held);
    enum queue_result r = begin(q, &remove_type, &held, now, &o);
    return r == QUEUE_OK ? settle(o, now, done, arg) : r;
}

/* Maximum number of messages that one settle removes, so that other requests do not wait for it. */
#define SETTLE_MAX 100000

enum queue_result named_queue_settle(struct named_queue *q, uint64_t below, struct bytes destination,
    struct queue_now now, queue_done_fn *done, void *arg)
{
    struct op *o;
    struct id_ranges held = {0};
    if (below == 0 || queue_hold_sent(q->core, (struct id_range){0, below - 1}, SETTLE_MAX, &held) == 0)
        return QUEUE_NOTHING;
    enum queue_result r = begin(q, &remove_type, &held, now, &o);
    if (r != QUEUE_OK)
        return r;
    if (destination.len)
        producer_mark_raise(o, destination, o->ids.at[o->ids.n - 1].last + 1);
    return settle(o, now, done, arg);
}

static void delay_encode(struct op *o)
{
    struct named_queue *q = o->q;
    o->reserve = reserve_for_all(q, SPARE_FOR_KEEP);
    queue_log_delay(&q->record, q->core, &o->ids, q->now.wall + (o->time - q->now.monotonic));
}

static void delay_finish(struct op *o, const struct journal_commit *c, struct queue_outcome *outcome)
{
    (void)outcome;
    if (c->result == JOURNAL_OK)
        queue_delay(o->q->core, &o->ids, o->time);
    else
        queue_abort(o->q->core, &o->ids);
}

enum queue_result named_queue_delay(struct named_queue *q, uint64_t lease, const struct id_range *ids,
    size_t n, usec_t delay, struct queue_now now, queue_done_fn *done, void *arg)
{
    static const struct op_type type = {OP_DELAY, delay_finish, delay_encode, false};
    struct op *o;
    struct id_ranges held = {0};
    queue_hold(q->core, lease, ids, n, &held);
    enum queue_result r = begin(q, &type, &held, now, &o);
    if (r != QUEUE_OK)
        return r;
    struct amount amount = {.n = o->ids.count};
    for (struct id_walk w = {.ids = &o->ids}; id_walk_next(&w);)
        amount.bytes += queue_message(q->core, w.id, NULL).len;
    reserve_expect_move(o, amount);
    queue_block_reserves(q->core, &o->ids);
    o->time = now.monotonic + delay;
    q->now = now;
    return settle(o, now, done, arg);
}

static void bury_encode(struct op *o)
{
    struct named_queue *q = o->q;
    o->reserve = reserve_for_all(q, SPARE_FOR_KEEP);
    queue_log_bury(&q->record, q->core, &o->ids, o->time, bytes_of(o->reason, o->reason_len));
}

static void bury_finish(struct op *o, const struct journal_commit *c, struct queue_outcome *outcome)
{
    (void)outcome;
    if (c->result == JOURNAL_OK)
        queue_bury(o->q->core, &o->ids, bytes_of(o->reason, o->reason_len), o->time);
    else
        queue_abort(o->q->core, &o->ids);
}

static enum queue_result bury(struct named_queue *q, struct id_ranges *held, struct bytes reason,
    struct queue_now now, queue_done_fn *done, void *arg)
{
    static const struct op_type type = {OP_BURY, bury_finish, bury_encode, true};
    struct op *o;
    enum queue_result r = begin(q, &type, held, now, &o);
    if (r != QUEUE_OK)
        return r;
    queue_block_reserves(q->core, &o->ids);
    o->time = now.wall;
    o->reason = bytes_dup(reason);
    o->reason_len = reason.len;
    return settle(o, now, done, arg);
}

enum queue_result named_queue_bury(struct named_queue *q, uint64_t lease, const struct id_range *ids,
    size_t n, struct bytes reason, struct queue_now now, queue_done_fn *done, void *arg)
{
    struct id_ranges held = {0};
    queue_hold(q->core, lease, ids, n, &held);
    return bury(q, &held, reason, now, done, arg);
}

enum queue_result named_queue_bury_sent(struct named_queue *q, uint64_t id, struct bytes reason,
    struct queue_now now, queue_done_fn *done, void *arg)
{
    struct id_ranges held = {0};
    queue_hold_sent(q->core, (struct id_range){id, id}, 1, &held);
    return bury(q, &held, reason, now, done, arg);
}

uint64_t named_queue_return(struct named_queue *q, uint64_t lease, const struct id_range *ids, size_t n)
{
    uint64_t count = queue_return(q->core, lease, ids, n);
    notify_ready(q);
    return count;
}

uint64_t named_queue_release(struct named_queue *q, const char *reader)
{
    uint64_t count = queue_release(q->core, reader);
    notify_ready(q);
    return count;
}

void named_queue_pause(struct named_queue *q, usec_t length, struct queue_now now)
{
    if (length)
        queue_pause(q->core, length == QUEUE_PAUSE_OPEN ? length : now.monotonic + length);
    else
        queue_resume(q->core);
    notify_ready(q);
}
