#include "api/series_set.h"

#include <assert.h>
#include <stdlib.h>

void series_set_init(struct series_set *set, const struct query *q, size_t most)
{
    *set = (struct series_set){.query = q};
    set->members = mem_zalloc((most + 1) * sizeof *set->members);
    set->sorted = mem_zalloc((most + 1) * sizeof *set->sorted);
}

static void begin_member(struct series_set *set, struct bytes text, struct bytes stored)
{
    struct series_member *m = &set->members[set->n++];
    m->text = text;
    memcpy(m->stored, stored.ptr, stored.len);
    query_copy(&m->query, set->query);
    memcpy(set->query->sub ? m->query.stored_sub : m->query.stored, m->stored, sizeof m->stored);
    series_init(&m->series, &m->query);
}

/* Appends a member, and inserts its index into `sorted`. */
void series_set_name(struct series_set *set, struct bytes text, struct bytes stored)
{
    assert(stored.len <= COMPONENT_HASH && set->n == set->n_named);
    begin_member(set, text, stored);
    size_t at = set->n_named++;
    for (; at > 0 && strcmp(set->members[set->sorted[at - 1]].stored, set->members[set->n - 1].stored) > 0;
         at--)
        set->sorted[at] = set->sorted[at - 1];
    set->sorted[at] = set->n - 1;
}

void series_set_name_others(struct series_set *set)
{
    begin_member(set, BYTES_NONE, BYTES_LITERAL(""));
}

void series_set_reset(struct series_set *set)
{
    for (size_t i = 0; i < set->n; i++)
        series_reset(&set->members[i].series);
    set->total = 0;
    set->is_too_large = false;
}

void series_set_free(struct series_set *set)
{
    series_set_reset(set);
    free(set->members);
    free(set->sorted);
    *set = (struct series_set){0};
}

size_t series_set_bytes(const struct series_set *set)
{
    size_t bytes = set->n * (sizeof *set->members + sizeof *set->sorted);
    for (size_t i = 0; i < set->n; i++)
        bytes += series_bytes(&set->members[i].series);
    return bytes;
}

static struct series_member *find(struct series_set *set, struct bytes stored)
{
    size_t low = 0, high = set->n_named;
    while (low < high) {
        size_t middle = (low + high) / 2;
        struct series_member *m = &set->members[set->sorted[middle]];
        int order = bytes_compare(bytes_str(m->stored), stored);
        if (order == 0)
            return m;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static bool add_total(struct series_set *set, const struct record *r, struct bytes stored)
{
    struct series_member *m = find(set, stored), *first = &set->members[0];
    bool is_over = bytes_equal_str(stored, COMPONENT_OTHER) && query_may_have_other(set->query);
    if (is_over && m != first && !series_add(&first->series, r)) /* add the count to first->series.over */
        return false;
    return m ? series_add(&m->series, r) : is_over;
}

static bool add_subtotal(struct series_set *set, const struct record *r, const struct record_key *period)
{
    struct series *first = &set->members[0].series;
    struct bytes value = r->value, name;
    bool bad = false, may_have_other = query_may_have_other(set->query);
    int64_t n;
    if (!series_takes(first, period))
        return true;
    while (record_next_count(&value, &name, &n, &bad)) {
        struct series_member *m = find(set, name);
        if (may_have_other && bytes_equal_str(name, COMPONENT_OTHER))
            first->is_too_large |= __builtin_add_overflow(first->over.counter, n, &first->over.counter);
        if (!m && set->n > set->n_named)
            m = &set->members[set->n_named];
        if (m && !series_add_count(&m->series, period->start, n))
            return false;
    }
    return !bad;
}

bool series_set_add(struct series_set *set, const struct record *r)
{
    const struct query *q = set->query;
    struct record_key key;
    if (!record_key_parse(r->key, &key) || !bytes_equal_str(key.ns, query_counter(q)->ns))
        return false;
    return key.is_subtotal ? add_subtotal(set, r, &key) : add_total(set, r, key.key);
}

bool series_set_trim(struct series_set *set, uint64_t max_rows)
{
    int64_t first = HOUR_END, last = 0;
    for (size_t i = 0; i < set->n; i++) {
        const struct series *s = &set->members[i].series;
        first = s->first < first ? s->first : first;
        last = s->last > last ? s->last : last;
        set->is_too_large |= s->is_too_large || __builtin_add_overflow(set->total, s->total, &set->total);
    }
    for (size_t i = 0; i < set->n; i++) {
        set->members[i].series.first = first;
        set->members[i].series.last = last;
        if (!series_trim(&set->members[i].series, max_rows / set->n))
            return false;
    }
    return true;
}
