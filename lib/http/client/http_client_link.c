/* One connection of a client, see http_client_internal.h. */
#include "http/client/http_client_internal.h"
#include "http/http_socket.h"
#include "base/errno_class.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

/* Ends the call before the end of its reply, and closes the connection. */
static void fail(struct http_link *l, enum http_client_result result)
{
    call_end(l->call, result, false);
}

/* The connection ended. Resends a call with may_resend if the server closed a pooled connection before it sent a reply. */
static void lost(struct http_link *l)
{
    if (l->used && !l->received && l->call->may_resend)
        call_requeue(l->call);
    else
        fail(l, HTTP_CLIENT_RESET);
}

static struct http_call *call_of(http_parser *parser)
{
    struct http_link *l = parser->data;
    return l->call;
}

static int on_message_begin(http_parser *parser)
{
    struct http_call *call = call_of(parser);
    buf_clear(&call->head);
    call->in_value = call->head_whole = false;
    return 0;
}

static int append_head(struct http_call *call, const char *at, size_t n)
{
    if (call->head.len + n + 2 > HTTP_CLIENT_HEAD_MAX || (n > 0 && memchr(at, 0, n)))
        return -1;
    buf_append(&call->head, at, n);
    return 0;
}

/* The next name ends the value before it. Drops trailers. */
static int on_header_field(http_parser *parser, const char *at, size_t n)
{
    struct http_call *call = call_of(parser);
    if (parser->flags & F_TRAILING)
        return 0;
    if (call->in_value)
        buf_append_char(&call->head, '\0');
    call->in_value = false;
    return append_head(call, at, n);
}

static int on_header_value(http_parser *parser, const char *at, size_t n)
{
    struct http_call *call = call_of(parser);
    if (parser->flags & F_TRAILING)
        return 0;
    if (!call->in_value)
        buf_append_char(&call->head, '\0');
    call->in_value = true;
    return append_head(call, at, n);
}

static int on_headers_complete(http_parser *parser)
{
    struct http_link *l = parser->data;
    struct http_call *call = l->call;
    if (call->in_value)
        buf_append_char(&call->head, '\0');
    call->head_whole = true;
    if (parser->status_code == 101)
        return -1;
    if (parser->status_code < 200)
        return 0;
    call->status = parser->status_code;
    call->streamed = call->on_body && call->status < 300;
    if (call->streamed)
        link_set_timer(l, l->client->idle_timeout);
    if (call->on_headers && call->status < 300) {
        struct http_reply_view view = {.status = call->status, .body = buf_bytes(&call->body), .call = call};
        call->on_headers(&view, call->arg);
    }
    if (l->state == HTTP_LINK_DEAD)
        return -1;
    return call->is_head ? 1 : 0;
}

static int on_body(http_parser *parser, const char *at, size_t n)
{
    struct http_link *l = parser->data;
    struct http_call *call = l->call;
    if (call->streamed) {
        if (!call->paused)
            link_set_timer(l, l->client->idle_timeout);
        call->on_body(call, bytes_of(at, n), call->arg);
        return l->state == HTTP_LINK_DEAD ? -1 : 0;
    }
    size_t room = l->client->max_reply - call->body.len;
    buf_append(&call->body, at, n < room ? n : room);
    if (n <= room)
        return 0;
    fail(l, l->client->cut_reply ? HTTP_CLIENT_OK : HTTP_CLIENT_TOO_LARGE);
    return -1;
}

static int on_message_complete(http_parser *parser)
{
    struct http_link *l = parser->data;
    l->complete = parser->status_code >= 200;
    if (l->complete)
        http_parser_pause(parser, 1);
    return 0;
}

static const http_parser_settings settings = {
    .on_message_begin = on_message_begin,
    .on_header_field = on_header_field,
    .on_header_value = on_header_value,
    .on_headers_complete = on_headers_complete,
    .on_body = on_body,
    .on_message_complete = on_message_complete,
};

static bool is_sent(const struct http_link *l)
{
    return l->sent == l->call->request.len + l->call->lent.len;
}

