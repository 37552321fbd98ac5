#include "aggregator/key_limit.h"

#include "base/text_hash.h"
#include "counts/records.h"

#include <stdio.h>
#include <stdlib.h>

#define FIRST_SLOTS 64

struct key_limit {
    const struct counter *counter;
    uint64_t exceeded;
    /* A table with open addressing, at most two thirds full. NUL marks an empty slot, because a stored form never
     * begins with NUL. */
    char (*slots)[COMPONENT_HASH];
    size_t n_slots, n;
};

size_t key_limits_bytes_max(const struct counters *c)
{
    uint64_t keys = 0;
    for (size_t i = 0; i < c->n_totals + c->n_subtotals; i++)
        if (__builtin_add_overflow(keys, counters_at(c, i)->max_keys, &keys))
            return SIZE_MAX;
    return keys < SIZE_MAX / KEY_LIMIT_BYTES ? keys * KEY_LIMIT_BYTES : SIZE_MAX;
}

struct key_limit *key_limit_new(const struct counter *counter)
{
    struct key_limit *l = mem_zalloc(sizeof *l);
    *l = (struct key_limit){.counter = counter};
    key_limit_clear(l);
    return l;
}

void key_limit_free(struct key_limit **l)
{
    if (!*l)
        return;
    free((*l)->slots);
    free(*l);
    *l = NULL;
}

void key_limit_clear(struct key_limit *l)
{
    free(l->slots);
    l->n = 0;
    l->n_slots = FIRST_SLOTS;
    l->slots = mem_zalloc(l->n_slots * sizeof *l->slots);
}

/* Returns the slot of the key, or an empty slot for the key. */
static char *find_slot(const struct key_limit *l, const char stored[COMPONENT_HASH])
{
    size_t mask = l->n_slots - 1;
    for (size_t i = text_hash(bytes_of(stored, COMPONENT_HASH)) & mask;; i = (i + 1) & mask)
        if (l->slots[i][0] == '\0' || memcmp(l->slots[i], stored, COMPONENT_HASH) == 0)
            return l->slots[i];
}

static void add(struct key_limit *l, const char stored[COMPONENT_HASH], char *slot)
{
    memcpy(slot, stored, COMPONENT_HASH);
    if (++l->n * 3 <= l->n_slots * 2)
        return;
    char(*old)[COMPONENT_HASH] = l->slots;
    size_t n_old = l->n_slots;
    l->n_slots *= 2;
    l->slots = mem_zalloc(l->n_slots * sizeof *l->slots);
    for (size_t i = 0; i < n_old; i++)
        if (old[i][0] != '\0')
            memcpy(find_slot(l, old[i]), old[i], COMPONENT_HASH);
    free(old);
}

static bool is_known(const char *slot, const char stored[COMPONENT_HASH])
{
    static const char other[COMPONENT_HASH] = COMPONENT_OTHER;
    return slot[0] != '\0' || memcmp(stored, other, COMPONENT_HASH) == 0;
}

bool key_limit_would_admit(const struct key_limit *l, const char stored[COMPONENT_HASH])
{
    return l->n < l->counter->max_keys || is_known(find_slot(l, stored), stored);
}

bool key_limit_admits(struct key_limit *l, const char stored[COMPONENT_HASH])
{
    char *slot = find_slot(l, stored);
    if (is_known(slot, stored))
        return true;
    l->exceeded += l->n >= l->counter->max_keys;
    if (l->n >= l->counter->max_keys)
        return false;
    add(l, stored, slot);
    return true;
}

uint64_t key_limit_exceeded(const struct key_limit *l)
{
    return l->exceeded;
}

static void load_key(struct key_limit *l, struct bytes component)
{
    char stored[COMPONENT_HASH] = {0};
    if (component.len == 0 || component.len > COMPONENT_HASH)
        return; /* an aggregator never writes a component of this length */
    memcpy(stored, component.ptr, component.len);
    key_limit_admits(l, stored);
}

/* Adds the keys of the records with the prefix, at the first of which the merge begins. */
static enum count_next load_records(struct key_limit *l, struct count_merge *m, struct bytes prefix)
{
    struct count_value value;
    struct record_key parsed;
    enum count_next r;
    bool has_sub_keys = strchr(l->counter->ns, '.') != NULL;
    while ((r = count_merge_next_record(m)) == COUNT_FOUND) {
        struct bytes key = count_merge_key(m);
        if (bytes_compare(key, prefix) < 0)
            continue;
        if (!bytes_starts_with(key, prefix))
            return COUNT_END;
        if (!has_sub_keys && record_key_parse(bytes_of(key.ptr, key.len - 1), &parsed))
            load_key(l, parsed.key);
        while (has_sub_keys && (r = count_merge_next_value(m, &value)) == COUNT_FOUND)
            load_key(l, value.name);
        if (r == COUNT_FAILED)
            break;
    }
    return r;
}

enum slice_result key_limit_load(
    struct key_limit *l, const char *ns, struct slice_reader *slice, struct error *error)
{
    struct count_sources sources = {0};
    struct buf prefix = {0};
    enum slice_result result = SLICE_OK;
    buf_printf(&prefix, "%s|", ns);
    slice_reader_add_sources(slice, buf_bytes(&prefix), &sources);
    struct count_merge *m = count_merge_new(sources.list, sources.n);
    if (load_records(l, m, buf_bytes(&prefix)) == COUNT_FAILED)
        result = slice_counts_failed(count_merge_error(m), error);
    count_merge_free(&m);
    count_sources_free(&sources);
    buf_free(&prefix);
    l->exceeded = 0;
    return result;
}
