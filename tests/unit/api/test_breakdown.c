/* Breakdowns of many subtotals: exact, in steps, and not to be slowed down by chosen keys. */
#include "support/cm.h"
#include "support/colliding.h"

#include "api/breakdown.h"
#include <stdio.h>
#include <stdlib.h>

static const struct counter sub = {.ns = "c.u"};
static struct query query = {.kind = QUERY_BREAKDOWN, .sub = &sub, .from = 0, .to = HOUR_END, .limit = 3};

static bool add(struct breakdown *b, const char *value)
{
    return breakdown_add(b, &(struct record){bytes_str("c.u|k.c3p1"), bytes_str(value)});
}

static void rows(struct breakdown *b)
{
    while (!breakdown_select(b))
        ;
    assert_true(breakdown_order(b));
}

static void assert_row(const struct breakdown *b, size_t i, const char *text, uint64_t n)
{
    assert_true(i < b->n_rows);
    assert_true(bytes_equal_str(breakdown_text(&b->rows[i]), text));
    assert_int_equal(b->rows[i].sum.n, n);
}

static void test_largest_first(void **state)
{
    (void)state;
    struct breakdown b;
    breakdown_init(&b, &query);
    assert_true(add(&b, "a:1 b:5 c:2 d:2 e:2"));
    assert_true(add(&b, "b:1 f:2"));
    rows(&b);
    assert_int_equal(b.n_rows, 3);
    assert_row(&b, 0, "b", 6);
    assert_row(&b, 1, "c", 2);
    assert_row(&b, 2, "d", 2);
    assert_int_equal(b.distinct, 6);
    assert_int_equal(b.total - b.shown, 5);
    breakdown_reset(&b);
    assert_int_equal(b.bytes, 0);
    assert_true(add(&b, ":1 a:1")); /* an import may have an empty sub key */
    rows(&b);
    assert_row(&b, 0, "", 1);
    breakdown_reset(&b);
    assert_true(add(&b, "a:-3 b:0 c:-9 d:7 e:-1")); /* values */
    assert_true(add(&b, "d:-7 e:1"));
    rows(&b);
    assert_int_equal(b.n_rows, 3);
    assert_row(&b, 0, "b", 0);
    assert_row(&b, 1, "d", 0);
    assert_row(&b, 2, "e", 0);
    assert_int_equal(b.distinct, 5);
    assert_int_equal(b.total, -12);
    assert_int_equal(b.total - b.shown, -12);
    breakdown_reset(&b);
    assert_true(add(&b, "a:9223372036854775807"));
    assert_false(b.is_too_large);
    assert_true(add(&b, "a:1"));
    assert_true(b.is_too_large);
    breakdown_reset(&b);
    assert_false(add(&b, "thirteenbytes:1"));
    breakdown_reset(&b);
}

static void test_further_counts_of_the_rows(void **state)
{
    (void)state;
    struct breakdown b, further;
    breakdown_init(&b, &query);
    assert_true(add(&b, "a:1 b:5 c:2 d:2"));
    rows(&b);
    breakdown_init(&further, &query);
    breakdown_follow(&further, &b);
    for (int i = 0; i < 2; i++) { /* the question starts again */
        breakdown_reset(&further);
        assert_true(add(&further, "a:4 b:7 x:1 " COMPONENT_OTHER ":2"));
        assert_true(add(&further, "b:-1 d:3"));
        assert_int_equal(further.distinct, 4);
        breakdown_take_earlier(&b, &further);
        assert_int_equal(b.rows[0].earlier, 6);
        assert_int_equal(b.rows[1].earlier, 0);
        assert_int_equal(b.rows[2].earlier, 3);
        assert_int_equal(further.total, 16);
        assert_int_equal(further.over.counter, 2);
    }
    breakdown_reset(&further);
    breakdown_reset(&b);
}

static void test_a_million_subtotals(void **state)
{
    (void)state;
    enum { MILLION = 1000000 };
    struct breakdown b;
    struct buf value = {0};
    breakdown_init(&b, &query);
    for (unsigned i = 0; i < MILLION; i++) {
        buf_printf(&value, "%s%x:%u", value.len ? " " : "", i * 2654435761u, i < 2 ? 7 - i : 1);
        if (value.len > 60000 || i == MILLION - 1) {
            buf_append_char(&value, '\0');
            assert_true(add(&b, value.ptr));
            buf_clear(&value);
        }
    }
    assert_int_equal(b.distinct, MILLION);
    assert_in_range(b.bytes, MILLION * sizeof *b.tables->sums, MILLION * sizeof *b.tables->sums * 3);
    rows(&b);
    assert_row(&b, 0, "0", 7);
    assert_row(&b, 1, "9e3779b1", 6);
    assert_row(&b, 2, "10000317", 1); /* the least text of those with the count 1 */
    assert_int_equal(b.total, MILLION + 6 + 5);
    assert_int_equal(b.shown, 7 + 6 + 1);
    buf_free(&value);
    breakdown_reset(&b);
}

