/* What of a queue is on disk only: what goes there, what is read back, and what of the journal is let go of. */
#include "named_queue_internal.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- reading back ---- */

/* What to load next: a message that something waits for, what requests will find first, what will be read then. All
 * that wait ask again after each loading, so one wanted message is known at a time; and the two take turns. */
static bool next_span(struct named_queue *q, struct store_span *out)
{
    uint64_t wanted = q->wanted, most = q->config.limits->max_memory;
    bool first = wanted && !q->had_wanted;
    q->had_wanted = first;
    if (first)
        q->wanted = 0;
    if (first && queue_span_of(q->core, wanted, out))
        return true;
    if (q->demand_items && !queue_at_hand(q->core, q->demand_items, q->demand_bytes, most, out) &&
        out->last_id)
        return true;
    if (!first && wanted) {
        q->wanted = 0;
        return queue_span_of(q->core, wanted, out);
    }
    return queue_read_ahead(q->core, most, out);
}

static bool load_message(uint64_t id, struct bytes text, void *arg)
{
    struct named_queue *q = arg;
    if (!queue_load(q->core, id, text))
        snprintf(q->failure, sizeof q->failure, "message %llu is not what it was", (unsigned long long)id);
    return id < q->span.last_id && !q->failure[0];
}

static void on_loaded(const char *failure, void *arg)
{
    struct named_queue *q = arg;
    bool whole = queue_load_end(q->core, &q->span);
    if (failure)
        snprintf(q->failure, sizeof q->failure, "%s", failure);
    else if (!whole && !q->failure[0])
        snprintf(q->failure, sizeof q->failure, "the messages from %llu on are not where they were",
            (unsigned long long)q->span.first_id);
    queue_demand_turn(q->core);
    q->demand_items = q->demand_bytes = 0;
    q->wanted = 0;
    named_queue_resume(q, QUEUE_OK);
    named_queue_tell_ready(q);
    named_queue_tend(q);
}

static void load(struct named_queue *q)
{
    if (!q->readback || readback_is_busy(q->readback) || q->failure[0] || !next_span(q, &q->span))
        return;
    struct readback_ask ask = {
        .offset = q->span.offset,
        .from_id = q->span.first_id,
        .in_order = !q->span.kept,
        .each = load_message,
        .done = on_loaded,
        .arg = q,
    };
    queue_load_begin(q->core, &q->span);
    readback_start(q->readback, &ask);
}

enum queue_result named_queue_prepare(struct named_queue *q, size_t items, size_t max_bytes)
{
    struct store_span unused;
    if (queue_at_hand(q->core, items, max_bytes, q->config.limits->max_memory, &unused))
        return QUEUE_OK;
    if (q->failure[0])
        return QUEUE_LATCHED;
    q->demand_items = items > q->demand_items ? items : q->demand_items;
    q->demand_bytes = max_bytes > q->demand_bytes ? max_bytes : q->demand_bytes;
    load(q);
    return q->failure[0] ? QUEUE_LATCHED : QUEUE_LOADING;
}

enum queue_result named_queue_prepare_message(struct named_queue *q, uint64_t id)
{
    if (!queue_is_away(q->core, id))
        return QUEUE_OK;
    if (q->failure[0])
        return QUEUE_LATCHED;
    if (!q->wanted)
        q->wanted = id;
    load(q);
    return q->failure[0] ? QUEUE_LATCHED : QUEUE_LOADING;
}

const char *named_queue_failure(const struct named_queue *q)
{
    const char *why = q->config.journal ? journal_failure(q->config.journal) : NULL;
    return why ? why : q->failure[0] ? q->failure : NULL;
}

/* ---- letting go ---- */

/* Segments that hold nothing any more may go. The last record stays, because it carries the next id; and so does the
 * one that carries the base of the lease numbers, until it is said again. */
static void trim(struct named_queue *q)
{
    uint64_t lowest = queue_lowest_offset(q->core);
    uint64_t keep = lowest < q->last_record ? lowest : q->last_record;
    if (keep < q->trimmed + q->config.trim_step)
        return;
    if (q->open_record < keep) {
        named_queue_append_open(q);
        return;
    }
    q->trimmed = keep;
    readback_rest(q->readback, keep);
    journal_trim(q->config.journal, keep);
}

void named_queue_tend(struct named_queue *q)
{
    if (!q->config.journal)
        return;
    trim(q);
    if (q->config.limits->max_memory)
        queue_spill(q->core, q->config.limits->max_memory);
    load(q);
}
