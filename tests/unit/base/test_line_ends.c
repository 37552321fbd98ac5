#include "support/cm.h"
#include "base/line_ends.h"
#include <stdlib.h>

static unsigned seed = 1;

static unsigned dice(unsigned n)
{
    return (unsigned)rand_r(&seed) % n;
}

/* Lines of up to `longest` bytes, in memory that ends where they do. */
static char *make_block(size_t n, unsigned longest)
{
    char *text = malloc(n + 1);
    assert_non_null(text);
    for (size_t i = 0; i < n; i++)
        text[i] = dice(longest) == 0 ? '\n' : (char)('\n' + 1 + (int)dice(3) * 127);
    return realloc(text, n > 0 ? n : 1);
}

static void check_block(size_t n, unsigned longest)
{
    static uint16_t ends[LINE_ENDS_BLOCK_MAX];
    char *text = make_block(n, longest);
    size_t found = line_ends_find(bytes_of(text, n), ends), expected = 0;
    assert_non_null(text);
    for (size_t i = 0; i < n; i++)
        if (text[i] == '\n') {
            assert_true(expected < found);
            assert_int_equal(ends[expected++], i);
        }
    assert_int_equal(found, expected);
    assert_int_equal(bytes_count_lines(bytes_of(text, n)), expected);
    free(text);
}

static void test_it_finds_each_end(void **state)
{
    static const unsigned longest[] = {1, 2, 10, 64, 100, 500, 100000};
    (void)state;
    for (size_t i = 0; i < sizeof longest / sizeof *longest; i++) {
        for (size_t n = 0; n < 200; n++)
            check_block(n, longest[i]);
        for (int round = 0; round < 50; round++)
            check_block(dice(LINE_ENDS_BLOCK_MAX + 1), longest[i]);
        check_block(LINE_ENDS_BLOCK_MAX, longest[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_it_finds_each_end)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
