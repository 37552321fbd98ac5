/* set: sets of codes in memory.
 *
 * The numbers of a set are a CRoaring bitmap. The hashes are a sorted array. A view is a set that may lie elsewhere, such
 * as in a mapped file (sets_file.h).
 *
 * A set takes at most 8 bytes for each hash and 8 KB for each 65,536 numbers, and twice this while it grows.
 */
#ifndef MILLRACE_SET_H
#define MILLRACE_SET_H

#include "sets/set_chunk.h"
#include "sets/set_code.h"

struct roaring_bitmap_s;

struct set_view {
    const struct roaring_bitmap_s *numbers; /* NULL: none */
    const uint64_t *hashes;                 /* ascending, without duplicates */
    size_t n_hashes;
};

struct set;

struct set *set_new(void);
void set_free(struct set **s);
void set_add(struct set *s, uint64_t code);
/* Adds the codes of a chunk that set_chunk_check has accepted. */
void set_add_chunk(struct set *s, struct bytes id, struct bytes chunk);
void set_add_view(struct set *s, const struct set_view *v);
/* The view is valid until the set is changed or freed. Sorts the added hashes. */
struct set_view set_view_of(struct set *s);

uint64_t set_view_size(const struct set_view *v);
/* Reads the chunks of a view in ascending order (set_chunk.h). Set `view` and zero the other members. */
struct set_chunks {
    const struct set_view *view;
    size_t container, hash; /* the next container, and the next hash */
    struct buf chunk;
    char id[SET_CHUNK_ID];
};
/* Skips the chunks before the chunk that contains a code. May be called only before the first set_chunks_next. */
void set_chunks_seek(struct set_chunks *c, uint64_t code);
/* Returns false at the end. *id and *chunk are valid until the next call. */
bool set_chunks_next(struct set_chunks *c, struct bytes *id, struct bytes *chunk);
void set_chunks_free(struct set_chunks *c);

/* Sets the bits of the i-th container of a bitmap (set_bits.h). With `is_first`, clears all other bits. */
void set_container_add(const struct roaring_bitmap_s *of, size_t i, bool is_first, uint64_t *bits);

#endif
