/* Rewinding a stream: withdrawing output that its client has not begun to take.
 *
 * Once the size of a chunk is sent, the whole chunk must follow. So a body can be cut only between two pieces. The server
 * marks such places at least MARK_INTERVAL bytes apart. A rewind leaves at most the piece being sent, or MARK_INTERVAL
 * bytes of smaller pieces. */
#include "http/server/http_internal.h"

#include <string.h>

#define MARK_INTERVAL ((uint64_t)16 * 1024)

/* Drops the marks that the client has passed. */
static void drop_passed(struct http_marks *m, uint64_t taken)
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
    if (!req->no_timeout || (m->n > 0 && c->queued - m->at[m->n - 1].queued < MARK_INTERVAL))
        return;
    if (m->n > 0)
        drop_passed(m, http_output_taken(c));
    if (m->n == m->cap) {
        m->cap = m->cap ? m->cap * 2 : 4;
        m->at = mem_realloc(m->at, m->cap * sizeof *m->at);
    }
    m->at[m->n++] = (struct http_mark){c->queued, req->written};
}

uint64_t http_stream_taken(const struct http_request *req)
{
    return http_output_taken(req->conn);
}

size_t http_stream_rewind(struct http_request *req)
{
    struct http_conn *c = req->conn;
    struct http_marks *m = &req->marks;
    if (req->gone)
        return 0;
    if (m->n > 0)
        drop_passed(m, http_output_taken(c));
    struct http_mark place = m->n > 0 ? m->at[0] : (struct http_mark){c->queued, req->written};
    m->n = 0;
    size_t back = (size_t)(req->written - place.written);
    req->written = place.written;
    http_output_cut(c, place.queued);
    req->above_low = http_output_pending(c) > req->drain_low;
    return back;
}

void http_stream_copy_pending(struct http_request *req)
{
    if (!req->gone)
        http_output_cut(req->conn, req->conn->queued);
}
