/* What of a queue is on disk only: what goes there, what is read back, and what of the journal is let go of. */
#include "simplequeue/queue/named_queue_internal.h"

#include <stdio.h>
#include <stdlib.h>

#define KEEP_WHEN_FULL ((uint64_t)32 << 10) /* half of what is reserved at least */

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
    if (q->demand_items && !queue_in_memory(q->core, q->demand_items, q->demand_bytes, most, out) &&
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
    bool more = q->span.kept ? queue_load_misses(q->core, &q->span) : id < q->span.last_id;
    return more && !q->failure[0];
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
    named_queue_notify_ready(q);
    named_queue_maintain(q);
}

static void load(struct named_queue *q)
{
    if (!q->loader || message_loader_is_busy(q->loader) || q->failure[0] || !next_span(q, &q->span))
        return;
    struct message_loader_request ask = {
        .offset = q->span.offset,
        .from_id = q->span.first_id,
        .in_order = !q->span.kept,
        .each = load_message,
        .done = on_loaded,
        .arg = q,
    };
    queue_load_begin(q->core, &q->span);
    message_loader_start(q->loader, &ask);
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
    load(q);
    return q->failure[0] ? QUEUE_LATCHED : QUEUE_LOADING;
}

enum queue_result named_queue_prepare_message(struct named_queue *q, uint64_t id)
{
    if (!queue_is_spilled(q->core, id))
        return QUEUE_OK;
    if (q->failure[0])
        return QUEUE_LATCHED;
    if (!q->wanted)
        q->wanted = id;
    load(q);
    return q->failure[0] ? QUEUE_LATCHED : QUEUE_LOADING;
}

bool named_queue_disk_is_full(const struct named_queue *q)
{
    return q->full;
}

const char *named_queue_failure(const struct named_queue *q)
{
    const char *why = q->config.journal ? journal_failure(q->config.journal) : NULL;
    return why ? why : q->failure[0] ? q->failure : NULL;
}

/* A bit is wanted for as long as the journal has a record that would bring its message back. So those below what was held when the journal
 * ended at an offset may go once it begins there. Not those of the last id, which may be what tells the next. */
static void forget_gone(struct named_queue *q)
{
    const struct journal *j = q->config.journal;
    struct queue_view lowest;
    if (q->keeping || !journal_trim_is_done(j) || journal_earliest(j) < q->bits_end)
        return;
    gone_forget(q->config.gone, q->bits_id);
    uint64_t last = queue_state(q->core)->next_id - 1;
    q->bits_id = queue_next_held(q->core, 0, &lowest) && lowest.id < last ? lowest.id : last;
    q->bits_end = journal_committed_end(j);
}

/* Segments that hold nothing any more may go. The last record stays, because it carries the next id; and so does the
 * one that carries the base of the lease numbers, until it is said again, or a full disk has refused it. */
static void trim(struct named_queue *q)
{
    uint64_t lowest = queue_lowest_offset(q->core);
    uint64_t keep = lowest < q->last_record ? lowest : q->last_record;
    if (keep < journal_earliest_end(q->config.journal))
        return;
    if (q->open_record < keep && !q->open_missing) {
        named_queue_append_open(q);
        return;
    }
    message_loader_release(q->loader, keep);
    if (q->config.gone)
        forget_gone(q);
    journal_trim(q->config.journal, keep);
}

/* The oldest segment is not worth its space when at most a fourth of it is still needed, nor when there are so many
 * segments that they are twice what is held. Each bounds what is written again: of a segment at most a fourth, and no
 * more than was put. */
static bool is_sparse(const struct named_queue *q, uint64_t earliest, uint64_t oldest_end, uint64_t end)
{
    const struct journal *j = q->config.journal;
    uint64_t segment = 4 * q->config.trim_step, there = journal_bytes_between(j, earliest, end);
    if (there < 2 * segment)
        return false;
    return queue_bytes_below(q->core, oldest_end) <= journal_bytes_between(j, earliest, oldest_end) / 4 ||
           there > 2 * queue_state(q->core)->bytes + 4 * segment;
}

