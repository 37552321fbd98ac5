/* counted_since: counters that are added, removed and added again over a sequence of slices. */
#include "support/cm.h"

#include "counts/counted_since.h"

#define U "total u key = l\n"
#define U_LIMITED "total u key = l\ntotal u max_keys = 5\n"
#define H "total h key = h\n"
#define C "subtotal c.u key = c\n"
#define V "unique v.u member = a by = day\n"

static int64_t of(const struct counted_since *s, const char *ns)
{
    return counted_since_of(s, bytes_str(ns));
}

static void a_counter_has_the_start_of_its_first_slice(void **state)
{
    (void)state;
    struct counted_since s = {.n = 0}, copy;
    counted_since_follow(&s, "", "input time = t\n" U, 100);
    assert_int_equal(s.n, 0);
    counted_since_follow(&s, "input time = t\n" U, "input time = t\n" C U, 200);
    assert_int_equal(of(&s, "c.u"), 200);
    assert_int_equal(of(&s, "u"), 0);
    counted_since_follow(&s, C U, C U V, 250);
    assert_int_equal(of(&s, "v.u"), 250);
    counted_since_follow(&s, C U, C H U_LIMITED, 300);
    assert_int_equal(of(&s, "c.u"), 200);
    assert_int_equal(of(&s, "h"), 300);
    assert_int_equal(of(&s, "u"), 0); /* another limit is no new counter */
    counted_since_copy(&s, &copy);
    counted_since_follow(&s, C H U, H U, 400);
    assert_int_equal(of(&s, "c.u"), 0);
    assert_int_equal(s.n, 1);
    counted_since_follow(&s, H U, C H U_LIMITED, 500); /* added again */
    assert_int_equal(of(&s, "c.u"), 500);
    assert_int_equal(of(&s, "h"), 300);
    assert_int_equal(of(&copy, "c.u"), 200);
    counted_since_free(&copy);
    counted_since_free(&s);
}

static void a_name_that_begins_like_another(void **state)
{
    (void)state;
    struct counted_since s = {.n = 0};
    counted_since_follow(&s, "total us key = l\n", "total u key = l\ntotal us key = l\n", 100);
    assert_int_equal(of(&s, "u"), 100);
    assert_int_equal(of(&s, "us"), 0);
    assert_int_equal(of(&s, ""), 0);
    counted_since_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_counter_has_the_start_of_its_first_slice),
        cmocka_unit_test(a_name_that_begins_like_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
