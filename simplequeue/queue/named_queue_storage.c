#include "simplequeue/queue/named_queue_internal.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#define CHUNK ((size_t)512 << 10)
#define SKIP_BYTES_MAX (UINT64_C(4) << 20) /* after a longer gap, the loader opens a new stream */

/* Maximum total size of the messages in a sparse segment that is rewritten on a full disk (bytes). The KEEP records of
 * these messages fit into SPARE_FOR_KEEP. */
#define KEEP_ON_FULL_DISK_MAX ((uint64_t)32 << 10)

static void close_stream(struct message_loader *r)
{
    journal_reader_close(&r->reader);
    buf_free(&r->in);
    *r = (struct message_loader){.busy = r->busy};
}

void load_stop(struct named_queue *q)
{
    close_stream(&q->loader);
}

static uint64_t position(const struct message_loader *r)
{
    return journal_reader_offset(r->reader) - (r->in.len - r->at);
}

static void load_finish(struct named_queue *q, const char *failure)
{
    q->loader.busy = false;
    if (failure)
        close_stream(&q->loader);
    bool whole = store_load_end(queue_store(q->core), &q->span);
    if (failure)
        snprintf(q->failure, sizeof q->failure, "%s", failure);
    else if (!whole && !q->failure[0])
        snprintf(q->failure, sizeof q->failure, "the journal has no messages from id %llu on",
            (unsigned long long)q->span.first_id);
    queue_demand_turn(q->core);
    q->demand_items = q->demand_bytes = 0;
    q->wanted = 0;
}

static void read_more(struct named_queue *q, size_t bytes);

/* Moves to the next record. Returns false if the record is incomplete or damaged. If the record is damaged, sets
 * *failure. */
static bool next_record(struct message_loader *r, const char **failure)
{
    struct bytes rest = bytes_of(r->in.ptr + r->at, r->in.len - r->at);
    size_t size = queue_log_measure(rest);
    if (size == 0)
        return false;
    const char *reason;
    if (size == SIZE_MAX || !queue_log_decode(bytes_of(rest.ptr, size), &r->record, &reason)) {
        *failure = "damaged record";
        return false;
    }
    r->at += size;
    r->next_id = r->record.id;
    r->in_record = queue_record_is_dense(&r->record) || r->record.type == RECORD_KEEP;
    return true;
}

/* Loads the messages from the bytes in the buffer, and reads more bytes if messages of the span are still missing. */
static void go_on(struct named_queue *q, bool ended)
{
    struct message_loader *r = &q->loader;
    struct store *store = queue_store(q->core);
    const char *failure = NULL;
    do {
        struct queue_record_item item;
        bool dense = queue_record_is_dense(&r->record);
        while (r->in_record && (r->in_record = queue_record_next(&r->record, &item))) {
            uint64_t id = dense ? r->next_id++ : item.ids.first;
            if (dense)
                r->passed = id;
            if (!store_load(store, id, item.message))
                snprintf(q->failure, sizeof q->failure, "the journal has a different length for message %llu",
                    (unsigned long long)id);
            bool more = q->span.kept ? store_load_misses(store, &q->span) : id < q->span.last_id;
            if (!more || q->failure[0]) {
                load_finish(q, NULL);
                return;
            }
        }
    } while (next_record(r, &failure));
    if (failure || ended)
        load_finish(q, failure);
    else
        read_more(q, CHUNK);
}

/* journal_reader_open cannot fail in open_stream, because a committed record or, after a hole, a segment begins at
 * `offset`. */
static void open_stream(struct named_queue *q, uint64_t offset)
{
    struct message_loader *r = &q->loader;
    struct journal_edges edges;
    close_stream(r);
    r->began = offset;
    enum journal_result result = journal_reader_open(q->config.journal, offset, &r->reader, &edges);
    if (result == JOURNAL_GONE) /* the offset is in a hole */
        result = journal_reader_open(q->config.journal, edges.after, &r->reader, &edges);
    assert(result == JOURNAL_OK);
    (void)result;
}

