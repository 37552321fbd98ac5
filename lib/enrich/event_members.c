#include "enrich/event_members.h"

#include <assert.h>

static const char *skip_space(const char *at)
{
    while (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r')
        at++;
    return at;
}

/* Returns the end of the string that begins at `at`. */
static const char *end_of_string(const char *at, const char *end)
{
    assert(*at == '"');
    for (at++; at < end && *at != '"'; at++)
        at += *at == '\\';
    return at + 1;
}

/* Returns the comma or the brace after a value. */
static const char *end_of_value(const char *at, const char *end)
{
    size_t depth = 0;
    while (at < end) {
        if (depth == 0 && (*at == ',' || *at == '}'))
            break;
        depth += *at == '{' || *at == '[';
        depth -= *at == '}' || *at == ']';
        at = *at == '"' ? end_of_string(at, end) : at + 1;
    }
    return at;
}

/* Compares a string, with its quotes, with a name. Of the escapes, only \u00XX can stand for a character of a name. */
static bool is_name(const char *at, const char *name)
{
    for (at++; *at != '"'; name++) {
        int high, low;
        char c = *at;
        bool is_escape = c == '\\';
        if (is_escape && (at[1] != 'u' || at[2] != '0' || at[3] != '0'))
            return false;
        if (is_escape) {
            high = bytes_hex_digit(at[4]);
            low = bytes_hex_digit(at[5]);
            c = (char)(high * 16 + low);
        }
        if (c != *name || c == '\0')
            return false;
        at += is_escape ? 6 : 1;
    }
    return *name == '\0';
}

static bool is_one_of(const char *at, const char *const *names, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (is_name(at, names[i]))
            return true;
    return false;
}

bool event_members_copy(struct bytes event, const char *const *names, size_t n, struct buf *out)
{
    const char *end = event.ptr + event.len, *at = skip_space(event.ptr);
    bool has_member = false;
    assert(*at == '{');
    buf_append_char(out, '{');
    at = skip_space(at + 1);
    while (at < end && *at != '}') {
        const char *name = at, *stop = end_of_value(end_of_string(at, end), end);
        if (!is_one_of(name, names, n)) {
            if (has_member)
                buf_append_char(out, ',');
            buf_append_bytes(out, bytes_trim(bytes_of(name, (size_t)(stop - name))));
            has_member = true;
        }
        at = stop < end && *stop == ',' ? skip_space(stop + 1) : stop;
    }
    return has_member;
}
