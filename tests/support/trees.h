/* trees: directories that a test copies and removes again and again, without a process for each. Symbolic links stay links. */
#ifndef MILLRACE_TEST_TREES_H
#define MILLRACE_TEST_TREES_H

#include "support/cm.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static inline int remove_one(const char *path, const struct stat *st, int kind, struct FTW *place)
{
    (void)st, (void)kind, (void)place;
    return remove(path);
}

/* As rm -rf does. */
static inline void remove_tree(const char *path)
{
    assert_true(nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS) == 0 || errno == ENOENT);
}

static inline void copy_one(const char *from, const char *to, mode_t mode)
{
    char bytes[1 << 16];
    int in = open(from, O_RDONLY | O_CLOEXEC), out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    assert_true(in >= 0 && out >= 0);
    for (ssize_t n; (n = read(in, bytes, sizeof bytes)) != 0;)
        assert_true(n > 0 && write(out, bytes, (size_t)n) == n);
    close(in);
    close(out);
}

/* As cp -a does: `to` must not exist. With times = false the files are new, as those of cp -r are. */
static inline void copy_tree(const char *from, const char *to, bool times)
{
    char a[PATH_MAX], b[PATH_MAX];
    struct stat st;
    assert_int_equal(lstat(from, &st), 0);
    if (S_ISLNK(st.st_mode)) {
        ssize_t n = readlink(from, a, sizeof a - 1);
        assert_true(n > 0);
        a[n] = '\0';
        assert_int_equal(symlink(a, to), 0);
    } else if (S_ISREG(st.st_mode)) {
        copy_one(from, to, st.st_mode & 07777);
    } else {
        DIR *dir = opendir(from);
        assert_non_null(dir);
        assert_int_equal(mkdir(to, st.st_mode & 07777), 0);
        for (const struct dirent *e; (e = readdir(dir)) != NULL;) {
            if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
                continue;
            assert_in_range(snprintf(a, sizeof a, "%s/%s", from, e->d_name), 1, sizeof a - 1);
            assert_in_range(snprintf(b, sizeof b, "%s/%s", to, e->d_name), 1, sizeof b - 1);
            copy_tree(a, b, times);
        }
        closedir(dir);
    }
    const struct timespec when[2] = {st.st_atim, st.st_mtim};
    if (times)
        assert_int_equal(utimensat(AT_FDCWD, to, when, AT_SYMLINK_NOFOLLOW), 0);
}

/* Replaces the tree `to` by a copy. */
static inline void replace_tree(const char *from, const char *to, bool times)
{
    remove_tree(to);
    copy_tree(from, to, times);
}

#endif
