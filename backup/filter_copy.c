#include "backup/filter_copy.h"

#include "backup/file_tree.h"
#include "base/io.h"
#include "filter/filter.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

/* Copies a file. A missing file is empty. */
static enum backup_result take(const char *dir, const char *to, const char *name, struct error *error)
{
    struct tree_file ignored;
    char *source = tree_path(dir, name), *target = tree_path(to, name);
    enum backup_result r = tree_make_parent(target, error);
    if (r == BACKUP_OK && access(source, F_OK) == 0) {
        unlink(target);
        r = tree_copy(source, target, &(struct tree_copy){.max_bytes = UINT64_MAX}, &ignored, error);
    }
    free(source);
    free(target);
    return r;
}

/* Returns the locked file, or -1: none, or *r is BACKUP_FAILED. */
static int lock(const char *from, enum backup_result *r, struct error *error)
{
    char *path = tree_path(from, "sync.lock");
    int fd = io->open(path, O_RDONLY | O_CLOEXEC, 0);
    *r = BACKUP_OK;
    if ((fd < 0 && errno != ENOENT) || (fd >= 0 && io->flock(fd, LOCK_SH) != 0))
        *r = (enum backup_result)error_errno(error, BACKUP_FAILED, path);
    free(path);
    return fd;
}

/* Completes an interrupted sync in the copy, and checks its header. */
static enum backup_result check_filter(const char *to, struct error *error)
{
    char *path = tree_path(to, "marks");
    struct filter_config config = {.path = path, .capacity = 1, .rate = FILTER_RATE_MAX};
    struct filter *f = NULL;
    struct error why;
    enum filter_result found = filter_open(&config, &f, &why);
    enum backup_result r = BACKUP_OK;
    if (found != FILTER_OK)
        r = error_set(error,
            found == FILTER_DAMAGED    ? BACKUP_DAMAGED
            : found == FILTER_NO_SPACE ? BACKUP_FULL
                                       : BACKUP_FAILED,
            "%s", why.text);
    filter_close(&f);
    free(path);
    return r;
}

enum backup_result filter_copy(const char *from, const char *to, struct error *error)
{
    static const char *const names[] = {"marks.log", "marks", "exceptions"};
    enum backup_result r;
    int fd = lock(from, &r, error);
    for (size_t i = 0; r == BACKUP_OK && i < sizeof names / sizeof *names; i++)
        r = take(from, to, names[i], error);
    if (fd >= 0)
        io->close(fd);
    return r == BACKUP_OK ? check_filter(to, error) : r;
}
