#include "tools/put/put_sources.h"

#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sysexits.h>

#define STATE_MAX ((size_t)1 << 30)
#define FIRST_UNFINISHED 1 /* the value of FIRST for a first line that had no LF yet */

struct source {
    uint64_t base, end, sum; /* base: only for the current content */
    uint32_t first;
    bool is_unverified; /* an operator has set the mark, so any file of this length continues the content */
};

struct put_sources {
    char *path;
    int fd;
    struct source *left; /* the contents of the state file, then the current content if it has a tag */
    size_t n, room;
    bool has_current, is_kept; /* the current content is in the state file */
    bool continues;            /* the input that was found last is the current content */
    uint64_t mark, fresh;      /* the queue's mark; the mark at which another content begins */
};

static int fail(const struct put_sources *s, struct error *error)
{
    return error_set(error, -1, "%.200s: %s; --state names another file", s->path, strerror(errno));
}

/* Reads three hexadecimal numbers. */
static bool read_numbers(struct bytes text, uint64_t *a, uint64_t *sum, uint32_t *first)
{
    char copy[PUT_SOURCES_TAG];
    int n = 0;
    if (text.len >= sizeof copy)
        return false;
    snprintf(copy, sizeof copy, "%.*s", (int)text.len, text.len ? text.ptr : "");
    return sscanf(copy, "%" SCNx64 ".%" SCNx64 ".%" SCNx32 "%n", a, sum, first, &n) == 3 && copy[n] == '\0' &&
           n > 0;
}

/* A line that a crash cut off is ignored: its content still has its tag. */
static int read_file(struct put_sources *s, struct error *error)
{
    struct buf text = {0};
    int rc = io_read_file(s->path, STATE_MAX, &text);
    struct bytes rest = buf_bytes(&text);
    for (const char *lf; rc == 0 && (lf = rest.len ? memchr(rest.ptr, '\n', rest.len) : NULL);) {
        struct source source = {0};
        struct bytes line = bytes_of(rest.ptr, (size_t)(lf - rest.ptr));
        if (read_numbers(line, &source.end, &source.sum, &source.first))
            *ARRAY_ADD(s->left, s->n, s->room) = source;
        rest = bytes_of(lf + 1, rest.len - line.len - 1);
    }
    buf_free(&text);
    return rc == 0 ? 0 : fail(s, error);
}

struct put_sources *put_sources_open(const char *path, struct error *error)
{
    struct put_sources *s = mem_zalloc(sizeof *s);
    s->path = mem_strdup(path);
    s->fd = io->open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, IO_PRIVATE_MODE);
    int rc = s->fd < 0 ? fail(s, error) : 0;
    if (rc == 0 && io->flock(s->fd, LOCK_EX | LOCK_NB) != 0) {
        rc = fail(s, error);
        error->code = errno == EWOULDBLOCK ? EX_TEMPFAIL : EX_CANTCREAT;
    }
    if (rc == 0 && io_sync_parent(path) != 0)
        rc = fail(s, error);
    if (rc != 0 || read_file(s, error) != 0)
        put_sources_close(&s);
    return s;
}

void put_sources_close(struct put_sources **sp)
{
    struct put_sources *s = *sp;
    if (!s)
        return;
    if (s->fd >= 0)
        io->close(s->fd);
    free(s->path);
    free(s->left);
    free(s);
    *sp = NULL;
}

bool put_sources_set_mark(struct put_sources *s, uint64_t mark, struct bytes tag, bool is_own)
{
    struct source source = {0};
    bool is_ours = tag.len > 0 && read_numbers(tag, &source.base, &source.sum, &source.first);
    s->mark = mark;
    s->fresh = mark + (is_own || mark == 0 ? 0 : PUT_SOURCES_GAP);
    s->n -= s->has_current && !s->is_kept;
    s->has_current = s->is_kept = s->continues = false;
    source.is_unverified = tag.len == 0 && mark > 0;
    source.end = mark - source.base;
    s->has_current = source.first != 0 || source.is_unverified;
    if (s->has_current)
        *ARRAY_ADD(s->left, s->n, s->room) = source;
    return is_ours || tag.len == 0;
}

