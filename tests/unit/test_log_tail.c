/* log_tail: when a rotated log is over. The wall clock is the test's: it says how long ago the last byte came. */
#include "cm.h"
#include "log_tail.h"
#include "power.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static char directory[64], path[100], old[100], older[100], state[100];
static int writer; /* has the log open, as its daemon does */
static struct log_tail *tail;
static usec_t began;

static void append(int fd, const char *text)
{
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

static void rotate(const char *into_next)
{
    assert_int_equal(rename(path, old), 0);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    append(fd, into_next);
    close(fd);
}

/* It waits as of when the test began, however long that is ago. */
static void expect(enum log_tail_result wanted, usec_t later, const char *text)
{
    char error[LINE_SOURCE_ERROR_TEXT] = "";
    struct bytes line = BYTES_NONE;
    usec_t now = wanted == LOG_TAIL_WAIT ? began : clock_wall();
    assert_int_equal(log_tail_next(tail, now + later, &line, error), wanted);
    if (text != NULL)
        assert_true(bytes_equal_str(line, text));
}

static void expect_next_file(void)
{
    char error[LINE_SOURCE_ERROR_TEXT] = "";
    assert_int_equal(log_tail_next_file(tail, error), 0);
}

static void begin(const char *text)
{
    bool missing;
    char error[LINE_SOURCE_ERROR_TEXT];
    append(writer, text);
    tail = log_tail_open(path, state, 0, &missing, error);
    assert_non_null(tail);
}

/* Asking the kernel who writes to it leaves nothing behind. */
static void expect_nobody_is_kept_waiting(void)
{
    int fd = open(old, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    assert_true(fd >= 0);
    close(fd);
}

static void test_a_line_is_finished_after_the_rotation(void **unused)
{
    (void)unused;
    begin("one\ntw");
    expect(LOG_TAIL_LINE, 0, "one\n");
    expect(LOG_TAIL_WAIT, LOG_TAIL_PATIENCE * 100, NULL);
    rotate("three\n");
    expect(LOG_TAIL_WAIT, 0, NULL);
    expect(LOG_TAIL_WAIT, LOG_TAIL_PATIENCE / 2, NULL);
    append(writer, "o\nlate\n");
    expect(LOG_TAIL_LINE, 0, "two\n");
    expect(LOG_TAIL_LINE, 0, "late\n");
    expect(LOG_TAIL_WAIT, LOG_TAIL_PATIENCE / 2, NULL);
    close(writer);
    writer = -1;
    expect(LOG_TAIL_OVER, 0, NULL);
    expect_nobody_is_kept_waiting();
    expect_next_file();
    expect(LOG_TAIL_LINE, 0, "three\n");
}

/* What was read past of a line that is too long counts as read: where that is cut off the log begins again. */
static void test_a_log_that_is_truncated_within_a_line_that_is_too_long(void **unused)
{
    char error[LINE_SOURCE_ERROR_TEXT] = "";
    struct bytes line;
    enum log_tail_result r;
    (void)unused;
    begin("");
    assert_int_equal(ftruncate(writer, LINE_SOURCE_MAX_LINE + 1), 0);
    while ((r = log_tail_next(tail, began, &line, error)) == LOG_TAIL_PASSING)
        continue;
    assert_int_equal(r, LOG_TAIL_WAIT);
    assert_int_equal(log_tail_offset(tail), 0);
    assert_int_equal(ftruncate(writer, 0), 0);
    expect(LOG_TAIL_OVER, 0, NULL);
    expect_next_file();
    append(writer, "one\n");
    expect(LOG_TAIL_LINE, 0, "one\n");
}

/* Its writer was killed in the middle of a line: nobody will finish it. */
static void test_an_unfinished_line_is_given_when_nobody_can_finish_it(void **unused)
{
    (void)unused;
    begin("one\ntw");
    close(writer);
    writer = -1;
    expect(LOG_TAIL_LINE, 0, "one\n");
    expect(LOG_TAIL_WAIT, LOG_TAIL_PATIENCE * 100, NULL);
    rotate("three\n");
    expect(LOG_TAIL_LINE, 0, "tw");
    expect(LOG_TAIL_OVER, 0, NULL);
    expect_next_file();
    expect(LOG_TAIL_LINE, 0, "three\n");
}

/* logrotate makes the new file itself: as long as nothing is in it the writer has not turned to it. */
static void test_a_writer_that_was_not_told_is_waited_for(void **unused)
{
    (void)unused;
    begin("one\n");
    expect(LOG_TAIL_LINE, 0, "one\n");
    rotate("");
    expect(LOG_TAIL_WAIT, 0, NULL);
    expect(LOG_TAIL_WAIT, LOG_TAIL_PATIENCE * 100, NULL);
    append(writer, "two\n");
    expect(LOG_TAIL_LINE, 0, "two\n");
}

static void test_a_descriptor_left_open_does_not_stop_everything(void **unused)
{
    (void)unused;
    begin("one\ntw");
    expect(LOG_TAIL_LINE, 0, "one\n");
    rotate("three\n");
    expect(LOG_TAIL_WAIT, 0, NULL);
    expect(LOG_TAIL_LINE, LOG_TAIL_PATIENCE + USEC_PER_SEC, "tw");
    expect(LOG_TAIL_OVER, LOG_TAIL_PATIENCE + USEC_PER_SEC, NULL);
    expect_next_file();
    expect(LOG_TAIL_LINE, 0, "three\n");
}

static bool tells_when_files_are_made(void)
{
    struct statx x;
    return statx(AT_FDCWD, path, 0, STATX_BTIME, &x) == 0 && (x.stx_mask & STATX_BTIME) != 0;
}

static bool was_made_later(const char *one, const char *other)
{
    struct statx a, b;
    assert_int_equal(statx(AT_FDCWD, one, 0, STATX_BTIME, &a), 0);
    assert_int_equal(statx(AT_FDCWD, other, 0, STATX_BTIME, &b), 0);
    return a.stx_btime.tv_sec > b.stx_btime.tv_sec ||
           (a.stx_btime.tv_sec == b.stx_btime.tv_sec && a.stx_btime.tv_nsec > b.stx_btime.tv_nsec);
}

/* Until a file that is made now is seen to be newer than this one: the clock of files goes in steps. */
static void wait_for_step_after(const char *file)
{
    char probe[100];
    bool later = false;
    snprintf(probe, sizeof probe, "%s/probe", directory);
    while (!later) {
        usleep(1000);
        close(open(probe, O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
        later = was_made_later(probe, file);
        unlink(probe);
    }
}

/* Two rotations while nobody looked; the second writer put out what it still had when the third log was made already, and
 * nothing is in that yet. */
static void test_logs_are_taken_in_the_order_they_were_made(void **unused)
{
    (void)unused;
    if (!tells_when_files_are_made())
        skip();
    begin("one\n");
    expect(LOG_TAIL_LINE, 0, "one\n");
    close(writer);
    wait_for_step_after(path);
    rotate("");
    writer = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    assert_int_equal(rename(path, older), 0);
    wait_for_step_after(older);
    int third = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    wait_for_step_after(path);
    append(writer, "two\n");
    close(writer);
    writer = third;
    expect(LOG_TAIL_OVER, 0, NULL);
    expect_next_file();
    expect(LOG_TAIL_LINE, 0, "two\n");
    expect(LOG_TAIL_OVER, 0, NULL);
    expect_next_file();
    append(writer, "three\n");
    expect(LOG_TAIL_LINE, 0, "three\n");
}

/* The kernel tells others than its owner nothing of who writes to a file. */
static void become_another_user(void)
{
    if (geteuid() != 0)
        skip();
    assert_int_equal(chmod(directory, 0777), 0);
    assert_int_equal(seteuid(65534), 0);
}

static void test_another_users_log_is_over_when_it_is_quiet(void **unused)
{
    (void)unused;
    become_another_user();
    begin("one\n");
    expect(LOG_TAIL_LINE, 0, "one\n");
    rotate("two\n");
    expect(LOG_TAIL_WAIT, 0, NULL);
    expect(LOG_TAIL_WAIT, LOG_TAIL_GRACE / 2, NULL);
    expect(LOG_TAIL_OVER, LOG_TAIL_GRACE + USEC_PER_SEC, NULL);
    expect_next_file();
    expect(LOG_TAIL_LINE, 0, "two\n");
}

static void test_another_users_unfinished_line_is_waited_for_longer(void **unused)
{
    (void)unused;
    become_another_user();
    begin("one\ntw");
    expect(LOG_TAIL_LINE, 0, "one\n");
    rotate("three\n");
    expect(LOG_TAIL_WAIT, 0, NULL);
    expect(LOG_TAIL_WAIT, LOG_TAIL_GRACE + USEC_PER_SEC, NULL);
    expect(LOG_TAIL_LINE, LOG_TAIL_PATIENCE + USEC_PER_SEC, "tw");
    expect(LOG_TAIL_OVER, LOG_TAIL_PATIENCE + USEC_PER_SEC, NULL);
}

static int set_up(void **unused)
{
    (void)unused;
    strcpy(directory, "/tmp/millrace-unit-XXXXXX");
    if (mkdtemp(directory) == NULL)
        return -1;
    snprintf(path, sizeof path, "%s/log", directory);
    snprintf(old, sizeof old, "%s/log.1", directory);
    snprintf(older, sizeof older, "%s/log.0", directory);
    snprintf(state, sizeof state, "%s/.state", directory);
    writer = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    began = clock_wall();
    return writer < 0;
}

static int tear_down(void **unused)
{
    (void)unused;
    if (getuid() == 0 && seteuid(0) != 0)
        return -1;
    log_tail_close(&tail);
    if (writer >= 0)
        close(writer);
    unlink(path);
    unlink(old);
    unlink(older);
    unlink(state);
    return rmdir(directory);
}

static bool go_on_at(uint64_t offset)
{
    bool missing = false;
    char error[LINE_SOURCE_ERROR_TEXT];
    log_tail_close(&tail);
    tail = log_tail_open(path, state, offset, &missing, error);
    assert_false(missing);
    return tail != NULL;
}

/* What a reader does: each line is put, and with a file's last one all that was put is stored before the next file. */
static uint64_t put_up_to(const char *last)
{
    char error[LINE_SOURCE_ERROR_TEXT];
    for (;;) {
        struct bytes line = BYTES_NONE;
        enum log_tail_result r = log_tail_next(tail, clock_wall(), &line, error);
        if (r == LOG_TAIL_LINE && bytes_equal_str(line, last))
            return log_tail_offset(tail);
        if (r == LOG_TAIL_LINE)
            continue;
        assert_int_equal(r, LOG_TAIL_OVER);
        uint64_t stored = log_tail_offset(tail);
        if (log_tail_next_file(tail, error) != 0)
            return stored;
    }
}

/* The operations that it came to. A life ends before it has put a line of the second file, the next one puts that, and the power
 * goes. */
static unsigned kill_at(unsigned at)
{
    unsigned seed = at;
    uint64_t stored = 0;
    assert_int_equal(set_up(NULL), 0);
    append(writer, "one\n");
    power_on(POWER_KILL, at);
    bool began_there = go_on_at(0);
    close(writer);
    writer = -1;
    if (began_there) {
        expect(LOG_TAIL_LINE, 0, "one\n");
        rotate("two\n");
        stored = put_up_to("two\n");
    }
    unsigned operations = power_operations();
    power_revive(POWER_NONE, 0);
    assert_true(go_on_at(stored > 4 ? 4 : stored));
    stored = put_up_to(began_there ? "two\n" : "one\n");
    power_cut_now();
    log_tail_close(&tail);
    power_off(&seed);
    assert_true(go_on_at(stored));
    expect(LOG_TAIL_WAIT, 0, NULL);
    assert_int_equal(tear_down(NULL), 0);
    return operations;
}

static void test_killed_anywhere_then_a_cut(void **unused)
{
    (void)unused;
    unsigned operations = kill_at(0);
    assert_true(operations > 8);
    for (unsigned at = 1; at <= operations; at++)
        kill_at(at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_line_is_finished_after_the_rotation, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_an_unfinished_line_is_given_when_nobody_can_finish_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_a_log_that_is_truncated_within_a_line_that_is_too_long, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_writer_that_was_not_told_is_waited_for, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_a_descriptor_left_open_does_not_stop_everything, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_logs_are_taken_in_the_order_they_were_made, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_another_users_log_is_over_when_it_is_quiet, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_another_users_unfinished_line_is_waited_for_longer, set_up, tear_down),
        cmocka_unit_test(test_killed_anywhere_then_a_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
