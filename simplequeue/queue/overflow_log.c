#include "simplequeue/queue/overflow_log.h"

#include "base/io.h"
#include "base/work_thread.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEVICE_TIMEOUT_MS 1000 /* milliseconds */

struct batch {
    struct batch *next;
    char *path;
    struct buf text;
    overflow_log_done *done;
    void *arg;
    bool latched;    /* true if the log must not write the batch (invariant 2) */
    bool is_unknown; /* true if the content of the file is unknown after the batch */
    char error[512]; /* "": none */
};

/* A file whose name and first `size` bytes are synced. */
struct known {
    dev_t device;
    ino_t inode;
    off_t size;
};

struct overflow_log {
    struct work_thread *thread;  /* NULL: stopped */
    struct batch *first, **last; /* the batches that wait for the thread */
    bool is_writing;
    bool latched;       /* true if the log must not write until overflow_log_reopen (invariant 2) */
    struct known known; /* the file of the last batch; used only by the batch that is being written */
};

/* The following functions run in the writing thread. */

/* Opens the file for writing at position st->st_size. Syncs the directory, because an earlier process may have been
 * killed before it synced the directory. Refuses pipes and sockets, which lose lines without a reader, and block
 * devices, which have no end. Returns the descriptor, or -1 with errno. */
static int open_file(const char *path, const struct known *known, struct stat *st)
{
    int fd = io->open(path, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0); /* O_NONBLOCK: for devices */
    bool made = fd < 0 && errno == ENOENT;
    if (made)
        fd = io->open(path, O_RDWR | O_CREAT | O_CLOEXEC, IO_PRIVATE_MODE);
    if (fd < 0)
        return -1;
    int failed = fstat(fd, st);
    bool is_file = !failed && S_ISREG(st->st_mode);
    bool is_known = known && st->st_size > 0 && st->st_dev == known->device && st->st_ino == known->inode &&
                    st->st_size == known->size;
    if (!failed && !is_file && !S_ISCHR(st->st_mode)) {
        errno = EOPNOTSUPP;
        failed = -1;
    } else if (made) {
        failed = failed || io_sync_parent(path) != 0;
    } else if (is_file && !is_known) {
        failed = io_sync_name(path);
    }
    if (failed) {
        int saved = errno;
        io->close(fd);
        errno = saved;
        return -1;
    }
    return fd;
}

static const char *why_not(int why)
{
    return why == EOPNOTSUPP ? "neither a file nor a character device" : strerror(why);
}

static void set_error(struct batch *b, int why)
{
    snprintf(b->error, sizeof b->error, "%s: %s", b->path, why_not(why));
}

/* Writes the batch to a device. Waits only DEVICE_TIMEOUT_MS, because a stopped terminal may never become writable. */
static bool write_to_device(int fd, struct batch *b)
{
    struct pollfd device = {.fd = fd, .events = POLLOUT};
    for (size_t at = 0; at < b->text.len;) {
        ssize_t n = write(fd, b->text.ptr + at, b->text.len - at);
        if (n < 0 && (errno == EINTR || (errno == EAGAIN && poll(&device, 1, DEVICE_TIMEOUT_MS) > 0)))
            continue;
        if (n <= 0) {
            set_error(b, n < 0 ? errno : ENOSPC);
            return false;
        }
        at += (size_t)n;
    }
    return true;
}

/* Writes the batch to a file. Returns false if the content of the file is unknown after the call. */
static bool write_to_file(int fd, const struct stat *st, struct batch *b, struct known *known)
{
    char last = '\n';
    if (st->st_size > 0 && io->pread(fd, &last, 1, st->st_size - 1) == 1 && last != '\n') {
        /* After a crash, the last line of the file may be incomplete. The added LF ends this line before the batch. */
        struct buf ended = {0};
        buf_append_char(&ended, '\n');
        buf_append_bytes(&ended, buf_bytes(&b->text));
        buf_free(&b->text);
        b->text = ended;
    }
    bool wrote = io_write_all(fd, b->text.ptr, b->text.len, st->st_size) == 0;
    bool known_content = wrote ? io->fdatasync(fd) == 0 : true;
    if (!wrote || !known_content)
        set_error(b, errno);
    if (!wrote)
        known_content = io->ftruncate(fd, st->st_size) == 0;
    *known = (struct known){st->st_dev, st->st_ino, st->st_size + (wrote ? (off_t)b->text.len : 0)};
    return known_content;
}