static int compare_keys(const void *a, const void *b)
{
    return memcmp(*(const char *const *)a, *(const char *const *)b, COMPONENT_HASH);
}

/* Looks up every row that wants its text, as an archive would. */
static void look_up(struct breakdown *b, char **by_hash, size_t n)
{
    for (size_t i = 0; i < b->n_rows; i++) {
        if (!breakdown_wants_text(b, i))
            continue;
        const char *stored = b->rows[i].sum.stored;
        char **found = bsearch(&stored, by_hash, n, sizeof *by_hash, compare_keys);
        struct buf key = {0};
        assert_non_null(found);
        buf_printf(&key, "lookup|%.*s", COMPONENT_HASH, stored);
        struct record r = {buf_bytes(&key), bytes_str(*found + COMPONENT_HASH)};
        assert_true(breakdown_add_lookup(b, &r));
        assert_false(breakdown_wants_text(b, i));
        buf_free(&key);
    }
}

/* Returns the number of rounds. */
static size_t all_rounds(struct breakdown *b, char **by_hash, size_t n)
{
    for (size_t rounds = 1;; rounds++) {
        while (!breakdown_select(b))
            ;
        look_up(b, by_hash, n);
        if (breakdown_order(b))
            return rounds;
    }
}

struct model_row {
    unsigned n;
    char text[32], stored[COMPONENT_HASH + 1];
    bool by_stored;
};

static int compare_model(const void *a, const void *b)
{
    const struct model_row *x = a, *y = b;
    if (x->n != y->n)
        return x->n < y->n ? 1 : -1;
    return x->by_stored ? strcmp(x->stored, y->stored) : strcmp(x->text, y->text);
}

struct model {
    struct model_row *rows;
    char **by_hash; /* a hash, and its text */
    size_t n_hashes, n;
    struct buf value;
};

static void model_add(struct model *m, const char *text, unsigned n)
{
    char hash[COMPONENT_HASH + 1];
    struct bytes stored = component_store(bytes_str(text), hash);
    struct model_row *row = &m->rows[m->n++];
    row->n = n;
    snprintf(row->text, sizeof row->text, "%s", text);
    snprintf(row->stored, sizeof row->stored, "%.*s", (int)stored.len, stored.ptr);
    buf_printf(&m->value, "%s%.*s:%u", m->n > 1 ? " " : "", (int)stored.len, stored.ptr, n);
    if (!component_is_hash(stored))
        return;
    char *kept = m->by_hash[m->n_hashes++] = mem_zalloc(COMPONENT_HASH + strlen(text) + 1);
    memcpy(kept, hash, COMPONENT_HASH);
    memcpy(kept + COMPONENT_HASH, text, strlen(text));
}

static struct model model_new(size_t n)
{
    return (struct model){
        .rows = mem_zalloc(n * sizeof(struct model_row)), .by_hash = mem_zalloc(n * sizeof(char *))};
}

static void model_sort(struct model *m)
{
    buf_append_char(&m->value, '\0');
    for (size_t i = 0; i < m->n; i++) {
        size_t ties = 0;
        for (size_t k = 0; breakdown_ties_max < m->n && k < m->n; k++)
            ties += m->rows[k].n == m->rows[i].n;
        m->rows[i].by_stored = ties > breakdown_ties_max;
    }
    qsort(m->rows, m->n, sizeof *m->rows, compare_model);
    qsort(m->by_hash, m->n_hashes, sizeof *m->by_hash, compare_keys);
}

static void model_free(struct model *m)
{
    for (size_t i = 0; i < m->n_hashes; i++)
        free(m->by_hash[i]);
    free(m->by_hash);
    free(m->rows);
    buf_free(&m->value);
}

