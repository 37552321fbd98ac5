/* Bytes to a request.
 *
 * A head is gathered line by line in req.text and judged a line at a time, so that what is wrong is answered at once and
 * nothing is looked at twice. Strict where another HTTP implementation in front of this one might read the same bytes
 * otherwise: no folded lines, no space before a colon, no control bytes, one Host, one length, and no length beside
 * chunks. Lines of a head may end with LF alone; those of chunks may not.
 *
 * A client's heads are mostly alike, so those of a connection are compared with the one before: lines at the front that are
 * the same bytes were found good, and what they say is there already. Only what may have changed beside them is
 * judged anew: whether the daemon is ready, and how much it holds.
 *
 * libhttp-parser did this before, at 2,600 instructions for a head of 75 bytes, of 7,100 that a put took: it looks at a
 * byte at a time through one switch, and what it lets pass had to be scanned once more. This takes a quarter. */
#include "http/server/http_internal.h"

#include <strings.h>

#define HEAD_AT_ONCE 512
#define LINE_SLACK 64 /* of a request's line beside its target */
#define CHUNK_MAX (UINT64_C(1) << 60)

size_t http_known_most = 512;

static bool refuse(struct http_conn *c, enum http_refusal why)
{
    if (c->req.refusal == HTTP_REFUSED_NOT)
        c->req.refusal = why;
    return false;
}

#define IN_NAME 1
#define IN_TARGET 2
#define IN_VALUE 4
#define OF_TOKEN (IN_NAME | IN_TARGET | IN_VALUE)
#define OF_TEXT (IN_TARGET | IN_VALUE)

/* RFC 9110's token; what a target is made of (any byte over ASCII too, as browsers send them); a value's bytes. */
static const unsigned char kinds[256] = {
    ['\t'] = IN_VALUE,
    [' '] = IN_VALUE,
    ['!'] = OF_TOKEN,
    ['"'] = OF_TEXT,
    ['#' ... '\''] = OF_TOKEN,
    ['(' ... ')'] = OF_TEXT,
    ['*' ... '+'] = OF_TOKEN,
    [','] = OF_TEXT,
    ['-' ... '.'] = OF_TOKEN,
    ['/'] = OF_TEXT,
    ['0' ... '9'] = OF_TOKEN,
    [':' ... '@'] = OF_TEXT,
    ['A' ... 'Z'] = OF_TOKEN,
    ['[' ... ']'] = OF_TEXT,
    ['^' ... 'z'] = OF_TOKEN,
    ['{'] = OF_TEXT,
    ['|'] = OF_TOKEN,
    ['}'] = OF_TEXT,
    ['~'] = OF_TOKEN,
    [0x80 ... 0xff] = OF_TEXT,
};

/* How many bytes at the front are of the kind. */
static size_t span(struct bytes text, unsigned kind)
{
    size_t n = 0;
    while (n < text.len && (kinds[(unsigned char)text.ptr[n]] & kind))
        n++;
    return n;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t';
}

static struct bytes trim(struct bytes text)
{
    while (text.len > 0 && is_space(text.ptr[0]))
        text = bytes_of(text.ptr + 1, text.len - 1);
    while (text.len > 0 && is_space(text.ptr[text.len - 1]))
        text.len--;
    return text;
}

static bool same_word(struct bytes text, const char *word)
{
    return text.len == strlen(word) && strncasecmp(text.ptr, word, text.len) == 0;
}

static const struct {
    const char *name;
    enum http_method method;
} methods[] = {
    {"GET", HTTP_GET_},
    {"POST", HTTP_POST_},
    {"HEAD", HTTP_GET_},
    {"PUT", HTTP_PUT_},
    {"DELETE", HTTP_DELETE_},
    {"OPTIONS", HTTP_OPTIONS_},
};

/* 0: one that no route takes. */
static enum http_method method_of(struct bytes name)
{
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (bytes_equal_str(name, methods[i].name))
            return methods[i].method;
    return 0;
}

/* HTTP/1.0, or HTTP/1.1 and what may follow it. */
static bool parse_version(struct http_request *req, struct bytes text)
{
    if (text.len != 8 || memcmp(text.ptr, "HTTP/1.", 7) != 0 || text.ptr[7] < '0' || text.ptr[7] > '9')
        return false;
    req->http10 = text.ptr[7] == '0';
    req->keep_alive = !req->http10;
    return true;
}

