/* id_list: what texts name, and what they do not. */
#include "support/cm.h"

#include "simplequeue/queue/id_list.h"

#include <stdlib.h>

static void lists_are_sorted_and_joined(void **state)
{
    static const struct {
        const char *text;
        size_t n;
        struct id_range at[3];
    } rows[] = {
        {"7", 1, {{7, 7}}},
        {"7-9\n", 1, {{7, 9}}},
        {"7-9\r\n", 1, {{7, 9}}},
        {"9,7", 2, {{7, 7}, {9, 9}}},
        {"9,7,8", 1, {{7, 9}}},
        {"5-10,1-6,20", 2, {{1, 10}, {20, 20}}},
        {"1-10,3-4,9-9", 1, {{1, 10}}},
        {"1,18446744073709551615,18446744073709551615,2", 2, {{1, 2}, {UINT64_MAX, UINT64_MAX}}},
        {"0-18446744073709551615,4", 1, {{0, UINT64_MAX}}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct id_range *at;
        size_t n;
        assert_true(id_list_parse(bytes_str(rows[i].text), &at, &n));
        assert_int_equal(n, rows[i].n);
        assert_memory_equal(at, rows[i].at, n * sizeof *at);
        free(at);
    }
}

static void no_lists(void **state)
{
    static const char *const texts[] = {
        "",
        "\n",
        ",",
        "1,",
        ",1",
        "1,,2",
        "-",
        "1-",
        "-1",
        "2-1",
        "1-2-3",
        "x",
        "1 ",
        " 1",
        "1\n2",
        "1\n\n",
        "0x1",
        "18446744073709551616",
    };
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct id_range *at;
        size_t n;
        assert_false(id_list_parse(bytes_str(texts[i]), &at, &n));
        assert_null(at);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_are_sorted_and_joined),
        cmocka_unit_test(no_lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
