/* Messages of a queue whose bytes are on disk, and what of the journal is kept for them. */
#include "simplequeue/queue/queue_internal.h"

/* Of what will be read next: kept, and read ahead. */
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

bool queue_is_spilled(struct queue *q, uint64_t id)
{
    return q->store.spilled > 0 && store_is_spilled(&q->store, id);
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

bool queue_span_of(struct queue *q, uint64_t id, struct store_span *out)
{
    return queue_is_spilled(q, id) && store_span_of(&q->store, id, out);
}

void queue_load_begin(struct queue *q, const struct store_span *span)
{
    store_load_begin(&q->store, span);
}

bool queue_load(struct queue *q, uint64_t id, struct bytes text)
{
    return store_load(&q->store, id, text);
}

bool queue_load_end(struct queue *q, const struct store_span *span)
{
    return store_load_end(&q->store, span);
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

bool queue_next_held_id(struct queue *q, uint64_t from, uint64_t *id)
{
    return store_next_held(&q->store, from, id);
}

size_t queue_changes(const struct queue *q)
{
    return q->store.freed;
}

uint64_t queue_bytes_below(const struct queue *q, uint64_t offset)
{
    return store_bytes_below(&q->store, offset);
}

bool queue_next_below(const struct queue *q, uint64_t offset, uint64_t from, struct store_span *out)
{
    return store_next_below(&q->store, offset, from, out);
}

void queue_set_kept(struct queue *q, const struct store_span *page, uint64_t offset)
{
    store_set_kept(&q->store, page, offset);
}

bool queue_load_misses(struct queue *q, const struct store_span *span)
{
    return store_load_misses(&q->store, span);
}