static bool parse_request_line(struct http_conn *c, struct bytes line)
{
    struct http_request *req = &c->req;
    size_t method = span(line, IN_NAME);
    size_t target = method + 1;
    if (method == 0 || method == line.len || line.ptr[method] != ' ')
        return refuse(c, HTTP_REFUSED_MALFORMED);
    size_t len = span(bytes_of(line.ptr + target, line.len - target), IN_TARGET);
    if (len > HTTP_TARGET_MAX)
        return refuse(c, HTTP_REFUSED_TARGET_TOO_LONG);
    size_t version = target + len + 1;
    if (len == 0 || version > line.len || line.ptr[version - 1] != ' ' ||
        !parse_version(req, bytes_of(line.ptr + version, line.len - version)))
        return refuse(c, HTTP_REFUSED_MALFORMED);
    req->method = method_of(bytes_of(line.ptr, method));
    req->is_head = req->method == HTTP_GET_ && line.ptr[0] == 'H';
    req->target = target;
    req->target_len = len;
    return true;
}

static bool take_length(struct http_conn *c, struct bytes value)
{
    if (c->req.has_content_length || !bytes_to_u64(value, &c->body_left))
        return refuse(c, HTTP_REFUSED_MALFORMED);
    c->req.has_content_length = true;
    return true;
}

/* Chunked, once, and from a client that knows chunks: all else might be framed otherwise by a proxy. The head is read to
 * its end, but nothing behind it. */
static bool take_encoding(struct http_conn *c, struct bytes value)
{
    if (c->req.is_chunked || c->req.http10 || !same_word(value, "chunked"))
        refuse(c, HTTP_REFUSED_ENCODING);
    c->req.is_chunked = true;
    return true;
}

static bool take_connection_words(struct http_conn *c, struct bytes value)
{
    while (value.len > 0) {
        const char *comma = memchr(value.ptr, ',', value.len);
        size_t n = comma ? (size_t)(comma - value.ptr) : value.len;
        struct bytes word = trim(bytes_of(value.ptr, n));
        if (same_word(word, "close"))
            c->req.asks_close = true;
        else if (same_word(word, "keep-alive"))
            c->req.keep_alive = true;
        n += comma != NULL;
        value = bytes_of(value.ptr + n, value.len - n);
    }
    return true;
}

static bool take_host(struct http_conn *c, struct bytes value)
{
    (void)value;
    if (c->req.has_host)
        return refuse(c, HTTP_REFUSED_MALFORMED);
    c->req.has_host = true;
    return true;
}

static bool take_expect(struct http_conn *c, struct bytes value)
{
    if (same_word(value, "100-continue"))
        c->req.expects_continue = true;
    else if (value.len > 0)
        c->req.expects_other = true;
    return true;
}

static bool take_content_encoding(struct http_conn *c, struct bytes value)
{
    c->req.is_encoded |= value.len > 0 && !same_word(value, "identity");
    return true;
}

/* The headers that the way of reading and answering depends on. */
static bool note_header(struct http_conn *c, struct bytes name, struct bytes value)
{
    static const struct {
        const char *name;
        bool (*take)(struct http_conn *c, struct bytes value);
    } known[] = {
        [4] = {"Host", take_host},
        [6] = {"Expect", take_expect},
        [10] = {"Connection", take_connection_words},
        [14] = {"Content-Length", take_length},
        [16] = {"Content-Encoding", take_content_encoding},
        [17] = {"Transfer-Encoding", take_encoding},
    };
    if (name.len >= sizeof known / sizeof *known || !known[name.len].name ||
        strncasecmp(name.ptr, known[name.len].name, name.len) != 0)
        return true;
    return known[name.len].take(c, value);
}

static bool parse_header_line(struct http_conn *c, struct bytes line)
{
    struct http_request *req = &c->req;
    size_t colon = span(line, IN_NAME);
    if (colon == 0 || colon == line.len || line.ptr[colon] != ':')
        return refuse(c, HTTP_REFUSED_MALFORMED);
    struct bytes name = bytes_of(line.ptr, colon),
                 value = bytes_of(line.ptr + colon + 1, line.len - colon - 1);
    if (span(value, IN_VALUE) != value.len)
        return refuse(c, HTTP_REFUSED_MALFORMED);
    value = trim(value);
    req->header_bytes += name.len + value.len;
    if (req->header_bytes > HTTP_HEADERS_MAX || req->n_headers == HTTP_HEADER_COUNT_MAX)
        return refuse(c, HTTP_REFUSED_HEADERS_TOO_LARGE);
    req->headers[req->n_headers++] = (struct http_header_span){
        .name = (size_t)(name.ptr - req->text.ptr),
        .name_len = name.len,
        .value = (size_t)(value.ptr - req->text.ptr),
        .value_len = value.len,
    };
    return note_header(c, name, value);
}

