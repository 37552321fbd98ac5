#include "url/url_form.h"

#include "base/url.h"
#include "url/url_host.h"

#include <assert.h>

static const char *const error_texts[] = {
    [URL_OK] = "no error",
    [URL_LENGTH] = "the URL is longer than 65536 bytes",
    [URL_SCHEME] = "the URL has neither a host nor the scheme http or https",
    [URL_HOST] = "the host of the URL is empty or invalid",
    [URL_PORT] = "the port of the URL is invalid",
};

const char *url_strerror(enum url_error error)
{
    return error_texts[error];
}

static struct bytes skip(struct bytes text, size_t n)
{
    return bytes_of(text.ptr + n, text.len - n);
}

/* Classes of bytes. */
enum {
    REMOVED = 1,
    FRAGMENT = 2,
    SLASH = 4,
    QUERY = 8,
    COLON = 16,
    BRACKET = 32,
    IN_PATH = 64,  /* escaped in a path, like controls, `%` and bytes above 0x7e */
    IN_QUERY = 128 /* likewise in a query */
};
static const uint8_t classes[256] = {['\t'] = REMOVED,
    ['\r'] = REMOVED,
    ['\n'] = REMOVED,
    ['"'] = IN_PATH | IN_QUERY,
    ['#'] = FRAGMENT | IN_PATH | IN_QUERY,
    ['\''] = IN_QUERY,
    ['/'] = SLASH,
    [':'] = COLON,
    ['<'] = IN_PATH | IN_QUERY,
    ['>'] = IN_PATH | IN_QUERY,
    ['?'] = QUERY | IN_PATH,
    ['\\'] = SLASH,
    [']'] = BRACKET,
    ['^'] = IN_PATH,
    ['`'] = IN_PATH,
    ['{'] = IN_PATH,
    ['}'] = IN_PATH};

/* Returns the length of the part before the first byte of a class, or all of the text. */
static size_t length_until(struct bytes text, unsigned class)
{
    size_t n = 0;
    while (n < text.len && !(classes[(unsigned char)text.ptr[n]] & class))
        n++;
    return n;
}

/* Returns the length of the scheme before a colon, or 0. */
static size_t scheme_length(struct bytes text)
{
    for (size_t n = 0; n < text.len; n++) {
        char c = text.ptr[n], lower = (char)(c | 0x20);
        if (c == ':')
            return n;
        if (!(lower >= 'a' && lower <= 'z') && !(c >= '0' && c <= '9') && c != '+' && c != '-' && c != '.')
            break;
    }
    return 0;
}

/* Removes the scheme and the slashes before the host. `host:80` has a port instead of a scheme. */
static enum url_error skip_scheme(struct bytes *text)
{
    size_t n = scheme_length(*text), slashes = 0;
    struct bytes scheme = bytes_of(text->ptr, n), rest = skip(*text, n + (n > 0));
    if (n > 0 && !bytes_equal_nocase(scheme, BYTES_LITERAL("http")) &&
        !bytes_equal_nocase(scheme, BYTES_LITERAL("https")))
        return rest.len > 0 && rest.ptr[0] >= '0' && rest.ptr[0] <= '9' ? URL_OK : URL_SCHEME;
    while (slashes < rest.len && (rest.ptr[slashes] == '/' || rest.ptr[slashes] == '\\'))
        slashes++;
    *text = skip(rest, slashes);
    return n == 0 && slashes == 1 ? URL_SCHEME : URL_OK;
}

/* Appends the host of `user:password@host:port`. A colon in brackets belongs to the host. */
static enum url_error append_authority(struct bytes text, struct url_form *form)
{
    uint64_t port = 0;
    const char *at = text.len ? memrchr(text.ptr, '@', text.len) : NULL;
    if (at)
        text = skip(text, (size_t)(at - text.ptr) + 1);
    size_t before = text.len > 0 && text.ptr[0] == '[' ? length_until(text, BRACKET) : 0;
    size_t end = before + length_until(skip(text, before), COLON);
    if (!url_host_append(bytes_of(text.ptr, end), &form->text, &form->is_address))
        return URL_HOST;
    form->host = form->text.len;
    bool has_port = end + 1 < text.len;
    return !has_port || (bytes_to_u64(skip(text, end + 1), &port) && port <= 65535) ? URL_OK : URL_PORT;
}

/* The form of one byte after any escape: an escape of an unreserved character is the character, and hexadecimal digits
 * are uppercase. A `%` without two digits is encoded, because decoding behind it could otherwise make an escape. */
static void append_escaped(struct bytes text, unsigned encoded, struct buf *out)
{
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        int high = c == '%' && text.len - i > 2 ? bytes_hex_digit(text.ptr[i + 1]) : -1;
        int low = high >= 0 ? bytes_hex_digit(text.ptr[i + 2]) : -1;
        if (low >= 0) {
            c = (unsigned char)(high * 16 + low);
            i += 2;
        }
        bool is_plain =
            low >= 0 ? url_is_unreserved(c) : c > ' ' && c < 0x7f && c != '%' && !(classes[c] & encoded);
        if (is_plain)
            buf_append_char(out, (char)c);
        else
            url_append_escape(c, out);
    }
}

