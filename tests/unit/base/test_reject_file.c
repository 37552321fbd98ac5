/* reject_file: whatever is added is there, whole, whoever else adds to it. */
#include "support/cm.h"
#include "support/shell.h"
#include "support/test_dir.h"
#include "base/io.h"
#include "base/reject_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define ADDERS 4
#define LINES 300

static char dir[64], path[sizeof dir + 8];
static struct io_ops changed;

static int set_up(void **state)
{
    (void)state;
    make_test_dir(dir, sizeof dir);
    snprintf(path, sizeof path, "%s/rejects", dir);
    changed = io_system;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    io = &io_system;
    shell("rm -r %s", dir);
    return 0;
}

static int add_line(struct bytes line)
{
    bool expired;
    return reject_file_add(&(struct reject_file){.path = path}, line, &expired);
}

static void read_all(struct buf *out)
{
    char piece[4096];
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    for (size_t n; (n = fread(piece, 1, sizeof piece, f)) > 0;)
        buf_append(out, piece, n);
    fclose(f);
}

static void assert_content(const char *want)
{
    struct buf got = {0};
    read_all(&got);
    buf_append_char(&got, '\0');
    assert_string_equal(got.ptr, want);
    buf_free(&got);
}

/* A daemon that adds to it must be stopped all the same. */
static void test_whoever_keeps_it_locked_holds_nobody_for_long(void **state)
{
    (void)state;
    assert_int_equal(add_line(BYTES_LITERAL("one")), 0);
    int fd = open(path, O_RDONLY);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    usec_t began = clock_monotonic();
    alarm((unsigned)(PATIENCE / USEC_PER_SEC));
    assert_int_equal(add_line(BYTES_LITERAL("two")), -1);
    assert_int_equal(errno, EWOULDBLOCK);
    alarm(0);
    assert_true(clock_monotonic() - began >= REJECT_FILE_LOCK_WAIT_MAX);
    close(fd);
    assert_int_equal(add_line(BYTES_LITERAL("three")), 0);
    assert_content("one\nthree\n");
}

static int no_lock_errno;

static int no_locks(int fd, int operation)
{
    (void)fd;
    (void)operation;
    errno = no_lock_errno;
    return -1;
}

static void test_a_file_system_without_locks_is_no_trouble(void **state)
{
    static const int without[] = {ENOLCK, EOPNOTSUPP, ENOSYS};
    (void)state;
    changed.flock = no_locks;
    io = &changed;
    for (size_t i = 0; i < sizeof without / sizeof *without; i++) {
        no_lock_errno = without[i];
        assert_int_equal(add_line(BYTES_LITERAL("one")), 0);
    }
    assert_content("one\none\none\n");
    no_lock_errno = EBADF;
    assert_int_equal(add_line(BYTES_LITERAL("two")), -1);
    assert_int_equal(errno, EBADF);
}

static ssize_t write_late(int fd, const void *p, size_t n, off_t at)
{
    sched_yield();
    return pwrite(fd, p, n, at);
}

static int no_sync(int fd)
{
    (void)fd;
    return 0;
}

/* Nothing says in which order they have the lock: one may miss it for as long as it waits. */
static int add_in_the_end(struct bytes line)
{
    int rc;
    do
        rc = add_line(line);
    while (rc != 0 && errno == EWOULDBLOCK);
    return rc;
}

/* In a process of its own; they begin together, when the pipe is closed. */
static void add_many(int begin, char who)
{
    char line[16], none;
    int failed = 0;
    while (read(begin, &none, 1) > 0)
        continue;
    for (int i = 0; i < LINES; i++) {
        int n = snprintf(line, sizeof line, "%c%d", who, i);
        failed |= add_in_the_end(bytes_of(line, (size_t)n)) != 0;
    }
    _exit(failed);
}

static void test_several_processes_add_to_one_file(void **state)
{
    (void)state;
    int begin[2], status;
    size_t seen[ADDERS] = {0};
    struct buf got = {0};
    changed.pwrite = write_late;
    changed.fdatasync = changed.fsync = no_sync;
    io = &changed;
    assert_int_equal(pipe(begin), 0);
    for (int i = 0; i < ADDERS; i++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            close(begin[1]);
            add_many(begin[0], (char)('a' + i));
        }
    }
    close(begin[0]);
    close(begin[1]);
    for (int i = 0; i < ADDERS; i++) {
        assert_true(wait(&status) > 0);
        assert_int_equal(status, 0);
    }
    read_all(&got);
    buf_append_char(&got, '\0');
    for (char *rest = got.ptr, *line; (line = strsep(&rest, "\n")) != NULL && *line != '\0';) {
        int who = *line - 'a';
        assert_in_range(who, 0, ADDERS - 1);
        assert_int_equal(atoi(line + 1), seen[who]);
        seen[who]++;
    }
    for (int i = 0; i < ADDERS; i++)
        assert_int_equal(seen[i], LINES);
    buf_free(&got);
}

static void test_what_a_crash_left_of_a_line_ends_before_the_next(void **state)
{
    (void)state;
    assert_int_equal(add_line(BYTES_LITERAL("one")), 0);
    assert_int_equal(truncate(path, 2), 0);
    assert_int_equal(add_line(BYTES_LITERAL("two")), 0);
    assert_content("on\ntwo\n");
}

static ssize_t write_half(int fd, const void *p, size_t n, off_t at)
{
    if (n > 2)
        return pwrite(fd, p, 2, at);
    errno = ENOSPC;
    return -1;
}

