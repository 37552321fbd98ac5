#include "sortdb/answer.h"

#include "read/read_protocol.h"

#include <assert.h>
#include <event2/buffer.h>
#include <stdlib.h>

#define ANSWER_MAGIC 0x416e7377u
#define COPIED_MAX ((size_t)64 << 10) /* maximum size of a short answer, which is copied */
#define REFERENCED_MIN                                                                                       \
    ((size_t)32 << 10) /* shorter pieces are copied, which costs no more than a reference */
#define PIECE ((size_t)256 << 10)
#define AHEAD_MAX ((size_t)512 << 10) /* maximum number of queued bytes that the socket has not accepted */

/* The position in an answer_lines up to which the answer was sent or queued. */
struct place {
    enum { AT_BEFORE, AT_FIRST, AT_LINES, AT_LAST, AT_END } part;
    size_t at;         /* index of the next line in lines.found */
    struct bytes rest; /* rest of the current run of bytes */
    bool is_key;       /* the current run is lines.before */
};

struct answer {
    unsigned magic;
    struct http_request *req;
    struct generation *generation;
    struct answer_lines lines;
    struct place place;
    struct evbuffer *piece;
};

static bool next_line(struct answer_lines *l, struct place *p, struct bytes *run)
{
    if (!l->found)
        return generation_cursor_next(&l->cursor, PIECE, run);
    if (p->at == l->n_found)
        return false;
    *run = l->found[p->at++];
    return true;
}

/* Sets p->rest to the next run of bytes. Returns false at the end of the answer. */
static bool next_run(struct answer_lines *l, struct place *p)
{
    p->is_key = p->part == AT_BEFORE;
    if (p->part == AT_LINES && next_line(l, p, &p->rest))
        return true;
    if (p->part == AT_LINES)
        p->part = AT_LAST;
    if (p->part == AT_END)
        return false;
    p->rest = p->part == AT_BEFORE ? l->before : p->part == AT_FIRST ? l->first : l->last;
    p->part++;
    return p->rest.len > 0 || next_run(l, p);
}

/* Sets *piece to the next bytes, at most PIECE. Sets *needs_lf if the piece ends a line without an LF: the last line of
 * a file, or the beginning of a line. */
static bool next_piece(struct answer_lines *l, struct place *p, struct bytes *piece, bool *needs_lf)
{
    if (p->rest.len == 0 && !next_run(l, p))
        return false;
    *piece = bytes_of(p->rest.ptr, p->rest.len < PIECE ? p->rest.len : PIECE);
    p->rest = bytes_of(p->rest.ptr + piece->len, p->rest.len - piece->len);
    *needs_lf = p->rest.len == 0 && !p->is_key && (piece->len == 0 || piece->ptr[piece->len - 1] != '\n');
    return true;
}

static void answer_free(struct answer *a)
{
    assert(a->magic == ANSWER_MAGIC);
    a->magic = 0;
    evbuffer_free(a->piece);
    generation_cursor_free(&a->lines.cursor);
    free(a->lines.found);
    generation_unref(&a->generation);
    free(a);
}

static void on_gone(struct http_request *req, void *arg)
{
    (void)req;
    answer_free(arg);
}

static void release(const void *data, size_t len, void *arg)
{
    struct generation *g = arg;
    (void)data, (void)len;
    generation_unref(&g);
}

static void break_off(struct answer *a)
{
    http_stream_abort(a->req);
    answer_free(a);
}

static void on_all_taken(struct http_request *req, void *arg)
{
    struct answer *a = arg;
    if (!generation_is_whole(a->generation, a->lines.shard, NULL)) {
        break_off(a);
        return;
    }
    answer_free(a);
    http_stream_end(req);
}

static void on_room(struct http_request *req, void *arg)
{
    struct answer *a = arg;
    struct bytes run;
    bool more = true, needs_lf;
    assert(a->magic == ANSWER_MAGIC);
    while (more && http_stream_pending(req) < AHEAD_MAX) {
        while (evbuffer_get_length(a->piece) < PIECE &&
               (more = next_piece(&a->lines, &a->place, &run, &needs_lf))) {
            if (run.len < REFERENCED_MIN)
                evbuffer_add(a->piece, run.ptr, run.len);
            else
                evbuffer_add_reference(a->piece, run.ptr, run.len, release, generation_ref(a->generation));
            if (needs_lf)
                evbuffer_add(a->piece, "\n", 1);
        }
        if (!generation_is_whole(a->generation, a->lines.shard, NULL)) {
            break_off(a);
            return;
        }
        http_stream_write_evbuffer(req, a->piece);
    }
    if (more)
        return;
    if (http_stream_pending(req) == 0)
        on_all_taken(req, a);
    else
        http_on_drain(req, 0, on_all_taken, a);
}

void answer_send(
    struct http_request *req, struct generation *g, struct answer_lines *lines, struct buf *scratch)
{
    struct error error;
    struct bytes run;
    struct place place = {0};
    bool needs_lf;
    uint64_t bytes = lines->before.len + lines->first.len + lines->last.len +
                     (lines->found ? 0 : generation_cursor_bytes(&lines->cursor));
    for (size_t i = 0; lines->found && i < lines->n_found; i++)
        bytes += lines->found[i].len;
    if (bytes > COPIED_MAX) {
        struct answer *a = mem_zalloc(sizeof *a);
        *a = (struct answer){.magic = ANSWER_MAGIC,
            .req = req,
            .generation = generation_ref(g),
            .piece = evbuffer_new(),
            .lines = *lines};
        if (lines->found) {
            a->lines.found = mem_alloc(lines->n_found * sizeof *lines->found);
            memcpy(a->lines.found, lines->found, lines->n_found * sizeof *lines->found);
        }
        http_stream_start(req, 200, READ_PROTOCOL_TYPE);
        http_on_gone(req, on_gone, a);
        http_on_drain(req, PIECE, on_room, a);
        on_room(req, a);
        return;
    }
    buf_clear(scratch);
    while (next_piece(lines, &place, &run, &needs_lf)) {
        buf_append_bytes(scratch, run);
        if (needs_lf)
            buf_append_char(scratch, '\n');
    }
    if (generation_is_whole(g, lines->shard, &error))
        http_reply(req, 200, READ_PROTOCOL_TYPE, buf_bytes(scratch));
    else
        http_problem(req, 503, "storage-failed", "restore the file, then POST /reload", "%s", error.text);
    generation_cursor_free(&lines->cursor);
}
