#include "lists/lists.h"

#include "base/io.h"
#include "base/work_thread.h"
#include "lists/list_save.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define JOURNAL_DIR "journals/lists"
#define SEGMENT_BYTES ((uint64_t)16 << 20)
#define BATCH_BYTES ((size_t)16 << 20)
#define SLICE 100 /* steps between checks of the memory */

/* The operation that is being made. */
struct making {
    bool is_active;
    struct list_op op; /* op.names: those that are left */
    struct bytes author;
    uint64_t sequence;
    struct unsaved_item *item; /* NULL before the first entry */
    bool walks_store;          /* an author's unsaved edges are done */
    char after[LIST_NAME_MAX]; /* the last follower of the walk */
    size_t after_len, steps;
    usec_t now;
};
struct lists {
    struct lists_config config;
    struct unsaved unsaved;
    struct list_store *store;
    struct journal_set *set;
    struct journal *journal;
    struct work_thread *thread;
    STAILQ_HEAD(, lists_change) committed; /* not yet made */
    struct making making;
    uint64_t made;     /* the offset after the last operation that is made */
    uint64_t position; /* of the store */
    size_t waiting;    /* bytes of changes that are not made yet */
    struct list_save save;
    bool is_saving; /* the thread runs */
    bool is_full;   /* the batch waits for space */
    usec_t stamp;
    struct error failure; /* code 0: none */
    struct list list;     /* of reads */
    struct buf followers; /* a slice of an author's */
    struct lists_stats stats;
};

static size_t limit_of(const struct lists *l)
{
    return l->config.keep + LISTS_SPARE(l->config.keep);
}

/* Saves */

static void run_save(void *ctx, void *save)
{
    (void)ctx;
    list_save_run(save);
}

static void take_batch(struct lists *l)
{
    unsaved_begin_batch(&l->unsaved, l->config.batch, BATCH_BYTES);
    const struct unsaved_change *oldest = unsaved_oldest(&l->unsaved);
    l->save.store = l->store;
    l->save.batch = &l->unsaved.batch;
    l->save.limit = limit_of(l);
    l->save.position = oldest ? oldest->sequence - 1 : l->making.is_active ? l->making.sequence - 1 : l->made;
}

static void end_save(struct lists *l)
{
    l->is_saving = false;
    l->is_full = l->save.error.code == LISTS_NO_SPACE;
    if (l->save.error.code != LISTS_OK) {
        if (!l->is_full)
            l->failure = l->save.error;
        return;
    }
    l->position = l->save.position;
    journal_trim(l->journal, l->position);
    unsaved_end_batch(&l->unsaved);
    l->stats.saves++;
    l->stats.keys_saved += l->save.saved.keys;
    l->stats.items_written += l->save.saved.items;
    l->stats.edges_saved += l->save.saved.edges;
    l->stats.bytes_saved += l->save.saved.bytes;
}

static bool exceeds_memory(const struct lists *l)
{
    return l->unsaved.memory > l->config.memory && (l->is_saving || unsaved_oldest(&l->unsaved));
}

static void save_if_due(struct lists *l, usec_t now)
{
    const struct unsaved_change *oldest = unsaved_oldest(&l->unsaved);
    if (l->is_saving || l->is_full || l->failure.code != 0)
        return;
    if (!(oldest && now - oldest->since >= l->config.delay) && !exceeds_memory(l) &&
        l->made - l->position <= LISTS_JOURNAL_MAX)
        return;
    take_batch(l);
    l->is_saving = true;
    work_thread_start(l->thread, &l->save);
}

/* Operations */

static bool is_stored(struct bytes id, void *arg)
{
    struct lists *l = arg;
    struct error error;
    struct bytes value;
    struct list_txn *t = list_store_read(l->store, &error);
    bool found = !t || list_txn_get(t, LIST_TABLE_ITEMS, id, &value);
    return (t && list_txn_end(&t) != LISTS_OK) || found;
}

