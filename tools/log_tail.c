#include "tools/log_tail.h"

#include "base/io.h"
#include "counts/json_fields.h"
#include "base/xxh3.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Earlier bytes of the file; length 0: unknown. */
struct sample {
    uint64_t end, length, sum;
};

struct place {
    uint64_t base, device, inode;
    struct sample seen;
};

struct log_tail {
    char *path, *state_path;
    int lock;    /* descriptor of the state file; -1: none yet */
    bool locked; /* by another process */
    struct place place;
    struct line_source *source; /* NULL: no file yet */
    uint64_t given;             /* offset in this file after the last line */
    bool unsaved;               /* place.seen is not in the state file */
    bool renamed;               /* its name means another file or none */
    usec_t renamed_at;          /* time it was noticed */
    bool over;                  /* renamed and complete */
    bool cut;
};

static int fail(char *error, const char *path)
{
    snprintf(error, LINE_SOURCE_ERROR_MAX, "%.200s: %s", path, strerror(errno));
    return -1;
}

static bool names(const char *path, int fd)
{
    struct stat named, opened;
    return stat(path, &named) == 0 && fstat(fd, &opened) == 0 && named.st_dev == opened.st_dev &&
           named.st_ino == opened.st_ino;
}

static int refuse_second(struct log_tail *t, char *error)
{
    t->locked = true;
    snprintf(error, LINE_SOURCE_ERROR_MAX,
        "%.150s: another process follows this log under the same name (lock on %.150s)", t->path,
        t->state_path);
    return -1;
}

/* Opens again if the previous holder of the lock has replaced the file. */
static int open_locked(struct log_tail *t, const char *path, int flags, char *error)
{
    for (;;) {
        int fd = io->open(path, flags | O_CLOEXEC, 0666);
        if (fd < 0)
            return fail(error, path);
        bool locked = io->flock(fd, LOCK_EX | LOCK_NB) == 0;
        if (locked && names(path, fd))
            return fd;
        bool taken = !locked && errno == EWOULDBLOCK;
        if (!locked)
            fail(error, path);
        io->close(fd);
        if (!locked)
            return taken ? refuse_second(t, error) : -1;
    }
}

/* States of an earlier version have no sample. */
static void read_sample(const struct json_doc *doc, struct sample *out)
{
    bool ok = json_doc_u64(doc, "/seen", &out->end) && json_doc_u64(doc, "/length", &out->length) &&
              json_doc_u64(doc, "/xxh3", &out->sum);
    if (!ok || out->length > LOG_TAIL_SAMPLE_MAX || out->length > out->end)
        *out = (struct sample){0};
}

/* 1: read and locked; 0: none; -1 with the reason. Syncs the directory, because a killed predecessor may not have. */
static int read_state(struct log_tail *t, char *error)
{
    char text[1000];
    struct place *out = &t->place;
    t->lock = open_locked(t, t->state_path, O_RDWR, error);
    if (t->lock < 0)
        return !t->locked && errno == ENOENT ? 0 : -1;
    ssize_t n = io->pread(t->lock, text, sizeof text, 0);
    struct json_doc *doc = n > 0 ? json_doc_parse(bytes_of(text, (size_t)n)) : NULL;
    bool ok = doc != NULL && json_doc_at(doc, "/format").v.i64 == 1 &&
              json_doc_u64(doc, "/base", &out->base) && json_doc_u64(doc, "/device", &out->device) &&
              json_doc_u64(doc, "/inode", &out->inode);
    if (ok)
        read_sample(doc, &out->seen);
    json_doc_free(&doc);
    if (!ok) {
        snprintf(error, LINE_SOURCE_ERROR_MAX, "%.200s: not a state file of --follow", t->state_path);
        return -1;
    }
    return io_sync_parent(t->state_path) == 0 ? 1 : fail(error, t->state_path);
}

