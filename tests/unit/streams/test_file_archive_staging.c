/* The staging directory: what is in it when, and what a start finds there. */
#include "support/archive_fixture.h"
#include "support/test_dir.h"
#include "streams/archive/archive_lock.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* An open archive with a durable state. */
static struct file_archive *open_with_state(size_t max_open)
{
    struct file_archive *a = open_begun(max_open);
    assert_int_equal(file_archive_flush(a), 0);
    assert_true(file_archive_has_state(a));
    return a;
}

static void finish_all(struct file_archive *a)
{
    file_archive_roll(a);
    for (usec_t end = 0; file_archive_numbers(a).finishing > 0 && is_early(&end);)
        tick(a);
    assert_int_equal(file_archive_numbers(a).finishing, 0);
}

static void refuse_to_open(const char *why)
{
    struct error error;
    struct file_archive_config config = {
        .format = format, .state_path = state_path, .stream = "s", .by_event_time = true, .max_open = 4};
    assert_null(file_archive_open(&config, now, &error));
    if (strstr(error.text, why) == NULL)
        fail_msg("%s", error.text);
}

/* Its lines are read from the stream again: nothing says that there was a state. */
static void test_a_crash_before_the_first_state(void **state)
{
    struct buf all = {0};
    (void)state;
    struct file_archive *a = open_begun(4);
    take_line(a, 0);
    take_run(a, &all, 'a', 1000);
    assert_int_equal(file_archive_numbers(a).pending, 0);
    check_file("@0.part", &all);
    file_archive_close(&a);
    a = open_begun(4);
    assert_false(file_archive_has_state(a));
    assert_false(is_there("@0.part"));
    take_line(a, 0);
    finish_all(a);
    check_content("0000", "{}\n");
    file_archive_close(&a);
    buf_free(&all);
}

static void test_a_new_file_is_written_before_a_state_names_it(void **state)
{
    struct buf all = {0};
    (void)state;
    struct file_archive *a = open_with_state(4);
    take_line(a, 0);
    take_run(a, &all, 'a', 1000);
    assert_int_equal(file_archive_numbers(a).pending, 0);
    assert_int_equal(file_archive_committed(a)->offset, 0);
    check_file("@0.part", &all);
    assert_false(is_there("0000"));
    file_archive_close(&a);
    buf_free(&all);
}

/* Its lines are read from the stream again; lines behind a committed length are cut off. */
static void test_a_start_deletes_what_no_state_names(void **state)
{
    struct buf all = {0};
    (void)state;
    struct file_archive *a = open_with_state(4);
    take_line(a, 60);
    assert_int_equal(file_archive_flush(a), 0);
    take_line(a, 60);
    take_line(a, 0);
    take_run(a, &all, 'a', 1000);
    file_archive_write(a);
    assert_true(is_there("@6.part"));
    check_content("@0.part", "{}\n{}\n");
    file_archive_close(&a);
    write_file("@6.part.summary", "");
    a = open_archive(4);
    assert_false(is_there("@6.part") || is_there("@6.part.summary"));
    check_content("@0.part", "{}\n");
    assert_int_equal(file_archive_cursor(a)->offset, 3);
    take_line(a, 0);
    finish_all(a);
    check_content("0000", "{}\n");
    check_content("0001", "{}\n");
    file_archive_close(&a);
    buf_free(&all);
}

static void test_staged_files_without_their_state_are_kept(void **state)
{
    (void)state;
    struct file_archive *a = open_with_state(4);
    take_line(a, 0);
    assert_int_equal(file_archive_flush(a), 0);
    file_archive_close(&a);
    assert_int_equal(unlink(state_path), 0);
    refuse_to_open("state");
    check_content("@0.part", "{}\n");
    remove_file("@0.part");
    a = open_archive(4);
    file_archive_close(&a);
}

static int creations_refused;

static int refuse_creation(const char *path, int flags, mode_t mode)
{
    if (!no_room || (flags & O_CREAT) == 0 || strstr(path, ".part") == NULL)
        return real_io->open(path, flags, mode);
    creations_refused++;
    errno = ENOSPC;
    return -1;
}

