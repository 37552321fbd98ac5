#include "lists/unsaved.h"

#include "lists/list_op.h"

#include <assert.h>
#include <malloc.h>
#include <stdlib.h>

#define PAIR_MAX (2 + 2 * LIST_NAME_MAX)
#define ENTRY_WEIGHT 100 /* bytes that an entry counts in a batch, beside its data */
#define STORED_WEIGHT 30 /* bytes of each entry that the stored list of a key may have */

static void *take(struct unsaved *u, size_t size)
{
    void *p = mem_zalloc(size);
    u->memory += malloc_usable_size(p) + sizeof(size_t);
    return p;
}

static void give(struct unsaved *u, void *p)
{
    if (p)
        u->memory -= malloc_usable_size(p) + sizeof(size_t);
    free(p);
}

void unsaved_init(struct unsaved *u, size_t limit, bool (*is_stored)(struct bytes id, void *arg), void *arg)
{
    *u = (struct unsaved){.limit = limit, .is_stored = is_stored, .arg = arg};
    STAILQ_INIT(&u->queue);
    STAILQ_INIT(&u->batch);
}

static void enqueue(
    struct unsaved *u, struct unsaved_change *c, enum unsaved_type type, uint64_t sequence, usec_t now)
{
    c->type = type;
    c->sequence = sequence;
    c->since = now;
    STAILQ_INSERT_TAIL(&u->queue, c, link);
}

/* Items */

static struct bytes id_of(const struct unsaved_item *item)
{
    return bytes_of(item->text, item->id_len);
}

static struct unsaved_item *new_item(struct unsaved *u, struct bytes id, struct bytes data)
{
    struct unsaved_item *item = take(u, sizeof *item + id.len + data.len);
    item->refs = 1;
    item->id_len = (uint8_t)id.len;
    item->data_len = (uint32_t)data.len;
    item->hash = (uint32_t)text_hash(id);
    memcpy(item->text, id.ptr, id.len);
    if (data.len > 0)
        memcpy(item->text + id.len, data.ptr, data.len);
    return item;
}

struct unsaved_item *unsaved_item_name(struct unsaved *u, struct bytes id)
{
    return new_item(u, id, BYTES_NONE);
}

struct unsaved_item *unsaved_put_item(
    struct unsaved *u, struct bytes id, struct bytes data, bool is_removal, uint64_t sequence, usec_t now)
{
    struct unsaved_item *item = new_item(u, id, data), *earlier;
    HASH_FIND_BYHASHVALUE(hh, u->items, item->text, id.len, item->hash, earlier);
    if (earlier) {
        item->removed = earlier->removed;
        HASH_DEL(u->items, earlier);
        earlier->is_newest = false;
    }
    *(is_removal ? &item->removed : &item->added) = sequence;
    HASH_ADD_KEYPTR_BYHASHVALUE(hh, u->items, item->text, id.len, item->hash, item);
    item->is_newest = true;
    item->refs++;
    enqueue(u, &item->change, UNSAVED_ITEM, sequence, now);
    return item;
}

void unsaved_item_release(struct unsaved *u, struct unsaved_item *item)
{
    if (!item || --item->refs > 0)
        return;
    if (item->is_newest)
        HASH_DEL(u->items, item);
    give(u, item);
}

const struct unsaved_item *unsaved_find_item(struct unsaved *u, struct bytes id, uint32_t hash)
{
    struct unsaved_item *item;
    HASH_FIND_BYHASHVALUE(hh, u->items, id.ptr, id.len, hash, item);
    return item;
}

/* Keys */

static struct unsaved_key *key_for(struct unsaved *u, struct bytes text, uint64_t sequence, usec_t now)
{
    struct unsaved_key *key;
    unsigned hash = (unsigned)text_hash(text);
    HASH_FIND_BYHASHVALUE(hh, u->keys, text.ptr, text.len, hash, key);
    if (key)
        return key;
    key = take(u, sizeof *key + text.len);
    key->len = text.len;
    memcpy(key->text, text.ptr, text.len);
    HASH_ADD_KEYPTR_BYHASHVALUE(hh, u->keys, key->text, key->len, hash, key);
    enqueue(u, &key->change, UNSAVED_KEY, sequence, now);
    u->n_keys++;
    return key;
}

static void append_entry(struct list *list, const struct unsaved_entry *e)
{
    list_add(list, &(struct list_entry){.time = e->time,
                       .stamp = e->stamp,
                       .id = id_of(e->item),
                       .item = e->item,
                       .hash = e->item->hash});
}

