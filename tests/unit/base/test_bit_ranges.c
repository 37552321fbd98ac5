#include "support/cm.h"
#include "base/bit_ranges.h"
#include <stdio.h>

static void test_ranges_are_read_and_written(void **state)
{
    static const struct {
        const char *text, *written;
        uint64_t set;
    } rows[] = {{"", "", 0}, {"0", "0", 1}, {"0-63", "0-63", UINT64_MAX}, {"63", "63", UINT64_C(1) << 63},
        {"2-3, 0 5", "0,2-3,5", 0x2d}, {"1-4 3-6", "1-6", 0x7e},
        {"62,0-1,63", "0-1,62-63", UINT64_C(0xc000000000000003)}};
    char out[BIT_RANGES_TEXT];
    struct bytes bad;
    uint64_t set;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_true(bit_ranges_read(rows[i].text, &set, &bad));
        assert_true(set == rows[i].set);
        assert_string_equal(bit_ranges_write(set, out), rows[i].written);
    }
    assert_string_equal(bit_ranges_write(UINT64_C(0x5555555555555555), out),
        "0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,30,32,34,36,38,40,42,44,46,48,50,52,54,56,58,60,62");
}

static void test_a_wrong_word_is_named(void **state)
{
    static const char *const words[] = {"64", "3-2", "-1", "1-", "a", "1-64", "1--2", "0x1"};
    struct bytes bad;
    uint64_t set;
    char text[32];
    (void)state;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        snprintf(text, sizeof text, "5 %s,6", words[i]);
        assert_false(bit_ranges_read(text, &set, &bad));
        assert_true(bytes_equal_str(bad, words[i]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges_are_read_and_written), cmocka_unit_test(test_a_wrong_word_is_named)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