static void test_a_file_that_cannot_be_created_waits_for_space(void **state)
{
    struct io_ops full = *io;
    struct buf all = {0};
    (void)state;
    full.open = refuse_creation;
    creations_refused = 0;
    struct file_archive *a = open_with_state(4);
    real_io = io;
    io = &full;
    no_room = true;
    take_line(a, 0);
    take_run(a, &all, 'a', 1000);
    assert_true(file_archive_is_full(a));
    for (usec_t end = 0; creations_refused < 3 && is_early(&end);)
        tick(a);
    assert_in_range(creations_refused, 3, 1000);
    assert_int_equal(file_archive_committed(a)->offset, 0);
    wait_for_room(a);
    check_file("@0.part", &all);
    assert_int_equal(file_archive_committed(a)->offset, 3 + all.len);
    file_archive_close(&a);
    buf_free(&all);
}

/* The first space after a full disk is for complete files. */
static void test_no_file_is_created_before_what_waits_is_published(void **state)
{
    struct io_ops full = *io;
    struct buf all = {0};
    (void)state;
    full.pwrite = write_where_room;
    full.pwritev = write_no_parts;
    without_room = ".part.manifest";
    real_io = io;
    io = &full;
    struct file_archive *a = open_with_state(4);
    take_line(a, 0);
    file_archive_roll(a);
    for (usec_t end = 0; !file_archive_numbers(a).is_short && is_early(&end);)
        tick(a);
    assert_int_equal(file_archive_flush(a), 0);
    no_room = true;
    take_line(a, 60);
    take_run(a, &all, 'a', 1000);
    no_room = false;
    assert_int_equal(file_archive_numbers(a).pending, 3 + all.len);
    uint64_t commits = file_archive_numbers(a).commits;
    for (int i = 0; i < 20; i++) {
        tick(a);
        file_archive_write(a);
    }
    assert_true(file_archive_is_full(a));
    assert_int_equal(file_archive_numbers(a).pending, 3 + all.len);
    assert_int_equal(file_archive_numbers(a).commits, commits);
    without_room = "no such name";
    for (usec_t end = 0; file_archive_numbers(a).pending > 0 && is_early(&end); now += USEC_PER_SEC)
        wait_a_moment(a);
    assert_int_equal(file_archive_numbers(a).pending, 0);
    assert_int_equal(file_archive_numbers(a).finished, 1);
    file_archive_close(&a);
    io = real_io;
    buf_free(&all);
}

static void test_two_files_of_one_name(void **state)
{
    struct buf all = {0}, next = {0};
    (void)state;
    struct file_archive *a = open_with_state(4);
    take_line(a, 0);
    take_run(a, &all, 'a', 1000);
    file_archive_roll(a);
    take_line(a, 0);
    take_run(a, &next, 'b', 1000);
    assert_false(is_there("0000") || is_there("0000.1"));
    finish_all(a);
    check_file("0000", &all);
    check_file("0000.1", &next);
    assert_true(is_there("0000.manifest.json") && is_there("0000.1.manifest.json"));
    file_archive_close(&a);
    buf_free(&all);
    buf_free(&next);
}

/* Only as many descriptors as max_open and a few more are needed, however many files one call begins. */
static int open_staged, open_staged_max;

static int count_open(const char *path, int flags, mode_t mode)
{
    int fd = real_io->open(path, flags, mode);
    size_t n = strlen(path);
    open_staged += fd >= 0 && n > 5 && strcmp(path + n - 5, ".part") == 0;
    if (open_staged <= 2 || strcmp(path + n - 5, ".part") != 0)
        return fd;
    real_io->close(fd);
    open_staged--;
    errno = EMFILE;
    return -1;
}

static int count_close(int fd)
{
    char link[40], path[300] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    size_t n = readlink(link, path, sizeof path - 1) > 0 ? strlen(path) : 0;
    open_staged -= n > 5 && strcmp(path + n - 5, ".part") == 0;
    return real_io->close(fd);
}

static void test_more_files_than_descriptors(void **state)
{
    struct io_ops counting = *io;
    (void)state;
    counting.open = count_open;
    counting.close = count_close;
    open_staged = open_staged_max = 0;
    struct file_archive *a = open_with_state(2);
    real_io = io;
    io = &counting;
    take_minutes(a, 6);
    assert_int_equal(file_archive_flush(a), 0);
    assert_int_equal(file_archive_committed(a)->offset, 18);
    assert_int_equal(file_archive_numbers(a).shortages, 0);
    io = real_io;
    finish_all(a);
    for (int i = 0; i < 6; i++)
        check_content((const char *[]){"0000", "0001", "0002", "0003", "0004", "0005"}[i], "{}\n");
    file_archive_close(&a);
}

