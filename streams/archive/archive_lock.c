#include "streams/archive/archive_lock.h"

#include "base/io.h"
#include "base/xxh3.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/file.h>

static int make_directory(struct bytes path, struct error *error)
{
    if (path.len == 0)
        return 0;
    char *directory = bytes_dup(path);
    int rc = io_make_dirs(directory) == 0 ? 0 : error_errno(error, -1, directory);
    free(directory);
    return rc;
}

static int lock_file(const char *path, const char *held, struct error *error)
{
    int fd = io->open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    int rc = fd >= 0 ? io->flock(fd, LOCK_EX | LOCK_NB) : -1;
    if (rc == 0)
        return fd;
    if (errno == EWOULDBLOCK)
        error_set(error, -1, "%s: %s", path, held);
    else
        error_errno(error, -1, path);
    if (fd >= 0)
        io->close(fd);
    return -1;
}

int archive_lock_state(const char *state_path, struct error *error)
{
    const char *slash = strrchr(state_path, '/');
    char *path = mem_printf("%s.lock", state_path);
    struct bytes directory = bytes_of(state_path, slash ? (size_t)(slash - state_path) : 0);
    int fd = make_directory(directory, error) == 0
                 ? lock_file(path, "another process holds this state", error)
                 : -1;
    free(path);
    return fd;
}

size_t archive_fixed_directory(const char *format)
{
    size_t fixed = strcspn(format, "%");
    while (fixed > 0 && format[fixed - 1] != '/')
        fixed--;
    return fixed;
}

/* Records the archive with this state as the owner of the name pattern. Fails if the previous owner has unfinished
 * files. */
static int take_over(int fd, const char *lock, const char *state_path, struct error *error)
{
    char owner[PATH_MAX], directory[PATH_MAX], real[PATH_MAX];
    const char *slash = strrchr(state_path, '/');
    struct buf own = {0};
    int rc = 0;
    /* The lock file contains an absolute path, because later processes may have other working directories. */
    io_parent_of(state_path, directory);
    if (!realpath(directory, real))
        return error_errno(error, -1, directory);
    buf_printf(&own, "%s/%s", real, slash ? slash + 1 : state_path);
    ssize_t n = io->pread(fd, owner, sizeof owner - 1, 0);
    owner[n > 0 ? n : 0] = '\0';
    if (n < 0) {
        rc = error_errno(error, -1, lock);
    } else if (n > 0 && !bytes_equal_str(buf_bytes(&own), owner)) {
        struct archive_state s;
        int found = archive_state_read(owner, &s, error);
        rc = found < 0 || s.n_files > 0 ? -1 : 0;
        if (found < 0)
            error_set(error, -1, "%s: another archive owns these file names, and its state is unreadable: %s",
                lock, error->text);
        else if (rc != 0)
            error_set(error, -1,
                "%s: the archive with the state %s owns these file names and has unfinished files (stream "
                "%s)",
                lock, owner, s.stream);
        archive_state_free(&s);
    }
    if (rc == 0 && !bytes_equal_str(buf_bytes(&own), owner) &&
        (io->ftruncate(fd, 0) != 0 || io_write_all(fd, own.ptr, own.len, 0) != 0 || io->fdatasync(fd) != 0 ||
            io_sync_parent(lock) != 0))
        rc = error_errno(error, -1, lock);
    buf_free(&own);
    return rc;
}

/* Returns .ps_to_file-names-HASH with the suffix `end`, beside the files of `format`. */
static char *path_for_pattern(const char *format, const char *end)
{
    size_t fixed = archive_fixed_directory(format);
    struct buf pattern = {0};
    for (const char *at = format + fixed; *at != '\0'; at++)
        if (*at != '/' || at[1] != '/') /* repeated slashes do not change the pattern */
            buf_append_char(&pattern, *at);
    char *path = mem_printf("%.*s.ps_to_file-names-%016llx.%s", (int)fixed, format,
        (unsigned long long)XXH3_64bits(pattern.ptr, pattern.len), end);
    buf_free(&pattern);
    return path;
}

char *archive_staging_directory(const char *format)
{
    return path_for_pattern(format, "staging");
}

int archive_lock_names(const char *format, const char *state_path, struct error *error)
{
    char *path = path_for_pattern(format, "lock");
    int fd = -1;
    if (make_directory(bytes_of(format, archive_fixed_directory(format)), error) == 0)
        fd = lock_file(path, "another process writes files with these names", error);
    if (fd >= 0 && take_over(fd, path, state_path, error) != 0) {
        io->close(fd);
        fd = -1;
    }
    free(path);
    return fd;
}
