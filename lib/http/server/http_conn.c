/* Connections and their turns, see http_internal.h. */
#include "http/server/http_internal.h"

#include "base/errno_class.h"

#include <assert.h>
#include <errno.h>
#include <event2/buffer.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define LINGER_USEC_MAX (2 * USEC_PER_SEC) /* time in which a closing connection discards input */

/* Calls on_gone for a request whose reply is not complete. */
static void abandon(struct http_request *req)
{
    void (*fn)(struct http_request *, void *) = req->on_gone;
    bool unfinished = req->live && req->reply != HTTP_REPLY_DONE;
    req->on_gone = NULL;
    req->gone = true;
    if (fn && unfinished)
        fn(req, req->on_gone_arg);
    req->gone = false;
    req->live = false;
}

/* Reports the end of a request that had a complete head or was refused. */
static void report_end(struct http_conn *c)
{
    const struct http_server *s = c->server;
    const struct http_request *req = &c->req;
    struct bytes target = http_head_target(&req->head);
    if (!s->config.on_end || (!req->live && !req->status))
        return;
    const char *mark = target.len ? memchr(target.ptr, '?', target.len) : NULL;
    const struct http_ended e = {.peer = c->peer,
        .token = req->token ? http_token_name(req->token) : NULL,
        .method = bytes_of(req->head.text.ptr, req->head.target > 0 ? req->head.target - 1 : 0),
        .path = bytes_of(target.ptr, mark ? (size_t)(mark - target.ptr) : target.len),
        .status = req->status,
        .is_cut = req->status && (req->reply != HTTP_REPLY_DONE || c->reset),
        .bytes = req->status ? c->queued - req->reply_from : 0,
        .usec = clock_monotonic() - req->began};
    s->config.on_end(s->config.on_end_arg, &e);
}

static void unschedule(struct http_conn *c)
{
    if (c->scheduled)
        TAILQ_REMOVE(&c->server->scheduled, c, scheduled_link);
    c->scheduled = false;
}

void http_conn_free(struct http_conn *c)
{
    struct http_server *s = c->server;
    struct http_request *req = &c->req;
    c->in_turn = true; /* keeps on_gone from scheduling the connection */
    report_end(c);
    abandon(req);
    unschedule(c);
    s->totals->buffered -= c->held;
    TAILQ_REMOVE(&s->conns, c, link);
    s->totals->conns--;
    s->n_over_limit -= c->over_limit;
    s->n_public -= c->is_public && !c->over_limit;
    event_free(c->read_event);
    event_free(c->write_event);
    if (c->reset)
        setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger));
    close(c->fd);
    evbuffer_free(c->out);
    http_request_reset(req);
    buf_free(&req->head.text);
    buf_free(&req->path);
    buf_free(&req->body);
    buf_free(&req->extra);
    buf_free(&c->in);
    buf_free(&c->staged);
    c->magic = 0;
    free(c);
}

static void enter(struct http_conn *c, enum http_conn_state state)
{
    c->state = state;
    c->since = c->server->now;
}

/* True if the decompressor still has input, because one turn produces a limited number of bytes. */
static bool inflates(const struct http_conn *c)
{
    return c->state == HTTP_CONN_BODY && c->req.inflate && http_inflate_has_more(c->req.inflate);
}

static bool may_parse(const struct http_conn *c)
{
    if (inflates(c))
        return false;
    if (c->state == HTTP_CONN_IDLE)
        return http_output_pending(c) < HTTP_UNSENT_MAX;
    return c->state == HTTP_CONN_HEADER || c->state == HTTP_CONN_BODY;
}

static bool has_unparsed(const struct http_conn *c)
{
    return c->in.len > c->in_at;
}

/* Ends a request. The connection continues with the next request, or ends. */
static void end_request(struct http_conn *c)
{
    struct http_request *req = &c->req;
    bool complete = c->message_complete;
    bool keep = req->keep_alive && complete && !c->reset;
    report_end(c);
    http_request_reset(req);
    c->message_complete = false;
    c->first = false;
    c->unread = !complete;
    enter(c, keep ? HTTP_CONN_IDLE : HTTP_CONN_FINISHING);
}