static void judge_headers(struct http_conn *c)
{
    struct http_request *req = &c->req;
    if (req->refusal != HTTP_REFUSED_NOT)
        return;
    if (!req->http10 && !req->has_host) {
        refuse(c, HTTP_REFUSED_NO_HOST);
        return;
    }
    http_route_find(req);
    if (req->refusal != HTTP_REFUSED_NOT)
        return;
    if (req->is_encoded && (req->endpoint->row->flags & HTTP_ROUTE_IDENTITY_BODY))
        refuse(c, HTTP_REFUSED_CONTENT_ENCODING);
    else if (c->body_left > http_route_max_body(req))
        refuse(c, HTTP_REFUSED_BODY_TOO_LARGE);
    else if (req->expects_other)
        refuse(c, HTTP_REFUSED_EXPECTATION);
    else if (req->expects_continue && req->has_body && !req->http10)
        http_reply_continue(req);
}

/* What was refused is looked at anew. So is the end of a head that asks for a reply at once, or whose body's framing adds to
 * it. */
static void know_head(struct http_request *req)
{
    const struct buf *text = &req->text;
    bool known =
        req->refusal == HTTP_REFUSED_NOT && text->len <= http_known_most && req->query.n <= HTTP_KNOWN_PARAMS;
    req->known_endpoint = known ? req->endpoint : NULL;
    req->known_head = known && !req->is_chunked && !req->expects_continue ? text->len : 0;
    req->known_lines = text->len - (text->ptr[text->len - 2] == '\r' ? 2 : 1);
    req->known_length = req->conn->body_left;
}

/* A refused request without a body is complete here and leaves the connection usable; a refused body is not read, so
 * nothing behind it is either. */
static void end_head(struct http_conn *c)
{
    struct http_request *req = &c->req;
    if (req->is_chunked && req->has_content_length)
        refuse(c, HTTP_REFUSED_ENCODING);
    req->has_body = req->is_chunked || c->body_left > 0;
    req->keep_alive &= !req->asks_close && !c->over_limit;
    c->chunk = HTTP_CHUNK_SIZE;
    judge_headers(c);
    if (req->known_head == 0)
        know_head(req);
    if (req->refusal == HTTP_REFUSED_NOT && !req->endpoint->row->on_body)
        http_conn_expect_body(c, c->body_left);
    req->live = true;
    http_conn_enter(c, HTTP_CONN_BODY);
    c->message_complete = !req->has_body;
}

/* A whole line is at the end of req.text. False when no more of the head is to be read. */
static bool take_line(struct http_conn *c)
{
    struct http_request *req = &c->req;
    struct bytes line = bytes_of(req->text.ptr + c->line_at, req->text.len - c->line_at - 1);
    bool first = c->line_at == 0;
    c->line_at = req->text.len;
    if (line.len > 0 && line.ptr[line.len - 1] == '\r')
        line.len--;
    if (line.len == 0) {
        end_head(c);
        return false;
    }
    return first ? parse_request_line(c, line) : parse_header_line(c, line);
}

static bool head_is_too_long(struct http_conn *c)
{
    const struct http_request *req = &c->req;
    if (c->line_at == 0 && req->text.len > HTTP_TARGET_MAX + LINE_SLACK)
        return !refuse(c, HTTP_REFUSED_TARGET_TOO_LONG);
    size_t most = HTTP_TARGET_MAX + HTTP_HEADERS_MAX + HTTP_HEADER_COUNT_MAX * 4 + LINE_SLACK;
    if (req->text.len > most || req->text.len - c->line_at > HTTP_HEADERS_MAX + LINE_SLACK)
        return !refuse(c, HTTP_REFUSED_HEADERS_TOO_LARGE);
    return false;
}

/* The beginning of a line that can only be refused, however it ends. */
static void judge_part(struct http_conn *c, size_t from)
{
    const struct buf *text = &c->req.text;
    size_t at = from > c->line_at ? from - 1 : from; /* the byte before may be a CR */
    bool folded = c->line_at > 0 && c->line_at < text->len && is_space(text->ptr[c->line_at]);
    at += span(bytes_of(text->ptr + at, text->len - at), IN_VALUE);
    bool ends_with_cr = at + 1 == text->len && text->ptr[at] == '\r';
    if (folded || (at < text->len && !ends_with_cr))
        refuse(c, HTTP_REFUSED_MALFORMED);
    else
        head_is_too_long(c);
}

