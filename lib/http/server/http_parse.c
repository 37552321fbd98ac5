#include "http/server/http_parse.h"

#include <strings.h>

#define HEAD_AT_ONCE 512 /* most heads are shorter */
#define LINE_SLACK 64    /* of a request line, beside its target */
#define CHUNK_MAX (UINT64_C(1) << 60)

static bool refuse(struct http_head *h, enum http_refusal error)
{
    h->error = error;
    return false;
}

#define IN_NAME 1
#define IN_TARGET 2
#define IN_VALUE 4
#define OF_TOKEN (IN_NAME | IN_TARGET | IN_VALUE)
#define OF_TEXT (IN_TARGET | IN_VALUE)

/* RFC 9110's token; the bytes of a target (including non-ASCII, as browsers send them); the bytes of a value. */
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

/* Length of the prefix whose bytes are all of the kind. */
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

static enum http_method method_of(struct bytes name)
{
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
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (bytes_equal_str(name, methods[i].name))
            return methods[i].method;
    return 0;
}

/* Accepts HTTP/1.0 and any HTTP/1.x above it. */
static bool parse_version(struct http_head *h, struct bytes text)
{
    if (text.len != 8 || memcmp(text.ptr, "HTTP/1.", 7) != 0 || text.ptr[7] < '0' || text.ptr[7] > '9')
        return false;
    h->http10 = text.ptr[7] == '0';
    h->keep_alive = !h->http10;
    return true;
}

static bool parse_request_line(struct http_head *h, struct bytes line)
{
    size_t method = span(line, IN_NAME);
    size_t target = method + 1;
    if (method == 0 || method == line.len || line.ptr[method] != ' ')
        return refuse(h, HTTP_REFUSED_MALFORMED);
    size_t len = span(bytes_of(line.ptr + target, line.len - target), IN_TARGET);
    if (len > HTTP_TARGET_MAX)
        return refuse(h, HTTP_REFUSED_TARGET_TOO_LONG);
    size_t version = target + len + 1;
    if (len == 0 || version > line.len || line.ptr[version - 1] != ' ' ||
        !parse_version(h, bytes_of(line.ptr + version, line.len - version)))
        return refuse(h, HTTP_REFUSED_MALFORMED);
    h->method = method_of(bytes_of(line.ptr, method));
    h->is_head = h->method == HTTP_GET_ && line.ptr[0] == 'H';
    h->target = target;
    h->target_len = len;
    return true;
}

static bool take_length(struct http_head *h, struct bytes value)
{
    if (h->has_content_length || !bytes_to_u64(value, &h->content_length))
        return refuse(h, HTTP_REFUSED_MALFORMED);
    h->has_content_length = true;
    return true;
}

/* A proxy might frame anything else differently: a second encoding, other codings, chunks from an HTTP/1.0 client. */
static bool take_encoding(struct http_head *h, struct bytes value)
{
    if (h->is_chunked || h->http10 || !same_word(value, "chunked"))
        return refuse(h, HTTP_REFUSED_ENCODING);
    h->is_chunked = true;
    return true;
}

static bool take_connection(struct http_head *h, struct bytes value)
{
    while (value.len > 0) {
        const char *comma = memchr(value.ptr, ',', value.len);
        size_t n = comma ? (size_t)(comma - value.ptr) : value.len;
        struct bytes word = trim(bytes_of(value.ptr, n));
        if (same_word(word, "close"))
            h->asks_close = true;
        else if (same_word(word, "keep-alive"))
            h->keep_alive = true;
        n += comma != NULL;
        value = bytes_of(value.ptr + n, value.len - n);
    }
    return true;
}

static bool take_host(struct http_head *h, struct bytes value)
{
    (void)value;
    if (h->has_host)
        return refuse(h, HTTP_REFUSED_MALFORMED);
    h->has_host = true;
    return true;
}

static bool take_expect(struct http_head *h, struct bytes value)
{
    if (same_word(value, "100-continue"))
        h->expects_continue = true;
    else if (value.len > 0)
        h->expects_other = true;
    return true;
}

static bool take_content_encoding(struct http_head *h, struct bytes value)
{
    h->is_encoded |= value.len > 0 && !same_word(value, "identity");
    return true;
}

