#include "counts/interner.h"

#include "base/xxh3.h"
#include "counts/id_index.h"

#include <assert.h>
#include <stdlib.h>

#define FETCHED 32 /* texts prefetched together */
#define CHUNK_IDS 4096
#define CHUNK_TEXT ((size_t)64 * 1024)

struct text_chunk {
    struct text_chunk *next;
    char data[];
};

struct interner {
    uint64_t seed;
    uint32_t n;
    size_t bytes; /* memory in bytes, without the indexes */
    struct text_chunk *texts;
    size_t text_left;
    struct id_index by_text;
    struct id_index by_stored; /* hashed texts by their stored form */
    /* The array has a fixed size, because it must not move while another thread reads it. */
    struct interned *chunks[INTERNER_IDS_MAX / CHUNK_IDS];
};

struct interner *interner_new(uint64_t seed)
{
    struct interner *i = mem_zalloc(sizeof *i); /* unused pages take no memory */
    i->seed = seed;
    id_index_init(&i->by_text);
    id_index_init(&i->by_stored);
    return i;
}

void interner_free(struct interner **ip)
{
    struct interner *i = *ip;
    struct text_chunk *next;
    if (!i)
        return;
    for (struct text_chunk *c = i->texts; c; c = next) {
        next = c->next;
        free(c);
    }
    for (size_t k = 0; k < INTERNER_IDS_MAX / CHUNK_IDS && i->chunks[k]; k++)
        free(i->chunks[k]);
    id_index_free_parts(&i->by_text);
    id_index_free_parts(&i->by_stored);
    free(i);
    *ip = NULL;
}

static uint64_t hash_of(const struct interner *i, struct bytes text)
{
    return XXH3_64bits_withSeed(text.ptr, text.len, i->seed);
}

struct interned *interner_get(const struct interner *i, uint32_t id)
{
    return &i->chunks[id / CHUNK_IDS][id % CHUNK_IDS];
}

static inline bool find_text(const struct interner *i, struct bytes text, uint64_t hash, uint32_t *id)
{
    struct id_search search = id_index_search(&i->by_text, hash);
    while (id_index_next(&search, id)) {
        const struct interned *t = interner_get(i, *id);
        if (bytes_equal(bytes_of(t->text, t->text_len), text))
            return true;
    }
    return false;
}

static uint64_t hash_of_stored(const struct interner *i, const char *stored)
{
    return XXH3_64bits_withSeed(stored, COMPONENT_HASH, i->seed);
}

/* Copies a text. Texts fill a chunk from its end, so text_left alone determines the position of the next text. */
static const char *copy_text(struct interner *i, struct bytes text)
{
    if (text.len > i->text_left) {
        size_t room = text.len > CHUNK_TEXT ? text.len : CHUNK_TEXT;
        struct text_chunk *c = mem_alloc(sizeof *c + room);
        c->next = i->texts;
        i->texts = c;
        i->text_left = room;
        i->bytes += sizeof *c + room;
    }
    i->text_left -= text.len;
    return memcpy(i->texts->data + i->text_left, text.ptr, text.len);
}

static uint32_t add_new(struct interner *i, struct bytes text, uint64_t hash)
{
    assert(text.len <= UINT32_MAX);
    char space[COMPONENT_HASH + 1];
    struct bytes stored = component_store(text, space);
    uint32_t id = i->n;
    assert(id < INTERNER_IDS_MAX);
    struct interned **chunk = &i->chunks[id / CHUNK_IDS];
    if (!*chunk) {
        *chunk = mem_zalloc(CHUNK_IDS * sizeof **chunk);
        i->bytes += CHUNK_IDS * sizeof **chunk;
    }
    __atomic_store_n(
        &i->n, id + 1, __ATOMIC_RELAXED); /* atomic, because another thread may call interner_count */
    struct interned *t = &(*chunk)[id % CHUNK_IDS];
    if (stored.len > 0)
        memcpy(t->stored, stored.ptr, stored.len);
    t->stored_len = (uint8_t)stored.len;
    t->text_len = (uint32_t)text.len;
    t->text = t->stored;
    if (interned_is_hash(t)) {
        t->text = copy_text(i, text);
        id_index_add(&i->by_stored, hash_of_stored(i, t->stored), id);
    }
    id_index_add(&i->by_text, hash, id);
    return id;
}

uint32_t interner_add(struct interner *i, struct bytes text)
{
    uint32_t id;
    interner_add_all(i, &text, 1, &id);
    return id;
}

void interner_add_all(struct interner *i, const struct bytes *texts, size_t n, uint32_t *ids)
{
    uint64_t hashes[FETCHED];
    for (size_t some; n > 0; texts += some, ids += some, n -= some) {
        some = n < FETCHED ? n : FETCHED;
        for (size_t k = 0; k < some; k++) {
            hashes[k] = hash_of(i, texts[k]);
            id_index_prefetch(&i->by_text, hashes[k]);
        }
        for (size_t k = 0; k < some; k++)
            if (!find_text(i, texts[k], hashes[k], &ids[k]))
                ids[k] = add_new(i, texts[k], hashes[k]);
    }
}

void interner_find_stored(
    const struct interner *i, struct bytes stored, void (*found)(void *arg, uint32_t id), void *arg)
{
    uint32_t id;
    if (stored.len != COMPONENT_HASH) {
        if (find_text(i, stored, hash_of(i, stored), &id) && !interned_is_hash(interner_get(i, id)))
            found(arg, id);
        return;
    }
    struct id_search search = id_index_search(&i->by_stored, hash_of_stored(i, stored.ptr));
    while (id_index_next(&search, &id))
        if (memcmp(interner_get(i, id)->stored, stored.ptr, COMPONENT_HASH) == 0)
            found(arg, id);
}

uint32_t interner_count(const struct interner *i)
{
    return __atomic_load_n(&i->n, __ATOMIC_RELAXED);
}

size_t interner_bytes(const struct interner *i)
{
    return i->bytes + i->by_text.bytes + i->by_stored.bytes;
}
