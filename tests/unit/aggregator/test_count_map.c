/* count_map against a sorted array of the same rows. */
#include "support/cm.h"

#include "aggregator/count_map.h"

#include <stdio.h>
#include <stdlib.h>

#define KEYS 3000

struct model {
    char key[40];
    uint64_t count;
};

static int by_key(const void *a, const void *b)
{
    const struct model *x = a, *y = b;
    return bytes_compare(bytes_str(x->key), bytes_str(y->key));
}

/* Keys whose order as text and as components differ, and many plain ones. */
static void make_key(char out[40], int i)
{
    static const char *const parts[] = {
        "a", "a!x", "a-", "a+", "a.b", "h0aMB8AuNw4=", "ab", "", "\xff", "None"};
    snprintf(out, 40, "%s|%s%d,c%d", i % 3 ? "u" : "c.u", parts[i % 10], i / 100, i);
}

static struct count_map *fill(struct model *models)
{
    struct count_map *m = count_map_new();
    for (int i = 0; i < KEYS; i++)
        make_key(models[i].key, i);
    for (int i = 0; i < KEYS * 10; i++) {
        struct model *one = &models[random() % KEYS];
        count_map_add(m, bytes_str(one->key), 3);
        one->count += 3;
    }
    for (int i = 0; i < KEYS; i++)
        count_map_add(m, bytes_str(models[i].key), 0);
    qsort(models, KEYS, sizeof(*models), by_key);
    return m;
}

static void walks_in_order_with_all_counts(void **state)
{
    (void)state;
    struct model *models = calloc(KEYS, sizeof(*models));
    struct count_map *m = fill(models);
    struct row row;
    assert_int_equal(count_map_rows(m), KEYS);
    for (int from = 0; from < KEYS; from += 97) {
        struct count_cursor c = count_map_seek(m, bytes_str(models[from].key));
        for (int i = from; i < KEYS; i++) {
            assert_true(count_cursor_next(&c, &row));
            assert_true(bytes_equal_str(row.key, models[i].key));
            assert_int_equal(row.count, models[i].count);
        }
        assert_false(count_cursor_next(&c, &row));
    }
    count_map_free(&m);
    assert_null(m);
    free(models);
}

static void seeks_between_keys(void **state)
{
    (void)state;
    struct count_map *m = count_map_new();
    struct row row;
    count_map_add(m, BYTES_LITERAL("a!x,1"), 1);
    count_map_add(m, BYTES_LITERAL("a,1"), 2);
    struct count_cursor c = count_map_seek(m, BYTES_LITERAL("a,"));
    assert_true(count_cursor_next(&c, &row));
    assert_int_equal(row.count, 2);
    c = count_map_seek(m, BYTES_LITERAL("b"));
    assert_false(count_cursor_next(&c, &row));
    count_map_free(&m);
}

static void the_smaller_text_stays(void **state)
{
    (void)state;
    struct count_map *m = count_map_new();
    struct row row;
    struct bytes key = BYTES_LITERAL("lookup|x,");
    assert_true(count_map_put_text(m, key, BYTES_LITERAL("one")));
    assert_true(count_map_put_text(m, key, BYTES_LITERAL("one")));
    assert_false(count_map_put_text(m, key, BYTES_LITERAL("two")));
    assert_false(count_map_put_text(m, key, BYTES_LITERAL("a\0b")));
    struct count_cursor c = count_map_seek(m, BYTES_NONE);
    assert_true(count_cursor_next(&c, &row));
    assert_true(row.is_text && bytes_equal(row.text, BYTES_LITERAL("a\0b")));
    count_map_free(&m);
}

static void memory_is_told(void **state)
{
    (void)state;
    struct count_map *m = count_map_new();
    size_t before = count_map_bytes(m);
    char *large = calloc(1, 1 << 20);
    count_map_put_text(m, BYTES_LITERAL("k,"), bytes_of(large, 1 << 20));
    assert_true(count_map_bytes(m) >= before + (1 << 20));
    free(large);
    count_map_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(walks_in_order_with_all_counts),
        cmocka_unit_test(seeks_between_keys),
        cmocka_unit_test(the_smaller_text_stays),
        cmocka_unit_test(memory_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
