/* overflow_log under storage that fails: what is cut off again, what is tried again, and what latches. */
#include "simplequeue/queue/overflow_log.h"

#include "base/io.h"
#include "support/power.h"
#include "support/shell.h"
#include "support/test_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static char path[64];
static struct overflow_log *the_log;
static struct io_ops faulty;
static size_t take; /* bytes that a write takes before there is no room */
static int sync_errno, cut_errno;

static ssize_t short_pwrite(int fd, const void *p, size_t n, off_t at)
{
    if (take == 0) {
        errno = ENOSPC;
        return -1;
    }
    size_t some = n < take ? n : take;
    take -= some;
    return io_system.pwrite(fd, p, some, at);
}

static int failing_sync(int fd)
{
    errno = sync_errno;
    return sync_errno ? -1 : io_system.fdatasync(fd);
}

static int failing_cut(int fd, off_t length)
{
    errno = cut_errno;
    return cut_errno ? -1 : io_system.ftruncate(fd, length);
}

static void ignore(void *arg)
{
    (void)arg;
}

static void note(const char *error, void *arg)
{
    snprintf(arg, 600, "%s", error ? error : "ok");
}

static void write_one(const char *text, char outcome[600])
{
    struct buf b = {0};
    buf_append_str(&b, text);
    outcome[0] = '\0';
    overflow_log_write(the_log, path, &b, note, outcome);
    assert_null(b.ptr);
    while (!outcome[0]) {
        overflow_log_poll(the_log);
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
}

static void expect_written(const char *text)
{
    char outcome[600];
    write_one(text, outcome);
    assert_string_equal(outcome, "ok");
}

static void expect_refused(const char *text, const char *why)
{
    char outcome[600];
    write_one(text, outcome);
    assert_non_null(strstr(outcome, why));
    assert_non_null(strstr(outcome, path));
}

static void expect_file(const char *text)
{
    char found[256] = "";
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    assert_true(read(fd, found, sizeof found - 1) >= 0);
    close(fd);
    assert_string_equal(found, text);
}

static int begin(void **state)
{
    char error[256];
    (void)state;
    test_path(path, sizeof path, "overflow-log");
    unlink(path);
    assert_int_equal(overflow_log_check(path, error, sizeof error), 0);
    faulty = io_system;
    faulty.pwrite = short_pwrite;
    faulty.fdatasync = failing_sync;
    faulty.ftruncate = failing_cut;
    take = SIZE_MAX;
    sync_errno = cut_errno = 0;
    io = &faulty;
    the_log = overflow_log_new(ignore, NULL);
    return 0;
}

static int end(void **state)
{
    (void)state;
    overflow_log_free(&the_log);
    io = &io_system;
    unlink(path);
    return 0;
}

static void a_batch_that_does_not_fit_is_cut_off(void **state)
{
    (void)state;
    expect_written("a\nb\n");
    take = 3;
    expect_refused("c\nd\n", "No space");
    expect_file("a\nb\n");
    take = SIZE_MAX;
    expect_written("c\nd\n");
    expect_file("a\nb\nc\nd\n");
}

static void a_failed_sync_latches_until_it_is_reopened(void **state)
{
    (void)state;
    sync_errno = EIO;
    expect_refused("a\n", "Input/output");
    sync_errno = 0;
    expect_refused("b\n", "SIGHUP");
    overflow_log_reopen(the_log);
    expect_written("c\n");
}

static void a_cut_that_fails_latches_too(void **state)
{
    (void)state;
    take = 1;
    cut_errno = EIO;
    expect_refused("abc\n", path);
    take = SIZE_MAX;
    expect_refused("d\n", "SIGHUP");
    overflow_log_reopen(the_log);
    expect_written("e\n");
    expect_file("a\ne\n");
}

static void what_was_given_is_written_before_the_end(void **state)
{
    static char outcomes[20][600];
    struct buf b = {0}, all = {0};
    (void)state;
    for (int i = 0; i < 20; i++) {
        buf_printf(&b, "%d\n", i);
        buf_printf(&all, "%d\n", i);
        overflow_log_write(the_log, path, &b, note, outcomes[i]);
    }
    overflow_log_free(&the_log);
    for (int i = 0; i < 20; i++)
        assert_string_equal(outcomes[i], "ok");
    buf_append_char(&all, '\0');
    expect_file(all.ptr);
    buf_free(&all);
}

static bool write_and_tell(const char *text)
{
    char outcome[600];
    write_one(text, outcome);
    return strcmp(outcome, "ok") == 0;
}

/* The operations that it came to. The next life's overflow log is the file that it finds. */
static unsigned kill_at(unsigned at)
{
    unsigned seed = at;
    struct stat st;
    power_on(POWER_KILL, at);
    the_log = overflow_log_new(ignore, NULL);
    bool first = write_and_tell("a\n");
    overflow_log_free(&the_log);
    unsigned operations = power_operations();
    power_revive(POWER_NONE, 0);
    the_log = overflow_log_new(ignore, NULL);
    assert_true(write_and_tell("b\n"));
    power_cut_now();
    overflow_log_free(&the_log);
    power_off(&seed);
    assert_int_equal(stat(path, &st), 0);
    assert_true(st.st_size >= (first ? 4 : 2));
    shell("tail -n 1 %s | grep -qx b", path);
    unlink(path);
    return operations;
}

static void killed_anywhere_then_a_cut(void **state)
{
    (void)state;
    test_path(path, sizeof path, "overflow-log");
    unlink(path);
    unsigned operations = kill_at(0);
    assert_true(operations > 3);
    for (unsigned at = 1; at <= operations; at++)
        kill_at(at);
}

static unsigned synced_names;

static int counting_fsync(int fd)
{
    synced_names++;
    return io_system.fsync(fd);
}

/* Whoever rotates may make the next file. One whose name is known to be safe costs one sync a batch. */
static void each_files_name_is_synced_once(void **state)
{
    (void)state;
    faulty.fsync = counting_fsync;
    synced_names = 0;
    expect_written("a\n");
    expect_written("b\n");
    expect_written("c\n");
    assert_int_equal(synced_names, 1);
    shell("mv %s %s.1; touch %s", path, path, path);
    expect_written("d\n");
    expect_written("e\n");
    assert_int_equal(synced_names, 2);
    shell("rm %s.1", path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_batch_that_does_not_fit_is_cut_off, begin, end),
        cmocka_unit_test_setup_teardown(a_failed_sync_latches_until_it_is_reopened, begin, end),
        cmocka_unit_test_setup_teardown(a_cut_that_fails_latches_too, begin, end),
        cmocka_unit_test_setup_teardown(what_was_given_is_written_before_the_end, begin, end),
        cmocka_unit_test(killed_anywhere_then_a_cut),
        cmocka_unit_test_setup_teardown(each_files_name_is_synced_once, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
