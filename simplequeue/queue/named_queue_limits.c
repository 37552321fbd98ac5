/* The limits on depth, bytes and memory, the eviction of messages, and the reserved disk space. */
#include "simplequeue/queue/named_queue_internal.h"

#define EVICT_ITEMS_MAX 50000 /* messages per call */
#define EVICT_BYTES_MAX (4u << 20)
/* A REMOVE record of one message needs a frame of 88 bytes, plus 8 if it names a destination. Each further range adds
 * 16 bytes. */
#define REMOVE_BYTES 96
#define MOVE_BYTES 128 /* frame of a MOVE record with one message, without the bytes of the message */

static uint64_t cost_of(struct amount a)
{
    return a.bytes + a.n * QUEUE_MESSAGE_COST;
}

/* Queues with a journal spill messages before the memory is full. For these queues the limit therefore applies only to
 * the memory that spilled messages still need. */
static bool memory_has_room(
    uint64_t limit, const struct queue_shared *shared, bool on_disk, struct amount in, struct amount out)
{
    return !limit || (on_disk ? queue_shared_fixed(shared) < limit
                              : queue_shared_cost(shared) - cost_of(out) + cost_of(in) <= limit);
}

static bool has_memory(const struct named_queue *q, struct amount in, struct amount out)
{
    const struct named_queue_config *c = &q->config;
    return memory_has_room(c->limits->max_memory, c->shared, c->journal != NULL, in, out);
}

bool limits_have_room(const struct named_queue *q, struct amount in, struct amount out)
{
    const struct queue_limits *l = q->config.limits;
    const struct queue_state *s = queue_state(q->core);
    uint64_t depth = queue_depth(q->core) + s->n[MESSAGE_PENDING] - out.n;
    return (!l->max_depth || depth + in.n <= l->max_depth) &&
           (!l->max_bytes || s->bytes + s->pending_bytes - out.bytes + in.bytes <= l->max_bytes) &&
           has_memory(q, in, out);
}

static bool ever_fits(const struct queue_limits *l, bool on_disk, struct amount in)
{
    return (!l->max_depth || in.n <= l->max_depth) && (!l->max_bytes || in.bytes <= l->max_bytes) &&
           (!l->max_memory || on_disk || cost_of(in) <= l->max_memory);
}

enum queue_result named_queue_why_full(const struct named_queue *q, size_t n, uint64_t bytes)
{
    struct amount in = {n, bytes}, none = {0};
    if (!ever_fits(q->config.limits, q->config.journal != NULL, in))
        return QUEUE_NEVER_FITS;
    return has_memory(q, in, none) ? QUEUE_FULL : QUEUE_MEMORY_FULL;
}

enum queue_result named_queue_check_first_put(const struct queue_limits *limits,
    const struct queue_shared *shared, bool on_disk, size_t n, uint64_t bytes)
{
    struct amount in = {n, bytes};
    if (n == 0)
        return QUEUE_OK;
    if (!ever_fits(limits, on_disk, in))
        return QUEUE_NEVER_FITS;
    if (on_disk && queue_log_put_size(n, bytes) > JOURNAL_FRAME_MAX)
        return QUEUE_TOO_LARGE;
    bool fits = memory_has_room(limits->max_memory, shared, on_disk, in, (struct amount){0});
    return fits ? QUEUE_OK : QUEUE_MEMORY_FULL;
}

enum queue_eviction named_queue_evict(
    struct named_queue *q, size_t n, uint64_t bytes, struct id_ranges *evicted, uint64_t *evicted_bytes)
{
    const struct queue_limits *l = q->config.limits;
    const struct queue_state *s = queue_state(q->core);
    struct amount in = {n, bytes}, out = {evicted->count, *evicted_bytes};
    struct id_ranges more = {0};
    uint64_t most = out.bytes + EVICT_BYTES_MAX, sent_bytes, sent = queue_count_sent(q->core, &sent_bytes);
    uint64_t stay = queue_depth(q->core) - s->n[MESSAGE_READY] + sent - out.n + s->n[MESSAGE_PENDING];
    /* Before any message becomes busy, checks whether eviction can make enough room. */
    if ((l->max_depth && stay + n > l->max_depth) || (l->max_bytes && bytes > l->max_bytes) ||
        (q->config.journal && !has_memory(q, in, out)))
        return EVICTION_IMPOSSIBLE;
    while (!limits_have_room(q, in, out) && more.count < EVICT_ITEMS_MAX && out.bytes < most) {
        uint64_t before = more.count;
        queue_evict(q->core, 1, UINT64_MAX, false, &more);
        if (more.count == before)
            break;
        out.n++;
        out.bytes += queue_message(q->core, more.at[more.n - 1].last, NULL).len;
    }
    enum queue_eviction room = EVICTION_ENOUGH;
    if (!limits_have_room(q, in, out)) {
        struct amount all = {out.n + s->n[MESSAGE_READY] - sent,
            out.bytes + s->bytes - queue_bytes_not_ready(q->core) - sent_bytes};
        room = more.count && limits_have_room(q, in, all) ? EVICTION_PARTIAL : EVICTION_IMPOSSIBLE;
    }
    if (room == EVICTION_IMPOSSIBLE) {
        queue_abort(q->core, &more);
    } else {
        for (size_t i = 0; i < more.n; i++)
            id_ranges_add_range(evicted, more.at[i]);
        *evicted_bytes = out.bytes;
    }
    id_ranges_free(&more);
    return room;
}

/* The journal reserves disk space after its end, so that readers can drain a queue even if the disk is full.
 *
 * Invariant: the reserved space is enough for a REMOVE record per message in the queue and a MOVE record per delayed
 * message. An op that would increase this sum is refused unless the journal can reserve the new sum. A REMOVE record,
 * and a MOVE record of an ended delay, decrease the sum by at least their size, and need no further space. */
uint64_t reserve_for_all(const struct named_queue *q, uint64_t spare)
{
    const struct queue_state *s = queue_state(q->core);
    uint64_t held = 0;
    for (int state = MESSAGE_PENDING; state < MESSAGE_STATES; state++)
        held += s->n[state];
    return held * REMOVE_BYTES + (s->to_move + q->to_move.n) * MOVE_BYTES + s->to_move_bytes +
           q->to_move.bytes + spare;
}

void reserve_expect_move(struct op *o, struct amount amount)
{
    o->to_move = amount;
    o->q->to_move.n += amount.n;
    o->q->to_move.bytes += amount.bytes;
}

void reserve_forget_move(struct op *o)
{
    o->q->to_move.n -= o->to_move.n;
    o->q->to_move.bytes -= o->to_move.bytes;
    o->to_move = (struct amount){0};
}

bool reserve_waits(const struct named_queue *q, enum op_kind kind, struct queue_now now)
{
    return q->full && now.monotonic < q->retry_space[kind];
}
