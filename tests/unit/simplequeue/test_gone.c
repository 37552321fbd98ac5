/* gone: what is marked is there in the next life, across blocks; what a disk without room refuses, and what a failing one does. */
#include "simplequeue/queue/gone.h"

#include "base/io.h"
#include "support/shell.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define JOURNAL "0123456789abcdef0123456789abcdef"
#define OTHER "0123456789abcdef0123456789abcdee"

static char dir[64];
static struct gone *g;
static struct io_ops faulty;
static int write_errno, allocate_errno, sync_errno, open_errno;
static off_t fails_from; /* writes from there on fail with write_errno */
static int syncs;

static ssize_t faulty_pwrite(int fd, const void *p, size_t n, off_t at)
{
    bool fails = write_errno && at >= fails_from;
    errno = write_errno;
    return fails ? -1 : io_system.pwrite(fd, p, n, at);
}

static off_t allocated_from, allocated_to; /* by the last call */

static int faulty_fallocate(int fd, int mode, off_t at, off_t length)
{
    allocated_from = at;
    allocated_to = at + length;
    errno = allocate_errno;
    return allocate_errno ? -1 : io_system.fallocate(fd, mode, at, length);
}

static int faulty_open(const char *path, int flags, mode_t mode)
{
    errno = open_errno;
    return open_errno ? -1 : io_system.open(path, flags, mode);
}

static int faulty_fdatasync(int fd)
{
    syncs++;
    errno = sync_errno;
    return sync_errno ? -1 : io_system.fdatasync(fd);
}

static void open_for(const char *journal)
{
    char error[256];
    gone_free(&g);
    g = gone_open(dir, journal, true, error, sizeof error);
    assert_non_null(g);
}

static int make(void **state)
{
    (void)state;
    faulty = io_system;
    faulty.pwrite = faulty_pwrite;
    faulty.fallocate = faulty_fallocate;
    faulty.fdatasync = faulty_fdatasync;
    faulty.open = faulty_open;
    write_errno = allocate_errno = sync_errno = open_errno = syncs = 0;
    fails_from = 0;
    io = &faulty;
    snprintf(dir, sizeof dir, "/tmp/test_gone.XXXXXX");
    assert_non_null(mkdtemp(dir));
    open_for(JOURNAL);
    return 0;
}

static int clean_up(void **state)
{
    (void)state;
    gone_free(&g);
    io = &io_system;
    shell("rm -rf %s", dir);
    return 0;
}

static int set(uint64_t first, uint64_t last)
{
    struct id_range range = {first, last};
    return gone_set(g, &(struct id_ranges){.at = &range, .n = 1, .count = last - first + 1});
}

static void note(struct id_range range, void *arg)
{
    id_ranges_add_range(arg, range);
}

/* What is marked from there on is exactly these ranges; one that goes over a block's end comes in two. */
static void expect(uint64_t from, const struct id_range *ranges, size_t n)
{
    struct id_ranges found = {0};
    assert_int_equal(gone_each(g, from, note, &found), 0);
    assert_int_equal(found.n, n);
    assert_memory_equal(found.at, ranges, n * sizeof *ranges);
    id_ranges_free(&found);
}

static void marks_are_kept(void **state)
{
    const uint64_t hole = UINT64_C(1) << 32, end = GONE_BLOCK_IDS;
    const struct id_range all[] = {{1, 1}, {9, 20}, {end - 3, 2 * end + 1}, {hole + 7, hole + 7}};
    (void)state;
    expect(0, NULL, 0);
    assert_int_equal(gone_reserve(g, 1, 3 * end), 0);
    assert_int_equal(gone_reserve(g, hole, hole + 9), 0);
    expect(0, NULL, 0);
    for (size_t i = 4; i-- > 0;)
        assert_int_equal(set(all[i].first, all[i].last), 0);
    assert_int_equal(syncs, 4);
    for (int i = 0; i < 2; i++) {
        expect(0, all, 4);
        expect(hole, all + 3, 1);
        expect(12, (struct id_range[]){{12, 20}, all[2], all[3]}, 3);
        open_for(JOURNAL);
    }
    assert_int_equal(set(10, 11), 0);
    expect(0, all, 4);
}

static void another_journals_marks_count_for_nothing(void **state)
{
    (void)state;
    assert_int_equal(set(5, 5), 0);
    open_for(OTHER);
    expect(0, NULL, 0);
    assert_int_equal(set(6, 6), 0);
    expect(0, (struct id_range[]){{6, 6}}, 1);
    open_for(JOURNAL);
    expect(0, NULL, 0);
}

static uint64_t disk_blocks(void)
{
    char path[128];
    struct stat st;
    snprintf(path, sizeof path, "%s/gone", dir);
    assert_int_equal(stat(path, &st), 0);
    return (uint64_t)st.st_blocks * 512 / GONE_BLOCK;
}