/* A rename does not leave a file system: it is refused with the first line, not when the file is complete. */
static void test_a_target_on_another_file_system_is_refused(void **state)
{
    char other[64], link[100];
    struct stat here, there;
    bool final;
    (void)state;
    make_other_dir(other, sizeof other);
    if (stat(other, &there) != 0 || stat(directory, &here) != 0 || here.st_dev == there.st_dev)
        skip();
    snprintf(format, sizeof format, "%s/%%H/%%M", directory);
    snprintf(link, sizeof link, "%s/00", directory);
    assert_int_equal(symlink(other, link), 0);
    struct file_archive *a = open_with_state(4);
    take_line(a, 0);
    assert_int_equal(file_archive_flush(a), -1);
    assert_non_null(strstr(file_archive_trouble(a, &final), strerror(EXDEV)));
    assert_true(final);
    file_archive_close(&a);
    assert_int_equal(rmdir(other), 0);
}

/* Another archive took over a pattern that was free. A crash before its first state must not stop it. */
static void test_a_crash_before_the_first_state_of_the_next_archive(void **state)
{
    struct buf all = {0};
    (void)state;
    struct file_archive *a = open_with_state(4);
    file_archive_close(&a);
    strcat(state_path, ".next");
    a = open_begun(4);
    take_line(a, 0);
    take_run(a, &all, 'a', 1000);
    check_file("@0.part", &all);
    file_archive_close(&a);
    a = open_begun(4);
    assert_false(is_there("@0.part"));
    file_archive_close(&a);
    buf_free(&all);
}

/* Cleaners of empty directories delete it while the file is staged. */
static void test_a_deleted_target_directory_is_made_again(void **state)
{
    char path[60];
    (void)state;
    snprintf(format, sizeof format, "%s/%%H/%%M", directory);
    snprintf(path, sizeof path, "%s/00", directory);
    struct file_archive *a = open_with_state(4);
    take_line(a, 0);
    assert_int_equal(file_archive_flush(a), 0);
    assert_int_equal(rmdir(path), 0);
    finish_all(a);
    check_content("00/00", "{}\n");
    assert_true(is_there("00/00.manifest.json"));
    file_archive_close(&a);
}

/* A mover takes each file at once, and the directory that this leaves empty. */
static int take_away(const char *from, const char *to)
{
    char path[60];
    int rc = real_io->rename_new(from, to);
    snprintf(path, sizeof path, "%s/00", directory);
    if (rc == 0 && strstr(to, ".manifest.json") == NULL) {
        assert_int_equal(unlink(to), 0);
        remove_file("00/00.manifest.json");
        assert_int_equal(rmdir(path), 0);
    }
    return rc;
}

static void test_a_mover_takes_the_directory_too(void **state)
{
    struct io_ops moving = *io;
    bool final;
    (void)state;
    moving.rename_new = take_away;
    snprintf(format, sizeof format, "%s/%%H/%%M", directory);
    struct file_archive *a = open_with_state(4);
    real_io = io;
    io = &moving;
    take_line(a, 0);
    finish_all(a);
    io = real_io;
    assert_int_equal(file_archive_numbers(a).finished, 1);
    assert_null(file_archive_trouble(a, &final));
    assert_false(is_there("@0.part"));
    file_archive_close(&a);
}

/* The mover takes the manifest before the file has its name, and another program takes the name. */
static int take_name(const char *from, const char *to)
{
    int rc = real_io->rename_new(from, to);
    if (rc == 0 && strstr(to, "0000.manifest.json") != NULL) {
        assert_int_equal(unlink(to), 0);
        write_file("0000", "theirs");
    }
    return rc;
}

static void test_a_mover_takes_the_manifest_and_another_the_name(void **state)
{
    struct io_ops moving = *io;
    (void)state;
    moving.rename_new = take_name;
    struct file_archive *a = open_with_state(4);
    real_io = io;
    io = &moving;
    take_line(a, 0);
    finish_all(a);
    io = real_io;
    check_content("0000", "theirs");
    check_content("0000.1", "{}\n");
    file_archive_close(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {T(test_a_crash_before_the_first_state),
        T(test_a_new_file_is_written_before_a_state_names_it), T(test_a_start_deletes_what_no_state_names),
        T(test_staged_files_without_their_state_are_kept),
        T(test_a_file_that_cannot_be_created_waits_for_space),
        T(test_no_file_is_created_before_what_waits_is_published), T(test_two_files_of_one_name),
        T(test_more_files_than_descriptors), T(test_a_target_on_another_file_system_is_refused),
        T(test_a_crash_before_the_first_state_of_the_next_archive),
        T(test_a_deleted_target_directory_is_made_again), T(test_a_mover_takes_the_directory_too),
        T(test_a_mover_takes_the_manifest_and_another_the_name)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
