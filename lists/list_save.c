#include "lists/list_save.h"

#include <stdlib.h>

/* An item that a batch touches. */
struct touched {
    UT_hash_handle hh;
    struct bytes id;                 /* in `text` */
    int64_t lists;                   /* difference */
    const struct unsaved_item *item; /* newest of the batch; NULL: unknown */
    char text[];
};
struct run {
    struct list_save *save;
    struct list_txn *txn;
    struct list list;
    struct buf code;
    struct touched *touched;
};

static void touch(struct run *run, const struct list_entry *e, int lists)
{
    struct touched *t;
    HASH_FIND_BYHASHVALUE(hh, run->touched, e->id.ptr, e->id.len, e->hash, t);
    if (!t) {
        t = mem_zalloc(sizeof *t + e->id.len);
        memcpy(t->text, e->id.ptr, e->id.len); /* the transaction's next change may move the stored id */
        t->id = bytes_of(t->text, e->id.len);
        HASH_ADD_KEYPTR_BYHASHVALUE(hh, run->touched, t->text, t->id.len, e->hash, t);
    }
    t->lists += lists;
    if (e->item && (!t->item || e->item->change.sequence > t->item->change.sequence))
        t->item = e->item;
}

static void save_key(struct run *run, const struct unsaved_key *key)
{
    struct bytes text = bytes_of(key->text, key->len), old = BYTES_NONE;
    struct list *list = &run->list;
    list->n = 0;
    if (list_txn_get(run->txn, LIST_TABLE_LISTS, text, &old) && !list_decode(list, old)) {
        list_txn_set_damaged(run->txn, LIST_TABLE_LISTS, text);
        return;
    }
    size_t stored = list->n;
    unsaved_append_entries(key, list);
    for (size_t i = stored; i < list->n; i++)
        touch(run, &list->entries[i], 0);
    list_merge(list, stored, run->save->limit);
    for (size_t i = 0; i < list->n; i++)
        if (!list->entries[i].is_stored)
            touch(run, &list->entries[i], 1);
    for (size_t i = list->n; i < list->n + list->cut; i++)
        if (list->entries[i].is_stored)
            touch(run, &list->entries[i], -1);
    buf_clear(&run->code);
    list_encode(list, &run->code);
    if (bytes_equal(buf_bytes(&run->code), old))
        return;
    list_txn_put(run->txn, LIST_TABLE_LISTS, text, buf_bytes(&run->code));
    run->save->saved.keys++;
    run->save->saved.bytes += run->code.len;
}

static void save_edge(struct run *run, const struct unsaved_edge *edge)
{
    const struct unsaved_author *author = edge->author;
    struct bytes name = bytes_of(author->text, author->len);
    list_txn_put_edge(run->txn, name, bytes_of(edge->text + 1 + name.len, edge->follower_len), edge->follows);
    run->save->saved.edges++;
}

/* Brings a record up to date with the newest version of the item. */
static void update(struct list_item *record, const struct unsaved_item *item)
{
    if (item->removed > record->removed)
        record->removed = item->removed;
    if (item->added > record->sequence) {
        record->sequence = item->added;
        record->data = bytes_of(item->text + item->id_len, item->data_len);
    }
    if (record->sequence < record->removed) {
        record->sequence = 0;
        record->data = BYTES_NONE;
    }
}

static void save_item(struct run *run, const struct touched *t)
{
    struct list_item record = {0};
    struct bytes old = BYTES_NONE;
    if (list_txn_get(run->txn, LIST_TABLE_ITEMS, t->id, &old) && !list_item_decode(&record, old)) {
        list_txn_set_damaged(run->txn, LIST_TABLE_ITEMS, t->id);
        return;
    }
    if (t->lists < 0 && record.lists < (uint64_t)-t->lists) {
        list_txn_set_damaged(run->txn, LIST_TABLE_ITEMS, t->id);
        return;
    }
    record.lists += (uint64_t)t->lists;
    if (record.lists == 0) {
        if (old.len > 0)
            list_txn_delete(run->txn, LIST_TABLE_ITEMS, t->id);
        return;
    }
    if (t->item)
        update(&record, t->item);
    buf_clear(&run->code);
    list_item_encode(&record, &run->code);
    if (bytes_equal(buf_bytes(&run->code), old))
        return;
    list_txn_put(run->txn, LIST_TABLE_ITEMS, t->id, buf_bytes(&run->code));
    run->save->saved.items++;
    run->save->saved.bytes += run->code.len;
}

static void save_all(struct run *run)
{
    const struct unsaved_change *c;
    struct touched *t, *next;
    STAILQ_FOREACH(c, run->save->batch, link)
    {
        const struct unsaved_item *item = (const struct unsaved_item *)c;
        if (c->type == UNSAVED_KEY)
            save_key(run, (const struct unsaved_key *)c);
        else if (c->type == UNSAVED_EDGE)
            save_edge(run, (const struct unsaved_edge *)c);
        else
            touch(run,
                &(struct list_entry){
                    .id = bytes_of(item->text, item->id_len), .item = item, .hash = item->hash},
                0);
    }
    HASH_ITER(hh, run->touched, t, next)
    {
        save_item(run, t);
        HASH_DEL(run->touched, t);
        free(t);
    }
}

void list_save_run(struct list_save *save)
{
    struct run run = {.save = save};
    save->saved = (struct list_saved){0};
    run.txn = list_store_write(save->store, &save->error);
    if (!run.txn)
        return;
    save_all(&run);
    list_txn_commit(&run.txn, save->position);
    list_free(&run.list);
    buf_free(&run.code);
}
