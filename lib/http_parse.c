/* Bytes to a request.
 *
 * libhttp-parser, as it is packaged, is lenient where another HTTP implementation in front of this one might
 * read the same bytes otherwise. So what it lets pass is refused here: a header line folded into the one before,
 * a space between a name and its colon, and any byte but LF after a CR that ends a header or a chunk's line.
 * Two lengths, or a length beside chunks, it refuses itself. */
#include "http_internal.h"

#include <strings.h>

void http_parse_reset(struct http_conn *c)
{
    http_parser_init(&c->parser, HTTP_REQUEST);
    c->parser.data = c;
}

static int refuse(struct http_conn *c, enum http_refusal why)
{
    if (c->req.refusal == HTTP_REFUSED_NOT)
        c->req.refusal = why;
    return -1;
}

/* Looks at the lines of a header in p..p+n, going on where the last call stopped. An empty line ends the header.
 * False: a folded line, or a CR alone. */
static bool scan_lines(struct http_conn *c, const char *p, size_t n)
{
    const char *end = p + n;
    while (p < end && c->line != HTTP_LINE_NO_HEADER) {
        if (c->line == HTTP_LINE_EMPTY && *p != '\n')
            return false;
        if (c->line == HTTP_LINE_START && (*p == ' ' || *p == '\t'))
            return false;
        if (c->line == HTTP_LINE_START && *p == '\r') {
            c->line = HTTP_LINE_EMPTY;
            p++;
        } else if (c->line != HTTP_LINE_INSIDE && *p == '\n') {
            c->line = HTTP_LINE_NO_HEADER;
        } else {
            const char *newline = memchr(p, '\n', (size_t)(end - p));
            c->line = newline ? HTTP_LINE_START : HTTP_LINE_INSIDE;
            p = newline ? newline + 1 : end;
        }
    }
    return true;
}

static struct http_conn *conn_of(http_parser *parser)
{
    return parser->data;
}

static int on_url(http_parser *parser, const char *at, size_t n)
{
    struct http_conn *c = conn_of(parser);
    if (c->req.target_len + n > HTTP_MAX_TARGET)
        return refuse(c, HTTP_REFUSED_TARGET_TOO_LONG);
    buf_append(&c->req.text, at, n);
    c->req.target_len += n;
    return 0;
}

static int count_header_bytes(struct http_conn *c, size_t n)
{
    c->req.header_bytes += n;
    return c->req.header_bytes > HTTP_MAX_HEADERS ? refuse(c, HTTP_REFUSED_HEADERS_TOO_LARGE) : 0;
}

/* Lines behind a chunked body (trailers) are read and dropped: `live` says that the headers are over. */
static int on_header_field(http_parser *parser, const char *at, size_t n)
{
    struct http_conn *c = conn_of(parser);
    struct http_request *req = &c->req;
    if (memchr(at, ' ', n))
        return refuse(c, HTTP_REFUSED_MALFORMED);
    if (req->live || count_header_bytes(c, n) < 0)
        return req->live ? 0 : -1;
    if (req->in_value || req->n_headers == 0) {
        if (req->n_headers == HTTP_HEADER_COUNT)
            return refuse(c, HTTP_REFUSED_HEADERS_TOO_LARGE);
        req->headers[req->n_headers++] = (struct http_header_span){.name = req->text.len};
        req->in_value = false;
    }
    req->headers[req->n_headers - 1].name_len += n;
    buf_append(&req->text, at, n);
    return 0;
}

static int on_header_value(http_parser *parser, const char *at, size_t n)
{
    struct http_conn *c = conn_of(parser);
    struct http_request *req = &c->req;
    if (req->live || count_header_bytes(c, n) < 0)
        return req->live ? 0 : -1;
    struct http_header_span *h = &req->headers[req->n_headers - 1];
    if (!req->in_value)
        h->value = req->text.len;
    req->in_value = true;
    h->value_len += n;
    buf_append(&req->text, at, n);
    return 0;
}

static enum http_method method_of(const http_parser *parser)
{
    switch (parser->method) {
    case HTTP_GET:
    case HTTP_HEAD:
        return HTTP_GET_;
    case HTTP_POST:
        return HTTP_POST_;
    case HTTP_PUT:
        return HTTP_PUT_;
    case HTTP_DELETE:
        return HTTP_DELETE_;
    case HTTP_OPTIONS:
        return HTTP_OPTIONS_;
    default:
        return 0;
    }
}

/* Chunked, once, and from a client that knows chunks: all else might be framed otherwise by a proxy. */
static bool encoding_is_known(const struct http_request *req, const http_parser *parser)
{
    size_t seen = 0;
    for (size_t i = 0; i < req->n_headers; i++) {
        const struct http_header_span *h = &req->headers[i];
        if (h->name_len != 17 || strncasecmp(req->text.ptr + h->name, "transfer-encoding", 17) != 0)
            continue;
        seen++;
        if (h->value_len != 7 || strncasecmp(req->text.ptr + h->value, "chunked", 7) != 0)
            return false;
    }
    return seen == 0 || (seen == 1 && (parser->flags & F_CHUNKED) && !req->http10);
}

static void note_framing(struct http_request *req, const http_parser *parser)
{
    bool has_length = parser->flags & F_CONTENTLENGTH;
    req->method = method_of(parser);
    req->is_head = parser->method == HTTP_HEAD;
    req->http10 = parser->http_major < 1 || (parser->http_major == 1 && parser->http_minor == 0);
    req->has_body = (parser->flags & F_CHUNKED) || (has_length && parser->content_length > 0);
    req->keep_alive = http_should_keep_alive(parser);
}

