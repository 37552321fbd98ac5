/* Replies, problems and streams. Each function appends bytes to the output of the connection. */
#include "http/server/http_internal.h"

#include "base/log.h"

#include <assert.h>
#include <event2/buffer.h>
#include <stdio.h>
#include <time.h>

#define HEAD_ROOM 512          /* bytes for the head of a reply, without lines that handlers add */
#define LOGGED_TARGET_MAX 1000 /* maximum bytes of a request target in a log line */
#define MARK_INTERVAL ((uint64_t)16 * 1024) /* minimum number of output bytes between two marks */
#define OK_LINE "HTTP/1.1 200 OK\r\n"
#define PLAIN_TYPE "Content-Type: text/plain; charset=utf-8\r\n"

static const char *status_text(int status)
{
    static const struct {
        int status;
        const char *text;
    } phrases[] = {
        {200, "OK"},
        {204, "No Content"},
        {304, "Not Modified"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {409, "Conflict"},
        {410, "Gone"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {415, "Unsupported Media Type"},
        {416, "Range Not Satisfiable"},
        {417, "Expectation Failed"},
        {422, "Unprocessable Content"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {502, "Bad Gateway"},
        {503, "Service Unavailable"},
    };
    for (size_t i = 0; i < sizeof phrases / sizeof *phrases; i++)
        if (phrases[i].status == status)
            return phrases[i].text;
    return "Unknown";
}

static bool has_no_body(int status)
{
    return status == 204 || status == 304;
}

/* Appends the status line and the headers up to Content-Type, which defaults to plain text. Most replies begin with the
 * same lines, which are composed again after a quarter of a second. */
static void append_top(struct http_server *s, int status, const char *content_type, usec_t now, struct buf *b)
{
    if (s->top.len == 0 || now - s->top_at > USEC_PER_SEC / 4) {
        char date[64];
        struct tm tm;
        time_t t = (time_t)(clock_wall() / USEC_PER_SEC);
        gmtime_r(&t, &tm);
        size_t n = strftime(date, sizeof date, "Date: %a, %d %b %Y %H:%M:%S GMT\r\n", &tm);
        buf_clear(&s->top);
        buf_append_str(&s->top, OK_LINE);
        buf_append_bytes(&s->top, buf_bytes(&s->server_line));
        buf_append(&s->top, date, n);
        s->top_common = s->top.len;
        buf_append_str(&s->top, PLAIN_TYPE);
        s->top_at = now;
    }
    bool typed = content_type || has_no_body(status);
    size_t from = status == 200 ? 0 : sizeof OK_LINE - 1, to = typed ? s->top_common : s->top.len;
    if (status != 200)
        buf_printf(b, "HTTP/1.1 %d %s\r\n", status, status_text(status));
    buf_append(b, s->top.ptr + from, to - from);
    if (content_type && !has_no_body(status)) {
        buf_append_str(b, "Content-Type: ");
        buf_append_str(b, content_type);
        buf_append_str(b, "\r\n");
    }
}

/* Writes the head of a reply. A negative `length` means that the length is unknown. The metrics count and time a reply
 * at its head and not at its end, because a stream may last for days. */
static void write_head(struct http_request *req, int status, const char *content_type, int64_t length)
{
    struct http_conn *c = req->conn;
    struct http_server *s = c->server;
    struct http_endpoint *e = req->endpoint ? req->endpoint : s->unknown;
    usec_t now = clock_monotonic();
    if (s->draining || !c->message_complete) /* the rest of the request's body will not be parsed */
        req->keep_alive = false;
    req->status = status;
    req->reply_from = c->queued;
    struct buf *head = http_output_stage(c, HEAD_ROOM + req->extra.len);
    size_t before = head->len;
    append_top(s, status, content_type, now, head);
    if (length >= 0 && !has_no_body(status)) {
        buf_append_str(head, "Content-Length: ");
        buf_append_u64(head, (uint64_t)length);
        buf_append_str(head, "\r\n");
    } else if (req->chunked) {
        buf_append_str(head, "Transfer-Encoding: chunked\r\n");
    }
    if (!req->keep_alive)
        buf_append_str(head, "Connection: close\r\n");
    else if (req->head.http10)
        buf_append_str(head, "Connection: keep-alive\r\n");
    buf_append_bytes(head, buf_bytes(&req->extra));
    buf_append_str(head, "\r\n");
    c->queued += head->len - before;
    if (log_wants(LOG_LEVEL_DEBUG)) { /* a malformed request has no method and no target */
        struct bytes target = http_head_target(&req->head);
        size_t method = req->head.target > 0 ? req->head.target - 1 : 0;
        if (target.len > LOGGED_TARGET_MAX)
            target.len = LOGGED_TARGET_MAX;
        log_debug("request", LOG_B("method", bytes_of(req->head.text.ptr, method)), LOG_B("target", target),
            LOG_U("body_bytes", req->body_bytes), LOG_U("status", (uint64_t)status),
            LOG_F("ms", (double)(now - req->began) / 1000));
    }
    stats_observe(e->seconds, now - req->began);
    size_t slot = status > 0 && status < 600 ? (size_t)status : 0;
    if (!e->by_status[slot]) {
        char labels[128];
        snprintf(labels, sizeof labels, "endpoint=\"%s\",status=\"%d\"", e->row->path, status);
        e->by_status[slot] = stats_counter(s->config.stats, "requests_total", labels, "Replies, by status");
    }
    stats_add(e->by_status[slot], 1);
}

/* Returns false while on_gone runs, because the client is gone. */
static bool begin_reply(struct http_request *req)
{
    assert(req->magic == HTTP_REQUEST_MAGIC);
    if (req->gone)
        return false;
    assert(req->live && req->reply == HTTP_REPLY_NONE);
    return true;
}

static void end_reply(struct http_request *req)
{
    req->reply = HTTP_REPLY_DONE;
    http_output_schedule(req->conn);
}

/* Begins a header line. Returns the position of the header's value. */
static size_t begin_header(struct http_request *req, const char *name)
{
    buf_append_str(&req->extra, name);
    buf_append(&req->extra, ": ", 2);
    req->has_retry_after |= name[0] == 'R' && strcmp(name, "Retry-After") == 0;
    return req->extra.len;
}

/* Removes control bytes from the value, because control bytes could end the line early. */
void http_add_header(struct http_request *req, const char *name, const char *fmt, ...)
{
    struct buf *b = &req->extra;
    size_t kept = begin_header(req, name), start = kept;
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(b, fmt, ap);
    va_end(ap);
    for (size_t i = start; i < b->len; i++) {
        if ((unsigned char)b->ptr[i] >= ' ' && b->ptr[i] != 127)
            b->ptr[kept++] = b->ptr[i];
    }
    b->len = kept;
    buf_append(b, "\r\n", 2);
}

void http_add_header_line(struct http_request *req, struct bytes line)
{
    buf_append_bytes(&req->extra, line);
}

void http_add_header_text(struct http_request *req, const char *name, const char *value)
{
    begin_header(req, name);
    buf_append_str(&req->extra, value);
    buf_append(&req->extra, "\r\n", 2);
}

void http_add_header_u64(struct http_request *req, const char *name, uint64_t value)
{
    begin_header(req, name);
    buf_append_u64(&req->extra, value);
    buf_append(&req->extra, "\r\n", 2);
}

void http_reply(struct http_request *req, int status, const char *content_type, struct bytes body)
{
    if (!begin_reply(req))
        return;
    write_head(req, status, content_type, (int64_t)body.len);
    if (!req->head.is_head && !has_no_body(status))
        http_output_write(req->conn, body.ptr, body.len);
    end_reply(req);
}

void http_reply_buf(struct http_request *req, int status, const char *content_type, struct buf *body)
{
    if (begin_reply(req)) {
        write_head(req, status, content_type, (int64_t)body->len);
        if (!req->head.is_head && !has_no_body(status))
            http_output_write_buf(req->conn, body);
        end_reply(req);
    }
    buf_clear(body);
}

void http_replyf(struct http_request *req, int status, const char *content_type, const char *fmt, ...)
{
    struct buf body = {0};
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&body, fmt, ap);
    va_end(ap);
    http_reply(req, status, content_type, buf_bytes(&body));
    buf_free(&body);
}

/* `members` is JSON text, or NULL. */
__attribute__((format(printf, 6, 0))) static void reply_problem(struct http_request *req, int status,
    const char *code, const char *hint, const char *members, const char *fmt, va_list ap)
{
    struct buf detail = {0}, body = {0};
    buf_vprintf(&detail, fmt, ap);
    buf_printf(&body, "{\"type\":\"about:blank\",\"title\":\"%s\",\"status\":%d,\"code\":\"%s\",\"detail\":",
        status_text(status), status, code);
    buf_append_json(&body, buf_bytes(&detail));
    if (hint) {
        buf_append_str(&body, ",\"hint\":");
        buf_append_json(&body, bytes_str(hint));
    }
    if (members && *members)
        buf_printf(&body, ",%s", members);
    buf_append_str(&body, "}\n");
    if ((status == 503 || status == 429) && !req->has_retry_after)
        http_add_header(req, "Retry-After", "1");
    http_reply(req, status, "application/problem+json", buf_bytes(&body));
    buf_free(&detail);
    buf_free(&body);
}

void http_problem(
    struct http_request *req, int status, const char *code, const char *hint, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    reply_problem(req, status, code, hint, NULL, fmt, ap);
    va_end(ap);
}

void http_problem_with(
    struct http_request *req, int status, const char *code, const char *members, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    reply_problem(req, status, code, NULL, members, fmt, ap);
    va_end(ap);
}

void http_stream_start(struct http_request *req, int status, const char *content_type)
{
    if (!begin_reply(req))
        return;
    req->chunked = !req->head.http10;
    if (!req->chunked)
        req->keep_alive = false;
    write_head(req, status, content_type, -1);
    req->reply = HTTP_REPLY_STREAMING;
    http_output_schedule(req->conn);
}

void http_stream_start_endless(struct http_request *req, const char *content_type)
{
    http_add_header_text(req, "Cache-Control", "no-store");
    http_add_header_text(req, "X-Accel-Buffering", "no");
    http_stream_start(req, 200, content_type);
}

/* Rewinding a stream: withdrawing output that its client has not begun to receive.
 *
 * After the size of a chunk, the server must send the whole chunk, so a body can be cut only between two pieces. The
 * server records marks between pieces, at least MARK_INTERVAL bytes apart. A rewind leaves at most the current piece,
 * or MARK_INTERVAL bytes of smaller pieces, in the output. */

/* Drops the marks before `taken`. */
static void drop_passed(struct http_marks *m, uint64_t taken)
{
    size_t n = 0;
    while (n < m->n && m->at[n].queued < taken)
        n++;
    m->n -= n;
    memmove(m->at, m->at + n, m->n * sizeof *m->at);
}

/* Begins a piece of n bytes. If the result is false, the caller must not write the piece. */
static bool open_piece(struct http_request *req, size_t n)
{
    assert(req->magic == HTTP_REQUEST_MAGIC);
    if (req->gone || n == 0)
        return false;
    assert(req->reply == HTTP_REPLY_STREAMING);
    if (req->head.is_head)
        return false;
    const struct http_conn *c = req->conn;
    struct http_marks *m = &req->marks;
    if (req->no_timeout && (m->n == 0 || c->queued - m->at[m->n - 1].queued >= MARK_INTERVAL)) {
        if (m->n > 0)
            drop_passed(m, http_output_taken(c));
        *ARRAY_ADD(m->at, m->n, m->cap) = (struct http_mark){c->queued, req->written};
    }
    req->written += n;
    if (req->chunked) {
        char size[24];
        http_output_write(req->conn, size, (size_t)snprintf(size, sizeof size, "%zx\r\n", n));
    }
    return true;
}

static void close_piece(struct http_request *req)
{
    if (req->chunked)
        http_output_write(req->conn, "\r\n", 2);
    if (http_output_pending(req->conn) > req->drain_low)
        req->above_low = true;
    http_output_schedule(req->conn);
}

void http_stream_write(struct http_request *req, struct bytes piece)
{
    if (!open_piece(req, piece.len))
        return;
    http_output_write(req->conn, piece.ptr, piece.len);
    close_piece(req);
}

void http_stream_write_evbuffer(struct http_request *req, struct evbuffer *piece)
{
    if (!open_piece(req, evbuffer_get_length(piece))) {
        evbuffer_drain(piece, evbuffer_get_length(piece));
        return;
    }
    http_output_write_evbuffer(req->conn, piece);
    close_piece(req);
}

void http_stream_write_file(
    struct http_request *req, const struct http_file *file, const struct http_span *spans, size_t n)
{
    size_t all = 0;
    for (size_t i = 0; i < n; i++)
        all += spans[i].len;
    if (!open_piece(req, all)) {
        file->done(file->arg);
        return;
    }
    http_output_write_file(req->conn, file, spans, n);
    close_piece(req);
}

void http_stream_end(struct http_request *req)
{
    if (req->gone)
        return;
    assert(req->reply == HTTP_REPLY_STREAMING);
    if (req->chunked && !req->head.is_head)
        http_output_write(req->conn, "0\r\n\r\n", 5);
    end_reply(req);
}

void http_stream_abort(struct http_request *req)
{
    assert(req->magic == HTTP_REQUEST_MAGIC);
    if (req->gone)
        return;
    req->conn->reset = true;
    end_reply(req);
}

void http_stream_truncate(struct http_request *req)
{
    assert(req->magic == HTTP_REQUEST_MAGIC);
    if (!req->chunked) {
        http_stream_abort(req);
        return;
    }
    if (req->gone)
        return;
    req->keep_alive = false;
    end_reply(req);
}

size_t http_stream_pending(const struct http_request *req)
{
    return http_output_pending(req->conn);
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
