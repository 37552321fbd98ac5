#include "counts/key_function.h"

#include "base/url.h"
#include "counts/bucket.h"

#include <assert.h>

static void lower_ascii(struct buf *b)
{
    for (size_t i = 0; i < b->len; i++)
        if (b->ptr[i] >= 'A' && b->ptr[i] <= 'Z')
            b->ptr[i] = (char)(b->ptr[i] | 0x20);
}

/* Returns the start of the authority in scheme://authority..., or NULL. */
static const char *authority_of(struct bytes text)
{
    for (size_t i = 0; i < text.len; i++) {
        char c = text.ptr[i], lower = (char)(c | 0x20);
        bool letter = lower >= 'a' && lower <= 'z';
        if (letter || (i > 0 && ((c >= '0' && c <= '9') || c == '+' || c == '.' || c == '-')))
            continue;
        bool found =
            i > 0 && c == ':' && text.len - i >= 3 && text.ptr[i + 1] == '/' && text.ptr[i + 2] == '/';
        return found ? text.ptr + i + 3 : NULL;
    }
    return NULL;
}

static struct bytes host(struct bytes text, const char *argument, struct buf *space)
{
    (void)argument;
    const char *start = authority_of(text), *end = text.ptr + text.len;
    if (!start)
        return text;
    buf_clear(space);
    const char *stop = start;
    while (stop < end && *stop != '/' && *stop != '?' && *stop != '#')
        stop++;
    const char *at = stop > start ? memrchr(start, '@', (size_t)(stop - start)) : NULL;
    if (at)
        start = at + 1;
    /* Remove the port from host:port or [address]:port. */
    struct bytes name = bytes_of(start, (size_t)(stop - start));
    bool bracket = name.len && name.ptr[0] == '[';
    const char *last = name.len ? memchr(name.ptr, bracket ? ']' : ':', name.len) : NULL;
    if (last)
        name.len = (size_t)(last - name.ptr) + bracket;
    /* Complete an unclosed bracket: "[::1" and "[::1]" are one host. */
    bool open = bracket && name.ptr[name.len - 1] != ']';
    buf_append_bytes(space, name);
    if (open)
        buf_append_char(space, ']');
    lower_ascii(space);
    return buf_bytes(space);
}

/* Returns the text before the first byte that is in `stops`. */
static struct bytes before_any(struct bytes text, const char *stops)
{
    size_t n = 0;
    while (n < text.len && (text.ptr[n] == '\0' || !strchr(stops, text.ptr[n])))
        n++;
    return bytes_of(text.ptr, n);
}

static struct bytes path(struct bytes text, const char *argument, struct buf *space)
{
    (void)argument, (void)space;
    const char *start = authority_of(text), *end = text.ptr + text.len;
    if (!start)
        return before_any(text, "?#");
    struct bytes authority = before_any(bytes_of(start, (size_t)(end - start)), "/?#");
    const char *at = authority.ptr + authority.len;
    struct bytes found = before_any(bytes_of(at, (size_t)(end - at)), "?#");
    return found.len > 0 ? found : BYTES_LITERAL("/");
}

/* Decodes %-escapes and decodes + to a space. Returns the text unchanged if an escape is invalid or the result is not
 * UTF-8. */
static struct bytes decode(struct bytes text, struct buf *space)
{
    bool is_plain = before_any(text, "%+").len == text.len;
    buf_clear(space);
    for (size_t i = 0; !is_plain && i < text.len; i++)
        buf_append_char(space, text.ptr[i] == '+' ? ' ' : text.ptr[i]);
    struct buf decoded = {0};
    bool ok = !is_plain && url_decode(buf_bytes(space), &decoded) == 0 && bytes_is_utf8(buf_bytes(&decoded));
    buf_clear(space);
    buf_append_bytes(space, buf_bytes(&decoded));
    buf_free(&decoded);
    return ok ? buf_bytes(space) : text;
}