static void take_body(struct http_conn *c, struct bytes piece)
{
    struct http_request *req = &c->req;
    if (req->inflate)
        req->refusal = http_inflate_feed(req->inflate, piece, http_route_max_body(req), &req->body);
    else
        buf_append_bytes(&req->body, piece);
    if (req->refusal != HTTP_REFUSED_NOT)
        return;
    if (req->body.len > HTTP_KEPT_BUFFER_MAX ||
        req->inflate) { /* a smaller buffer stays allocated in any case */
        http_output_account(c);
        if (!http_memory_available(c->server))
            req->refusal = HTTP_REFUSED_OVERLOADED;
    }
    c->message_complete = c->body.state == HTTP_BODY_END && !inflates(c);
    if (c->message_complete && req->inflate) {
        if (!http_inflate_is_complete(req->inflate))
            req->refusal = HTTP_REFUSED_DAMAGED_BODY;
        http_inflate_free(&req->inflate);
    }
}

/* Refuses a chunk that would exceed max_body as soon as the chunk's size is known, before its bytes arrive. */
static size_t read_body(struct http_conn *c, const char *p, size_t n)
{
    struct http_request *req = &c->req;
    struct bytes piece;
    size_t used = http_body_decode(&c->body, p, n, &piece);
    uint64_t room = http_route_max_body(req) - req->body_bytes;
    if (c->body.state == HTTP_BODY_BAD)
        req->refusal = HTTP_REFUSED_MALFORMED;
    else if (piece.len > room || (c->body.state == HTTP_BODY_DATA && c->body.left > room - piece.len))
        req->refusal = HTTP_REFUSED_BODY_TOO_LARGE;
    if (req->refusal != HTTP_REFUSED_NOT)
        return used;
    if (piece.len > 0) {
        enter(c, HTTP_CONN_BODY);
        req->body_bytes += piece.len;
    }
    take_body(c, piece);
    return used;
}

/* Called when the head is complete. The server does not read the body of a refused request, so the connection is reused
 * only if the request has no body. */
static void begin_body(struct http_conn *c)
{
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    struct http_request *req = &c->req;
    const struct http_head *h = &req->head;
    bool has_body = h->is_chunked || h->content_length > 0;
    req->keep_alive = h->keep_alive && !c->over_limit;
    if (req->refusal == HTTP_REFUSED_NOT) {
        if (h->coding != HTTP_CODING_IDENTITY && (req->endpoint->row->flags & HTTP_ROUTE_DECODES_BODY) &&
            has_body)
            req->inflate = http_inflate_new(h->coding);
        if (h->expects_continue && has_body && !h->http10)
            http_output_write(c, go_on, sizeof go_on - 1);
        buf_reserve(&req->body,
            h->content_length < HTTP_BODY_PREALLOC_MAX ? (size_t)h->content_length : HTTP_BODY_PREALLOC_MAX);
    }
    http_body_begin(&c->body, h);
    req->live = true;
    enter(c, HTTP_CONN_BODY);
    c->message_complete = !has_body;
}

/* Parses requests and calls their handlers. Skips blank lines, which some old clients send before a request. */
static size_t consume(struct http_conn *c, const char *p, size_t n)
{
    struct http_request *req = &c->req;
    size_t used = 0;
    for (bool is_next = inflates(c); is_next || (used < n && may_parse(c)); is_next = false) {
        if (is_next) {
            take_body(c, BYTES_NONE);
        } else if (c->state == HTTP_CONN_BODY) {
            used += read_body(c, p + used, n - used);
        } else if (c->state == HTTP_CONN_IDLE && (p[used] == '\r' || p[used] == '\n')) {
            used++;
        } else {
            if (c->state == HTTP_CONN_IDLE) {
                req->began = c->server->now;
                enter(c, HTTP_CONN_HEADER);
            }
            used += http_head_feed(&req->head, p + used, n - used);
            req->refusal = req->head.complete ? http_route_judge(req) : req->head.error;
            if (req->head.complete)
                begin_body(c);
        }
        if (c->message_complete || req->refusal != HTTP_REFUSED_NOT) {
            enter(c, HTTP_CONN_HANDLER);
            /* The built-in endpoints answer even above max_buffered, because they show operators the problem. */
            if (req->refusal == HTTP_REFUSED_NOT && req->endpoint->ctx != c->server &&
                !http_memory_available(c->server))
                req->refusal = HTTP_REFUSED_OVERLOADED;
            req->live = true;
            if (req->refusal == HTTP_REFUSED_NOT)
                req->endpoint->row->handler(req, req->endpoint->ctx);
            else
                http_route_refuse(req);
        }
        if (c->state == HTTP_CONN_HANDLER && req->reply == HTTP_REPLY_DONE)
            end_request(c);
    }
    return used;
}

