#include "counts/count_table.h"

#include "sets/set_chunk.h"
#include "sets/set_code.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#define KEY_BITS                                                                                             \
    4 /* high bits of a part's index, computed from the key's id alone, so that a search for a key reads few parts */
#define PART_BITS 8
#define PARTS (1u << PART_BITS)
#define GROUP_PARTS (PARTS >> KEY_BITS) /* neighbouring parts, which have the keys with the same KEY_BITS */
#define FIRST_SLOTS 16                  /* slots of a part that has not grown */
#define FETCHED 32                      /* slots prefetched together */

struct part {
    struct count_slot *slots;
    uint32_t n_slots;
    uint32_t left; /* keys to add before the part grows */
};

struct count_table {
    uint64_t seed[2];
    size_t n, bytes;
    bool has_members;
    int64_t *sums; /* for the keys of counters whose `has_sums` is set */
    size_t n_sums, room_sums;
    bool *has_sums; /* for each counter; NULL: no counter has sums */
    int64_t quarters_since;
    struct part parts[PARTS];
    struct count_slot first[PARTS * FIRST_SLOTS]; /* slots of the parts that have not grown */
};

/* Number of bits in a tag for the time, and the seconds that it counts. */
static inline unsigned time_bits(const struct count_table *t)
{
    return t->quarters_since > 0 ? COUNT_TAG_QUARTER_BITS : COUNT_TAG_HOUR_BITS;
}

static inline int64_t time_step(const struct count_table *t)
{
    return t->quarters_since > 0 ? SECONDS_PER_QUARTER : SECONDS_PER_HOUR;
}

uint32_t count_tag(const struct count_table *t, size_t counter, int64_t start)
{
    return (uint32_t)(counter + 1) << time_bits(t) | (uint32_t)((start - HOUR_FIRST) / time_step(t));
}

/* The code of a member takes the place of the sub key and the count. */
struct count_slot count_member(
    const struct count_table *t, size_t unique, int64_t start, uint32_t key, uint64_t code)
{
    return (struct count_slot){count_tag(t, unique, start), key, (uint32_t)code, (uint32_t)(code >> 32)};
}

static uint64_t code_of(const struct count_slot *member)
{
    return (uint64_t)member->count << 32 | member->sub;
}

/* Returns the number of keys with which part i grows: half to three quarters of its slots. The hash spreads keys
 * evenly, so with one limit all parts would grow within a few thousand events. */
static uint32_t limit_of(size_t i, uint32_t n_slots)
{
    size_t rank = (i % GROUP_PARTS) * (PARTS / GROUP_PARTS) + i / GROUP_PARTS;
    return (uint32_t)((uint64_t)n_slots * (2 * PARTS + 1 + rank) / (4 * PARTS));
}

struct count_table *count_table_new(uint64_t seed, int64_t quarters_since)
{
    struct count_table *t = mem_zalloc(sizeof *t);
    t->quarters_since = quarters_since;
    t->seed[0] = seed ^ UINT64_C(0x9e3779b97f4a7c15);
    t->seed[1] = seed * UINT64_C(0xbf58476d1ce4e5b9) ^ UINT64_C(0x94d049bb133111eb);
    t->bytes = sizeof *t;
    for (size_t i = 0; i < PARTS; i++)
        t->parts[i] = (struct part){&t->first[i * FIRST_SLOTS], FIRST_SLOTS, limit_of(i, FIRST_SLOTS)};
    return t;
}

struct count_table *count_table_new_members(uint64_t seed, int64_t quarters_since)
{
    struct count_table *t = count_table_new(seed, quarters_since);
    t->has_members = true;
    return t;
}

void count_table_free(struct count_table **t)
{
    for (size_t i = 0; *t && i < PARTS; i++)
        if ((*t)->parts[i].n_slots > FIRST_SLOTS)
            free((*t)->parts[i].slots);
    if (*t) {
        free((*t)->sums);
        free((*t)->has_sums);
    }
    free(*t);
    *t = NULL;
}

/* The lowest bits of a key's id choose a group of parts. The highest bits of the hash choose a part of the group. */
static inline size_t part_of(uint32_t key, uint64_t hash)
{
    return (size_t)(key << (PART_BITS - KEY_BITS) | hash >> (64 - PART_BITS + KEY_BITS)) & (PARTS - 1);
}

