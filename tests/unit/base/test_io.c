/* io_make_dirs: which directories are synced, in which order, and what a power cut takes where the program was killed on the
 * way and started again. Of writes in parts: that the storage the tests pretend knows of them. What signals interrupt. */
#include "base/bytes.h"
#include "support/cm.h"
#include "base/io.h"
#include "support/power.h"
#include "support/shell.h"
#include "support/test_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

static char root[64];
static struct io_ops noting;
static struct buf done;              /* what was made and synced, below the root */
static int refuse_open, refuse_sync; /* 0, or an errno */

/* Below the root; "." for itself, ".." for where it lies. */
static const char *below_root(const char *path)
{
    size_t n = strlen(root);
    if (path[0] == '/' && strncmp(path, root, n) != 0)
        return "..";
    if (path[0] != '/')
        return path;
    return path[n] ? path + n + 1 : ".";
}

static int noting_open(const char *path, int flags, mode_t mode)
{
    errno = refuse_open;
    return refuse_open ? -1 : io_system.open(path, flags, mode);
}

static int noting_fsync(int fd)
{
    char link[64], path[PATH_MAX] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    assert_true(readlink(link, path, sizeof path - 1) > 0);
    buf_printf(&done, "sync %s;", below_root(path));
    errno = refuse_sync;
    return refuse_sync ? -1 : io_system.fsync(fd);
}

static int noting_mkdir(const char *path, mode_t mode)
{
    int failed = io_system.mkdir(path, mode);
    if (!failed)
        buf_printf(&done, "make %s;", below_root(path));
    return failed;
}

static int set_up(void **state)
{
    (void)state;
    make_test_dir(root, sizeof root);
    refuse_open = refuse_sync = 0;
    noting = io_system;
    noting.open = noting_open;
    noting.fsync = noting_fsync;
    noting.mkdir = noting_mkdir;
    io = &noting;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    io = &io_system;
    buf_free(&done);
    shell("rm -rf %s", root);
    return 0;
}

static const char *full(const char *path)
{
    static char text[PATH_MAX];
    snprintf(text, sizeof text, "%s/%s", root, path);
    return text;
}

static void expect_done(const char *path, const char *what)
{
    buf_clear(&done);
    assert_int_equal(io_make_dirs(full(path)), 0);
    buf_append_char(&done, '\0');
    assert_string_equal(done.ptr, what);
    struct stat st;
    assert_true(stat(full(path), &st) == 0 && S_ISDIR(st.st_mode));
}

static void expect_failed(const char *path, int why)
{
    assert_int_equal(io_make_dirs(path), -1);
    assert_int_equal(errno, why);
}

static void test_each_name_is_durable_before_anything_is_made_in_it(void **state)
{
    (void)state;
    expect_done("a/b/c", "sync ..;make a;sync .;make a/b;sync a;make a/b/c;sync a/b;");
}

/* Whoever made it may have been killed before it was durable. */
static void test_the_name_of_what_is_there_is_synced(void **state)
{
    (void)state;
    assert_int_equal(mkdir(full("a"), 0777), 0);
    expect_done("a/b/c", "sync .;make a/b;sync a;make a/b/c;sync a/b;");
    expect_done("a/b/c", "sync a/b;");
    expect_done("a", "sync .;");
}

static void test_slashs(void **state)
{
    (void)state;
    expect_done("a//b///c/", "sync ..;make a;sync .;make a//b;sync a;make a//b///c;sync a/b;");
    expect_done("a/b/c//", "sync a/b;");
    assert_int_equal(io_make_dirs("/"), 0);
}

static void test_relative_paths(void **state)
{
    char before[PATH_MAX];
    (void)state;
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(root), 0);
    assert_int_equal(io_make_dirs("a/b"), 0);
    assert_int_equal(io_make_dirs("a"), 0);
    assert_int_equal(io_make_dirs("."), 0);
    assert_int_equal(chdir(before), 0);
    buf_append_char(&done, '\0');
    assert_string_equal(done.ptr, "make a;sync .;make a/b;sync a;sync .;sync .;");
}

/* A daemon's directory may lie in one that its user cannot read, or on a file system that has no syncs. */
static void test_a_parent_that_cannot_be_synced_and_made_nothing(void **state)
{
    static const int foreign[] = {EACCES, EPERM, EROFS, EINVAL};
    (void)state;
    expect_done("a", "sync ..;make a;sync .;");
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        refuse_open = foreign[i];
        expect_done("a", "");
        refuse_open = 0;
        refuse_sync = foreign[i];
        expect_done("a", "sync .;");
        refuse_sync = 0;
    }
}

