#include "framing.h"

#include <inttypes.h>

#define RETRY_MS 1000
#define BOUNDARY "--xXPubSubXx\r\n"

void framing_free(struct framing *f)
{
    buf_free(&f->cut);
}

/* ---- events ---- */

static void add_id(const struct framing *f, struct buf *out)
{
    buf_append(out, "id: ", 4);
    buf_append_u64(out, f->offset);
    buf_append_char(out, ':');
    buf_append(out, f->id, JOURNAL_ID_TEXT - 1);
    buf_append(out, "\n\n", 2);
}

void framing_begin_events(struct framing *f, struct buf *out)
{
    buf_printf(out, "retry: %d\n", RETRY_MS);
    add_id(f, out);
}

/* A part of a line, without its LF. */
static void add_data(struct framing *f, struct bytes part, struct buf *out)
{
    if (!f->in_line)
        buf_append(out, "data: ", 6);
    f->in_line = true;
    for (const char *cr; part.len && (cr = memchr(part.ptr, '\r', part.len));) {
        size_t n = (size_t)(cr - part.ptr);
        buf_append(out, part.ptr, n);
        buf_append(out, "\ndata: ", 7);
        part = bytes_of(cr + 1, part.len - n - 1);
    }
    buf_append_bytes(out, part);
}

void framing_add_events(struct framing *f, struct bytes piece, struct buf *out)
{
    while (piece.len) {
        const char *lf = memchr(piece.ptr, '\n', piece.len);
        size_t n = lf ? (size_t)(lf - piece.ptr) : piece.len;
        add_data(f, bytes_of(piece.ptr, n), out);
        f->offset += n + (lf != NULL);
        piece = bytes_of(piece.ptr + n, piece.len - n);
        if (!lf)
            return;
        piece = bytes_of(lf + 1, piece.len - 1);
        buf_append_char(out, '\n');
        add_id(f, out);
        f->in_line = false;
    }
}

void framing_add_gap(struct framing *f, const struct journal_edges *edges, struct buf *out)
{
    f->offset = edges->after;
    buf_printf(out, "event: gap\ndata: {\"before\":\"%" PRIu64 "\",\"after\":\"%" PRIu64 "\"}\n",
        edges->before, edges->after);
    add_id(f, out);
}

void framing_add_heartbeat(struct buf *out)
{
    buf_append(out, ":\n\n", 3);
}

/* ---- parts ---- */

void framing_begin_parts(struct buf *out)
{
    buf_append_str(out, BOUNDARY);
}

static void add_part(struct bytes begin, struct bytes end, struct buf *out)
{
    buf_append_str(out, "content-type: */*\r\ncontent-length: ");
    buf_append_u64(out, begin.len + end.len);
    buf_append(out, "\r\n\r\n", 4);
    buf_append_bytes(out, begin);
    buf_append_bytes(out, end);
    buf_append_str(out, "\r\n" BOUNDARY);
}

void framing_add_parts(struct framing *f, struct bytes piece, struct buf *out)
{
    f->offset += piece.len;
    for (const char *lf; piece.len && (lf = memchr(piece.ptr, '\n', piece.len));) {
        size_t n = (size_t)(lf - piece.ptr);
        add_part(buf_bytes(&f->cut), bytes_of(piece.ptr, n), out);
        buf_free(&f->cut);
        piece = bytes_of(lf + 1, piece.len - n - 1);
    }
    buf_append_bytes(&f->cut, piece);
    f->in_line = f->cut.len > 0;
}

/* ---- ids ---- */

bool framing_parse_id(struct bytes text, uint64_t *offset, struct bytes *id)
{
    const char *colon = text.len ? memchr(text.ptr, ':', text.len) : NULL;
    size_t n = colon ? (size_t)(colon - text.ptr) : text.len;
    *id = colon ? bytes_of(colon + 1, text.len - n - 1) : BYTES_NONE;
    return bytes_to_u64(bytes_of(text.ptr, n), offset);
}