static void on_window(const struct journal_window *w, void *arg)
{
    struct named_queue *q = arg;
    struct message_loader *r = &q->loader;
    if (w->result == JOURNAL_GONE) {
        open_stream(q, w->edges.after);
    } else if (w->result != JOURNAL_OK && w->result != JOURNAL_END) {
        const char *why = journal_failure(q->config.journal);
        load_finish(q, why ? why : journal_strerror(w->result));
        return;
    } else {
        /* The current record points into the buffer, and the append may move the buffer. */
        size_t table = r->in_record ? (size_t)(r->record.table.ptr - r->in.ptr) : 0;
        size_t text = r->in_record ? (size_t)(r->record.text.ptr - r->in.ptr) : 0;
        buf_append_bytes(&r->in, w->data);
        if (r->in_record) {
            r->record.table.ptr = r->in.ptr + table;
            r->record.text.ptr = r->in.ptr + text;
        }
    }
    go_on(q, w->result == JOURNAL_END);
}

static void read_more(struct named_queue *q, size_t bytes)
{
    struct message_loader *r = &q->loader;
    if (!r->in_record && r->at > 0) {
        memmove(r->in.ptr, r->in.ptr + r->at, r->in.len - r->at);
        r->in.len -= r->at;
        r->at = 0;
        if (r->in.len == 0 && r->in.cap > 4 * CHUNK)
            buf_free(&r->in);
    }
    journal_reader_read(r->reader, bytes, on_window, q);
}

/* Finds the span to load next. There are three reasons for a load: a single message, messages for waiting requests, and
 * the read-ahead. Single messages and waiting requests alternate. After each load, every waiting request repeats its
 * demand, so the queue stores only one wanted message. */
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

/* Starts the next load, unless one is in progress.
 *
 * If the span begins only a little after the position of the open stream, the load continues with this stream. The
 * loader reads at least one byte even if the buffer already contains the messages, so that load_finish is called within
 * journal_set_poll. */
