/* interner: numbers for the texts of components, so that a text is hashed and escaped once and counts have fixed-size keys.
 *
 * 1. Equal texts have one id, different texts have different ids; ids count up from 0 and never change.
 * 2. A text's stored form (records.h) is made when the text is added. Two texts may share a stored form: the one stated
 *    exception to exactness, which the merge reports.
 * 3. The hash is seeded: texts from outside cannot be made to collide.
 * 4. What interner_get gives for an id stays in place until the interner is freed. One thread adds; another may read the
 *    ids that it was handed under a lock, except lookup_mark.
 */
#ifndef MILLRACE_INTERNER_H
#define MILLRACE_INTERNER_H

#include "base/bytes.h"
#include "counts/records.h"

#define INTERNER_IDS_MAX (UINT32_C(1) << 28)

struct interner;

struct interned {
    char stored[COMPONENT_HASH]; /* padded with NUL */
    uint32_t text_len;
    const char *text;
    uint32_t lookup_mark; /* the caller's, 0 at first: when the lookup was last written */
    uint8_t stored_len;
};

static inline bool interned_is_hash(const struct interned *t)
{
    return t->stored_len == COMPONENT_HASH;
}

struct interner *interner_new(uint64_t seed);
void interner_free(struct interner **i);

uint64_t interner_hash(const struct interner *i, struct bytes text);
/* Asks the processor for the slot that interner_add will look at. */
void interner_prefetch(const struct interner *i, uint64_t hash);
/* The id of the text, which is copied if it is new. */
uint32_t interner_add(struct interner *i, struct bytes text, uint64_t hash);
struct interned *interner_get(const struct interner *i, uint32_t id);

uint32_t interner_count(const struct interner *i);
size_t interner_bytes(const struct interner *i);

#endif
