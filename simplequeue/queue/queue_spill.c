/* Which messages of a queue stay in memory, and which are loaded next. */
#include "simplequeue/queue/queue_internal.h"

/* Bytes of messages that are kept in memory ahead of the reader. */
static uint64_t window(uint64_t limit)
{
    uint64_t share = limit / 64;
    return share < QUEUE_WINDOW_MIN ? QUEUE_WINDOW_MIN : share > QUEUE_WINDOW_MAX ? QUEUE_WINDOW_MAX : share;
}

void queue_spill(struct queue *q, uint64_t limit)
{
    const struct store_memory *memory = &q->shared->memory;
    uint64_t owners = q->shared->owners, most = limit > owners ? limit - owners : 0, through;
    struct store_span unused;
    if (memory->all <= most || memory->all < q->spill_at)
        return;
    store_in_memory(&q->store, q->frontier, SIZE_MAX, window(limit), 0, &unused, &through);
    uint64_t demand = q->demand > q->demanded ? q->demand : q->demanded;
    if (through < demand)
        through = demand;
    store_spill(&q->store, q->frontier, through, memory->all - most);
    q->spill_at = memory->all > most ? memory->all + STORE_PAGE_BYTES : 0;
}

bool queue_in_memory(struct queue *q, size_t items, uint64_t bytes, uint64_t limit, struct store_span *out)
{
    uint64_t through;
    if (q->store.spilled == 0 || q->state.n[MESSAGE_READY] == 0)
        return true;
    bool there = store_in_memory(&q->store, q->frontier, items, bytes, window(limit), out, &through);
    if (q->demand < through)
        q->demand = through;
    return there;
}

bool queue_read_ahead(struct queue *q, uint64_t limit, struct store_span *out)
{
    uint64_t through;
    return q->store.spilled > 0 && q->state.n[MESSAGE_READY] > 0 &&
           !store_in_memory(
               &q->store, q->frontier, SIZE_MAX, window(limit), window(limit) / 2, out, &through) &&
           out->last_id > 0;
}

void queue_demand_turn(struct queue *q)
{
    q->demanded = q->demand;
    q->demand = 0;
}

bool queue_next_held(struct queue *q, uint64_t from, struct queue_view *out)
{
    *out = (struct queue_view){0};
    if (!store_next_held(&q->store, from, &out->id))
        return false;
    const struct message *m = store_find(&q->store, out->id);
    out->state = m->state;
    out->tries = m->tries;
    out->text = message_bytes(m);
    if (m->state == MESSAGE_DELAYED)
        out->due = ((const struct delay *)m->owner)->timer.node.priority;
    if (m->state == MESSAGE_BURIED)
        out->burial = &((const struct burial *)m->owner)->info;
    return true;
}
