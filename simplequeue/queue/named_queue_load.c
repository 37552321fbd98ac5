#include "simplequeue/queue/named_queue_internal.h"

#include <stdio.h>

/* Finds the span to load next: that of a single message, of the messages that requests wait for, or of the read-ahead. Single messages and
 * requests take turns. Every waiting request asks again after each load, so only one wanted message is stored. */
static bool next_span(struct named_queue *q, struct store_span *out)
{
    uint64_t wanted = q->wanted, limit = q->config.limits->max_memory;
    bool first = wanted && !q->had_wanted;
    q->had_wanted = first;
    if (first)
        q->wanted = 0;
    if (first && store_span_of(queue_store(q->core), wanted, out))
        return true;
    if (q->demand_items && !queue_in_memory(q->core, q->demand_items, q->demand_bytes, limit, out) &&
        out->last_id)
        return true;
    if (!first && wanted) {
        q->wanted = 0;
        return store_span_of(queue_store(q->core), wanted, out);
    }
    return queue_read_ahead(q->core, limit, out);
}

static bool load_message(uint64_t id, struct bytes text, void *arg)
{
    struct named_queue *q = arg;
    if (!store_load(queue_store(q->core), id, text))
        snprintf(
            q->failure, sizeof q->failure, "message %llu differs in the journal", (unsigned long long)id);
    bool more = q->span.kept ? store_load_misses(queue_store(q->core), &q->span) : id < q->span.last_id;
    return more && !q->failure[0];
}

static void on_loaded(const char *failure, void *arg)
{
    struct named_queue *q = arg;
    bool whole = store_load_end(queue_store(q->core), &q->span);
    if (failure)
        snprintf(q->failure, sizeof q->failure, "%s", failure);
    else if (!whole && !q->failure[0])
        snprintf(q->failure, sizeof q->failure, "the journal lacks messages from %llu on",
            (unsigned long long)q->span.first_id);
    queue_demand_turn(q->core);
    q->demand_items = q->demand_bytes = 0;
    q->wanted = 0;
    q->step(q);
}

void load_next(struct named_queue *q)
{
    if (!q->loader || message_loader_is_busy(q->loader) || q->failure[0] || !next_span(q, &q->span))
        return;
    struct message_loader_request request = {
        .offset = q->span.offset,
        .from_id = q->span.first_id,
        .in_order = !q->span.kept,
        .each = load_message,
        .done = on_loaded,
        .arg = q,
    };
    store_load_begin(queue_store(q->core), &q->span);
    message_loader_start(q->loader, &request);
}

enum queue_result named_queue_prepare(struct named_queue *q, size_t items, size_t max_bytes)
{
    struct store_span unused;
    if (queue_in_memory(q->core, items, max_bytes, q->config.limits->max_memory, &unused))
        return QUEUE_OK;
    if (q->failure[0])
        return QUEUE_LATCHED;
    q->demand_items = items > q->demand_items ? items : q->demand_items;
    q->demand_bytes = max_bytes > q->demand_bytes ? max_bytes : q->demand_bytes;
    load_next(q);
    return q->failure[0] ? QUEUE_LATCHED : QUEUE_LOADING;
}

enum queue_result named_queue_prepare_message(struct named_queue *q, uint64_t id)
{
    if (!store_is_spilled(queue_store(q->core), id))
        return QUEUE_OK;
    if (q->failure[0])
        return QUEUE_LATCHED;
    if (!q->wanted)
        q->wanted = id;
    load_next(q);
    return q->failure[0] ? QUEUE_LATCHED : QUEUE_LOADING;
}

const char *named_queue_failure(const struct named_queue *q)
{
    const char *why = q->config.journal ? journal_failure(q->config.journal) : NULL;
    return why ? why : q->failure[0] ? q->failure : NULL;
}
