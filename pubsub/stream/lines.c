#include "pubsub/stream/lines.h"

enum lines_result lines_from_body(struct bytes body, size_t max_line, struct lines *out)
{
    const char *end = body.ptr + body.len, *copied = body.ptr; /* `rewritten` has the text below `copied` */
    *out = (struct lines){0};
    if (body.len == 0)
        return LINES_EMPTY_BODY;
    for (const char *line = body.ptr, *next; line < end; line = next) {
        const char *lf = memchr(line, '\n', (size_t)(end - line)), *stop = lf ? lf : end;
        bool has_cr = stop > line && stop[-1] == '\r';
        size_t len = (size_t)(stop - line) - has_cr;
        next = lf ? lf + 1 : end;
        out->n++;
        if (len == 0)
            return LINES_EMPTY_LINE;
        if (len > max_line)
            return LINES_TOO_LARGE;
        if (has_cr) {
            buf_reserve(&out->rewritten, (size_t)(end - copied));
            buf_append(&out->rewritten, copied, (size_t)(line + len - copied));
            copied = stop;
        }
    }
    struct bytes text = body;
    if (out->rewritten.len) {
        buf_append(&out->rewritten, copied, (size_t)(end - copied));
        text = buf_bytes(&out->rewritten);
    }
    out->pieces[out->n_pieces++] = text;
    if (text.ptr[text.len - 1] != '\n')
        out->pieces[out->n_pieces++] = BYTES_LITERAL("\n");
    return LINES_OK;
}

void lines_free(struct lines *l)
{
    buf_free(&l->rewritten);
    *l = (struct lines){0};
}
