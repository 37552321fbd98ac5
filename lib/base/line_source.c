#include "base/line_source.h"

#include <errno.h>
#include <fcntl.h>
#include <iconv.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#define READ_STEP ((size_t)256 << 10)
#define UNPACK_STEP ((size_t)512 << 10)
#define GZIP_WINDOW (15 + 16)

enum kind { UNKNOWN, PLAIN, GZIP, ZSTD, FOREIGN };

/* Of the magic byte at index `loose`, only the upper four bits must match. The second zstd entry is the skippable
 * frame at the beginning of a file from pzstd. */
static const struct magic {
    enum kind kind;
    const char *name;
    struct bytes bytes;
    size_t loose;
    const char *command; /* FOREIGN: command that decompresses the file */
} magics[] = {
#define MAGIC(text)                                                                                          \
    {                                                                                                        \
        "" text, sizeof(text) - 1                                                                            \
    }
#define LOOSE_NONE SIZE_MAX
    {GZIP, "gzip", MAGIC("\x1f\x8b"), LOOSE_NONE, NULL},
    {ZSTD, "zstd", MAGIC("\x28\xb5\x2f\xfd"), LOOSE_NONE, NULL},
    {ZSTD, "zstd", MAGIC("\x50\x2a\x4d\x18"), 0, NULL},
    {FOREIGN, "lz4", MAGIC("\x04\x22\x4d\x18"), LOOSE_NONE, "lz4 -d"},
    {FOREIGN, "lz4", MAGIC("\x02\x21\x4c\x18"), LOOSE_NONE, "lz4 -d"},
    {FOREIGN, "xz", MAGIC("\xfd\x37zXZ\0"), LOOSE_NONE, "xz -dk"},
    {FOREIGN, "bzip2", MAGIC("BZh\x31\x31\x41\x59\x26\x53\x59"), 3, "bzip2 -dk"},
    {FOREIGN, "lzip", MAGIC("LZIP\x01"), LOOSE_NONE, "lzip -dk"},
    {FOREIGN, "lzop", MAGIC("\x89LZO\0\r\n\x1a\n"), LOOSE_NONE, "lzop -d"},
    {FOREIGN, "compress", MAGIC("\x1f\x9d"), LOOSE_NONE, "gzip -dk"},
    {FOREIGN, "zip", MAGIC("PK\x03\x04"), LOOSE_NONE, "unzip"},
    {FOREIGN, "7z", MAGIC("7z\xbc\xaf\x27\x1c"), LOOSE_NONE, "7z x"},
};
#define N_MAGICS (sizeof magics / sizeof *magics)

struct line_source {
    int fd;
    char *name;
    size_t limit;   /* of a line */
    enum kind kind; /* format of the input, detected at the first read */
    z_stream gzip;
    ZSTD_DCtx *zstd;
    bool skipping;   /* the position is inside a line that is too long */
    bool in_frame;   /* the position is inside a gzip or zstd frame, where the input must not end */
    bool unpacked;   /* at least one whole gzip member was decompressed */
    bool padded;     /* zeros follow the last gzip member */
    struct buf raw;  /* bytes read but not decompressed; empty for a plain file */
    struct buf text; /* decompressed bytes; the part [at, len) is not returned yet */
    size_t at, searched;
    uint64_t offset, consumed;
    uint64_t filled_from; /* compressed bytes used before the last decompression */
    size_t filled;        /* bytes that the last decompression produced */
    uint64_t skipped;     /* bytes dropped so far of a line that is too long */
    iconv_t converter;    /* NULL: the input is not converted */
    size_t unit;          /* bytes of the shortest character of its encoding */
    struct buf foreign;   /* input that is not converted yet */
    uint64_t replaced;    /* replacements since line_source_take_replaced */
    enum { ENDS_UNKNOWN, ENDS_LF, ENDS_CR } ends;
    bool is_text; /* line_source_as_text */
    bool skips_holes;
    bool at_end, given_up;
    bool (*idle)(void *arg); /* NULL: reads block */
    void *idle_arg;
};

