/* Files of an archive that have no name until a state that names them is safe, and what is where there are none. */
#include "support/archive_fixture.h"
#include <errno.h>
#include <fcntl.h>

static int nameless_opened, names_refused;

/* As a file system that has no files without a name. */
static int open_no_nameless(const char *path, int flags, mode_t mode)
{
    if ((flags & O_TMPFILE) != O_TMPFILE)
        return real_io->open(path, flags, mode);
    errno = EOPNOTSUPP;
    return -1;
}

static int count_nameless(const char *path, int flags, mode_t mode)
{
    nameless_opened += (flags & O_TMPFILE) == O_TMPFILE;
    return real_io->open(path, flags, mode);
}

static int refuse_name(int fd, const char *path)
{
    if (!no_room)
        return real_io->name(fd, path);
    names_refused++;
    errno = ENOSPC;
    return -1;
}

static int forbid_name(int fd, const char *path)
{
    (void)fd, (void)path;
    names_refused++;
    errno = EPERM;
    return -1;
}

static void skip_without_nameless_files(void)
{
    int fd = io_open_nameless(directory, 0666);
    if (fd < 0)
        skip();
    io->close(fd);
}

/* With a line in a new file, and a large run behind it. */
static struct file_archive *open_with_a_run(const struct io_ops *table, struct buf *all)
{
    real_io = io;
    io = table;
    struct file_archive *a = open_begun(4);
    take_line(a, 0);
    take_run(a, all, 'a', 1000);
    return a;
}

static void flush_and_check(struct file_archive *a, const struct buf *all)
{
    assert_int_equal(file_archive_flush(a), 0);
    assert_int_equal(file_archive_numbers(a).pending, 0);
    check_file("0000.part", all);
    file_archive_close(&a);
    io = real_io;
}

/* No state names it yet: so it is written to, and nothing can be seen of it. */
static void test_a_new_file_takes_lines_before_it_has_a_name(void **state)
{
    struct buf all = {0}, again = {0};
    (void)state;
    skip_without_nameless_files();
    struct file_archive *a = open_with_a_run(io, &all);
    assert_int_equal(file_archive_numbers(a).pending, 0);
    assert_false(is_there("0000.part"));
    file_archive_close(&a);
    assert_false(is_there("0000.part"));
    a = open_with_a_run(io, &again);
    take_run(a, &again, 'b', 3);
    flush_and_check(a, &again);
    buf_free(&all);
    buf_free(&again);
}

static void test_lines_of_a_new_file_wait_where_there_are_no_nameless_files(void **state)
{
    struct io_ops named = *io;
    struct buf all = {0};
    (void)state;
    named.open = open_no_nameless;
    struct file_archive *a = open_with_a_run(&named, &all);
    assert_int_equal(file_archive_numbers(a).pending, 3 + all.len);
    flush_and_check(a, &all);
    buf_free(&all);
}

/* Its lines are in what had no name, or in memory: see test_a_part_that_somebody_has_made_meanwhile. */
static void made_while_lines_waited(const struct io_ops *table)
{
    struct buf all = {0};
    struct file_archive *a = open_with_a_run(table, &all);
    write_file("0000.part", "theirs");
    assert_int_equal(file_archive_flush(a), 0);
    take_run(a, &all, 'b', 1000);
    assert_int_equal(file_archive_flush(a), 0);
    file_archive_close(&a);
    check_content("0000.part", "theirs");
    check_file("0000.1.part", &all);
    a = open_archive(4); /* the state knows of no other */
    assert_int_equal(file_archive_numbers(a).open, 1);
    file_archive_close(&a);
    io = real_io;
    buf_free(&all);
}

static void test_a_part_that_was_made_while_lines_waited(void **state)
{
    struct io_ops named = *io;
    (void)state;
    named.open = open_no_nameless;
    made_while_lines_waited(&named);
}

static _Atomic int most_named;

/* No state is on the disk for long: each is looked at. */
static int rename_and_look(const char *from, const char *to)
{
    int rc = real_io->rename(from, to), n = files_named("0000");
    most_named = n > most_named ? n : most_named;
    return rc;
}