/* Parses up to the end of the reply or a pause. False when the call is over or the link closed. */
static bool parse(struct http_link *l, const char *p, size_t n)
{
    size_t used = http_parser_execute(&l->parser, &settings, p, n);
    if (l->state == HTTP_LINK_DEAD)
        return false;
    enum http_errno e = HTTP_PARSER_ERRNO(&l->parser);
    if (e == HPE_PAUSED) {
        http_parser_pause(&l->parser, 0);
        e = HPE_OK;
    }
    if (e != HPE_OK || l->parser.upgrade) {
        fail(l, n == 0 ? HTTP_CLIENT_RESET : HTTP_CLIENT_BAD_REPLY);
        return false;
    }
    if (l->call->paused) {
        buf_append(&l->kept, p + used, n - used);
        return false;
    }
    if (!l->complete)
        return true;
    /* Unexpected bytes behind the reply close the connection. */
    bool keep = http_should_keep_alive(&l->parser) && used == n && !l->eof && !l->write_failed && is_sent(l);
    call_end(l->call, HTTP_CLIENT_OK, keep);
    return false;
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    (void)what;
    struct http_link *l = arg;
    struct http_client *c = l->client;
    ssize_t n = read(fd, c->read_buffer, HTTP_CLIENT_READ_SIZE);
    if (n < 0 && errno_is_retry(errno))
        return;
    client_enter(c);
    if (l->state == HTTP_LINK_POOLED) {
        link_close(l);
    } else if (n < 0) {
        lost(l);
    } else if (n == 0) {
        l->eof = true;
        if (!l->received || parse(l, NULL, 0))
            lost(l);
    } else {
        l->received = true;
        parse(l, c->read_buffer, (size_t)n);
    }
    client_leave(c);
}

/* Sends the rest of head and body in one call. A server may reply and close before it has read the whole request, as with 413.
 * So a failed write only ends the writing; the reply decides. */
static void write_request(struct http_link *l)
{
    const struct buf *request = &l->call->request;
    struct bytes lent = l->call->lent;
    size_t of_request = l->sent < request->len ? l->sent : request->len, of_lent = l->sent - of_request;
    struct iovec parts[2] = {{request->ptr + of_request, request->len - of_request}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 1};
    if (lent.len > 0)
        parts[message.msg_iovlen++] =
            (struct iovec){(char *)(uintptr_t)lent.ptr + of_lent, lent.len - of_lent};
    ssize_t n = sendmsg(l->fd, &message, MSG_NOSIGNAL);
    if (n >= 0)
        l->sent += (size_t)n;
    else if (!errno_is_retry(errno))
        l->write_failed = true;
    if (!is_sent(l) && !l->write_failed)
        event_add(l->write_event, NULL);
}

static void begin(struct http_link *l)
{
    struct http_call *call = l->call;
    l->state = HTTP_LINK_BUSY;
    l->sent = 0;
    l->received = l->complete = l->eof = l->write_failed = false;
    buf_clear(&l->kept);
    http_parser_init(&l->parser, HTTP_RESPONSE);
    l->parser.data = l;
    link_set_timer(l, call->timeout);
    if (!call->paused)
        event_add(l->read_event, NULL);
    write_request(l);
}

static bool connect_next(struct http_link *l);

static void refused(struct http_link *l)
{
    struct http_client *c = l->client;
    link_drop_socket(l);
    if (l->address && (l->address = l->address->ai_next) && connect_next(l))
        return;
    if (c->resolved == l->addresses)
        addresses_release(&c->resolved);
    fail(l, HTTP_CLIENT_REFUSED);
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
    (void)what;
    struct http_link *l = arg;
    struct http_client *c = l->client;
    client_enter(c);
    if (l->state == HTTP_LINK_BUSY) {
        write_request(l);
    } else {
        int error = 0;
        socklen_t len = sizeof error;
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) == 0 && error == 0)
            begin(l);
        else
            refused(l);
    }
    client_leave(c);
}

