#include "journal/journal_dir.h"

#include "base/io.h"
#include "base/log.h"
#include "base/xxh3.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <time.h>

#define LOCK_POLL (10 * USEC_PER_MSEC)
#define COPY_CHUNK ((size_t)1 << 20)
#define MARKER_SUFFIX ".newest"

usec_t journal_lock_timeout = USEC_PER_SEC;

int journal_dir_lock(const char *dir)
{
    int fd = io->open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    usec_t due = clock_monotonic() + journal_lock_timeout;
    while (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        /* A process that was just killed may hold the lock for a moment longer. */
        if (errno == EINTR || (errno == EWOULDBLOCK && clock_monotonic() < due)) {
            nanosleep(&(struct timespec){.tv_nsec = LOCK_POLL * 1000}, NULL);
            continue;
        }
        if (errno == EBADF || errno == EINVAL || errno == EOPNOTSUPP || errno == ENOSYS) {
            log_warn("this file system cannot lock directories; only the daemon's own lock keeps other "
                     "processes out",
                LOG_S("path", dir));
            return fd;
        }
        int saved = errno;
        io->close(fd);
        errno = saved;
        return -1;
    }
    return fd;
}

char *dir_path(const char *dir, const char *name)
{
    return mem_printf("%s/%s", dir, name);
}

static char *numbered_path(const char *dir, uint64_t number, const char *ending, const char *suffix)
{
    return mem_printf("%s/%016llx%s%s", dir, (unsigned long long)number, ending, suffix);
}

char *segment_path(const char *dir, uint64_t sequence, const char *suffix)
{
    return numbered_path(dir, sequence, ".seg", suffix);
}

char *newest_marker_path(const char *dir, uint64_t sequence)
{
    return numbered_path(dir, sequence, MARKER_SUFFIX, "");
}

/* True if the file name consists of 16 hexadecimal digits and `ending`. */
static bool has_number(const char *name, const char *ending, uint64_t *number)
{
    if (strspn(name, "0123456789abcdef") != 16 || strcmp(name + 16, ending) != 0)
        return false;
    *number = strtoull(name, NULL, 16);
    return true;
}

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

uint64_t *segments_list(const char *dir, size_t *count)
{
    DIR *d = opendir(dir);
    if (!d)
        return NULL;
    uint64_t *list = mem_alloc(sizeof *list), sequence;
    *count = 0;
    for (struct dirent *e; (e = readdir(d));) {
        if (!has_number(e->d_name, ".seg", &sequence))
            continue;
        list = mem_realloc(list, (*count + 1) * sizeof *list);
        list[(*count)++] = sequence;
    }
    closedir(d);
    qsort(list, *count, sizeof *list, ascending);
    return list;
}

void unfinished_segments_remove(const char *dir)
{
    DIR *d = opendir(dir);
    uint64_t number;
    if (!d)
        return;
    for (struct dirent *e; (e = readdir(d));) {
        if (!has_number(e->d_name, ".seg.new", &number))
            continue;
        char *path = dir_path(dir, e->d_name);
        io->unlink(path);
        free(path);
    }
    closedir(d);
}

int newest_marker_read(const char *dir, uint64_t *sequence)
{
    DIR *d = opendir(dir);
    uint64_t number;
    *sequence = 0;
    if (!d)
        return -1;
    for (struct dirent *e; (e = readdir(d));)
        if (has_number(e->d_name, MARKER_SUFFIX, &number) && number > *sequence)
            *sequence = number;
    closedir(d);
    return 0;
}

uint64_t newest_marker_write(const char *dir, uint64_t before, uint64_t sequence)
{
    char *path = newest_marker_path(dir, sequence), *old = newest_marker_path(dir, before);
    bool done = before == sequence || (before != 0 && io->rename(old, path) == 0);
    if (!done) {
        int fd = io->open(path, O_WRONLY | O_CREAT | O_CLOEXEC, IO_PRIVATE_MODE);
        done = fd >= 0;
        if (done)
            io->close(fd);
    }
    free(path);
    free(old);
    return done ? sequence : before;
}

void newest_marker_state(const char *dir, uint64_t number, const char statement[SYNCED_END])
{
    char *path = newest_marker_path(dir, number);
    int fd = io->open(path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0);
    free(path);
    if (fd < 0)
        return;
    (void)!io_write_all(fd, statement, SYNCED_END, 0);
    io->close(fd);
}

void newest_marker_statement(const char *dir, uint64_t number, char out[SYNCED_END])
{
    char *path = newest_marker_path(dir, number);
    int fd = file_open(path);
    free(path);
    memset(out, 0, SYNCED_END);
    if (fd < 0)
        return;
    if (file_read(fd, out, SYNCED_END, 0) != (ssize_t)SYNCED_END)
        memset(out, 0, SYNCED_END);
    io->close(fd);
}

int newest_marker_remove(const char *dir, int dir_fd)
{
    for (bool removed = false;; removed = true) {
        uint64_t number;
        if (newest_marker_read(dir, &number) != 0)
            return -1;
        if (number == 0)
            return removed ? io->fsync(dir_fd) : 0;
        char *path = newest_marker_path(dir, number);
        int failed = io->unlink(path);
        free(path);
        if (failed)
            return -1;
    }
}

int file_open(const char *path)
{
    int fd;
    do
        fd = io->open(path, O_RDONLY | O_CLOEXEC, 0);
    while (fd < 0 && errno == EINTR);
    return fd;
}