/* Calls with a constant `is_member` leave no branch in the loop over an event's keys. */
static inline uint64_t hash_of(const struct count_table *t, const struct count_slot *key, bool is_member)
{
    uint64_t second = is_member ? code_of(key) : (uint64_t)key->sub << 32 | key->key;
    unsigned __int128 product =
        (unsigned __int128)(((uint64_t)key->tag << 32 | key->key) ^ t->seed[0]) * (second ^ t->seed[1]);
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline void prefetch(const struct count_table *t, const struct count_slot *key, uint64_t hash)
{
    const struct part *p = &t->parts[part_of(key->key, hash)];
    __builtin_prefetch(&p->slots[hash & (p->n_slots - 1)], 1);
}

static inline struct count_slot *find_slot(
    const struct part *p, const struct count_slot *key, uint64_t hash, bool is_member)
{
    size_t mask = p->n_slots - 1;
    for (size_t i = hash & mask;; i = (i + 1) & mask) {
        struct count_slot *s = &p->slots[i];
        if (s->tag == 0 || (s->tag == key->tag && s->key == key->key && s->sub == key->sub &&
                               (!is_member || s->count == key->count)))
            return s;
    }
}

static void grow(struct count_table *t, struct part *p)
{
    struct part old = *p;
    size_t at = (size_t)(p - t->parts);
    p->n_slots *= 2;
    p->left = limit_of(at, p->n_slots) - limit_of(at, old.n_slots);
    p->slots = mem_zalloc(p->n_slots * sizeof *p->slots);
    t->bytes += p->n_slots * sizeof *p->slots;
    for (size_t i = 0; i < old.n_slots; i++)
        if (old.slots[i].tag != 0)
            *find_slot(p, &old.slots[i], hash_of(t, &old.slots[i], t->has_members), t->has_members) =
                old.slots[i];
    if (old.n_slots == FIRST_SLOTS)
        return;
    t->bytes -= old.n_slots * sizeof *old.slots;
    free(old.slots);
}

static inline void add(struct count_table *t, const struct count_slot *key, uint64_t hash, bool is_member)
{
    struct part *p = &t->parts[part_of(key->key, hash)];
    struct count_slot *s = find_slot(p, key, hash, is_member);
    if (s->tag != 0) {
        s->count += is_member ? 0 : key->count;
        return;
    }
    *s = *key;
    t->n++;
    if (--p->left == 0)
        grow(t, p);
}

static inline void add_all(struct count_table *t, const struct count_slot *keys, size_t n, bool is_member)
{
    uint64_t hashes[FETCHED];
    for (size_t some; n > 0; keys += some, n -= some) {
        some = n < FETCHED ? n : FETCHED;
        for (size_t i = 0; i < some; i++) {
            hashes[i] = hash_of(t, &keys[i], is_member);
            prefetch(t, &keys[i], hashes[i]);
        }
        for (size_t i = 0; i < some; i++)
            add(t, &keys[i], hashes[i], is_member);
    }
}

void count_table_add(struct count_table *t, const struct count_slot *keys, size_t n)
{
    if (t->has_members)
        add_all(t, keys, n, true);
    else
        add_all(t, keys, n, false);
}

static size_t counter_of(const struct count_table *t, const struct count_slot *slot)
{
    return (slot->tag >> time_bits(t)) - 1;
}

static bool is_sum(const struct count_table *t, const struct count_slot *slot)
{
    return t->has_sums && t->has_sums[counter_of(t, slot)];
}

static void add_amount(int64_t *sum, int64_t amount)
{
    bool overflows = __builtin_add_overflow(*sum, amount, sum);
    assert(!overflows);
    (void)overflows;
}

void count_table_add_sums(
    struct count_table *t, const struct count_slot *keys, const int64_t *amounts, size_t n)
{
    if (n > 0 && !t->has_sums)
        t->has_sums = mem_zalloc(COUNTERS_MAX * sizeof *t->has_sums);
    for (size_t i = 0; i < n; i++) {
        uint64_t hash = hash_of(t, &keys[i], false);
        struct part *p = &t->parts[part_of(keys[i].key, hash)];
        struct count_slot *s = find_slot(p, &keys[i], hash, false), key = keys[i];
        t->has_sums[counter_of(t, &key)] = true;
        if (s->tag != 0) {
            add_amount(&t->sums[s->count], amounts[i]);
            continue;
        }
        size_t room = t->room_sums;
        key.count = (uint32_t)t->n_sums;
        *ARRAY_ADD(t->sums, t->n_sums, t->room_sums) = amounts[i];
        t->bytes += (t->room_sums - room) * sizeof *t->sums;
        add(t, &key, hash, false);
    }
}

size_t count_table_counts(const struct count_table *t)
{
    return t->n;
}

size_t count_table_bytes(const struct count_table *t)
{
    return t->bytes;
}

struct count_table *count_table_copy(const struct count_table *t)
{
    struct count_table *copy = mem_alloc(sizeof *copy);
    *copy = *t;
    for (size_t i = 0; i < PARTS; i++) {
        struct part *p = &copy->parts[i];
        size_t bytes = p->n_slots * sizeof *p->slots;
        p->slots = p->n_slots > FIRST_SLOTS ? memcpy(mem_alloc(bytes), t->parts[i].slots, bytes)
                                            : &copy->first[i * FIRST_SLOTS];
    }
    if (!t->has_sums)
        return copy;
    copy->has_sums = memcpy(
        mem_alloc(COUNTERS_MAX * sizeof *t->has_sums), t->has_sums, COUNTERS_MAX * sizeof *t->has_sums);
    copy->sums = memcpy(mem_alloc(t->room_sums * sizeof *t->sums), t->sums, t->n_sums * sizeof *t->sums);
    return copy;
}

enum { WANTED_KEY = 1, WANTED_SUB = 2 };

static bool is_wanted(
    const struct count_choice *c, const uint8_t *marks, const struct count_slot *slot, unsigned bits)
{
    return slot->tag != 0 && (marks[slot->key] & WANTED_KEY) && c->wanted[(slot->tag >> bits) - 1] &&
           (!c->subs || slot->sub == COUNT_NO_SUB || (marks[slot->sub] & WANTED_SUB));
}

/* Copies the chosen counts of a part. Returns false if the copy would have more than c->most counts. */
static bool pick_from(const struct count_table *t, const struct part *p, const struct count_choice *c,
    const uint8_t *marks, struct count_table *out)
{
    unsigned bits = time_bits(out);
    for (size_t i = 0; i < p->n_slots; i++) {
        const struct count_slot *slot = &p->slots[i];
        if (!is_wanted(c, marks, slot, bits))
            continue;
        if (c->most > 0 && out->n == c->most)
            return false;
        if (is_sum(t, slot))
            count_table_add_sums(out, slot, &t->sums[slot->count], 1);
        else
            count_table_add(out, slot, 1);
    }
    return true;
}

struct count_table *count_table_pick(const struct count_table *t, const struct count_choice *c)
{
    struct count_table *out = count_table_new(0, t->quarters_since);
    bool has_keys[1 << KEY_BITS] = {0}, fits = true;
    out->has_members = t->has_members;
    memcpy(out->seed, t->seed, sizeof out->seed);
    if (c->n_keys == 0) /* frequent, because the table has only the keys since the last flush */
        return out;
    uint8_t *marks = mem_zalloc((size_t)c->n_ids + 1);
    for (size_t i = 0; i < c->n_keys; i++) {
        marks[c->keys[i]] |= WANTED_KEY;
        has_keys[part_of(c->keys[i], 0) / GROUP_PARTS] = true;
    }
    for (size_t i = 0; i < c->n_subs; i++)
        marks[c->subs[i]] |= WANTED_SUB;
    for (size_t i = 0; i < PARTS && fits; i++)
        if (has_keys[i / GROUP_PARTS])
            fits = pick_from(t, &t->parts[i], c, marks, out);
    free(marks);
    if (!fits)
        count_table_free(&out);
    return out;
}

bool count_range_has(const struct count_range *r, struct bytes key)
{
    return bytes_starts_with(bytes_of(key.ptr, key.len - 1), r->prefix) && bytes_compare(key, r->from) >= 0 &&
           (r->last.len == 0 || bytes_compare(key, r->last) <= 0);
}

/* An item to sort: 96 bits are the sort key, and the lowest 32 bits are data. */
struct sortable {
    uint64_t high, low;
};

struct sortables {
    struct sortable *items;
    size_t n, room;
};

static void sortables_add(struct sortables *s, uint64_t high, uint64_t low)
{
    *ARRAY_ADD(s->items, s->n, s->room) = (struct sortable){high, low};
}

#define RADIX_BITS 11
#define RADIX_SIZE (1u << RADIX_BITS)

static unsigned digit_of(const struct sortable *s, unsigned shift)
{
    uint64_t word = shift < 64 ? s->low : s->high;
    return (unsigned)(word >> (shift & 63)) & (RADIX_SIZE - 1);
}

/* Sorts by one digit of the sort key. If all items have the same digit, moves no item and returns false. */
static bool radix_pass(const struct sortable *from, struct sortable *to, size_t n, unsigned shift)
{
    size_t starts[RADIX_SIZE] = {0}, at = 0;
    for (size_t i = 0; i < n; i++)
        starts[digit_of(&from[i], shift)]++;
    if (starts[digit_of(&from[0], shift)] == n)
        return false;
    for (size_t d = 0; d < RADIX_SIZE; d++) {
        size_t here = starts[d];
        starts[d] = at;
        at += here;
    }
    for (size_t i = 0; i < n; i++)
        to[starts[digit_of(&from[i], shift)]++] = from[i];
    return true;
}

static int compare_sortables(const void *a, const void *b)
{
    const struct sortable *x = a, *y = b;
    if (x->high != y->high)
        return x->high < y->high ? -1 : 1;
    return x->low < y->low ? -1 : x->low > y->low;
}

/* A radix sort. The last six digits are `high`, and the three digits before them are the upper half of `low`. With
 * `whole`, the lower half of `low` is not data but part of the sort key. */
static void sort(struct sortables *s, bool whole)
{
    static const unsigned shifts[] = {0, 11, 22, 32, 43, 54, 64, 75, 86, 97, 108, 119};
    if (s->n < RADIX_SIZE) {
        if (s->n > 1)
            qsort(s->items, s->n, sizeof *s->items, compare_sortables);
        return;
    }
    struct sortable *other = mem_alloc(s->n * sizeof *other);
    for (size_t i = whole ? 0 : 3; i < sizeof shifts / sizeof shifts[0]; i++) {
        if (!radix_pass(s->items, other, s->n, shifts[i]))
            continue;
        struct sortable *sorted = other;
        other = s->items;
        s->items = sorted;
    }
    s->room = s->n;
    free(other);
}

/* Returns the sort key of a text: the first 12 bytes of the stored form with the terminator `end`. 12 bytes are
 * sufficient: a hash has 12 bytes, and a plain text with its terminator has at most 12 bytes and is never equal to a
 * hash. */
static struct sortable order_of(const struct interned *t, uint32_t id, char end)
{
    char text[COMPONENT_HASH + 4] = {0};
    uint64_t high;
    uint32_t low;
    memcpy(text, t->stored, COMPONENT_HASH);
    text[t->stored_len] = end;
    memcpy(&high, text, sizeof high);
    memcpy(&low, text + sizeof high, sizeof low);
    return (struct sortable){__builtin_bswap64(high), (uint64_t)__builtin_bswap32(low) << 32 | id};
}

/* The sort order of a set of ids. Their texts are compared with the same terminator. */
struct ranks {
    uint32_t *rank_of; /* rank of each id; ids with the same stored form have the same rank */
    uint32_t *id_of;
    struct sortables texts;
};

static void ranks_note(struct ranks *r, const struct interner *texts, uint32_t id, char end)
{
    if (r->rank_of[id])
        return;
    r->rank_of[id] = 1;
    struct sortable s = order_of(interner_get(texts, id), id, end);
    sortables_add(&r->texts, s.high, s.low);
}

#define NS_TEXT (2 * NAMESPACE_MAX + 3) /* "subtotal.total|" */

struct space {
    char text[NS_TEXT];
    size_t len;
    size_t counter; /* index in the totals and subtotals, or in the unique counters */
    bool is_subtotal;
    bool has_sums;
    enum period_unit by; /* PERIOD_QUARTER for counts, which are of hours before quarters_since */
};

static int compare_spaces(const void *a, const void *b)
{
    const struct space *x = a, *y = b;
    return strcmp(x->text, y->text);
}

/* Returns an array with the key prefix of each counter, or of each unique counter, in the sort order of the records. */
static struct space *make_spaces(const struct counters *c, bool uniques, size_t *n)
{
    size_t n_counters = c->n_totals + c->n_subtotals;
    *n = uniques ? c->n_uniques : n_counters;
    struct space *spaces = mem_zalloc((*n + 1) * sizeof *spaces);
    for (size_t i = 0; i < *n; i++) {
        const struct counter *counter = uniques ? &c->uniques[i] : counters_at(c, i);
        int len = snprintf(spaces[i].text, NS_TEXT, "%s|", counter->ns);
        spaces[i].len = (size_t)len;
        spaces[i].counter = i;
        spaces[i].is_subtotal = uniques || i >= c->n_totals;
        spaces[i].by = uniques ? counter->by : PERIOD_QUARTER;
    }
    qsort(spaces, *n, sizeof *spaces, compare_spaces);
    return spaces;
}

static int compare_heads(struct bytes a, struct bytes b)
{
    size_t n = a.len < b.len ? a.len : b.len;
    return n > 0 ? memcmp(a.ptr, b.ptr, n) : 0;
}

/* Returns false if the range has no key that begins with `head`. */
static bool may_have(const struct count_range *r, struct bytes head)
{
    return compare_heads(head, r->prefix) == 0 && compare_heads(head, r->from) >= 0 &&
           (r->last.len == 0 || compare_heads(head, r->last) <= 0);
}

/* Returns true if the range has every key that begins with `head`. */
static bool has_all(const struct count_range *r, struct bytes head)
{
    return bytes_starts_with(head, r->prefix) && compare_heads(head, r->from) >= 0 &&
           !(r->from.len > head.len && compare_heads(head, r->from) == 0) &&
           (r->last.len == 0 || compare_heads(head, r->last) < 0);
}

/* The counts of a counter to copy: no counts, all counts, or the counts of some ids. */
struct choice {
    bool none;
    uint8_t *ids; /* a `verdict` for each id; NULL: copy all counts */
    uint32_t rank;
};
enum verdict { UNKNOWN, TAKEN, LEFT };

void count_range_note_counters(const struct count_range *r, const struct counters *c, bool *wanted)
{
    for (int uniques = 0; uniques < 2; uniques++) {
        size_t n;
        struct space *spaces = make_spaces(c, uniques, &n);
        for (size_t i = 0; i < n; i++)
            wanted[spaces[i].counter] =
                wanted[spaces[i].counter] || may_have(r, bytes_of(spaces[i].text, spaces[i].len));
        wanted += n;
        free(spaces);
    }
}

static void append_key(struct buf *b, const struct space *s, const struct interned *t)
{
    buf_clear(b);
    buf_append(b, s->text, s->len);
    buf_append(b, t->stored, t->stored_len);
    buf_append_char(b, s->is_subtotal ? '.' : RECORD_SEPARATOR);
}

enum { END_TOTAL, END_SUBTOTAL, END_NAME, ENDS };
static const char ends[ENDS] = {RECORD_SEPARATOR, '.', '\0'};

/* A source of a table's sorted counts or members. In each item, `high` has the position of the counter, the rank of the
 * key and the time; `low` has the rank of the sub key and the count or the index of the sum, or the code of the member. */
struct table_source {
    struct count_source base; /* first */
    const struct interner *texts;
    struct space *spaces;
    struct ranks ranks[ENDS];
    struct sortables counts;
    size_t at, end; /* positions of the next value and of the end of the current record */
    struct buf key;
    char period[PERIOD_TEXT_MAX + 1];
    unsigned bits; /* of a time in `high` */
    int64_t step, quarters_since;
    bool has_members;
    int64_t *sums;
    size_t n_sums, room_sums;
    char id[SET_CHUNK_ID]; /* of the current chunk */
    uint64_t *codes;
    size_t n_codes, room_codes;
    struct buf chunk;
};

static void rank(struct table_source *s, const struct choice *choices)
{
    for (int end = 0; end < ENDS; end++) {
        struct ranks *r = &s->ranks[end];
        struct sortables *t = &r->texts;
        uint32_t at = 0;
        sort(t, false);
        r->id_of = mem_alloc((t->n + 1) * sizeof(uint32_t));
        for (size_t i = 0; i < t->n; i++) {
            const struct sortable *here = &t->items[i];
            at += i > 0 && (here->high != here[-1].high || here->low >> 32 != here[-1].low >> 32);
            r->rank_of[(uint32_t)here->low] = at;
            r->id_of[at] = (uint32_t)here->low;
        }
        free(t->items);
        *t = (struct sortables){0};
    }
    for (size_t i = 0; i < s->counts.n; i++) {
        struct sortable *c = &s->counts.items[i];
        uint32_t tag = (uint32_t)(c->high >> 32), id = (uint32_t)c->high, sub = (uint32_t)(c->low >> 32);
        const struct choice *choice = &choices[(tag >> s->bits) - 1];
        bool is_subtotal = s->spaces[choice->rank].is_subtotal;
        uint64_t key_rank = s->ranks[is_subtotal ? END_SUBTOTAL : END_TOTAL].rank_of[id];
        c->high =
            (uint64_t)choice->rank << (32 + s->bits) | key_rank << s->bits | (tag & ((1u << s->bits) - 1));
        if (s->has_members)
            continue;
        if (is_subtotal)
            c->low = (uint64_t)s->ranks[END_NAME].rank_of[sub] << 32 | (uint32_t)c->low;
        else
            c->low = (uint32_t)c->low;
    }
}

static const struct space *space_of(const struct table_source *s, const struct sortable *c)
{
    return &s->spaces[c->high >> (32 + s->bits)];
}

/* Returns the text of the value's period, which is in s->period. */
static struct bytes period_of(struct table_source *s, const struct sortable *c)
{
    int64_t start = HOUR_FIRST + (int64_t)(c->high & ((1u << s->bits) - 1)) * s->step;
    enum period_unit by = space_of(s, c)->by;
    by = by == PERIOD_QUARTER && (s->quarters_since == 0 || start < s->quarters_since) ? PERIOD_HOUR : by;
    return bytes_of(s->period, period_encode(by, start, s->period));
}

static enum count_next table_next_record(struct count_source *base)
{
    struct table_source *s = (struct table_source *)base;
    s->at = s->end;
    if (s->at == s->counts.n)
        return COUNT_END;
    const struct sortable *first = &s->counts.items[s->at];
    const struct space *space = space_of(s, first);
    /* The record of a total has all periods of a key. The record of a subtotal has one period. */
    unsigned shift = space->is_subtotal ? 0 : s->bits;
    while (s->end < s->counts.n && s->counts.items[s->end].high >> shift == first->high >> shift)
        s->end++;
    const struct ranks *ranks = &s->ranks[space->is_subtotal ? END_SUBTOTAL : END_TOTAL];
    uint32_t key_rank = (uint32_t)(first->high >> s->bits);
    append_key(&s->key, space, interner_get(s->texts, ranks->id_of[key_rank]));
    if (space->is_subtotal) {
        buf_append_bytes(&s->key, period_of(s, first));
        buf_append_char(&s->key, RECORD_SEPARATOR);
    }
    base->key = buf_bytes(&s->key);
    return COUNT_FOUND;
}

static enum count_next table_next_value(struct count_source *base)
{
    struct table_source *s = (struct table_source *)base;
    if (s->at == s->end)
        return COUNT_END;
    const struct sortable *first = &s->counts.items[s->at];
    if (space_of(s, first)->is_subtotal) {
        const struct interned *t = interner_get(s->texts, s->ranks[END_NAME].id_of[first->low >> 32]);
        base->name = bytes_of(t->stored, t->stored_len);
    } else {
        base->name = period_of(s, first);
    }
    bool has_sums = space_of(s, first)->has_sums;
    base->count = 0;
    for (; s->at < s->end; s->at++) {
        const struct sortable *c = &s->counts.items[s->at];
        if (c->high != first->high || c->low >> 32 != first->low >> 32)
            break;
        if (has_sums)
            add_amount(&base->count, s->sums[(uint32_t)c->low]);
        else
            base->count += (uint32_t)c->low;
    }
    return COUNT_FOUND;
}

/* Takes the members of a chunk. Several ids with one stored form may have the same member. */
static enum count_next table_next_chunk(struct count_source *base)
{
    struct table_source *s = (struct table_source *)base;
    if (s->at == s->end)
        return COUNT_END;
    const struct sortable *items = s->counts.items;
    char id[SET_CHUNK_ID];
    s->n_codes = 0;
    set_chunk_id(items[s->at].low, s->id);
    for (; s->at < s->end; s->at++) {
        uint64_t code = items[s->at].low;
        set_chunk_id(code, id);
        if (memcmp(id, s->id, sizeof id) != 0)
            break;
        if (s->n_codes > 0 && s->codes[s->n_codes - 1] == code)
            continue;
        if (s->n_codes == SET_CHUNK_HASHES && code >= SET_NUMBER_END)
            break;
        *ARRAY_ADD(s->codes, s->n_codes, s->room_codes) = code;
    }
    buf_clear(&s->chunk);
    set_chunk_append(s->codes, s->n_codes, &s->chunk);
    base->name = bytes_of(s->id, sizeof s->id);
    base->text = buf_bytes(&s->chunk);
    return COUNT_FOUND;
}

static void table_close(struct count_source *base)
{
    struct table_source *s = (struct table_source *)base;
    for (int end = 0; end < ENDS; end++) {
        free(s->ranks[end].rank_of);
        free(s->ranks[end].id_of);
        free(s->ranks[end].texts.items);
    }
    free(s->spaces);
    free(s->counts.items);
    free(s->sums);
    free(s->codes);
    buf_free(&s->chunk);
    buf_free(&s->key);
    free(s);
}

static bool is_chosen(
    struct table_source *s, const struct choice *c, uint32_t id, const struct count_range *range)
{
    if (c->none || !c->ids)
        return !c->none;
    if (c->ids[id] == UNKNOWN) {
        append_key(&s->key, &s->spaces[c->rank], interner_get(s->texts, id));
        c->ids[id] = may_have(range, buf_bytes(&s->key)) ? TAKEN : LEFT;
    }
    return c->ids[id] == TAKEN;
}

static void take_counts(struct table_source *s, const struct count_table *t, const struct part *p,
    size_t n_totals, const struct choice *choices, const struct count_range *range)
{
    for (size_t i = 0; i < p->n_slots; i++) {
        const struct count_slot *slot = &p->slots[i];
        if (slot->tag == 0)
            continue;
        size_t counter = (slot->tag >> s->bits) - 1;
        uint32_t count = slot->count;
        const struct choice *c = &choices[counter];
        if (!is_chosen(s, c, slot->key, range))
            continue;
        bool is_subtotal = s->has_members || counter >= n_totals;
        int end = is_subtotal ? END_SUBTOTAL : END_TOTAL;
        ranks_note(&s->ranks[end], s->texts, slot->key, ends[end]);
        if (is_subtotal && !s->has_members)
            ranks_note(&s->ranks[END_NAME], s->texts, slot->sub, ends[END_NAME]);
        if (is_sum(t, slot)) {
            count = (uint32_t)s->n_sums;
            *ARRAY_ADD(s->sums, s->n_sums, s->room_sums) = t->sums[slot->count];
        }
        sortables_add(&s->counts, (uint64_t)slot->tag << 32 | slot->key,
            s->has_members ? code_of(slot) : (uint64_t)slot->sub << 32 | count);
    }
}

struct count_source *count_table_source(const struct count_table *t, const struct interner *texts,
    const struct counters *counters, const struct count_range *range)
{
    static const struct count_source_kind kind = {table_next_record, table_next_value, table_close, NULL},
                                          sets = {table_next_record, table_next_chunk, table_close, NULL};
    struct table_source *s = mem_zalloc(sizeof *s);
    size_t n;
    uint32_t n_texts = interner_count(texts);
    s->base.kind = t->has_members ? &sets : &kind;
    s->has_members = t->has_members;
    s->quarters_since = t->quarters_since;
    s->bits = time_bits(t);
    s->step = time_step(t);
    s->texts = texts;
    if (t->n == 0)
        return &s->base;
    s->spaces = make_spaces(counters, t->has_members, &n);
    for (int end = 0; end < ENDS; end++)
        s->ranks[end] = (struct ranks){.rank_of = mem_zalloc(((size_t)n_texts + 1) * sizeof(uint32_t))};
    const struct space *spaces = s->spaces;
    struct choice *choices = mem_zalloc((n + 1) * sizeof *choices);
    for (size_t i = 0; i < n; i++) {
        struct choice *c = &choices[spaces[i].counter];
        struct bytes head = bytes_of(spaces[i].text, spaces[i].len);
        c->rank = (uint32_t)i;
        s->spaces[i].has_sums = t->has_sums && t->has_sums[spaces[i].counter];
        c->none = !may_have(range, head);
        if (c->none || has_all(range, head))
            continue;
        c->ids = mem_zalloc((size_t)n_texts + 1);
    }
    if (range->from.len + range->prefix.len + range->last.len == 0) {
        s->counts.room = t->n + 1;
        s->counts.items = mem_alloc(s->counts.room * sizeof *s->counts.items);
    }
    for (size_t i = 0; i < PARTS; i++)
        take_counts(s, t, &t->parts[i], counters->n_totals, choices, range);
    rank(s, choices);
    sort(&s->counts, t->has_members);
    for (size_t i = 0; i < n; i++)
        free(choices[i].ids);
    free(choices);
    return &s->base;
}

struct lookup_source {
    struct count_source base; /* first */
    const struct interner *texts;
    struct sortables ids;
    size_t at, end;
    char key[sizeof("lookup|") + COMPONENT_HASH];
};

static enum count_next lookup_next_record(struct count_source *base)
{
    struct lookup_source *s = (struct lookup_source *)base;
    s->at = s->end;
    if (s->at == s->ids.n)
        return COUNT_END;
    const struct sortable *first = &s->ids.items[s->at];
    const struct interned *t = interner_get(s->texts, (uint32_t)first->low);
    int len = snprintf(s->key, sizeof s->key, "lookup|%.*s", COMPONENT_HASH, t->stored);
    s->key[len] = RECORD_SEPARATOR;
    base->key = bytes_of(s->key, (size_t)len + 1);
    while (s->end < s->ids.n && s->ids.items[s->end].high == first->high &&
           s->ids.items[s->end].low >> 32 == first->low >> 32)
        s->end++;
    return COUNT_FOUND;
}

/* Yields every text with the hash of the record's key. The merge keeps the smallest text and counts the other texts as
 * collisions. */
static enum count_next lookup_next_value(struct count_source *base)
{
    struct lookup_source *s = (struct lookup_source *)base;
    if (s->at == s->end)
        return COUNT_END;
    const struct interned *t = interner_get(s->texts, (uint32_t)s->ids.items[s->at++].low);
    base->text = bytes_of(t->text, t->text_len);
    return COUNT_FOUND;
}

static void lookup_close(struct count_source *base)
{
    struct lookup_source *s = (struct lookup_source *)base;
    free(s->ids.items);
    free(s);
}

struct count_source *count_lookup_source(
    const struct interner *texts, const uint32_t *ids, size_t n, const struct count_range *range)
{
    static const struct count_source_kind kind = {lookup_next_record, lookup_next_value, lookup_close, NULL};
    struct lookup_source *s = mem_zalloc(sizeof *s);
    char key[sizeof("lookup|") + COMPONENT_HASH] = "lookup|";
    size_t head = strlen(key);
    bool has_lookups = may_have(range, bytes_of(key, head));
    s->base.kind = &kind;
    s->texts = texts;
    for (size_t i = 0; i < n && has_lookups; i++) {
        const struct interned *t = interner_get(texts, ids[i]);
        memcpy(key + head, t->stored, COMPONENT_HASH);
        if (!may_have(range, bytes_of(key, head + COMPONENT_HASH)))
            continue;
        struct sortable order = order_of(t, ids[i], '\0');
        sortables_add(&s->ids, order.high, order.low);
    }
    sort(&s->ids, false);
    return &s->base;
}