static int read_more(struct line_source *s, struct buf *into, struct error *error)
{
    struct pollfd input = {.fd = s->fd, .events = POLLIN};
    ssize_t n;
    /* A signal makes poll return early. */
    while (s->idle && !s->given_up && poll(&input, 1, LINE_SOURCE_IDLE / USEC_PER_MSEC) <= 0)
        s->given_up = !s->idle(s->idle_arg);
    s->at_end = s->given_up;
    if (s->given_up)
        return 0;
    buf_reserve(into, READ_STEP);
    do
        n = read(s->fd, into->ptr + into->len, READ_STEP);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return error_errno(error, -1, s->name);
    s->at_end = n == 0;
    into->len += (size_t)n;
    s->consumed += (uint64_t)n;
    return 0;
}

/* Finds the format of the input. For a plain file, moves the bytes read so far from `raw` to `text`. */
static int find_kind(struct line_source *s, struct error *error)
{
    const struct magic *found = NULL;
    for (bool more = true; more && !s->at_end;) {
        if (read_more(s, &s->raw, error) != 0)
            return -1;
        found = NULL;
        more = false; /* more bytes are needed to decide */
        for (const struct magic *m = magics; m < magics + N_MAGICS; m++) {
            size_t i = 0;
            while (i < s->raw.len && i < m->bytes.len &&
                   ((s->raw.ptr[i] ^ m->bytes.ptr[i]) & (i == m->loose ? 0xf0 : 0xff)) == 0)
                i++;
            if (i == m->bytes.len)
                found = m;
            else if (i == s->raw.len)
                more = true;
        }
    }
    if (found && found->kind == FOREIGN)
        return error_set(error, -1,
            "%.200s: compressed with %s; decompress the file first with `%s` (plain text, gzip and zstd are "
            "supported)",
            s->name, found->name, found->command);
    s->kind = found ? found->kind : PLAIN;
    if (s->kind == GZIP && inflateInit2(&s->gzip, GZIP_WINDOW) != Z_OK)
        abort();
    if (s->kind == ZSTD && !(s->zstd = ZSTD_createDCtx()))
        abort();
    if (s->kind == PLAIN) {
        s->text = s->raw;
        s->raw = (struct buf){0};
    }
    return 0;
}

int line_source_check(struct line_source *s, struct error *error)
{
    return s->kind == UNKNOWN ? find_kind(s, error) : 0;
}

void line_source_limit(struct line_source *s, size_t bytes)
{
    s->limit = bytes;
}

struct line_source *line_source_of(int fd, const char *name, struct error *error)
{
    struct line_source *s = mem_zalloc(sizeof *s);
    s->fd = fd;
    s->limit = LINE_SOURCE_LINE_MAX;
    s->name = mem_strdup(name);
    struct stat st;
    if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode)) {
        error_set(error, -1, "%.200s: %s", s->name, strerror(EISDIR));
        line_source_close(&s);
    }
    return s;
}

struct line_source *line_source_open(const char *path, struct error *error)
{
    if (strcmp(path, "-") == 0)
        return line_source_of(dup(STDIN_FILENO), "standard input", error);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        error_errno(error, -1, path);
        return NULL;
    }
    return line_source_of(fd, path, error);
}

void line_source_close(struct line_source **sp)
{
    struct line_source *s = *sp;
    if (!s)
        return;
    if (s->kind == GZIP)
        inflateEnd(&s->gzip);
    ZSTD_freeDCtx(s->zstd);
    if (s->converter)
        iconv_close(s->converter);
    buf_free(&s->foreign);
    close(s->fd);
    buf_free(&s->raw);
    buf_free(&s->text);
    free(s->name);
    free(s);
    *sp = NULL;
}

static void drop_front(struct buf *b, size_t n)
{
    memmove(b->ptr, b->ptr + n, b->len - n);
    b->len -= n;
}

static int refuse_garbage(const struct line_source *s, uint64_t at, struct error *error)
{
    return error_set(
        error, -1, "%.200s: trailing garbage from byte %llu on", s->name, (unsigned long long)at);
}

/* A file may have several gzip members, such as the output of `cat a.gz b.gz`. Only zeros may
 * follow the last member. */
