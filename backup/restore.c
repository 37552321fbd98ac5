#include "backup/backup.h"

#include "base/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

struct reading {
    const struct backup_spec *spec;
    const char *from, *step;
    char *to; /* destination; NULL: files are only verified */
    struct error *error;
    uint64_t done, total;
};

static void on_bytes(size_t n, void *arg)
{
    struct reading *r = arg;
    r->done += n;
    if (r->spec->on_progress)
        r->spec->on_progress(r->step, r->done, r->total, r->spec->arg);
}

/* Checks that a symbolic link has the target in the manifest, and copies the link unless `to` is NULL. */
static enum backup_result take_link(
    const struct reading *r, const struct tree_file *f, const char *from, const char *to)
{
    char target[PATH_MAX];
    ssize_t n = readlink(from, target, sizeof target);
    if (n < 0 || !bytes_equal_str(bytes_of(target, (size_t)n), f->link))
        return error_set(r->error, BACKUP_DAMAGED, "%.600s does not point to %.200s", from, f->link);
    return to && symlink(f->link, to) != 0 ? backup_fail_errno(r->error, to) : BACKUP_OK;
}

/* Verifies a file, and copies the file in a restore. The configuration is not copied, because it is not part of a data
 * directory. */
static enum backup_result take_file(struct reading *r, const struct tree_file *f)
{
    struct tree_file found = {0};
    struct tree_copy how = {.max_bytes = UINT64_MAX, .on_bytes = on_bytes, .arg = r};
    bool copies = r->to && strcmp(f->path, BACKUP_CONFIG) != 0;
    char *from = tree_path(r->from, f->path), *to = copies ? tree_path(r->to, f->path) : NULL;
    enum backup_result result = copies ? tree_make_parent(to, r->error) : BACKUP_OK;
    if (result == BACKUP_OK && f->link) {
        result = take_link(r, f, from, to);
    } else if (result == BACKUP_OK) {
        result = tree_copy(from, to, &how, &found, r->error);
        if (result == BACKUP_CHANGED ||
            (result == BACKUP_OK && (found.bytes != f->bytes || found.xxh3 != f->xxh3)))
            result = error_set(r->error, BACKUP_DAMAGED,
                "%.600s is damaged or missing: %" PRIu64 " bytes, checksum %016" PRIx64
                "; the manifest lists %" PRIu64 " bytes, checksum %016" PRIx64,
                from, found.bytes, found.xxh3, f->bytes, f->xxh3);
    }
    free(from);
    free(to);
    return result;
}

static enum backup_result take_all(struct reading *r, const struct backup_manifest *m)
{
    enum backup_result result = BACKUP_OK;
    for (size_t i = 0; i < m->files.n; i++)
        r->total += m->files.files[i].bytes;
    for (size_t i = 0; i < m->files.n && result == BACKUP_OK; i++)
        result = take_file(r, &m->files.files[i]);
    return result;
}

enum backup_result backup_verify(
    const struct backup_spec *spec, struct backup_manifest *out, struct error *error)
{
    struct reading r = {.spec = spec, .from = spec->to, .step = "verify", .error = error};
    enum backup_result result = backup_manifest_read(spec->to, out, error);
    if (result != BACKUP_OK)
        return result;
    result = take_all(&r, out);
    if (result != BACKUP_OK)
        backup_manifest_free(out);
    return result;
}

static enum backup_result check_empty(const char *dir, struct error *error)
{
    DIR *d = opendir(dir);
    bool is_empty = true;
    if (!d && errno == ENOENT)
        return BACKUP_OK;
    if (!d && errno == ENOTDIR)
        return error_set(error, BACKUP_EXISTS, "%.600s is a file; name a new directory", dir);
    if (!d)
        return backup_fail_errno(error, dir);
    for (struct dirent *e; is_empty && (e = readdir(d));)
        is_empty = strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0;
    closedir(d);
    return is_empty ? BACKUP_OK
                    : error_set(error, BACKUP_EXISTS,
                          "%.600s is not empty; restore into a new directory, or move the files away", dir);
}

/* Creates and locks the directory `path`, and sets *lock to its descriptor. Removes a directory that a killed restore
 * has left. */
static enum backup_result make_temporary(const char *path, int *lock, struct error *error)
{
    *lock = io->open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (*lock >= 0) {
        if (io->flock(*lock, LOCK_EX | LOCK_NB) != 0)
            return error_set(error, BACKUP_BUSY, "another restore writes to %.600s", path);
        enum backup_result r = tree_remove(path, error);
        io->close(*lock);
        *lock = -1;
        if (r != BACKUP_OK)
            return r;
    }
    if (io->mkdir(path, 0777) != 0 || (*lock = io->open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0)) < 0 ||
        io->flock(*lock, LOCK_EX | LOCK_NB) != 0)
        return backup_fail_errno(error, path);
    return BACKUP_OK;
}

/* Syncs the restored files and renames their directory to the data directory. */
static enum backup_result publish(const struct reading *r)
{
    enum backup_result result = tree_sync(r->to, r->error);
    if (result != BACKUP_OK)
        return result;
    if (io->rename(r->to, r->spec->to) == 0)
        return io_sync_parent(r->spec->to) == 0 ? BACKUP_OK : backup_fail_errno(r->error, r->spec->to);
    if (errno == EBUSY || errno == EXDEV)
        return error_set(r->error, BACKUP_FAILED,
            "%.600s is a mount point; restore into a directory below the mount point", r->spec->to);
    return backup_fail_errno(r->error, r->spec->to);
}

enum backup_result backup_restore(
    const struct backup_spec *spec, const char *from, struct backup_manifest *out, struct error *error)
{
    int lock = -1;
    enum backup_result result = check_empty(spec->to, error);
    if (result == BACKUP_OK)
        result = backup_manifest_read(from, out, error);
    if (result != BACKUP_OK)
        return result;
    char *temporary = mem_printf("%s.restoring", spec->to);
    struct reading r = {.spec = spec, .from = from, .step = "restore", .to = temporary, .error = error};
    result = tree_make_parent(spec->to, error);
    if (result == BACKUP_OK)
        result = make_temporary(r.to, &lock, error);
    bool is_ours = result == BACKUP_OK;
    if (is_ours)
        result = take_all(&r, out);
    if (result == BACKUP_OK)
        result = publish(&r);
    if (result != BACKUP_OK) {
        backup_manifest_free(out);
        if (is_ours)
            tree_remove(r.to, NULL);
    }
    if (lock >= 0)
        io->close(lock);
    free(temporary);
    return result;
}
