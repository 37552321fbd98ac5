#include "api/breakdown.h"

#include "base/text_hash.h"

#include <stdlib.h>

#define FIRST_SIZE 16
#define SLOTS_A_CALL 4096
#define SUMS_AHEAD 16 /* number of sums whose slots are prefetched together */
#define TABLES_A_CALL 16
#define ROWS_SPARE 4096

size_t breakdown_ties_max = 100000;

void breakdown_init(struct breakdown *b, const struct query *q)
{
    *b = (struct breakdown){.query = q,
        .left_out = INT64_MIN,
        .left_out_hash = INT64_MIN,
        .stage = q->has_after ? BREAKDOWN_AFTER_SIZE : BREAKDOWN_LARGEST};
}

struct bytes breakdown_stored(const struct breakdown_sum *s)
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
        b->rows[i] = (struct breakdown_row){.sum = b->rows[i].sum, .by_stored = b->rows[i].by_stored};
    }
}

void breakdown_reset(struct breakdown *b)
{
    const struct breakdown *followed = b->followed;
    for (size_t i = 0; i < BREAKDOWN_TABLES; i++)
        free_table(b, &b->tables[i]);
    breakdown_forget_texts(b, 0, b->n_rows);
    free(b->rows);
    buf_free(&b->worst);
    buf_free(&b->after);
    breakdown_init(b, b->query);
    b->followed = followed;
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
        if (!s->is_used || (memcmp(s->stored, sought->stored, COMPONENT_HASH) == 0 && s->len == sought->len))
            return s;
    }
}

static void grow(struct breakdown *b, struct breakdown_table *t)
{
    struct breakdown_table old = *t;
    t->size = old.size ? 2 * old.size : FIRST_SIZE;
    t->sums = mem_zalloc(t->size * sizeof *t->sums);
    for (size_t i = 0; i < old.size; i++)
        if (old.sums[i].is_used)
            *find_slot(t, text_hash(breakdown_stored(&old.sums[i])), &old.sums[i]) = old.sums[i];
    b->bytes += (t->size - old.size) * sizeof *t->sums;
    free(old.sums);
}

/* Returns the sum of a subtotal, or NULL. If `may_insert`, a subtotal without a sum gets a sum of 0. Each table has its own
 * maximum load, between 9/16 and 13/16, so that the tables do not all grow at once. */
static struct breakdown_sum *sum_of(
    struct breakdown *b, const struct breakdown_sum *sought, uint64_t hash, bool may_insert)
{
    size_t index = table_of(hash);
    struct breakdown_table *t = &b->tables[index];
    if (may_insert && t->n >= t->size / 16 * 9 + (uint64_t)t->size / 4 * index / BREAKDOWN_TABLES)
        grow(b, t);
    struct breakdown_sum *s = t->size > 0 ? find_slot(t, hash, sought) : NULL;
    if (!s || s->is_used || !may_insert)
        return s && s->is_used ? s : NULL;
    *s = *sought;
    s->n = 0;
    t->n++;
    b->distinct++;
    return s;
}

static struct breakdown_sum sum_named(struct bytes stored)
{
    struct breakdown_sum sum = {.len = (uint8_t)stored.len, .is_used = true};
    memcpy(sum.stored, stored.ptr, stored.len);
    return sum;
}

static void add_sum(struct breakdown *b, const struct breakdown_sum *sum, uint64_t hash)
{
    b->is_too_large |= !query_add_absolute(&b->absolute, sum->n);
    if (b->is_too_large)
        return;
    struct breakdown_sum *s = sum_of(b, sum, hash, !b->followed);
    b->total += sum->n;
    if (s)
        s->n += sum->n;
}

static int64_t count_of(struct breakdown *b, struct bytes stored)
{
    const struct breakdown_sum sought = sum_named(stored), *s = sum_of(b, &sought, text_hash(stored), false);
    return s ? s->n : 0;
}

