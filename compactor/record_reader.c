#include "compactor/record_reader.h"

#include "base/amount.h"
#include "base/io.h"
#include "base/xxh3.h"
#include "counts/records.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#define NEAR 256 /* up to this number of bytes is searched line by line */
#define NOT_HELD SIZE_MAX
#define ROOM_MAX                                                                                             \
    ((size_t)512 << 20) /* largest buffer; the longest lookup has 256 MB (64 MB before escaping) */

struct record_file {
    char *name;
    struct manifest_file expected;
    XXH3_state_t *hash;
    uint64_t records, bytes;
};

static enum count_next failed(struct record_reader *r, const char *what)
{
    error_set(&r->base.error, COUNT_DAMAGED, "%.300s: %s", r->base.container, what);
    return COUNT_FAILED;
}

static enum count_next check_whole(struct record_reader *r)
{
    const struct record_file *f = r->file;
    if (r->at != r->len)
        return failed(r, "the last line has no LF");
    if (!f || r->is_checked)
        return COUNT_END;
    if (f->bytes != f->expected.bytes || f->records != f->expected.records) {
        error_set(&r->base.error, COUNT_DAMAGED,
            "%.300s: %" PRIu64 " %s in %" PRIu64 " bytes; its manifest says %" PRIu64 " in %" PRIu64, f->name,
            f->records, plural(f->records, "record", "records"), f->bytes, f->expected.records,
            f->expected.bytes);
        return COUNT_FAILED;
    }
    r->is_checked = XXH3_64bits_digest(f->hash) == f->expected.xxh3;
    return r->is_checked ? COUNT_END : failed(r, "its checksum does not match the manifest");
}

/* Moves the unread bytes to the front of the buffer and appends bytes of the file. COUNT_FOUND: bytes were appended.
 * COUNT_END: the file has ended, or the buffer is full. */
static enum count_next fill(struct record_reader *r)
{
    if (r->fd < 0 || r->next == r->end)
        return COUNT_END;
    size_t left = r->len - r->at;
    if (left == r->room)
        return COUNT_END;
    if (!r->window)
        r->window = mem_alloc(r->room);
    memmove(r->window, r->window + r->at, left);
    if (r->line_end != NOT_HELD)
        r->line_end -= r->at;
    r->at = 0;
    r->len = left;
    size_t want = r->room - left;
    want = r->end - r->next < want ? (size_t)(r->end - r->next) : want;
    ssize_t n;
    do
        n = io->pread(r->fd, r->window + left, want, (off_t)r->next);
    while (n < 0 && errno == EINTR);
    if (n < 0) {
        failed(r, strerror(errno));
        r->base.error.code = COUNT_UNREADABLE;
        return COUNT_FAILED;
    }
    if (n == 0)
        r->end = r->next; /* check_whole then reports that the file was truncated */
    if (r->file) {
        XXH3_64bits_update(r->file->hash, r->window + left, (size_t)n);
        r->file->records += bytes_count_lines(bytes_of(r->window + left, (size_t)n));
        r->file->bytes += (uint64_t)n;
    }
    r->next += (uint64_t)n;
    r->len += (size_t)n;
    const char *last = r->len ? memrchr(r->window, '\n', r->len) : NULL;
    r->whole = last ? (size_t)(last - r->window) + 1 : 0;
    return n > 0 ? COUNT_FOUND : COUNT_END;
}

/* Like fill, but enlarges a full buffer. */
static enum count_next fill_or_grow(struct record_reader *r)
{
    if (r->fd >= 0 && r->len - r->at == r->room && r->room < ROOM_MAX)
        ARRAY_ROOM(r->window, r->room, r->room + 1);
    return fill(r);
}

static enum count_next finish_record(struct record_reader *r)
{
    enum count_next next = COUNT_FOUND;
    while (r->in_record && next == COUNT_FOUND) {
        const char *end = r->line_end != NOT_HELD ? r->window + r->line_end
                          : r->at < r->len        ? memchr(r->window + r->at, '\n', r->len - r->at)
                                                  : NULL;
        r->in_record = !end;
        r->at = end ? (size_t)(end - r->window) + 1 : r->len;
        r->line_end = NOT_HELD;
        if (!end)
            next = fill(r);
    }
    if (r->in_record && next == COUNT_END)
        return failed(r, "the last line has no LF");
    return next == COUNT_FAILED ? next : COUNT_FOUND;
}