static void load_next(struct named_queue *q)
{
    struct message_loader *r = &q->loader;
    const struct store_span *span = &q->span;
    if (!q->config.journal || r->busy || q->failure[0] || !next_span(q, &q->span))
        return;
    store_load_begin(queue_store(q->core), span);
    bool goes_on = r->reader && !span->kept && r->began <= span->offset && r->passed < span->first_id &&
                   span->offset <= position(r) + SKIP_BYTES_MAX;
    r->busy = true;
    if (!goes_on)
        open_stream(q, span->offset);
    read_more(q, goes_on && r->in_record ? 1 : CHUNK);
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

/* On a full disk, only the space that the previous run reserved is available, which may be a little less than a put
 * reserves. Each retry therefore reserves less. */
static void open_encode(struct op *o)
{
    struct named_queue *q = o->q;
    o->reserve = o->refused > 1 ? 0 : reserve_for_all(q, o->refused == 0 ? SPARE_OF_PUT : 0);
    queue_log_open(&q->record, queue_state(q->core)->next_id, q->lease_base, &q->openings);
}

static void note_rewrite(struct named_queue *q, enum journal_result r)
{
    q->rewrite_result = r;
    q->rewrite_failures = r == JOURNAL_OK ? 0 : q->rewrite_failures + 1;
}

static void open_finish(struct op *o, const struct journal_commit *c, struct queue_outcome *outcome)
{
    struct named_queue *q = o->q;
    (void)outcome;
    q->opening = false;
    note_rewrite(q, c->result);
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

/* Fills in record items for the messages of the page. Returns false if an op on one of these messages is in progress,
 * or if a message is spilled. *spilled is the id of the spilled message. */
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
        struct queue_record_item *item = ARRAY_ADD(*items, *n, cap);
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
    note_rewrite(o->q, c->result);
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
    o->reserve = reserve_for_all(q, q->full && !erases(q) ? 0 : SPARE_OF_PUT);
    buf_clear(&q->record);
    queue_log_keep(&q->record, queue_state(q->core)->next_id, items, n);
    for (size_t i = 0; i < n; i++) {
        texts[2 * i] = items[i].message;
        texts[2 * i + 1] = items[i].reason;
    }
    enum queue_result r = op_append(o, &a, texts, 2 * n, q->now, NULL);
    if (r != QUEUE_OK)
        op_free(o);
    if (r == QUEUE_TOO_LARGE)
        note_rewrite(q, JOURNAL_TOO_LARGE);
    free(texts);
    return r == QUEUE_OK;
}

/* The oldest segment is sparse if at most a fourth of it is needed, or if the journal is much longer than the queue.
 * The queue therefore rewrites at most a fourth of each segment, or about as many bytes as puts add. */
static bool oldest_is_sparse(struct named_queue *q)
{
    const struct journal *j = q->config.journal;
    uint64_t earliest = journal_earliest(j), end = journal_committed_end(j);
    size_t changes = queue_store(q->core)->changes;
    if (reserve_waits(q, OP_KEEP, q->now) ||
        (changes == q->keep_changes && end < q->keep_end + q->config.trim_step))
        return false;
    q->keep_changes = changes;
    q->keep_end = end;
    uint64_t oldest_end = journal_earliest_end(j),
             needed = store_bytes_below(queue_store(q->core), oldest_end);
    uint64_t segment = 4 * q->config.trim_step, length = journal_bytes_between(j, earliest, end);
    bool is_sparse = length >= 2 * segment && (needed <= journal_bytes_between(j, earliest, oldest_end) / 4 ||
                                                  length > 2 * queue_state(q->core)->bytes + 4 * segment);
    return is_sparse && needed > 0 && !(q->full && needed > KEEP_ON_FULL_DISK_MAX);
}

/* Rewrites the first page that is below offset `end`, begins at id `from` or later, and can be rewritten now. Returns
 * false if no page matches. */
static bool keep_page(struct named_queue *q, uint64_t end, uint64_t from)
{
    struct store_span page;
    uint64_t spilled = 0;
    for (; !q->keeping && !spilled && store_next_below(queue_store(q->core), end, from, &page);
         from = page.last_id + 1) {
        struct queue_record_item *items = NULL;
        size_t n = 0;
        if (describe_page(q, &page, &items, &n, &spilled))
            q->keeping = append_keep(q, &page, items, n);
        else
            q->keep_changes = SIZE_MAX; /* repeat the search in the next turn */
        if (q->keeping)
            q->keep_from = page.last_id + 1;
        free(items);
    }
    if (spilled && !q->wanted)
        q->wanted = spilled;
    return q->keeping || spilled;
}

/* Rewrites the remaining messages of the oldest segment, one page per turn, so that the segment can be deleted. Only
 * sparse segments are rewritten, except during an erasure. An erasure continues after the last rewritten page, so that
 * it does not search all pages for each page. */
static void keep(struct named_queue *q)
{
    uint64_t end = journal_earliest_end(q->config.journal);
    if (q->keeping)
        return;
    if (!erases(q)) {
        if (oldest_is_sparse(q))
            keep_page(q, end, 0);
    } else if (store_lowest_offset(queue_store(q->core)) < end && !keep_page(q, end, q->keep_from) &&
               q->keep_from > 0) {
        q->keep_from = 0;
        keep_page(q, end, 0);
    }
}

/* Returns the offset before which no record is needed. The last record is needed because it contains the next id. A
 * load needs the offset that its first page had when the load began, because a later KEEP record may have moved the
 * page. */
static uint64_t lowest_needed(struct named_queue *q)
{
    uint64_t lowest = store_lowest_offset(queue_store(q->core));
    if (lowest > q->last_record)
        lowest = q->last_record;
    return q->loader.busy && lowest > q->span.offset ? q->span.offset : lowest;
}

/* Commits a new OPEN record before the last OPEN record is trimmed, unless the disk is full. */
void storage_maintain(struct named_queue *q)
{
    if (!q->config.journal)
        return;
    if (q->open_missing && q->committed)
        storage_append_open(q);
    uint64_t needed = lowest_needed(q);
    if (needed >= journal_earliest_end(q->config.journal)) {
        bool loses_open = q->open_record < needed;
        if (loses_open && !q->open_missing) {
            storage_append_open(q);
        } else if (!loses_open || q->full) {
            if (q->loader.reader && !q->loader.busy && position(&q->loader) < needed)
                close_stream(&q->loader); /* releases the segment that the stream uses */
            journal_trim(q->config.journal, needed);
        }
    }
    keep(q);
    if (q->config.limits->max_memory)
        queue_spill(q->core, q->config.limits->max_memory);
    load_next(q);
}
