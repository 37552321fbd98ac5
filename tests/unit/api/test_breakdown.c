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
    breakdown_order(b);
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
    assert_false(add(&b, "a:0"));
    assert_false(add(&b, "thirteenbytes:1"));
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

/* The full text of the i-th key, and its stored form. */
static struct bytes text_of(unsigned i, struct buf *text, char hash[COMPONENT_HASH + 1])
{
    buf_clear(text);
    buf_printf(text, "http://example.com/%08x", i * 2654435761u);
    component_hash(buf_bytes(text), hash);
    return buf_bytes(text);
}

static int compare_keys(const void *a, const void *b)
{
    return memcmp(*(const char *const *)a, *(const char *const *)b, COMPONENT_HASH);
}

/* Looks up every row that wants its text, as an archive would. */
static void look_up(struct breakdown *b, char **by_hash, size_t n)
{
    for (size_t i = 0; i < b->n_rows; i++) {
        assert_true(breakdown_wants_text(b, i));
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

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(char *const *)a + COMPONENT_HASH, *(char *const *)b + COMPONENT_HASH);
}

/* Of many ties, those with the lowest hashes are rows, and the rows are in the order of their texts. */
static void test_hashed_ties(void **state)
{
    (void)state;
    enum { KEYS = 60000, LIMIT = 20, WINNERS = 7 };
    static char *by_hash[KEYS], *ties[KEYS];
    struct query q = query;
    struct breakdown b;
    struct buf text = {0}, value = {0};
    char hash[COMPONENT_HASH + 1];
    q.limit = LIMIT;
    breakdown_init(&b, &q);
    for (unsigned i = 0; i < KEYS; i++) {
        struct bytes t = text_of(i, &text, hash);
        ties[i] = by_hash[i] = mem_zalloc(COMPONENT_HASH + t.len + 1);
        memcpy(by_hash[i], hash, COMPONENT_HASH);
        memcpy(by_hash[i] + COMPONENT_HASH, t.ptr, t.len);
        buf_printf(&value, "%s%s:%d", i ? " " : "", hash, i >= KEYS - WINNERS ? 9 : 2);
    }
    buf_append_char(&value, '\0');
    assert_true(add(&b, value.ptr));
    qsort(by_hash, KEYS, sizeof *by_hash, compare_keys);
    while (!breakdown_select(&b))
        ;
    assert_in_range(b.bytes, 1, (LIMIT + 5000) * sizeof *b.rows);
    look_up(&b, by_hash, KEYS);
    breakdown_order(&b);
    assert_int_equal(b.n_rows, LIMIT);
    qsort(ties, KEYS - WINNERS, sizeof *ties, compare_keys);
    qsort(ties, LIMIT - WINNERS, sizeof *ties, compare_texts);
    for (size_t i = WINNERS; i < LIMIT; i++) {
        assert_int_equal(b.rows[i].sum.n, 2);
        assert_true(bytes_equal_str(breakdown_text(&b.rows[i]), ties[i - WINNERS] + COMPONENT_HASH));
    }
    assert_false(breakdown_add_lookup(&b, &(struct record){BYTES_LITERAL("u|k"), BYTES_LITERAL("x")}));
    for (unsigned i = 0; i < KEYS; i++)
        free(by_hash[i]);
    buf_free(&text);
    buf_free(&value);
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
        cmocka_unit_test(test_a_million_subtotals),
        cmocka_unit_test(test_hashed_ties),
        cmocka_unit_test(test_keys_that_collide_without_a_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
