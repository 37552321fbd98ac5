/* log_tail: when a rotated log has ended, and when a log was truncated. The tests set the time since the last
 * byte. */
#include "support/cm.h"
#include "base/io.h"
#include "tools/put/log_tail.h"
#include "support/power.h"
#include "support/test_dir.h"

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

/* LINE_SOURCE_END is expected at the time at which the test began, so that a slow machine ends no wait. */
static void expect(enum line_source_result wanted, usec_t later, const char *text)
{
    struct error error;
    struct bytes line = BYTES_NONE;
    usec_t now = wanted == LINE_SOURCE_END ? began : clock_wall();
    assert_int_equal(log_tail_next(tail, now + later, &line, &error), wanted);
    if (text != NULL)
        assert_true(bytes_equal_str(line, text));
}

static void expect_next_file(void)
{
    struct error error;
    assert_int_equal(log_tail_next_file(tail, &error), 0);
}

static void begin(const char *text)
{
    enum log_tail_start place;
    struct error error;
    append(writer, text);
    tail = log_tail_open(path, state, 0, BYTES_NONE, &place, &error);
    assert_non_null(tail);
}

static void expect_lines(const char *text)
{
    for (const char *end; *text != 0; text = end) {
        char line[100];
        end = strchr(text, '\n') + 1;
        snprintf(line, sizeof line, "%.*s", (int)(end - text), text);
        expect(LINE_SOURCE_LINE, 0, line);
    }
    expect(LINE_SOURCE_END, 0, NULL);
}

static void expect_stored(void)
{
    struct error error;
    assert_int_equal(log_tail_stored(tail, &error), 0);
}

static void cut(const char *and_then)
{
    assert_int_equal(ftruncate(writer, 0), 0);
    append(writer, and_then);
}

static void expect_cut(uint64_t offset, const char *text)
{
    expect(LINE_SOURCE_CUT, 0, NULL);
    assert_int_equal(log_tail_offset(tail), offset);
    expect_next_file();
    assert_int_equal(log_tail_base(tail), offset);
    expect_lines(text);
    assert_int_equal(log_tail_offset(tail), offset + strlen(text));
}

static void expect_place(uint64_t offset, enum log_tail_start expected)
{
    struct error error;
    enum log_tail_start place;
    log_tail_close(&tail);
    tail = log_tail_open(path, state, offset, BYTES_NONE, &place, &error);
    assert_int_equal(place, expected);
    assert_non_null(tail);
}

static void test_a_log_that_was_cut_and_has_grown_longer_begins_again(void **unused)
{
    (void)unused;
    begin("one\ntwo\n");
    expect_lines("one\ntwo\n");
    cut("three\nfour\nfive\n");
    expect_cut(8, "three\nfour\nfive\n");
    cut("the sixth line\nthe seventh\n");
    expect_cut(24, "the sixth line\nthe seventh\n");
}

static bool cut_next;

static ssize_t pread_of_what_is_cut_now(int fd, void *p, size_t n, off_t at)
{
    if (cut_next)
        cut("1234\n");
    cut_next = false;
    return io_system.pread(fd, p, n, at);
}

/* Only the length of the log shows the truncation. */
static void test_a_log_that_is_cut_just_after_it_was_read(void **unused)
{
    struct io_ops cutting = io_system;
    (void)unused;
    begin("one\n");
    expect_lines("one\n");
    append(writer, "two\nthree\n");
    cutting.pread = pread_of_what_is_cut_now;
    cut_next = true;
    io = &cutting;
    expect(LINE_SOURCE_LINE, 0, "two\n");
    expect(LINE_SOURCE_LINE, 0, "three\n");
    assert_false(cut_next);
    io = &io_system;
    expect_cut(14, "1234\n");
}