static int inflate_some(struct line_source *s, struct error *error)
{
    bool behind = s->unpacked && !s->in_frame;
    uint64_t at = s->consumed - s->raw.len;
    if (s->padded || (behind && s->raw.ptr[0] == '\0')) {
        size_t n = 0;
        while (n < s->raw.len && s->raw.ptr[n] == '\0')
            n++;
        drop_front(&s->raw, n);
        s->padded = true;
        return s->raw.len == 0 ? 0 : refuse_garbage(s, s->consumed - s->raw.len, error);
    }
    s->gzip.next_in = (Bytef *)s->raw.ptr;
    s->gzip.avail_in = (uInt)s->raw.len;
    s->gzip.next_out = (Bytef *)s->text.ptr + s->text.len;
    s->gzip.avail_out = UNPACK_STEP;
    int rc = inflate(&s->gzip, Z_NO_FLUSH);
    s->text.len += UNPACK_STEP - s->gzip.avail_out;
    drop_front(&s->raw, s->raw.len - s->gzip.avail_in);
    if (rc != Z_OK && rc != Z_STREAM_END && rc != Z_BUF_ERROR)
        return behind ? refuse_garbage(s, at, error)
                      : error_set(error, -1, "%.200s: damaged gzip data", s->name);
    s->in_frame = rc != Z_STREAM_END;
    s->unpacked = s->unpacked || !s->in_frame;
    if (rc == Z_STREAM_END)
        inflateReset(&s->gzip);
    return 0;
}

static int unzstd_some(struct line_source *s, struct error *error)
{
    ZSTD_inBuffer in = {s->raw.ptr, s->raw.len, 0};
    ZSTD_outBuffer out = {s->text.ptr + s->text.len, UNPACK_STEP, 0};
    size_t left = ZSTD_decompressStream(s->zstd, &out, &in);
    s->text.len += out.pos;
    drop_front(&s->raw, in.pos);
    if (ZSTD_isError(left))
        return error_set(error, -1, "%.200s: %s", s->name, ZSTD_getErrorName(left));
    s->in_frame = left > 0;
    return 0;
}

/* Adds bytes of the file, or sets at_end. */
static int unpack(struct line_source *s, struct error *error)
{
    size_t before = s->text.len;
    if (s->kind == UNKNOWN && find_kind(s, error) != 0)
        return -1;
    if (s->kind == PLAIN)
        return s->text.len > before ? 0 : read_more(s, &s->text, error);
    s->filled_from = s->consumed - s->raw.len;
    while (s->text.len == before) {
        if (s->raw.len == 0 && (read_more(s, &s->raw, error) != 0))
            return -1;
        if (s->raw.len == 0)
            return s->in_frame && !s->given_up ? error_set(error, -1, "%.200s: truncated", s->name) : 0;
        buf_reserve(&s->text, UNPACK_STEP);
        if ((s->kind == GZIP ? inflate_some : unzstd_some)(s, error) != 0)
            return -1;
    }
    s->filled = s->text.len - before;
    s->at_end = false;
    return 0;
}

/* Converts the bytes from `before` on. An incomplete character waits for its rest, unless the input ends. */
static void convert(struct line_source *s, size_t before)
{
    static const char replacement[] = "\xEF\xBF\xBD";
    buf_append(&s->foreign, s->text.ptr + before, s->text.len - before);
    s->text.len = before;
    char *in = s->foreign.ptr;
    size_t left = s->foreign.len;
    while (left > 0) {
        size_t room = 4 * left + 16;
        buf_reserve(&s->text, room);
        char *out = s->text.ptr + s->text.len;
        size_t rc = iconv(s->converter, &in, &left, &out, &room);
        s->text.len = (size_t)(out - s->text.ptr);
        bool is_incomplete = rc == (size_t)-1 && errno == EINVAL;
        if (rc != (size_t)-1 || (is_incomplete && !s->at_end))
            break;
        if (errno == E2BIG)
            continue;
        buf_append_str(&s->text, replacement);
        s->replaced++;
        size_t invalid = is_incomplete || left < s->unit ? left : s->unit;
        in += invalid;
        left -= invalid;
    }
    if (left > 0)
        memmove(s->foreign.ptr, in, left);
    s->foreign.len = left;
}