static size_t same_bytes(const char *a, const char *b, size_t n)
{
    size_t i = 0;
    while (i + 8 <= n && memcmp(a + i, b + i, 8) == 0)
        i += 8;
    while (i < n && a[i] == b[i])
        i++;
    return i;
}

/* The lines that end before `end` are as they were; what those behind them said is forgotten. */
static void keep_lines(struct http_conn *c, size_t end)
{
    struct http_request *req = &c->req;
    size_t n = 0;
    req->text.len = c->line_at = end;
    req->known_head = req->header_bytes = 0;
    req->endpoint = NULL;
    req->keep_alive = !req->http10;
    req->has_host = req->has_content_length = req->is_chunked = req->asks_close = false;
    req->expects_continue = req->expects_other = req->is_encoded = false;
    for (; n < req->n_headers && req->headers[n].name < end; n++) {
        const struct http_header_span *h = &req->headers[n];
        req->header_bytes += h->name_len + h->value_len;
        note_header(c, bytes_of(req->text.ptr + h->name, h->name_len),
            bytes_of(req->text.ptr + h->value, h->value_len));
    }
    req->n_headers = n;
}

/* A head begins: how much of it is as the last one's was, and read with that. */
static size_t begin_head(struct http_conn *c, const char *p, size_t n)
{
    struct http_request *req = &c->req;
    const char *last = req->text.ptr;
    http_conn_enter(c, HTTP_CONN_HEADER);
    c->line_at = 0;
    c->body_left = 0;
    if (req->known_head > 0 && n >= req->known_head && memcmp(p, last, req->known_head) == 0) {
        http_request_begin_again(req);
        c->body_left = req->known_length;
        end_head(c);
        return req->known_head;
    }
    size_t same = req->known_endpoint ? same_bytes(p, last, n < req->known_lines ? n : req->known_lines) : 0;
    while (same > 0 && last[same - 1] != '\n')
        same--;
    if (same == 0) {
        http_request_begin(req);
    } else {
        http_request_begin_again(req);
        keep_lines(c, same);
    }
    return same;
}

/* A head is mostly whole and short, so some of what is there is copied at once, though a body may follow; what is behind the
 * head is cut off again. */
static size_t feed_head(struct http_conn *c, const char *p, size_t n)
{
    struct buf *text = &c->req.text;
    size_t had = text->len, at = had, end = had + (n < HEAD_AT_ONCE ? n : HEAD_AT_ONCE);
    bool more = true;
    buf_append(text, p, end - had);
    while (more && at < end) {
        const char *newline = memchr(text->ptr + at, '\n', end - at);
        size_t from = at;
        at = newline ? (size_t)(newline - text->ptr) + 1 : end;
        text->len = at;
        if (!newline)
            judge_part(c, from);
        more = newline && !head_is_too_long(c) && take_line(c);
    }
    return at - had;
}

/* False when no more of the body is wanted. */
static bool deliver(struct http_conn *c, const char *p, size_t n)
{
    struct http_request *req = &c->req;
    const struct http_route *row = req->endpoint->row;
    http_conn_enter(c, HTTP_CONN_BODY);
    req->body_bytes += n;
    if (req->body_bytes > http_route_max_body(req))
        return refuse(c, HTTP_REFUSED_BODY_TOO_LARGE);
    if (row->on_body)
        return row->on_body(req, bytes_of(p, n), req->endpoint->ctx) && req->reply == HTTP_REPLY_NONE;
    buf_append(&req->body, p, n);
    if (req->body.len <= HTTP_KEPT_BUFFER_MAX) /* its memory is kept anyway */
        return true;
    http_memory_update(c);
    return http_memory_available(c->server) || refuse(c, HTTP_REFUSED_OVERLOADED);
}