/* Reads once from the socket. Parses the new bytes in the read buffer, and copies only incomplete input. */
static void take_input(struct http_conn *c, bool reads)
{
    ssize_t n = reads ? recv(c->fd, c->server->read_buffer, HTTP_READ_SIZE, 0) : 0;
    bool blocked = n < 0 && errno_is_retry(errno);
    c->read_once_more &= !reads;
    struct bytes fresh = n > 0 ? bytes_of(c->server->read_buffer, (size_t)n) : BYTES_NONE;
    c->eof |= reads && n == 0;
    c->broken |= n < 0 && !blocked;
    c->moved += fresh.len;
    if (c->state >= HTTP_CONN_FINISHING) {
        c->unread |= fresh.len > 0;
        return;
    }
    if (c->in.len > 0) {
        c->in_at += consume(c, c->in.ptr + c->in_at, c->in.len - c->in_at);
        if (c->in_at == c->in.len) {
            http_shed(&c->in);
            c->in_at = 0;
        }
    }
    size_t used = c->in.len > 0 ? 0 : consume(c, fresh.ptr, fresh.len);
    if (used == fresh.len)
        return;
    if (c->in_at > 0) {
        memmove(c->in.ptr, c->in.ptr + c->in_at, c->in.len - c->in_at);
        c->in.len -= c->in_at;
        c->in_at = 0;
    }
    buf_append(&c->in, fresh.ptr + used, fresh.len - used);
}

/* Returns true if the connection must be closed now. */
static bool is_over(struct http_conn *c)
{
    /* A client such as nc shuts down its sending side and still waits for the reply. After the end of input, only a
     * long poll ends, because a long poll might last forever. */
    if (c->eof && c->state == HTTP_CONN_HANDLER) {
        c->broken |= c->req.long_poll;
    } else if (c->eof && c->state < HTTP_CONN_FINISHING && !has_unparsed(c) && !inflates(c)) {
        abandon(&c->req);
        enter(c, HTTP_CONN_FINISHING);
    }
    if (c->broken || c->reset)
        return true;
    if (c->state == HTTP_CONN_IDLE && c->server->draining && !has_unparsed(c))
        enter(c, HTTP_CONN_FINISHING);
    if (c->state < HTTP_CONN_FINISHING || http_output_pending(c) > 0)
        return false;
    if (c->state == HTTP_CONN_LINGERING)
        return c->eof;
    if (c->eof || (!c->unread && !has_unparsed(c)))
        return true;
    /* Closing a socket with unread input would reset the connection, and the client might lose the reply. */
    enter(c, HTTP_CONN_LINGERING);
    return shutdown(c->fd, SHUT_WR) < 0;
}

/* Ends a turn. Returns false if the connection was freed. */
static bool settle(struct http_conn *c)
{
    struct http_request *req = &c->req;
    if (!c->broken && !c->reset && req->above_low && req->on_drain &&
        http_output_pending(c) <= req->drain_low) {
        req->above_low = false;
        req->on_drain(req, req->on_drain_arg);
        if (req->live && req->reply == HTTP_REPLY_DONE)
            end_request(c);
    }
    if (is_over(c)) {
        http_conn_free(c);
        return false;
    }
    http_output_account(c);
    bool room = c->state >= HTTP_CONN_FINISHING || c->in.len - c->in_at < HTTP_UNPARSED_MAX;
    bool want_read = !c->eof && room;
    bool want_write = c->blocked && http_output_pending(c) > c->staged.len;
    if (want_read != c->reading)
        want_read ? event_add(c->read_event, NULL) : event_del(c->read_event);
    c->reading = want_read;
    if (want_write && !c->writing)
        event_add(c->write_event, NULL);
    c->writing = want_write;
    c->in_turn = false;
    if ((http_output_pending(c) > 0 && !c->writing) || inflates(c) || (has_unparsed(c) && may_parse(c)))
        http_output_schedule(c);
    return true;
}

bool http_conn_turn(struct http_conn *c, bool reads)
{
    struct http_server *s = c->server;
    unschedule(c);
    c->in_turn = true;
    if (!s->in_scheduled)
        s->now = clock_monotonic();
    if (c->req.live && c->req.reply == HTTP_REPLY_DONE)
        end_request(c);
    if (!c->evicted)
        take_input(c, reads);
    /* A corked reply is sent later, together with the replies to requests that arrived at the same time. A write that
     * wakes a sleeping client costs more than several writes to an awake client. After a partial write, the reply must
     * not be corked, because the server watches the socket for writability only after a write. */
    c->corked = !s->in_scheduled && s->n_corked < HTTP_CORKED_MAX && c->state == HTTP_CONN_IDLE &&
                c->staged.len > 0 && c->staged.len <= HTTP_KEPT_BUFFER_MAX &&
                http_output_pending(c) == c->staged.len && !c->eof && !c->broken && !c->reset;
    if (!c->corked)
        http_output_flush(c);
    else if (s->n_corked++ == 0)
        s->corked_since = s->now;
    return settle(c);
}