/* Handles the headers that decide how the request is read and answered. No two of them have the same length. */
static bool take_header(struct http_head *h, struct bytes name, struct bytes value)
{
    static const struct {
        const char *name;
        bool (*take)(struct http_head *h, struct bytes value);
    } known[] = {
        [4] = {"Host", take_host},
        [6] = {"Expect", take_expect},
        [10] = {"Connection", take_connection},
        [14] = {"Content-Length", take_length},
        [16] = {"Content-Encoding", take_content_encoding},
        [17] = {"Transfer-Encoding", take_encoding},
    };
    if (name.len >= sizeof known / sizeof *known || !known[name.len].name ||
        strncasecmp(name.ptr, known[name.len].name, name.len) != 0)
        return true;
    return known[name.len].take(h, value);
}

static bool parse_header_line(struct http_head *h, struct bytes line)
{
    size_t colon = span(line, IN_NAME);
    if (colon == 0 || colon == line.len || line.ptr[colon] != ':')
        return refuse(h, HTTP_REFUSED_MALFORMED);
    struct bytes name = bytes_of(line.ptr, colon),
                 value = bytes_of(line.ptr + colon + 1, line.len - colon - 1);
    if (span(value, IN_VALUE) != value.len)
        return refuse(h, HTTP_REFUSED_MALFORMED);
    value = trim(value);
    h->header_bytes += name.len + value.len;
    if (h->header_bytes > HTTP_HEADERS_MAX || h->n_headers == HTTP_HEADER_COUNT_MAX)
        return refuse(h, HTTP_REFUSED_HEADERS_TOO_LARGE);
    h->headers[h->n_headers++] = (struct http_header_span){
        .name = (size_t)(name.ptr - h->text.ptr),
        .name_len = name.len,
        .value = (size_t)(value.ptr - h->text.ptr),
        .value_len = value.len,
    };
    return take_header(h, name, value);
}

static bool end_head(struct http_head *h)
{
    h->keep_alive &= !h->asks_close;
    if (h->is_chunked && h->has_content_length)
        return refuse(h, HTTP_REFUSED_ENCODING);
    if (!h->http10 && !h->has_host)
        return refuse(h, HTTP_REFUSED_NO_HOST);
    h->complete = true;
    return false;
}

/* Parses the complete line at the end of h->text. False at the end of the head, or on an error. */
static bool take_line(struct http_head *h)
{
    struct bytes line = bytes_of(h->text.ptr + h->line_at, h->text.len - h->line_at - 1);
    bool first = h->line_at == 0;
    h->line_at = h->text.len;
    if (line.len > 0 && line.ptr[line.len - 1] == '\r')
        line.len--;
    if (line.len == 0)
        return end_head(h);
    return first ? parse_request_line(h, line) : parse_header_line(h, line);
}

static bool fits(struct http_head *h)
{
    size_t most = HTTP_TARGET_MAX + HTTP_HEADERS_MAX + HTTP_HEADER_COUNT_MAX * 4 + LINE_SLACK;
    if (h->line_at == 0 && h->text.len > HTTP_TARGET_MAX + LINE_SLACK)
        return refuse(h, HTTP_REFUSED_TARGET_TOO_LONG);
    if (h->text.len > most || h->text.len - h->line_at > HTTP_HEADERS_MAX + LINE_SLACK)
        return refuse(h, HTTP_REFUSED_HEADERS_TOO_LARGE);
    return true;
}

/* Refuses an incomplete line that cannot become valid. The bytes from `from` on are new. */
static void judge_part(struct http_head *h, size_t from)
{
    const struct buf *text = &h->text;
    size_t at = from > h->line_at ? from - 1 : from; /* the byte before may be a CR */
    bool folded = h->line_at > 0 && h->line_at < text->len && is_space(text->ptr[h->line_at]);
    at += span(bytes_of(text->ptr + at, text->len - at), IN_VALUE);
    bool ends_with_cr = at + 1 == text->len && text->ptr[at] == '\r';
    if (folded || (at < text->len && !ends_with_cr))
        refuse(h, HTTP_REFUSED_MALFORMED);
    else
        fits(h);
}

void http_head_clear(struct http_head *h)
{
    buf_clear(&h->text);
    memset(&h->line_at, 0, offsetof(struct http_head, headers) - offsetof(struct http_head, line_at));
}

