#include "backup/file_tree.h"

#include "base/io.h"
#include "base/xxh3.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE ((size_t)1 << 20)

void tree_list_add(struct tree_list *l, const struct tree_file *f)
{
    ARRAY_ROOM(l->files, l->room, l->n + 1);
    l->files[l->n] = *f;
    l->files[l->n].path = mem_strdup(f->path);
    l->files[l->n++].link = f->link ? mem_strdup(f->link) : NULL;
}

void tree_list_free(struct tree_list *l)
{
    for (size_t i = 0; i < l->n; i++) {
        free(l->files[i].path);
        free(l->files[i].link);
    }
    free(l->files);
    *l = (struct tree_list){0};
}

bool tree_path_is_valid(struct bytes path)
{
    bool valid = path.len > 0 && path.len < PATH_MAX / 2 && !memchr(path.ptr, 0, path.len);
    for (const char *at = path.ptr; valid;) {
        size_t left = path.len - (size_t)(at - path.ptr);
        const char *slash = memchr(at, '/', left);
        struct bytes part = bytes_of(at, slash ? (size_t)(slash - at) : left);
        valid = part.len > 0 && !bytes_equal_str(part, ".") && !bytes_equal_str(part, "..");
        if (!slash)
            break;
        at = slash + 1;
    }
    return valid;
}

char *tree_path(const char *dir, const char *name)
{
    return mem_printf("%s/%s", dir, name);
}

enum backup_result tree_link(const char *from, const char *to, struct error *error)
{
    if (link(from, to) == 0)
        return BACKUP_OK;
    return errno == ENOENT ? error_set(error, BACKUP_CHANGED, "%.600s was deleted during the backup", from)
                           : backup_fail_errno(error, to);
}

/* Copies between two open files, or only reads if `to` is -1. */
static enum backup_result copy_bytes(int from, int to, const char *path, const struct tree_copy *how,
    struct tree_file *out, struct error *error)
{
    XXH3_state_t *hash = XXH3_createState();
    char *piece = mem_alloc(PIECE);
    enum backup_result r = BACKUP_OK;
    if (!hash)
        abort();
    XXH3_64bits_reset(hash);
    out->bytes = 0;
    while (out->bytes < how->max_bytes) {
        uint64_t left = how->max_bytes - out->bytes;
        ssize_t n = io->pread(from, piece, left < PIECE ? left : PIECE, (off_t)out->bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            r = backup_fail_errno(error, path);
        if (n <= 0)
            break;
        XXH3_64bits_update(hash, piece, (size_t)n);
        if (to >= 0 && io_write_all(to, piece, (size_t)n, (off_t)out->bytes) != 0) {
            r = backup_fail_errno(error, path);
            break;
        }
        out->bytes += (uint64_t)n;
        if (how->on_bytes)
            how->on_bytes((size_t)n, how->arg);
    }
    out->xxh3 = XXH3_64bits_digest(hash);
    XXH3_freeState(hash);
    free(piece);
    if (r == BACKUP_OK && how->max_bytes != UINT64_MAX && out->bytes < how->max_bytes)
        r = error_set(error, BACKUP_CHANGED, "%.600s became shorter during the copy", path);
    return r;
}

enum backup_result tree_copy(
    const char *from, const char *to, const struct tree_copy *how, struct tree_file *out, struct error *error)
{
    struct stat st;
    enum backup_result r;
    int out_fd = -1, fd = io->open(from, O_RDONLY | O_CLOEXEC | O_NOFOLLOW, 0);
    if (fd < 0)
        return errno == ENOENT ? error_set(error, BACKUP_CHANGED, "%.600s is missing", from)
                               : backup_fail_errno(error, from);
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        r = error_set(error, BACKUP_FAILED, "%.600s is not a file", from);
    } else if (to && (out_fd = io->open(
                          to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, st.st_mode & 0777)) < 0) {
        r = backup_fail_errno(error, to);
    } else {
        r = copy_bytes(fd, out_fd, to ? to : from, how, out, error);
    }
    if (out_fd >= 0)
        io->close(out_fd);
    io->close(fd);
    return r;
}