static int publish_state(struct log_tail *t, int fd, const char *fresh, char *error)
{
    struct buf text = {0};
    struct stat st;
    const struct place *p = &t->place;
    /* Another process may have created it meanwhile. */
    if (t->lock < 0 && stat(t->state_path, &st) == 0)
        return refuse_second(t, error);
    buf_printf(&text,
        "{\"format\":1,\"base\":\"%" PRIu64 "\",\"device\":\"%" PRIu64 "\",\"inode\":\"%" PRIu64 "\"",
        p->base, p->device, p->inode);
    if (p->seen.length > 0)
        buf_printf(&text, ",\"seen\":\"%" PRIu64 "\",\"length\":\"%" PRIu64 "\",\"xxh3\":\"%" PRIu64 "\"",
            p->seen.end, p->seen.length, p->seen.sum);
    buf_printf(&text, "}\n");
    bool ok = io->ftruncate(fd, 0) == 0 && io_write_all(fd, text.ptr, text.len, 0) == 0 &&
              io->fdatasync(fd) == 0 && io->rename(fresh, t->state_path) == 0 &&
              io_sync_parent(t->state_path) == 0;
    buf_free(&text);
    return ok ? 0 : fail(error, t->state_path);
}

/* Locks belong to files, so the new file is locked before it is renamed. */
static int write_state(struct log_tail *t, char *error)
{
    struct buf fresh = {0};
    buf_printf(&fresh, "%s.new", t->state_path);
    int fd = open_locked(t, fresh.ptr, O_WRONLY | O_CREAT, error);
    int rc = fd < 0 ? -1 : publish_state(t, fd, fresh.ptr, error);
    int old = rc == 0 ? t->lock : fd;
    if (old >= 0)
        io->close(old);
    if (rc == 0) {
        t->lock = fd;
        t->unsaved = false;
    }
    buf_free(&fresh);
    return rc;
}

static bool is_file(const struct stat *st, const struct place *p)
{
    return (uint64_t)st->st_dev == p->device && (uint64_t)st->st_ino == p->inode;
}

static struct place place_of(const struct stat *st)
{
    return (struct place){.device = (uint64_t)st->st_dev, .inode = (uint64_t)st->st_ino};
}

static bool is_newer(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec != b->tv_sec ? a->tv_sec > b->tv_sec : a->tv_nsec > b->tv_nsec;
}

/* Creation times give the order of rotated logs, because a writer may still write to an old log. Modification times are used where the file
 * system has no creation times (.made is zero). */
struct age {
    struct timespec made, written;
};

static struct age age_of(int directory, const char *path, int flags, const struct stat *st)
{
    struct statx x;
    struct age age = {.written = st->st_mtim};
    if (statx(directory, path, flags, STATX_BTIME, &x) == 0 && (x.stx_mask & STATX_BTIME))
        age.made = (struct timespec){.tv_sec = x.stx_btime.tv_sec, .tv_nsec = x.stx_btime.tv_nsec};
    return age;
}

static bool is_older(const struct age *a, const struct age *b)
{
    bool same = !is_newer(&a->made, &b->made) && !is_newer(&b->made, &a->made);
    return same ? is_newer(&b->written, &a->written) : is_newer(&b->made, &a->made);
}

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static char *directory_of(const char *path)
{
    const char *name = name_of(path);
    return name > path ? bytes_dup(bytes_of(path, (size_t)(name - path))) : mem_strdup("./");
}

/* access.log.1 starts with access.log. */
static bool goes_on(const char *name, const char *log)
{
    return strncmp(name, log, strlen(log)) == 0;
}

bool log_tail_could_read(const char *path, const char *other)
{
    struct stat mine, its;
    char *here = directory_of(path), *there = directory_of(other);
    bool beside = stat(here, &mine) == 0 && stat(there, &its) == 0 && mine.st_dev == its.st_dev &&
                  mine.st_ino == its.st_ino;
    free(here);
    free(there);
    return beside && goes_on(name_of(other), name_of(path));
}

/* Calls see() for each regular file in the directory whose name starts with the log's. */
static void each_sibling(
    const char *path, void (*see)(const char *path, const struct stat *st, void *arg), void *arg)
{
    const char *name = name_of(path);
    char *directory = directory_of(path);
    DIR *d = opendir(directory);
    struct buf full = {0};
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        struct stat st;
        buf_clear(&full);
        buf_printf(&full, "%s%s", directory, e->d_name);
        if (goes_on(e->d_name, name) && stat(full.ptr, &st) == 0 && S_ISREG(st.st_mode))
            see(full.ptr, &st, arg);
    }
    if (d != NULL)
        closedir(d);
    buf_free(&full);
    free(directory);
}