static void put(struct bytes key, struct lists *l)
{
    struct making *m = &l->making;
    bool is_removal = m->op.type == LIST_REMOVE_FROM;
    if (!m->item)
        m->item = is_removal
                      ? unsaved_item_name(&l->unsaved, m->op.id)
                      : unsaved_put_item(&l->unsaved, m->op.id, m->op.data, false, m->sequence, m->now);
    unsaved_put(&l->unsaved, key, m->item, is_removal ? LIST_NO_TIME : m->op.time, m->sequence, m->now);
    l->stats.entries++;
    m->steps--;
}

static bool begin_op(struct lists *l, struct bytes *left, uint64_t end)
{
    struct making *m = &l->making;
    uint64_t offset = end - left->len;
    struct list_op op;
    if (!list_op_take(left, &op)) {
        error_set(&l->failure, LISTS_DAMAGED, "%.500s/" JOURNAL_DIR ": no operation at offset %" PRIu64,
            l->config.dir, offset);
        return false;
    }
    *m = (struct making){.is_active = true, .op = op, .sequence = offset + 1};
    if (op.type == LIST_ADD_BY_AUTHOR) {
        list_name_take(&op.names, &m->author);
        unsaved_walk_begin(&l->unsaved, m->author);
    }
    return true;
}

static void append_name(struct bytes follower, void *names)
{
    list_name_append(names, follower);
}

/* Puts the item into the lists of followers of stored edges. */
static void put_stored_followers(struct lists *l)
{
    struct making *m = &l->making;
    struct bytes names, name;
    struct error error;
    struct list_txn *t = list_store_read(l->store, &error);
    buf_clear(&l->followers);
    if (t)
        list_txn_walk_followers(
            t, m->author, bytes_of(m->after, m->after_len), m->steps, append_name, &l->followers);
    if (!t || list_txn_end(&t) != LISTS_OK) {
        l->failure = error;
        return;
    }
    for (names = buf_bytes(&l->followers); list_name_take(&names, &name);) {
        memcpy(m->after, name.ptr, name.len);
        m->after_len = name.len;
        if (unsaved_find_edge(&l->unsaved, m->author, name))
            m->steps--; /* the unsaved edge counts, and is done */
        else
            put(name, l);
    }
}

/* Puts the item into the lists of at most m->steps followers, first those of unsaved edges. So a follower is not missed if the
 * edge is saved meanwhile. Returns true after the last follower. */
static bool put_followers(struct lists *l)
{
    struct making *m = &l->making;
    const struct unsaved_edge *edge;
    while (!m->walks_store && m->steps > 0) {
        edge = unsaved_walk_next(&l->unsaved);
        if (!edge)
            m->walks_store = true;
        else if (edge->is_latest && edge->follows)
            put(bytes_of(edge->text + 1 + edge->author->len, edge->follower_len), l);
        else
            m->steps--;
    }
    if (m->steps == 0)
        return false;
    put_stored_followers(l);
    return m->steps > 0;
}

/* Makes at most m->steps steps. Returns true if the operation is made. */
static bool continue_op(struct lists *l)
{
    struct making *m = &l->making;
    struct bytes name;
    if (m->op.type == LIST_ADD_BY_AUTHOR)
        return put_followers(l);
    if (m->op.type == LIST_REMOVE) {
        m->item = unsaved_put_item(&l->unsaved, m->op.id, BYTES_NONE, true, m->sequence, m->now);
        m->steps--;
        return true;
    }
    while (m->steps > 0 && list_name_take(&m->op.names, &name)) {
        if (m->op.type == LIST_ADD || m->op.type == LIST_REMOVE_FROM)
            put(name, l);
        else {
            unsaved_put_edge(&l->unsaved, m->op.id, name, m->op.type == LIST_FOLLOW, m->sequence, m->now);
            m->steps--;
        }
    }
    return m->op.names.len == 0;
}

/* Makes the next operation of *left, which ends at the offset `end`, or a slice of it. Returns the number of steps; 0: failed. */
static size_t make_slice(struct lists *l, struct bytes *left, uint64_t end, usec_t now)
{
    struct making *m = &l->making;
    if (!m->is_active && !begin_op(l, left, end))
        return 0;
    size_t slice = m->steps = l->config.turn < SLICE ? l->config.turn : SLICE;
    m->now = now;
    if (continue_op(l)) {
        unsaved_item_release(&l->unsaved, m->item);
        m->is_active = false;
        l->made = end - left->len;
        l->stats.ops++;
    }
    return l->failure.code != 0 ? 0 : slice - m->steps + 1;
}

