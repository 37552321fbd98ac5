#include "pubsub/stream/lines.h"

const char *lines_strerror(enum lines_result r)
{
    static const char *const text[] = {
        [LINES_OK] = "fine",
        [LINES_EMPTY_BODY] = "the body is empty",
        [LINES_EMPTY_LINE] = "a line is empty",
        [LINES_TOO_LARGE] = "a line is too long",
    };
    return text[r];
}

/* Cuts the next line off `rest`: its text without LF and the one CR before it. */
static struct bytes next_line(struct bytes *rest, bool *had_cr)
{
    const char *lf = memchr(rest->ptr, '\n', rest->len);
    struct bytes line = bytes_of(rest->ptr, lf ? (size_t)(lf - rest->ptr) : rest->len);
    size_t taken = line.len + (lf ? 1 : 0);
    *rest = bytes_of(rest->ptr + taken, rest->len - taken);
    *had_cr = line.len && line.ptr[line.len - 1] == '\r';
    line.len -= *had_cr;
    return line;
}

static enum lines_result check(struct bytes body, size_t max_line, struct lines *out, bool *any_cr)
{
    while (body.len) {
        bool had_cr;
        struct bytes line = next_line(&body, &had_cr);
        out->n++;
        *any_cr |= had_cr;
        if (line.len == 0)
            return LINES_EMPTY_LINE;
        if (line.len > max_line)
            return LINES_TOO_LARGE;
    }
    return LINES_OK;
}

static void rewrite(struct bytes body, struct lines *out)
{
    buf_reserve(&out->rewritten, body.len + 1);
    while (body.len) {
        bool had_cr;
        buf_append_bytes(&out->rewritten, next_line(&body, &had_cr));
        buf_append_char(&out->rewritten, '\n');
    }
    out->pieces[0] = buf_bytes(&out->rewritten);
    out->n_pieces = 1;
}

enum lines_result lines_from_body(struct bytes body, size_t max_line, struct lines *out)
{
    *out = (struct lines){0};
    if (body.len == 0)
        return LINES_EMPTY_BODY;
    bool any_cr = false;
    enum lines_result r = check(body, max_line, out, &any_cr);
    if (r != LINES_OK)
        return r;
    if (any_cr) {
        rewrite(body, out);
        return LINES_OK;
    }
    out->pieces[out->n_pieces++] = body;
    if (body.ptr[body.len - 1] != '\n')
        out->pieces[out->n_pieces++] = BYTES_LITERAL("\n");
    return LINES_OK;
}

void lines_free(struct lines *l)
{
    buf_free(&l->rewritten);
    *l = (struct lines){0};
}
