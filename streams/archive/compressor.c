#include "streams/archive/compressor.h"

#include <stdlib.h>
#include <zlib.h>
#include <zstd.h>

#define OUTPUT_STEP ((size_t)128 << 10)
#define GZIP_WINDOW (15 + 16) /* zlib's way to ask for a gzip header */
#define ZSTD_CHECKSUM 1

struct compressor {
    enum archive_compression compression;
    z_stream gzip;
    ZSTD_CCtx *zstd;
};

struct compressor *compressor_new(enum archive_compression c)
{
    struct compressor *p = mem_zalloc(sizeof *p);
    p->compression = c;
    if (c == ARCHIVE_GZIP &&
        deflateInit2(&p->gzip, Z_DEFAULT_COMPRESSION, Z_DEFLATED, GZIP_WINDOW, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        abort();
    if (c == ARCHIVE_ZSTD) {
        p->zstd = ZSTD_createCCtx();
        if (p->zstd == NULL)
            abort();
        ZSTD_CCtx_setParameter(p->zstd, ZSTD_c_checksumFlag, ZSTD_CHECKSUM);
    }
    return p;
}

void compressor_free(struct compressor **pp)
{
    struct compressor *p = *pp;
    if (p == NULL)
        return;
    if (p->compression == ARCHIVE_GZIP)
        deflateEnd(&p->gzip);
    ZSTD_freeCCtx(p->zstd);
    free(p);
    *pp = NULL;
}

static int add_gzip(struct compressor *p, struct bytes piece, bool last, struct buf *out)
{
    p->gzip.next_in = (Bytef *)(uintptr_t)piece.ptr;
    p->gzip.avail_in = (uInt)piece.len;
    int rc;
    do {
        buf_reserve(out, OUTPUT_STEP);
        p->gzip.next_out = (Bytef *)out->ptr + out->len;
        p->gzip.avail_out = OUTPUT_STEP;
        rc = deflate(&p->gzip, last ? Z_FINISH : Z_NO_FLUSH);
        out->len += OUTPUT_STEP - p->gzip.avail_out;
    } while (rc == Z_OK && (p->gzip.avail_in > 0 || p->gzip.avail_out == 0 || last));
    return rc == Z_OK || rc == Z_BUF_ERROR || rc == Z_STREAM_END ? 0 : -1;
}

static int add_zstd(struct compressor *p, struct bytes piece, bool last, struct buf *out)
{
    ZSTD_inBuffer in = {piece.ptr, piece.len, 0};
    size_t left;
    do {
        buf_reserve(out, OUTPUT_STEP);
        ZSTD_outBuffer to = {out->ptr + out->len, OUTPUT_STEP, 0};
        left = ZSTD_compressStream2(p->zstd, &to, &in, last ? ZSTD_e_end : ZSTD_e_continue);
        if (ZSTD_isError(left))
            return -1;
        out->len += to.pos;
    } while (last ? left > 0 : in.pos < in.size);
    return 0;
}

int compressor_add(struct compressor *p, struct bytes piece, bool last, struct buf *out)
{
    if (p->compression == ARCHIVE_GZIP)
        return add_gzip(p, piece, last, out);
    if (p->compression == ARCHIVE_ZSTD)
        return add_zstd(p, piece, last, out);
    buf_append_bytes(out, piece);
    return 0;
}
