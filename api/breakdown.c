#include "api/breakdown.h"

#include "base/text_hash.h"

#include <stdlib.h>

#define FIRST_SIZE 16
#define SLOTS_A_CALL 65536
#define LARGEST_SPARE 4096
#define TIES_AHEAD                                                                                           \
    (BREAKDOWN_TEXTS_MAX / BREAKDOWN_TABLES * 3 / 4) /* of one table; the tables have about as many each */

void breakdown_init(struct breakdown *b, const struct query *q)
{
    *b = (struct breakdown){.query = q};
}

static struct bytes stored_of(const struct breakdown_sum *s)
{
    return bytes_of(s->stored, s->len);
}

static void free_tables(struct breakdown *b)
{
    for (size_t i = 0; i < BREAKDOWN_TABLES; i++) {
        b->bytes -= b->tables[i].size * sizeof *b->tables[i].sums;
        free(b->tables[i].sums);
        b->tables[i] = (struct breakdown_table){0};
    }
}

void breakdown_forget_texts(struct breakdown *b, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) {
        b->bytes -= b->rows[i].text_len;
        free(b->rows[i].text);
        b->rows[i].text = NULL;
        b->rows[i].text_len = 0;
    }
}

static void free_rows(struct breakdown *b, size_t from)
{
    breakdown_forget_texts(b, from, b->n_rows);
    b->n_rows = b->n_rows < from ? b->n_rows : from;
}

void breakdown_reset(struct breakdown *b)
{
    free_tables(b);
    free_rows(b, 0);
    free(b->rows);
    free(b->largest);
    breakdown_init(b, b->query);
}

/* The upper bits of the hash select the table, the lower bits the slot. */
static struct breakdown_sum *find_slot(const struct breakdown_table *t, uint64_t hash, struct bytes stored)
{
    for (size_t i = hash & (t->size - 1);; i = (i + 1) & (t->size - 1))
        if (t->sums[i].len == 0 || bytes_equal(stored_of(&t->sums[i]), stored))
            return &t->sums[i];
}

static void grow(struct breakdown *b, struct breakdown_table *t)
{
    struct breakdown_table old = *t;
    t->size = old.size ? 2 * old.size : FIRST_SIZE;
    t->sums = mem_zalloc(t->size * sizeof *t->sums);
    for (size_t i = 0; i < old.size; i++)
        if (old.sums[i].len)
            *find_slot(t, text_hash(stored_of(&old.sums[i])), stored_of(&old.sums[i])) = old.sums[i];
    b->bytes += (t->size - old.size) * sizeof *t->sums;
    free(old.sums);
}

/* Each table grows at another load, between 9 and 13 sixteenths full, so that the tables do not all grow at
 * once. */
static bool add_sum(struct breakdown *b, struct bytes stored, uint64_t n)
{
    uint64_t hash = text_hash(stored);
    size_t index = hash >> 58;
    struct breakdown_table *t = &b->tables[index];
    if (stored.len == 0 || stored.len > COMPONENT_HASH)
        return false;
    if (t->n >= t->size / 16 * 9 + (uint64_t)t->size / 4 * index / BREAKDOWN_TABLES)
        grow(b, t);
    struct breakdown_sum *s = find_slot(t, hash, stored);
    if (s->len == 0) {
        memcpy(s->stored, stored.ptr, stored.len);
        s->len = (uint8_t)stored.len;
        t->n++;
        b->distinct++;
    }
    s->n += n;
    b->is_too_large |= __builtin_add_overflow(b->total, n, &b->total);
    return true;
}

bool breakdown_add(struct breakdown *b, const struct record *r)
{
    struct record_key key;
    struct bytes value = r->value, name;
    uint64_t n;
    bool bad = false;
    if (!record_key_parse(r->key, &key) || !bytes_equal_str(key.ns, b->query->sub->ns))
        return false;
    enum query_overlap overlap = query_overlap(b->query, &key);
    b->needs_dropped_hours |= overlap == QUERY_PARTLY;
    if (overlap != QUERY_WITHIN)
        return true;
    while (record_next_count(&value, &name, &n, &bad)) {
        if (!add_sum(b, name, n))
            return false;
        if (b->query->sub->max_keys > 0 && bytes_equal_str(name, COMPONENT_OTHER))
            b->over += n;
    }
    return !bad;
}

