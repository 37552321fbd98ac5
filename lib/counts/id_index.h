/* id_index: finds ids by 64-bit hashes. The interner has two indexes: one finds texts by the hash of the text, and one
 * finds hashed texts by their stored form.
 *
 * The index uses open addressing in many small parts, each at most 5/8 full. The parts grow separately and at different
 * times, so counting never pauses for a large table. A slot holds the upper half of the hash and the id + 1. The upper
 * half determines the part and the slot, so an index grows without the full hashes.
 *
 * Different entries may have the same hash, so the caller compares the entries of the ids that a search finds. Only one
 * thread at a time may use an index. */
#ifndef MILLRACE_ID_INDEX_H
#define MILLRACE_ID_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ID_INDEX_PART_BITS 8
#define ID_INDEX_PARTS (1u << ID_INDEX_PART_BITS)
#define ID_INDEX_FIRST_SLOTS 4 /* slots of a part that has not grown */

struct id_index_part {
    uint64_t *slots;
    uint32_t n_slots;
    uint32_t left; /* ids to add before the part grows */
};

struct id_index {
    struct id_index_part parts[ID_INDEX_PARTS];
    size_t bytes;
    uint64_t first[ID_INDEX_PARTS * ID_INDEX_FIRST_SLOTS]; /* slots of the parts that have not grown */
};

/* Initializes an index in zeroed memory. The initialized index must not move. */
void id_index_init(struct id_index *x);
void id_index_free_parts(struct id_index *x);
void id_index_add(struct id_index *x, uint64_t hash, uint32_t id);

static inline const struct id_index_part *id_index_part_of(const struct id_index *x, uint64_t hash)
{
    return &x->parts[hash >> (64 - ID_INDEX_PART_BITS)];
}

static inline void id_index_prefetch(const struct id_index *x, uint64_t hash)
{
    const struct id_index_part *p = id_index_part_of(x, hash);
    __builtin_prefetch(&p->slots[hash >> 32 & (p->n_slots - 1)]);
}

/* A search for a hash: id_index_next sets *id to each id whose hash has the same upper half, and returns false after
 * the last id. */
struct id_search {
    const struct id_index_part *part;
    uint32_t at, upper;
};

static inline struct id_search id_index_search(const struct id_index *x, uint64_t hash)
{
    uint32_t upper = (uint32_t)(hash >> 32);
    return (struct id_search){id_index_part_of(x, hash), upper, upper};
}

static inline bool id_index_next(struct id_search *s, uint32_t *id)
{
    uint32_t mask = s->part->n_slots - 1;
    for (uint64_t slot; (slot = s->part->slots[s->at & mask]) != 0;) {
        s->at++;
        if (slot >> 32 == s->upper) {
            *id = (uint32_t)slot - 1;
            return true;
        }
    }
    return false;
}

#endif
