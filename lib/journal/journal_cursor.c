#include "journal/journal_cursor.h"

#include "base/io.h"
#include "base/xxh3.h"
#include "journal/journal_dir.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define CURSOR_CHUNK ((size_t)256 << 10)

void cursor_begin(struct cursor *c, int fd, uint64_t seed, uint64_t base)
{
    c->fd = fd;
    c->seed = seed;
    c->position = SEGMENT_HEADER;
    c->offset = base;
    c->latest = 0;
    c->in.len = 0;
    c->in_position = SEGMENT_HEADER;
    c->verified = 0;
    c->large.position = 0;
    if (c->chunk == 0)
        c->chunk = CURSOR_CHUNK;
}

enum cursor_status cursor_open(struct cursor *c, const char *path, uint64_t seed, uint64_t base)
{
    int fd = file_open(path);
    if (fd < 0) {
        c->system = errno;
        return CURSOR_IO;
    }
    cursor_begin(c, fd, seed, base);
    return CURSOR_FRAME;
}

void cursor_close(struct cursor *c)
{
    if (c->fd >= 0 && !c->borrowed)
        io->close(c->fd);
    c->fd = -1;
    c->borrowed = false;
    buf_free(&c->in);
    free(c->large.checksums);
    c->large.checksums = NULL;
    c->large.position = 0;
}

void cursor_failure(
    const struct cursor *c, enum cursor_status status, const char *path, char text[JOURNAL_ERROR_TEXT])
{
    char what[64];
    int system = status == CURSOR_IO ? c->system : 0;
    snprintf(what, sizeof what, "%s at byte %llu", system ? "cannot read" : "damaged",
        (unsigned long long)c->position);
    failure_set(text, path, what, system);
}

struct cursor *cursor_new(void)
{
    struct cursor *c = mem_zalloc(sizeof *c);
    c->fd = -1;
    return c;
}

void cursor_free(struct cursor *c)
{
    cursor_close(c);
    free(c);
}

void cursor_rest(struct cursor *c)
{
    if (c->in.cap <= CURSOR_KEPT)
        return;
    buf_free(&c->in);
    c->verified = 0;
}

static struct bytes at_position(const struct cursor *c)
{
    size_t skip = (size_t)(c->position - c->in_position);
    return c->in.len > 0 ? bytes_of(c->in.ptr + skip, c->in.len - skip) : BYTES_NONE;
}

/* Reads until the `need` bytes from the cursor's position are in memory, or until the file ends. */
static bool fill(struct cursor *c, size_t need)
{
    uint64_t in_end = c->in_position + c->in.len;
    bool inside = c->position >= c->in_position && c->position <= in_end;
    if (inside && at_position(c).len >= need)
        return true;
    size_t kept = inside ? (size_t)(in_end - c->position) : 0;
    if (kept > 0)
        memmove(c->in.ptr, c->in.ptr + (c->position - c->in_position), kept);
    c->in.len = kept;
    c->in_position = c->position;
    size_t want = need > c->chunk ? need : c->chunk;
    buf_reserve(&c->in, want - c->in.len);
    while (c->in.len < need) {
        ssize_t n =
            io->pread(c->fd, c->in.ptr + c->in.len, want - c->in.len, (off_t)(c->in_position + c->in.len));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            c->system = errno;
            return false;
        }
        if (n == 0)
            return true;
        c->in.len += (size_t)n;
    }
    return true;
}

enum cursor_status cursor_peek(struct cursor *c, struct frame *f)
{
    size_t size;
    struct stat st;
    if (!fill(c, FRAME_HEADER))
        return CURSOR_IO;
    enum frame_status status = frame_measure(at_position(c), &size);
    if (status != FRAME_OK)
        return status == FRAME_NONE ? CURSOR_END : CURSOR_BAD;
    /* The length may be damaged, so the cursor does not allocate more memory than the file's size. */
    if (size > c->chunk && (fstat(c->fd, &st) != 0 || c->position + size > (uint64_t)st.st_size))
        return CURSOR_BAD;
    if (!fill(c, size))
        return CURSOR_IO;
    bool trusted = c->verified == c->position;
    if (frame_decode(at_position(c), c->seed, c->position, trusted, f) != FRAME_OK || f->offset != c->offset)
        return CURSOR_BAD;
    c->verified = c->position;
    return CURSOR_FRAME;
}

bool cursor_exceeds(struct cursor *c, size_t n)
{
    return fill(c, FRAME_HEADER) && frame_payload_length(at_position(c)) > n;
}

void cursor_skip(struct cursor *c, const struct frame *f)
{
    c->position += frame_size(f->name.len, f->payload.len);
    c->offset += frame_advance(f);
    if (frame_advance(f) > 0 && f->time > c->latest)
        c->latest = f->time;
}

static uint64_t piece_checksum(struct bytes payload, size_t i)
{
    size_t at = i * CURSOR_PIECE, left = payload.len - at;
    return XXH3_64bits(payload.ptr + at, left < CURSOR_PIECE ? left : CURSOR_PIECE);
}

void cursor_enter(struct cursor *c, const struct frame *f)
{
    size_t pieces = (f->payload.len + CURSOR_PIECE - 1) / CURSOR_PIECE;
    c->large.checksums = mem_realloc(c->large.checksums, (pieces + 1) * sizeof *c->large.checksums);
    for (size_t i = 0; i < pieces; i++)
        c->large.checksums[i] = piece_checksum(f->payload, i);
    c->large.position = c->position;
    c->large.payload_at = (size_t)(f->payload.ptr - at_position(c).ptr);
    c->large.frame = *f;
    c->large.frame.name.ptr = c->large.frame.payload.ptr = NULL;
    c->verified = 0;
    buf_free(&c->in);
    c->in_position = c->position;
}

bool cursor_is_inside(const struct cursor *c)
{
    return c->large.position != 0 && c->large.position == c->position;
}

/* Reads whole pieces and compares their checksums, because the file may have changed since the frame was verified. */
enum cursor_status cursor_read(struct cursor *c, size_t skip, size_t n, struct buf *out)
{
    size_t first = skip / CURSOR_PIECE, from = first * CURSOR_PIECE;
    size_t to = (skip + n + CURSOR_PIECE - 1) / CURSOR_PIECE * CURSOR_PIECE;
    size_t want = (to < c->large.frame.payload.len ? to : c->large.frame.payload.len) - from;
    char *pieces = mem_alloc(want);
    ssize_t got = file_read(c->fd, pieces, want, c->position + c->large.payload_at + from);
    c->system = errno;
    bool same = got == (ssize_t)want;
    for (size_t i = 0; same && i * CURSOR_PIECE < want; i++)
        same = piece_checksum(bytes_of(pieces, want), i) == c->large.checksums[first + i];
    if (same)
        buf_append(out, pieces + (skip - from), n);
    free(pieces);
    return same ? CURSOR_FRAME : got < 0 ? CURSOR_IO : CURSOR_BAD;
}

enum cursor_status cursor_reread(struct cursor *c)
{
    struct frame f;
    bool inside = cursor_is_inside(c);
    buf_free(&c->in);
    c->in_position = c->position;
    c->verified = 0;
    if (!inside)
        return CURSOR_FRAME;
    enum cursor_status status = cursor_peek(c, &f);
    if (status == CURSOR_FRAME)
        cursor_enter(c, &f);
    return status;
}