static void run_batch(void *ctx, void *batch)
{
    struct overflow_log *log = ctx;
    struct batch *b = batch;
    struct stat st;
    int fd;
    if (b->latched) {
        snprintf(b->error, sizeof b->error, "%s: an earlier write failed; send SIGHUP to retry", b->path);
    } else if ((fd = open_file(b->path, &log->known, &st)) < 0) {
        set_error(b, errno);
    } else {
        b->is_unknown =
            !(S_ISCHR(st.st_mode) ? write_to_device(fd, b) : write_to_file(fd, &st, b, &log->known));
        io->close(fd);
    }
}

static void begin_next(struct overflow_log *log)
{
    struct batch *b = log->first;
    if (!b || log->is_writing)
        return;
    log->first = b->next;
    if (!log->first)
        log->last = &log->first;
    b->latched = log->latched;
    log->is_writing = true;
    work_thread_start(log->thread, b);
}

static void end_batch(struct overflow_log *log, struct batch *b)
{
    log->latched = log->latched || b->is_unknown;
    log->is_writing = false;
    begin_next(log);
    b->done(b->error[0] ? b->error : NULL, b->arg);
    buf_free(&b->text);
    free(b->path);
    free(b);
}

struct overflow_log *overflow_log_new(void (*notify)(void *arg), void *arg)
{
    struct overflow_log *log = mem_zalloc(sizeof *log);
    log->last = &log->first;
    log->thread = work_thread_new(
        &(struct work_thread_config){.run = run_batch, .ctx = log, .notify = notify, .notify_arg = arg});
    assert(log->thread);
    return log;
}

void overflow_log_stop(struct overflow_log *log)
{
    while (log->is_writing)
        end_batch(log, work_thread_wait(log->thread));
    work_thread_free(&log->thread);
}

void overflow_log_free(struct overflow_log **p)
{
    struct overflow_log *log = *p;
    if (!log)
        return;
    overflow_log_stop(log);
    free(log);
    *p = NULL;
}

int overflow_log_check(const char *path, char *error, size_t error_size)
{
    struct stat st;
    int fd = open_file(path, NULL, &st);
    if (fd < 0) {
        snprintf(error, error_size, "overflow log %s: %s", path, why_not(errno));
        return -1;
    }
    io->close(fd);
    return 0;
}

int overflow_log_check_place(const char *path, const char *data_dir, char *error, size_t error_size)
{
    static const char *const own[] = {"lock", "queues"};
    char place[PATH_MAX], parent[PATH_MAX], file[PATH_MAX], whole[PATH_MAX];
    if (!realpath(path, place)) { /* the file does not exist yet */
        io_parent_of(path, parent);
        if (!realpath(parent, place))
            return 0; /* the open of the file reports the error */
        const char *slash = strrchr(path, '/');
        size_t len = strlen(place);
        int n = snprintf(place + len, sizeof place - len, "/%s", slash ? slash + 1 : path);
        if (n < 0 || (size_t)n >= sizeof place - len)
            return 0;
    }
    for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
        int n = snprintf(file, sizeof file, "%s/%s", data_dir, own[i]);
        if (n < 0 || (size_t)n >= sizeof file || !realpath(file, whole))
            continue;
        size_t len = strlen(whole);
        if (strncmp(place, whole, len) != 0 || (place[len] != '/' && place[len] != '\0'))
            continue;
        snprintf(error, error_size, "overflow log %s: %s/%s is the daemon's own file; choose another", path,
            data_dir, own[i]);
        return -1;
    }
    return 0;
}

bool overflow_log_is_device(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISCHR(st.st_mode);
}

void overflow_log_write(
    struct overflow_log *log, const char *path, struct buf *text, overflow_log_done *done, void *arg)
{
    struct batch *b = mem_zalloc(sizeof *b);
    b->path = mem_strdup(path);
    b->text = *text;
    b->done = done;
    b->arg = arg;
    *text = (struct buf){0};
    if (log->thread) {
        *log->last = b;
        log->last = &b->next;
        begin_next(log);
    } else {
        b->latched = log->latched;
        run_batch(log, b);
        end_batch(log, b);
    }
}

void overflow_log_poll(struct overflow_log *log)
{
    struct batch *b;
    while (log->thread && (b = work_thread_done(log->thread)))
        end_batch(log, b);
}

void overflow_log_reopen(struct overflow_log *log)
{
    log->latched = false;
}