void breakdown_follow(struct breakdown *b, const struct breakdown *followed)
{
    b->followed = followed;
}

/* Inserts the sums of a breakdown that follows another. */
static void insert_followed(struct breakdown *b)
{
    const struct breakdown_sum other = sum_named(BYTES_LITERAL(COMPONENT_OTHER));
    sum_of(b, &other, text_hash(breakdown_stored(&other)), true);
    for (size_t i = 0; i < b->followed->n_rows; i++) {
        const struct breakdown_sum *row = &b->followed->rows[i].sum;
        sum_of(b, row, text_hash(breakdown_stored(row)), true);
    }
}

/* Reads the next counts of a record, and prefetches the slots of these counts. Returns the number of counts. Sets
 * *bad if a count is malformed. */
static size_t take_sums(
    const struct breakdown *b, struct bytes *value, struct breakdown_sum *sums, uint64_t *hashes, bool *bad)
{
    struct bytes name;
    int64_t count;
    size_t n = 0;
    for (; n < SUMS_AHEAD && record_next_count(value, &name, &count, bad); n++) {
        *bad = name.len > COMPONENT_HASH;
        if (*bad)
            break;
        sums[n] = sum_named(name);
        sums[n].n = count;
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
    if (b->followed && b->distinct == 0)
        insert_followed(b);
    while ((n = take_sums(b, &value, sums, hashes, &bad)) > 0)
        for (size_t i = 0; i < n; i++)
            add_sum(b, &sums[i], hashes[i]);
    return !bad;
}

bool breakdown_add_count(struct breakdown *b, struct bytes stored, int64_t n)
{
    if (stored.len > COMPONENT_HASH)
        return false;
    struct breakdown_sum sum = sum_named(stored);
    sum.n = n;
    add_sum(b, &sum, text_hash(stored));
    return true;
}

/* Sorts by descending count, then by ascending stored form. */
static int compare_selected(const void *a, const void *b)
{
    const struct breakdown_row *x = a, *y = b;
    if (x->sum.n != y->sum.n)
        return x->sum.n < y->sum.n ? 1 : -1;
    return bytes_compare(breakdown_stored(&x->sum), breakdown_stored(&y->sum));
}

static size_t rows_room(const struct breakdown *b)
{
    return b->query->limit + b->query->limit / 4 + ROWS_SPARE;
}

/* Updates left_out, n_left_out and left_out_hash for a sum that gets no row. */
static void leave_out(struct breakdown *b, const struct breakdown_sum *s)
{
    b->n_left_out = s->n > b->left_out ? 1 : b->n_left_out + (s->n == b->left_out);
    if (s->n > b->left_out)
        b->left_out = s->n;
    if (s->n > b->left_out_hash && component_is_hash(breakdown_stored(s)))
        b->left_out_hash = s->n;
}

static void cut_rows(struct breakdown *b)
{
    size_t limit = b->query->limit;
    qsort(b->rows + b->kept, b->n_rows - b->kept, sizeof *b->rows, compare_selected);
    for (size_t i = limit; i < b->n_rows; i++)
        leave_out(b, &b->rows[i].sum);
    if (b->n_rows >= limit) {
        b->n_rows = limit;
        b->last = b->rows[limit - 1].sum;
    }
}

static bool may_be_row(const struct breakdown *b, const struct breakdown_sum *s)
{
    return !b->last.is_used || s->n > b->last.n ||
           (s->n == b->last.n && bytes_compare(breakdown_stored(s), breakdown_stored(&b->last)) < 0);
}

/* Counts a subtotal that is a row of an earlier answer. */
static void pass(struct breakdown *b, const struct breakdown_sum *s)
{
    b->n_before++;
    b->before += s->n;
}

static void count_after(struct breakdown *b, const struct breakdown_sum *s)
{
    b->n_after += s->n == b->query->after_n;
}

/* True for a subtotal that earlier answers, or the stage BREAKDOWN_AFTER, have handled. */
static bool is_passed(const struct breakdown *b, const struct breakdown_sum *s)
{
    if (!b->query->has_after || s->n < b->query->after_n)
        return false;
    return !b->after_by_stored || s->n > b->query->after_n ||
           bytes_compare(breakdown_stored(s), buf_bytes(&b->after)) <= 0;
}

static void select_largest(struct breakdown *b, const struct breakdown_sum *s)
{
    if (is_passed(b, s)) {
        if (b->after_by_stored)
            pass(b, s);
        return;
    }
    if (!may_be_row(b, s)) {
        leave_out(b, s);
        return;
    }
    b->rows[b->n_rows++] = (struct breakdown_row){.sum = *s};
    if (b->n_rows == rows_room(b))
        cut_rows(b);
}

static void select_tie(struct breakdown *b, const struct breakdown_sum *s)
{
    bool is_candidate =
        s->n == b->last.n && (!b->has_worst || component_is_hash(breakdown_stored(s)) ||
                                 bytes_compare(breakdown_stored(s), buf_bytes(&b->worst)) < 0);
    if (is_candidate)
        b->rows[b->n_rows++] = (struct breakdown_row){.sum = *s};
}

/* Selects the subtotals that have the count of after= and whose texts may follow its text. */
static void select_after(struct breakdown *b, const struct breakdown_sum *s)
{
    bool is_tie = s->n == b->query->after_n, is_hash = component_is_hash(breakdown_stored(s));
    if (s->n > b->query->after_n ||
        (is_tie && !is_hash && bytes_compare(breakdown_stored(s), buf_bytes(&b->after)) <= 0))
        pass(b, s);
    else
        select_tie(b, s);
}

/* Visits the next sums. Returns false if sums remain, or when the rows are full. */
static bool visit_sums(struct breakdown *b, void (*visit)(struct breakdown *, const struct breakdown_sum *))
{
    size_t left = SLOTS_A_CALL;
    for (; b->table < BREAKDOWN_TABLES; b->table++, b->slot = 0) {
        struct breakdown_table *t = &b->tables[b->table];
        for (; b->slot < t->size; b->slot++, left--) {
            if (left == 0 || b->n_rows == rows_room(b))
                return false;
            if (t->sums[b->slot].is_used)
                visit(b, &t->sums[b->slot]);
        }
    }
    return true;
}

static bool free_some_tables(struct breakdown *b)
{
    for (size_t n = 0; n < TABLES_A_CALL && b->freed < BREAKDOWN_TABLES; n++)
        free_table(b, &b->tables[b->freed++]);
    return b->freed == BREAKDOWN_TABLES;
}

/* Sets by_stored of the rows with this count. */
static void order_by_stored(struct breakdown *b, int64_t n)
{
    for (size_t i = b->kept; i < b->n_rows; i++)
        b->rows[i].by_stored |= b->rows[i].sum.n == n;
}

/* Returns true, and removes the rows with the count of the last row, if a sum without a row has the same count and
 * an unknown text. */
static bool has_unknown_ties(struct breakdown *b)
{
    size_t above = b->n_rows;
    bool has_hash = b->left_out_hash == b->last.n;
    for (; above > 0 && b->rows[above - 1].sum.n == b->last.n; above--)
        has_hash |= component_is_hash(breakdown_stored(&b->rows[above - 1].sum));
    if (b->after_by_stored)
        order_by_stored(b, b->query->after_n);
    if (!b->last.is_used || b->left_out != b->last.n || (above < b->n_rows && b->rows[above].by_stored))
        return false;
    if (b->n_rows - above + b->n_left_out > breakdown_ties_max)
        order_by_stored(b, b->last.n);
    else if (has_hash)
        b->n_rows = above;
    return b->n_rows == above;
}

static int compare_stored(const void *a, const void *b)
{
    const struct breakdown_row *x = a, *y = b;
    return bytes_compare(breakdown_stored(&x->sum), breakdown_stored(&y->sum));
}

static void note_over(struct breakdown *b)
{
    if (query_may_have_other(b->query))
        b->over.counter = count_of(b, BYTES_LITERAL(COMPONENT_OTHER));
}

static void begin_selection(struct breakdown *b)
{
    size_t room = rows_room(b) * sizeof *b->rows;
    b->rows = mem_alloc(room);
    b->bytes += room;
    note_over(b);
    buf_append_unhex(&b->after, b->query->after_hex);
}

/* Counts the subtotals that have the count of after=. Returns true once their number is known. If there are more than
 * breakdown_ties_max, the stage BREAKDOWN_LARGEST selects them in stored order. */
static bool size_after(struct breakdown *b)
{
    char hash[COMPONENT_HASH + 1];
    if (!visit_sums(b, count_after))
        return false;
    b->table = b->slot = 0;
    b->after_by_stored = b->n_after > breakdown_ties_max;
    b->stage = b->after_by_stored ? BREAKDOWN_LARGEST : BREAKDOWN_AFTER;
    if (b->after_by_stored) {
        struct bytes stored = component_store(buf_bytes(&b->after), hash);
        if (stored.ptr == hash) {
            buf_clear(&b->after);
            buf_append_bytes(&b->after, stored);
        }
    } else {
        b->last.n = b->query->after_n;
    }
    return true;
}

/* Ends the stage BREAKDOWN_AFTER. If rows are missing, the subtotals with lower counts follow. */
static void end_after(struct breakdown *b)
{
    b->table = b->slot = 0;
    b->last = (struct breakdown_sum){0};
    b->has_worst = false;
    b->stage = b->kept == b->query->limit ? BREAKDOWN_SELECTED : BREAKDOWN_LARGEST;
}

/* Returns true once the largest sums have rows. */
static bool select_all_largest(struct breakdown *b)
{
    if (!visit_sums(b, select_largest))
        return false;
    cut_rows(b);
    b->table = b->slot = 0;
    b->stage = has_unknown_ties(b) ? BREAKDOWN_TIES : BREAKDOWN_SELECTED;
    return true;
}

/* Selects the rows of one round (breakdown.h) with `visit`. Returns false if breakdown_select must be called again.
 * After all subtotals, sets the stage to `next`. */
static bool fill_round(struct breakdown *b, void (*visit)(struct breakdown *, const struct breakdown_sum *),
    enum breakdown_stage next)
{
    if (visit_sums(b, visit))
        b->stage = next;
    return b->stage == next || b->n_rows == rows_room(b);
}

bool breakdown_select(struct breakdown *b)
{
    if (!b->rows)
        begin_selection(b);
    if (b->stage == BREAKDOWN_AFTER_ENDED)
        end_after(b);
    if (b->stage == BREAKDOWN_AFTER_SIZE && !size_after(b))
        return false;
    if (b->stage == BREAKDOWN_AFTER && !fill_round(b, select_after, BREAKDOWN_AFTER_ENDED))
        return false;
    if (b->stage == BREAKDOWN_LARGEST && !select_all_largest(b))
        return false;
    if (b->stage == BREAKDOWN_TIES && !fill_round(b, select_tie, BREAKDOWN_SELECTED))
        return false;
    if (b->stage == BREAKDOWN_SELECTED && !free_some_tables(b))
        return false;
    qsort(b->rows + b->kept, b->n_rows - b->kept, sizeof *b->rows,
        compare_stored); /* for breakdown_add_lookup */
    return true;
}

bool breakdown_wants_text(const struct breakdown *b, size_t row)
{
    const struct breakdown_row *r = &b->rows[row];
    return !r->text && !r->is_beyond && !r->is_before && component_is_hash(breakdown_stored(&r->sum));
}

static void set_text(struct breakdown *b, struct breakdown_row *row, struct bytes text)
{
    free(row->text);
    b->bytes += text.len - row->text_len;
    row->text = bytes_dup(text);
    row->text_len = text.len;
}

/* If two sources have different texts for one hash, the breakdown keeps the smaller text (docs/formats/records.md). */
bool breakdown_add_lookup(struct breakdown *b, const struct record *r)
{
    struct record_key key;
    struct breakdown_row wanted = {.sum = {.len = COMPONENT_HASH}}, *row;
    struct buf text = {0};
    if (!record_key_parse(r->key, &key) || !key.is_lookup)
        return false;
    memcpy(wanted.sum.stored, key.key.ptr, COMPONENT_HASH);
    row = bsearch(&wanted, b->rows + b->kept, b->n_rows - b->kept, sizeof *b->rows, compare_stored);
    bool ok = row && lookup_unescape(r->value, &text) == 0;
    if (ok && b->stage <= BREAKDOWN_AFTER_ENDED)
        row->is_before |= bytes_compare(buf_bytes(&text), buf_bytes(&b->after)) <= 0;
    if (ok && !row->is_before && (!row->text || bytes_compare(breakdown_text(row), buf_bytes(&text)) > 0)) {
        row->is_beyond = b->has_worst && row->sum.n == b->last.n &&
                         bytes_compare(buf_bytes(&text), buf_bytes(&b->worst)) >= 0;
        if (!row->is_beyond)
            set_text(b, row, buf_bytes(&text));
    }
    buf_free(&text);
    return ok;
}

struct bytes breakdown_text(const struct breakdown_row *row)
{
    return row->text ? bytes_of(row->text, row->text_len) : breakdown_stored(&row->sum);
}

static int compare_rows(const void *a, const void *b)
{
    const struct breakdown_row *x = a, *y = b;
    if (x->sum.n != y->sum.n || x->by_stored)
        return compare_selected(a, b);
    return bytes_compare(breakdown_text(x), breakdown_text(y));
}

/* Removes the rows of the round that belong to an earlier or a later answer. */
static void drop_rows(struct breakdown *b)
{
    size_t n = b->kept;
    for (size_t i = b->kept; i < b->n_rows; i++) {
        if (b->rows[i].is_before) {
            pass(b, &b->rows[i].sum);
            breakdown_forget_texts(b, i, i + 1);
        } else if (!b->rows[i].is_beyond) {
            b->rows[n++] = b->rows[i];
        }
    }
    b->n_rows = n;
}

bool breakdown_order(struct breakdown *b)
{
    size_t limit = b->query->limit;
    drop_rows(b);
    if (b->n_rows > b->kept)
        qsort(b->rows, b->n_rows, sizeof *b->rows, compare_rows);
    if (b->n_rows > limit) {
        breakdown_forget_texts(b, limit, b->n_rows);
        b->n_rows = limit;
    }
    b->kept = b->n_rows;
    b->has_worst = b->n_rows == limit;
    buf_clear(&b->worst);
    if (b->has_worst)
        buf_append_bytes(&b->worst, breakdown_text(&b->rows[limit - 1]));
    b->shown = 0;
    for (size_t i = 0; i < b->n_rows; i++)
        b->shown += b->rows[i].sum.n;
    return b->stage == BREAKDOWN_SELECTED;
}

bool breakdown_has_more(const struct breakdown *b)
{
    return !b->query->by_minute && b->distinct > b->n_before + b->n_rows;
}

void breakdown_take_events(struct breakdown *b, struct breakdown *events)
{
    for (size_t i = 0; i < b->n_rows; i++)
        b->rows[i].events = count_of(events, breakdown_stored(&b->rows[i].sum));
    note_over(events);
    b->events = events;
}

void breakdown_take_earlier(struct breakdown *b, struct breakdown *earlier)
{
    for (size_t i = 0; i < b->n_rows; i++)
        b->rows[i].earlier = count_of(earlier, breakdown_stored(&b->rows[i].sum));
    note_over(earlier);
    b->earlier = earlier;
}
