#include "scraper/known_series.h"

#include "base/text_hash.h"

#include <assert.h>
#include <stdlib.h>

#define SLOTS_MIN 64

/* Returns the slot of the text, or the free slot where the text belongs. */
static uint32_t *find(const struct known_series *s, struct bytes text, uint32_t hash)
{
    for (size_t i = hash;; i++) {
        uint32_t *slot = &s->slots[i & (s->n_slots - 1)];
        if (*slot == 0 ||
            (s->all[*slot - 1].hash == hash && bytes_equal(known_series_text(s, *slot - 1), text)))
            return slot;
    }
}

static void grow(struct known_series *s)
{
    free(s->slots);
    s->n_slots = s->n_slots ? 2 * s->n_slots : SLOTS_MIN;
    s->slots = mem_zalloc(s->n_slots * sizeof *s->slots);
    for (size_t i = 0; i < s->n; i++)
        *find(s, known_series_text(s, i), s->all[i].hash) = (uint32_t)i + 1;
}

bool known_series_add(struct known_series *s, size_t at)
{
    struct bytes text = bytes_of(s->texts.ptr + at, s->texts.len - at);
    uint32_t hash = (uint32_t)text_hash(text);
    assert(s->texts.len <= UINT32_MAX);
    if (2 * s->n >= s->n_slots)
        grow(s);
    uint32_t *slot = find(s, text, hash);
    if (*slot != 0) {
        s->texts.len = at;
        return false;
    }
    *ARRAY_ADD(s->all, s->n, s->cap) = (struct series){hash, (uint32_t)at, (uint32_t)text.len};
    *slot = (uint32_t)s->n;
    return true;
}

bool known_series_has(const struct known_series *s, struct bytes text)
{
    return s->n > 0 && *find(s, text, (uint32_t)text_hash(text)) != 0;
}

void known_series_free(struct known_series *s)
{
    free(s->all);
    free(s->slots);
    buf_free(&s->texts);
    *s = (struct known_series){0};
}