/* Copies HEAD_AT_ONCE bytes in one go, though a body may be among them, and cuts `text` back to the head. */
size_t http_head_feed(struct http_head *h, const char *p, size_t n)
{
    struct buf *text = &h->text;
    size_t had = text->len, at = had, end = had + (n < HEAD_AT_ONCE ? n : HEAD_AT_ONCE);
    bool more = true;
    buf_append(text, p, end - had);
    while (more && at < end) {
        const char *newline = memchr(text->ptr + at, '\n', end - at);
        size_t from = at;
        at = newline ? (size_t)(newline - text->ptr) + 1 : end;
        text->len = at;
        if (!newline)
            judge_part(h, from);
        more = newline && fits(h) && take_line(h);
    }
    return at - had;
}

void http_body_begin(struct http_body_decoder *d, const struct http_head *h)
{
    *d = (struct http_body_decoder){
        .state = h->is_chunked ? HTTP_BODY_SIZE : HTTP_BODY_DATA,
        .is_chunked = h->is_chunked,
        .left = h->content_length,
        .header_bytes = h->header_bytes,
    };
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static enum http_body_state after_size(struct http_body_decoder *d, char byte)
{
    int digit = hex_digit(byte);
    if (digit >= 0 && d->left < CHUNK_MAX) {
        d->left = d->left * 16 + (unsigned)digit;
        return HTTP_BODY_MORE_SIZE;
    }
    if (d->state == HTTP_BODY_SIZE)
        return HTTP_BODY_BAD;
    if (byte == ';' || is_space(byte))
        return HTTP_BODY_EXTENSION;
    return byte == '\r' ? HTTP_BODY_SIZE_LF : HTTP_BODY_BAD;
}

/* A chunk extension or a trailer is skipped. All of them count to the limit on headers. */
static enum http_body_state after_text(
    struct http_body_decoder *d, char byte, enum http_body_state stay, enum http_body_state at_end)
{
    if (byte == '\r')
        return at_end;
    bool good = (kinds[(unsigned char)byte] & IN_VALUE) && ++d->header_bytes <= HTTP_HEADERS_MAX;
    return good ? stay : HTTP_BODY_BAD;
}

/* The state after a byte that is not data. */
static enum http_body_state after_byte(struct http_body_decoder *d, char byte)
{
    switch (d->state) {
    case HTTP_BODY_SIZE:
    case HTTP_BODY_MORE_SIZE:
        return after_size(d, byte);
    case HTTP_BODY_EXTENSION:
        return after_text(d, byte, HTTP_BODY_EXTENSION, HTTP_BODY_SIZE_LF);
    case HTTP_BODY_SIZE_LF:
        return byte != '\n' ? HTTP_BODY_BAD : d->left > 0 ? HTTP_BODY_DATA : HTTP_BODY_TRAILERS;
    case HTTP_BODY_DATA_CR:
        return byte == '\r' ? HTTP_BODY_DATA_LF : HTTP_BODY_BAD;
    case HTTP_BODY_DATA_LF:
        return byte == '\n' ? HTTP_BODY_SIZE : HTTP_BODY_BAD;
    case HTTP_BODY_TRAILERS:
        return is_space(byte) ? HTTP_BODY_BAD : after_text(d, byte, HTTP_BODY_TRAILER, HTTP_BODY_LAST_LF);
    case HTTP_BODY_TRAILER:
        return after_text(d, byte, HTTP_BODY_TRAILER, HTTP_BODY_TRAILER_LF);
    case HTTP_BODY_TRAILER_LF:
        return byte == '\n' ? HTTP_BODY_TRAILERS : HTTP_BODY_BAD;
    case HTTP_BODY_LAST_LF:
        return byte == '\n' ? HTTP_BODY_END : HTTP_BODY_BAD;
    case HTTP_BODY_DATA:
    case HTTP_BODY_END:
    case HTTP_BODY_BAD:
        break;
    }
    return HTTP_BODY_BAD;
}

size_t http_body_decode(struct http_body_decoder *d, const char *p, size_t n, struct bytes *piece)
{
    size_t used = 0;
    *piece = BYTES_NONE;
    if (d->state == HTTP_BODY_DATA) {
        used = n < d->left ? n : (size_t)d->left;
        *piece = bytes_of(p, used);
        d->left -= used;
        if (d->left == 0)
            d->state = d->is_chunked ? HTTP_BODY_DATA_CR : HTTP_BODY_END;
        return used;
    }
    while (used < n && d->state != HTTP_BODY_DATA && d->state < HTTP_BODY_END)
        d->state = after_byte(d, p[used++]);
    return used;
}
