#include "tools/put/log_tail.h"

#include "base/io.h"
#include "json/json_fields.h"
#include "base/xxh3.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

/* A checksum of earlier bytes of the file. length 0: none. */
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
    bool locked; /* another process has the lock */
    uint64_t id; /* id of the state file; 0: none yet */
    char tag[LOG_TAIL_TAG];
    struct place place;
    struct line_source *source; /* NULL: no file yet */
    uint64_t given;             /* offset in the current file after the last returned line */
    int64_t posted;             /* of the content that log_tail_open has not found */
    bool unsaved;               /* place.seen is not in the state file yet */
    bool renamed;               /* the log's name no longer refers to the current file */
    usec_t renamed_at;          /* when the rename was noticed */
    bool over;                  /* the current file was renamed and is complete */
    bool cut;
};

static int fail(struct error *error, const char *path)
{
    return error_set(error, -1, "%.200s: %s", path, strerror(errno));
}

static int fail_state(const struct log_tail *t, struct error *error)
{
    fail(error, t->state_path);
    error->code = EX_CANTCREAT;
    return -1;
}

static int refuse_second(struct log_tail *t, struct error *error)
{
    t->locked = true;
    return error_set(error, -1,
        "%.150s: another process follows this log under the same name (lock on %.150s)", t->path,
        t->state_path);
}

/* Opens and locks a file. If the previous holder of the lock has replaced the file, opens and locks the new one. */
static int open_locked(struct log_tail *t, const char *path, int flags, struct error *error)
{
    for (;;) {
        struct stat named, opened;
        int fd = io->open(path, flags | O_CLOEXEC, 0666);
        if (fd < 0)
            return fail_state(t, error);
        bool locked = io->flock(fd, LOCK_EX | LOCK_NB) == 0;
        if (locked && stat(path, &named) == 0 && fstat(fd, &opened) == 0 && named.st_dev == opened.st_dev &&
            named.st_ino == opened.st_ino)
            return fd;
        bool taken = !locked && errno == EWOULDBLOCK;
        if (!locked)
            fail_state(t, error);
        io->close(fd);
        if (!locked)
            return taken ? refuse_second(t, error) : -1;
    }
}

/* Reads and locks the state file. Returns 1, or 0 if there is none, or -1 with the reason. Syncs the directory, because
 * an earlier process may have been killed before it did. */
static int read_state(struct log_tail *t, struct error *error)
{
    char text[1000];
    struct place *out = &t->place;
    struct sample *seen = &out->seen;
    t->lock = open_locked(t, t->state_path, O_RDWR, error);
    if (t->lock < 0)
        return !t->locked && errno == ENOENT ? 0 : -1;
    ssize_t n = io->pread(t->lock, text, sizeof text, 0);
    struct json_doc *doc = n > 0 ? json_doc_parse(bytes_of(text, (size_t)n)) : NULL;
    bool ok = doc && json_doc_at(doc, "/format").v.i64 == 1 && json_doc_u64(doc, "/base", &out->base) &&
              json_doc_u64(doc, "/device", &out->device) && json_doc_u64(doc, "/inode", &out->inode);
    /* The sample is optional. */
    bool has_sample = ok && json_doc_u64(doc, "/seen", &seen->end) &&
                      json_doc_u64(doc, "/length", &seen->length) && json_doc_u64(doc, "/xxh3", &seen->sum);
    if (!has_sample || seen->length > LOG_TAIL_SAMPLE_MAX || seen->length > seen->end)
        *seen = (struct sample){0};
    if (!json_doc_u64(doc, "/id", &t->id))
        t->id = 0;
    json_doc_free(&doc);
    if (!ok)
        return error_set(error, -1, "%.200s: not a state file of --follow", t->state_path);
    return io_sync_parent(t->state_path) == 0 ? 1 : fail_state(t, error);
}