static void judge_headers(struct http_conn *c, const http_parser *parser)
{
    struct http_request *req = &c->req;
    struct bytes expect = http_header(req, "Expect");
    if (!encoding_is_known(req, parser)) {
        req->refusal = HTTP_REFUSED_ENCODING;
        return;
    }
    http_route_find(req);
    if (req->refusal != HTTP_REFUSED_NOT)
        return;
    if ((parser->flags & F_CONTENTLENGTH) && parser->content_length > http_route_max_body(req))
        req->refusal = HTTP_REFUSED_BODY_TOO_LARGE;
    else if (expect.len > 0 && (expect.len != 12 || strncasecmp(expect.ptr, "100-continue", 12) != 0))
        req->refusal = HTTP_REFUSED_EXPECTATION;
    else if (expect.len > 0 && req->has_body && !req->http10)
        http_reply_continue(req);
}

/* A refused request without a body is complete here and leaves the connection usable; a refused body is not
 * read, so parsing ends. */
static int on_headers_complete(http_parser *parser)
{
    struct http_conn *c = conn_of(parser);
    note_framing(&c->req, parser);
    if (parser->http_major > 1)
        return refuse(c, HTTP_REFUSED_MALFORMED);
    judge_headers(c, parser);
    c->req.live = true;
    http_conn_enter(c, HTTP_CONN_BODY);
    bool refused = c->req.refusal != HTTP_REFUSED_NOT;
    bool unclear = c->req.refusal == HTTP_REFUSED_ENCODING;
    return refused && (c->req.has_body || unclear) ? -1 : 0;
}

static int on_body(http_parser *parser, const char *at, size_t n)
{
    struct http_conn *c = conn_of(parser);
    struct http_request *req = &c->req;
    const struct http_route *row = req->endpoint->row;
    http_conn_enter(c, HTTP_CONN_BODY);
    req->body_bytes += n;
    if (req->body_bytes > http_route_max_body(req))
        return refuse(c, HTTP_REFUSED_BODY_TOO_LARGE);
    if (!row->on_body) {
        buf_append(&req->body, at, n);
        return 0;
    }
    bool more = row->on_body(req, bytes_of(at, n), req->endpoint->ctx);
    return more && req->reply == HTTP_REPLY_NONE ? 0 : -1;
}

static int on_message_complete(http_parser *parser)
{
    conn_of(parser)->message_complete = true;
    http_parser_pause(parser, 1);
    return 0;
}

/* Parsing pauses behind a chunk's line, so that its end can be looked at. */
static int on_chunk_line(http_parser *parser)
{
    struct http_conn *c = conn_of(parser);
    c->at_chunk_line = true;
    http_parser_pause(parser, 1);
    return 0;
}

static int on_chunk_complete(http_parser *parser)
{
    return parser->flags & F_TRAILING ? 0 : on_chunk_line(parser);
}

static const http_parser_settings settings = {
    .on_url = on_url,
    .on_header_field = on_header_field,
    .on_header_value = on_header_value,
    .on_headers_complete = on_headers_complete,
    .on_body = on_body,
    .on_message_complete = on_message_complete,
    .on_chunk_header = on_chunk_line,
    .on_chunk_complete = on_chunk_complete,
};

/* Empty lines before a request are allowed for old clients' sake and are no part of its header. */
static size_t skip_blank_lines(const char *p, size_t n)
{
    size_t i = 0;
    while (i < n && (p[i] == '\r' || p[i] == '\n'))
        i++;
    return i;
}

static void explain_failure(struct http_conn *c)
{
    enum http_errno e = HTTP_PARSER_ERRNO(&c->parser);
    refuse(c, e == HPE_HEADER_OVERFLOW ? HTTP_REFUSED_HEADERS_TOO_LARGE : HTTP_REFUSED_MALFORMED);
}

/* What was used so far must end with CRLF behind a chunk's line, with LF behind a message with trailers. */
static bool line_ends_well(const struct http_conn *c, const char *p, size_t used)
{
    char before = used >= 2 ? p[used - 2] : c->last_byte;
    if (c->at_chunk_line)
        return used >= 1 && p[used - 1] == '\n' && before == '\r';
    return !c->message_complete || !(c->parser.flags & F_TRAILING) || (used >= 1 && p[used - 1] == '\n');
}

static size_t execute(struct http_conn *c, const char *p, size_t n)
{
    c->at_chunk_line = false;
    size_t used = http_parser_execute(&c->parser, &settings, p, n);
    if (HTTP_PARSER_ERRNO(&c->parser) == HPE_PAUSED)
        http_parser_pause(&c->parser, 0);
    if (!line_ends_well(c, p, used)) {
        c->message_complete = false;
        refuse(c, HTTP_REFUSED_MALFORMED);
    } else if (HTTP_PARSER_ERRNO(&c->parser) != HPE_OK && c->req.reply == HTTP_REPLY_NONE) {
        explain_failure(c);
    }
    if (used > 0)
        c->last_byte = p[used - 1];
    return used;
}

size_t http_parse_feed(struct http_conn *c, const char *p, size_t n)
{
    if (c->state == HTTP_CONN_IDLE) {
        size_t blank = skip_blank_lines(p, n);
        if (blank > 0)
            return blank;
        c->line = HTTP_LINE_INSIDE;
        http_request_begin(&c->req);
        http_conn_enter(c, HTTP_CONN_HEADER);
    }
    if (!scan_lines(c, p, n)) {
        refuse(c, HTTP_REFUSED_MALFORMED);
        return n;
    }
    return execute(c, p, n);
}