/* Open and close */

struct replay {
    struct lists *lists;
    usec_t now;
};

static bool replay(const struct journal_scanned *frame, void *arg)
{
    const struct replay *r = arg;
    struct lists *l = r->lists;
    struct bytes left = frame->payload;
    struct list_op skipped;
    uint64_t end = frame->offset + frame->payload.len;
    while (left.len > 0 && end - left.len < l->position)
        if (!list_op_take(&left, &skipped))
            break; /* make_slice finds it */
    while (left.len > 0 || l->making.is_active) {
        if (make_slice(l, &left, end, r->now) == 0)
            return false;
        if (exceeds_memory(l) && !l->is_full) {
            take_batch(l);
            list_save_run(&l->save);
            end_save(l);
        }
    }
    return true;
}

/* Returns an enum lists_result, as the following functions. */
static int open_journal(struct lists *l, const char *dir, struct error *error)
{
    char text[JOURNAL_ERROR_TEXT];
    if (io_make_dirs(dir) != 0)
        return error_errno(error, LISTS_FAILED, dir);
    enum journal_result r = journal_open(l->set,
        &(struct journal_config){.dir = dir, .segment_bytes = SEGMENT_BYTES}, &l->journal, text, sizeof text);
    if (r == JOURNAL_OK)
        return 0;
    bool is_damage = r == JOURNAL_DAMAGED || r == JOURNAL_VERSION;
    return error_set(error, is_damage ? LISTS_DAMAGED : LISTS_FAILED, "%s", text);
}

static int open_store(struct lists *l, struct error *error)
{
    l->store = list_store_open(l->config.dir, journal_id(l->journal), error);
    struct list_txn *t = l->store ? list_store_read(l->store, error) : NULL;
    if (!t)
        return error->code;
    l->position = l->made = list_txn_position(t);
    return (int)list_txn_end(&t);
}

static int replay_journal(struct lists *l, const char *dir, usec_t now, struct error *error)
{
    if (journal_earliest(l->journal) > l->position)
        return error_set(error, LISTS_DAMAGED, "%.500s: begins after the last save of the lists", dir);
    if (journal_committed_end(l->journal) < l->position)
        return error_set(error, LISTS_DAMAGED, "%.500s: ends before the last save of the lists", dir);
    enum journal_result r = journal_scan(l->journal, l->position, replay, &(struct replay){l, now});
    if (r != JOURNAL_OK)
        return error_set(error, r == JOURNAL_DAMAGED ? LISTS_DAMAGED : LISTS_FAILED, "%.500s: %s", dir,
            r == JOURNAL_DAMAGED ? journal_failure(l->journal) : journal_strerror(r));
    if (l->failure.code != 0)
        *error = l->failure;
    return l->failure.code;
}

struct lists *lists_open(const struct lists_config *config, usec_t now, struct error *error)
{
    struct lists *l = mem_zalloc(sizeof *l);
    char *dir = mem_printf("%s/" JOURNAL_DIR, config->dir);
    l->config = *config;
    l->config.batch = config->batch == 0 ? LISTS_BATCH : config->batch;
    l->config.turn = config->turn == 0 ? LISTS_TURN : config->turn;
    STAILQ_INIT(&l->committed);
    unsaved_init(&l->unsaved, limit_of(l), is_stored, l);
    l->set = journal_set_new(
        &(struct journal_set_config){.notify = config->notify, .notify_arg = config->notify_arg});
    l->thread = work_thread_new(&(struct work_thread_config){
        .run = run_save, .ctx = l, .notify = config->notify, .notify_arg = config->notify_arg});
    int r = l->thread ? 0 : error_errno(error, LISTS_FAILED, "cannot start a thread");
    if (r == 0)
        r = open_journal(l, dir, error);
    if (r == 0)
        r = open_store(l, error);
    if (r == 0)
        r = replay_journal(l, dir, now, error);
    if (r == 0)
        l->stamp = journal_clock(l->journal);
    else
        lists_close(&l);
    free(dir);
    return l;
}