/* A lock belongs to a file, not to its name, so the new file is locked before it is renamed. */
static int write_state(struct log_tail *t, struct error *error)
{
    struct buf fresh = {0}, text = {0};
    const struct place *p = &t->place;
    struct stat st;
    int rc = -1;
    buf_printf(&fresh, "%s.new", t->state_path);
    buf_printf(&text,
        "{\"format\":1,\"id\":\"%" PRIu64 "\",\"base\":\"%" PRIu64 "\",\"device\":\"%" PRIu64
        "\",\"inode\":\"%" PRIu64 "\"",
        t->id, p->base, p->device, p->inode);
    if (p->seen.length > 0)
        buf_printf(&text, ",\"seen\":\"%" PRIu64 "\",\"length\":\"%" PRIu64 "\",\"xxh3\":\"%" PRIu64 "\"",
            p->seen.end, p->seen.length, p->seen.sum);
    buf_printf(&text, "}\n");
    int fd = open_locked(t, fresh.ptr, O_WRONLY | O_CREAT, error);
    if (fd < 0)
        goto out;
    if (t->lock < 0 && stat(t->state_path, &st) == 0) {
        refuse_second(t, error); /* another process has just created it */
    } else if (io->ftruncate(fd, 0) != 0 || io_write_all(fd, text.ptr, text.len, 0) != 0 ||
               io->fdatasync(fd) != 0 || io->rename(fresh.ptr, t->state_path) != 0 ||
               io_sync_parent(t->state_path) != 0) {
        fail_state(t, error);
    } else {
        int old = t->lock;
        t->lock = fd;
        t->unsaved = false;
        fd = old;
        rc = 0;
    }
    if (fd >= 0)
        io->close(fd);
out:
    buf_free(&fresh);
    buf_free(&text);
    return rc;
}

static bool is_file(const struct stat *st, const struct place *p)
{
    return (uint64_t)st->st_dev == p->device && (uint64_t)st->st_ino == p->inode;
}

static bool is_newer(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec != b->tv_sec ? a->tv_sec > b->tv_sec : a->tv_nsec > b->tv_nsec;
}

/* Creation times give the order of rotated logs, because a writer may still write to an old log. Modification
 * times are used where the file system has no creation times (.made is zero). */
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
    return slash ? slash + 1 : path;
}

/* Rotated files keep the log's name as a prefix, as in access.log.1. */
static bool goes_on(const char *name, const char *log)
{
    return strncmp(name, log, strlen(log)) == 0;
}

bool log_tail_could_read(const char *path, const char *other)
{
    struct stat mine, its;
    char here[PATH_MAX], there[PATH_MAX];
    io_parent_of(path, here);
    io_parent_of(other, there);
    return stat(here, &mine) == 0 && stat(there, &its) == 0 && mine.st_dev == its.st_dev &&
           mine.st_ino == its.st_ino && goes_on(name_of(other), name_of(path));
}

bool log_tail_is_packed(const char *path)
{
    static const char packed[] = ".gz .zst .xz .bz2 .lz4 .lzma .Z .zip";
    const char *dot = strrchr(path, '.'), *list = packed;
    for (struct bytes word; dot && bytes_next_word(&list, " ", &word);)
        if (bytes_equal_str(word, dot))
            return true;
    return false;
}

/* Files that are not logs: packed copies, the state file and its replacement. */
static bool is_no_log(const struct log_tail *t, const char *path, const struct stat *st)
{
    struct stat its;
    bool same = false;
    char *state = mem_printf("%s.new", t->state_path);
    for (int i = 0; i < 2 && !same; i++) {
        same = stat(state, &its) == 0 && its.st_dev == st->st_dev && its.st_ino == st->st_ino;
        state[strlen(t->state_path)] = '\0';
    }
    free(state);
    return same || log_tail_is_packed(path);
}

struct found {
    char *path; /* NULL: none */
    bool begun; /* the file has data */
};