/* The begun line is dropped, also if the log later becomes as long as before. */
static void test_a_log_that_was_cut_within_a_line(void **unused)
{
    (void)unused;
    begin("one\ntw");
    expect_lines("one\n");
    cut("thr\nfo");
    expect(LINE_SOURCE_END, 0, NULL);
    append(writer, "ur\n");
    expect_cut(4, "thr\nfour\n");
}

/* The log still begins with the same bytes, so bytes near its end must be compared. */
static void test_a_log_whose_beginning_is_always_the_same(void **unused)
{
    (void)unused;
    char head[3000] = "", text[6000];
    for (int i = 0; i < 100; i++)
        strcat(head, "the same line again\n");
    begin(head);
    expect_lines(head);
    for (int i = 0; i < 110; i++) {
        append(writer, "now others\n");
        expect_lines("now others\n");
    }
    snprintf(text, sizeof text, "%s%s", head, head);
    cut(text);
    expect_cut(strlen(head) + 110 * 11, text);
}

static void test_a_log_that_was_cut_while_nobody_looked(void **unused)
{
    (void)unused;
    begin("one\ntwo\n");
    expect_lines("one\ntwo\n");
    expect_stored();
    append(writer, "three\n");
    expect_place(8, LOG_TAIL_FOUND);
    expect_lines("three\n");
    cut("four\nand five\nand six\n");
    expect_place(14, LOG_TAIL_REWRITTEN);
    expect_lines("four\nand five\nand six\n");
    cut("7\n");
    expect_place(37, LOG_TAIL_REWRITTEN);
    assert_int_equal(log_tail_base(tail), 37);
    expect_lines("7\n");
}

/* A power cut has taken the end of the log, which was read, and the end of the queue. The notes about the lost lines
 * must be forgotten. */
static void test_what_is_known_of_lines_behind_the_offset_is_forgotten(void **unused)
{
    (void)unused;
    begin("one\ntwo\n");
    expect_lines("one\ntwo\n");
    expect_stored();
    assert_int_equal(ftruncate(writer, 4), 0);
    append(writer, "other lines\n");
    expect_place(4, LOG_TAIL_FOUND);
    expect_lines("other lines\n");
    append(writer, "more\n");
    expect_lines("more\n");
}

/* The writer's next line follows a hole that is as long as the truncated bytes. Before this line there is nothing to
 * read. */
static void test_a_writer_that_does_not_append_leaves_a_hole(void **unused)
{
    (void)unused;
    close(writer);
    writer = open(path, O_WRONLY | O_CLOEXEC);
    begin("one\ntwo\n");
    expect_lines("one\ntwo\n");
    expect_stored();
    cut("three\n");
    expect_lines("three\n");
    expect_place(14, LOG_TAIL_FOUND);
    append(writer, "four\n");
    expect_lines("four\n");
}

static void test_a_log_is_followed_by_one_at_a_time(void **unused)
{
    struct error error;
    enum log_tail_start place;
    (void)unused;
    begin("one\n");
    for (int i = 0; i < 2; i++) {
        assert_null(log_tail_open(path, state, 0, BYTES_NONE, &place, &error));
        assert_int_equal(place, LOG_TAIL_LOCKED);
        assert_non_null(strstr(error.text, "another process follows this log"));
        expect_lines("one\n");
        expect_stored();
        cut("one\n"); /* as it was: not noticed */
        expect(LINE_SOURCE_END, 0, NULL);
        expect_place(0, LOG_TAIL_FOUND);
    }
}

/* The question whether a process writes to the log must leave no lease, which would delay an open. */
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
    expect(LINE_SOURCE_LINE, 0, "one\n");
    expect(LINE_SOURCE_END, LOG_TAIL_TIMEOUT * 100, NULL);
    rotate("three\n");
    expect(LINE_SOURCE_END, 0, NULL);
    expect(LINE_SOURCE_END, LOG_TAIL_TIMEOUT / 2, NULL);
    append(writer, "o\nlate\n");
    expect(LINE_SOURCE_LINE, 0, "two\n");
    expect(LINE_SOURCE_LINE, 0, "late\n");
    expect(LINE_SOURCE_END, LOG_TAIL_TIMEOUT / 2, NULL);
    close(writer);
    writer = -1;
    expect(LINE_SOURCE_FINISHED, 0, NULL);
    expect_nobody_is_kept_waiting();
    expect_next_file();
    expect(LINE_SOURCE_LINE, 0, "three\n");
}