static const char *find(const struct record_reader *r, char c)
{
    return r->at < r->len ? memchr(r->window + r->at, c, r->len - r->at) : NULL;
}

/* True if the buffer holds the key and enough of the value to tell a count from a set. */
static bool has_first_name(const struct record_reader *r)
{
    const char *separator = find(r, RECORD_SEPARATOR);
    return separator && (size_t)(r->window + r->len - separator) > SET_TEXT_PROBE;
}

static enum count_next next_record(struct count_source *base)
{
    struct record_reader *r = (struct record_reader *)base;
    const char *end, *separator;
    enum count_next next = finish_record(r);
    while (!(end = find(r, '\n')) && next == COUNT_FOUND)
        next = fill(r);
    /* If a key or a lookup is longer than the buffer, enlarge the buffer. */
    while (next == COUNT_END && r->at < r->len && !end &&
           (!has_first_name(r) || record_reader_is_in(r, BYTES_LITERAL("lookup|"))) &&
           (next = fill_or_grow(r)) == COUNT_FOUND) {
        next = COUNT_END;
        end = find(r, '\n');
    }
    if (next == COUNT_FAILED)
        return next;
    if (!end && (r->at == r->len || r->fd < 0 || r->next == r->end))
        return check_whole(r);
    const char *line = r->window + r->at;
    size_t held = end ? (size_t)(end - line) : r->len - r->at;
    separator = memchr(line, RECORD_SEPARATOR, held);
    if (!separator)
        return failed(r, "a line without a separator");
    r->in_record = r->has_text = true;
    base->text = BYTES_NONE;
    r->line_end = end ? (size_t)(end - r->window) : NOT_HELD;
    base->key = bytes_of(line, (size_t)(separator + 1 - line));
    base->line = end ? bytes_of(line, held) : BYTES_NONE;
    base->is_set =
        !count_key_is_lookup(base->key) && set_text_is(bytes_of(separator + 1, held - base->key.len));
    set_text_begin(&r->set);
    r->at = (size_t)(separator + 1 - r->window);
    return COUNT_FOUND;
}

static enum count_next next_text(struct record_reader *r)
{
    if (!r->has_text)
        return COUNT_END;
    if (r->line_end == NOT_HELD)
        return failed(r, "a lookup that is too long");
    r->has_text = false;
    buf_clear(&r->text);
    if (lookup_unescape(bytes_of(r->window + r->at, r->line_end - r->at), &r->text) != 0)
        return failed(r, "a malformed lookup");
    r->base.text = buf_bytes(&r->text);
    return COUNT_FOUND;
}

/* Parses `NAME:COUNT` up to a space or LF. Returns false if the buffer ends before the space or LF. */
static bool parse_count(struct record_reader *r, bool *bad)
{
    const char *start = r->window + r->at, *p = start, *end = r->window + r->len;
    while (p < end && *p != ':' && *p != ' ' && *p != '\n')
        p++;
    if (p == end)
        return false;
    *bad = *p != ':';
    r->base.name = bytes_of(start, (size_t)(p - start));
    bool is_negative = ++p < end && *p == '-';
    const char *digits = p += is_negative;
    uint64_t count = 0;
    for (; !*bad && p < end && *p >= '0' && *p <= '9'; p++)
        *bad = __builtin_mul_overflow(count, 10, &count) ||
               __builtin_add_overflow(count, (uint64_t)(*p - '0'), &count);
    if (*bad)
        return true;
    /* Another pair must follow a space. */
    if (p == end || (*p == ' ' && p + 1 == end))
        return false;
    *bad = count > (uint64_t)INT64_MAX + is_negative || p == digits || (*p != ' ' && *p != '\n') ||
           (*p == ' ' && p[1] == '\n');
    r->base.count = (int64_t)(is_negative ? 0 - count : count);
    r->at = (size_t)(p - r->window) + (*p == ' ');
    return true;
}

/* Returns the end of the words that the next chunk of a set needs, all members or one chunk. Returns NULL if the
 * buffer ends before the end of these words. */