/* The breakdown's rows are the rows of the model from `at` on, after the row before. Returns the number of rounds. */
static size_t assert_page(struct model *m, size_t at, size_t limit)
{
    struct query q = query;
    struct breakdown b;
    struct buf after = {0};
    int64_t before = 0;
    q.limit = limit;
    if (at > 0) {
        buf_append_hex(&after, bytes_str(m->rows[at - 1].text));
        q.has_after = true;
        q.after_n = m->rows[at - 1].n;
        q.after_hex = buf_bytes(&after);
    }
    for (size_t i = 0; i < at; i++)
        before += m->rows[i].n;
    breakdown_init(&b, &q);
    assert_true(add(&b, m->value.ptr));
    size_t rounds = all_rounds(&b, m->by_hash, m->n_hashes), texts = 0;
    assert_int_equal(b.n_rows, limit < m->n - at ? limit : m->n - at);
    assert_int_equal(b.n_before, at);
    assert_int_equal(b.before, before);
    assert_int_equal(breakdown_has_more(&b), at + limit < m->n);
    for (size_t i = 0; i < b.n_rows; i++) {
        assert_row(&b, i, m->rows[at + i].text, m->rows[at + i].n);
        texts += b.rows[i].text_len;
    }
    assert_int_equal(b.bytes, (limit + limit / 4 + 4096) * sizeof *b.rows + texts); /* the sums are freed */
    breakdown_reset(&b);
    assert_int_equal(b.bytes, 0);
    buf_free(&after);
    return rounds;
}

static size_t assert_model(struct model *m, size_t limit)
{
    return assert_page(m, 0, limit);
}

/* Of many ties, those with the lowest texts are rows, though the lookups take many rounds. */
static void test_hashed_ties(void **state)
{
    (void)state;
    enum { KEYS = 60000, LIMIT = 20, WINNERS = 7 };
    struct model m = model_new(KEYS);
    char text[32];
    for (unsigned i = 0; i < KEYS; i++) {
        snprintf(text, sizeof text, i % 3 ? "http://example.com/%08x" : "p%08x", i * 2654435761u);
        model_add(&m, text, i >= KEYS - WINNERS ? 9 : 2);
    }
    model_sort(&m);
    assert_in_range(assert_model(&m, LIMIT), 40000 / 4096, 40000 / 4096 + 2);
    assert_int_equal(assert_model(&m, WINNERS), 1);
    assert_int_equal(assert_model(&m, KEYS), 1);
    for (size_t at = 1; at < KEYS; at += 6000)
        assert_in_range(assert_page(&m, at, LIMIT), 40000 / 4096, 40000 / 4096 + 3);
    assert_page(&m, WINNERS, LIMIT);
    assert_page(&m, KEYS - LIMIT, LIMIT);
    assert_page(&m, KEYS, LIMIT);
    model_free(&m);
}

/* Random counts, plain keys and hashes: every limit has the first rows of the model, and then all further rows. */
static void test_every_limit(void **state)
{
    (void)state;
    enum { KEYS = 60 };
    for (unsigned seed = 0; seed < 40; seed++) {
        struct model m = model_new(KEYS);
        char text[32];
        srandom(seed);
        unsigned counts = 1 + (unsigned)random() % 5, hashes = (unsigned)random() % 5;
        for (unsigned i = 0; i < KEYS; i++) {
            bool is_hash = (unsigned)random() % 4 < hashes;
            snprintf(text, sizeof text, is_hash ? "%c, longer than a plain key %u" : "%c%u",
                'a' + (int)(random() % 26), i);
            model_add(&m, text, 1 + (unsigned)random() % counts);
        }
        model_sort(&m);
        for (size_t limit = 1; limit <= KEYS + 1; limit++)
            for (size_t at = 0; at < KEYS; at += limit)
                assert_page(&m, at, limit);
        model_free(&m);
    }
}

/* Of too many equal counts, the stored form decides. Pages join to the whole, and one round has all rows. */
static void test_too_many_ties(void **state)
{
    (void)state;
    enum { KEYS = 120, TIES = 20 };
    size_t usual = breakdown_ties_max;
    breakdown_ties_max = TIES;
    for (unsigned seed = 0; seed < 8; seed++) {
        struct model m = model_new(KEYS);
        char text[32];
        srandom(seed);
        unsigned counts = 1 + seed % 8;
        bool is_large = true;
        for (unsigned i = 0; i < KEYS; i++) {
            snprintf(text, sizeof text, i % 4 ? "%c, longer than a plain key %u" : "%c%u",
                'a' + (int)(random() % 26), i);
            model_add(&m, text, 1 + (unsigned)random() % counts);
        }
        model_sort(&m);
        for (unsigned i = 0; i < KEYS; i++)
            is_large = is_large && m.rows[i].by_stored;
        for (size_t limit = 1; limit <= TIES; limit++)
            for (size_t at = 0; at < KEYS; at++) {
                size_t rounds = assert_page(&m, at, limit);
                if (is_large)
                    assert_int_equal(rounds, 1);
            }
        model_free(&m);
    }
    breakdown_ties_max = usual;
}