static void finish(struct lists *l, struct lists_change *c, enum journal_result r)
{
    STAILQ_REMOVE_HEAD(&l->committed, link);
    l->waiting -= c->ops.len;
    c->done(c, r);
}

void lists_close(struct lists **lp)
{
    struct lists *l = *lp;
    struct lists_change *c;
    if (!l)
        return;
    work_thread_free(&l->thread);
    journal_set_free(&l->set);
    while ((c = STAILQ_FIRST(&l->committed)))
        finish(l, c, JOURNAL_CLOSED);
    if (l->making.is_active)
        unsaved_item_release(&l->unsaved, l->making.item);
    unsaved_free(&l->unsaved);
    list_store_close(&l->store);
    list_free(&l->list);
    buf_free(&l->followers);
    free(l);
    *lp = NULL;
}

/* Changes */

static void on_commit(const struct journal_commit *commit, void *arg)
{
    struct lists_change *c = arg;
    struct lists *l = c->lists;
    c->left = buf_bytes(&c->ops);
    c->end = commit->end;
    if (commit->result == JOURNAL_OK) {
        STAILQ_INSERT_TAIL(&l->committed, c, link);
        return;
    }
    l->waiting -= c->ops.len;
    c->done(c, commit->result);
}

usec_t lists_stamp(struct lists *l, usec_t now)
{
    return l->stamp = now > l->stamp ? now : l->stamp + 1;
}

enum journal_result lists_change(struct lists *l, struct lists_change *c, usec_t now)
{
    struct bytes ops = buf_bytes(&c->ops);
    if (l->failure.code != 0)
        return JOURNAL_LATCHED;
    if (l->is_full)
        return JOURNAL_NO_SPACE;
    if (l->waiting > LISTS_WAITING_MAX)
        return JOURNAL_BUSY;
    c->lists = l;
    l->stamp = now > l->stamp ? now : l->stamp;
    enum journal_result r = journal_append(l->journal,
        &(struct journal_append){.pieces = &ops,
            .n_pieces = ops.len > 0,
            .producer = c->follower,
            .next = c->cursor.offset,
            .tag = c->cursor.tag,
            .sets_mark = c->follower.len > 0},
        l->stamp, on_commit, c, NULL);
    if (r == JOURNAL_OK)
        l->waiting += ops.len;
    return r;
}

struct lists_cursor lists_follower_cursor(const struct lists *l, struct bytes follower)
{
    return (struct lists_cursor){journal_mark(l->journal, follower, NULL), journal_tag(l->journal, follower)};
}

static void make_changes(struct lists *l, usec_t now)
{
    struct lists_change *c;
    size_t steps = 0;
    while ((c = STAILQ_FIRST(&l->committed))) {
        bool is_made = c->left.len == 0 && !l->making.is_active;
        if (is_made || l->failure.code != 0) {
            finish(l, c, is_made ? JOURNAL_OK : JOURNAL_LATCHED);
            continue;
        }
        if (exceeds_memory(l))
            return; /* until the save ends */
        if (steps >= l->config.turn) {
            l->config.notify(l->config.notify_arg);
            return;
        }
        steps += make_slice(l, &c->left, c->end, now);
    }
}

void lists_poll(struct lists *l, usec_t now)
{
    if (l->is_saving && work_thread_done(l->thread))
        end_save(l);
    journal_set_poll(l->set);
    make_changes(l, now);
    save_if_due(l, now);
}

void lists_tick(struct lists *l, usec_t now)
{
    if (l->is_full && l->failure.code == 0) {
        l->is_full = false;
        l->is_saving = true;
        work_thread_start(l->thread, &l->save);
    }
    save_if_due(l, now);
}

/* Reads */

struct read {
    struct lists *lists;
    struct list_txn *txn;
};