int put_sources_keep(struct put_sources *s, struct error *error)
{
    char line[PUT_SOURCES_TAG + 1];
    const struct source *c = s->has_current ? &s->left[s->n - 1] : NULL;
    if (!c || c->is_unverified || s->is_kept || s->continues)
        return 0;
    for (size_t i = 0; i + 1 < s->n; i++)
        if (s->left[i].end == c->end && s->left[i].sum == c->sum && s->left[i].first == c->first &&
            !s->left[i].is_unverified)
            return 0;
    int n = snprintf(line, sizeof line, "\n%" PRIx64 ".%" PRIx64 ".%" PRIx32 "\n", c->end, c->sum, c->first);
    struct stat st;
    s->is_kept = fstat(s->fd, &st) == 0 && io_write_all(s->fd, line, (size_t)n, st.st_size) == 0 &&
                 io->fdatasync(s->fd) == 0;
    return s->is_kept ? 0 : fail(s, error);
}

void put_content_begin(struct put_content *c, uint64_t base, uint32_t first)
{
    *c = (struct put_content){.hash = first ? XXH3_createState() : NULL, .base = base, .first = first};
    if (c->hash)
        XXH3_64bits_reset(c->hash);
    else if (getrandom(&c->id, sizeof c->id, 0) != (ssize_t)sizeof c->id)
        abort();
}

void put_content_add(struct put_content *c, struct bytes bytes)
{
    if (c->hash && bytes.len > 0)
        XXH3_64bits_update(c->hash, bytes.ptr, bytes.len);
    c->end += bytes.len;
}

uint64_t put_content_sum(const struct put_content *c)
{
    return c->hash ? XXH3_64bits_digest(c->hash) : c->id;
}

void put_content_free(struct put_content *c)
{
    XXH3_freeState(c->hash);
    *c = (struct put_content){0};
}

void put_content_tag(const struct put_content *c, uint64_t sum, char out[PUT_SOURCES_TAG])
{
    snprintf(out, PUT_SOURCES_TAG, "%" PRIx64 ".%" PRIx64 ".%" PRIx32, c->base, sum, c->first);
}

static int by_end(const void *a, const void *b)
{
    const struct source *x = *(struct source *const *)a, *y = *(struct source *const *)b;
    return x->end != y->end ? (x->end > y->end) - (x->end < y->end) : (x > y) - (x < y);
}

/* Finds the contents with this first line, the shortest first. */
static size_t sources_like(struct put_sources *s, uint32_t first, const struct source **out)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n; i++)
        if (s->left[i].first == first || s->left[i].first == FIRST_UNFINISHED || s->left[i].is_unverified)
            out[n++] = &s->left[i];
    qsort(out, n, sizeof *out, by_end);
    return n;
}

static uint32_t first_of(struct bytes line)
{
    bool has_lf = line.len > 0 && line.ptr[line.len - 1] == '\n';
    uint32_t sum = has_lf ? (uint32_t)XXH3_64bits(line.ptr, line.len) : FIRST_UNFINISHED;
    return sum ? sum : FIRST_UNFINISHED;
}

/* Adds bytes to the content. Compares the content with each source that ends within these bytes or at their end. */
static void compare(struct put_sources *s, struct put_content *c, struct bytes bytes,
    const struct source **like, size_t n, size_t *at, struct put_content *best)
{
    const struct source *current = s->has_current ? &s->left[s->n - 1] : NULL;
    for (; *at < n && like[*at]->end <= c->end + bytes.len; (*at)++) {
        const struct source *source = like[*at];
        size_t more = (size_t)(source->end - c->end);
        put_content_add(c, bytes_of(bytes.ptr, more));
        bytes = bytes_of(bytes.ptr + more, bytes.len - more);
        if (put_content_sum(c) != source->sum && !source->is_unverified)
            continue;
        XXH3_copyState(best->hash, c->hash);
        best->end = c->end;
        s->continues = source == current;
        best->base = source == current ? source->base : s->fresh - source->end;
    }
    put_content_add(c, bytes);
}

int put_sources_find(
    struct put_sources *s, struct line_source *source, struct put_content *c, struct error *error)
{
    const struct source **like = mem_alloc((s->n + 1) * sizeof *like);
    struct put_content read = {0};
    struct bytes bytes;
    size_t at = 0;
    put_content_begin(&read, 0, FIRST_UNFINISHED);
    enum line_source_result r = line_source_next(source, false, &bytes, error);
    put_content_begin(c, s->fresh, first_of(r == LINE_SOURCE_LINE ? bytes : BYTES_NONE));
    size_t n = sources_like(s, c->first, like);
    while (r != LINE_SOURCE_END && r != LINE_SOURCE_FAILED) {
        compare(s, &read, bytes, like, n, &at, c);
        r = at < n ? line_source_next(source, false, &bytes, error) : LINE_SOURCE_END;
    }
    put_content_free(&read);
    free(like);
    return r == LINE_SOURCE_FAILED ? -1 : 0;
}