/* Returns the next sum of a pass over all tables. Returns NULL at the end of the pass, or when *left reaches 0: the
 * number of slots that the caller may still visit in its turn. */
static const struct breakdown_sum *next_sum(struct breakdown *b, size_t *left)
{
    for (; b->table < BREAKDOWN_TABLES; b->table++, b->slot = 0) {
        const struct breakdown_table *t = &b->tables[b->table];
        while (b->slot<t->size && * left> 0) {
            const struct breakdown_sum *s = &t->sums[b->slot++];
            --*left;
            if (s->len)
                return s;
        }
        if (*left == 0)
            break;
    }
    return NULL;
}

static int compare_largest(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x < y) - (x > y);
}

static void cut_largest(struct breakdown *b)
{
    qsort(b->largest, b->n_largest, sizeof *b->largest, compare_largest);
    if (b->n_largest > b->query->limit)
        b->n_largest = b->query->limit;
    if (b->n_largest == b->query->limit)
        b->least = b->largest[b->n_largest - 1];
}

bool breakdown_select(struct breakdown *b)
{
    size_t left = SLOTS_A_CALL, most = b->query->limit + LARGEST_SPARE;
    const struct breakdown_sum *s;
    if (!b->largest) {
        b->largest = mem_alloc(most * sizeof *b->largest);
        b->bytes += most * sizeof *b->largest;
    }
    while ((s = next_sum(b, &left))) {
        if (s->n < b->least)
            continue;
        b->largest[b->n_largest++] = s->n;
        if (b->n_largest == most)
            cut_largest(b);
    }
    if (b->table < BREAKDOWN_TABLES)
        return false;
    cut_largest(b);
    free(b->largest);
    b->largest = NULL;
    b->bytes -= most * sizeof *b->largest;
    b->table = b->slot = 0;
    most = b->query->limit + BREAKDOWN_TEXTS_MAX;
    most = most < b->distinct ? most : b->distinct;
    b->rows = mem_zalloc((most + 1) * sizeof *b->rows);
    b->bytes += (most + 1) * sizeof *b->rows;
    return true;
}

static int compare_stored(const void *a, const void *b)
{
    const struct breakdown_row *x = a, *y = b;
    return bytes_compare(stored_of(&x->sum), stored_of(&y->sum));
}

static int compare_ties(const void *a, const void *b)
{
    return memcmp(
        ((const struct breakdown_sum *)a)->stored, ((const struct breakdown_sum *)b)->stored, COMPONENT_HASH);
}

static void keep_ties(struct breakdown *b, struct breakdown_table *t)
{
    b->bytes -= (t->size - t->ties) * sizeof *t->sums;
    t->size = t->ties;
    t->sums = mem_realloc(t->sums, (t->size + (t->size == 0)) * sizeof *t->sums);
    qsort(t->sums, t->ties, sizeof *t->sums, compare_ties);
}

/* Adds sums over the least, and ties that are not hashed, to the rows. Leaves only the hashed ties in the tables. Returns false after
 * the last table. */
static bool gather_sums(struct breakdown *b, size_t most)
{
    size_t left = SLOTS_A_CALL;
    if (b->table == BREAKDOWN_TABLES)
        return false;
    for (; b->table < BREAKDOWN_TABLES && left > 0 && b->n_rows < most; b->table++, b->slot = 0) {
        struct breakdown_table *t = &b->tables[b->table];
        for (; b->slot < t->size && left > 0 && b->n_rows < most; b->slot++, left--) {
            struct breakdown_sum s = t->sums[b->slot];
            if (s.len == 0 || s.n < b->least)
                continue;
            if (s.n == b->least && component_is_hash(stored_of(&s)))
                t->sums[t->ties++] = s;
            else
                b->rows[b->n_rows++] = (struct breakdown_row){.sum = s};
        }
        if (b->slot < t->size)
            break;
        keep_ties(b, t);
    }
    return true;
}