static size_t feed_counted(struct http_conn *c, const char *p, size_t n)
{
    size_t len = n < c->body_left ? n : (size_t)c->body_left;
    c->body_left -= len;
    if (deliver(c, p, len))
        c->message_complete = c->body_left == 0;
    return len;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static enum http_chunk after_size(struct http_conn *c, char byte)
{
    int digit = hex_digit(byte);
    if (digit >= 0 && c->body_left < CHUNK_MAX) {
        c->body_left = c->body_left * 16 + (unsigned)digit;
        return HTTP_CHUNK_MORE_SIZE;
    }
    if (c->chunk == HTTP_CHUNK_SIZE)
        return HTTP_CHUNK_BAD;
    if (byte == ';' || is_space(byte))
        return HTTP_CHUNK_EXTENSION;
    return byte == '\r' ? HTTP_CHUNK_SIZE_LF : HTTP_CHUNK_BAD;
}

/* Inside a text that means nothing here: an extension, a trailer. All of them together are bounded as headers are. */
static enum http_chunk after_text(
    struct http_conn *c, char byte, enum http_chunk stay, enum http_chunk at_end)
{
    if (byte == '\r')
        return at_end;
    bool good = (kinds[(unsigned char)byte] & IN_VALUE) && ++c->req.header_bytes <= HTTP_HEADERS_MAX;
    return good ? stay : HTTP_CHUNK_BAD;
}

/* The state after a byte that is no data. */
static enum http_chunk after_byte(struct http_conn *c, char byte)
{
    switch (c->chunk) {
    case HTTP_CHUNK_SIZE:
    case HTTP_CHUNK_MORE_SIZE:
        return after_size(c, byte);
    case HTTP_CHUNK_EXTENSION:
        return after_text(c, byte, HTTP_CHUNK_EXTENSION, HTTP_CHUNK_SIZE_LF);
    case HTTP_CHUNK_SIZE_LF:
        return byte != '\n' ? HTTP_CHUNK_BAD : c->body_left > 0 ? HTTP_CHUNK_DATA : HTTP_CHUNK_TRAILERS;
    case HTTP_CHUNK_DATA_CR:
        return byte == '\r' ? HTTP_CHUNK_DATA_LF : HTTP_CHUNK_BAD;
    case HTTP_CHUNK_DATA_LF:
        return byte == '\n' ? HTTP_CHUNK_SIZE : HTTP_CHUNK_BAD;
    case HTTP_CHUNK_TRAILERS:
        return is_space(byte) ? HTTP_CHUNK_BAD : after_text(c, byte, HTTP_CHUNK_TRAILER, HTTP_CHUNK_LAST_LF);
    case HTTP_CHUNK_TRAILER:
        return after_text(c, byte, HTTP_CHUNK_TRAILER, HTTP_CHUNK_TRAILER_LF);
    case HTTP_CHUNK_TRAILER_LF:
        return byte == '\n' ? HTTP_CHUNK_TRAILERS : HTTP_CHUNK_BAD;
    case HTTP_CHUNK_LAST_LF:
        return byte == '\n' ? HTTP_CHUNK_END : HTTP_CHUNK_BAD;
    case HTTP_CHUNK_DATA:
    case HTTP_CHUNK_END:
    case HTTP_CHUNK_BAD:
        break;
    }
    return HTTP_CHUNK_BAD;
}

/* What a chunk's size says is refused as a Content-Length is, before its bytes come. */
static bool chunk_fits(struct http_conn *c)
{
    size_t most = http_route_max_body(&c->req);
    bool fits = c->req.body_bytes <= most && c->body_left <= most - c->req.body_bytes;
    return fits || refuse(c, HTTP_REFUSED_BODY_TOO_LARGE);
}

static size_t feed_chunks(struct http_conn *c, const char *p, size_t n)
{
    size_t used = 0;
    while (used < n) {
        if (c->chunk != HTTP_CHUNK_DATA) {
            c->chunk = after_byte(c, p[used++]);
            if (c->chunk == HTTP_CHUNK_BAD)
                refuse(c, HTTP_REFUSED_MALFORMED);
            c->message_complete = c->chunk == HTTP_CHUNK_END;
            if (c->message_complete || c->chunk == HTTP_CHUNK_BAD ||
                (c->chunk == HTTP_CHUNK_DATA && !chunk_fits(c)))
                return used;
            continue;
        }
        size_t len = n - used < c->body_left ? n - used : (size_t)c->body_left;
        c->body_left -= len;
        if (c->body_left == 0)
            c->chunk = HTTP_CHUNK_DATA_CR;
        used += len;
        if (!deliver(c, p + used - len, len))
            return used;
    }
    return used;
}

/* Empty lines before a request are allowed for old clients' sake and are no part of its head. */
static size_t skip_blank_lines(const char *p, size_t n)
{
    size_t i = 0;
    while (i < n && (p[i] == '\r' || p[i] == '\n'))
        i++;
    return i;
}

size_t http_parse_feed(struct http_conn *c, const char *p, size_t n)
{
    if (c->state == HTTP_CONN_IDLE) {
        size_t blank = skip_blank_lines(p, n);
        if (blank > 0)
            return blank;
        size_t known = begin_head(c, p, n);
        if (known > 0)
            return known;
    }
    if (c->state == HTTP_CONN_HEADER)
        return feed_head(c, p, n);
    return c->req.is_chunked ? feed_chunks(c, p, n) : feed_counted(c, p, n);
}