static void what_is_below_is_given_back(void **state)
{
    (void)state;
    assert_int_equal(gone_reserve(g, 1, 100 * GONE_BLOCK_IDS - 1), 0);
    assert_int_equal(set(50 * GONE_BLOCK_IDS, 50 * GONE_BLOCK_IDS), 0);
    uint64_t before = disk_blocks();
    gone_forget(g, 50 * GONE_BLOCK_IDS + 5);
    assert_true(before < 100 || disk_blocks() <= before - 50); /* < 100: nothing is reserved here */
    expect(0, (struct id_range[]){{50 * GONE_BLOCK_IDS, 50 * GONE_BLOCK_IDS}}, 1);
    open_for(JOURNAL);
    expect(0, (struct id_range[]){{50 * GONE_BLOCK_IDS, 50 * GONE_BLOCK_IDS}}, 1);
}

static void expect_refused(uint64_t first, uint64_t last, int why)
{
    errno = 0;
    assert_int_equal(gone_reserve(g, first, last), -1);
    assert_int_equal(errno, why);
}

static void a_lack_of_room_is_told_and_heals(void **state)
{
    (void)state;
    write_errno = ENOSPC;
    expect_refused(1, 10, ENOSPC); /* not even for the header */
    write_errno = 0;
    allocate_errno = EDQUOT;
    expect_refused(1, 10, EDQUOT);
    allocate_errno = EOPNOTSUPP;
    assert_int_equal(gone_reserve(g, 1, 10), 0);
    allocate_errno = ENOSPC;
    assert_int_equal(gone_reserve(g, 11, GONE_BLOCK_IDS - 1), 0);
    expect_refused(GONE_BLOCK_IDS - 1, GONE_BLOCK_IDS, ENOSPC);
    allocate_errno = 0;
    assert_int_equal(gone_reserve(g, GONE_BLOCK_IDS - 1, GONE_BLOCK_IDS), 0);
    write_errno = ENOSPC;
    assert_int_equal(set(3, 3), -1);
    assert_int_equal(errno, ENOSPC);
    write_errno = 0;
    sync_errno = EIO;
    assert_int_equal(set(4, 4), -1);
    assert_int_equal(errno, EIO);
}

/* Who asked is told that nothing is marked, and goes on with all of them: so it is in the next life. */
static void what_fails_marks_nothing(void **state)
{
    struct id_range two[] = {{5, 9}, {GONE_BLOCK_IDS, GONE_BLOCK_IDS}};
    struct id_ranges ids = {.at = two, .n = 2, .count = 6};
    const struct id_range before = {3, 3};
    (void)state;
    assert_int_equal(set(3, 3), 0);
    write_errno = ENOSPC;
    fails_from = (off_t)2 * GONE_BLOCK;
    assert_int_equal(gone_set(g, &ids), -1);
    assert_int_equal(errno, ENOSPC);
    assert_int_equal(set(GONE_BLOCK_IDS - 2, GONE_BLOCK_IDS + 1), -1);
    write_errno = 0;
    sync_errno = EIO;
    assert_int_equal(gone_set(g, &ids), -1);
    assert_int_equal(errno, EIO);
    sync_errno = 0;
    open_for(JOURNAL);
    expect(0, &before, 1);
}

/* Who asked is told; what could not be had for want of a descriptor can be when there is one, and is asked for once. */
static void a_lack_of_descriptors_passes(void **state)
{
    (void)state;
    open_errno = EMFILE;
    expect_refused(1, 10, EMFILE);
    open_errno = 0;
    assert_int_equal(gone_reserve(g, 1, GONE_BLOCK_IDS), 0);
    assert_int_equal(allocated_from, GONE_BLOCK);
    assert_int_equal(allocated_to, 3 * GONE_BLOCK);
    assert_int_equal(gone_reserve(g, GONE_BLOCK_IDS, 7 * GONE_BLOCK_IDS), 0);
    assert_int_equal(allocated_from, 3 * GONE_BLOCK);
    assert_int_equal(allocated_to, 9 * GONE_BLOCK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(marks_are_kept, make, clean_up),
        cmocka_unit_test_setup_teardown(another_journals_marks_count_for_nothing, make, clean_up),
        cmocka_unit_test_setup_teardown(what_is_below_is_given_back, make, clean_up),
        cmocka_unit_test_setup_teardown(a_lack_of_room_is_told_and_heals, make, clean_up),
        cmocka_unit_test_setup_teardown(what_fails_marks_nothing, make, clean_up),
        cmocka_unit_test_setup_teardown(a_lack_of_descriptors_passes, make, clean_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