static void on_resume(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct http_link *l = arg;
    struct http_client *c = l->client;
    struct buf kept = l->kept;
    if (l->state != HTTP_LINK_BUSY || l->call->paused)
        return;
    client_enter(c);
    l->kept = (struct buf){0};
    event_add(l->read_event, NULL);
    if (kept.len > 0)
        parse(l, kept.ptr, kept.len);
    buf_free(&kept);
    client_leave(c);
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct http_link *l = arg;
    struct http_client *c = l->client;
    client_enter(c);
    if (l->state == HTTP_LINK_CONNECTING)
        refused(l);
    else if (l->call)
        fail(l, HTTP_CLIENT_TIMEOUT);
    client_leave(c);
}

static bool connect_to(struct http_link *l, const struct sockaddr *to, socklen_t len)
{
    l->fd = socket(to->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (l->fd < 0)
        return false;
    http_socket_configure(l->fd);
    if (connect(l->fd, to, len) < 0 && errno != EINPROGRESS) {
        link_drop_socket(l);
        return false;
    }
    l->read_event = event_new(l->client->base, l->fd, EV_READ | EV_PERSIST, on_readable, l);
    l->write_event = event_new(l->client->base, l->fd, EV_WRITE, on_writable, l);
    event_add(l->write_event, NULL);
    link_set_timer(l, l->client->connect_timeout);
    return true;
}

/* Tries the addresses from l->address on. */
static bool connect_next(struct http_link *l)
{
    for (; l->address; l->address = l->address->ai_next) {
        if (connect_to(l, l->address->ai_addr, l->address->ai_addrlen))
            return true;
    }
    return false;
}

void link_open(struct http_client *c, struct http_call *call)
{
    struct http_link *l = mem_zalloc(sizeof *l);
    l->client = c;
    l->fd = -1;
    l->state = HTTP_LINK_CONNECTING;
    l->timer = event_new(c->base, -1, 0, on_timer, l);
    l->resume_event = event_new(c->base, -1, 0, on_resume, l);
    l->call = call;
    call->link = l;
    TAILQ_INSERT_TAIL(&c->links, l, entry);
    c->n_links++;
    bool trying = false;
    if (c->address.is_unix) {
        struct sockaddr_un to = {.sun_family = AF_UNIX};
        memcpy(
            to.sun_path, c->address.host, sizeof to.sun_path - 1); /* url_address_parse checked the length */
        trying = connect_to(l, (const struct sockaddr *)&to, sizeof to);
    } else {
        char port[16];
        const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
        struct addrinfo *found;
        snprintf(port, sizeof port, "%d", c->address.port);
        if (!c->resolved && getaddrinfo(c->address.host, port, &hints, &found) == 0) {
            c->resolved = mem_alloc(sizeof *c->resolved);
            *c->resolved = (struct http_addresses){.first = found, .users = 1};
        }
        if (c->resolved) {
            l->addresses = c->resolved;
            l->addresses->users++;
            l->address = l->addresses->first;
            trying = connect_next(l);
        }
    }
    if (!trying)
        refused(l);
}

bool link_carry(struct http_link *l, struct http_call *call)
{
    char byte;
    if (recv(l->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || !errno_is_retry(errno)) {
        link_close(l);
        return false;
    }
    l->call = call;
    call->link = l;
    l->used = true;
    begin(l);
    return true;
}

void link_pause(struct http_link *l)
{
    if (l->state != HTTP_LINK_BUSY)
        return;
    http_parser_pause(&l->parser, 1);
    event_del(l->read_event);
    if (l->call->streamed)
        event_del(l->timer);
}

/* Parses kept bytes from the loop, because http_call_resume must not call on_body. */
void link_resume(struct http_link *l)
{
    if (l->state != HTTP_LINK_BUSY)
        return;
    if (HTTP_PARSER_ERRNO(&l->parser) == HPE_PAUSED)
        http_parser_pause(&l->parser, 0);
    if (l->call->streamed)
        link_set_timer(l, l->client->idle_timeout);
    event_active(l->resume_event, EV_TIMEOUT, 1);
}
