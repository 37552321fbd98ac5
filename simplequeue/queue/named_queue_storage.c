#include "simplequeue/queue/named_queue_internal.h"

#include <stdlib.h>

/* On a full disk, rewrite the messages left in a segment only if all fit in SPARE_FOR_KEEP with their records. */
#define KEEP_ON_FULL_DISK_MAX ((uint64_t)32 << 10)

/* On a full disk, an opening has only the space that the previous session reserved. That may be a little less than a put reserves, and is
 * too little if an older version wrote the directory. So each retry reserves less. */
static void open_encode(struct op *o)
{
    struct named_queue *q = o->q;
    o->reserve = o->refused > 1 ? 0 : reserve_for_all(q, o->refused == 0 ? SPARE_OF_PUT : 0);
    queue_log_open(&q->record, queue_state(q->core)->next_id, q->lease_base);
}

static void open_finish(struct op *o, const struct journal_commit *c, struct queue_outcome *outcome)
{
    struct named_queue *q = o->q;
    (void)outcome;
    q->opening = false;
    if (c->result == JOURNAL_OK)
        q->open_record = c->start;
    else
        q->open_missing = true;
}

void storage_append_open(struct named_queue *q)
{
    static const struct op_type type = {OP_OPEN, open_finish, open_encode, .repeats = true};
    if (q->opening)
        return;
    q->opening = true;
    q->open_missing = false;
    struct op *o = op_new(q, &type, NULL, NULL);
    if (op_append_record(o, q->opened) == QUEUE_OK)
        return;
    q->opening = false;
    q->open_missing = true;
    op_free(o);
}

/* Describes the page's messages as items of a record. False while an op on a message is in progress, or with *spilled set
 * if a message is spilled. */
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

static void keep_finish(struct op *o, const struct journal_commit *c, struct queue_outcome *outcome)
{
    (void)outcome;
    o->q->keeping = false;
    if (c->result == JOURNAL_OK)
        store_set_kept(queue_store(o->q->core), &o->page, c->start);
}

static bool append_keep(
    struct named_queue *q, const struct store_span *page, const struct queue_record_item *items, size_t n)
{
    static const struct op_type type = {OP_KEEP, keep_finish, NULL, false};
    struct bytes *texts = mem_alloc(2 * n * sizeof *texts);
    struct journal_append a = {0};
    struct op *o = op_new(q, &type, NULL, NULL);
    o->page = *page;
    o->reserve = reserve_for_all(q, q->full ? 0 : SPARE_OF_PUT);
    buf_clear(&q->record);
    queue_log_keep(&q->record, queue_state(q->core)->next_id, items, n);
    for (size_t i = 0; i < n; i++) {
        texts[2 * i] = items[i].message;
        texts[2 * i + 1] = items[i].reason;
    }
    bool appended = op_append(o, &a, texts, 2 * n, q->now, NULL) == QUEUE_OK;
    if (!appended)
        op_free(o);
    free(texts);
    return appended;
}

/* Rewrites the few messages left in an old segment at the journal's end, a page at a time, so that the segment can be deleted. The
 * oldest segment is sparse if at most a fourth of it is needed, or if the journal is much longer than the queue. This limits the bytes
 * rewritten to a fourth of each segment, or to the bytes put. */
static void keep(struct named_queue *q)
{
    const struct journal *j = q->config.journal;
    uint64_t earliest = journal_earliest(j), end = journal_committed_end(j);
    size_t changes = queue_store(q->core)->changes;
    if (q->keeping || reserve_waits(q, OP_KEEP, q->now) ||
        (changes == q->keep_changes && end < q->keep_end + q->config.trim_step))
        return;
    q->keep_changes = changes;
    q->keep_end = end;
    struct store *store = queue_store(q->core);
    uint64_t oldest_end = journal_earliest_end(j), spilled = 0, needed = store_bytes_below(store, oldest_end);
    uint64_t segment = 4 * q->config.trim_step, length = journal_bytes_between(j, earliest, end);
    bool is_sparse = length >= 2 * segment && (needed <= journal_bytes_between(j, earliest, oldest_end) / 4 ||
                                                  length > 2 * queue_state(q->core)->bytes + 4 * segment);
    if (store_lowest_offset(store) >= oldest_end || !is_sparse || (q->full && needed > KEEP_ON_FULL_DISK_MAX))
        return;
    struct store_span page;
    for (uint64_t from = 0; !q->keeping && !spilled && store_next_below(store, oldest_end, from, &page);
         from = page.last_id + 1) {
        struct queue_record_item *items = NULL;
        size_t n = 0;
        if (describe_page(q, &page, &items, &n, &spilled))
            q->keeping = append_keep(q, &page, items, n);
        else
            q->keep_changes = SIZE_MAX; /* look again at the next step */
        free(items);
    }
    if (spilled && !q->wanted)
        q->wanted = spilled;
}

/* Trimming keeps the last record, which carries the next id. It keeps the last OPEN record until another one is committed or a full
 * disk has refused it. */
void storage_maintain(struct named_queue *q)
{
    if (!q->config.journal)
        return;
    if (q->open_missing && q->committed)
        storage_append_open(q);
    uint64_t lowest = store_lowest_offset(queue_store(q->core));
    uint64_t needed = lowest < q->last_record ? lowest : q->last_record;
    if (needed >= journal_earliest_end(q->config.journal)) {
        if (q->open_record < needed && !q->open_missing) {
            storage_append_open(q);
        } else {
            message_loader_release(q->loader, needed);
            journal_trim(q->config.journal, needed);
        }
    }
    keep(q);
    if (q->config.limits->max_memory)
        queue_spill(q->core, q->config.limits->max_memory);
    load_next(q);
}
