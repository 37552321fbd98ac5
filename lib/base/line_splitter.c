#include "base/line_splitter.h"

static void keep(struct line_splitter *s, struct bytes part)
{
    size_t most = s->max_line + 1, room = s->partial.len < most ? most - s->partial.len : 0;
    buf_append(&s->partial, part.ptr, part.len < room ? part.len : room);
    s->length += part.len;
}

/* `length` is the length of the whole line with its LF, of which `head` may contain only the first max_line + 1
 * bytes. */
static void give_overlong(struct line_splitter *s, struct bytes head, uint64_t length)
{
    s->overlong(s->arg, bytes_of(head.ptr, head.len < s->max_line ? head.len : s->max_line), length - 1);
}

/* Passes a run of lines to the callbacks. The run may contain overlong lines. All lines between two overlong lines go
 * to `lines` in one call. */
static void give_run(struct line_splitter *s, struct bytes run)
{
    size_t begin = 0, at = 0;
    uint64_t resets = s->resets;
    while (run.len > s->max_line && at < run.len) {
        const char *lf = memchr(run.ptr + at, '\n', run.len - at);
        size_t n = (size_t)(lf - (run.ptr + at)) + 1;
        if (n > s->max_line + 1) {
            if (at > begin)
                s->lines(s->arg, bytes_of(run.ptr + begin, at - begin));
            if (s->resets != resets)
                return;
            give_overlong(s, bytes_of(run.ptr + at, n), n);
            if (s->resets != resets)
                return;
            begin = at + n;
        }
        at += n;
    }
    if (run.len > begin)
        s->lines(s->arg, bytes_of(run.ptr + begin, run.len - begin));
}

void line_splitter_feed(struct line_splitter *s, struct bytes piece)
{
    uint64_t resets = s->resets;
    if (s->length > 0) {
        const char *lf = piece.len > 0 ? memchr(piece.ptr, '\n', piece.len) : NULL;
        size_t n = lf ? (size_t)(lf - piece.ptr) + 1 : piece.len;
        keep(s, bytes_of(piece.ptr, n));
        if (lf) { /* reset the splitter first, because the callback may feed it */
            struct buf line = s->partial;
            uint64_t length = s->length;
            s->partial = (struct buf){0};
            s->length = 0;
            if (length > s->max_line + 1)
                give_overlong(s, buf_bytes(&line), length);
            else
                s->lines(s->arg, buf_bytes(&line));
            buf_free(&line);
        }
        piece = bytes_of(piece.ptr + n, piece.len - n);
    }
    const char *last = piece.len > 0 && s->resets == resets ? memrchr(piece.ptr, '\n', piece.len) : NULL;
    if (last) {
        size_t n = (size_t)(last - piece.ptr) + 1;
        give_run(s, bytes_of(piece.ptr, n));
        piece = bytes_of(piece.ptr + n, piece.len - n);
    }
    if (piece.len > 0 && s->resets == resets)
        keep(s, piece);
}

void line_splitter_reset(struct line_splitter *s)
{
    buf_clear(&s->partial);
    s->length = 0;
    s->resets++;
}

void line_splitter_free(struct line_splitter *s)
{
    buf_free(&s->partial);
    s->length = 0;
}