/* Finds an entry's item. Returns false if it is hidden. */
static bool find_item(const struct read *r, const struct list_entry *e, struct lists_shown *shown)
{
    struct list_item record = {0};
    struct bytes code;
    const struct unsaved_item *item = unsaved_find_item(&r->lists->unsaved, e->id, e->hash);
    if (list_txn_get(r->txn, LIST_TABLE_ITEMS, e->id, &code) && !list_item_decode(&record, code)) {
        list_txn_set_damaged(r->txn, LIST_TABLE_ITEMS, e->id);
        return false;
    }
    *shown = (struct lists_shown){.time = e->time, .id = e->id, .data = record.data};
    if (item && item->added > record.sequence)
        shown->data = bytes_of(item->text + item->id_len, item->data_len);
    uint64_t removed = item && item->removed > record.removed ? item->removed : record.removed;
    return e->stamp / 2 > removed;
}

static bool is_after(const struct list_entry *e, const struct lists_place *place)
{
    if (!place)
        return true;
    return list_entry_compare(&(struct list_entry){.time = place->time, .id = place->id}, e) < 0 &&
           (place->id.len > 0 || e->time < place->time);
}

enum lists_result lists_get(struct lists *l, struct bytes key, size_t limit, const struct lists_place *before,
    void (*fn)(const struct lists_shown *item, void *arg), void *arg, struct error *error)
{
    struct read r = {l, list_store_read(l->store, error)};
    struct list *list = &l->list;
    struct bytes code;
    struct lists_shown shown;
    if (!r.txn)
        return (enum lists_result)error->code;
    list->n = 0;
    if (list_txn_get(r.txn, LIST_TABLE_LISTS, key, &code) && !list_decode(list, code))
        list_txn_set_damaged(r.txn, LIST_TABLE_LISTS, key);
    size_t stored = list->n, seen = 0;
    unsaved_append_all(&l->unsaved, key, list);
    if (list->n > stored)
        list_merge(list, stored, limit_of(l));
    for (size_t i = 0; i < list->n && seen < l->config.keep && limit > 0; i++) {
        const struct list_entry *e = &list->entries[i];
        if (list_entry_is_removed(e) || !find_item(&r, e, &shown))
            continue;
        seen++;
        if (!is_after(e, before))
            continue;
        fn(&shown, arg);
        limit--;
    }
    return list_txn_end(&r.txn);
}

enum lists_result lists_keys(struct lists *l, struct bytes after, size_t limit,
    void (*fn)(struct bytes key, void *arg), void *arg, struct error *error)
{
    struct list_txn *t = list_store_read(l->store, error);
    if (!t)
        return (enum lists_result)error->code;
    list_txn_walk_keys(t, after, limit, fn, arg);
    return list_txn_end(&t);
}

enum lists_result lists_followers(struct lists *l, struct bytes author, struct bytes after, size_t limit,
    void (*fn)(struct bytes follower, void *arg), void *arg, struct error *error)
{
    struct list_txn *t = list_store_read(l->store, error);
    if (!t)
        return (enum lists_result)error->code;
    list_txn_walk_followers(t, author, after, limit, fn, arg);
    return list_txn_end(&t);
}

struct lists_stats lists_stats(struct lists *l)
{
    struct lists_stats s = l->stats;
    struct error error;
    struct list_txn *t = list_store_read(l->store, &error);
    const struct unsaved_change *oldest = STAILQ_FIRST(&l->unsaved.batch);
    oldest = oldest ? oldest : unsaved_oldest(&l->unsaved);
    if (t) {
        s.keys = list_txn_count(t, LIST_TABLE_LISTS);
        s.items = list_txn_count(t, LIST_TABLE_ITEMS);
        s.edges = list_txn_count(t, LIST_TABLE_EDGES);
        list_txn_end(&t);
    }
    s.unsaved_keys = l->unsaved.n_keys;
    s.unsaved_entries = l->unsaved.n_entries;
    s.unsaved_edges = l->unsaved.n_edges;
    s.memory = l->unsaved.memory;
    s.waiting = l->waiting;
    s.journal_bytes = journal_disk_bytes(l->journal);
    s.store_bytes = list_store_bytes(l->store);
    s.oldest_change = oldest ? oldest->since : 0;
    return s;
}

bool lists_is_full(const struct lists *l)
{
    return l->is_full;
}

const char *lists_failure(const struct lists *l)
{
    if (l->failure.code != 0)
        return l->failure.text;
    return journal_is_latched(l->journal) ? journal_failure(l->journal) : NULL;
}