void unsaved_append_entries(const struct unsaved_key *key, struct list *list)
{
    for (size_t i = 0; i < key->n; i++)
        append_entry(list, &key->entries[i]);
}

/* Merges the log of a key, unless the batch has the key. */
static void shorten(struct unsaved *u, struct unsaved_key *key)
{
    struct list *list = &u->scratch;
    struct unsaved_entry *log = key->entries;
    struct unsaved_key *in_batch;
    size_t n = key->n;
    HASH_FIND_BYHASHVALUE(hh, u->batch_keys, key->text, key->len, key->hh.hashv, in_batch);
    if (in_batch)
        return;
    list->n = 0;
    unsaved_append_entries(key, list);
    list_merge(list, 0, u->limit);
    size_t merged = list->n + list->cut + list->loose;
    for (size_t i = 0; i < merged; i++)
        ((struct unsaved_item *)(uintptr_t)list->entries[i].item)->refs++;
    key->entries = take(u, key->cap * sizeof *log);
    for (size_t i = 0; i < n; i++)
        unsaved_item_release(u, log[i].item);
    give(u, log);
    for (size_t i = key->n = 0; i < merged; i++) {
        const struct list_entry *e = &list->entries[i];
        struct unsaved_item *item = (struct unsaved_item *)(uintptr_t)e->item;
        bool is_cut = i >= list->n && i < list->n + list->cut;
        if (is_cut && !u->is_stored(id_of(item), u->arg))
            unsaved_item_release(u, item);
        else
            key->entries[key->n++] = (struct unsaved_entry){e->time, e->stamp, item};
    }
    u->n_entries -= n - key->n;
}

static void grow(struct unsaved *u, struct unsaved_key *key)
{
    size_t cap = key->cap == 0 ? 1 : 2 * key->cap;
    struct unsaved_entry *entries = take(u, cap * sizeof *entries);
    if (key->n > 0)
        memcpy(entries, key->entries, key->n * sizeof *entries);
    give(u, key->entries);
    key->entries = entries;
    key->cap = cap;
}

void unsaved_put(struct unsaved *u, struct bytes text, struct unsaved_item *item, usec_t time,
    uint64_t sequence, usec_t now)
{
    struct unsaved_key *key = key_for(u, text, sequence, now);
    uint64_t stamp = 2 * sequence + (time == LIST_NO_TIME);
    if (key->n > 0 && key->entries[key->n - 1].stamp == stamp)
        return; /* the operation names the key twice */
    if (key->n == key->cap && key->n >= 2 * u->limit)
        shorten(u, key);
    if (key->n == key->cap)
        grow(u, key);
    key->entries[key->n++] = (struct unsaved_entry){time, stamp, item};
    item->refs++;
    u->n_entries++;
}

void unsaved_append_all(struct unsaved *u, struct bytes text, struct list *list)
{
    struct unsaved_key *key;
    unsigned hash = (unsigned)text_hash(text);
    HASH_FIND_BYHASHVALUE(hh, u->batch_keys, text.ptr, text.len, hash, key);
    if (key)
        unsaved_append_entries(key, list);
    HASH_FIND_BYHASHVALUE(hh, u->keys, text.ptr, text.len, hash, key);
    if (key)
        unsaved_append_entries(key, list);
}

/* Edges */

static size_t pair(char *out, struct bytes author, struct bytes follower)
{
    out[0] = (char)author.len;
    memcpy(out + 1, author.ptr, author.len);
    memcpy(out + 1 + author.len, follower.ptr, follower.len);
    return 1 + author.len + follower.len;
}

static struct unsaved_edge *find_edge(struct unsaved *u, struct bytes author, struct bytes follower)
{
    char text[PAIR_MAX];
    size_t len = pair(text, author, follower);
    struct unsaved_edge *edge;
    HASH_FIND(hh, u->edges, text, len, edge);
    return edge;
}

const struct unsaved_edge *unsaved_find_edge(struct unsaved *u, struct bytes author, struct bytes follower)
{
    return find_edge(u, author, follower);
}

static struct unsaved_author *find_author(struct unsaved *u, struct bytes name)
{
    struct unsaved_author *author;
    HASH_FIND(hh, u->authors, name.ptr, name.len, author);
    return author;
}

static struct unsaved_author *author_for(struct unsaved *u, struct bytes name)
{
    struct unsaved_author *author = find_author(u, name);
    if (author)
        return author;
    author = take(u, sizeof *author + name.len);
    author->len = (uint8_t)name.len;
    memcpy(author->text, name.ptr, name.len);
    STAILQ_INIT(&author->edges);
    HASH_ADD_KEYPTR(hh, u->authors, author->text, author->len, author);
    return author;
}

