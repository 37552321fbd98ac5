/* http_inflate: decompresses a body with Content-Encoding gzip or zstd while the body's pieces arrive.
 *
 * 1. The caller may split the input anywhere. Several gzip members or zstd frames in a row are one body.
 * 2. The output never exceeds the caller's limit, because decompression stops at the limit.
 * 3. A call produces at most HTTP_INFLATE_STEP bytes of output, because a few bytes of input may produce megabytes of output. The
 *    decompressor keeps the rest of the input for the next call.
 * 4. A zstd frame with a window above 8 MiB is refused, as RFC 8878 recommends for HTTP. */
#ifndef MILLRACE_HTTP_INFLATE_H
#define MILLRACE_HTTP_INFLATE_H

#include "http/server/http_parse.h"

#define HTTP_INFLATE_STEP ((size_t)256 << 10)

struct http_inflate;

/* Makes a decompressor for HTTP_CODING_GZIP or HTTP_CODING_ZSTD. */
struct http_inflate *http_inflate_new(enum http_coding coding);
void http_inflate_free(struct http_inflate **z);
/* Appends the decompressed bytes of the piece to `out`. If http_inflate_has_more is true, the piece must be empty, and the call
 * continues with the kept input. HTTP_REFUSED_BODY_TOO_LARGE: out->len would exceed `max`. HTTP_REFUSED_DAMAGED_BODY: the piece is not
 * valid. After a refusal, the caller may only call http_inflate_free. */
enum http_refusal http_inflate_feed(struct http_inflate *z, struct bytes piece, size_t max, struct buf *out);
/* True if the decompressor keeps input that may produce more output. */
bool http_inflate_has_more(const struct http_inflate *z);
/* True if the input so far ends with a complete member or frame. */
bool http_inflate_is_complete(const struct http_inflate *z);
/* Returns the number of bytes of memory that the decompressor uses. */
size_t http_inflate_memory(const struct http_inflate *z);

#endif
