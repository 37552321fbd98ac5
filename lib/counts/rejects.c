#include "counts/rejects.h"

#include "base/erased_line.h"
#include "base/io.h"
#include "base/log.h"
#include "base/xxh3.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */
#define FILES_A_LIMIT 8            /* number of files in max_bytes and in max_age */
#define NAME_TEXT 64
#define SUM_BEGIN ",\"xxh3\":\""
#define SUM_TEXT (sizeof SUM_BEGIN - 1 + 16 + 2) /* `,"xxh3":"0123456789abcdef"}` */

struct rejects {
    char *dir;
    int fd;
    struct rejects_place begin; /* of the file */
    usec_t begun;
};

struct part {
    struct rejects_place begin;
    uint64_t size;
    usec_t modified;
};

struct rejects_reader {
    char *dir, *line;
    size_t room;
    struct part *parts;
    size_t n, next;
    FILE *file;
    int error;                           /* errno of list_parts, or 0 */
    struct rejects_place begin, at, end; /* `begin` is that of the latest entry */
};

static size_t replacements(struct bytes text)
{
    size_t n = 0;
    const char *at = text.ptr, *end = text.ptr + text.len;
    while (at < end && (at = memmem(at, (size_t)(end - at), REPLACEMENT, 3))) {
        at += 3;
        n++;
    }
    return n;
}

/* Appends the members of an entry before its checksum. */
static void append_members(struct buf *out, const struct rejects_entry *e)
{
    buf_printf(out, "{\"%s\":", e->is_file ? "file" : "stream");
    buf_append_json(out, e->name);
    if (e->content.len > 0) {
        buf_append_str(out, ",\"content\":");
        buf_append_json(out, e->content);
    }
    buf_printf(out, ",\"offset\":\"%" PRIu64 "\",\"reason\":", e->offset);
    buf_append_json(out, e->reason);
    buf_printf(out, ",\"time\":%" PRId64 ",\"bytes\":%" PRIu64 ",\"line\":", e->time, e->length);
    size_t start = out->len;
    buf_append_json(out, e->line);
    /* If the JSON text has more U+FFFD than the line, the line was not valid UTF-8. */
    if (replacements(bytes_of(out->ptr + start, out->len - start)) > replacements(e->line)) {
        buf_append_str(out, ",\"hex\":\"");
        buf_append_hex(out, e->line);
        buf_append_char(out, '"');
    }
}

static void append_sum(struct buf *out, struct bytes members)
{
    buf_printf(out, SUM_BEGIN "%016" PRIx64 "\"}", (uint64_t)XXH3_64bits(members.ptr, members.len));
}

void rejects_format(struct buf *out, const struct rejects_entry *e)
{
    size_t start = out->len;
    append_members(out, e);
    append_sum(out, bytes_of(out->ptr + start, out->len - start));
    buf_append_char(out, '\n');
}

bool rejects_format_erased(struct buf *out, struct bytes text, const struct rejects_entry *entry)
{
    static const char *const reasons[] = {"erased", "erased ", "", " "};
    struct rejects_entry e = *entry;
    size_t start = out->len;
    char *line = mem_alloc(text.len + ERASED_LINE_MIN);
    bool fits = false;
    /* The member `bytes` also has a variable length. If the digits of `bytes` leave a gap of one byte, a longer reason
     * fills the gap. */
    for (size_t r = 0; r < 4 && !fits; r++) {
        e.reason = bytes_str(reasons[r]);
        for (size_t n = ERASED_LINE_MIN; n < text.len && !fits;) {
            erased_line_write(line, n);
            e.line = bytes_of(line, n);
            e.length = n;
            out->len = start;
            rejects_format(out, &e);
            size_t made = out->len - start - 1;
            fits = made == text.len;
            if (made >= text.len)
                break;
            n += text.len - made > 20 ? text.len - made - 20 : 1;
        }
    }
    free(line);
    if (!fits)
        out->len = start;
    return fits;
}

static bool has_right_sum(struct bytes text)
{
    struct buf sum = {0};
    size_t n = text.len < SUM_TEXT ? 0 : text.len - SUM_TEXT;
    append_sum(&sum, bytes_of(text.ptr, n));
    bool is_right = n > 0 && memcmp(text.ptr + n, sum.ptr, SUM_TEXT) == 0;
    buf_free(&sum);
    return is_right;
}

