#include "support/cm.h"

#include "base/error.h"

#include <errno.h>
#include <string.h>

static void test_sets_code_and_text_and_keeps_errno(void **state)
{
    struct error e;
    (void)state;
    errno = ENOSPC;
    assert_int_equal(error_set(&e, 7, "%s: %d", "a.db", 3), 7);
    assert_int_equal(e.code, 7);
    assert_string_equal(e.text, "a.db: 3");
    assert_int_equal(errno, ENOSPC);
    assert_int_equal(error_set(NULL, 7, "unread"), 7);
}

static void test_the_arguments_may_contain_the_text(void **state)
{
    struct error e;
    (void)state;
    error_set(&e, 1, "no such file");
    assert_int_equal(error_set(&e, 2, "cannot read %s: %s; %s again", "a.db", e.text, "run"), 2);
    assert_string_equal(e.text, "cannot read a.db: no such file; run again");
}

static void test_names_a_path_and_the_reason(void **state)
{
    struct error e;
    char path[2 * ERROR_TEXT];
    (void)state;
    errno = ENOSPC;
    assert_int_equal(error_errno(&e, 7, "a.db"), 7);
    assert_int_equal(e.code, 7);
    assert_string_equal(e.text, "a.db: No space left on device");
    assert_int_equal(errno, ENOSPC);
    memset(path, 'x', sizeof path);
    path[sizeof path - 1] = '\0';
    error_errno(&e, 7, path);
    assert_non_null(strstr(e.text, "xxx: No space left on device"));
}

static void test_cuts_a_long_text(void **state)
{
    struct error e;
    (void)state;
    error_set(&e, 1, "%*s", 2 * ERROR_TEXT, "end");
    assert_int_equal(strlen(e.text), ERROR_TEXT - 1);
    error_set(&e, 1, "%s%s", "x", e.text);
    assert_int_equal(strlen(e.text), ERROR_TEXT - 1);
    assert_int_equal(e.text[0], 'x');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sets_code_and_text_and_keeps_errno),
        cmocka_unit_test(test_the_arguments_may_contain_the_text),
        cmocka_unit_test(test_names_a_path_and_the_reason),
        cmocka_unit_test(test_cuts_a_long_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