void unsaved_put_edge(struct unsaved *u, struct bytes author, struct bytes follower, bool follows,
    uint64_t sequence, usec_t now)
{
    struct unsaved_edge *earlier = find_edge(u, author, follower);
    struct unsaved_edge *edge = take(u, sizeof *edge + 1 + author.len + follower.len);
    size_t len = pair(edge->text, author, follower);
    if (earlier) {
        HASH_DEL(u->edges, earlier);
        earlier->is_latest = false;
    }
    edge->follows = follows;
    edge->is_latest = true;
    edge->follower_len = (uint8_t)follower.len;
    edge->author = author_for(u, author);
    HASH_ADD_KEYPTR(hh, u->edges, edge->text, len, edge);
    STAILQ_INSERT_TAIL(&edge->author->edges, edge, next);
    enqueue(u, &edge->change, UNSAVED_EDGE, sequence, now);
    u->n_edges++;
}

void unsaved_walk_begin(struct unsaved *u, struct bytes name)
{
    struct unsaved_author *author = find_author(u, name);
    u->walk = author ? STAILQ_FIRST(&author->edges) : NULL;
}

const struct unsaved_edge *unsaved_walk_next(struct unsaved *u)
{
    struct unsaved_edge *edge = u->walk;
    if (edge)
        u->walk = STAILQ_NEXT(edge, next);
    return edge;
}

/* The edges of an author are freed in their order. */
static void free_edge(struct unsaved *u, struct unsaved_edge *edge)
{
    struct unsaved_author *author = edge->author;
    if (u->walk == edge)
        u->walk = STAILQ_NEXT(edge, next);
    assert(STAILQ_FIRST(&author->edges) == edge);
    STAILQ_REMOVE_HEAD(&author->edges, next);
    if (edge->is_latest)
        HASH_DEL(u->edges, edge);
    if (STAILQ_EMPTY(&author->edges)) {
        HASH_DEL(u->authors, author);
        give(u, author);
    }
    u->n_edges--;
    give(u, edge);
}

/* Batches */

const struct unsaved_change *unsaved_oldest(const struct unsaved *u)
{
    return STAILQ_FIRST(&u->queue);
}

static size_t begin_key(struct unsaved *u, struct unsaved_key *key)
{
    size_t weight = key->n * ENTRY_WEIGHT + u->limit * STORED_WEIGHT;
    unsigned hash = key->hh.hashv;
    HASH_DEL(u->keys, key);
    HASH_ADD_KEYPTR_BYHASHVALUE(hh, u->batch_keys, key->text, key->len, hash, key);
    for (size_t i = 0; i < key->n; i++)
        weight += key->entries[i].item->data_len;
    return weight;
}

void unsaved_begin_batch(struct unsaved *u, size_t n, size_t bytes)
{
    struct unsaved_change *c;
    assert(STAILQ_EMPTY(&u->batch));
    for (size_t weight = 0; n > 0 && weight < bytes && (c = STAILQ_FIRST(&u->queue)); n--) {
        STAILQ_REMOVE_HEAD(&u->queue, link);
        STAILQ_INSERT_TAIL(&u->batch, c, link);
        if (c->type == UNSAVED_KEY)
            weight += begin_key(u, (struct unsaved_key *)c);
        else if (c->type == UNSAVED_ITEM)
            weight += ((struct unsaved_item *)c)->data_len;
    }
}

static void free_key(struct unsaved *u, struct unsaved_key *key)
{
    for (size_t i = 0; i < key->n; i++)
        unsaved_item_release(u, key->entries[i].item);
    u->n_entries -= key->n;
    u->n_keys--;
    give(u, key->entries);
    give(u, key);
}

void unsaved_end_batch(struct unsaved *u)
{
    struct unsaved_change *c;
    HASH_CLEAR(hh, u->batch_keys);
    while ((c = STAILQ_FIRST(&u->batch))) {
        STAILQ_REMOVE_HEAD(&u->batch, link);
        if (c->type == UNSAVED_KEY)
            free_key(u, (struct unsaved_key *)c);
        else if (c->type == UNSAVED_EDGE)
            free_edge(u, (struct unsaved_edge *)c);
        else
            unsaved_item_release(u, (struct unsaved_item *)c);
    }
}

void unsaved_free(struct unsaved *u)
{
    unsaved_end_batch(u);
    while (unsaved_oldest(u)) {
        unsaved_begin_batch(u, SIZE_MAX, SIZE_MAX);
        unsaved_end_batch(u);
    }
    list_free(&u->scratch);
}