/* Searches the regular files beside the log whose names start with the log's. With `left` NULL, finds the current file.
 * Otherwise finds the next file: the oldest log that is not older than the current file, whose status is `left`. The
 * file under the log's name is always newer than the current file, although the current file may have a later
 * modification time. */
static struct found find_file(const struct log_tail *t, const struct stat *left)
{
    struct found found = {NULL, false};
    struct age best = {0}, mine = {0};
    struct buf full = {0};
    struct stat st;
    char directory[PATH_MAX];
    io_parent_of(t->path, directory);
    DIR *d = opendir(directory);
    if (left)
        mine = age_of(line_source_fd(t->source), "", AT_EMPTY_PATH, left);
    for (struct dirent *e; d && (e = readdir(d));) {
        buf_clear(&full);
        buf_printf(&full, "%s/%s", directory, e->d_name);
        if (!goes_on(e->d_name, name_of(t->path)) || stat(full.ptr, &st) != 0 || !S_ISREG(st.st_mode) ||
            is_file(&st, &t->place) != (left == NULL) || (left && is_no_log(t, full.ptr, &st)))
            continue;
        struct age age = age_of(AT_FDCWD, full.ptr, 0, &st);
        if (left && (is_older(&age, &mine) || (found.path && !is_older(&age, &best))))
            continue;
        free(found.path);
        found = (struct found){mem_strdup(full.ptr), st.st_size > 0};
        best = age;
    }
    if (d)
        closedir(d);
    buf_free(&full);
    if (left && !found.path && stat(t->path, &st) == 0 && !is_file(&st, &t->place))
        found = (struct found){mem_strdup(t->path), st.st_size > 0};
    return found;
}

static int take_source(struct log_tail *t, const char *path, struct error *error)
{
    struct stat st;
    t->source = line_source_open(path, error);
    if (!t->source || line_source_check(t->source, error) != 0)
        return -1;
    line_source_skip_holes(t->source);
    if (fstat(line_source_fd(t->source), &st) != 0)
        return fail(error, path);
    t->place.device = (uint64_t)st.st_dev;
    t->place.inode = (uint64_t)st.st_ino;
    t->renamed = t->over = false;
    return 0;
}

static int begin_at(struct log_tail *t, uint64_t base, struct error *error)
{
    t->place.base = base;
    t->place.seen = (struct sample){0};
    t->given = 0;
    t->cut = false;
    return write_state(t, error);
}

static int begin(struct log_tail *t, const char *path, uint64_t base, struct error *error)
{
    return take_source(t, path, error) == 0 ? begin_at(t, base, error) : -1;
}

/* Returns whether the sampled bytes have changed. */
static bool was_rewritten(const struct log_tail *t)
{
    char text[LOG_TAIL_SAMPLE_MAX];
    const struct sample *s = &t->place.seen;
    size_t n = (size_t)s->length, zeros = 0;
    if (n == 0 || io->pread(line_source_fd(t->source), text, n, (off_t)(s->end - n)) != (ssize_t)n)
        return false;
    while (zeros < n && text[zeros] == '\0')
        zeros++;
    return XXH3_64bits(text, n) != s->sum && zeros < n;
}

/* Opens the file that the state names, at `offset`. The inode may have been reused, so the content is checked too. */
static enum log_tail_start find_place(struct log_tail *t, uint64_t offset, struct error *error)
{
    struct found found = offset < t->place.base ? (struct found){NULL, false} : find_file(t, NULL);
    if (!found.path)
        return LOG_TAIL_GONE;
    uint64_t at = offset - t->place.base;
    bool ok = take_source(t, found.path, error) == 0;
    free(found.path);
    /* Drop a sample that ends after the mark, because the queue has not stored its bytes. */
    if (ok && at < t->place.seen.end)
        t->place.seen = (struct sample){0};
    ok = ok && (at == 0 || (line_source_skip(t->source, at, &t->given, error) == 0 && t->given == at &&
                               !was_rewritten(t)));
    return ok ? LOG_TAIL_FOUND : LOG_TAIL_REWRITTEN;
}

