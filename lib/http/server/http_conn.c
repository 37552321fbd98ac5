/* A connection and its turns; see http_internal.h. */
#include "http/server/http_internal.h"

#include <assert.h>
#include <errno.h>
#include <event2/buffer.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define LINGER_USEC_MAX (2 * USEC_PER_SEC)
#define STAGED_MAX (64 * 1024)
#define FILE_BYTES_PER_TURN_MAX                                                                              \
    ((size_t)1024 * 1024) /* sent from files in a turn, before others have theirs */

static struct http_conn *conn_of(void *arg)
{
    struct http_conn *c = arg;
    assert(c->magic == HTTP_CONN_MAGIC);
    return c;
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    http_conn_read(conn_of(arg));
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct http_conn *c = conn_of(arg);
    c->writing = false;
    http_conn_turn(c, BYTES_NONE);
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
    c->read_event = event_new(s->config.base, fd, EV_READ | EV_PERSIST, on_readable, c);
    c->write_event = event_new(s->config.base, fd, EV_WRITE, on_writable, c);
    c->out = evbuffer_new();
    evbuffer_set_flags(c->out, EVBUFFER_FLAG_DRAINS_TO_FD);
    strncpy(c->peer, peer, sizeof c->peer - 1);
    http_request_init(&c->req, c);
    TAILQ_INSERT_TAIL(&s->conns, c, link);
    s->n_conns++;
    event_add(c->read_event, NULL);
    c->reading = true;
    return c;
}

static void unschedule(struct http_conn *c)
{
    if (c->scheduled)
        TAILQ_REMOVE(&c->server->scheduled, c, scheduled_link);
    c->scheduled = false;
}

/* Tells a request's owner that it is over without his reply. Should he answer all the same, it is dropped. */
static void tell_gone(struct http_request *req)
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

void http_conn_free(struct http_conn *c)
{
    struct http_server *s = c->server;
    c->in_turn = true; /* what on_gone does must not schedule it */
    tell_gone(&c->req);
    unschedule(c);
    http_memory_release(c);
    TAILQ_REMOVE(&s->conns, c, link);
    s->n_conns--;
    s->n_over_limit -= c->over_limit;
    event_free(c->read_event);
    event_free(c->write_event);
    if (c->reset)
        setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger));
    close(c->fd);
    evbuffer_free(c->out);
    http_request_clear(&c->req);
    buf_free(&c->req.text);
    buf_free(&c->req.path);
    buf_free(&c->req.body);
    buf_free(&c->req.extra);
    buf_free(&c->in);
    buf_free(&c->staged);
    c->magic = 0;
    free(c);
}

void http_conn_enter(struct http_conn *c, enum http_conn_state state)
{
    c->state = state;
    c->since = c->server->now;
}

static size_t out_length(const struct http_conn *c)
{
    return c->out_used ? evbuffer_get_length(c->out) : 0;
}

size_t http_conn_pending(const struct http_conn *c)
{
    return c->staged.len + out_length(c);
}

uint64_t http_conn_taken(const struct http_conn *c)
{
    return c->queued - http_conn_pending(c);
}

/* `out`, to add to. */
static struct evbuffer *use_out(struct http_conn *c)
{
    c->out_used = true;
    return c->out;
}

static void unstage(struct http_conn *c)
{
    if (c->staged.len > 0)
        evbuffer_add(use_out(c), c->staged.ptr, c->staged.len);
    buf_clear(&c->staged);
}

/* What is staged leaves at the end of a turn, so one large buffer serves all connections in turn, and none keeps one
 * while it is idle. */
static void take_spare(struct http_conn *c)
{
    struct buf own = c->staged;
    c->staged = c->server->spare;
    c->server->spare = (struct buf){0};
    buf_clear(&c->staged);
    buf_append_bytes(&c->staged, buf_bytes(&own));
    buf_free(&own);
}

