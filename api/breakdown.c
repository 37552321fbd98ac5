#include "api/breakdown.h"

#include "base/text_hash.h"

#include <stdlib.h>

#define FIRST_SIZE 16
#define SLOTS_A_CALL 4096
#define SUMS_AHEAD 16 /* sums whose slots are fetched into the cache at once */
#define ROWS_SPARE 4096

void breakdown_init(struct breakdown *b, const struct query *q)
{
    *b = (struct breakdown){.query = q};
}

static struct bytes stored_of(const struct breakdown_sum *s)
{
    return bytes_of(s->stored, s->len);
}

static void free_table(struct breakdown *b, struct breakdown_table *t)
{
    b->bytes -= t->size * sizeof *t->sums;
    free(t->sums);
    *t = (struct breakdown_table){0};
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

void breakdown_reset(struct breakdown *b)
{
    for (size_t i = 0; i < BREAKDOWN_TABLES; i++)
        free_table(b, &b->tables[i]);
    breakdown_forget_texts(b, 0, b->n_rows);
    free(b->rows);
    breakdown_init(b, b->query);
}

/* The upper bits of the hash select the table, the lower bits the slot. */
static size_t table_of(uint64_t hash)
{
    return hash / (UINT64_MAX / BREAKDOWN_TABLES + 1);
}

static struct breakdown_sum *find_slot(
    const struct breakdown_table *t, uint64_t hash, const struct breakdown_sum *sought)
{
    for (size_t i = hash & (t->size - 1);; i = (i + 1) & (t->size - 1)) {
        struct breakdown_sum *s = &t->sums[i];
        if (s->n == 0 || (memcmp(s->stored, sought->stored, COMPONENT_HASH) == 0 && s->len == sought->len))
            return s;
    }
}

static void grow(struct breakdown *b, struct breakdown_table *t)
{
    struct breakdown_table old = *t;
    t->size = old.size ? 2 * old.size : FIRST_SIZE;
    t->sums = mem_zalloc(t->size * sizeof *t->sums);
    for (size_t i = 0; i < old.size; i++)
        if (old.sums[i].n)
            *find_slot(t, text_hash(stored_of(&old.sums[i])), &old.sums[i]) = old.sums[i];
    b->bytes += (t->size - old.size) * sizeof *t->sums;
    free(old.sums);
}

/* Each table grows at another load, between 9 and 13 sixteenths full, so that the tables do not all grow at
 * once. */
static void add_sum(struct breakdown *b, const struct breakdown_sum *sum, uint64_t hash)
{
    size_t index = table_of(hash);
    struct breakdown_table *t = &b->tables[index];
    if (t->n >= t->size / 16 * 9 + (uint64_t)t->size / 4 * index / BREAKDOWN_TABLES)
        grow(b, t);
    struct breakdown_sum *s = find_slot(t, hash, sum);
    if (s->n == 0) {
        *s = *sum;
        t->n++;
        b->distinct++;
    } else {
        s->n += sum->n;
    }
    b->is_too_large |= __builtin_add_overflow(b->total, sum->n, &b->total);
}

static uint64_t count_of(const struct breakdown *b, struct bytes stored)
{
    uint64_t hash = text_hash(stored);
    const struct breakdown_table *t = &b->tables[table_of(hash)];
    struct breakdown_sum sought = {.len = (uint8_t)stored.len};
    memcpy(sought.stored, stored.ptr, stored.len);
    return t->size > 0 ? find_slot(t, hash, &sought)->n : 0;
}

/* Takes the next counts of a record, and fetches their slots into the cache. Returns their number; *bad: one is malformed. */
static size_t take_sums(
    const struct breakdown *b, struct bytes *value, struct breakdown_sum *sums, uint64_t *hashes, bool *bad)
{
    struct bytes name;
    uint64_t count;
    size_t n = 0;
    for (; n < SUMS_AHEAD && record_next_count(value, &name, &count, bad); n++) {
        *bad = name.len > COMPONENT_HASH || count == 0;
        if (*bad)
            break;
        sums[n] = (struct breakdown_sum){.n = count, .len = (uint8_t)name.len};
        memcpy(sums[n].stored, name.ptr, name.len);
        hashes[n] = text_hash(name);
        const struct breakdown_table *t = &b->tables[table_of(hashes[n])];
        if (t->size)
            __builtin_prefetch(&t->sums[hashes[n] & (t->size - 1)], 1);
    }
    return n;
}

bool breakdown_add(struct breakdown *b, const struct record *r)
{
    struct record_key key;
    struct bytes value = r->value;
    struct breakdown_sum sums[SUMS_AHEAD];
    uint64_t hashes[SUMS_AHEAD];
    size_t n;
    bool bad = false;
    if (!record_key_parse(r->key, &key) || !bytes_equal_str(key.ns, b->query->sub->ns))
        return false;
    enum query_overlap overlap = query_overlap(b->query, &key);
    b->needs_dropped_hours |= overlap == QUERY_PARTLY;
    if (overlap != QUERY_WITHIN)
        return true;
    while ((n = take_sums(b, &value, sums, hashes, &bad)) > 0)
        for (size_t i = 0; i < n; i++)
            add_sum(b, &sums[i], hashes[i]);
    return !bad;
}

/* Rows with larger counts are first, and among equal counts those with lower stored forms. */
static int compare_selected(const void *a, const void *b)
{
    const struct breakdown_row *x = a, *y = b;
    if (x->sum.n != y->sum.n)
        return x->sum.n < y->sum.n ? 1 : -1;
    return bytes_compare(stored_of(&x->sum), stored_of(&y->sum));
}

static void cut_rows(struct breakdown *b)
{
    qsort(b->rows, b->n_rows, sizeof *b->rows, compare_selected);
    if (b->n_rows >= b->query->limit) {
        b->n_rows = b->query->limit;
        b->last = b->rows[b->n_rows - 1].sum;
    }
}

static bool may_be_row(const struct breakdown *b, const struct breakdown_sum *s)
{
    return s->n > b->last.n || (s->n == b->last.n && bytes_compare(stored_of(s), stored_of(&b->last)) < 0);
}

static void select_from(struct breakdown *b, struct breakdown_table *t, size_t *left)
{
    size_t most = b->query->limit + ROWS_SPARE;
    for (; b->slot<t->size && * left> 0; b->slot++, --*left) {
        const struct breakdown_sum *s = &t->sums[b->slot];
        if (s->n == 0 || !may_be_row(b, s))
            continue;
        b->rows[b->n_rows++] = (struct breakdown_row){.sum = *s};
        if (b->n_rows == most)
            cut_rows(b);
    }
}

static int compare_stored(const void *a, const void *b)
{
    const struct breakdown_row *x = a, *y = b;
    return bytes_compare(stored_of(&x->sum), stored_of(&y->sum));
}

bool breakdown_select(struct breakdown *b)
{
    size_t left = SLOTS_A_CALL, room = (b->query->limit + ROWS_SPARE) * sizeof *b->rows;
    if (!b->rows) {
        b->rows = mem_alloc(room);
        b->bytes += room;
        if (query_may_have_other(b->query))
            b->over.counter = count_of(b, BYTES_LITERAL(COMPONENT_OTHER));
    }
    for (; b->table < BREAKDOWN_TABLES && left > 0; b->table++, b->slot = 0) {
        struct breakdown_table *t = &b->tables[b->table];
        select_from(b, t, &left);
        if (b->slot < t->size)
            return false;
        free_table(b, t);
    }
    if (b->table < BREAKDOWN_TABLES)
        return false;
    cut_rows(b);
    qsort(b->rows, b->n_rows, sizeof *b->rows, compare_stored); /* for breakdown_add_lookup */
    return true;
}

bool breakdown_wants_text(const struct breakdown *b, size_t row)
{
    return !b->rows[row].text && component_is_hash(stored_of(&b->rows[row].sum));
}

/* Two sources may have different texts for one hash. Then the breakdown keeps the smaller text
 * (docs/formats/records.md). */
bool breakdown_add_lookup(struct breakdown *b, const struct record *r)
{
    struct record_key key;
    struct breakdown_row wanted = {.sum = {.len = COMPONENT_HASH}}, *row;
    struct buf text = {0};
    if (!record_key_parse(r->key, &key) || !key.is_lookup)
        return false;
    memcpy(wanted.sum.stored, key.key.ptr, COMPONENT_HASH);
    row = bsearch(&wanted, b->rows, b->n_rows, sizeof *b->rows, compare_stored);
    bool ok = row && lookup_unescape(r->value, &text) == 0;
    if (ok && (!row->text || bytes_compare(breakdown_text(row), buf_bytes(&text)) > 0)) {
        free(row->text);
        b->bytes += text.len - row->text_len;
        row->text = bytes_dup(buf_bytes(&text));
        row->text_len = text.len;
    }
    buf_free(&text);
    return ok;
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

void breakdown_order(struct breakdown *b)
{
    qsort(b->rows, b->n_rows, sizeof *b->rows, compare_rows);
    b->shown = 0;
    for (size_t i = 0; i < b->n_rows; i++)
        b->shown += b->rows[i].sum.n;
}
