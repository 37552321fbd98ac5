#include "http/server/http_inflate.h"

#include <assert.h>
#include <limits.h>
#include <stdlib.h>
#define ZLIB_CONST /* next_in is const */
#include <zlib.h>
#include <zstd.h>

#define STEP (32 * 1024)             /* of output */
#define WINDOW_LOG_MAX 23            /* maximum window of a zstd frame: 8 MiB */
#define GZIP_WINDOW (16 + MAX_WBITS) /* 16 selects a gzip header instead of a zlib header */
#define GZIP_MEMORY (48 * 1024)      /* memory of an inflating z_stream, rounded up */

struct http_inflate {
    bool in_frame;   /* the input is inside a member or frame and must not end */
    bool has_more;   /* the next call continues with `rest` */
    struct buf rest; /* input of the last call */
    size_t rest_at;  /* number of bytes of `rest` that are already decompressed */
    ZSTD_DCtx *zstd; /* NULL: gzip */
    z_stream gzip;
};

struct http_inflate *http_inflate_new(enum http_coding coding)
{
    struct http_inflate *z = mem_zalloc(sizeof *z);
    bool ok;
    if (coding == HTTP_CODING_ZSTD) {
        z->zstd = ZSTD_createDCtx();
        ok = z->zstd && !ZSTD_isError(ZSTD_DCtx_setParameter(z->zstd, ZSTD_d_windowLogMax, WINDOW_LOG_MAX));
    } else {
        ok = inflateInit2(&z->gzip, GZIP_WINDOW) == Z_OK;
    }
    if (!ok)
        abort(); /* only after a failed allocation, as in mem_alloc */
    return z;
}

void http_inflate_free(struct http_inflate **z)
{
    if (!*z)
        return;
    ZSTD_freeDCtx((*z)->zstd);
    if (!(*z)->zstd)
        inflateEnd(&(*z)->gzip);
    buf_free(&(*z)->rest);
    free(*z);
    *z = NULL;
}

/* Decompresses *piece into at most `room` bytes at `to`. Advances *piece and sets *made. False: invalid input. */
static bool gunzip(struct http_inflate *z, struct bytes *piece, char *to, size_t room, size_t *made)
{
    uInt given = piece->len < UINT_MAX ? (uInt)piece->len : UINT_MAX;
    z->gzip.next_in = (const Bytef *)piece->ptr;
    z->gzip.avail_in = given;
    z->gzip.next_out = (Bytef *)to;
    z->gzip.avail_out = (uInt)room;
    int rc = inflate(&z->gzip, Z_NO_FLUSH);
    *made = room - z->gzip.avail_out;
    *piece = bytes_of(piece->ptr + (given - z->gzip.avail_in), piece->len - (given - z->gzip.avail_in));
    z->in_frame = rc != Z_STREAM_END;
    return rc == Z_STREAM_END ? inflateReset(&z->gzip) == Z_OK : rc == Z_OK || rc == Z_BUF_ERROR;
}

static bool unzstd(struct http_inflate *z, struct bytes *piece, char *to, size_t room, size_t *made)
{
    ZSTD_inBuffer in = {piece->ptr, piece->len, 0};
    ZSTD_outBuffer out = {to, room, 0};
    size_t left = ZSTD_decompressStream(z->zstd, &out, &in);
    *made = out.pos;
    *piece = bytes_of(piece->ptr + in.pos, piece->len - in.pos);
    z->in_frame = left > 0;
    return !ZSTD_isError(left);
}

enum http_refusal http_inflate_feed(struct http_inflate *z, struct bytes piece, size_t max, struct buf *out)
{
    size_t made = STEP, before = out->len;
    bool is_rest = z->has_more;
    assert(out->len <= max && !(is_rest && piece.len > 0));
    if (is_rest)
        piece = bytes_of(z->rest.ptr + z->rest_at, z->rest.len - z->rest_at);
    /* A full step of output may leave more inside the decompressor. */
    while (out->len - before < HTTP_INFLATE_STEP && (piece.len > 0 || (z->in_frame && made == STEP))) {
        buf_reserve(out, STEP);
        if (!(z->zstd ? unzstd : gunzip)(z, &piece, out->ptr + out->len, STEP, &made))
            return HTTP_REFUSED_DAMAGED_BODY;
        if (made > max - out->len)
            return HTTP_REFUSED_BODY_TOO_LARGE;
        out->len += made;
    }
    z->has_more = piece.len > 0 || (z->in_frame && made == STEP);
    if (!is_rest) {
        buf_clear(&z->rest);
        if (z->has_more)
            buf_append_bytes(&z->rest, piece);
    }
    z->rest_at = z->rest.len - (z->has_more ? piece.len : z->rest.len);
    return HTTP_REFUSED_NOT;
}

bool http_inflate_has_more(const struct http_inflate *z)
{
    return z->has_more;
}

bool http_inflate_is_complete(const struct http_inflate *z)
{
    return !z->in_frame;
}

size_t http_inflate_memory(const struct http_inflate *z)
{
    return sizeof *z + z->rest.cap + (z->zstd ? ZSTD_sizeof_DCtx(z->zstd) : GZIP_MEMORY);
}