static struct bytes query(struct bytes text, const char *name, struct buf *space)
{
    struct bytes rest = before_any(text, "#");
    size_t before = before_any(rest, "?").len;
    while (before < rest.len) {
        rest = bytes_of(rest.ptr + before + 1, rest.len - before - 1);
        struct bytes pair = before_any(rest, "&"), key = before_any(pair, "=");
        before = pair.len;
        size_t skip = key.len + (key.len < pair.len);
        if (bytes_equal_str(decode(key, space), name))
            return decode(bytes_of(pair.ptr + skip, pair.len - skip), space);
    }
    return BYTES_NONE;
}

static struct bytes lower(struct bytes text, const char *argument, struct buf *space)
{
    (void)argument;
    key_function_lower(text, space);
    return buf_bytes(space);
}

void key_function_lower(struct bytes text, struct buf *space)
{
    buf_clear(space);
    buf_append_bytes(space, text);
    lower_ascii(space);
}

bool key_function_contains(struct bytes text, struct bytes part, struct buf *space)
{
    if (part.len == 0 || text.len < part.len)
        return part.len == 0;
    buf_clear(space);
    buf_append_bytes(space, part);
    buf_append_bytes(space, text);
    lower_ascii(space);
    return memmem(space->ptr + part.len, text.len, space->ptr, part.len) != NULL;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static struct bytes status_class(struct bytes text, const char *argument, struct buf *space)
{
    (void)argument;
    bool is_status = text.len == 3 && text.ptr[0] >= '1' && text.ptr[0] <= '5' && is_digit(text.ptr[1]) &&
                     is_digit(text.ptr[2]);
    if (!is_status)
        return text;
    buf_clear(space);
    buf_append_char(space, *text.ptr);
    buf_append_str(space, "xx");
    return buf_bytes(space);
}

static struct bytes bucket(struct bytes text, const char *argument, struct buf *space)
{
    char name[BUCKET_TEXT_MAX];
    const struct json_value value = {.type = JSON_STRING, .v.string = text};
    int found;
    (void)argument;
    if (bucket_read(&value, &found) != NULL)
        return text;
    buf_clear(space);
    buf_append(space, name, bucket_print(found, name));
    return buf_bytes(space);
}

struct key_function {
    const char *name;
    bool has_argument;
    struct bytes (*apply)(
        struct bytes text, const char *argument, struct buf *space); /* of a text that is not empty */
};

static const struct key_function functions[] = {{"host", false, host}, {"path", false, path},
    {"query", true, query}, {"lower", false, lower}, {"status_class", false, status_class},
    {"bucket", false, bucket}};

bool key_function_is_bucket(const struct key_function *f)
{
    return f->apply == bucket;
}

static const struct key_function *find(struct bytes name)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (bytes_equal_str(name, functions[i].name))
            return &functions[i];
    return NULL;
}

const struct key_function *key_function_parse(struct bytes text, struct bytes *field, struct bytes *argument)
{
    struct bytes name = before_any(text, "(");
    const struct key_function *f = find(name);
    if (!f || text.len < name.len + 3 || text.ptr[text.len - 1] != ')')
        return NULL;
    struct bytes inner = bytes_of(text.ptr + name.len + 1, text.len - name.len - 2), rest = BYTES_NONE;
    const char *comma = f->has_argument ? memrchr(inner.ptr, ',', inner.len) : NULL;
    if (comma) {
        rest = bytes_trim(bytes_of(comma + 1, (size_t)(inner.ptr + inner.len - comma - 1)));
        inner.len = (size_t)(comma - inner.ptr);
    }
    inner = bytes_trim(inner);
    if (inner.len == 0 || (f->has_argument && rest.len == 0))
        return NULL;
    *field = inner;
    *argument = rest;
    return f;
}

struct bytes key_function_apply(
    const struct key_function *f, struct bytes text, const char *argument, struct buf *space)
{
    assert(text.len > 0);
    return f->apply(text, argument, space);
}