/* Returns false if the encoding is unknown. */
static bool set_encoding(struct line_source *s, const char *encoding)
{
    iconv_t back = iconv_open(encoding, "UTF-8");
    size_t length = 1;
    /* A byte order mark may come before the first "a". */
    for (int i = 0; i < 2 && back != (iconv_t)-1; i++) {
        char letter[] = "a", encoded[16], *in = letter, *out = encoded;
        size_t left = 1, room = sizeof encoded;
        length = iconv(back, &in, &left, &out, &room) == 0 ? sizeof encoded - room : 1;
    }
    if (back != (iconv_t)-1)
        iconv_close(back);
    s->unit = length > 0 ? length : 1;
    s->converter = iconv_open("UTF-8", encoding);
    if (s->converter != (iconv_t)-1)
        return true;
    s->converter = NULL;
    return false;
}

/* If no encoding was given, a byte order mark of UTF-16 sets the encoding. */
static void find_encoding(struct line_source *s)
{
    struct bytes text = buf_bytes(&s->text);
    if (bytes_starts_with(text, BYTES_LITERAL("\xff\xfe")) ||
        bytes_starts_with(text, BYTES_LITERAL("\xfe\xff")))
        (void)set_encoding(s, "UTF-16");
}

/* If the first line ends in a CR alone, makes each CR an LF. A CR at the end of the bytes read so far may be followed
 * by an LF. */
static void find_ends(struct line_source *s, size_t before)
{
    for (size_t i = before; i < s->text.len && s->ends == ENDS_UNKNOWN; i++)
        if (s->text.ptr[i] == '\n')
            s->ends = ENDS_LF;
        else if (s->text.ptr[i] == '\r' && (i + 1 < s->text.len ? s->text.ptr[i + 1] != '\n' : s->at_end))
            s->ends = ENDS_CR;
    for (char *c = s->text.ptr + before; s->ends == ENDS_CR && c < s->text.ptr + s->text.len; c++)
        *c = *c == '\r' ? '\n' : *c;
}

/* Adds text, or sets at_end. */
static int fill(struct line_source *s, struct error *error)
{
    size_t before = s->text.len;
    do {
        bool is_first = s->consumed == 0;
        if (unpack(s, error) != 0)
            return -1;
        if (is_first && s->is_text && !s->converter)
            find_encoding(s);
        if (s->converter)
            convert(s, before);
    } while (s->converter && s->text.len == before && !s->at_end);
    if (s->is_text && s->ends != ENDS_LF)
        find_ends(s, s->ends == ENDS_UNKNOWN ? 0 : before);
    return 0;
}

bool line_source_has_encoding(const char *encoding)
{
    iconv_t converter = iconv_open("UTF-8", encoding);
    return converter != (iconv_t)-1 && iconv_close(converter) == 0;
}

void line_source_as_text(struct line_source *s, const char *encoding)
{
    s->is_text = true;
    if (encoding && !set_encoding(s, encoding))
        abort();
}

uint64_t line_source_take_replaced(struct line_source *s)
{
    uint64_t replaced = s->replaced;
    s->replaced = 0;
    return replaced;
}

static enum line_source_result end_line(struct line_source *s, size_t end, struct bytes *line)
{
    *line = bytes_of(s->text.ptr + s->at, end - s->at);
    s->offset += s->skipped + line->len;
    s->at = s->searched = end;
    if (!s->skipping && line->len <= s->limit)
        return LINE_SOURCE_LINE;
    s->skipping = false;
    s->skipped = 0;
    return LINE_SOURCE_SKIPPED;
}

/* Returns the NULs at the beginning of a line. */
static struct bytes take_hole(struct line_source *s)
{
    size_t from = s->at;
    while (s->at < s->text.len && s->text.ptr[s->at] == '\0')
        s->at++;
    s->searched = s->searched > s->at ? s->searched : s->at;
    s->offset += s->at - from;
    return bytes_of(s->text.ptr + from, s->at - from);
}