/* If the segment from `start`, which begins with its slash, is `.` or `..`, removes it with its parent. */
static void remove_dots(struct url_form *form, size_t start, bool is_last)
{
    struct buf *out = &form->text;
    struct bytes segment = bytes_of(out->ptr + start, out->len - start);
    bool is_double = bytes_equal_str(segment, "/..");
    if (!is_double && !bytes_equal_str(segment, "/."))
        return;
    out->len = start;
    if (is_double && start > form->host) {
        const char *parent = memrchr(out->ptr + form->host, '/', start - form->host);
        out->len = (size_t)(parent - out->ptr);
    }
    if (is_last)
        buf_append_char(out, '/');
}

static void append_path(struct bytes path, struct url_form *form)
{
    path = skip(path, path.len > 0);
    for (bool is_last = false; !is_last;) {
        size_t start = form->text.len, len = length_until(path, SLASH);
        is_last = len == path.len;
        buf_append_char(&form->text, '/');
        append_escaped(bytes_of(path.ptr, len), IN_PATH, &form->text);
        remove_dots(form, start, is_last);
        path = skip(path, len + !is_last);
    }
    form->path = form->text.len - form->host;
}

static enum url_error append_url(struct bytes text, struct url_form *form)
{
    enum url_error error = skip_scheme(&text);
    if (error)
        return error;
    text.len = length_until(text, FRAGMENT);
    size_t authority = length_until(text, SLASH | QUERY);
    error = append_authority(bytes_of(text.ptr, authority), form);
    if (error)
        return error;
    text = skip(text, authority);
    size_t path = length_until(text, QUERY);
    append_path(bytes_of(text.ptr, path), form);
    if (path + 1 < text.len) {
        buf_append_char(&form->text, '?');
        append_escaped(skip(text, path + 1), IN_QUERY, &form->text);
    }
    return URL_OK;
}

/* Removes the blanks and controls at both ends. */
static struct bytes trim(struct bytes text)
{
    while (text.len > 0 && (unsigned char)text.ptr[0] <= ' ')
        text = skip(text, 1);
    while (text.len > 0 && (unsigned char)text.ptr[text.len - 1] <= ' ')
        text.len--;
    return text;
}

enum url_error url_normalize(struct bytes text, struct url_form *form)
{
    struct buf joined = {0};
    buf_clear(&form->text);
    if (text.len > URL_TEXT_MAX)
        return URL_LENGTH;
    text = trim(text);
    if (text.len == 0)
        return URL_HOST;
    for (size_t len; (len = length_until(text, REMOVED)) < text.len; text = skip(text, len + 1))
        buf_append(&joined, text.ptr, len);
    if (joined.ptr) {
        buf_append_bytes(&joined, text);
        text = buf_bytes(&joined);
    }
    enum url_error error = append_url(text, form);
    if (error)
        buf_clear(&form->text);
    buf_free(&joined);
    return error;
}

void url_form_free(struct url_form *form)
{
    buf_free(&form->text);
}

/* Stores the path, and its parents by falling length. A run of slashes ends one parent. */
static size_t path_parents(const struct url_form *form, struct bytes *parents)
{
    const char *text = form->text.ptr;
    size_t ends[URL_PARENT_PATHS], n = 0, whole = form->host + form->path;
    while (whole > form->host && text[whole - 1] == '/')
        whole--;
    for (size_t i = form->host + 1; i < whole && n < URL_PARENT_PATHS; i++)
        if (text[i] == '/' && text[i - 1] != '/')
            ends[n++] = i;
    struct bytes *next = parents;
    if (whole > form->host)
        *next++ = bytes_of(text, whole);
    while (n > 0)
        *next++ = bytes_of(text, ends[--n]);
    return (size_t)(next - parents);
}

/* Stores the host, and its parent domains by falling length, of which the last has two labels. */
static size_t host_parents(const struct url_form *form, struct bytes *parents)
{
    size_t n = 0, dots = 0, passed = 0;
    struct bytes host = bytes_of(form->text.ptr, form->host);
    for (size_t i = 0; i < host.len && !form->is_address; i++)
        dots += host.ptr[i] == '.';
    parents[n++] = host;
    for (size_t i = 0; passed + 1 < dots; i++)
        if (host.ptr[i] == '.' && dots - ++passed < URL_PARENT_HOSTS)
            parents[n++] = skip(host, i + 1);
    return n;
}

size_t url_parents(const struct url_form *form, struct bytes parents[URL_PARENTS_MAX])
{
    assert(form->host > 0 && form->text.len > form->host);
    size_t n = 0;
    if (form->text.len > form->host + form->path)
        parents[n++] = buf_bytes(&form->text);
    n += path_parents(form, parents + n);
    return n + host_parents(form, parents + n);
}