struct search {
    const struct place *place; /* the file to find, or to leave */
    struct place state[2];     /* the state file and its successor: not logs */
    struct age left, best;
    char *found;
    bool begun; /* the found file has data */
};

static void see_same(const char *path, const struct stat *st, void *arg)
{
    struct search *s = arg;
    if (s->found == NULL && is_file(st, s->place))
        s->found = mem_strdup(path);
}

/* A packed copy of a rotated file. */
static bool is_packed(const char *path)
{
    static const char *const suffixes[] = {".gz", ".zst", ".xz", ".bz2", ".lz4", ".lzma", ".Z", ".zip"};
    size_t n = strlen(path);
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        size_t m = strlen(suffixes[i]);
        if (n > m && strcmp(path + n - m, suffixes[i]) == 0)
            return true;
    }
    return false;
}

/* The oldest file that is not older than the one to leave. */
static void see_next(const char *path, const struct stat *st, void *arg)
{
    struct search *s = arg;
    if (is_file(st, s->place) || is_file(st, &s->state[0]) || is_file(st, &s->state[1]) || is_packed(path))
        return;
    struct age age = age_of(AT_FDCWD, path, 0, st);
    if (is_older(&age, &s->left) || (s->found != NULL && !is_older(&age, &s->best)))
        return;
    free(s->found);
    s->found = mem_strdup(path);
    s->best = age;
    s->begun = st->st_size > 0;
}

/* The file after the current one; .found NULL: none yet. By modification times the current file may look newest if it was written to
 * after the next was created; the file under the log's name is newer all the same. */
static struct search find_next(const struct log_tail *t, const struct stat *left)
{
    struct search s = {
        .place = &t->place, .left = age_of(line_source_fd(t->source), "", AT_EMPTY_PATH, left)};
    struct stat st;
    struct buf fresh = {0};
    buf_printf(&fresh, "%s.new", t->state_path);
    if (stat(t->state_path, &st) == 0)
        s.state[0] = place_of(&st);
    if (stat(fresh.ptr, &st) == 0)
        s.state[1] = place_of(&st);
    buf_free(&fresh);
    each_sibling(t->path, see_next, &s);
    if (s.found == NULL && stat(t->path, &st) == 0 && !is_file(&st, &t->place)) {
        s.found = mem_strdup(t->path);
        s.begun = st.st_size > 0;
    }
    return s;
}

static int take_source(struct log_tail *t, const char *path, char *error)
{
    struct stat st;
    t->source = line_source_open(path, error);
    if (t->source == NULL || line_source_check(t->source, error) != 0)
        return -1;
    if (fstat(line_source_fd(t->source), &st) != 0)
        return fail(error, path);
    t->place.device = (uint64_t)st.st_dev;
    t->place.inode = (uint64_t)st.st_ino;
    t->renamed = t->over = false;
    return 0;
}

static int begin_at(struct log_tail *t, uint64_t base, char *error)
{
    t->place.base = base;
    t->place.seen = (struct sample){0};
    t->given = 0;
    t->cut = false;
    return write_state(t, error);
}

static int begin(struct log_tail *t, const char *path, uint64_t base, char *error)
{
    return take_source(t, path, error) == 0 ? begin_at(t, base, error) : -1;
}

/* Starts the same file again after a truncation. */
static int begin_again(struct log_tail *t, char *error)
{
    uint64_t base = log_tail_offset(t);
    int fd = fcntl(line_source_fd(t->source), F_DUPFD_CLOEXEC, 0);
    if (fd < 0 || lseek(fd, 0, SEEK_SET) < 0)
        return fail(error, t->path);
    line_source_close(&t->source);
    t->source = line_source_of(fd, t->path, error);
    return t->source != NULL ? begin_at(t, base, error) : -1;
}

static bool is_hole(const char *p, size_t n)
{
    size_t i = 0;
    while (i < n && p[i] == 0)
        i++;
    return i == n;
}

/* The sampled bytes have changed. */
static bool was_rewritten(const struct log_tail *t)
{
    char text[LOG_TAIL_SAMPLE_MAX];
    const struct sample *s = &t->place.seen;
    size_t n = (size_t)s->length;
    if (n == 0 || io->pread(line_source_fd(t->source), text, n, (off_t)(s->end - n)) != (ssize_t)n)
        return false;
    return XXH3_64bits(text, n) != s->sum && !is_hole(text, n);
}

