#include "base/url.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/un.h>

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

/* Decodes into `to`, which has room for text.len bytes. The length, or -1. */
static ssize_t decode(struct bytes text, bool plus_is_space, char *to)
{
    size_t n = 0;
    for (size_t i = 0; i < text.len; i++) {
        char c = text.ptr[i];
        if (c == '%') {
            int high = i + 2 < text.len ? hex_digit(text.ptr[i + 1]) : -1;
            int low = i + 2 < text.len ? hex_digit(text.ptr[i + 2]) : -1;
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

static size_t count_params(struct bytes text)
{
    size_t n = 0;
    while (text.len > 0)
        n += take_until(&text, '&').len > 0;
    return n;
}

static int decode_param(struct bytes text, char **to, struct bytes *out)
{
    ssize_t len = decode(text, true, *to);
    if (len < 0)
        return -1;
    *out = bytes_of(*to, (size_t)len);
    *to += len;
    return 0;
}

/* One allocation holds the table and the decoded text behind it. */
int url_query_parse(struct bytes text, struct url_query *out)
{
    *out = (struct url_query){0};
    size_t n = count_params(text);
    if (n > URL_PARAMS_MAX)
        return -1;
    if (n == 0)
        return 0;
    out->memory = mem_alloc(n * sizeof(struct url_param) + text.len);
    out->params = (void *)out->memory;
    char *to = out->memory + n * sizeof(struct url_param);
    while (text.len > 0) {
        struct bytes value = take_until(&text, '&');
        if (value.len == 0)
            continue;
        struct bytes name = take_until(&value, '=');
        struct url_param *p = &out->params[out->n++];
        if (decode_param(name, &to, &p->name) < 0 || decode_param(value, &to, &p->value) < 0) {
            url_query_free(out);
            return -1;
        }
    }
    return 0;
}

void url_query_free(struct url_query *q)
{
    free(q->memory);
    *q = (struct url_query){0};
}

bool url_query_find(const struct url_query *q, const char *name, struct bytes *value)
{
    for (size_t i = 0; i < q->n; i++) {
        if (bytes_equal_str(q->params[i].name, name)) {
            *value = q->params[i].value;
            return true;
        }
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

static bool is_unreserved(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '~' || c == '-';
}

void url_encode(struct bytes text, struct buf *out)
{
    static const char digits[] = "0123456789ABCDEF";
    buf_reserve(out, text.len);
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        if (is_unreserved((char)c)) {
            buf_append_char(out, (char)c);
        } else {
            char escaped[3] = {'%', digits[c >> 4], digits[c & 15]};
            buf_append(out, escaped, sizeof escaped);
        }
    }
}

static int set_host(struct bytes text, struct url_address *out)
{
    if (text.len == 0 || text.len >= sizeof out->host)
        return -1;
    memcpy(out->host, text.ptr, text.len);
    out->host[text.len] = '\0';
    return 0;
}

static int parse_unix(struct bytes path, struct url_address *out)
{
    out->is_unix = true;
    if (path.len >= sizeof(((struct sockaddr_un *)NULL)->sun_path))
        return -1;
    return set_host(path, out);
}

static int parse_port(struct bytes text, int *port)
{
    uint64_t n;
    if (!bytes_to_u64(text, &n) || n > 65535)
        return -1;
    *port = (int)n;
    return 0;
}

/* Takes "[V6]" or a name off the front of `rest`, leaving "" or ":PORT". */
static int take_host(struct bytes *rest, struct bytes *host)
{
    static const char allowed[] = "%:abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    bool v6 = rest->len > 0 && rest->ptr[0] == '[';
    const char *from = v6 ? allowed : allowed + 2;
    size_t start = v6 ? 1 : 0, end = start;
    while (end < rest->len && rest->ptr[end] != '\0' && strchr(from, rest->ptr[end]))
        end++;
    *host = bytes_of(rest->ptr + start, end - start);
    if (v6 && (end == rest->len || rest->ptr[end++] != ']'))
        return -1;
    *rest = bytes_of(rest->ptr + end, rest->len - end);
    return 0;
}

int url_address_parse(const char *text, int default_port, struct url_address *out)
{
    *out = (struct url_address){.port = default_port};
    struct bytes rest = bytes_str(text), host;
    if (bytes_starts_with(rest, BYTES_LITERAL("unix:")))
        return parse_unix(bytes_of(rest.ptr + 5, rest.len - 5), out);
    if (bytes_starts_with(rest, BYTES_LITERAL("http://")))
        rest = bytes_of(rest.ptr + 7, rest.len - 7);
    if (take_host(&rest, &host) < 0 || set_host(host, out) < 0)
        return -1;
    if (rest.len == 0)
        return default_port < 0 ? -1 : 0;
    return rest.ptr[0] == ':' ? parse_port(bytes_of(rest.ptr + 1, rest.len - 1), &out->port) : -1;
}
