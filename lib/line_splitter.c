#include "line_splitter.h"

static void keep(struct line_splitter *s, struct bytes part)
{
    size_t room = s->partial.len < s->max_line ? s->max_line - s->partial.len : 0;
    buf_append(&s->partial, part.ptr, part.len < room ? part.len : room);
    s->length += part.len;
}

static void give(struct line_splitter *s, struct bytes part)
{
    /* The usual line lies in one piece and is not copied. */
    if (s->length == 0 && part.len <= s->max_line) {
        s->line(s->arg, part);
        return;
    }
    keep(s, part);
    if (s->length > s->max_line)
        s->overlong(s->arg, buf_bytes(&s->partial), s->length);
    else
        s->line(s->arg, buf_bytes(&s->partial));
    line_splitter_reset(s);
}

void line_splitter_feed(struct line_splitter *s, struct bytes piece)
{
    const char *at = piece.ptr, *end = piece.ptr + piece.len;
    while (at < end) {
        const char *lf = memchr(at, '\n', (size_t)(end - at));
        if (!lf) {
            keep(s, bytes_of(at, (size_t)(end - at)));
            return;
        }
        give(s, bytes_of(at, (size_t)(lf - at)));
        at = lf + 1;
    }
}

void line_splitter_reset(struct line_splitter *s)
{
    buf_clear(&s->partial);
    s->length = 0;
}

void line_splitter_free(struct line_splitter *s)
{
    buf_free(&s->partial);
    s->length = 0;
}