/* Whether the file was truncated before the last read. A file shorter than that was truncated after it. */
static bool was_cut(const struct log_tail *t)
{
    struct stat st;
    return was_rewritten(t) && fstat(line_source_fd(t->source), &st) == 0 &&
           (uint64_t)st.st_size >= line_source_fetched(t->source);
}

/* Samples the last bytes returned. A new sample only at twice the length, so that the state is written rarely. */
static void take_sample(struct log_tail *t)
{
    struct bytes given = line_source_recent(t->source, LOG_TAIL_SAMPLE_MAX);
    if (given.len == 0 || t->given < 2 * t->place.seen.end)
        return;
    t->place.seen =
        (struct sample){.end = t->given, .length = given.len, .sum = XXH3_64bits(given.ptr, given.len)};
    t->unsaved = true;
}

/* False: it is shorter, no line ends there, or the sample differs. */
static bool goes_on_at(struct log_tail *t, const char *path, uint64_t at, char *error)
{
    if (take_source(t, path, error) != 0)
        return false;
    /* A sample after the offset was not stored by the queue. */
    if (at < t->place.seen.end)
        t->place.seen = (struct sample){0};
    return at == 0 ||
           (line_source_skip(t->source, at, &t->given, error) == 0 && t->given == at && !was_rewritten(t));
}

/* Opens the file of the state at the offset; its inode may have been reused. */
static enum log_tail_start find_place(struct log_tail *t, uint64_t offset, char *error)
{
    struct search s = {.place = &t->place};
    if (offset < t->place.base)
        return LOG_TAIL_GONE;
    each_sibling(t->path, see_same, &s);
    if (s.found == NULL)
        return LOG_TAIL_GONE;
    bool found = goes_on_at(t, s.found, offset - t->place.base, error);
    free(s.found);
    return found ? LOG_TAIL_FOUND : LOG_TAIL_REWRITTEN;
}

static int resume(struct log_tail *t, uint64_t offset, enum log_tail_start *place, char *error)
{
    *place = find_place(t, offset, error);
    if (*place == LOG_TAIL_FOUND)
        return 0;
    line_source_close(&t->source);
    return begin(t, t->path, offset, error);
}

static int open_first(struct log_tail *t, uint64_t offset, char *error)
{
    if (begin(t, t->path, 0, error) != 0)
        return -1;
    if (offset == 0)
        return 0;
    if (line_source_skip(t->source, offset, &t->given, error) != 0)
        return -1;
    if (t->given == offset)
        return 0;
    snprintf(error, LINE_SOURCE_ERROR_MAX,
        "%.100s: shorter than the producer's mark, and no state file (%.100s) names an earlier log", t->path,
        t->state_path);
    return -1;
}

struct log_tail *log_tail_open(const char *path, const char *state_path, uint64_t offset,
    enum log_tail_start *place, char error[LINE_SOURCE_ERROR_MAX])
{
    struct log_tail *t = mem_zalloc(sizeof *t);
    t->path = mem_strdup(path);
    t->state_path = mem_strdup(state_path);
    t->lock = -1;
    *place = LOG_TAIL_FOUND;
    int found = read_state(t, error);
    int rc = found < 0 ? -1 : found > 0 ? resume(t, offset, place, error) : open_first(t, offset, error);
    if (t->locked)
        *place = LOG_TAIL_LOCKED;
    if (rc != 0)
        log_tail_close(&t);
    return t;
}

void log_tail_close(struct log_tail **tp)
{
    struct log_tail *t = *tp;
    if (t == NULL)
        return;
    line_source_close(&t->source);
    if (t->lock >= 0)
        io->close(t->lock);
    free(t->path);
    free(t->state_path);
    free(t);
    *tp = NULL;
}

uint64_t log_tail_base(const struct log_tail *t)
{
    return t->place.base;
}

uint64_t log_tail_offset(const struct log_tail *t)
{
    return t->place.base + t->given;
}

enum writer { WRITER_NONE, WRITER_THERE, WRITER_UNKNOWN };

/* A read lease is refused while a process has the file open for writing. A process that opens the file during the lease waits for two
 * system calls; the lease's signal is set to SIGURG, which is ignored. */
