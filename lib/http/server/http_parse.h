/* http_parse: parses the head of a request and decodes its body. The functions use no connection, route or reply.
 *
 *     used = http_head_feed(&head, p, n);               until head.complete or head.error
 *     http_body_begin(&decoder, &head);
 *     used = http_body_decode(&decoder, p, n, &piece);  until decoder.state is HTTP_BODY_END or HTTP_BODY_BAD
 *
 * 1. The caller may split the input anywhere. Each call consumes at most one head or one piece of a body.
 * 2. The parser checks each line when the line is complete. The parser refuses an incomplete line as soon as no further
 *    bytes could make the line valid. The parser reads each byte once.
 * 3. The parser is strict wherever a proxy might find another end of the same request. The parser refuses folded lines,
 *    spaces before a colon, control bytes, a second Host or Content-Length, and a Content-Length together with chunks.
 *    A line of a head may end with LF alone, but a line of a chunked body must end with CRLF.
 * 4. A head uses at most HTTP_TARGET_MAX + HTTP_HEADERS_MAX bytes of memory, plus a small constant. */
#ifndef MILLRACE_HTTP_PARSE_H
#define MILLRACE_HTTP_PARSE_H

#include "http/server/http_server.h"

#define HTTP_HEADER_COUNT_MAX 128 /* a head with more header lines gets status 431 */

/* Reasons why the server answers a request without its handler. The parser reports those up to
 * HTTP_REFUSED_ENCODING. */
enum http_refusal {
    HTTP_REFUSED_NOT,
    HTTP_REFUSED_MALFORMED,
    HTTP_REFUSED_NO_HOST,
    HTTP_REFUSED_TARGET_TOO_LONG,
    HTTP_REFUSED_HEADERS_TOO_LARGE,
    HTTP_REFUSED_ENCODING,
    HTTP_REFUSED_BODY_TOO_LARGE,
    HTTP_REFUSED_EXPECTATION,
    HTTP_REFUSED_CONTENT_ENCODING,
    HTTP_REFUSED_DAMAGED_BODY,
    HTTP_REFUSED_PARAMETER,
    HTTP_REFUSED_UNKNOWN_PARAMETER,
    HTTP_REFUSED_UNKNOWN,
    HTTP_REFUSED_METHOD,
    HTTP_REFUSED_TOKEN,
    HTTP_REFUSED_SCOPE,
    HTTP_REFUSED_KEYS,
    HTTP_REFUSED_VIEW,
    HTTP_REFUSED_TOKEN_RATE,
    HTTP_REFUSED_FORBIDDEN,
    HTTP_REFUSED_FOREIGN_HOST,
    HTTP_REFUSED_FOREIGN_PAGE,
    HTTP_REFUSED_PUBLIC,
    HTTP_REFUSED_RATE,
    HTTP_REFUSED_NOT_READY,
    HTTP_REFUSED_OVERLOADED,
    HTTP_REFUSED_CONNECTIONS,
};

enum http_coding { /* Content-Encoding */
    HTTP_CODING_IDENTITY,
    HTTP_CODING_GZIP,
    HTTP_CODING_ZSTD,
    HTTP_CODING_OTHER, /* another coding, or several */
};

struct http_header_span {
    size_t name, name_len, value, value_len; /* offsets into http_head.text */
};

struct http_head {
    struct buf text; /* head of the request as received; http_head_clear keeps its memory */
    /* http_head_clear zeroes everything from here to `headers`. */
    size_t line_at; /* position of the current line in `text` */
    enum http_refusal error;
    bool complete;
    enum http_method method; /* 0: unknown; HEAD is HTTP_GET_ with is_head */
    bool is_head, http10;
    bool keep_alive, asks_close;
    bool has_host, has_content_length, is_chunked;
    bool expects_continue, expects_other;
    enum http_coding coding;
    uint64_t content_length;
    size_t target, target_len; /* position of the target in `text` */
    size_t header_bytes;       /* of names and values */
    size_t n_headers;
    struct http_header_span headers[HTTP_HEADER_COUNT_MAX];
};

void http_head_clear(struct http_head *h);
/* Consumes up to n bytes, but no byte after the head. Returns the number of consumed bytes. */
size_t http_head_feed(struct http_head *h, const char *p, size_t n);
static inline struct bytes http_head_target(const struct http_head *h)
{
    return bytes_of(h->text.ptr + h->target, h->target_len);
}

/* A state is the kind of the next byte of a body. */
enum http_body_state {
    HTTP_BODY_SIZE, /* a chunk's size */
    HTTP_BODY_MORE_SIZE,
    HTTP_BODY_EXTENSION,
    HTTP_BODY_SIZE_LF,
    HTTP_BODY_DATA, /* data of a chunk, or of a body with a Content-Length */
    HTTP_BODY_DATA_CR,
    HTTP_BODY_DATA_LF,
    HTTP_BODY_TRAILERS, /* the beginning of a trailer line */
    HTTP_BODY_TRAILER,
    HTTP_BODY_TRAILER_LF,
    HTTP_BODY_LAST_LF,
    HTTP_BODY_END,
    HTTP_BODY_BAD,
};

struct http_body_decoder {
    enum http_body_state state;
    bool is_chunked;
    uint64_t left;       /* bytes that remain of the current chunk or the body */
    size_t header_bytes; /* header bytes of the head, plus chunk extensions and trailers */
};

/* Prepares the decoder after a complete head, for a request with chunks or a content_length above 0. */
void http_body_begin(struct http_body_decoder *d, const struct http_head *h);
/* Consumes up to n bytes. Sets *piece to the bytes of the body within these n bytes. *piece points into p and may be
 * empty. After the size of a chunk and before its first byte, the state is HTTP_BODY_DATA and `left` is this size. */
size_t http_body_decode(struct http_body_decoder *d, const char *p, size_t n, struct bytes *piece);

#endif
