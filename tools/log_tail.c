#include "log_tail.h"

#include "io.h"
#include "json_fields.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

struct place {
    uint64_t base, device, inode;
};

struct log_tail {
    char *path, *state_path;
    struct place place;
    struct line_source *source; /* NULL: the file is not there yet */
    bool renamed;               /* its name means another file, or none */
    usec_t renamed_at;          /* when that was seen */
    bool over;                  /* renamed, and nobody is going to write to it */
};

static int fail(char *error, const char *path)
{
    snprintf(error, LINE_SOURCE_ERROR_TEXT, "%.200s: %s", path, strerror(errno));
    return -1;
}

static bool number_at(const struct json_doc *doc, const char *pointer, uint64_t *out)
{
    struct json_value v = json_doc_at(doc, pointer);
    return v.type == JSON_STRING && bytes_to_u64(v.v.string, out);
}

/* 1: read; 0: there is none; -1 with the reason. The life before may have been killed before its name was durable: lines put
 * from here on would be of a file that the state after a power cut does not know. */
static int read_state(const char *path, struct place *out, char *error)
{
    char text[1000];
    int fd = io->open(path, O_RDONLY | O_CLOEXEC, 0);
    if (fd < 0)
        return errno == ENOENT ? 0 : fail(error, path);
    ssize_t n = io->pread(fd, text, sizeof text, 0);
    io->close(fd);
    struct json_doc *doc = n > 0 ? json_doc_parse(bytes_of(text, (size_t)n)) : NULL;
    bool ok = doc != NULL && json_doc_at(doc, "/format").v.i64 == 1 && number_at(doc, "/base", &out->base) &&
              number_at(doc, "/device", &out->device) && number_at(doc, "/inode", &out->inode);
    json_doc_free(&doc);
    if (!ok) {
        snprintf(error, LINE_SOURCE_ERROR_TEXT, "%.200s: this is no state of --follow", path);
        return -1;
    }
    return io_sync_parent(path) == 0 ? 1 : fail(error, path);
}

static int write_state(const struct log_tail *t, char *error)
{
    struct buf text = {0}, fresh = {0};
    buf_printf(&fresh, "%s.new", t->state_path);
    buf_printf(&text,
        "{\"format\":1,\"base\":\"%" PRIu64 "\",\"device\":\"%" PRIu64 "\",\"inode\":\"%" PRIu64 "\"}\n",
        t->place.base, t->place.device, t->place.inode);
    int fd = io->open(fresh.ptr, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    int rc = fd >= 0 && io_write_all(fd, text.ptr, text.len, 0) == 0 && io->fdatasync(fd) == 0 &&
                     io->rename(fresh.ptr, t->state_path) == 0 && io_sync_parent(t->state_path) == 0
                 ? 0
                 : fail(error, t->state_path);
    if (fd >= 0)
        io->close(fd);
    buf_free(&text);
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

/* Logs are made in the order of their rotation, and one may be written to after the next was made: a writer that turns to it
 * late. Only where the file system does not tell when a file was made (then .made is zero), its last byte has to. */
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

/* access.log.1 goes on where access.log ends. */
static bool goes_on(const char *name, const char *log)
{
    return strncmp(name, log, strlen(log)) == 0;
}

bool log_tail_takes(const char *path, const char *other)
{
    struct stat mine, its;
    char *here = directory_of(path), *there = directory_of(other);
    bool beside = stat(here, &mine) == 0 && stat(there, &its) == 0 && mine.st_dev == its.st_dev &&
                  mine.st_ino == its.st_ino;
    free(here);
    free(there);
    return beside && goes_on(name_of(other), name_of(path));
}

/* Calls see() for the log and each regular file beside it whose name goes on where the log's ends. */
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
    const struct place *place; /* the file that is wanted, or that is left */
    struct place state[2];     /* the state file and its next, which may lie beside the log under names like a
                                  rotated one's */
    struct age left, best;
    char *found;
    bool begun; /* something is in what was found */
};

static void see_same(const char *path, const struct stat *st, void *arg)
{
    struct search *s = arg;
    if (s->found == NULL && is_file(st, s->place))
        s->found = mem_strdup(path);
}

/* A compressed copy, of a file that was there already. */
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

/* The oldest of those that are no older than the one that is left. */
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

/* The file after the one that is left; .found NULL: the log is not made again yet. Where nobody tells when files were made, one
 * that was written to when the next was begun already seems the newest: then what has the log's name is newer all the same. */
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

static int begin(struct log_tail *t, const char *path, uint64_t base, char *error)
{
    t->place.base = base;
    if (take_source(t, path, error) != 0)
        return -1;
    return write_state(t, error);
}

/* The file that the state names, at the offset. False when it is not there, or when what has its inode now is another: one
 * that is shorter, or in which no line ends there. */
static bool find_place(struct log_tail *t, uint64_t offset, char *error)
{
    struct search s = {.place = &t->place};
    uint64_t reached = 0, at = offset - t->place.base;
    if (offset < t->place.base)
        return false;
    each_sibling(t->path, see_same, &s);
    bool found = s.found != NULL && take_source(t, s.found, error) == 0 &&
                 (at == 0 || (line_source_skip(t->source, at, &reached, error) == 0 && reached == at));
    free(s.found);
    return found;
}

static int resume(struct log_tail *t, uint64_t offset, bool *missing, char *error)
{
    *missing = !find_place(t, offset, error);
    if (!*missing)
        return 0;
    line_source_close(&t->source);
    return begin(t, t->path, offset, error);
}

static int open_first(struct log_tail *t, uint64_t offset, char *error)
{
    uint64_t reached;
    if (begin(t, t->path, 0, error) != 0)
        return -1;
    if (offset == 0)
        return 0;
    if (line_source_skip(t->source, offset, &reached, error) != 0)
        return -1;
    if (reached == offset)
        return 0;
    snprintf(error, LINE_SOURCE_ERROR_TEXT,
        "%.100s: it is shorter than what was put under this name before, and there is no state (%.100s) to "
        "say which "
        "file that was",
        t->path, t->state_path);
    return -1;
}

struct log_tail *log_tail_open(const char *path, const char *state_path, uint64_t offset, bool *missing,
    char error[LINE_SOURCE_ERROR_TEXT])
{
    struct log_tail *t = mem_zalloc(sizeof *t);
    t->path = mem_strdup(path);
    t->state_path = mem_strdup(state_path);
    *missing = false;
    int found = read_state(state_path, &t->place, error);
    int rc = found < 0 ? -1 : found > 0 ? resume(t, offset, missing, error) : open_first(t, offset, error);
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
    return t->place.base + (t->source != NULL ? line_source_offset(t->source) : 0);
}

enum writer { WRITER_NONE, WRITER_THERE, WRITER_UNKNOWN };

/* A read lease is refused while somebody has the file open for writing. Whoever opens it while we hold it is kept waiting for
 * as long as two calls take, and the signal that tells of him is one that nobody hears. */
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

/* Whether the renamed file has got its last byte. Who is asked first and read to the end afterwards misses nothing. */
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
        return quiet >= (cut ? LOG_TAIL_PATIENCE : LOG_TAIL_GRACE);
    return quiet >= LOG_TAIL_PATIENCE && next_is_begun(t, &mine);
}