ssize_t file_read(int fd, void *p, size_t n, uint64_t at)
{
    size_t done = 0;
    while (done < n) {
        ssize_t got = io->pread(fd, (char *)p + done, n - done, (off_t)(at + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        done += (size_t)got;
    }
    return (ssize_t)done;
}

int file_copy(int from, int to, uint64_t at, uint64_t end)
{
    char *bytes = mem_alloc(COPY_CHUNK);
    bool failed = false;
    while (at < end && !failed) {
        ssize_t n = file_read(from, bytes, end - at < COPY_CHUNK ? (size_t)(end - at) : COPY_CHUNK, at);
        if (n == 0)
            errno = EIO; /* the file is shorter than expected */
        failed = n <= 0 || io_write_all(to, bytes, (size_t)n, (off_t)at) != 0;
        at += n > 0 ? (uint64_t)n : 0;
    }
    free(bytes);
    return failed ? -1 : 0;
}

int segment_read_header(
    const char *dir, uint64_t sequence, struct segment_header *h, enum header_status *status)
{
    char raw[SEGMENT_HEADER], *path = segment_path(dir, sequence, "");
    int fd = file_open(path);
    free(path);
    if (fd < 0)
        return -1;
    ssize_t n = file_read(fd, raw, sizeof raw, 0);
    int saved = errno;
    io->close(fd);
    errno = saved;
    if (n < 0)
        return -1;
    *status = segment_header_decode(bytes_of(raw, (size_t)n), h);
    if (*status == HEADER_OK && h->sequence != sequence)
        *status = HEADER_DAMAGED;
    return 0;
}

int sync_or_eio(int failed)
{
    if (failed && errno_is_full(errno))
        errno = EIO;
    return failed;
}

void failure_set(char text[JOURNAL_ERROR_TEXT], const char *path, const char *what, int system)
{
    if (system)
        snprintf(text, JOURNAL_ERROR_TEXT, "%s: %s: %s", path, what, strerror(system));
    else
        snprintf(text, JOURNAL_ERROR_TEXT, "%s: %s", path, what);
}

#define NOTE_BYTES_MAX 1024
#define NOTE_VERSION 1u

static const char *const stages[] = {"moving", "moved", "done"};

static void note_encode(const struct repair_note *n, struct buf *out)
{
    buf_printf(out,
        "millrace journal repair %u\n"
        "stage %s\n"
        "damaged %" PRIu64 " %" PRIu64 "\n"
        "kept %" PRIu64 " %" PRIu64 "\n"
        "lost %" PRIu64 "\n"
        "below %" PRIu64 "\n"
        "aside %s\n",
        NOTE_VERSION, stages[n->stage], n->sequence, n->cut_at, n->first, n->end, n->lost, n->below,
        n->aside);
    buf_printf(out, "checksum %016" PRIx64 "\n", (uint64_t)XXH3_64bits(out->ptr, out->len));
}

/* A repair note is valid only if encoding the decoded note gives the same bytes. A NUL must follow `text`. */
static bool note_decode(struct bytes text, struct repair_note *n)
{
    char stage[16];
    struct buf again = {0};
    int got = sscanf(text.ptr,
        "millrace journal repair %*u\nstage %15s\ndamaged %" SCNu64 " %" SCNu64 "\nkept %" SCNu64 " %" SCNu64
        "\nlost %" SCNu64 "\nbelow %" SCNu64 "\naside %127s",
        stage, &n->sequence, &n->cut_at, &n->first, &n->end, &n->lost, &n->below, n->aside);
    if (got != 8)
        return false;
    for (n->stage = REPAIR_MOVING; n->stage < REPAIR_DONE && strcmp(stage, stages[n->stage]) != 0;)
        n->stage++;
    note_encode(n, &again);
    bool same = bytes_equal(buf_bytes(&again), text) && !strchr(n->aside, '/');
    buf_free(&again);
    return same;
}

enum journal_result repair_note_read(
    const char *dir, struct repair_note *n, bool *there, char *error, size_t error_size)
{
    char text[NOTE_BYTES_MAX + 1], *path = dir_path(dir, REPAIR_NOTE_NAME);
    enum journal_result r = JOURNAL_OK;
    unsigned version = 0;
    int fd = file_open(path);
    ssize_t len = fd >= 0 ? file_read(fd, text, NOTE_BYTES_MAX, 0) : -1;
    int system = errno;
    if (fd >= 0)
        io->close(fd);
    *there = len >= 0;
    text[len > 0 ? len : 0] = 0;
    if (len < 0 && system != ENOENT) {
        snprintf(error, error_size, "%s: cannot read: %s", path, strerror(system));
        r = JOURNAL_IO;
    } else if (len >= 0 && !note_decode(bytes_of(text, (size_t)len), n)) {
        bool unknown = sscanf(text, "millrace journal repair %u", &version) == 1 && version != NOTE_VERSION;
        r = unknown ? JOURNAL_VERSION : JOURNAL_DAMAGED;
        snprintf(error, error_size, "%s: %s", path,
            unknown ? "unknown format version" : "damaged: not the note of a repair");
    }
    free(path);
    return r;
}

int repair_note_write(const char *dir, const struct repair_note *n)
{
    char *path = dir_path(dir, REPAIR_NOTE_NAME);
    struct buf text = {0};
    note_encode(n, &text);
    int failed = io_replace_file(path, buf_bytes(&text), IO_PRIVATE_MODE);
    buf_free(&text);
    free(path);
    return failed;
}

enum journal_result repair_note_check(const char *dir, char *error, size_t error_size)
{
    struct repair_note n;
    bool there;
    enum journal_result r = repair_note_read(dir, &n, &there, error, error_size);
    if (r != JOURNAL_OK || !there || n.stage == REPAIR_DONE)
        return r;
    snprintf(error, error_size, "%s: a repair was interrupted; run the repair again", dir);
    return JOURNAL_DAMAGED;
}
