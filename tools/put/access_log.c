#include "tools/put/access_log.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#define DATE_LEN 26 /* "24/Mar/2012:09:00:00 +0900" */

/* The rest of a line. */
struct reader {
    const char *at, *end;
};

static bool skip(struct reader *r, char c)
{
    bool ok = r->at < r->end && *r->at == c;
    r->at += ok;
    return ok;
}

/* Reads up to a space. The word may not be empty. */
static bool read_word(struct reader *r, struct bytes *word)
{
    const char *from = r->at;
    while (r->at < r->end && *r->at != ' ')
        r->at++;
    *word = bytes_of(from, (size_t)(r->at - from));
    return word->len > 0;
}

/* Reads the character after a backslash into *out. */
static void read_escape(struct reader *r, struct buf *out)
{
    bool is_hex = r->end - r->at >= 3 && r->at[0] == 'x';
    int high = is_hex ? bytes_hex_digit(r->at[1]) : -1, low = is_hex ? bytes_hex_digit(r->at[2]) : -1;
    if (high >= 0 && low >= 0) {
        buf_append_char(out, (char)(high * 16 + low));
        r->at += 3;
        return;
    }
    if (*r->at != '"' && *r->at != '\\')
        buf_append_char(out, '\\');
    buf_append_char(out, *r->at++);
}

/* Reads a text in quotes into *out, without its escapes. */
static bool read_quoted(struct reader *r, struct buf *out)
{
    buf_clear(out);
    if (!skip(r, '"'))
        return false;
    while (r->at < r->end && *r->at != '"') {
        if (*r->at != '\\' || r->at + 1 == r->end)
            buf_append_char(out, *r->at++);
        else {
            r->at++;
            read_escape(r, out);
        }
    }
    return skip(r, '"');
}

/* Reads "[24/Mar/2012:09:00:00 +0900]". */
static bool read_time(struct reader *r, int64_t *time)
{
    char text[DATE_LEN + 1];
    struct tm t = {0};
    if (!skip(r, '[') || r->end - r->at < DATE_LEN + 1 || r->at[DATE_LEN] != ']')
        return false;
    snprintf(text, sizeof text, "%.*s", DATE_LEN, r->at);
    r->at += DATE_LEN + 1;
    const char *end = strptime(text, "%d/%b/%Y:%H:%M:%S %z", &t);
    struct tm normal = t;
    *time = timegm(&normal) - t.tm_gmtoff;
    return end == text + DATE_LEN && normal.tm_mday == t.tm_mday; /* there is no 31 February */
}

static void append_text(struct buf *event, const char *name, struct bytes value)
{
    if (value.len == 0 || bytes_equal_str(value, "-"))
        return;
    buf_printf(event, ",\"%s\":", name);
    buf_append_json(event, value);
}

static void append_request(struct buf *event, struct bytes request)
{
    struct reader r = {request.ptr, request.ptr + request.len};
    struct bytes method, target, protocol;
    bool ok = request.len > 0 && read_word(&r, &method) && skip(&r, ' ') && read_word(&r, &target) &&
              skip(&r, ' ') && read_word(&r, &protocol) && r.at == r.end &&
              bytes_starts_with(protocol, BYTES_LITERAL("HTTP/"));
    if (!ok) {
        append_text(event, "request", request);
        return;
    }
    const char *mark = memchr(target.ptr, '?', target.len);
    size_t path = mark ? (size_t)(mark - target.ptr) : target.len;
    append_text(event, "method", method);
    append_text(event, "path", bytes_of(target.ptr, path));
    if (mark)
        append_text(event, "query", bytes_of(mark + 1, target.len - path - 1));
    append_text(event, "protocol", protocol);
}

/* Appends the referrer and the agent if the line has both. */
static void append_combined(struct buf *event, struct reader *r, struct buf *text)
{
    struct buf agent = {0};
    if (skip(r, ' ') && read_quoted(r, text) && skip(r, ' ') && read_quoted(r, &agent)) {
        append_text(event, "referrer", buf_bytes(text));
        append_text(event, "agent", buf_bytes(&agent));
    }
    buf_free(&agent);
}

static const char *read_line(struct reader *r, struct buf *event, struct buf *text)
{
    struct bytes host, ident, user, status, size;
    uint64_t code, bytes = 0;
    int64_t time;
    if (!read_word(r, &host) || !skip(r, ' ') || !read_word(r, &ident) || !skip(r, ' ') ||
        !read_word(r, &user))
        return "expected a host, an identity and a user";
    if (!skip(r, ' ') || !read_time(r, &time))
        return "expected a time such as [24/Mar/2012:09:00:00 +0900] after the user";
    if (!skip(r, ' ') || !read_quoted(r, text))
        return "expected a request in quotes after the time";
    if (!skip(r, ' ') || !read_word(r, &status) || !bytes_to_u64(status, &code) || !skip(r, ' ') ||
        !read_word(r, &size) || !(bytes_equal_str(size, "-") || bytes_to_u64(size, &bytes)))
        return "expected a status and a number of bytes after the request";
    buf_printf(event, "{\"time\":%" PRId64, time);
    append_text(event, "host", host);
    append_text(event, "user", user);
    append_request(event, buf_bytes(text));
    buf_printf(event, ",\"status\":%" PRIu64 ",\"bytes\":%" PRIu64, code, bytes);
    append_combined(event, r, text);
    buf_append_char(event, '}');
    return NULL;
}

const char *access_log_read(struct bytes line, struct buf *event)
{
    struct buf text = {0};
    struct reader r = {line.ptr, line.ptr + line.len};
    buf_clear(event);
    const char *wrong = read_line(&r, event, &text);
    buf_free(&text);
    return wrong;
}
