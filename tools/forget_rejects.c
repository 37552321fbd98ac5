#include "tools/forget_rejects.h"

#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sysexits.h>
#include <unistd.h>

size_t forget_rejects_batch = 4 << 20;

/* A file of rejects that is open for overwriting entries. */
struct target {
    char name[64];
    int fd; /* -1: no file is open */
};

static int fail(struct forget_rejects *f, const char *name)
{
    return error_set(&f->error, EX_IOERR, "%s/%s: %s", f->dir, name, strerror(errno));
}

/* Syncs and closes the file. Returns 0, or -1 with errno. */
static int close_target(struct target *t)
{
    int failed = t->fd >= 0 ? io->fdatasync(t->fd) : 0, saved = errno;
    if (t->fd >= 0)
        io->close(t->fd);
    t->fd = -1;
    errno = saved;
    return failed;
}

/* Opens a file of rejects. Returns 0 without a file if the file has expired, or -1 with errno. */
static int open_target(struct forget_rejects *f, struct target *t, const char *name)
{
    if (t->fd >= 0 && strcmp(t->name, name) == 0)
        return 0;
    if (close_target(t) != 0)
        return -1;
    char *path = mem_printf("%s/%s", f->dir, name);
    snprintf(t->name, sizeof t->name, "%s", name);
    t->fd = io->open(path, O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0);
    free(path);
    return t->fd >= 0 || errno == ENOENT ? 0 : -1;
}

/* True if the `n` bytes at `at` are exactly one entry, which may be partly erased. */
static bool is_entry(int fd, uint64_t at, size_t n)
{
    char *text = mem_alloc(n + 1);
    size_t before = at > 0;
    bool is = io->pread(fd, text, n + before, (off_t)(at - before)) == (ssize_t)(n + before) &&
              (!before || text[0] == '\n') && memchr(text + before, '\n', n) == text + before + n - 1;
    free(text);
    return is;
}

/* Replaces entries in the files of rejects by their erased forms. `text` is the content of the file `erasing`: for each
 * entry, a line "NAME OFFSET LENGTH" and the erased form. Returns 0, or -1 with errno. */
static int apply(struct forget_rejects *f, struct bytes text)
{
    struct target t = {.fd = -1};
    int failed = 0;
    while (text.len > 0 && !failed) {
        char line[128], name[64];
        uint64_t at;
        size_t n;
        const char *lf = memchr(text.ptr, '\n', text.len);
        struct bytes rest = lf ? bytes_of(lf + 1, (size_t)(text.ptr + text.len - lf) - 1) : BYTES_NONE;
        snprintf(line, sizeof line, "%.*s", lf ? (int)(lf - text.ptr) : 0, text.ptr);
        if (sscanf(line, "%63[0-9a-z.-] %" SCNu64 " %zu", name, &at, &n) != 3 || n > rest.len) {
            errno = EBADMSG;
            failed = -1;
            break;
        }
        failed = open_target(f, &t, name);
        if (!failed && t.fd >= 0 && is_entry(t.fd, at, n))
            failed = io_write_all(t.fd, rest.ptr, n, (off_t)at);
        text = bytes_of(rest.ptr + n, rest.len - n);
    }
    int saved = errno;
    if (close_target(&t) != 0 && !failed)
        return -1;
    errno = saved;
    return failed;
}

/* Replaces the entries that an interrupted search has left in `erasing`. */
static int apply_left(struct forget_rejects *f, const char *path)
{
    struct buf text = {0};
    int failed = io_read_file(path, SIZE_MAX / 2, &text);
    bool is_absent = failed && errno == ENOENT;
    if (!failed)
        failed = apply(f, buf_bytes(&text)) != 0 || io->unlink(path) != 0 || io_sync_dir(f->dir) != 0;
    int saved = errno;
    buf_free(&text);
    errno = saved;
    return failed && !is_absent ? fail(f, FORGET_REJECTS_FILE) : 0;
}

/* Erases the collected entries. */
static int flush(struct forget_rejects *f, const char *path, struct buf *erased)
{
    if (erased->len == 0)
        return 0;
    if (io_replace_file(path, buf_bytes(erased), IO_PRIVATE_MODE) != 0)
        return fail(f, FORGET_REJECTS_FILE);
    buf_clear(erased);
    return apply_left(f, path);
}

/* Appends the erased form of the reader's latest entry. Returns false if the entry is too short. */
static bool collect(
    const struct rejects_reader *r, struct bytes text, const struct rejects_entry *e, struct buf *erased)
{
    uint64_t at;
    size_t start = erased->len;
    char *path = rejects_reader_where(r, &at);
    buf_printf(erased, "%s %" PRIu64 " %zu\n", strrchr(path, '/') + 1, at, text.len + 1);
    bool fits = rejects_format_erased(erased, text, e);
    if (!fits)
        erased->len = start;
    free(path);
    return fits;
}

/* Checks the line and the reason of an entry, because the reason may quote the line. */
static bool is_matched(struct forget_rejects *f, const struct rejects_entry *e)
{
    enum forget_verdict v = forget_match_line(f->match, e->line);
    return v == FORGET_YES || v == FORGET_CONTAINS;
}

static int search(struct forget_rejects *f, const char *path)
{
    struct rejects_place after;
    struct bytes text;
    struct buf bytes = {0}, erased = {0};
    int more = 0, status = 0;
    struct rejects_reader *r = rejects_reader_new(f->dir, f->from, f->end);
    while (status == 0 && (more = rejects_reader_next(r, &text, &after)) > 0) {
        struct rejects_entry e;
        struct json_doc *doc = NULL;
        bool valid = rejects_parse(text, &e, &doc, &bytes), is = valid && is_matched(f, &e);
        f->read++;
        f->matched += is;
        f->failed += !valid || (is && !f->dry && !collect(r, text, &e, &erased));
        json_doc_free(&doc);
        if (erased.len >= forget_rejects_batch)
            status = flush(f, path, &erased);
    }
    if (status == 0 && more < 0)
        status = fail(f, "");
    if (status == 0)
        status = flush(f, path, &erased);
    rejects_reader_free(&r);
    buf_free(&bytes);
    buf_free(&erased);
    return status;
}

int forget_rejects_erase(struct forget_rejects *f)
{
    int lock = open(f->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), status = 0;
    if (lock < 0)
        return errno == ENOENT ? 0 : fail(f, "");
    if (!f->dry && flock(lock, LOCK_EX | LOCK_NB) != 0)
        status = error_set(&f->error, EX_TEMPFAIL, "%s: another process erases entries", f->dir);
    char *path = mem_printf("%s/" FORGET_REJECTS_FILE, f->dir);
    if (status == 0 && !f->dry)
        status = apply_left(f, path);
    if (status == 0)
        status = search(f, path);
    free(path);
    close(lock);
    return status;
}
