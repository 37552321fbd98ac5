/* filter_copy: no sync can begin during the copy, and the copy is the filter. */
#include "support/cm.h"
#include "support/test_dir.h"
#include "support/trees.h"

#include "backup/filter_copy.h"
#include "base/bytes.h"
#include "base/io.h"
#include "filter/filter.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define ADDS 1000

static char root[64], from[80], to[80];
static struct filter *filter;
static struct error error;
static int pieces;     /* reads of files of `from` */
static bool is_locked; /* in each of these reads */

static void add_and_sync(unsigned n)
{
    uint64_t first = filter_sequence(filter) + 1;
    for (uint64_t i = first; i < first + n; i++) {
        char text[32];
        snprintf(text, sizeof text, "text %llu", (unsigned long long)i);
        assert_int_equal(filter_add(filter, bytes_str(text), i, i, &error), FILTER_OK);
    }
    assert_int_equal(filter_sync(filter, &error), FILTER_OK);
}

/* During the copy, spamfilter cannot get its lock. */
static ssize_t watching_pread(int fd, void *p, size_t n, off_t at)
{
    char link[64], path[PATH_MAX], lock[96];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    snprintf(lock, sizeof lock, "%s/sync.lock", from);
    ssize_t len = readlink(link, path, sizeof path - 1);
    path[len > 0 ? len : 0] = '\0';
    if (strncmp(path, from, strlen(from)) == 0) {
        int other = open(lock, O_RDWR);
        pieces++;
        is_locked = is_locked && other >= 0 && flock(other, LOCK_EX | LOCK_NB) != 0;
        close(other);
    }
    return io_system.pread(fd, p, n, at);
}

static enum backup_result copy_watched(void)
{
    static struct io_ops ops;
    ops = io_system;
    ops.pread = watching_pread;
    io = &ops;
    pieces = 0;
    is_locked = true;
    enum backup_result r = filter_copy(from, to, &error);
    io = &io_system;
    return r;
}

static void test_a_copy_is_of_one_moment(void **state)
{
    (void)state;
    struct filter *copy;
    char path[96], lock[96];
    snprintf(path, sizeof path, "%s/marks", to);
    snprintf(lock, sizeof lock, "%s/sync.lock", from);
    int fd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(copy_watched(), BACKUP_OK);
    assert_true(is_locked);
    assert_in_range(pieces, 2, INT_MAX);
    assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0); /* the copy has released it */
    close(fd);
    assert_int_equal(filter_open_reader(path, &copy, &error), FILTER_OK);
    assert_int_equal(filter_sequence(copy), filter_sequence(filter));
    for (uint64_t i = 1; i <= filter_sequence(filter); i++) {
        char text[32];
        snprintf(text, sizeof text, "text %llu", (unsigned long long)i);
        assert_true(filter_check(copy, bytes_str(text)));
    }
    filter_close(&copy);
}

static void test_a_directory_that_no_spamfilter_has_used(void **state)
{
    (void)state;
    assert_int_equal(copy_watched(), BACKUP_OK);
    assert_false(is_locked);
}

static int setup(void **state)
{
    (void)state;
    make_test_dir(root, sizeof root);
    snprintf(from, sizeof from, "%s/from", root);
    snprintf(to, sizeof to, "%s/to", root);
    assert_int_equal(io_make_dirs(from), 0);
    char *path = mem_printf("%s/marks", from);
    struct filter_config config = {.path = path, .capacity = 4000000, .rate = 0.01};
    assert_int_equal(filter_open(&config, &filter, &error), FILTER_OK);
    free(path);
    add_and_sync(ADDS);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    filter_close(&filter);
    remove_tree(root);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_copy_is_of_one_moment, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_directory_that_no_spamfilter_has_used, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