bool rejects_parse(struct bytes text, struct rejects_entry *out, struct json_doc **doc, struct buf *bytes)
{
    uint64_t time = 0;
    buf_clear(bytes);
    *out = (struct rejects_entry){.is_file = false};
    *doc = json_doc_parse(text);
    if (!*doc)
        return false;
    struct json_value file = json_doc_at(*doc, "/file"), stream = json_doc_at(*doc, "/stream");
    struct json_value reason = json_doc_at(*doc, "/reason"), line = json_doc_at(*doc, "/line");
    struct json_value hex = json_doc_at(*doc, "/hex");
    (void)json_doc_u64(*doc, "/time", &time);
    out->is_file = file.type == JSON_STRING;
    bool ok = has_right_sum(text) && (out->is_file || stream.type == JSON_STRING) &&
              reason.type == JSON_STRING && line.type == JSON_STRING && time <= INT64_MAX &&
              json_doc_u64(*doc, "/offset", &out->offset) && json_doc_u64(*doc, "/bytes", &out->length) &&
              (hex.type != JSON_STRING || buf_append_unhex(bytes, hex.v.string));
    if (ok) {
        out->name = out->is_file ? file.v.string : stream.v.string;
        out->content = json_doc_text(*doc, "/content");
        out->reason = reason.v.string;
        out->time = (int64_t)time;
        out->line = hex.type == JSON_STRING ? buf_bytes(bytes) : line.v.string;
    }
    if (!ok)
        json_doc_free(doc);
    return ok;
}

bool rejects_match(const struct rejects_filter *f, const struct rejects_entry *e)
{
    return e->time >= f->since && (f->name.len == 0 || bytes_equal(f->name, e->name)) &&
           (f->reason.len == 0 ||
               (e->reason.len > 0 && memmem(e->reason.ptr, e->reason.len, f->reason.ptr, f->reason.len)));
}

int rejects_compare(struct rejects_place x, struct rejects_place y)
{
    if (x.slice != y.slice)
        return x.slice < y.slice ? -1 : 1;
    return x.offset < y.offset ? -1 : x.offset > y.offset;
}

struct rejects_place rejects_front(const struct slice_cursor *cursors, size_t n)
{
    struct rejects_place front = {0};
    for (size_t i = 0; i < n; i++)
        if (strcmp(cursors[i].stream, REJECTS_CURSOR) == 0 &&
            bytes_to_u64(bytes_str(cursors[i].id), &front.slice))
            front.offset = cursors[i].offset;
    return front;
}

static int compare_parts(const void *a, const void *b)
{
    return rejects_compare(((const struct part *)a)->begin, ((const struct part *)b)->begin);
}

static void part_name(struct rejects_place begin, char out[NAME_TEXT])
{
    if (begin.offset == 0)
        snprintf(out, NAME_TEXT, "%010" PRIu64 ".ndjson", begin.slice);
    else
        snprintf(out, NAME_TEXT, "%010" PRIu64 "-%015" PRIu64 ".ndjson", begin.slice, begin.offset);
}

static char *part_path(const char *dir, struct rejects_place begin)
{
    char name[NAME_TEXT];
    struct buf path = {0};
    part_name(begin, name);
    buf_printf(&path, "%s/%s", dir, name);
    char *text = bytes_dup(buf_bytes(&path));
    buf_free(&path);
    return text;
}

/* Lists the files of entries in order. The caller frees *out. Returns 0, or -1 with errno and no list. */
static int list_parts(const char *dir, struct part **out, size_t *n)
{
    DIR *d = opendir(dir);
    int error = 0;
    *out = NULL;
    *n = 0;
    if (!d)
        return -1;
    while (error == 0) {
        struct part p = {.size = 0};
        char again[NAME_TEXT];
        struct stat st;
        errno = 0;
        const struct dirent *e = readdir(d);
        error = errno;
        if (!e)
            break;
        if (sscanf(e->d_name, "%10" SCNu64 "-%15" SCNu64, &p.begin.slice, &p.begin.offset) < 1)
            continue;
        part_name(p.begin, again);
        if (strcmp(again, e->d_name) != 0)
            continue;
        if (fstatat(dirfd(d), e->d_name, &st, 0) != 0) {
            error = errno == ENOENT ? 0 : errno; /* another thread may have deleted the file */
            continue;
        }
        p.size = (uint64_t)st.st_size;
        p.modified = st.st_mtim.tv_sec * USEC_PER_SEC;
        *out = mem_realloc(*out, (*n + 1) * sizeof **out);
        (*out)[(*n)++] = p;
    }
    closedir(d);
    if (*n > 1)
        qsort(*out, *n, sizeof **out, compare_parts);
    if (error == 0)
        return 0;
    free(*out);
    *out = NULL;
    *n = 0;
    errno = error;
    return -1;
}

