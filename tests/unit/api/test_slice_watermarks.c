/* Up to which time an archive alone is complete. */
#include "support/cm.h"

#include "api/slice_watermarks.h"

static void an_archive_is_complete_until_the_last_watermark_of_a_slice_that_it_includes(void **state)
{
    (void)state;
    struct slice_watermarks w = {0};
    assert_int_equal(slice_watermarks_until(&w, 9), 0);
    slice_watermarks_note(&w, 4, 100);
    slice_watermarks_note(&w, 4, 120);
    slice_watermarks_note(&w, 6, 150);
    assert_int_equal(slice_watermarks_until(&w, 3), 0);
    assert_int_equal(slice_watermarks_until(&w, 4), 120);
    assert_int_equal(slice_watermarks_until(&w, 5), 120);
    assert_int_equal(slice_watermarks_until(&w, 6), 150);
    slice_watermarks_note(&w, 6, 140); /* the clock was set back */
    assert_int_equal(slice_watermarks_until(&w, 7), 140);
}

static void an_earlier_slice_belongs_to_other_data(void **state)
{
    (void)state;
    struct slice_watermarks w = {0};
    slice_watermarks_note(&w, 8, 100);
    slice_watermarks_note(&w, 2, 30);
    assert_int_equal(slice_watermarks_until(&w, 8), 30);
    assert_int_equal(slice_watermarks_until(&w, 1), 0);
}

static void the_earliest_slices_are_forgotten(void **state)
{
    (void)state;
    struct slice_watermarks w = {0};
    for (int i = 1; i <= SLICE_WATERMARKS_MAX + 3; i++)
        slice_watermarks_note(&w, (uint64_t)i, 10 * i);
    assert_int_equal(w.n, SLICE_WATERMARKS_MAX);
    assert_int_equal(slice_watermarks_until(&w, 3), 0);
    assert_int_equal(slice_watermarks_until(&w, 4), 40);
    assert_int_equal(slice_watermarks_until(&w, 99), 10 * (SLICE_WATERMARKS_MAX + 3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_archive_is_complete_until_the_last_watermark_of_a_slice_that_it_includes),
        cmocka_unit_test(an_earlier_slice_belongs_to_other_data),
        cmocka_unit_test(the_earliest_slices_are_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