/* Only the rows of the answer are looked up, though all subtotals have the same count. */
static void test_no_lookups_of_too_many_ties(void **state)
{
    (void)state;
    enum { KEYS = 5000, LIMIT = 10 };
    size_t usual = breakdown_ties_max;
    struct model m = model_new(KEYS);
    char text[32];
    for (unsigned i = 0; i < KEYS; i++) {
        snprintf(text, sizeof text, "longer than a plain key %u", i);
        model_add(&m, text, 1);
    }
    for (size_t max = KEYS - 1; max <= KEYS; max++) { /* one too many, and not */
        struct query q = query;
        struct breakdown b;
        size_t wanted = 0;
        q.limit = LIMIT;
        breakdown_ties_max = max;
        breakdown_init(&b, &q);
        if (max < KEYS)
            model_sort(&m);
        assert_true(add(&b, m.value.ptr));
        while (!breakdown_select(&b))
            ;
        for (size_t i = 0; i < b.n_rows; i++)
            wanted += breakdown_wants_text(&b, i);
        assert_int_equal(wanted, max < KEYS ? LIMIT : 4096 + LIMIT + LIMIT / 4);
        breakdown_reset(&b);
    }
    breakdown_ties_max = usual;
    model_free(&m);
}

/* Two sources have different texts for one hash. The smaller text decides, also if the larger text is beyond the last row. */
static void test_the_smaller_text_decides(void **state)
{
    (void)state;
    static const char *const hashes[] = {"aaaaaaaaaaa=", "bbbbbbbbbbb=", "ccccccccccc="};
    struct query q = query;
    struct breakdown b;
    q.limit = 1;
    breakdown_init(&b, &q);
    struct buf value = {0};
    for (unsigned i = 0; i < 3; i++)
        buf_printf(&value, "%s:1 ", hashes[i]);
    for (unsigned i = 0; i < 6000; i++)
        buf_printf(&value, "z%u:1%s", i, i < 5999 ? " " : "");
    buf_append_char(&value, '\0');
    assert_true(add(&b, value.ptr));
    buf_free(&value);
    do {
        while (!breakdown_select(&b))
            ;
        for (size_t i = 0; i < b.n_rows; i++) {
            struct breakdown_row *row = &b.rows[i];
            char key[32];
            if (!breakdown_wants_text(&b, i))
                continue;
            snprintf(key, sizeof key, "lookup|%.*s", COMPONENT_HASH, row->sum.stored);
            const char *smaller = row->sum.stored[0] == 'b' ? "a text of two" : "zz text";
            assert_true(breakdown_add_lookup(&b, &(struct record){bytes_str(key), bytes_str("zzz text")}));
            assert_true(breakdown_add_lookup(&b, &(struct record){bytes_str(key), bytes_str(smaller)}));
            assert_true(breakdown_add_lookup(&b, &(struct record){bytes_str(key), bytes_str("zzzz text")}));
            assert_false(breakdown_wants_text(&b, i));
        }
        assert_false(breakdown_add_lookup(&b, &(struct record){BYTES_LITERAL("u|k"), BYTES_LITERAL("x")}));
    } while (!breakdown_order(&b));
    assert_int_equal(b.n_rows, 1);
    assert_row(&b, 0, "a text of two", 1);
    breakdown_reset(&b);
    assert_int_equal(b.bytes, 0);
}

static void test_keys_that_collide_without_a_seed(void **state)
{
    (void)state;
    struct breakdown b;
    struct buf value = {0};
    uint64_t at = 0;
    size_t longest = 0;
    char key[COLLIDING_LEN];
    breakdown_init(&b, &query);
    for (size_t i = 0; i < COLLIDING_KEYS; i++) {
        colliding_key_next(&at, key);
        buf_append(&value, key, sizeof key);
        buf_append_str(&value, i + 1 < COLLIDING_KEYS ? ":1 " : ":1");
    }
    assert_true(breakdown_add(&b, &(struct record){bytes_str("c.u|k.c3p1"), buf_bytes(&value)}));
    assert_int_equal(b.distinct, COLLIDING_KEYS);
    for (size_t i = 0; i < BREAKDOWN_TABLES; i++)
        for (size_t k = 0, run = 0; k < b.tables[i].size; k++) {
            run = b.tables[i].sums[k].n ? run + 1 : 0;
            longest = run > longest ? run : longest;
        }
    assert_in_range(longest, 1, 200);
    buf_free(&value);
    breakdown_reset(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_largest_first),
        cmocka_unit_test(test_further_counts_of_the_rows),
        cmocka_unit_test(test_a_million_subtotals),
        cmocka_unit_test(test_hashed_ties),
        cmocka_unit_test(test_every_limit),
        cmocka_unit_test(test_too_many_ties),
        cmocka_unit_test(test_no_lookups_of_too_many_ties),
        cmocka_unit_test(test_the_smaller_text_decides),
        cmocka_unit_test(test_keys_that_collide_without_a_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