static int open_part(struct rejects *r, struct rejects_place begin, uint64_t size, usec_t now)
{
    char *path = part_path(r->dir, begin);
    int fd = io->open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, IO_PRIVATE_MODE);
    struct stat st;
    bool ok = fd >= 0 && fstat(fd, &st) == 0 &&
              ((uint64_t)st.st_size == size || io->ftruncate(fd, (off_t)size) == 0) &&
              io_sync_dir(r->dir) == 0;
    free(path);
    int *closed = ok ? &r->fd : &fd, saved = errno;
    if (*closed >= 0)
        io->close(*closed);
    errno = saved;
    if (!ok)
        return -1;
    r->fd = fd;
    r->begin = begin;
    r->begun = now;
    return 0;
}

/* Truncates the sequence to `length` and opens the file that contains its end. Deletes later files first, newest first,
 * so that the call can be repeated after a failure. */
static int open_at(struct rejects *r, uint64_t slice, uint64_t length, usec_t now)
{
    struct part *parts;
    size_t n;
    struct rejects_place begin = {slice, 0};
    uint64_t size = 0;
    if (list_parts(r->dir, &parts, &n) != 0)
        return -1;
    for (size_t i = 0; i < n; i++)
        if (parts[i].begin.slice == slice && parts[i].begin.offset <= length) {
            begin = parts[i].begin;
            size = parts[i].size;
        }
    int rc = 0;
    if (size < length - begin.offset) {
        errno = ERANGE;
        rc = -1;
    }
    for (size_t i = n; i-- > 0 && rc == 0;)
        if (parts[i].begin.slice == slice && parts[i].begin.offset > length) {
            char *path = part_path(r->dir, parts[i].begin);
            rc = io->unlink(path);
            free(path);
        }
    free(parts);
    return rc == 0 ? open_part(r, begin, length - begin.offset, now) : -1;
}

int rejects_open(const char *dir, uint64_t slice, uint64_t length, struct rejects **out)
{
    struct rejects *r = mem_zalloc(sizeof *r);
    *r = (struct rejects){.dir = mem_strdup(dir), .fd = -1};
    *out = r;
    int rc = open_at(r, slice, length, clock_monotonic());
    if (rc != 0) {
        int saved = errno;
        rejects_close(out);
        errno = saved;
    }
    return rc;
}

void rejects_close(struct rejects **rp)
{
    struct rejects *r = *rp;
    if (!r)
        return;
    if (r->fd >= 0)
        io->close(r->fd);
    free(r->dir);
    free(r);
    *rp = NULL;
}

/* Returns the number of bytes of a file's entries that were not put back. */
static uint64_t live_bytes(const struct part *p, struct rejects_place front)
{
    struct rejects_place end = {p->begin.slice, p->begin.offset + p->size};
    if (rejects_compare(end, front) <= 0)
        return 0;
    return rejects_compare(front, p->begin) > 0 ? end.offset - front.offset : p->size;
}

/* Returns true if a write at `at` needs the file: the file ends at `at` or has `at` inside. */
static bool is_needed(const struct part *p, struct rejects_place at)
{
    return p->begin.slice == at.slice && p->begin.offset <= at.offset &&
           p->begin.offset + p->size >= at.offset;
}

static int expire(const char *dir, const struct rejects_limits *limits, struct rejects_place front,
    usec_t wall, struct rejects_place uncommitted)
{
    struct part *parts;
    size_t n;
    uint64_t live = 0;
    int rc = list_parts(dir, &parts, &n);
    for (size_t i = 0; i < n; i++)
        live += live_bytes(&parts[i], front);
    for (size_t i = 0; i + 1 < n && rc == 0; i++) {
        const struct part *p = &parts[i];
        uint64_t lost = live_bytes(p, front);
        bool is_expired = (limits->max_bytes > 0 && live > limits->max_bytes) ||
                          (limits->max_age > 0 && wall - p->modified > limits->max_age);
        if (((lost > 0 || p->size == 0) && !is_expired) || is_needed(p, uncommitted))
            continue;
        char *path = part_path(dir, p->begin);
        rc = io->unlink(path);
        live -= lost;
        if (rc == 0 && lost > 0)
            log_warn("deleted expired rejects", LOG_S("path", path), LOG_U("bytes", lost));
        free(path);
    }
    free(parts);
    return rc;
}

int rejects_expire(
    const char *dir, const struct rejects_limits *limits, struct rejects_place front, usec_t wall)
{
    return expire(dir, limits, front, wall, (struct rejects_place){0});
}

