#include "aggregator/count_map.h"

#include <assert.h>
#include <stdlib.h>
#include <xxhash.h>

#define MAX_LEVELS 12 /* with one entry in four a level higher: good for 16 million */
#define CHUNK_BYTES ((size_t)256 * 1024)
#define FIRST_SLOTS 1024

struct count_entry {
    uint64_t count;
    uint64_t hash;
    const char *text; /* NULL: a count */
    uint32_t text_len;
    uint32_t key_len;
    const char *key;
    struct count_entry *next[]; /* as many as the entry has levels */
};

struct chunk {
    struct chunk *next;
    char data[];
};

struct count_map {
    struct count_entry **slots; /* open addressing, at most half full */
    size_t n_slots, n_rows, bytes;
    struct count_entry *first[MAX_LEVELS];
    struct chunk *chunks;
    size_t chunk_left;
    uint64_t random;
};

struct count_map *count_map_new(void)
{
    struct count_map *m = mem_zalloc(sizeof(*m));
    m->n_slots = FIRST_SLOTS;
    m->slots = mem_zalloc(m->n_slots * sizeof(*m->slots));
    m->bytes = sizeof(*m) + m->n_slots * sizeof(*m->slots);
    m->random = UINT64_C(0x9e3779b97f4a7c15);
    return m;
}

void count_map_free(struct count_map **m)
{
    if (!*m)
        return;
    struct chunk *next;
    for (struct chunk *c = (*m)->chunks; c; c = next) {
        next = c->next;
        free(c);
    }
    free((*m)->slots);
    free(*m);
    *m = NULL;
}

static void *map_alloc(struct count_map *m, size_t size)
{
    size = (size + 7) & ~(size_t)7;
    if (size > m->chunk_left) {
        size_t room = size > CHUNK_BYTES ? size : CHUNK_BYTES;
        struct chunk *c = mem_alloc(sizeof(*c) + room);
        c->next = m->chunks;
        m->chunks = c;
        m->chunk_left = room;
        m->bytes += sizeof(*c) + room;
    }
    /* A chunk is used from its end, so that what is left is all that need be known. */
    m->chunk_left -= size;
    return m->chunks->data + m->chunk_left;
}

static const char *map_copy(struct count_map *m, struct bytes b)
{
    char *p = map_alloc(m, b.len + 1);
    if (b.len > 0)
        memcpy(p, b.ptr, b.len);
    return p;
}

static struct bytes entry_key(const struct count_entry *e)
{
    return bytes_of(e->key, e->key_len);
}

static struct count_entry **find_slot(const struct count_map *m, struct bytes key, uint64_t hash)
{
    size_t i = hash & (m->n_slots - 1);
    while (m->slots[i] && (m->slots[i]->hash != hash || !bytes_equal(entry_key(m->slots[i]), key)))
        i = (i + 1) & (m->n_slots - 1);
    return &m->slots[i];
}

static void grow_slots(struct count_map *m)
{
    struct count_entry **old = m->slots;
    size_t n_old = m->n_slots;
    m->n_slots *= 2;
    m->slots = mem_zalloc(m->n_slots * sizeof(*m->slots));
    m->bytes += (m->n_slots - n_old) * sizeof(*m->slots);
    for (size_t i = 0; i < n_old; i++) {
        if (old[i])
            *find_slot(m, entry_key(old[i]), old[i]->hash) = old[i];
    }
    free(old);
}

static int random_levels(struct count_map *m)
{
    m->random ^= m->random << 13;
    m->random ^= m->random >> 7;
    m->random ^= m->random << 17;
    int levels = 1;
    for (uint64_t r = m->random; levels < MAX_LEVELS && (r & 3) == 0; r >>= 2)
        levels++;
    return levels;
}

/* Fills links[level] with the pointer, on each level, that leads past every key before `key`. An entry reached on
 * a level has at least that many links, so going down from it never reads past them. */
static void find_links(struct count_map *m, struct bytes key, struct count_entry **links[MAX_LEVELS])
{
    struct count_entry **at = m->first;
    for (int level = MAX_LEVELS - 1; level >= 0; level--) {
        while (at[level] && bytes_compare(entry_key(at[level]), key) < 0)
            at = at[level]->next;
        links[level] = &at[level];
    }
}

static struct count_entry *add_entry(struct count_map *m, struct bytes key, uint64_t hash)
{
    struct count_entry **links[MAX_LEVELS];
    int levels = random_levels(m);
    struct count_entry *e = map_alloc(m, sizeof(*e) + (size_t)levels * sizeof(e->next[0]));
    *e = (struct count_entry){.hash = hash, .key = map_copy(m, key), .key_len = (uint32_t)key.len};
    find_links(m, key, links);
    for (int level = 0; level < levels; level++) {
        e->next[level] = *links[level];
        *links[level] = e;
    }
    m->n_rows++;
    return e;
}

static struct count_entry *find_or_add(struct count_map *m, struct bytes key, bool *is_new)
{
    assert(key.len <= UINT32_MAX);
    uint64_t hash = XXH3_64bits(key.ptr, key.len);
    struct count_entry **slot = find_slot(m, key, hash);
    *is_new = !*slot;
    if (*slot)
        return *slot;
    struct count_entry *e = *slot = add_entry(m, key, hash);
    if (m->n_rows * 2 > m->n_slots)
        grow_slots(m);
    return e;
}

void count_map_add(struct count_map *m, struct bytes key, uint64_t count)
{
    bool is_new;
    struct count_entry *e = find_or_add(m, key, &is_new);
    assert(!e->text);
    e->count += count;
}

bool count_map_put_text(struct count_map *m, struct bytes key, struct bytes text)
{
    bool is_new;
    struct count_entry *e = find_or_add(m, key, &is_new);
    assert(is_new || e->text);
    int order = is_new ? -1 : bytes_compare(text, bytes_of(e->text, e->text_len));
    if (order < 0) {
        e->text = map_copy(m, text);
        e->text_len = (uint32_t)text.len;
    }
    return is_new || order == 0;
}

size_t count_map_rows(const struct count_map *m)
{
    return m->n_rows;
}

size_t count_map_bytes(const struct count_map *m)
{
    return m->bytes;
}

struct count_cursor count_map_seek(const struct count_map *m, struct bytes from)
{
    struct count_entry *const *at = m->first;
    for (int level = MAX_LEVELS - 1; level >= 0; level--) {
        while (at[level] && bytes_compare(entry_key(at[level]), from) < 0)
            at = at[level]->next;
    }
    return (struct count_cursor){at[0]};
}

bool count_cursor_next(struct count_cursor *c, struct row *row)
{
    const struct count_entry *e = c->next;
    if (!e)
        return false;
    *row = (struct row){.key = entry_key(e), .is_text = e->text != NULL, .count = e->count};
    row->text = bytes_of(e->text, e->text_len);
    c->next = e->next[0];
    return true;
}
