#include "support/cm.h"
#include "base/suggest.h"
#include <string.h>

static const char *nearest(const char *name)
{
    static const char *const known[] = {"max_depth", "max_bytes", "ab", "unit", "units"};
    struct suggest s = suggest_for(name);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        suggest_try(&s, known[i]);
    return s.nearest;
}

static void test_slips(void **state)
{
    (void)state;
    assert_string_equal(nearest("max_dpth"), "max_depth");
    assert_string_equal(nearest("max_deptth"), "max_depth");
    assert_string_equal(nearest("maxbytes"), "max_bytes");
    assert_string_equal(nearest("unti"), "unit");
    assert_string_equal(nearest("unitss"), "units");
    assert_string_equal(nearest("MAX_DEPTH"), "max_depth");
    assert_string_equal(nearest("MaxBytes"), "max_bytes");
    assert_string_equal(nearest("AB"), "ab");
}

static void test_what_is_not_near(void **state)
{
    (void)state;
    assert_null(nearest("max_sessions"));
    assert_null(nearest(""));
    assert_null(nearest("cd"));
    assert_string_equal(nearest("a"), "ab");
}

/* A name from the network may be of any length. */
static void test_long_names(void **state)
{
    static char name[5000];
    (void)state;
    memset(name, 'a', sizeof name - 1);
    assert_null(nearest(name));
    struct suggest s = suggest_for("x");
    suggest_try(&s, name);
    assert_null(s.nearest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_slips), cmocka_unit_test(test_what_is_not_near),
        cmocka_unit_test(test_long_names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