static void clear_staged(struct http_conn *c)
{
    struct buf *spare = &c->server->spare;
    buf_clear(&c->staged);
    if (c->staged.cap <= HTTP_KEPT_BUFFER_MAX)
        return;
    if (spare->cap == 0) {
        *spare = c->staged;
        c->staged = (struct buf){0};
    }
    buf_free(&c->staged);
}

struct buf *http_conn_stage(struct http_conn *c, size_t room)
{
    if (c->staged.len + room > STAGED_MAX)
        unstage(c);
    if (c->staged.len + room > HTTP_KEPT_BUFFER_MAX && c->server->spare.cap > c->staged.cap)
        take_spare(c);
    buf_reserve(&c->staged, room);
    return &c->staged;
}

void http_conn_write(struct http_conn *c, const void *p, size_t n)
{
    c->queued += n;
    if (n > STAGED_MAX) {
        unstage(c);
        evbuffer_add(use_out(c), p, n);
    } else {
        buf_append(http_conn_stage(c, n), p, n);
    }
}

static void free_memory(const void *memory, size_t n, void *arg)
{
    (void)n;
    (void)memory;
    free(arg);
}

void http_conn_write_buf(struct http_conn *c, struct buf *b)
{
    if (b->len <= STAGED_MAX) {
        http_conn_write(c, b->ptr, b->len);
        return;
    }
    c->queued += b->len;
    unstage(c);
    evbuffer_add_reference(use_out(c), b->ptr, b->len, free_memory, b->ptr);
    *b = (struct buf){0};
}

/* Small content is copied, so that it leaves with what is beside it in one write. */
void http_conn_write_evbuffer(struct http_conn *c, struct evbuffer *b)
{
    size_t n = evbuffer_get_length(b);
    if (n <= HTTP_COPIED_MAX && c->staged.len + n <= STAGED_MAX) {
        http_conn_stage(c, n);
        ssize_t copied = evbuffer_copyout(b, c->staged.ptr + c->staged.len, n);
        if (copied == (ssize_t)n) {
            evbuffer_drain(b, n);
            c->staged.len += n;
            c->queued += n;
            return;
        }
    }
    unstage(c);
    evbuffer_add_buffer(use_out(c), b);
    c->queued += n;
}