/* Nothing more is in the file now. */
static enum log_tail_result at_end(struct log_tail *t, usec_t now)
{
    struct stat named, mine;
    if (t->renamed) {
        t->over = is_over(t, now);
        return LOG_TAIL_WAIT;
    }
    if (stat(t->path, &named) == 0 && is_file(&named, &t->place)) {
        bool shorter = fstat(line_source_fd(t->source), &mine) == 0 &&
                       (uint64_t)mine.st_size < line_source_consumed(t->source);
        return shorter ? LOG_TAIL_OVER : LOG_TAIL_WAIT;
    }
    t->renamed = true;
    t->renamed_at = now;
    return at_end(t, now);
}

enum log_tail_result log_tail_next(
    struct log_tail *t, usec_t now, struct bytes *line, char error[LINE_SOURCE_ERROR_TEXT])
{
    static const enum log_tail_result results[] = {
        [LINE_SOURCE_FAILED] = LOG_TAIL_FAILED,
        [LINE_SOURCE_LINE] = LOG_TAIL_LINE,
        [LINE_SOURCE_PASSING] = LOG_TAIL_PASSING,
        [LINE_SOURCE_PASSED] = LOG_TAIL_PASSED,
    };
    for (;;) {
        enum line_source_result next = line_source_next(t->source, !t->over, line, error);
        if (next != LINE_SOURCE_END)
            return results[next];
        if (t->over)
            return LOG_TAIL_OVER;
        enum log_tail_result r = at_end(t, now);
        /* When it is over its last line counts also without LF. */
        if (!t->over)
            return r;
    }
}

int log_tail_next_file(struct log_tail *t, char error[LINE_SOURCE_ERROR_TEXT])
{
    struct search s = {.found = NULL};
    struct stat st;
    uint64_t base = log_tail_offset(t);
    bool truncated = !t->renamed;
    if (!truncated && fstat(line_source_fd(t->source), &st) != 0)
        return fail(error, t->path);
    if (!truncated)
        s = find_next(t, &st);
    /* The log is not made again yet: its name is asked for until it is. */
    if (!truncated && s.found == NULL)
        return 1;
    line_source_close(&t->source);
    int rc = begin(t, truncated ? t->path : s.found, base, error);
    free(s.found);
    return rc;
}
