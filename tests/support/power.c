#include "support/power.h"

#include "base/bytes.h"
#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <libgen.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define FDS 256

enum change_kind { WRITE, RESIZE, CREATE, RENAME, UNLINK };

struct change {
    enum change_kind kind;
    char *path, *to;
    char *over; /* RENAME: another name of the file that had the name before; NULL: none had */
    off_t at, old_size, new_size;
    unsigned long serial;
    bool stranded;           /* a sync of it failed: the kernel calls it clean, the disk does not have it */
    bool path_safe, to_safe; /* RENAME: that directory was synced */
    struct buf old, new;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct io_ops table;
static char *names[FDS];
static struct change *changes;
static size_t n_changes;
static enum power_fault fault;
static unsigned countdown, operations;
static unsigned long serial;
static bool cut;

static bool is_name(const struct change *c)
{
    return c->kind >= CREATE;
}

static void change_free(struct change *c)
{
    free(c->path);
    free(c->to);
    if (c->over)
        unlink(c->over);
    free(c->over);
    buf_free(&c->old);
    buf_free(&c->new);
}

static struct change *add(enum change_kind kind, const char *path)
{
    changes = mem_realloc(changes, (n_changes + 1) * sizeof *changes);
    changes[n_changes] = (struct change){.kind = kind, .path = mem_strdup(path), .serial = ++serial};
    return &changes[n_changes++];
}

/* `later` is on disk now: taking `stranded` away must not take it away too. */
static void absorb(struct change *stranded, const struct change *later)
{
    off_t end = stranded->at + (off_t)stranded->new.len, its_end = later->at + (off_t)later->new.len;
    off_t from = stranded->at > later->at ? stranded->at : later->at, to = end < its_end ? end : its_end;
    if (stranded->old_size < its_end)
        stranded->old_size = its_end;
    if (from >= to)
        return;
    size_t need = (size_t)(to - stranded->at);
    if (stranded->old.len < need) {
        memset(stranded->old.ptr + stranded->old.len, 0, need - stranded->old.len);
        stranded->old.len = need;
    }
    memcpy(
        stranded->old.ptr + (from - stranded->at), later->new.ptr + (from - later->at), (size_t)(to - from));
}

static void absorb_synced(const char *path, unsigned long begun)
{
    for (size_t i = 0; i < n_changes; i++)
        for (size_t k = i + 1; k < n_changes && changes[i].stranded; k++) {
            const struct change *d = &changes[k];
            bool same = strcmp(changes[i].path, path) == 0 && strcmp(d->path, path) == 0;
            if (same && d->kind == WRITE && !d->stranded && d->serial <= begun)
                absorb(&changes[i], d);
        }
}

static void strand(const char *path, unsigned long begun)
{
    for (size_t i = 0; i < n_changes; i++)
        if (changes[i].kind == WRITE && changes[i].serial <= begun && strcmp(changes[i].path, path) == 0)
            changes[i].stranded = true;
}

static bool is_in(const char *path, const struct stat *directory)
{
    struct stat st;
    char *copy = mem_strdup(path);
    bool is =
        stat(dirname(copy), &st) == 0 && st.st_dev == directory->st_dev && st.st_ino == directory->st_ino;
    free(copy);
    return is;
}

/* A rename between two directories when both were synced. */
static bool is_safe_with(struct change *c, const struct stat *directory)
{
    c->path_safe = c->path_safe || is_in(c->path, directory);
    c->to_safe = c->to_safe || c->kind != RENAME || is_in(c->to, directory);
    return c->path_safe && c->to_safe;
}

/* What is synced is no longer to be lost: a file's bytes, or (path NULL) the names in a directory, as of when the sync
 * began. */
static void forget(const char *path, const struct stat *directory, unsigned long begun)
{
    size_t kept = 0;
    if (path)
        absorb_synced(path, begun);
    for (size_t i = 0; i < n_changes; i++) {
        struct change *c = &changes[i];
        bool drop = !c->stranded && c->serial <= begun && is_name(c) == !path;
        drop = drop && (path ? strcmp(c->path, path) == 0 : is_safe_with(c, directory));
        if (drop && c->kind == UNLINK)
            unlink(c->to);
        if (drop)
            change_free(c);
        else
            changes[kept++] = *c;
    }
    n_changes = kept;
}

/* True: the operation must fail with errno. *part: after doing some of it. */
static bool faults(bool *part)
{
    operations++;
    *part = false;
    if (cut) {
        errno = EIO;
        return true;
    }
    if (countdown == 0 || --countdown > 0)
        return false;
    cut = fault == POWER_CUT || fault == POWER_CUT_ALL || fault == POWER_CUT_TORN || fault == POWER_KILL;
    *part = fault != POWER_EIO;
    errno = fault == POWER_NO_SPACE ? ENOSPC : EIO;
    return fault != POWER_NONE;
}

static void record_write(const char *path, int fd, const void *p, size_t n, off_t at)
{
    struct change *c = add(WRITE, path);
    struct stat st;
    fstat(fd, &st);
    c->at = at;
    c->old_size = st.st_size;
    buf_reserve(&c->old, n + 1);
    ssize_t had = pread(fd, c->old.ptr, n, at);
    c->old.len = had > 0 ? (size_t)had : 0;
    buf_append(&c->new, p, n);
}

static ssize_t power_pwrite(int fd, const void *p, size_t n, off_t at)
{
    bool part;
    pthread_mutex_lock(&lock);
    bool failed = faults(&part);
    int system = errno;
    size_t doing = failed ? (part ? n / 2 : 0) : n;
    if (doing) {
        record_write(names[fd], fd, p, doing, at);
        (void)!pwrite(fd, p, doing, at);
    }
    pthread_mutex_unlock(&lock);
    errno = system;
    if (failed && fault == POWER_SHORT && doing)
        return (ssize_t)doing;
    return failed ? -1 : (ssize_t)n;
}

/* One operation, as it is for the system. */
static ssize_t power_pwritev(int fd, const struct iovec *parts, int n, off_t at)
{
    struct buf all = {0};
    for (int i = 0; i < n; i++)
        buf_append(&all, parts[i].iov_base, parts[i].iov_len);
    ssize_t did = power_pwrite(fd, all.ptr, all.len, at);
    int system = errno;
    buf_free(&all);
    errno = system;
    return did;
}

/* Of a sync that began with all up to `begun` written. */
static int end_sync(int fd, bool failed, int system, unsigned long begun)
{
    struct stat st;
    fstat(fd, &st);
    pthread_mutex_lock(&lock);
    if (!failed && cut) {
        failed = true;
        system = EIO;
    }
    if (!failed)
        forget(S_ISDIR(st.st_mode) ? NULL : names[fd], &st, begun);
    else if (!cut && !S_ISDIR(st.st_mode))
        strand(names[fd], begun);
    pthread_mutex_unlock(&lock);
    errno = system;
    return failed ? -1 : 0;
}

/* Takes its time: what is written meanwhile is not covered. */
static int power_sync(int fd)
{
    bool part;
    pthread_mutex_lock(&lock);
    bool failed = faults(&part);
    int system = errno;
    unsigned long begun = serial;
    pthread_mutex_unlock(&lock);
    if (begun % 8 == 0)
        usleep(20);
    return end_sync(fd, failed, system, begun);
}

static int power_ftruncate(int fd, off_t length)
{
    bool part;
    pthread_mutex_lock(&lock);
    int failed = faults(&part) ? -1 : 0;
    int system = errno;
    if (!failed) {
        struct stat st;
        fstat(fd, &st);
        struct change *c = add(RESIZE, names[fd]);
        c->old_size = st.st_size;
        c->new_size = length;
        if (length < st.st_size) {
            buf_reserve(&c->old, (size_t)(st.st_size - length));
            c->old.len = (size_t)pread(fd, c->old.ptr, (size_t)(st.st_size - length), length);
        }
        failed = ftruncate(fd, length);
    }
    pthread_mutex_unlock(&lock);
    errno = system;
    return failed;
}

static int power_open(const char *path, int flags, mode_t mode)
{
    bool part, failed = false;
    pthread_mutex_lock(&lock);
    if (flags & O_CREAT) {
        failed = faults(&part);
        if (!failed && access(path, F_OK) != 0)
            add(CREATE, path);
    }
    int fd = failed ? -1 : open(path, flags, mode);
    if (fd >= FDS)
        abort();
    if (fd >= 0) {
        free(names[fd]);
        names[fd] = mem_strdup(path);
    }
    int system = errno;
    pthread_mutex_unlock(&lock);
    errno = system;
    return fd;
}

static int power_fallocate(int fd, int mode, off_t at, off_t length)
{
    bool part;
    pthread_mutex_lock(&lock);
    int failed = faults(&part) ? -1 : 0;
    int system = errno;
    if (!failed) {
        struct stat st;
        fstat(fd, &st);
        struct change *c = add(RESIZE, names[fd]);
        c->old_size = st.st_size;
        c->new_size = at + length > st.st_size ? at + length : st.st_size;
        failed = fallocate(fd, mode, at, length);
    }
    pthread_mutex_unlock(&lock);
    errno = system;
    return failed;
}

static void renamed(const char *from, const char *to)
{
    for (size_t i = 0; i < n_changes; i++)
        if (!is_name(&changes[i]) && strcmp(changes[i].path, from) == 0) {
            free(changes[i].path);
            changes[i].path = mem_strdup(to);
        }
    for (int fd = 0; fd < FDS; fd++)
        if (names[fd] && strcmp(names[fd], from) == 0) {
            free(names[fd]);
            names[fd] = mem_strdup(to);
        }
}

/* A second name, so that it can be had back. */
static char *keep(const char *path)
{
    struct buf other = {0};
    buf_printf(&other, "%s.%u.over", path, operations);
    buf_append_char(&other, 0);
    if (link(path, other.ptr) == 0)
        return other.ptr;
    buf_free(&other);
    return NULL;
}

static int power_rename(const char *from, const char *to)
{
    bool part;
    pthread_mutex_lock(&lock);
    int failed = faults(&part) ? -1 : 0;
    int system = errno;
    char *over = failed ? NULL : keep(to);
    if (!failed) {
        failed = rename(from, to);
        system = errno;
    }
    if (!failed) {
        struct change *c = add(RENAME, from);
        c->to = mem_strdup(to);
        c->over = over;
        if (over) /* what was written to the file that had the name */
            renamed(to, over);
        renamed(from, to);
    } else if (over) {
        unlink(over);
        free(over);
    }
    pthread_mutex_unlock(&lock);
    errno = system;
    return failed;
}

static int power_rename_new(const char *from, const char *to)
{
    if (access(to, F_OK) != 0)
        return power_rename(from, to);
    errno = EEXIST;
    return -1;
}

static int power_unlink(const char *path)
{
    bool part;
    struct buf gone = {0};
    pthread_mutex_lock(&lock);
    buf_printf(&gone, "%s.%u.gone", path, operations);
    buf_append_char(&gone, 0);
    int failed = faults(&part) ? -1 : rename(path, gone.ptr);
    int system = errno;
    if (!failed) {
        add(UNLINK, path)->to = mem_strdup(gone.ptr);
        renamed(path, gone.ptr);
    }
    pthread_mutex_unlock(&lock);
    buf_free(&gone);
    errno = system;
    return failed;
}

static int power_mkdir(const char *path, mode_t mode)
{
    bool part;
    if (access(path, F_OK) == 0)
        return mkdir(path, mode);
    pthread_mutex_lock(&lock);
    int failed = faults(&part) ? -1 : mkdir(path, mode);
    int system = errno;
    if (!failed)
        add(CREATE, path);
    pthread_mutex_unlock(&lock);
    errno = system;
    return failed;
}

void power_on(enum power_fault f, unsigned at)
{
    table = io_system;
    table.open = power_open;
    table.pwrite = power_pwrite;
    table.pwritev = power_pwritev;
    table.fdatasync = table.fsync = power_sync;
    table.ftruncate = power_ftruncate;
    table.rename = power_rename;
    table.rename_new = power_rename_new;
    table.fallocate = power_fallocate;
    table.unlink = power_unlink;
    table.mkdir = power_mkdir;
    io = &table;
    power_revive(f, at);
}

void power_revive(enum power_fault f, unsigned at)
{
    fault = f;
    countdown = at;
    operations = 0;
    cut = false;
}

bool power_is_cut(void)
{
    pthread_mutex_lock(&lock);
    bool is = cut;
    pthread_mutex_unlock(&lock);
    return is;
}

void power_cut_now(void)
{
    pthread_mutex_lock(&lock);
    cut = true;
    fault = POWER_CUT_ALL;
    pthread_mutex_unlock(&lock);
}

unsigned power_operations(void)
{
    return operations;
}

static void put_bytes(const char *path, const struct buf *b, size_t n, off_t at)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    (void)!pwrite(fd, b->ptr, n, at);
    close(fd);
}