static enum writer writer_of(int fd)
{
    (void)fcntl(fd, F_SETSIG, SIGURG);
    if (fcntl(fd, F_SETLEASE, F_RDLCK) != 0)
        return errno == EAGAIN ? WRITER_THERE : WRITER_UNKNOWN;
    (void)fcntl(fd, F_SETLEASE, F_UNLCK);
    return WRITER_NONE;
}

static bool next_is_begun(const struct log_tail *t, const struct stat *mine)
{
    struct search s = find_next(t, mine);
    bool begun = s.found != NULL && s.begun;
    free(s.found);
    return begun;
}

/* Whether the renamed file is complete. The caller reads to the end afterwards, so nothing is missed. */
static bool is_over(struct log_tail *t, usec_t now)
{
    struct stat mine;
    enum writer writer = writer_of(line_source_fd(t->source));
    if (writer == WRITER_NONE || fstat(line_source_fd(t->source), &mine) != 0)
        return true;
    usec_t written_at = mine.st_mtim.tv_sec * USEC_PER_SEC + mine.st_mtim.tv_nsec / 1000;
    usec_t quiet = now - (written_at > t->renamed_at ? written_at : t->renamed_at);
    bool cut = (uint64_t)mine.st_size > line_source_offset(t->source);
    if (writer == WRITER_UNKNOWN)
        return quiet >= (cut ? LOG_TAIL_TIMEOUT : LOG_TAIL_GRACE);
    return quiet >= LOG_TAIL_TIMEOUT && next_is_begun(t, &mine);
}

/* At the end of the file so far. */
static enum log_tail_result at_end(struct log_tail *t, usec_t now)
{
    struct stat named, mine;
    if (t->renamed) {
        t->over = is_over(t, now);
        return LOG_TAIL_WAIT;
    }
    if (stat(t->path, &named) == 0 && is_file(&named, &t->place)) {
        t->cut = fstat(line_source_fd(t->source), &mine) == 0 &&
                 (uint64_t)mine.st_size < line_source_consumed(t->source);
        return t->cut ? LOG_TAIL_CUT : LOG_TAIL_WAIT;
    }
    t->renamed = true;
    t->renamed_at = now;
    return at_end(t, now);
}

enum log_tail_result log_tail_next(
    struct log_tail *t, usec_t now, struct bytes *line, char error[LINE_SOURCE_ERROR_MAX])
{
    static const enum log_tail_result results[] = {
        [LINE_SOURCE_FAILED] = LOG_TAIL_FAILED,
        [LINE_SOURCE_LINE] = LOG_TAIL_LINE,
        [LINE_SOURCE_SKIPPING] = LOG_TAIL_SKIPPING,
        [LINE_SOURCE_SKIPPED] = LOG_TAIL_SKIPPED,
    };
    for (;;) {
        uint64_t had = line_source_fetched(t->source);
        enum line_source_result next = line_source_next(t->source, !t->over, line, error);
        t->cut = line_source_fetched(t->source) > had && was_cut(t);
        if (t->cut)
            return LOG_TAIL_CUT;
        if (next == LINE_SOURCE_LINE || next == LINE_SOURCE_SKIPPED) {
            t->given = line_source_offset(t->source);
            take_sample(t);
        }
        if (next != LINE_SOURCE_END)
            return results[next];
        if (t->over)
            return LOG_TAIL_FINISHED;
        enum log_tail_result r = at_end(t, now);
        /* In a complete file the last line counts without LF too. */
        if (!t->over)
            return r;
    }
}

int log_tail_stored(struct log_tail *t, char error[LINE_SOURCE_ERROR_MAX])
{
    return t->unsaved ? write_state(t, error) : 0;
}

int log_tail_next_file(struct log_tail *t, char error[LINE_SOURCE_ERROR_MAX])
{
    struct stat st;
    if (t->cut)
        return begin_again(t, error);
    if (fstat(line_source_fd(t->source), &st) != 0)
        return fail(error, t->path);
    struct search s = find_next(t, &st);
    if (s.found == NULL)
        return 1;
    line_source_close(&t->source);
    int rc = begin(t, s.found, log_tail_offset(t), error);
    free(s.found);
    return rc;
}
