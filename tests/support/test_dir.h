/* test_dir: where a unit test keeps its files. Under run_test that is a directory of the test's own, which is deleted after it. Of the
 * two that run_test makes, a unit test takes the one in memory: what a crash loses is said by support/power.h, not by a disk. */
#ifndef MILLRACE_TEST_DIR_H
#define MILLRACE_TEST_DIR_H

#include "support/cm.h"

#include <stdio.h>
#include <string.h>

static inline bool is_in_memory(const char *path)
{
    return path && strncmp(path, "/dev/shm/", 9) == 0;
}

static inline const char *test_root(void)
{
    const char *given = getenv("TMPDIR"), *other = getenv("MILLRACE_OTHER_DIR");
    if (is_in_memory(other))
        return other;
    return given && *given ? given : "/tmp";
}

/* The path of `name` in the test's directory. */
static inline void test_path(char *path, size_t size, const char *name)
{
    int n = snprintf(path, size, "%s/%s", test_root(), name);
    assert_in_range(n, 1, size - 1);
}

/* A new directory. */
static inline void make_test_dir(char *path, size_t size)
{
    test_path(path, size, "test-XXXXXX");
    assert_non_null(mkdtemp(path));
}

/* A new file, which is empty. */
static inline void make_test_file(char *path, size_t size)
{
    test_path(path, size, "test-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(fclose(fdopen(fd, "w")), 0);
}

/* A new directory on another file system than the test's, if the machine has two. */
static inline void make_other_dir(char *path, size_t size)
{
    const char *root = getenv("MILLRACE_OTHER_DIR");
    if (is_in_memory(root))
        root = getenv("TMPDIR");
    int n = snprintf(path, size, "%s/test-XXXXXX", root && *root ? root : "/dev/shm");
    assert_in_range(n, 1, size - 1);
    assert_non_null(mkdtemp(path));
}

#endif