static int skip_without_state(struct log_tail *t, uint64_t offset, struct error *error)
{
    if (begin(t, t->path, 0, error) != 0 || line_source_skip(t->source, offset, &t->given, error) != 0)
        return -1;
    return t->given == offset ? 0
                              : error_set(error, -1,
                                    "%.100s: shorter than the producer's mark, and no state file (%.100s) "
                                    "names an earlier log",
                                    t->path, t->state_path);
}

/* True if a follower with another state file has set the mark. */
static bool is_of_other(struct log_tail *t, struct bytes tag, bool has_state)
{
    bool has_id = has_state && t->id != 0;
    if (!has_id && getrandom(&t->id, sizeof t->id, 0) != (ssize_t)sizeof t->id)
        abort();
    snprintf(t->tag, sizeof t->tag, LOG_TAIL_FOLLOWED ".%016" PRIx64, t->id);
    return log_tail_is_tag(tag) && !bytes_equal_str(tag, LOG_TAIL_FOLLOWED) &&
           !(has_id && bytes_equal_str(tag, t->tag));
}

bool log_tail_is_tag(struct bytes tag)
{
    return bytes_starts_with(tag, BYTES_LITERAL(LOG_TAIL_FOLLOWED));
}

struct log_tail *log_tail_open(const char *path, const char *state_path, uint64_t offset, struct bytes tag,
    enum log_tail_start *place, struct error *error)
{
    struct log_tail *t = mem_zalloc(sizeof *t);
    t->path = mem_strdup(path);
    t->state_path = mem_strdup(state_path);
    t->lock = -1;
    *place = LOG_TAIL_FOUND;
    int rc = read_state(t, error);
    bool has_state = rc > 0, has_id = t->id != 0;
    if (rc >= 0 && is_of_other(t, tag, has_state)) {
        *place = LOG_TAIL_OTHER;
        rc = error_set(error, -1,
            "%.100s: another follower has set the producer's mark, or the state file %.100s was lost",
            t->path, t->state_path);
    } else if (rc == 0) {
        rc = skip_without_state(t, offset, error);
    } else if (rc > 0) {
        t->posted = offset < t->place.base ? -1 : (int64_t)(offset - t->place.base);
        *place = find_place(t, offset, error);
        rc = 0;
        if (*place != LOG_TAIL_FOUND) {
            line_source_close(&t->source);
            rc = begin(t, t->path, offset, error);
        } else if (!has_id) {
            rc = write_state(t, error);
        }
    }
    if (t->locked)
        *place = LOG_TAIL_LOCKED;
    if (rc != 0)
        log_tail_close(&t);
    return t;
}

void log_tail_close(struct log_tail **tp)
{
    struct log_tail *t = *tp;
    if (!t)
        return;
    line_source_close(&t->source);
    if (t->lock >= 0)
        io->close(t->lock);
    free(t->path);
    free(t->state_path);
    free(t);
    *tp = NULL;
}

const char *log_tail_tag(const struct log_tail *t)
{
    return t->tag;
}

int64_t log_tail_posted(const struct log_tail *t)
{
    return t->posted;
}

uint64_t log_tail_base(const struct log_tail *t)
{
    return t->place.base;
}

uint64_t log_tail_offset(const struct log_tail *t)
{
    return t->place.base + t->given;
}

/* Returns whether the renamed file will get no more lines. The caller then reads the rest of the file, so no line is
 * missed. */