/* What it was to be called is the name of another new file, once the other's is gone: a state never has a name twice. */
static void test_a_name_that_was_given_up_is_given_again(void **state)
{
    struct io_ops named = *io;
    (void)state;
    named.open = open_no_nameless;
    named.rename = rename_and_look;
    most_named = 0;
    real_io = io;
    io = &named;
    struct file_archive *a = open_begun(4);
    take_line(a, 0);
    write_file("0000.part", "theirs");
    for (usec_t end = 0; file_archive_numbers(a).commits == 0 && is_early(&end);)
        tick(a);
    remove_file("0000.part");
    file_archive_roll(a);
    take_line(a, 0);
    assert_int_equal(file_archive_flush(a), 0);
    assert_int_equal(most_named, 1);
    assert_int_equal(files_named("0000.1"), 1);
    check_content("0000.part", "{}\n");
    file_archive_close(&a);
    io = real_io;
}

static void test_a_part_that_was_made_while_one_had_no_name(void **state)
{
    (void)state;
    skip_without_nameless_files();
    made_while_lines_waited(io);
}

/* Its lines are in no commit before. */
static void test_a_name_for_which_there_is_no_room_is_given_later(void **state)
{
    struct io_ops lacking = *io;
    struct buf all = {0};
    (void)state;
    skip_without_nameless_files();
    lacking.name = refuse_name;
    no_room = true;
    names_refused = 0;
    struct file_archive *a = open_with_a_run(&lacking, &all);
    for (usec_t end = 0; !file_archive_is_full(a) && is_early(&end);)
        tick(a);
    assert_int_not_equal(names_refused, 0);
    for (int i = 0; i < 20; i++)
        tick(a);
    assert_int_equal(file_archive_committed(a)->offset, 0);
    wait_for_room(a);
    flush_and_check(a, &all);
    buf_free(&all);
}

static void test_what_may_not_get_a_name_is_copied(void **state)
{
    struct io_ops forbidding = *io;
    struct buf all = {0};
    (void)state;
    skip_without_nameless_files();
    forbidding.name = forbid_name;
    names_refused = 0;
    struct file_archive *a = open_with_a_run(&forbidding, &all);
    for (char letter = 'b'; letter < 'k'; letter++)
        take_run(a, &all, letter, 1000);
    assert_int_equal(file_archive_numbers(a).pending, 0);
    assert_int_equal(file_archive_flush(a), 0);
    assert_int_equal(names_refused, 1);
    take_run(a, &all, 'k', 10);
    flush_and_check(a, &all);
    buf_free(&all);
}

/* The first room after a full disk is for what waits to be finished. */
static void test_no_file_gets_a_name_before_what_waits_is_finished(void **state)
{
    struct io_ops lacking = *io;
    struct buf all = {0};
    (void)state;
    skip_without_nameless_files();
    lacking.pwrite = write_where_room;
    lacking.pwritev = write_no_parts;
    without_room = "0000.manifest.json.new";
    real_io = io;
    io = &lacking;
    struct file_archive *a = open_begun(4);
    take_line(a, 0);
    file_archive_roll(a);
    for (usec_t end = 0; !file_archive_numbers(a).wanting && is_early(&end);)
        tick(a);
    assert_int_equal(file_archive_flush(a), 0);
    uint64_t commits = file_archive_numbers(a).commits;
    take_line(a, 60);
    tick(a); /* the state that names it is being written */
    no_room = true;
    take_run(a, &all, 'a', 1000);
    no_room = false;
    for (usec_t end = 0; file_archive_numbers(a).commits == commits && is_early(&end);)
        tick(a);
    assert_int_equal(file_archive_numbers(a).commits, commits + 1);
    assert_int_equal(files_named("0001"), 1);
    assert_false(is_there("0001.part"));
    without_room = "no such name";
    for (usec_t end = 0; !is_there("0001.part") && is_early(&end); now += USEC_PER_SEC)
        wait_a_moment(a);
    assert_true(is_there("0001.part"));
    assert_int_equal(file_archive_numbers(a).finished, 1);
    file_archive_close(&a);
    io = real_io;
    buf_free(&all);
}

/* Half a copy does not stay: the next try makes it anew, under the same name. */
static void test_a_copy_for_which_there_is_no_room_is_made_later(void **state)
{
    struct io_ops forbidding = *io;
    struct buf all = {0};
    (void)state;
    skip_without_nameless_files();
    forbidding.name = forbid_name;
    forbidding.pwrite = write_where_room;
    without_room = "0000.part";
    names_refused = 0;
    struct file_archive *a = open_with_a_run(&forbidding, &all);
    for (usec_t end = 0; names_refused < 3 && is_early(&end);)
        tick(a);
    assert_in_range(names_refused, 3, 1000);
    assert_false(is_there("0000.part"));
    without_room = "no such name";
    wait_for_room(a);
    assert_false(is_there("0000.1.part"));
    flush_and_check(a, &all);
    buf_free(&all);
}

