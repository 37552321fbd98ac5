/* interner: maps the texts of key components to ids. With ids, counts have fixed-size keys, and each text is escaped
 * only once.
 *
 * 1. Equal texts have the same id, and different texts have different ids. Ids are 0, 1, 2, ... and never change.
 * 2. When a text is added, the interner computes the text's stored form (records.h). Two hashed texts may have the same
 *    stored form. The counts of such texts add up, and the merge reports the collision.
 * 3. The hash of texts is seeded, so that a client cannot choose texts that collide.
 * 4. The indexes grow in small steps (id_index.h).
 * 5. The result of interner_get stays valid until the interner is freed. One thread adds texts. Another thread may read
 *    ids that the adding thread has handed over under a lock, but not their lookup_mark.
 */
#ifndef MILLRACE_INTERNER_H
#define MILLRACE_INTERNER_H

#include "base/bytes.h"
#include "counts/records.h"

#define INTERNER_IDS_MAX (UINT32_C(1) << 28)

struct interner;

struct interned {
    char stored[COMPONENT_HASH]; /* stored form, padded with NUL */
    uint32_t text_len;
    const char *text;
    uint32_t lookup_mark; /* mark that the caller sets when it writes the lookup of the text; 0 at first */
    uint8_t stored_len;
};

static inline bool interned_is_hash(const struct interned *t)
{
    return t->stored_len == COMPONENT_HASH;
}

struct interner *interner_new(uint64_t seed);
void interner_free(struct interner **i);

/* Returns the id of the text. A new text is copied. */
uint32_t interner_add(struct interner *i, struct bytes text);
/* Adds n texts and sets their ids. Pass all texts of an event in one call, because the interner prefetches the index
 * slots of all texts first. */
void interner_add_all(struct interner *i, const struct bytes *texts, size_t n, uint32_t *ids);
struct interned *interner_get(const struct interner *i, uint32_t id);

/* Calls `found` with the id of each text that has the stored form `stored`. */
void interner_find_stored(
    const struct interner *i, struct bytes stored, void (*found)(void *arg, uint32_t id), void *arg);

uint32_t interner_count(const struct interner *i);
size_t interner_bytes(const struct interner *i);

#endif