static bool would_block(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

static void file_done(const struct evbuffer_file_segment *segment, int flags, void *arg)
{
    struct http_file *file = arg;
    (void)segment;
    (void)flags;
    file->done(file->arg);
    free(file);
}

/* What is to go right before a file leaves with its first bytes: by itself it would be a packet, and perhaps wake the
 * client, for a few bytes. (To cork the socket instead cost three times as much as all the rest.) */
static void send_ahead(struct http_conn *c)
{
    if (c->writing || out_length(c) > 0 || c->staged.len == 0)
        return;
    ssize_t n = send(c->fd, c->staged.ptr, c->staged.len, MSG_NOSIGNAL | MSG_MORE);
    if (n < 0) {
        c->broken = !would_block();
        return;
    }
    c->moved += (size_t)n;
    c->staged.len -= (size_t)n;
    memmove(c->staged.ptr, c->staged.ptr + n, c->staged.len);
}

/* Of the descriptor all that there will ever be may be sent. A span is cut so that no call sends for long. */
void http_conn_write_file(
    struct http_conn *c, const struct http_file *file, const struct http_span *spans, size_t n)
{
    struct http_file *own = mem_alloc(sizeof *own);
    *own = *file;
    struct evbuffer_file_segment *all = evbuffer_file_segment_new(
        file->fd, 0, INT64_MAX / 2, EVBUF_FS_DISABLE_MMAP | EVBUF_FS_DISABLE_LOCKING);
    evbuffer_file_segment_add_cleanup_cb(all, file_done, own);
    send_ahead(c);
    unstage(c);
    for (size_t i = 0; i < n; i++) {
        for (size_t done = 0, len; done < spans[i].len; done += len) {
            len =
                spans[i].len - done < FILE_BYTES_PER_TURN_MAX ? spans[i].len - done : FILE_BYTES_PER_TURN_MAX;
            evbuffer_add_file_segment(use_out(c), all, (ev_off_t)(spans[i].position + done), (ev_off_t)len);
        }
        c->queued += spans[i].len;
    }
    evbuffer_file_segment_free(all);
    c->has_files = true;
    c->files_end = c->queued;
}

/* As memory of its own. */
static void move_copied(struct evbuffer *from, struct evbuffer *to, size_t n)
{
    void *memory = mem_alloc(n);
    ssize_t copied = evbuffer_remove(from, memory, n);
    assert(copied == (ssize_t)n);
    (void)copied;
    evbuffer_add_reference(to, memory, n, free_memory, memory);
}

void http_conn_cut(struct http_conn *c, uint64_t queued)
{
    uint64_t taken = http_conn_taken(c);
    assert(taken <= queued && queued <= c->queued);
    size_t n = (size_t)(queued - taken);
    struct evbuffer *kept = evbuffer_new();
    unstage(c);
    if (taken < c->files_end)
        evbuffer_remove_buffer(c->out, kept, n);
    else if (n > 0)
        move_copied(c->out, kept, n);
    evbuffer_drain(c->out, evbuffer_get_length(c->out));
    evbuffer_add_buffer(c->out, kept);
    evbuffer_free(kept);
    c->queued = queued;
}

static void write_staged(struct http_conn *c)
{
    ssize_t n = send(c->fd, c->staged.ptr, c->staged.len, MSG_NOSIGNAL);
    if (n < 0) {
        c->broken = !would_block();
        n = 0;
    }
    c->blocked = (size_t)n < c->staged.len;
    if (c->blocked)
        evbuffer_add(use_out(c), c->staged.ptr + n, c->staged.len - (size_t)n);
    clear_staged(c);
}

/* One call sends bytes of memory or of one span. Nothing at all from a file that is not over means that it was cut off
 * under us. */
static void write_files(struct http_conn *c)
{
    size_t done = 0;
    while (done < FILE_BYTES_PER_TURN_MAX && out_length(c) > 0) {
        errno = 0;
        int n = evbuffer_write(c->out, c->fd);
        if (n <= 0) {
            c->broken = !would_block();
            c->blocked = true;
            break;
        }
        done += (size_t)n;
    }
    c->has_files = out_length(c) > 0;
}

static void write_out(struct http_conn *c)
{
    if (c->has_files) {
        write_files(c);
        return;
    }
    if (evbuffer_write(c->out, c->fd) < 0)
        c->broken = !would_block();
    c->blocked = out_length(c) > 0;
}

/* `writable`: not when the last write filled the socket, and it has not drained since. */
static void flush(struct http_conn *c)
{
    size_t before = http_conn_pending(c);
    c->blocked &= c->writing;
    c->out_used = out_length(c) > 0;
    if (c->out_used) {
        if (!c->has_files) /* else it waits for what the next file has before it */
            unstage(c);
        if (!c->writing)
            write_out(c);
    } else if (c->staged.len > 0) {
        write_staged(c);
    }
    c->moved += before - http_conn_pending(c);
}

static bool may_parse(const struct http_conn *c)
{
    if (c->state == HTTP_CONN_IDLE)
        return http_conn_pending(c) < HTTP_UNSENT_MAX;
    return c->state == HTTP_CONN_HEADER || c->state == HTTP_CONN_BODY;
}

static void shed(struct buf *b)
{
    if (b->cap > HTTP_KEPT_BUFFER_MAX)
        buf_free(b);
    else
        buf_clear(b);
}

/* Most bodies come whole with their head and are answered at once, so one large buffer serves them in turn. */
static void shed_body(struct http_conn *c)
{
    struct buf *body = &c->req.body, *spare = &c->server->spare_body;
    if (body->cap > HTTP_KEPT_BUFFER_MAX && body->cap <= 2 * HTTP_BODY_PREALLOC_MAX && spare->cap == 0) {
        *spare = *body;
        *body = (struct buf){0};
    }
    shed(body);
}

void http_conn_expect_body(struct http_conn *c, uint64_t length)
{
    struct buf *body = &c->req.body, *spare = &c->server->spare_body;
    size_t room = length < HTTP_BODY_PREALLOC_MAX ? (size_t)length : HTTP_BODY_PREALLOC_MAX;
    if (room > HTTP_KEPT_BUFFER_MAX && spare->cap > body->cap) {
        buf_free(body);
        *body = *spare;
        *spare = (struct buf){0};
        buf_clear(body);
    }
    buf_reserve(body, room);
}

/* The reply is whole: on to the next request, or to the end. */
static void end_request(struct http_conn *c)
{
    struct http_request *req = &c->req;
    bool complete = c->message_complete;
    bool keep = req->keep_alive && complete && !c->reset;
    req->live = false;
    req->refusal = HTTP_REFUSED_NOT;
    http_request_end(req);
    shed_body(c);
    c->message_complete = false;
    c->first = false;
    c->unread = !complete;
    http_conn_enter(c, keep ? HTTP_CONN_IDLE : HTTP_CONN_FINISHING);
}

/* Refused before its handler: whoever has had pieces of its body is told that no more will come. */
static void answer_refusal(struct http_conn *c)
{
    struct http_request *req = &c->req;
    if (req->live)
        tell_gone(req);
    req->live = true;
    http_route_refuse(req);
}

/* The built-in endpoints tell what is wrong, so they are always open. */
static bool has_room(const struct http_conn *c)
{
    return c->req.endpoint->ctx == c->server || http_memory_available(c->server);
}

static void refuse_for_room(struct http_conn *c)
{
    c->req.refusal = HTTP_REFUSED_OVERLOADED;
    answer_refusal(c);
}

static void handle(struct http_conn *c)
{
    struct http_request *req = &c->req;
    http_conn_enter(c, HTTP_CONN_HANDLER);
    if (req->refusal != HTTP_REFUSED_NOT)
        answer_refusal(c);
    else if (req->reply == HTTP_REPLY_NONE && !has_room(c))
        refuse_for_room(c);
    else if (req->reply == HTTP_REPLY_NONE)
        req->endpoint->row->handler(req, req->endpoint->ctx);
}

/* A streamed body may be answered before it is whole; then the rest is not wanted. */
static size_t step(struct http_conn *c, const char *p, size_t n)
{
    struct http_request *req = &c->req;
    size_t used = http_parse_feed(c, p, n);
    if (c->message_complete || req->refusal != HTTP_REFUSED_NOT)
        handle(c);
    else if (req->live && req->reply != HTTP_REPLY_NONE)
        http_conn_enter(c, HTTP_CONN_HANDLER);
    if (c->state == HTTP_CONN_HANDLER && req->reply == HTTP_REPLY_DONE)
        end_request(c);
    return used;
}

static size_t consume(struct http_conn *c, const char *p, size_t n)
{
    size_t used = 0;
    while (used < n && may_parse(c))
        used += step(c, p + used, n - used);
    return used;
}

static void consume_kept(struct http_conn *c)
{
    c->in_at += consume(c, c->in.ptr + c->in_at, c->in.len - c->in_at);
    if (c->in_at == c->in.len) {
        shed(&c->in);
        c->in_at = 0;
    }
}

static void keep(struct http_conn *c, const char *p, size_t n)
{
    if (c->in_at > 0) {
        memmove(c->in.ptr, c->in.ptr + c->in_at, c->in.len - c->in_at);
        c->in.len -= c->in_at;
        c->in_at = 0;
    }
    buf_append(&c->in, p, n);
}

/* Fresh bytes are parsed where they were read; only what must wait is copied. */
static void take_input(struct http_conn *c, struct bytes fresh)
{
    if (c->state >= HTTP_CONN_FINISHING) {
        c->unread |= fresh.len > 0;
        return;
    }
    if (c->in.len > 0)
        consume_kept(c);
    size_t used = c->in.len > 0 ? 0 : consume(c, fresh.ptr, fresh.len);
    if (used < fresh.len)
        keep(c, fresh.ptr + used, fresh.len - used);
}

static bool has_kept(const struct http_conn *c)
{
    return c->in.len > c->in_at;
}

/* A client that has shut down its sending side may still wait for a reply (nc does), so a request in a handler
 * goes on, and so does a stream; but of what may last for ever the client is taken to have left. */
static void note_eof(struct http_conn *c)
{
    if (!c->eof || c->state >= HTTP_CONN_FINISHING)
        return;
    if (c->state == HTTP_CONN_HANDLER) {
        c->broken |= c->req.long_poll;
    } else if (!has_kept(c)) {
        tell_gone(&c->req);
        http_conn_enter(c, HTTP_CONN_FINISHING);
    }
}

/* True when the connection is over. A client that is still sending would be reset by a close and might lose
 * the reply, so it is read out for a while first. */
static bool finish(struct http_conn *c)
{
    if (http_conn_pending(c) > 0)
        return false;
    if (c->state == HTTP_CONN_LINGERING)
        return c->eof;
    if (c->eof || (!c->unread && !has_kept(c)))
        return true;
    http_conn_enter(c, HTTP_CONN_LINGERING);
    return shutdown(c->fd, SHUT_WR) < 0;
}

static bool is_over(struct http_conn *c)
{
    note_eof(c);
    if (c->broken || c->reset)
        return true;
    if (c->state == HTTP_CONN_IDLE && c->server->draining && !has_kept(c))
        http_conn_enter(c, HTTP_CONN_FINISHING);
    return c->state >= HTTP_CONN_FINISHING && finish(c);
}

static void tell_drained(struct http_conn *c)
{
    struct http_request *req = &c->req;
    if (!req->above_low || !req->on_drain || http_conn_pending(c) > req->drain_low)
        return;
    req->above_low = false;
    req->on_drain(req, req->on_drain_arg);
    if (req->live && req->reply == HTTP_REPLY_DONE)
        end_request(c);
}

static void watch(struct http_conn *c)
{
    bool room = c->state >= HTTP_CONN_FINISHING || c->in.len - c->in_at < HTTP_UNPARSED_MAX;
    bool want_read = !c->eof && room;
    bool want_write = c->blocked && out_length(c) > 0;
    if (want_read != c->reading)
        want_read ? event_add(c->read_event, NULL) : event_del(c->read_event);
    c->reading = want_read;
    if (want_write && !c->writing)
        event_add(c->write_event, NULL);
    c->writing = want_write;
}

/* The reply of a whole request may wait for those of the requests that came with it. Each write to a client that sleeps
 * wakes it, which costs more than the write; once it is awake the next ones cost nothing but themselves. Not behind what
 * the socket did not take: that waits for the socket, and a turn that did not write would have it wait for ever. */
static bool may_cork(const struct http_conn *c)
{
    const struct http_server *s = c->server;
    return !s->in_scheduled && s->n_corked < HTTP_CORKED_MAX && c->state == HTTP_CONN_IDLE &&
           c->staged.len > 0 && c->staged.len <= HTTP_KEPT_BUFFER_MAX && out_length(c) == 0 && !c->eof &&
           !c->broken && !c->reset;
}

static void cork(struct http_server *s)
{
    if (s->n_corked++ == 0)
        s->corked_since = s->now;
}

/* However long the loop's turn is: not while a handler is under way, so by less than one of them may take. */
static bool corked_enough(const struct http_server *s)
{
    return s->n_corked == HTTP_CORKED_MAX ||
           (s->n_corked > 0 && s->now - s->corked_since >= HTTP_CORK_USEC_MAX);
}

static void schedule(struct http_conn *c);

/* What there was to write is written, as far as it is. */
static void settle(struct http_conn *c)
{
    struct http_server *s = c->server;
    if (!c->broken && !c->reset)
        tell_drained(c);
    if (is_over(c)) {
        http_conn_free(c);
        return;
    }
    http_memory_update(c);
    watch(c);
    c->in_turn = false;
    if ((http_conn_pending(c) > 0 && !c->writing) || (has_kept(c) && may_parse(c)))
        schedule(c);
    if (!s->in_scheduled && corked_enough(s))
        http_conn_run_scheduled(s);
}

/* What most scheduled turns are for: the reply has waited for others, and nothing else has come. False: it takes a whole
 * turn. */
static bool send_corked(struct http_conn *c)
{
    if (!c->corked || c->out_used || c->read_once_more || c->reset || c->in.len > 0 || c->server->draining)
        return false;
    size_t before = c->staged.len;
    unschedule(c);
    c->corked = false;
    write_staged(c);
    c->moved += before - http_conn_pending(c);
    if (c->blocked || c->broken)
        settle(c);
    else
        http_memory_update(c);
    return true;
}

void http_conn_turn(struct http_conn *c, struct bytes fresh)
{
    unschedule(c);
    c->in_turn = true;
    if (!c->server->in_scheduled)
        c->server->now = clock_monotonic();
    c->moved += fresh.len;
    if (c->req.live && c->req.reply == HTTP_REPLY_DONE)
        end_request(c);
    if (!c->evicted)
        take_input(c, fresh);
    c->corked = may_cork(c);
    if (c->corked)
        cork(c->server);
    else
        flush(c);
    settle(c);
}

void http_conn_read(struct http_conn *c)
{
    ssize_t n = recv(c->fd, c->server->read_buffer, HTTP_READ_SIZE, 0);
    if (n < 0 && would_block() && !c->read_once_more)
        return;
    c->read_once_more = false;
    c->eof = n == 0;
    c->broken = n < 0 && !would_block();
    http_conn_turn(c, n > 0 ? bytes_of(c->server->read_buffer, (size_t)n) : BYTES_NONE);
}

/* Turns that are scheduled while scheduled ones run wait for the loop to have looked at the sockets once, so
 * that a stream whose client is fast does not keep the others waiting. */
static void schedule(struct http_conn *c)
{
    struct http_server *s = c->server;
    if (c->scheduled)
        return;
    bool first = TAILQ_EMPTY(&s->scheduled);
    TAILQ_INSERT_TAIL(&s->scheduled, c, scheduled_link);
    c->scheduled = true;
    if (first && !s->in_scheduled)
        event_active(s->scheduled_event, EV_TIMEOUT, 1);
}

void http_conn_schedule(struct http_conn *c)
{
    if (c->in_turn)
        return;
    http_memory_update(c);
    schedule(c);
}

void http_conn_run_scheduled(struct http_server *s)
{
    static const struct timeval soon = {0, 0};
    struct http_conn *last = TAILQ_LAST(&s->scheduled, http_conn_list), *c;
    s->in_scheduled = true;
    s->now = clock_monotonic();
    s->n_corked = 0;
    while ((c = TAILQ_FIRST(&s->scheduled))) {
        if (c->read_once_more)
            http_conn_read(c);
        else if (!send_corked(c))
            http_conn_turn(c, BYTES_NONE);
        if (c == last)
            break;
    }
    s->in_scheduled = false;
    if (!TAILQ_EMPTY(&s->scheduled))
        event_add(s->scheduled_event, &soon);
}

static bool passed(usec_t since, usec_t limit, usec_t now)
{
    return limit > 0 && now - since > limit;
}

/* Nothing is counted while there is nothing to take, or nobody minds. */
static bool write_is_late(struct http_conn *c, usec_t now)
{
    uint64_t taken = http_conn_taken(c);
    if (taken != c->taken || http_conn_pending(c) == 0 || (c->req.live && c->req.patient))
        c->taken_at = now;
    c->taken = taken;
    return passed(c->taken_at, c->server->config.write_timeout, now);
}

bool http_conn_is_late(struct http_conn *c, usec_t now)
{
    const struct http_server_config *config = &c->server->config;
    if (write_is_late(c, now) || (c->over_limit && passed(c->since, LINGER_USEC_MAX, now)))
        return true;
    switch (c->state) {
    case HTTP_CONN_IDLE:
        return http_conn_pending(c) == 0 &&
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