/* The skipped bytes of a line that is too long count as read. If the log is truncated within them, it is read from
 * its begin. */
static void test_a_log_that_is_truncated_within_a_line_that_is_too_long(void **unused)
{
    struct error error;
    struct bytes line;
    enum line_source_result r;
    (void)unused;
    begin("x");
    assert_int_equal(ftruncate(writer, LINE_SOURCE_LINE_MAX + 1), 0);
    while ((r = log_tail_next(tail, began, &line, &error)) == LINE_SOURCE_SKIPPING)
        continue;
    assert_int_equal(r, LINE_SOURCE_END);
    assert_int_equal(log_tail_offset(tail), 0);
    assert_int_equal(ftruncate(writer, 0), 0);
    expect(LINE_SOURCE_CUT, 0, NULL);
    expect_next_file();
    append(writer, "one\n");
    expect(LINE_SOURCE_LINE, 0, "one\n");
}

/* The writer was killed within a line, so the line will never be finished. */
static void test_an_unfinished_line_is_given_when_nobody_can_finish_it(void **unused)
{
    (void)unused;
    begin("one\ntw");
    close(writer);
    writer = -1;
    expect(LINE_SOURCE_LINE, 0, "one\n");
    expect(LINE_SOURCE_END, LOG_TAIL_TIMEOUT * 100, NULL);
    rotate("three\n");
    expect(LINE_SOURCE_LINE, 0, "tw");
    expect(LINE_SOURCE_FINISHED, 0, NULL);
    expect_next_file();
    expect(LINE_SOURCE_LINE, 0, "three\n");
}

/* logrotate itself creates the new file. While it is empty, the writer still writes to the old file. */
static void test_a_writer_that_was_not_told_is_waited_for(void **unused)
{
    (void)unused;
    begin("one\n");
    expect(LINE_SOURCE_LINE, 0, "one\n");
    rotate("");
    expect(LINE_SOURCE_END, 0, NULL);
    expect(LINE_SOURCE_END, LOG_TAIL_TIMEOUT * 100, NULL);
    append(writer, "two\n");
    expect(LINE_SOURCE_LINE, 0, "two\n");
}

static void test_a_descriptor_left_open_does_not_stop_everything(void **unused)
{
    (void)unused;
    begin("one\ntw");
    expect(LINE_SOURCE_LINE, 0, "one\n");
    rotate("three\n");
    expect(LINE_SOURCE_END, 0, NULL);
    expect(LINE_SOURCE_LINE, LOG_TAIL_TIMEOUT + USEC_PER_SEC, "tw");
    expect(LINE_SOURCE_FINISHED, LOG_TAIL_TIMEOUT + USEC_PER_SEC, NULL);
    expect_next_file();
    expect(LINE_SOURCE_LINE, 0, "three\n");
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

/* Waits until a new file would be newer than this one: the file system's clock advances in steps. */
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

/* Two rotations between two looks. The second writer wrote its last lines when the third log already existed, and the
 * third log is still empty. */
static void test_logs_are_taken_in_the_order_they_were_made(void **unused)
{
    (void)unused;
    if (!tells_when_files_are_made())
        skip();
    begin("one\n");
    expect(LINE_SOURCE_LINE, 0, "one\n");
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
    expect(LINE_SOURCE_FINISHED, 0, NULL);
    expect_next_file();
    expect(LINE_SOURCE_LINE, 0, "two\n");
    expect(LINE_SOURCE_FINISHED, 0, NULL);
    expect_next_file();
    append(writer, "three\n");
    expect(LINE_SOURCE_LINE, 0, "three\n");
}

/* The kernel tells only the owner of a file whether a process writes to it. */
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
    expect(LINE_SOURCE_LINE, 0, "one\n");
    rotate("two\n");
    expect(LINE_SOURCE_END, 0, NULL);
    expect(LINE_SOURCE_END, LOG_TAIL_GRACE / 2, NULL);
    expect(LINE_SOURCE_FINISHED, LOG_TAIL_GRACE + USEC_PER_SEC, NULL);
    expect_next_file();
    expect(LINE_SOURCE_LINE, 0, "two\n");
}

