/* The notices of a daemon: which is the state, the remedy of a file that the daemon may not read, and both forms of print. */
#include "daemon/notices.h"

#include "base/io.h"
#include "support/cm.h"

#include <fcntl.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int set_up(void **state)
{
    struct notices *n = mem_zalloc(sizeof *n);
    notices_set(n, NOTICE_START, NOTICE_RECOVERING, "wait", "starting");
    *state = n;
    return 0;
}

static int tear_down(void **state)
{
    notices_free(*state);
    free(*state);
    return 0;
}

static void assert_json(const struct notices *n, const char *expected)
{
    struct buf out = {0};
    notices_print_json(n, &out);
    buf_append_char(&out, '\0');
    assert_string_equal(out.ptr, expected);
    buf_free(&out);
}

static void the_highest_state_is_that_of_the_daemon(void **state)
{
    struct notices *n = *state;
    notices_set(n, "disk", NOTICE_ALARM, "free it", "a disk");
    notices_set(n, "puts", NOTICE_REFUSING, "", "puts");
    assert_string_equal(notices_first(n)->text, "starting");
    notices_set(n, NOTICE_START, NOTICE_WARNING, "", NULL);
    assert_string_equal(notices_first(n)->text, "puts");
    assert_int_equal(notices_warnings(n), 1);
    assert_json(n,
        "{\"state\":\"refusing\",\"notices\":[{\"level\":\"down\",\"text\":\"puts\",\"remedy\":\"\"},"
        "{\"level\":\"down\",\"text\":\"a disk\",\"remedy\":\"free it\"}]}");
    notices_set(n, "puts", NOTICE_REFUSING, "", NULL);
    notices_set(n, "disk", NOTICE_WARNING, "free \"it\"", "half a disk");
    assert_json(n, "{\"state\":\"ready\",\"notices\":[{\"level\":\"needs attention\",\"text\":\"half a "
                   "disk\",\"remedy\":"
                   "\"free \\\"it\\\"\"}]}");
    notices_set(n, "disk", NOTICE_WARNING, "", NULL);
    assert_json(n, "{\"state\":\"ready\",\"notices\":[]}");
}

static void only_a_bounded_number_is_kept(void **state)
{
    struct notices *n = *state;
    struct buf out = {0};
    size_t lines = 0;
    notices_set(n, NOTICE_START, NOTICE_WARNING, "", NULL);
    for (int i = 0; i < 3 * NOTICES_UNNAMED_MAX; i++)
        notices_add(n, "mend it", "a warning");
    assert_int_equal(notices_warnings(n), 3 * NOTICES_UNNAMED_MAX);
    notices_print(n, &out);
    for (size_t i = 0; i < out.len; i++)
        lines += out.ptr[i] == '\n';
    assert_int_equal(lines, 2 * NOTICES_UNNAMED_MAX + 1);
    buf_append_char(&out, '\0');
    assert_non_null(
        strstr(out.ptr, "warning: a warning\nremedy: mend it\nwarning: there are more, see the log\n"));
    buf_free(&out);
}

static void a_denied_file_is_named_with_its_owner(void **state)
{
    static const char forms[][64] = {"cannot open the archive: %s: Permission denied",
        "shard error=\"%s: Permission denied\"",
        "reload failed: %s: Permission denied; it belongs to user x"};
    char path[] = "/tmp/notices.XXXXXX", me[IO_USER_NAME];
    (void)state;
    close(mkstemp(path));
    io_user_name(geteuid(), me);
    const struct passwd *other = geteuid() == 0 ? getpwnam("nobody") : NULL;
    for (int is_other = 0; is_other <= (other != NULL); is_other++) {
        char *said = is_other
                         ? mem_printf("%s belongs to user nobody, but the daemons run as user %s: ", path, me)
                         : mem_printf("let user %s read and write %s: ", me, path);
        assert_true(!is_other || chown(path, other->pw_uid, other->pw_gid) == 0);
        for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
            struct buf text = {0};
            const char *at = strstr(forms[i], "%s");
            buf_printf(&text, "%.*s%s%s", (int)(at - forms[i]), forms[i], path, at + 2);
            char *remedy = notice_remedy(NOTICE_DAMAGED, "restore it from a backup", text.ptr);
            assert_memory_equal(remedy, said, strlen(said));
            assert_non_null(strstr(remedy, "`millrace doctor` names the command, then reload: "));
            assert_null(strstr(remedy, "backup"));
            free(remedy);
            buf_free(&text);
        }
        free(said);
    }
    unlink(path);
    char *repair = notice_remedy(
        NOTICE_RECOVERING, "", "a.seg: damaged; see `millrace journal check /d/s` and `repair`");
    assert_string_equal(repair, "millrace journal repair /d/s (millrace help damage)");
    free(repair);
    char *kept = notice_remedy(NOTICE_DAMAGED, "restore it from a backup", "a file is damaged");
    assert_string_equal(kept, "restore it from a backup");
    free(kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_highest_state_is_that_of_the_daemon, set_up, tear_down),
        cmocka_unit_test_setup_teardown(only_a_bounded_number_is_kept, set_up, tear_down),
        cmocka_unit_test(a_denied_file_is_named_with_its_owner),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
