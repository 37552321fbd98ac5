/* filter_copy: the copy of a filter is the filter of one moment, also if a sync changes the filter during the copy. */
#include "support/cm.h"
#include "support/test_dir.h"
#include "support/trees.h"

#include "backup/filter_copy.h"
#include "base/bytes.h"
#include "base/io.h"
#include "filter/filter.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define HEADER 4096
#define ADDS 1000

static char root[64], from[80], to[80];
static struct filter *filter;
static struct error error;
static int syncs; /* during the next copies */

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

/* A sync follows the read of the first piece of the filter, which has the header. */
static ssize_t changing_pread(int fd, void *p, size_t n, off_t at)
{
    char link[64], path[PATH_MAX], marks[96];
    ssize_t got = io_system.pread(fd, p, n, at);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    snprintf(marks, sizeof marks, "%s/marks", from);
    ssize_t len = readlink(link, path, sizeof path - 1);
    path[len > 0 ? len : 0] = '\0';
    if (syncs > 0 && at == 0 && n > HEADER && strcmp(path, marks) == 0) {
        syncs--;
        add_and_sync(ADDS);
    }
    return got;
}

static enum backup_result copy_during(int n)
{
    static struct io_ops ops;
    ops = io_system;
    ops.pread = changing_pread;
    io = &ops;
    syncs = n;
    enum backup_result r = filter_copy(from, to, &error);
    io = &io_system;
    return r;
}

static void test_a_copy_is_of_one_moment(void **state)
{
    (void)state;
    struct filter *copy;
    char path[96];
    snprintf(path, sizeof path, "%s/marks", to);
    assert_int_equal(copy_during(3), BACKUP_OK);
    assert_int_equal(filter_open_reader(path, &copy, &error), FILTER_OK);
    assert_int_equal(filter_sequence(copy), filter_sequence(filter));
    for (uint64_t i = 1; i <= filter_sequence(filter); i++) {
        char text[32];
        snprintf(text, sizeof text, "text %llu", (unsigned long long)i);
        assert_true(filter_check(copy, bytes_str(text)));
    }
    filter_close(&copy);
}

static void test_a_filter_that_never_rests_is_refused(void **state)
{
    (void)state;
    assert_int_equal(copy_during(INT_MAX), BACKUP_CHANGED);
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
        cmocka_unit_test_setup_teardown(test_a_filter_that_never_rests_is_refused, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
