#include "http/server/http_parse.h"

#define HEAD_AT_ONCE 512 /* most heads are shorter */
#define LINE_SLACK 64    /* bytes of a request line in addition to its target */
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

/* IN_NAME is the token of RFC 9110. IN_TARGET includes non-ASCII bytes, because browsers send such bytes. */
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

/* Returns the number of leading bytes of `text` that are of this kind. */
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

static bool same_word(struct bytes text, const char *word)
{
    return bytes_equal_nocase(text, bytes_str(word));
}

/* Parses a request line of HTTP/1.0 or any later HTTP/1.x. */
static bool parse_request_line(struct http_head *h, struct bytes line)
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
    size_t method = span(line, IN_NAME);
    size_t target = method + 1;
    if (method == 0 || method == line.len || line.ptr[method] != ' ')
        return refuse(h, HTTP_REFUSED_MALFORMED);
    size_t len = span(bytes_of(line.ptr + target, line.len - target), IN_TARGET);
    if (len > HTTP_TARGET_MAX)
        return refuse(h, HTTP_REFUSED_TARGET_TOO_LONG);
    size_t version = target + len + 1;
    if (len == 0 || version > line.len || line.ptr[version - 1] != ' ' || line.len - version != 8 ||
        memcmp(line.ptr + version, "HTTP/1.", 7) != 0 || line.ptr[version + 7] < '0' ||
        line.ptr[version + 7] > '9')
        return refuse(h, HTTP_REFUSED_MALFORMED);
    h->http10 = line.ptr[version + 7] == '0';
    h->keep_alive = !h->http10;
    for (size_t i = 0; i < sizeof methods / sizeof *methods && h->method == 0; i++)
        if (bytes_equal_str(bytes_of(line.ptr, method), methods[i].name))
            h->method = methods[i].method;
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

/* Refuses every Transfer-Encoding that a proxy might read in another way: a second encoding, an encoding other than
 * chunked, and chunks in HTTP/1.0. */
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
        struct bytes word = bytes_trim(bytes_of(value.ptr, n));
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
    if (value.len == 0 || same_word(value, "identity"))
        return true;
    if (h->coding != HTTP_CODING_IDENTITY)
        h->coding = HTTP_CODING_OTHER;
    else if (same_word(value, "gzip") || same_word(value, "x-gzip"))
        h->coding = HTTP_CODING_GZIP;
    else
        h->coding = same_word(value, "zstd") ? HTTP_CODING_ZSTD : HTTP_CODING_OTHER;
    return true;
}

static bool parse_header_line(struct http_head *h, struct bytes line)
{
    /* The headers that determine how the server reads and answers a request. Each name has a different length. */
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
    size_t n = span(line, IN_NAME);
    if (n == 0 || n == line.len || line.ptr[n] != ':')
        return refuse(h, HTTP_REFUSED_MALFORMED);
    struct bytes value = bytes_of(line.ptr + n + 1, line.len - n - 1);
    if (span(value, IN_VALUE) != value.len)
        return refuse(h, HTTP_REFUSED_MALFORMED);
    value = bytes_trim(value);
    h->header_bytes += n + value.len;
    if (h->header_bytes > HTTP_HEADERS_MAX || h->n_headers == HTTP_HEADER_COUNT_MAX)
        return refuse(h, HTTP_REFUSED_HEADERS_TOO_LARGE);
    h->headers[h->n_headers++] = (struct http_header_span){
        .name = (size_t)(line.ptr - h->text.ptr),
        .name_len = n,
        .value = (size_t)(value.ptr - h->text.ptr),
        .value_len = value.len,
    };
    if (n >= sizeof known / sizeof *known || !known[n].name ||
        !same_word(bytes_of(line.ptr, n), known[n].name))
        return true;
    return known[n].take(h, value);
}

/* Parses the complete line at the end of h->text. Returns false at the end of the head or after an error. */
static bool take_line(struct http_head *h)
{
    struct bytes line = bytes_of(h->text.ptr + h->line_at, h->text.len - h->line_at - 1);
    bool first = h->line_at == 0;
    h->line_at = h->text.len;
    if (line.len > 0 && line.ptr[line.len - 1] == '\r')
        line.len--;
    if (line.len > 0)
        return first ? parse_request_line(h, line) : parse_header_line(h, line);
    h->keep_alive &= !h->asks_close;
    if (h->is_chunked && h->has_content_length)
        return refuse(h, HTTP_REFUSED_ENCODING);
    if (!h->http10 && !h->has_host)
        return refuse(h, HTTP_REFUSED_NO_HOST);
    h->complete = true;
    return false;
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

void http_head_clear(struct http_head *h)
{
    buf_clear(&h->text);
    memset(&h->line_at, 0, offsetof(struct http_head, headers) - offsetof(struct http_head, line_at));
}

/* Appends up to HEAD_AT_ONCE bytes to `text` at once, although some bytes may belong to the body. At the end, `text` is
 * cut to the bytes of the head. */
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
        if (newline) {
            more = fits(h) && take_line(h);
            continue;
        }
        /* Refuses an incomplete line that cannot become valid. */
        size_t bad = from > h->line_at ? from - 1 : from; /* the byte before `from` may be a CR */
        bool folded = h->line_at > 0 && h->line_at < at && is_space(text->ptr[h->line_at]);
        bad += span(bytes_of(text->ptr + bad, at - bad), IN_VALUE);
        bool ends_with_cr = bad + 1 == at && text->ptr[bad] == '\r';
        if (folded || (bad < at && !ends_with_cr))
            refuse(h, HTTP_REFUSED_MALFORMED);
        else
            fits(h);
        more = false;
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

/* Skips a byte of a chunk extension or a trailer. Skipped bytes count towards HTTP_HEADERS_MAX. */
static enum http_body_state after_text(
    struct http_body_decoder *d, char byte, enum http_body_state stay, enum http_body_state at_end)
{
    if (byte == '\r')
        return at_end;
    bool good = (kinds[(unsigned char)byte] & IN_VALUE) && ++d->header_bytes <= HTTP_HEADERS_MAX;
    return good ? stay : HTTP_BODY_BAD;
}

/* Returns the state after a byte that is not data. */
static enum http_body_state after_byte(struct http_body_decoder *d, char byte)
{
    int digit = bytes_hex_digit(byte);
    switch (d->state) {
    case HTTP_BODY_SIZE:
    case HTTP_BODY_MORE_SIZE:
        if (digit >= 0 && d->left < CHUNK_MAX) {
            d->left = d->left * 16 + (unsigned)digit;
            return HTTP_BODY_MORE_SIZE;
        }
        if (d->state == HTTP_BODY_SIZE)
            return HTTP_BODY_BAD;
        if (byte == ';' || is_space(byte))
            return HTTP_BODY_EXTENSION;
        return byte == '\r' ? HTTP_BODY_SIZE_LF : HTTP_BODY_BAD;
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