/* What a page's messages are, for a record; false when one is being settled, or one is away: *away. */
static bool describe_page(struct named_queue *q, const struct store_span *page,
    struct queue_record_item **items, size_t *n, uint64_t *spilled)
{
    struct queue_view v;
    size_t cap = 0;
    for (uint64_t id = page->first_id; queue_next_held(q->core, id, &v) && v.id <= page->last_id;
         id = v.id + 1) {
        *spilled = v.text.ptr ? 0 : v.id;
        if (*spilled || v.state == MESSAGE_BUSY || v.state == MESSAGE_PENDING)
            return false;
        if (*n == cap)
            *items = mem_realloc(*items, (cap = cap ? cap * 2 : 16) * sizeof **items);
        struct queue_record_item *item = &(*items)[(*n)++];
        *item = (struct queue_record_item){.ids = {v.id, v.id}, .tries = v.tries, .message = v.text};
        if (v.state == MESSAGE_DELAYED) {
            item->kept = KEPT_DELAYED;
            item->time = q->now.wall + (v.due - q->now.monotonic);
        } else if (v.state == MESSAGE_BURIED) {
            item->kept = KEPT_BURIED;
            item->time = v.burial->buried_at;
            item->reason = v.burial->reason;
        }
    }
    return *n > 0;
}

static void append_keep(
    struct named_queue *q, const struct store_span *page, const struct queue_record_item *items, size_t n)
{
    struct bytes *texts = mem_alloc(2 * n * sizeof *texts);
    buf_clear(&q->record);
    queue_log_keep(&q->record, queue_state(q->core)->next_id, items, n);
    size_t size = q->record.len;
    for (size_t i = 0; i < n; i++) {
        texts[2 * i] = items[i].message;
        texts[2 * i + 1] = items[i].reason;
        size += items[i].message.len + items[i].reason.len;
    }
    struct op *o = op_new(q, OP_KEEP, NULL, NULL);
    struct journal_append a = {.reserve = q->full ? 0 : op_reserve(q, 0)};
    o->page = *page;
    q->keeping = !q->full || q->kept_when_full + size <= KEEP_WHEN_FULL;
    q->keeping = q->keeping && op_append(o, &a, texts, 2 * n, q->now, NULL) == QUEUE_OK;
    if (q->keeping)
        q->kept_when_full += q->full ? size : 0;
    else
        op_free(o);
    free(texts);
}

/* The next time that something has happened; `id` is a message to be read first, or 0. */
static void ask_again(struct named_queue *q, uint64_t id)
{
    q->keep_changes = SIZE_MAX;
    if (id && !q->wanted)
        q->wanted = id;
}

/* Appends one page of what holds the oldest segment; its commit leads to the next. */
static void keep_page(struct named_queue *q, uint64_t below)
{
    struct store_span page;
    bool begun = false;
    for (uint64_t from = 0; !begun && queue_next_below(q->core, below, from, &page);
         from = page.last_id + 1) {
        struct queue_record_item *items = NULL;
        size_t n = 0;
        uint64_t spilled = 0;
        if (describe_page(q, &page, &items, &n, &spilled))
            append_keep(q, &page, items, n);
        else
            ask_again(q, spilled);
        begun = q->keeping || spilled;
        free(items);
    }
}

/* On a full disk what is said again takes of the space that is reserved for removals. So little of it, until a put has
 * reserved again, leaves them enough; and were the oldest segment to stay, all behind it would, and they could use up
 * theirs while nothing is given back. */
static bool may_keep(const struct named_queue *q, uint64_t oldest_end)
{
    return !q->full || queue_bytes_below(q->core, oldest_end) + q->kept_when_full <= KEEP_WHEN_FULL;
}

/* Messages that keep an old segment of which little else is needed are said again, so that it can go. */
static void keep(struct named_queue *q)
{
    const struct journal *j = q->config.journal;
    uint64_t earliest = journal_earliest(j), end = journal_committed_end(j);
    size_t changes = queue_changes(q->core);
    if (q->keeping || (changes == q->keep_changes && end < q->keep_end + q->config.trim_step))
        return;
    q->keep_changes = changes;
    q->keep_end = end;
    uint64_t oldest_end = journal_earliest_end(j);
    if (queue_lowest_offset(q->core) < oldest_end && is_sparse(q, earliest, oldest_end, end) &&
        may_keep(q, oldest_end))
        keep_page(q, oldest_end);
}

void named_queue_kept(struct op *o, const struct journal_commit *c)
{
    o->q->keeping = false;
    o->q->full |= c->result == JOURNAL_NO_SPACE;
    if (c->result == JOURNAL_OK)
        queue_set_kept(o->q->core, &o->page, c->start);
}

void named_queue_maintain(struct named_queue *q)
{
    if (!q->config.journal)
        return;
    trim(q);
    keep(q);
    if (q->config.limits->max_memory)
        queue_spill(q->core, q->config.limits->max_memory);
    load(q);
}