enum backup_result tree_replace(const char *path, uint64_t max_bytes, struct error *error)
{
    struct tree_file ignored;
    char *fresh = mem_printf("%s~", path);
    enum backup_result r =
        tree_copy(path, fresh, &(struct tree_copy){.max_bytes = max_bytes}, &ignored, error);
    if (r == BACKUP_OK && io->rename(fresh, path) != 0)
        r = backup_fail_errno(error, path);
    free(fresh);
    return r;
}

enum backup_result tree_write(const char *path, struct bytes text, struct error *error)
{
    int fd = io->open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, IO_PRIVATE_MODE);
    bool written = fd >= 0 && io_write_all(fd, text.ptr, text.len, 0) == 0;
    enum backup_result r = written ? BACKUP_OK : backup_fail_errno(error, path);
    if (fd >= 0)
        io->close(fd);
    return r;
}

enum backup_result tree_make_parent(const char *path, struct error *error)
{
    char parent[PATH_MAX];
    io_parent_of(path, parent);
    return io_make_dirs(parent) == 0 ? BACKUP_OK : backup_fail_errno(error, parent);
}

static int by_name(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

/* Called for each entry of a tree. For a directory, called both before and after the contents of the directory. */
typedef enum backup_result visit_fn(const FTSENT *e, const char *relative, void *arg, struct error *error);
static enum backup_result walk(const char *root, visit_fn *visit, void *arg, struct error *error)
{
    char *copy = mem_strdup(root), *roots[] = {copy, NULL};
    enum backup_result r = BACKUP_OK;
    FTS *fts = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, by_name);
    if (!fts) {
        free(copy);
        return backup_fail_errno(error, root);
    }
    for (FTSENT *e; r == BACKUP_OK && (e = fts_read(fts));) {
        const char *relative = e->fts_path + strlen(root);
        errno = e->fts_errno;
        if (e->fts_info == FTS_NS && errno == ENOENT && e->fts_level > 0)
            continue; /* the entry was deleted during the walk */
        if (e->fts_info == FTS_ERR || e->fts_info == FTS_NS || e->fts_info == FTS_DNR)
            r = backup_fail_errno(error, e->fts_path);
        else
            r = visit(e, *relative == '/' ? relative + 1 : relative, arg, error);
    }
    fts_close(fts);
    free(copy);
    return r;
}

static enum backup_result visit_list(const FTSENT *e, const char *relative, void *arg, struct error *error)
{
    char target[PATH_MAX];
    struct tree_file f = {.path = mem_strdup(relative)};
    enum backup_result r = BACKUP_OK;
    if (e->fts_info == FTS_SL || e->fts_info == FTS_SLNONE) {
        ssize_t n = readlink(e->fts_path, target, sizeof target - 1);
        if (n < 0)
            r = backup_fail_errno(error, e->fts_path);
        target[n < 0 ? 0 : n] = 0;
        f.link = target;
    }
    if (r == BACKUP_OK && (f.link || e->fts_info == FTS_F))
        tree_list_add(arg, &f);
    free(f.path);
    return r;
}

enum backup_result tree_list(const char *root, struct tree_list *out, struct error *error)
{
    *out = (struct tree_list){0};
    return walk(root, visit_list, out, error);
}

static enum backup_result visit_sync(const FTSENT *e, const char *relative, void *arg, struct error *error)
{
    (void)relative, (void)arg;
    if (e->fts_info != FTS_DP && e->fts_info != FTS_F)
        return BACKUP_OK;
    int fd = io->open(e->fts_path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW, 0);
    enum backup_result r = fd >= 0 && io->fsync(fd) == 0 ? BACKUP_OK : backup_fail_errno(error, e->fts_path);
    if (fd >= 0)
        io->close(fd);
    return r;
}

enum backup_result tree_sync(const char *root, struct error *error)
{
    return walk(root, visit_sync, NULL, error);
}

static enum backup_result visit_remove(const FTSENT *e, const char *relative, void *arg, struct error *error)
{
    (void)relative, (void)arg;
    int failed = 0;
    if (e->fts_info == FTS_DP)
        failed = rmdir(e->fts_path);
    else if (e->fts_info != FTS_D)
        failed = io->unlink(e->fts_path);
    return failed ? backup_fail_errno(error, e->fts_path) : BACKUP_OK;
}

enum backup_result tree_remove(const char *root, struct error *error)
{
    if (access(root, F_OK) != 0 && errno == ENOENT)
        return BACKUP_OK;
    return walk(root, visit_remove, NULL, error);
}