static bool is_over(struct log_tail *t, usec_t now)
{
    struct stat mine;
    int fd = line_source_fd(t->source);
    /* A read lease is refused while a process has the file open for writing. A process that opens the file during
     * the lease waits for two system calls; the lease's signal is set to SIGURG, which is ignored. */
    (void)fcntl(fd, F_SETSIG, SIGURG);
    bool leased = fcntl(fd, F_SETLEASE, F_RDLCK) == 0, has_writer = !leased && errno == EAGAIN;
    if (leased)
        (void)fcntl(fd, F_SETLEASE, F_UNLCK);
    if (leased || fstat(fd, &mine) != 0)
        return true;
    usec_t written_at = mine.st_mtim.tv_sec * USEC_PER_SEC + mine.st_mtim.tv_nsec / 1000;
    usec_t quiet = now - (written_at > t->renamed_at ? written_at : t->renamed_at);
    bool unfinished = (uint64_t)mine.st_size > line_source_offset(t->source);
    if (!has_writer) /* unknown */
        return quiet >= (unfinished ? LOG_TAIL_TIMEOUT : LOG_TAIL_GRACE);
    if (quiet < LOG_TAIL_TIMEOUT)
        return false;
    struct found next = find_file(t, &mine);
    free(next.path);
    return next.begun;
}

enum line_source_result log_tail_next(struct log_tail *t, usec_t now, struct bytes *line, struct error *error)
{
    struct stat named, mine;
    for (;;) {
        uint64_t had = line_source_fetched(t->source);
        enum line_source_result r = line_source_next(t->source, !t->over, line, error);
        /* Check whether the file was truncated before this read. If it is shorter than the bytes read, it was truncated
         * afterwards. */
        t->cut = line_source_fetched(t->source) > had && was_rewritten(t) &&
                 fstat(line_source_fd(t->source), &mine) == 0 &&
                 (uint64_t)mine.st_size >= line_source_fetched(t->source);
        if (t->cut)
            return LINE_SOURCE_CUT;
        if (r == LINE_SOURCE_LINE || r == LINE_SOURCE_SKIPPED) {
            struct bytes given = line_source_recent(t->source, LOG_TAIL_SAMPLE_MAX);
            t->given = line_source_offset(t->source);
            /* Take a new sample only when the length has doubled, so that the state file is rarely written. */
            if (given.len > 0 && t->given >= 2 * t->place.seen.end) {
                t->place.seen = (struct sample){t->given, given.len, XXH3_64bits(given.ptr, given.len)};
                t->unsaved = true;
            }
        }
        if (r != LINE_SOURCE_END)
            return r;
        if (t->over)
            return LINE_SOURCE_FINISHED;
        if (!t->renamed && stat(t->path, &named) == 0 && is_file(&named, &t->place)) {
            t->cut = fstat(line_source_fd(t->source), &mine) == 0 &&
                     (uint64_t)mine.st_size < line_source_consumed(t->source);
            return t->cut ? LINE_SOURCE_CUT : LINE_SOURCE_END;
        }
        if (!t->renamed)
            t->renamed_at = now;
        t->renamed = true;
        t->over = is_over(t, now);
        if (!t->over)
            return LINE_SOURCE_END;
        /* Now that the file is complete, read again: its last line may have no LF. */
    }
}

int log_tail_stored(struct log_tail *t, struct error *error)
{
    return t->unsaved ? write_state(t, error) : 0;
}

int log_tail_next_file(struct log_tail *t, struct error *error)
{
    struct stat st;
    uint64_t base = log_tail_offset(t);
    int old = line_source_fd(t->source);
    if (t->cut) {
        int fd = fcntl(old, F_DUPFD_CLOEXEC, 0);
        if (fd < 0 || lseek(fd, 0, SEEK_SET) < 0)
            return fail(error, t->path);
        line_source_close(&t->source);
        t->source = line_source_of(fd, t->path, error);
        if (t->source)
            line_source_skip_holes(t->source);
        return t->source ? begin_at(t, base, error) : -1;
    }
    if (fstat(old, &st) != 0)
        return fail(error, t->path);
    struct found next = find_file(t, &st);
    if (!next.path)
        return 1;
    line_source_close(&t->source);
    int rc = begin(t, next.path, base, error);
    free(next.path);
    return rc;
}