int rejects_write(struct rejects *r, struct bytes entries, uint64_t at, const struct rejects_limits *limits,
    struct rejects_place front, usec_t now)
{
    struct rejects_place first = {r->begin.slice, at};
    uint64_t most =
        limits->max_bytes > 0 ? (limits->max_bytes + FILES_A_LIMIT - 1) / FILES_A_LIMIT : UINT64_MAX;
    /* Files that begin after `at` belong to a failed transaction. */
    if (at < r->begin.offset && open_at(r, r->begin.slice, at, now) != 0)
        return -1;
    while (entries.len > 0) {
        uint64_t size = at - r->begin.offset;
        bool is_old = limits->max_age > 0 && now - r->begun >= limits->max_age / FILES_A_LIMIT;
        /* Truncate the current file before a new file begins, because a failed transaction may have left entries after
         * `at`. */
        if (size > 0 && (size >= most || is_old)) {
            if (io->ftruncate(r->fd, (off_t)size) != 0 ||
                open_part(r, (struct rejects_place){r->begin.slice, at}, 0, now) != 0 ||
                expire(r->dir, limits, front, 0, first) != 0)
                return -1;
            size = 0;
        }
        size_t n = entries.len;
        if (n > most - size) {
            const char *lf = memchr(entries.ptr + (most - size) - 1, '\n', n - (most - size) + 1);
            n = lf ? (size_t)(lf - entries.ptr) + 1 : n;
        }
        if (io_write_all(r->fd, entries.ptr, n, (off_t)size) != 0 || io->fdatasync(r->fd) != 0)
            return -1;
        entries = bytes_of(entries.ptr + n, entries.len - n);
        at += n;
    }
    return 0;
}

struct rejects_reader *rejects_reader_new(
    const char *dir, struct rejects_place from, struct rejects_place end)
{
    struct rejects_reader *r = mem_zalloc(sizeof *r);
    *r = (struct rejects_reader){.dir = mem_strdup(dir), .at = from, .end = end};
    if (list_parts(dir, &r->parts, &r->n) != 0 && errno != ENOENT) /* a missing directory has no entries */
        r->error = errno;
    return r;
}

void rejects_reader_free(struct rejects_reader **rp)
{
    struct rejects_reader *r = *rp;
    if (!r)
        return;
    if (r->file)
        fclose(r->file);
    free(r->parts);
    free(r->line);
    free(r->dir);
    free(r);
    *rp = NULL;
}

/* Opens the next file that has entries after r->at. Returns 1, 0 if no such file exists, or -1 with errno. */
static int next_part(struct rejects_reader *r)
{
    if (r->file)
        fclose(r->file);
    r->file = NULL;
    for (; r->next < r->n && !r->file; r->next++) {
        const struct part *p = &r->parts[r->next];
        struct rejects_place end = {p->begin.slice, p->begin.offset + p->size};
        if (rejects_compare(end, r->at) <= 0 || rejects_compare(p->begin, r->end) >= 0)
            continue;
        char *path = part_path(r->dir, p->begin);
        r->file = fopen(path, "re");
        free(path);
        if (!r->file && errno != ENOENT) /* another thread may have deleted the file */
            return -1;
        if (rejects_compare(p->begin, r->at) > 0)
            r->at = p->begin;
        if (r->file && fseeko(r->file, (off_t)(r->at.offset - p->begin.offset), SEEK_SET) != 0)
            return -1;
    }
    return r->file != NULL;
}

int rejects_reader_next(struct rejects_reader *r, struct bytes *text, struct rejects_place *after)
{
    if (r->error != 0) {
        errno = r->error;
        return -1;
    }
    for (;;) {
        ssize_t n = -1;
        if (rejects_compare(r->at, r->end) >= 0)
            return 0;
        if (r->file) {
            const struct part *p = &r->parts[r->next - 1];
            struct rejects_place end = {p->begin.slice, p->begin.offset + p->size};
            n = getline(&r->line, &r->room, r->file);
            /* getline returns the part of the line that precedes a read error. */
            if (ferror(r->file) || (n < 0 && !feof(r->file)))
                return -1;
            /* If the checksum before the LF is correct, only the LF is damaged. */
            if (n < 0 ? rejects_compare(r->at, end) < 0
                      : r->line[n - 1] != '\n' && !has_right_sum(bytes_of(r->line, (size_t)n - 1))) {
                errno = EBADMSG;
                return -1;
            }
        }
        if (n > 0) {
            r->begin = r->at;
            r->at.offset += (uint64_t)n;
            *after = r->at;
            *text = bytes_of(r->line, (size_t)n - 1);
            return 1;
        }
        int more = next_part(r);
        if (more <= 0)
            return more;
    }
}

char *rejects_reader_where(const struct rejects_reader *r, uint64_t *offset)
{
    const struct part *p = &r->parts[r->next - 1];
    *offset = r->begin.offset - p->begin.offset;
    return part_path(r->dir, p->begin);
}
