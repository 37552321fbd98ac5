/* Breakdowns of many subtotals: exact, in steps, and not to be slowed down by chosen keys. */
#include "support/cm.h"
#include "support/colliding.h"

#include "api/breakdown.h"
#include <stdio.h>

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
    while (breakdown_gather(b))
        breakdown_keep_largest(b);
}

static void assert_row(const struct breakdown *b, size_t i, const char *text, uint64_t n)
{
    assert_true(i < b->n_rows);
    assert_true(bytes_equal_str(breakdown_text(&b->rows[i]), text));
    assert_int_equal(b->rows[i].sum.n, n);
}

static void test_largest_first_and_ties_by_text(void **state)
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
    assert_false(add(&b, ":1"));
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
            run = b.tables[i].sums[k].len ? run + 1 : 0;
            longest = run > longest ? run : longest;
        }
    assert_in_range(longest, 1, 200);
    buf_free(&value);
    breakdown_reset(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_largest_first_and_ties_by_text),
        cmocka_unit_test(test_a_million_subtotals),
        cmocka_unit_test(test_keys_that_collide_without_a_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
