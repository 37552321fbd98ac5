/* A moment on the clock of another daemon. */
#include "support/cm.h"

#include "base/remote_moment.h"

#define LIFE "0123456789abcdef0123456789abcdef"

static void a_moment_is_as_far_as_the_time_since_the_reply(void **state)
{
    (void)state;
    struct remote_moment m = {0};
    char target[100] = "/pub";
    remote_moment_append(&m, 5, target, sizeof target);
    assert_string_equal(target, "/pub");
    assert_true(remote_moment_read(&m, BYTES_LITERAL(LIFE ".1000"), 70));
    remote_moment_append(&m, 75, target, sizeof target);
    assert_string_equal(target, "/pub&until_moment=" LIFE ".1005");
    target[0] = '\0';
    remote_moment_append(&m, 40, target, sizeof target);
    assert_string_equal(target, "&until_moment=" LIFE ".970");
    target[0] = '\0';
    remote_moment_append(&m, -5000, target, sizeof target);
    assert_string_equal(target, "&until_moment=" LIFE ".0");
}

static void other_texts_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"", ".", "1", LIFE, LIFE ".", LIFE "1", LIFE ".-1", LIFE ".1x",
        LIFE ".9223372036854775807", "0123456789abcdef 123456789abcdef.1"};
    struct remote_moment m = {0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(remote_moment_read(&m, bytes_str(bad[i]), 1));
    assert_string_equal(m.life, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_moment_is_as_far_as_the_time_since_the_reply),
        cmocka_unit_test(other_texts_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