enum line_source_result line_source_next(
    struct line_source *s, bool more_may_come, struct bytes *line, struct error *error)
{
    for (;;) {
        if (s->skips_holes && !s->skipping && s->at < s->text.len && s->text.ptr[s->at] == '\0') {
            *line = take_hole(s);
            return LINE_SOURCE_HOLE;
        }
        const char *lf = s->text.len > s->searched
                             ? memchr(s->text.ptr + s->searched, '\n', s->text.len - s->searched)
                             : NULL;
        if (lf)
            return end_line(s, (size_t)(lf - s->text.ptr) + 1, line);
        if (s->at > 0)
            drop_front(&s->text, s->at);
        s->at = 0;
        s->searched = s->text.len;
        if (s->text.len > (s->skipping ? 0 : s->limit)) {
            s->skipping = true;
            s->skipped += s->text.len;
            s->searched = 0;
            *line = buf_bytes(&s->text);
            buf_clear(&s->text);
            return LINE_SOURCE_SKIPPING;
        }
        if (fill(s, error) != 0)
            return LINE_SOURCE_FAILED;
        if (s->text.len == s->searched) {
            bool unfinished = s->text.len > 0 || s->skipping;
            return unfinished && !more_may_come && !s->given_up ? end_line(s, s->text.len, line)
                                                                : LINE_SOURCE_END;
        }
    }
}

int line_source_skip(struct line_source *s, uint64_t offset, uint64_t *reached, struct error *error)
{
    char last = '\n';
    struct stat st;
    /* The beginning of a text shows its encoding and line ends. */
    if (s->kind == UNKNOWN && (s->is_text ? fill(s, error) : find_kind(s, error)) != 0)
        return -1;
    /* In a plain regular file, seek to the byte before `offset`, and drop the bytes that were read to detect the
     * kind. */
    if (s->kind == PLAIN && !s->converter && fstat(s->fd, &st) == 0 && S_ISREG(st.st_mode)) {
        uint64_t to = offset < (uint64_t)st.st_size ? offset : (uint64_t)st.st_size;
        if (to > 0 && lseek(s->fd, (off_t)to - 1, SEEK_SET) >= 0) {
            buf_clear(&s->text);
            s->at = s->searched = 0;
            s->offset = s->consumed = to - 1;
            s->at_end = false;
        }
    }
    while (s->offset < offset) {
        if (s->text.len == s->at) {
            s->at = s->searched = 0;
            buf_clear(&s->text);
            if (fill(s, error) != 0)
                return -1;
            if (s->text.len == 0)
                break;
        }
        uint64_t left = offset - s->offset;
        size_t n = s->text.len - s->at < left ? s->text.len - s->at : (size_t)left;
        last = s->text.ptr[s->at + n - 1];
        s->at += n;
        s->searched = s->at;
        s->offset += n;
    }
    *reached = s->offset;
    if (last == '\n' || s->offset < offset)
        return 0;
    /* The end of the input also ends a line. An earlier run may have read the last line before its LF was written, so
     * an LF at `offset` is valid, too. */
    if (s->text.len == s->at && fill(s, error) != 0)
        return -1;
    if (s->text.len == s->at || s->text.ptr[s->at] == '\n')
        return 0;
    return error_set(error, -1,
        "%.200s: no line ends at byte %llu, where the mark of this producer is; another input needs another "
        "--producer",
        s->name, (unsigned long long)offset);
}

void line_source_skip_holes(struct line_source *s)
{
    s->skips_holes = true;
}

void line_source_on_idle(struct line_source *s, bool (*idle)(void *arg), void *arg)
{
    s->idle = idle;
    s->idle_arg = arg;
}

uint64_t line_source_offset(const struct line_source *s)
{
    return s->offset;
}

uint64_t line_source_consumed(const struct line_source *s)
{
    size_t left = s->text.len - s->at;
    if (s->kind == PLAIN)
        return s->offset + s->skipped;
    uint64_t unpacked = s->consumed - s->raw.len;
    if (left == 0 || s->filled == 0)
        return unpacked;
    size_t given = left < s->filled ? s->filled - left : 0;
    return s->filled_from + (unpacked - s->filled_from) * given / s->filled;
}

uint64_t line_source_fetched(const struct line_source *s)
{
    return s->consumed;
}

struct bytes line_source_recent(const struct line_source *s, size_t most)
{
    size_t n = s->at < most ? s->at : most;
    return s->kind == PLAIN && n > 0 ? bytes_of(s->text.ptr + s->at - n, n) : BYTES_NONE;
}

int line_source_fd(const struct line_source *s)
{
    return s->fd;
}
