#include "base/url.h"

#include <stdlib.h>
#include <sys/un.h>

/* Decodes into `to`, which has room for text.len bytes. Returns the decoded length, or -1 for an invalid escape. */
static ssize_t decode(struct bytes text, bool plus_is_space, char *to)
{
    size_t n = 0;
    for (size_t i = 0; i < text.len; i++) {
        char c = text.ptr[i];
        if (c == '%') {
            int high = i + 2 < text.len ? bytes_hex_digit(text.ptr[i + 1]) : -1;
            int low = i + 2 < text.len ? bytes_hex_digit(text.ptr[i + 2]) : -1;
            if (high < 0 || low < 0)
                return -1;
            c = (char)(high * 16 + low);
            i += 2;
        } else if (c == '+' && plus_is_space) {
            c = ' ';
        }
        to[n++] = c;
    }
    return (ssize_t)n;
}

static struct bytes take_until(struct bytes *rest, char stop)
{
    const char *end = rest->len ? memchr(rest->ptr, stop, rest->len) : NULL;
    size_t len = end ? (size_t)(end - rest->ptr) : rest->len;
    struct bytes taken = bytes_of(rest->ptr, len);
    size_t skip = end ? len + 1 : len;
    *rest = bytes_of(rest->ptr + skip, rest->len - skip);
    return taken;
}

/* One allocation contains the table of parameters, followed by the decoded text. */
int url_query_parse(struct bytes text, struct url_query *out)
{
    *out = (struct url_query){0};
    size_t most = text.len > 0;
    for (size_t i = 0; i < text.len; i++)
        most += text.ptr[i] == '&';
    if (most == 0)
        return 0;
    if (most > URL_PARAMS_MAX)
        most = URL_PARAMS_MAX;
    out->memory = mem_alloc(most * sizeof(struct url_param) + text.len);
    out->params = (void *)out->memory;
    char *to = out->memory + most * sizeof(struct url_param);
    while (text.len > 0) {
        struct bytes value = take_until(&text, '&');
        if (value.len == 0)
            continue;
        struct bytes parts[2] = {take_until(&value, '='), value};
        for (int i = 0; i < 2; i++) {
            ssize_t len = out->n < URL_PARAMS_MAX ? decode(parts[i], true, to) : -1;
            if (len < 0) {
                url_query_free(out);
                return -1;
            }
            parts[i] = bytes_of(to, (size_t)len);
            to += len;
        }
        out->params[out->n++] = (struct url_param){parts[0], parts[1]};
    }
    return 0;
}

void url_query_free(struct url_query *q)
{
    free(q->memory);
    *q = (struct url_query){0};
}

bool url_query_get(const struct url_query *q, const char *name, struct bytes *value)
{
    for (size_t i = 0; i < q->n; i++)
        if (bytes_equal_str(q->params[i].name, name)) {
            *value = q->params[i].value;
            return true;
        }
    return false;
}

int url_decode(struct bytes text, struct buf *out)
{
    buf_reserve(out, text.len + 1);
    ssize_t len = decode(text, false, out->ptr + out->len);
    if (len < 0)
        return -1;
    out->len += (size_t)len;
    return 0;
}

bool url_is_unreserved(unsigned char c)
{
    unsigned char letter = c | 0x20;
    return (letter >= 'a' && letter <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '~' ||
           c == '-';
}

void url_append_escape(unsigned char c, struct buf *out)
{
    static const char digits[] = "0123456789ABCDEF";
    const char escape[3] = {'%', digits[c >> 4], digits[c & 15]};
    buf_append(out, escape, sizeof escape);
}

void url_encode(struct bytes text, struct buf *out)
{
    buf_reserve(out, text.len);
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        if (url_is_unreserved(c))
            buf_append_char(out, (char)c);
        else
            url_append_escape(c, out);
    }
}

int url_address_parse(const char *text, int default_port, struct url_address *out)
{
    static const char allowed[] = "%:abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    *out = (struct url_address){.port = default_port};
    struct bytes rest = bytes_str(text), host;
    out->is_unix = bytes_starts_with(rest, BYTES_LITERAL("unix:"));
    size_t most = out->is_unix ? sizeof(((struct sockaddr_un *)NULL)->sun_path) : sizeof out->host;
    if (out->is_unix) {
        host = bytes_of(rest.ptr + 5, rest.len - 5);
        rest.len = 0;
    } else {
        if (bytes_starts_with(rest, BYTES_LITERAL("http://")))
            rest = bytes_of(rest.ptr + 7, rest.len - 7);
        bool is_v6 = rest.len > 0 && rest.ptr[0] == '[';
        if (is_v6)
            rest = bytes_of(rest.ptr + 1, rest.len - 1);
        host = bytes_of(rest.ptr, strspn(rest.ptr, is_v6 ? allowed : allowed + 2));
        rest = bytes_of(rest.ptr + host.len, rest.len - host.len);
        if (is_v6 && (rest.len == 0 || rest.ptr[0] != ']'))
            return -1;
        rest = bytes_of(rest.ptr + is_v6, rest.len - is_v6);
    }
    if (host.len == 0 || host.len >= most)
        return -1;
    memcpy(out->host, host.ptr, host.len);
    out->host[host.len] = '\0';
    if (rest.len == 0)
        return 0;
    uint64_t port;
    if (rest.ptr[0] != ':' || !bytes_to_u64(bytes_of(rest.ptr + 1, rest.len - 1), &port) || port > 65535)
        return -1;
    out->port = (int)port;
    return 0;
}
