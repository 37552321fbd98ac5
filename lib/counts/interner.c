#include "counts/interner.h"

#include "base/xxh3.h"

#include <assert.h>
#include <stdlib.h>

#define FIRST_SLOTS 1024
#define CHUNK_IDS 4096
#define CHUNK_TEXT ((size_t)64 * 1024)

struct text_chunk {
    struct text_chunk *next;
    char data[];
};

struct interner {
    uint64_t seed;
    /* Open addressing, at most half full. A slot holds the upper half of the hash and the id + 1; 0: empty. */
    uint64_t *slots;
    size_t n_slots;
    uint32_t n;
    size_t bytes;
    struct text_chunk *texts;
    size_t text_left;
    /* An index of hashed texts by their stored form: each slot holds an id + 1; 0: empty. It contains the ids below
     * `indexed`. interner_mark adds the newer ids, so that counting does no work for the index. */
    uint32_t *hashed;
    size_t n_hashed_slots, n_hashed;
    uint32_t indexed;
    /* The array has a fixed size: it must not move while another thread reads it. */
    struct interned *chunks[INTERNER_IDS_MAX / CHUNK_IDS];
};

struct interner *interner_new(uint64_t seed)
{
    struct interner *i = mem_zalloc(sizeof(*i)); /* unused pages take no memory */
    i->seed = seed;
    i->n_slots = FIRST_SLOTS;
    i->slots = mem_zalloc(i->n_slots * sizeof(*i->slots));
    i->bytes = i->n_slots * sizeof(*i->slots);
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
    free(i->slots);
    free(i->hashed);
    free(i);
    *ip = NULL;
}

uint64_t interner_hash(const struct interner *i, struct bytes text)
{
    return XXH3_64bits_withSeed(text.ptr, text.len, i->seed);
}

void interner_prefetch(const struct interner *i, uint64_t hash)
{
    __builtin_prefetch(&i->slots[hash & (i->n_slots - 1)]);
}

struct interned *interner_get(const struct interner *i, uint32_t id)
{
    return &i->chunks[id / CHUNK_IDS][id % CHUNK_IDS];
}

static void grow(struct interner *i)
{
    size_t n = i->n_slots * 2;
    uint64_t *slots = mem_zalloc(n * sizeof(*slots));
    for (uint32_t id = 0; id < i->n; id++) {
        const struct interned *t = interner_get(i, id);
        uint64_t hash = interner_hash(i, bytes_of(t->text, t->text_len));
        size_t at = hash & (n - 1);
        while (slots[at])
            at = (at + 1) & (n - 1);
        slots[at] = (hash >> 32 << 32) | (id + 1);
    }
    free(i->slots);
    i->bytes += n / 2 * sizeof(*slots);
    i->slots = slots;
    i->n_slots = n;
}

/* The slot of the text, or the empty slot where it belongs. */
static inline size_t find_slot(const struct interner *i, struct bytes text, uint64_t hash)
{
    size_t mask = i->n_slots - 1, at = hash & mask;
    for (; i->slots[at]; at = (at + 1) & mask) {
        if (i->slots[at] >> 32 != hash >> 32)
            continue;
        const struct interned *t = interner_get(i, (uint32_t)i->slots[at] - 1);
        if (bytes_equal(bytes_of(t->text, t->text_len), text))
            break;
    }
    return at;
}

uint32_t interner_add(struct interner *i, struct bytes text, uint64_t hash)
{
    assert(text.len <= UINT32_MAX);
    size_t at = find_slot(i, text, hash);
    if (i->slots[at])
        return (uint32_t)i->slots[at] - 1;
    char space[COMPONENT_HASH + 1];
    struct bytes stored = component_store(text, space);
    uint32_t id = i->n;
    assert(id < INTERNER_IDS_MAX);
    struct interned **chunk = &i->chunks[id / CHUNK_IDS];
    if (!*chunk) {
        *chunk = mem_zalloc(CHUNK_IDS * sizeof(**chunk));
        i->bytes += CHUNK_IDS * sizeof(**chunk);
    }
    __atomic_store_n(&i->n, id + 1, __ATOMIC_RELAXED); /* another thread may call interner_count */
    struct interned *t = &(*chunk)[id % CHUNK_IDS];
    if (stored.len > 0)
        memcpy(t->stored, stored.ptr, stored.len);
    t->stored_len = (uint8_t)stored.len;
    t->text_len = (uint32_t)text.len;
    t->text = t->stored;
    if (interned_is_hash(t)) {
        if (text.len > i->text_left) {
            size_t room = text.len > CHUNK_TEXT ? text.len : CHUNK_TEXT;
            struct text_chunk *c = mem_alloc(sizeof(*c) + room);
            c->next = i->texts;
            i->texts = c;
            i->text_left = room;
            i->bytes += sizeof(*c) + room;
        }
        /* Texts fill a chunk from its end, so that text_left alone says where the next text goes. */
        i->text_left -= text.len;
        t->text = memcpy(i->texts->data + i->text_left, text.ptr, text.len);
    }
    i->slots[at] = (hash >> 32 << 32) | (id + 1);
    if ((size_t)i->n * 2 > i->n_slots)
        grow(i);
    return id;
}

static uint64_t hash_of_stored(const struct interner *i, const char *stored)
{
    return XXH3_64bits_withSeed(stored, COMPONENT_HASH, i->seed);
}

static void put_hashed(const struct interner *i, uint32_t id)
{
    size_t at = hash_of_stored(i, interner_get(i, id)->stored) & (i->n_hashed_slots - 1);
    while (i->hashed[at])
        at = (at + 1) & (i->n_hashed_slots - 1);
    i->hashed[at] = id + 1;
}

void interner_mark(struct interner *i, struct bytes stored, uint8_t *marks)
{
    if (stored.len != COMPONENT_HASH) {
        size_t at = find_slot(i, stored, interner_hash(i, stored));
        if (i->slots[at] && !interned_is_hash(interner_get(i, (uint32_t)i->slots[at] - 1)))
            marks[(uint32_t)i->slots[at] - 1] = 1;
        return;
    }
    for (; i->indexed < i->n; i->indexed++) {
        if (!interned_is_hash(interner_get(i, i->indexed)))
            continue;
        if (++i->n_hashed * 2 > i->n_hashed_slots) {
            free(i->hashed);
            i->bytes += (i->n_hashed_slots ? i->n_hashed_slots : FIRST_SLOTS) * sizeof(*i->hashed);
            i->n_hashed_slots = i->n_hashed_slots ? 2 * i->n_hashed_slots : FIRST_SLOTS;
            i->hashed = mem_zalloc(i->n_hashed_slots * sizeof(*i->hashed));
            for (uint32_t id = 0; id < i->indexed; id++)
                if (interned_is_hash(interner_get(i, id)))
                    put_hashed(i, id);
        }
        put_hashed(i, i->indexed);
    }
    if (i->n_hashed == 0)
        return;
    size_t mask = i->n_hashed_slots - 1;
    for (size_t at = hash_of_stored(i, stored.ptr) & mask; i->hashed[at]; at = (at + 1) & mask)
        if (memcmp(interner_get(i, i->hashed[at] - 1)->stored, stored.ptr, COMPONENT_HASH) == 0)
            marks[i->hashed[at] - 1] = 1;
}

uint32_t interner_count(const struct interner *i)
{
    return __atomic_load_n(&i->n, __ATOMIC_RELAXED);
}

size_t interner_bytes(const struct interner *i)
{
    return i->bytes;
}