/* A crash comes when the state names it and it has no name yet. */
static void test_a_state_names_what_a_crash_took_away(void **state)
{
    struct io_ops lacking = *io;
    struct buf all = {0}, again = {0};
    (void)state;
    skip_without_nameless_files();
    lacking.name = refuse_name;
    no_room = true;
    names_refused = 0;
    struct file_archive *a = open_with_a_run(&lacking, &all);
    for (usec_t end = 0; names_refused == 0 && is_early(&end);)
        tick(a);
    file_archive_close(&a);
    assert_false(is_there("0000.part"));
    io = real_io;
    a = open_archive(4);
    assert_int_equal(file_archive_numbers(a).open, 1);
    assert_int_equal(file_archive_cursor(a)->offset, 0);
    take_line(a, 0);
    take_run(a, &again, 'b', 1000);
    flush_and_check(a, &again);
    buf_free(&all);
    buf_free(&again);
}

/* It is finished as any other. */
static void test_a_roll_of_a_file_without_a_name(void **state)
{
    struct buf all = {0}, next = {0};
    (void)state;
    skip_without_nameless_files();
    struct file_archive *a = open_with_a_run(io, &all);
    file_archive_roll(a);
    take_line(a, 0);
    take_run(a, &next, 'b', 1000);
    file_archive_roll(a);
    assert_false(is_there("0000.part") || is_there("0000.1.part"));
    for (usec_t end = 0; file_archive_numbers(a).finished < 2 && is_early(&end);)
        tick(a);
    check_file("0000", &all);
    check_file("0000.1", &next);
    assert_true(is_there("0000.manifest.json") && is_there("0000.1.manifest.json"));
    file_archive_close(&a);
    io = real_io;
    buf_free(&all);
    buf_free(&next);
}

/* As without /proc: nothing would give it a name. */
static int open_unseen(const char *path, int flags, mode_t mode)
{
    int fd = real_io->open(path, flags, mode);
    if (fd >= 0 && (flags & O_TMPFILE) == O_TMPFILE)
        real_io->close(fd);
    return fd;
}

static int closed;

static int close_unseen(int fd)
{
    closed++;
    return fd < 0 ? -1 : 0;
}

static void test_no_nameless_files_without_proc(void **state)
{
    struct io_ops unseen = *io;
    (void)state;
    skip_without_nameless_files();
    unseen.open = open_unseen;
    unseen.close = close_unseen;
    closed = 0;
    real_io = io;
    io = &unseen;
    int fd = io_open_nameless(directory, 0666), saved = errno;
    io = real_io;
    assert_int_equal(fd, -1);
    assert_int_equal(saved, EOPNOTSUPP);
    assert_int_equal(closed, 1);
}

/* They keep their descriptors until a state names them: no more of them than files may be open. */
static void test_as_many_nameless_files_as_may_be_open(void **state)
{
    struct io_ops counting = *io;
    (void)state;
    skip_without_nameless_files();
    counting.open = count_nameless;
    nameless_opened = 0;
    real_io = io;
    io = &counting;
    struct file_archive *a = open_begun(2);
    take_minutes(a, 6);
    assert_int_equal(nameless_opened, 2);
    assert_int_equal(file_archive_flush(a), 0);
    assert_int_equal(file_archive_committed(a)->offset, 18);
    file_archive_close(&a);
    io = real_io;
}

int main(void)
{
    const struct CMUnitTest tests[] = {T(test_a_new_file_takes_lines_before_it_has_a_name),
        T(test_lines_of_a_new_file_wait_where_there_are_no_nameless_files),
        T(test_a_part_that_was_made_while_lines_waited), T(test_a_name_that_was_given_up_is_given_again),
        T(test_a_part_that_was_made_while_one_had_no_name),
        T(test_a_name_for_which_there_is_no_room_is_given_later),
        T(test_no_file_gets_a_name_before_what_waits_is_finished), T(test_what_may_not_get_a_name_is_copied),
        T(test_a_copy_for_which_there_is_no_room_is_made_later), T(test_a_state_names_what_a_crash_took_away),
        T(test_a_roll_of_a_file_without_a_name), T(test_no_nameless_files_without_proc),
        T(test_as_many_nameless_files_as_may_be_open)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