static void undo_bytes(const struct change *c)
{
    put_bytes(c->path, &c->old, c->old.len, c->kind == WRITE ? c->at : c->new_size);
    (void)!truncate(c->path, c->old_size);
}

static void redo_bytes(const struct change *c, size_t i, unsigned *seed)
{
    if (c->kind == RESIZE) {
        (void)!truncate(c->path, c->new_size);
        return;
    }
    size_t n = c->new.len;
    if (fault == POWER_CUT_TORN && i + 1 == n_changes)
        n /= 2;
    else if (fault == POWER_CUT && rand_r(seed) % 3 == 0)
        n = n / 512 ? (size_t)rand_r(seed) % (n / 512) * 512 : (size_t)rand_r(seed) % n;
    put_bytes(c->path, &c->new, n, c->at);
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st, (void)kind, (void)ftw;
    return remove(path);
}

static void undo_name(const struct change *c)
{
    if (c->kind == CREATE)
        (void)nftw(c->path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    else
        rename(c->to, c->path);
    if (c->over)
        rename(c->over, c->to);
}

static void lose_unsynced(unsigned *seed)
{
    int keep = fault == POWER_CUT ? rand_r(seed) % 4 : fault == POWER_CUT_TORN ? 3 : 0;
    for (size_t i = n_changes; i-- > 0;)
        if (!is_name(&changes[i]))
            undo_bytes(&changes[i]);
    for (size_t i = 0; i < n_changes; i++)
        if (!is_name(&changes[i]) && !changes[i].stranded && rand_r(seed) % 3 < keep)
            redo_bytes(&changes[i], i, seed);
    size_t kept_names = (size_t)rand_r(seed) % (n_changes + 1);
    if (fault != POWER_CUT)
        kept_names = fault == POWER_CUT_TORN ? n_changes : 0;
    for (size_t i = n_changes; i-- > kept_names;)
        if (is_name(&changes[i]))
            undo_name(&changes[i]);
}

void power_off(unsigned *seed)
{
    io = &io_system;
    if (cut)
        lose_unsynced(seed);
    for (size_t i = 0; i < n_changes; i++)
        change_free(&changes[i]);
    free(changes);
    changes = NULL;
    n_changes = 0;
    for (int fd = 0; fd < FDS; fd++) {
        free(names[fd]);
        names[fd] = NULL;
    }
}
