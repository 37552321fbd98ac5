/* Keys that are chosen to collide are spread by the seed. */
#include "support/cm.h"
#include "support/colliding.h"

#include "base/text_hash.h"
#include <uthash.h>

struct entry {
    UT_hash_handle hh;
    char key[COLLIDING_LEN];
};

static struct entry entries[COLLIDING_KEYS];

static int make_keys(void **state)
{
    (void)state;
    uint64_t at = 0;
    for (size_t i = 0; i < COLLIDING_KEYS; i++)
        colliding_key_next(&at, entries[i].key);
    return 0;
}

static void test_the_keys_collide_without_a_seed(void **state)
{
    (void)state;
    for (size_t i = 0; i < COLLIDING_KEYS; i++) {
        assert_int_equal((uint32_t)XXH3_64bits(entries[i].key, COLLIDING_LEN), 0x5eed);
        assert_true(i == 0 || memcmp(entries[i].key, entries[i - 1].key, COLLIDING_LEN) != 0);
    }
}

static void test_the_seed_spreads_them(void **state)
{
    (void)state;
    struct entry *table = NULL;
    unsigned longest = 0;
    assert_true(text_hash_seed() != 0);
    for (size_t i = 0; i < COLLIDING_KEYS; i++)
        HASH_ADD(hh, table, key, COLLIDING_LEN, &entries[i]);
    for (unsigned i = 0; i < table->hh.tbl->num_buckets; i++)
        if (table->hh.tbl->buckets[i].count > longest)
            longest = table->hh.tbl->buckets[i].count;
    HASH_CLEAR(hh, table);
    assert_in_range(longest, 1, 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_keys_collide_without_a_seed),
        cmocka_unit_test(test_the_seed_spreads_them),
    };
    return cmocka_run_group_tests(tests, make_keys, NULL);
}