static const char *find_set_end(const struct record_reader *r)
{
    const char *at = r->window + r->at, *end = r->window + r->len;
    bool is_members = (r->set.form ? r->set.form : *at) == '=';
    while (at < end && *at != '\n' && (is_members || *at != ' '))
        at++;
    return at == end || (*at == ' ' && at + 1 == end) ? NULL : at;
}

static enum count_next next_chunk(struct record_reader *r)
{
    const char *end, *why;
    enum count_next next = COUNT_FOUND;
    while (!(end = find_set_end(r)) && next == COUNT_FOUND)
        next = fill_or_grow(r);
    if (!end)
        return next == COUNT_FAILED ? next : failed(r, "a malformed set");
    if (*end == ' ' && (end[1] == '\n' || end[1] == ' '))
        return failed(r, "a chunk is malformed");
    struct bytes words = bytes_of(r->window + r->at, (size_t)(end - r->window) - r->at);
    r->at += words.len + (*end == ' ');
    if (set_text_next(&r->set, &words, &r->base.name, &r->base.text, &why))
        return COUNT_FOUND;
    return why ? failed(r, why) : COUNT_END;
}

static enum count_next next_value(struct count_source *base)
{
    struct record_reader *r = (struct record_reader *)base;
    bool bad = false;
    if (count_key_is_lookup(base->key))
        return next_text(r);
    if (base->is_set)
        return next_chunk(r);
    for (;;) {
        if (r->at < r->len && r->window[r->at] == '\n')
            return COUNT_END;
        if (r->at < r->len && parse_count(r, &bad))
            return bad ? failed(r, "a malformed record") : COUNT_FOUND;
        enum count_next next = fill(r);
        if (next != COUNT_FOUND)
            return next == COUNT_FAILED ? next : failed(r, "a malformed record");
    }
}

static const char *line_after(const char *at, const char *limit)
{
    const char *end = memchr(at, '\n', (size_t)(limit - at));
    return end ? end + 1 : limit;
}

/* Compares the beginning of a line with the key. A key contains no LF, so the comparison ends within the line. */
static int compare_line(const char *line, const char *limit, struct bytes key)
{
    size_t n = (size_t)(limit - line);
    return memcmp(line, key.ptr, n < key.len ? n : key.len);
}

/* Returns the first line at or after the key, or `limit`. The line at `low` is before the key, and all lines are
 * complete. */
static const char *first_not_before(const char *low, const char *limit, struct bytes key)
{
    const char *high = limit, *top = limit, *line;
    for (size_t step = NEAR; step < (size_t)(limit - low); step *= 2) {
        line = line_after(low + step, limit);
        if (line == limit || compare_line(line, limit, key) >= 0) {
            high = line;
            break;
        }
        low = line;
    }
    for (top = high; top - low > NEAR;) {
        const char *middle = low + (top - low) / 2;
        line = line_after(middle, top);
        if (line < top && compare_line(line, limit, key) < 0) {
            low = line;
            continue;
        }
        if (line < top)
            high = line;
        top = middle;
    }
    while ((line = line_after(low, limit)) < high && compare_line(line, limit, key) < 0)
        low = line;
    return line < high ? line : high;
}

static enum record_reader_place place_at(const struct record_reader *r, struct bytes key)
{
    const char *line = r->window + r->at, *limit = r->window + r->len;
    return (size_t)(limit - line) >= key.len && memcmp(line, key.ptr, key.len) == 0 ? READER_AT_KEY
                                                                                    : READER_AFTER_KEY;
}

static enum record_reader_place take_failed(struct record_reader *r)
{
    r->base.error.text[0] = '\0';
    return READER_FAILED;
}