void http_conn_run_scheduled(evutil_socket_t fd, short what, void *server)
{
    (void)fd, (void)what;
    struct http_server *s = server;
    static const struct timeval soon = {0, 0};
    struct http_conn *last = TAILQ_LAST(&s->scheduled, http_conn_list), *c;
    s->in_scheduled = true;
    s->now = clock_monotonic();
    s->n_corked = 0;
    while ((c = TAILQ_FIRST(&s->scheduled))) {
        bool corked_only = c->corked && !c->out_used && !c->reset && c->in.len == 0 && !s->draining;
        if (!corked_only) {
            http_conn_turn(c, c->read_once_more);
        } else { /* a short turn */
            unschedule(c);
            c->corked = false;
            http_output_flush(c);
            if (c->blocked || c->broken)
                settle(c);
            else
                http_output_account(c);
        }
        if (c == last)
            break;
    }
    s->in_scheduled = false;
    if (!TAILQ_EMPTY(&s->scheduled))
        event_add(s->scheduled_event, &soon);
}

/* Sends corked replies that have waited long enough. The function runs after each turn, so that a corked reply waits
 * for at most one handler. */
static void end_corking(struct http_server *s)
{
    bool overdue = s->n_corked > 0 && s->now - s->corked_since >= HTTP_CORK_USEC_MAX;
    if (overdue || s->n_corked == HTTP_CORKED_MAX)
        http_conn_run_scheduled(-1, 0, s);
}

static void on_socket(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    struct http_conn *c = arg;
    struct http_server *s = c->server;
    assert(c->magic == HTTP_CONN_MAGIC);
    c->writing &= !(what & EV_WRITE);
    http_conn_turn(c, what & EV_READ);
    end_corking(s);
}

struct http_conn *http_conn_new(struct http_server *s, int fd, const char *peer)
{
    struct http_conn *c = mem_zalloc(sizeof *c);
    c->magic = HTTP_CONN_MAGIC;
    c->server = s;
    c->fd = fd;
    c->first = true;
    s->now = clock_monotonic();
    c->since = c->taken_at = s->now;
    c->read_event = event_new(s->config.base, fd, EV_READ | EV_PERSIST, on_socket, c);
    c->write_event = event_new(s->config.base, fd, EV_WRITE, on_socket, c);
    c->out = evbuffer_new();
    evbuffer_set_flags(c->out, EVBUFFER_FLAG_DRAINS_TO_FD);
    strncpy(c->peer, peer, sizeof c->peer - 1);
    c->req.magic = HTTP_REQUEST_MAGIC;
    c->req.conn = c;
    TAILQ_INSERT_TAIL(&s->conns, c, link);
    s->totals->conns++;
    event_add(c->read_event, NULL);
    c->reading = true;
    return c;
}

static bool passed(usec_t since, usec_t limit, usec_t now)
{
    return limit > 0 && now - since > limit;
}

bool http_conn_is_late(struct http_conn *c, usec_t now)
{
    const struct http_server_config *config = &c->server->config;
    uint64_t taken = http_output_taken(c);
    if (taken != c->taken || http_output_pending(c) == 0 || (c->req.live && c->req.no_timeout))
        c->taken_at = now; /* write_timeout applies only while output is pending */
    c->taken = taken;
    if (passed(c->taken_at, config->write_timeout, now) ||
        (c->over_limit && passed(c->since, LINGER_USEC_MAX, now)))
        return true;
    switch (c->state) {
    case HTTP_CONN_IDLE:
        return http_output_pending(c) == 0 &&
               passed(c->since, c->first ? config->header_timeout : config->idle_timeout, now);
    case HTTP_CONN_HEADER:
        return passed(c->since, config->header_timeout, now);
    case HTTP_CONN_BODY:
        return passed(c->since, config->body_timeout, now);
    case HTTP_CONN_LINGERING:
        return passed(c->since, LINGER_USEC_MAX, now);
    case HTTP_CONN_HANDLER:
    case HTTP_CONN_FINISHING:
        break;
    }
    return false;
}
