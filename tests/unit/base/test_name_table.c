#include "support/cm.h"
#include "base/bytes.h"
#include "base/name_table.h"
#include <stdio.h>
#include <stdlib.h>

#define N 300

static void test_finds_and_walks_in_order(void **state)
{
    struct name_table t = {0};
    static char names[N][8];
    (void)state;
    assert_null(name_table_find(&t, "a"));
    for (unsigned i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "%u", i * 7 % N);
        assert_null(name_table_find(&t, names[i]));
        name_table_add(&t, names[i], names[i]);
    }
    assert_int_equal(t.n, N);
    for (unsigned i = 0; i < N; i++)
        assert_ptr_equal(name_table_find(&t, names[i]), names[i]);
    for (size_t i = 1; i < t.n; i++)
        assert_true(strcmp(name_table_at(&t, i - 1), name_table_at(&t, i)) < 0);
    assert_null(name_table_find(&t, ""));
    assert_null(name_table_find(&t, "99999"));
    name_table_free(&t);
    assert_int_equal(t.n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_finds_and_walks_in_order)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