static void test_a_full_disk_leaves_nothing_of_a_line(void **state)
{
    (void)state;
    assert_int_equal(add_line(BYTES_LITERAL("one")), 0);
    changed.pwrite = write_half;
    io = &changed;
    assert_int_equal(add_line(BYTES_LITERAL("two")), -1);
    assert_int_equal(errno, ENOSPC);
    io = &io_system;
    assert_content("one\n");
    assert_int_equal(add_line(BYTES_LITERAL("two")), 0);
    assert_content("one\ntwo\n");
}

static void test_it_may_be_moved_away_at_any_time(void **state)
{
    char away[sizeof path + 2];
    (void)state;
    snprintf(away, sizeof away, "%s.1", path);
    assert_int_equal(add_line(BYTES_LITERAL("one")), 0);
    assert_int_equal(rename(path, away), 0);
    assert_int_equal(add_line(BYTES_LITERAL("two")), 0);
    assert_content("two\n");
    assert_int_equal(rename(away, path), 0);
    assert_content("one\n");
}

static void test_it_is_no_link(void **state)
{
    char target[sizeof path + 2];
    (void)state;
    snprintf(target, sizeof target, "%s.x", path);
    shell("echo kept > %s && ln -s %s %s", target, target, path);
    assert_int_equal(add_line(BYTES_LITERAL("one")), -1);
    assert_int_equal(errno, ELOOP);
    assert_int_equal(reject_file_make(&(struct reject_file){.path = path}), -1);
    assert_content("kept\n");
}

static void test_it_is_a_regular_file(void **state)
{
    (void)state;
    shell("mkfifo %s", path);
    assert_int_equal(reject_file_make(&(struct reject_file){.path = path}), -1);
    assert_int_equal(errno, EINVAL);
    assert_int_equal(add_line(BYTES_LITERAL("one")), -1);
    assert_int_equal(errno, EINVAL);
}

static bool is_former(const char *want)
{
    char former[sizeof path + 2], text[64] = "";
    snprintf(former, sizeof former, "%s.1", path);
    FILE *f = fopen(former, "r");
    if (!f)
        return want == NULL;
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    return want != NULL && strcmp(text, want) == 0 && n == strlen(want);
}

static void test_the_oldest_lines_go_beyond_a_size(void **state)
{
    struct reject_file f = {.path = path, .max_bytes = 24};
    bool expired;
    (void)state;
    for (int i = 0; i < 6; i++) {
        assert_int_equal(reject_file_add(&f, BYTES_LITERAL("four."), &expired), 0);
        assert_int_equal(expired, i == 4);
        assert_true(is_former(i < 2 ? NULL : "four.\nfour.\n"));
    }
    assert_int_equal(reject_file_add(&f, BYTES_LITERAL("a line that is longer than both"), &expired), 0);
    assert_true(expired && is_former("four.\nfour.\n"));
    assert_content("a line that is longer than both\n");
    f.max_bytes = 0;
    assert_int_equal(reject_file_add(&f, BYTES_LITERAL("x"), &expired), 0);
    assert_false(expired);
    assert_content("a line that is longer than both\nx\n");
}

static void test_the_oldest_lines_go_beyond_an_age(void **state)
{
    struct reject_file f = {.path = path, .max_age = 2 * 3600 * USEC_PER_SEC};
    bool expired;
    (void)state;
    assert_int_equal(reject_file_add(&f, BYTES_LITERAL("one"), &expired), 0);
    assert_true(is_former(NULL));
    f.max_age = 1;
    sleep(1); /* times of creation are in seconds here */
    assert_int_equal(reject_file_add(&f, BYTES_LITERAL("two"), &expired), 0);
    assert_true(is_former("one\n") && !expired);
    f.max_age = 2 * 3600 * USEC_PER_SEC;
    assert_int_equal(reject_file_add(&f, BYTES_LITERAL("three"), &expired), 0);
    assert_true(is_former("one\n") && !expired);
    shell("touch -d '61 minutes ago' %s.1", path);
    assert_int_equal(reject_file_add(&f, BYTES_LITERAL("four"), &expired), 0);
    assert_true(is_former(NULL) && expired);
    assert_content("two\nthree\nfour\n");
}

/* Each line is in one of both files, however the processes meet. */
static void test_several_processes_roll_one_file(void **state)
{
    struct reject_file f = {.path = path, .max_bytes = 200 * 1024};
    (void)state;
    for (int i = 0; i < ADDERS; i++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        bool expired, failed = false;
        for (int k = 0; pid == 0 && k < LINES; k++) {
            char line[100];
            memset(line, 'a' + i, sizeof line);
            int rc;
            do /* beside other load a process may wait longer for the lock than it may */
                rc = reject_file_add(&f, bytes_of(line, sizeof line), &expired);
            while (rc != 0 && errno == EWOULDBLOCK);
            failed = failed || rc != 0 || expired;
        }
        if (pid == 0)
            _exit(failed);
    }
    for (int i = 0, status; i < ADDERS; i++)
        assert_true(wait(&status) > 0 && status == 0);
    shell("test $(cat %s %s.1 | wc -l) = %d", path, path, ADDERS * LINES);
    shell("test $(cat %s %s.1 | wc -c) = %d", path, path, ADDERS * LINES * 101);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_several_processes_add_to_one_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_what_a_crash_left_of_a_line_ends_before_the_next, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_full_disk_leaves_nothing_of_a_line, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_whoever_keeps_it_locked_holds_nobody_for_long, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_file_system_without_locks_is_no_trouble, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_it_may_be_moved_away_at_any_time, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_it_is_no_link, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_it_is_a_regular_file, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_oldest_lines_go_beyond_a_size, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_oldest_lines_go_beyond_an_age, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_several_processes_roll_one_file, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