/* Adds the next ties of all tables in the order of their hashes to the rows: those up to the hash that is some places ahead in the first
 * table with ties left, or the rest. Returns false if there are none. */
static bool gather_ties(struct breakdown *b, size_t most)
{
    const struct breakdown_sum *bound = NULL;
    bool any = false;
    for (size_t i = 0; i < BREAKDOWN_TABLES; i++) {
        struct breakdown_table *t = &b->tables[i];
        if (!any && t->ties - t->taken > TIES_AHEAD)
            bound = &t->sums[t->taken + TIES_AHEAD];
        any |= t->taken < t->ties;
        for (; t->taken < t->ties && b->n_rows < most; t->taken++) {
            if (bound && compare_ties(&t->sums[t->taken], bound) > 0)
                break;
            b->rows[b->n_rows++] = (struct breakdown_row){.sum = t->sums[t->taken]};
        }
    }
    return any;
}

bool breakdown_gather(struct breakdown *b)
{
    size_t most = b->query->limit + BREAKDOWN_TEXTS_MAX;
    b->kept = b->n_rows;
    if (!gather_sums(b, most) && !gather_ties(b, most)) {
        free_tables(b);
        return false;
    }
    qsort(b->rows + b->kept, b->n_rows - b->kept, sizeof *b->rows,
        compare_stored); /* for breakdown_add_lookup */
    return true;
}

bool breakdown_wants_text(const struct breakdown *b, size_t row)
{
    return !b->rows[row].text && component_is_hash(stored_of(&b->rows[row].sum));
}

/* Two sources may have different texts for one hash. Then the breakdown keeps the smaller text
 * (docs/formats/records.md). */
enum breakdown_lookup breakdown_add_lookup(struct breakdown *b, const struct record *r)
{
    struct record_key key;
    struct breakdown_row wanted = {.sum = {.len = COMPONENT_HASH}}, *row;
    struct buf text = {0};
    if (!record_key_parse(r->key, &key) || !key.is_lookup)
        return BREAKDOWN_LOOKUP_BAD;
    memcpy(wanted.sum.stored, key.key.ptr, COMPONENT_HASH);
    row = bsearch(&wanted, b->rows + b->kept, b->n_rows - b->kept, sizeof *b->rows, compare_stored);
    if (!row)
        return BREAKDOWN_LOOKUP_OTHER;
    if (lookup_unescape(r->value, &text) != 0) {
        buf_free(&text);
        return BREAKDOWN_LOOKUP_BAD;
    }
    if (!row->text || bytes_compare(breakdown_text(row), buf_bytes(&text)) > 0) {
        free(row->text);
        b->bytes += text.len - row->text_len;
        row->text = bytes_dup(buf_bytes(&text));
        row->text_len = text.len;
    }
    buf_free(&text);
    return BREAKDOWN_LOOKUP_OK;
}

struct bytes breakdown_text(const struct breakdown_row *row)
{
    return row->text ? bytes_of(row->text, row->text_len) : stored_of(&row->sum);
}

static int compare_rows(const void *a, const void *b)
{
    const struct breakdown_row *x = a, *y = b;
    if (x->sum.n != y->sum.n)
        return x->sum.n < y->sum.n ? 1 : -1;
    return bytes_compare(breakdown_text(x), breakdown_text(y));
}

/* Of the new rows, keeps those that are not after the last row of a full answer: few, if there are many batches. */
static void drop_losers(struct breakdown *b)
{
    size_t n = b->kept;
    if (n == 0 || n < b->query->limit)
        return;
    for (size_t i = n; i < b->n_rows; i++)
        if (compare_rows(&b->rows[i], &b->rows[b->kept - 1]) > 0)
            breakdown_forget_texts(b, i, i + 1);
        else
            b->rows[n++] = b->rows[i];
    b->n_rows = n;
}

void breakdown_keep_largest(struct breakdown *b)
{
    drop_losers(b);
    qsort(b->rows, b->n_rows, sizeof *b->rows, compare_rows);
    free_rows(b, b->query->limit);
    b->shown = 0;
    for (size_t i = 0; i < b->n_rows; i++)
        b->shown += b->rows[i].sum.n;
}
