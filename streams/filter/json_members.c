#include "streams/filter/json_members.h"

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static inline void skip_space(struct json_members *m)
{
    if (m->at<m->end && * m->at> ' ') /* the usual case */
        return;
    while (m->at < m->end && is_space(*m->at))
        m->at++;
}

struct json_members json_members_of(struct bytes object)
{
    struct json_members m = {object.ptr, object.ptr + object.len};
    skip_space(&m);
    if (m.at < m.end && *m.at == '{')
        m.at++;
    else
        m.at = m.end;
    return m;
}

/* `at` is an opening quote. Returns the position behind the closing one. */
static const char *behind_string(const char *at, const char *end)
{
    at++;
    for (;;) {
        const char *quote = at < end ? memchr(at, '"', (size_t)(end - at)) : NULL;
        if (quote == NULL)
            return end;
        const char *back = quote;
        while (back > at && back[-1] == '\\')
            back--;
        if ((quote - back) % 2 == 0)
            return quote + 1;
        at = quote + 1;
    }
}

/* Returns the end of the value that begins at `at`. */
static const char *behind_value(const char *at, const char *end)
{
    size_t depth = 0;
    if (*at == '"')
        return behind_string(at, end);
    if (*at != '{' && *at != '[') {
        while (at < end && *at != ',' && *at != '}' && !is_space(*at))
            at++;
        return at;
    }
    while (at < end) {
        char c = *at;
        if (c == '"') {
            at = behind_string(at, end);
            continue;
        }
        at++;
        depth += c == '{' || c == '[';
        if ((c == '}' || c == ']') && --depth == 0)
            break;
    }
    return at;
}

bool json_members_next(struct json_members *m, struct json_member *out)
{
    skip_space(m);
    if (m->at < m->end && *m->at == ',')
        m->at++;
    skip_space(m);
    if (m->at == m->end || *m->at != '"')
        return false;
    const char *begin = m->at;
    /* On short names without escapes a plain loop beats memchr. */
    const char *quote = begin + 1;
    while (quote < m->end && *quote != '"' && *quote != '\\')
        quote++;
    m->at = quote < m->end && *quote == '"' ? quote + 1 : behind_string(begin, m->end);
    out->name = bytes_of(begin + 1, (size_t)(m->at - begin) - (m->at - begin >= 2 ? 2 : 1));
    skip_space(m);
    if (m->at < m->end && *m->at == ':')
        m->at++;
    skip_space(m);
    if (m->at == m->end)
        return false;
    const char *value = m->at;
    m->at = behind_value(m->at, m->end);
    out->value = bytes_of(value, (size_t)(m->at - value));
    out->whole = bytes_of(begin, (size_t)(m->at - begin));
    return true;
}

static unsigned hex4(const char *at)
{
    unsigned n = 0;
    for (int i = 0; i < 4; i++) {
        char c = at[i];
        n = n << 4 | (unsigned)(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
    }
    return n;
}

/* Appends the character of a \u escape, or of a surrogate pair. `at` is behind "\u". Returns the end of the escape. */
static const char *append_unicode(struct buf *out, const char *at, const char *end)
{
    static const unsigned char heads[] = {0, 0, 0xc0, 0xe0, 0xf0};
    char text[4];
    if (end - at < 4)
        return end;
    unsigned c = hex4(at);
    at += 4;
    if (c >= 0xd800 && c < 0xdc00 && end - at >= 6 && at[0] == '\\' && at[1] == 'u') {
        c = 0x10000 + ((c - 0xd800) << 10) + ((hex4(at + 2) - 0xdc00) & 0x3ff);
        at += 6;
    }
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n; i-- > 1; c >>= 6)
        text[i] = (char)(0x80 | (c & 0x3f));
    text[0] = (char)(heads[n] | c);
    buf_append(out, text, n);
    return at;
}

void json_unescape(struct bytes text, struct buf *out)
{
    static const char letters[] = "bfnrt", means[] = "\b\f\n\r\t";
    const char *at = text.ptr, *end = text.ptr + text.len;
    while (at < end) {
        const char *back = memchr(at, '\\', (size_t)(end - at));
        if (back == NULL || back + 1 == end) {
            buf_append(out, at, (size_t)(end - at));
            return;
        }
        buf_append(out, at, (size_t)(back - at));
        const char *letter = memchr(letters, back[1], sizeof letters - 1);
        at = back + 2;
        if (back[1] == 'u')
            at = append_unicode(out, at, end);
        else
            buf_append_char(out, letter != NULL ? means[letter - letters] : back[1]);
    }
}
