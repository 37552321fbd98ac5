#include "pubsub/stream/framing.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define RETRY_MS 1000
#define BOUNDARY "--xXPubSubXx\r\n"
/* Bytes formatted at once; an event of ninety bytes may result from two bytes */
#define EVENT_SLICE ((size_t)256)

void framing_free(struct framing *f)
{
    buf_free(&f->cut);
}

void framing_set_offset(struct framing *f, uint64_t offset)
{
    f->offset = offset;
    f->until = 0;
}

/* Returns the opening of the byte before the offset, which may be the byte before a gap. */
static const char *opening_before(struct framing *f)
{
    if (f->until == 0 || f->offset > f->until) {
        snprintf(f->opening, sizeof f->opening, "%s", journal_opening_before(f->journal, f->offset));
        f->until = f->opening[0] ? journal_opening_end(f->journal, f->offset - 1) : 0;
    }
    return f->opening;
}

static void add_id(struct framing *f, struct buf *out)
{
    const char *opening = f->journal ? opening_before(f) : "";
    if (f->journal && f->offset > 0 &&
        !opening[0]) { /* retention deleted the byte before the offset, so a gap event follows */
        buf_append_char(out, '\n');
        return;
    }
    buf_append(out, "id: ", 4);
    buf_append_u64(out, f->offset);
    buf_append_char(out, ':');
    buf_append(out, f->id, JOURNAL_ID_TEXT - 1);
    if (opening[0])
        buf_append_char(out, '.');
    buf_append_str(out, opening);
    buf_append(out, "\n\n", 2);
}

/* Appends a part of a line, without the LF. */
static void add_data(struct framing *f, struct bytes part, struct buf *out)
{
    if (!f->in_line)
        buf_append(out, "data: ", 6);
    f->in_line = true;
    f->offset += part.len;
    for (const char *cr; part.len && (cr = memchr(part.ptr, '\r', part.len));) {
        size_t n = (size_t)(cr - part.ptr);
        buf_append(out, part.ptr, n);
        buf_append(out, "\ndata: ", 7);
        part = bytes_of(cr + 1, part.len - n - 1);
    }
    buf_append_bytes(out, part);
}

static void add_cut(struct framing *f, struct buf *out)
{
    if (f->cut.len)
        add_data(f, buf_bytes(&f->cut), out);
    buf_free(&f->cut);
}

/* Removes n bytes from the front of the piece and returns the removed bytes. */
static struct bytes cut_off(struct bytes *piece, size_t n)
{
    struct bytes front = bytes_of(piece->ptr, n);
    *piece = bytes_of(piece->ptr + n, piece->len - n);
    return front;
}

static void take_events(struct framing *f, struct bytes *piece, struct buf *out)
{
    size_t most = out->len + FRAMING_STEP;
    while (piece->len && out->len < most) {
        struct bytes slice = cut_off(piece, piece->len < EVENT_SLICE ? piece->len : EVENT_SLICE);
        for (const char *lf; slice.len && (lf = memchr(slice.ptr, '\n', slice.len));) {
            add_cut(f, out);
            add_data(f, cut_off(&slice, (size_t)(lf - slice.ptr)), out);
            cut_off(&slice, 1);
            f->offset++;
            buf_append_char(out, '\n');
            add_id(f, out);
            f->in_line = false;
        }
        if (slice.len && !f->in_line && f->cut.len + slice.len < FRAMING_STEP) {
            buf_append_bytes(&f->cut, slice);
        } else if (slice.len) {
            add_cut(f, out);
            add_data(f, slice, out);
        }
    }
}

void framing_add_gap(struct framing *f, const struct journal_edges *edges, struct buf *out)
{
    assert(!f->in_line);
    buf_free(&f->cut);
    buf_printf(out, "event: gap\ndata: {\"before\":\"%" PRIu64 "\",\"after\":\"%" PRIu64 "\"}\n",
        edges->before, edges->after);
    add_id(f, out);
}

static void take_part(struct framing *f, struct bytes *piece, struct buf *out)
{
    const char *lf = memchr(piece->ptr, '\n', piece->len);
    struct bytes end = cut_off(piece, lf ? (size_t)(lf - piece->ptr) : piece->len);
    if (!lf) {
        buf_append_bytes(&f->cut, end);
        return;
    }
    cut_off(piece, 1);
    buf_append_str(out, "content-type: */*\r\ncontent-length: ");
    buf_append_u64(out, f->cut.len + end.len);
    buf_append(out, "\r\n\r\n", 4);
    buf_append_bytes(out, buf_bytes(&f->cut));
    buf_append_bytes(out, end);
    buf_append_str(out, "\r\n" BOUNDARY);
    buf_free(&f->cut);
}

static void take_lines(struct framing *f, struct bytes *piece, struct buf *out)
{
    const char *lf = memrchr(piece->ptr, '\n', piece->len);
    if (lf) {
        buf_append_bytes(out, buf_bytes(&f->cut));
        buf_free(&f->cut);
        buf_append_bytes(out, cut_off(piece, (size_t)(lf + 1 - piece->ptr)));
    }
    buf_append_bytes(&f->cut, cut_off(piece, piece->len));
}

void framing_begin(struct framing *f, struct buf *out)
{
    if (f->form == FRAMING_EVENTS) {
        buf_printf(out, "retry: %d\n", RETRY_MS);
        add_id(f, out);
    } else if (f->form == FRAMING_PARTS) {
        buf_append_str(out, BOUNDARY);
    }
}

void framing_take(struct framing *f, struct bytes *piece, struct buf *out)
{
    static void (*const take[])(struct framing *, struct bytes *, struct buf *) = {
        [FRAMING_EVENTS] = take_events, [FRAMING_PARTS] = take_part, [FRAMING_LINES] = take_lines};
    take[f->form](f, piece, out);
}

bool framing_parse_id(struct bytes text, uint64_t *offset, struct bytes *id)
{
    const char *colon = text.len ? memchr(text.ptr, ':', text.len) : NULL;
    size_t n = colon ? (size_t)(colon - text.ptr) : text.len;
    *id = colon ? bytes_of(colon + 1, text.len - n - 1) : BYTES_NONE;
    return bytes_to_u64(bytes_of(text.ptr, n), offset);
}
