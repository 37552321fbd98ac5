/* Any bytes as a compressed body. The first byte selects the coding, the second the size of the pieces. The result must not
 * depend on the pieces, and the output must stay within its limit. */
#include "http/server/http_inflate.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define OUT_MAX 100000

static enum http_refusal unpack(
    enum http_coding coding, struct bytes in, size_t step, struct buf *out, bool *complete)
{
    struct http_inflate *z = http_inflate_new(coding);
    enum http_refusal r = HTTP_REFUSED_NOT;
    for (size_t at = 0; at < in.len && r == HTTP_REFUSED_NOT; at += step) {
        r = http_inflate_feed(
            z, bytes_of(in.ptr + at, in.len - at < step ? in.len - at : step), OUT_MAX, out);
        while (r == HTTP_REFUSED_NOT && http_inflate_has_more(z))
            r = http_inflate_feed(z, BYTES_NONE, OUT_MAX, out);
    }
    *complete = http_inflate_is_complete(z);
    http_inflate_free(&z);
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    enum http_coding coding = data[0] % 2 ? HTTP_CODING_GZIP : HTTP_CODING_ZSTD;
    size_t step = data[1] ? data[1] : 1;
    struct bytes in = bytes_of((const char *)data + 2, size - 2);
    struct buf whole = {0}, pieces = {0};
    bool whole_complete, pieces_complete;
    enum http_refusal a = unpack(coding, in, in.len + 1, &whole, &whole_complete);
    enum http_refusal b = unpack(coding, in, step, &pieces, &pieces_complete);
    if (whole.len > OUT_MAX || pieces.len > OUT_MAX || (a == HTTP_REFUSED_NOT) != (b == HTTP_REFUSED_NOT))
        abort();
    if (a == HTTP_REFUSED_NOT &&
        (whole_complete != pieces_complete || !bytes_equal(buf_bytes(&whole), buf_bytes(&pieces))))
        abort();
    buf_free(&whole);
    buf_free(&pieces);
    return 0;
}