static void test_another_users_unfinished_line_is_waited_for_longer(void **unused)
{
    (void)unused;
    become_another_user();
    begin("one\ntw");
    expect(LINE_SOURCE_LINE, 0, "one\n");
    rotate("three\n");
    expect(LINE_SOURCE_END, 0, NULL);
    expect(LINE_SOURCE_END, LOG_TAIL_GRACE + USEC_PER_SEC, NULL);
    expect(LINE_SOURCE_LINE, LOG_TAIL_TIMEOUT + USEC_PER_SEC, "tw");
    expect(LINE_SOURCE_FINISHED, LOG_TAIL_TIMEOUT + USEC_PER_SEC, NULL);
}

static int set_up(void **unused)
{
    (void)unused;
    make_test_dir(directory, sizeof directory);
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
    enum log_tail_start place;
    struct error error;
    log_tail_close(&tail);
    tail = log_tail_open(path, state, offset, BYTES_NONE, &place, &error);
    assert_int_equal(place, LOG_TAIL_FOUND);
    return tail != NULL;
}

/* Acts as a reader does: it puts each line, and at the end of a file it waits until all lines are stored. */
static uint64_t put_up_to(const char *last)
{
    struct error error;
    for (;;) {
        struct bytes line = BYTES_NONE;
        enum line_source_result r = log_tail_next(tail, clock_wall(), &line, &error);
        bool is_last = r == LINE_SOURCE_LINE && bytes_equal_str(line, last);
        if (is_last || (r == LINE_SOURCE_LINE && log_tail_stored(tail, &error) != 0))
            return log_tail_offset(tail);
        if (r == LINE_SOURCE_LINE)
            continue;
        assert_int_equal(r, LINE_SOURCE_FINISHED);
        uint64_t stored = log_tail_offset(tail);
        if (log_tail_next_file(tail, &error) != 0)
            return stored;
    }
}

/* A life ends before it has put a line of the second file, the next life puts the line, and the power is cut. Returns
 * the number of operations. */
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
        expect(LINE_SOURCE_LINE, 0, "one\n");
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
    expect(LINE_SOURCE_END, 0, NULL);
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

#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_a_line_is_finished_after_the_rotation),
        T(test_an_unfinished_line_is_given_when_nobody_can_finish_it),
        T(test_a_log_that_is_truncated_within_a_line_that_is_too_long),
        T(test_a_log_that_was_cut_and_has_grown_longer_begins_again),
        T(test_a_log_that_is_cut_just_after_it_was_read),
        T(test_a_log_that_was_cut_within_a_line),
        T(test_a_log_whose_beginning_is_always_the_same),
        T(test_a_log_that_was_cut_while_nobody_looked),
        T(test_what_is_known_of_lines_behind_the_offset_is_forgotten),
        T(test_a_writer_that_does_not_append_leaves_a_hole),
        T(test_a_log_is_followed_by_one_at_a_time),
        T(test_a_writer_that_was_not_told_is_waited_for),
        T(test_a_descriptor_left_open_does_not_stop_everything),
        T(test_logs_are_taken_in_the_order_they_were_made),
        T(test_another_users_log_is_over_when_it_is_quiet),
        T(test_another_users_unfinished_line_is_waited_for_longer),
        cmocka_unit_test(test_killed_anywhere_then_a_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
