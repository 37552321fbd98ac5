/* Taking back what a stream has written and its client has not begun to take.
 *
 * A chunk is promised as soon as its size is on its way, so a body can be cut only between two pieces. Of the places
 * between those that wait, some are remembered, MARK_EVERY apart or a piece: so what cannot be taken back is at most the
 * piece that is under way, or MARK_EVERY of smaller ones.
 */
#include "http/server/http_internal.h"

#include <stdlib.h>
#include <string.h>

#define MARK_EVERY ((uint64_t)16 * 1024)

/* What the client has begun to take is no place to cut any more. */
static void forget_passed(struct http_marks *m, uint64_t taken)
{
    size_t n = 0;
    while (n < m->n && m->at[n].queued < taken)
        n++;
    m->n -= n;
    memmove(m->at, m->at + n, m->n * sizeof *m->at);
}

void http_mark_piece(struct http_request *req)
{
    const struct http_conn *c = req->conn;
    struct http_marks *m = &req->marks;
    if (!req->patient || (m->n > 0 && c->queued - m->at[m->n - 1].queued < MARK_EVERY))
        return;
    if (m->n > 0)
        forget_passed(m, http_conn_taken(c));
    if (m->n == m->cap) {
        m->cap = m->cap ? m->cap * 2 : 4;
        m->at = mem_realloc(m->at, m->cap * sizeof *m->at);
    }
    m->at[m->n++] = (struct http_mark){c->queued, req->written};
}

void http_marks_free(struct http_marks *m)
{
    free(m->at);
    *m = (struct http_marks){0};
}

uint64_t http_stream_taken(const struct http_request *req)
{
    return http_conn_taken(req->conn);
}

size_t http_stream_rewind(struct http_request *req)
{
    struct http_conn *c = req->conn;
    struct http_marks *m = &req->marks;
    if (req->gone)
        return 0;
    forget_passed(m, http_conn_taken(c));
    struct http_mark place = {c->queued, req->written};
    if (m->n > 0)
        place = m->at[0];
    m->n = 0;
    size_t back = (size_t)(req->written - place.written);
    req->written = place.written;
    http_conn_cut(c, place.queued);
    req->above_low = http_conn_pending(c) > req->drain_low;
    return back;
}

void http_stream_copy_pending(struct http_request *req)
{
    if (!req->gone)
        http_conn_cut(req->conn, req->conn->queued);
}