static void test_what_fails(void **state)
{
    char long_path[PATH_MAX + 10];
    (void)state;
    memset(long_path, 'x', sizeof long_path);
    long_path[sizeof long_path - 1] = '\0';
    expect_failed("", ENOENT);
    expect_failed(long_path, ENAMETOOLONG);
    close(open(full("file"), O_WRONLY | O_CREAT, 0666));
    expect_failed(full("file"), ENOTDIR);
    expect_failed(full("file/a/b"), ENOTDIR);
    assert_int_equal(symlink("nowhere", full("link")), 0);
    expect_failed(full("link"), ENOENT);
    refuse_sync = EIO;
    expect_failed(full("a/b"), EIO); /* a is there, and nothing in it */
    expect_failed(full("a"), EIO);
    refuse_sync = EACCES;
    expect_failed(full("b"), EACCES);
    refuse_open = EMFILE;
    expect_failed(full("a"), EMFILE);
}

/* What a program does that writes a file below and calls it stored. */
static bool store(void)
{
    if (io_make_dirs(full("a/b")) != 0)
        return false;
    int fd = io->open(full("a/b/file"), O_WRONLY | O_CREAT, 0666);
    bool stored = fd >= 0 && io_write_all(fd, "text", 4, 0) == 0 && io->fdatasync(fd) == 0 &&
                  io_sync_parent(full("a/b/file")) == 0;
    if (fd >= 0)
        io->close(fd);
    return stored;
}

static void test_killed_anywhere_then_a_cut(void **state)
{
    struct stat st;
    unsigned seed = 1, at = 0;
    bool killed = true;
    for (; killed; at++) {
        set_up(state);
        power_on(POWER_KILL, at + 1);
        bool stored = store();
        killed = power_is_cut();
        assert_true(stored != killed);
        power_revive(POWER_NONE, 0);
        assert_true(store());
        power_cut_now();
        power_off(&seed);
        assert_true(stat(full("a/b/file"), &st) == 0 && st.st_size == 4);
        tear_down(state);
    }
    assert_true(at > 7);
}

static char text[] = "parts";
static const struct iovec parts[] = {{text, 3}, {text + 3, 1}, {text + 4, 1}};

static int put_parts(enum power_fault fault, unsigned at, int *fd)
{
    power_on(POWER_NONE, 0);
    *fd = io->open(full("file"), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    assert_true(*fd >= 0 && io_sync_parent(full("file")) == 0);
    power_revive(fault, at);
    return io_write_parts(*fd, parts, 3, 0);
}

static void assert_file_holds(const char *wanted)
{
    char got[16] = "";
    int fd = open(full("file"), O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0 && read(fd, got, sizeof got - 1) >= 0);
    close(fd);
    assert_string_equal(got, wanted);
}

/* The storage that tests pretend knows of parts what it knows of a whole. */
static void test_parts_that_are_not_synced_go_with_the_power(void **state)
{
    unsigned seed = 1;
    int fd;
    for (int synced = 0; synced < 2; synced++) {
        assert_int_equal(put_parts(POWER_NONE, 0, &fd), 0);
        assert_int_equal(power_operations(), 1);
        assert_int_equal(synced ? io->fsync(fd) : 0, 0);
        power_cut_now();
        close(fd);
        power_off(&seed);
        assert_file_holds(synced ? "parts" : "");
        tear_down(state);
        set_up(state);
    }
}

static void test_parts_that_fail_or_stop_short(void **state)
{
    unsigned seed = 1;
    int fd;
    (void)state;
    assert_int_equal(put_parts(POWER_EIO, 1, &fd), -1);
    close(fd);
    power_off(&seed);
    assert_file_holds("");
    assert_int_equal(put_parts(POWER_SHORT, 1, &fd), 0);
    close(fd);
    power_off(&seed);
    assert_file_holds("parts");
}

static int signals, asked;

static int interrupted_fallocate(int fd, int mode, off_t from, off_t n)
{
    (void)fd;
    (void)mode;
    asked++;
    errno = signals > 0 ? EINTR : ENOSPC;
    return signals-- > 0 || from + n > 10 ? -1 : 0;
}

static void test_what_a_signal_interrupts_is_allocated_again(void **state)
{
    (void)state;
    noting = io_system;
    noting.fallocate = interrupted_fallocate;
    io = &noting;
    asked = 0;
    signals = 3;
    assert_int_equal(io_allocate(0, 0, 0, 10), 0);
    assert_int_equal(asked, 4);
    signals = 1;
    assert_int_equal(io_allocate(0, 0, 0, 11), -1);
    assert_int_equal(errno, ENOSPC);
    assert_int_equal(asked, 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_each_name_is_durable_before_anything_is_made_in_it),
        T(test_the_name_of_what_is_there_is_synced),
        T(test_slashs),
        T(test_relative_paths),
        T(test_a_parent_that_cannot_be_synced_and_made_nothing),
        T(test_what_fails),
        T(test_parts_that_are_not_synced_go_with_the_power),
        T(test_parts_that_fail_or_stop_short),
        T(test_what_a_signal_interrupts_is_allocated_again),
        cmocka_unit_test(test_killed_anywhere_then_a_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