enum record_reader_place record_reader_copy_before(
    struct record_reader *r, struct bytes key, record_reader_take *take, void *arg)
{
    if (r->is_checked)
        return READER_ENDED;
    if (finish_record(r) == COUNT_FAILED)
        return READER_FAILED;
    for (;;) {
        enum count_next next = COUNT_FOUND;
        while (r->len - r->at < key.len + 1 && next == COUNT_FOUND)
            next = fill_or_grow(r);
        /* A part of a line must include the key, so that the order of keys can be checked. */
        while (next == COUNT_FOUND && r->whole <= r->at)
            next = find(r, RECORD_SEPARATOR) ? fill(r) : fill_or_grow(r);
        if (next == COUNT_FAILED)
            return READER_FAILED;
        if (r->at == r->len)
            return check_whole(r) == COUNT_FAILED ? READER_FAILED : READER_ENDED;
        const char *from = r->window + r->at, *limit = r->window + r->whole;
        if (key.ptr && compare_line(from, r->window + r->len, key) >= 0)
            return place_at(r, key);
        bool is_part = limit <= from; /* the buffer has only a part of the line */
        const char *to = is_part ? r->window + r->len : key.ptr ? first_not_before(from, limit, key) : limit;
        if (take(arg, bytes_of(from, (size_t)(to - from))) != 0)
            return take_failed(r);
        r->at = (size_t)(to - r->window);
        while (is_part) {
            next = fill(r);
            if (next != COUNT_FOUND)
                return next == COUNT_END ? (failed(r, "the last line has no LF"), READER_FAILED)
                                         : READER_FAILED;
            const char *end = memchr(r->window, '\n', r->len);
            is_part = !end;
            size_t n = end ? (size_t)(end - r->window) + 1 : r->len;
            r->at = n;
            if (take(arg, bytes_of(r->window, n)) != 0)
                return take_failed(r);
        }
    }
}

struct bytes record_reader_line(struct record_reader *r)
{
    enum count_next next = COUNT_FOUND;
    bool is_lookup = record_reader_is_in(r, BYTES_LITERAL("lookup|"));
    const char *end;
    r->base.error.text[0] = '\0';
    while (!(end = find(r, '\n')) && next == COUNT_FOUND)
        next = is_lookup ? fill_or_grow(r) : fill(r);
    return end ? bytes_of(r->window + r->at, (size_t)(end - r->window) - r->at) : BYTES_NONE;
}

void record_reader_skip(struct record_reader *r, struct bytes line)
{
    r->at += line.len + 1;
}

bool record_reader_is_in(const struct record_reader *r, struct bytes prefix)
{
    return r->len - r->at >= prefix.len && memcmp(r->window + r->at, prefix.ptr, prefix.len) == 0;
}

bool record_reader_reaches(const struct record_reader *r, struct bytes key)
{
    return compare_line(r->window + r->at, r->window + r->len, key) <= 0;
}

void record_reader_end(struct record_reader *r)
{
    if (r->fd >= 0)
        free(r->window);
    buf_free(&r->text);
    set_text_free(&r->set);
}

static void close_reader(struct count_source *base)
{
    struct record_reader *r = (struct record_reader *)base;
    struct record_file *f = r->file;
    io->close(r->fd);
    record_reader_end(r);
    XXH3_freeState(f->hash);
    free(f->name);
    free(f);
    free(r);
}

static const struct count_source_kind kind = {next_record, next_value, close_reader, NULL};

/* Sets all members, except that only the first byte of the error's text is set. */
static void init(struct record_reader *r, int fd, const char *name)
{
    memset(r, 0, offsetof(struct record_reader, base.error.text) + 1);
    memset(&r->base + 1, 0, sizeof *r - sizeof r->base);
    r->base.kind = &kind;
    r->base.container = name;
    r->fd = fd;
    r->line_end = NOT_HELD;
}

void record_reader_of_memory(struct record_reader *r, const char *name, struct bytes lines)
{
    union {
        const char *borrowed;
        char *window;
    } text = {lines.ptr};
    init(r, -1, name);
    r->window = text.window;
    r->room = r->len = r->whole = lines.len;
}

void record_reader_of_range(struct record_reader *r, int fd, const char *name, uint64_t from, uint64_t len)
{
    init(r, fd, name);
    r->room = RECORD_READER_BYTES_MIN;
    r->next = from;
    r->end = from + len;
}

struct record_reader *record_reader_new(
    int fd, const char *name, const struct manifest_file *expected, size_t buffer_bytes)
{
    struct record_reader *r = mem_alloc(sizeof *r);
    struct record_file *f = mem_zalloc(sizeof *f);
    posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    *f = (struct record_file){.name = mem_strdup(name), .expected = *expected, .hash = XXH3_createState()};
    XXH3_64bits_reset(f->hash);
    record_reader_of_range(r, fd, f->name, 0, UINT64_MAX);
    r->room = buffer_bytes;
    r->file = f;
    return r;
}
