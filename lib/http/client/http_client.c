/* A link is a connection to the server. A link carries one call at a time. Between calls the link is in the pool, and
 * the client watches the link's socket to notice when the server closes the connection. A callback may cancel its own
 * call or free the client while the client's functions are on the stack. Cancelling and freeing therefore only mark
 * links and the client as dead. client_leave frees dead objects when the stack has no function of the client.
 *
 * Parts of the file: end of calls and links; life of a connection; queue of calls and public functions. */
#include "http/client/http_client.h"
#include "http/http_socket.h"
#include "base/errno_class.h"
#include "base/url.h"

#include <assert.h>
#include <errno.h>
#include <event2/event.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <http_parser.h>

#define DEFAULT_READ_SIZE ((size_t)512 * 1024)
#define HEAD_MAX (64 * 1024)
#define DEFAULT_MAX_REPLY ((size_t)64 << 20)
#define DEFAULT_CONNECT_TIMEOUT (5 * USEC_PER_SEC)
#define DEFAULT_TIMEOUT (30 * USEC_PER_SEC)

struct http_call {
    TAILQ_ENTRY(http_call) entry; /* in the client's queue while the call waits */
    struct http_client *client;
    struct http_link *link; /* NULL while the call waits */
    bool ended;

    struct buf request; /* head of the request, and its body unless the body is lent */
    struct bytes lent;  /* body of the request, if lent */
    bool is_head, may_resend;
    usec_t timeout, sent_at;
    void *arg;
    void (*on_headers)(const struct http_reply_view *, void *);
    void (*on_body)(struct http_call *, struct bytes, void *);
    void (*on_done)(enum http_client_result, const struct http_reply_view *, void *);

    int status;
    bool streamed, paused;
    struct buf head; /* headers of the reply: NAME \0 VALUE \0 ... */
    bool in_value, head_whole;
    struct buf body;
};
TAILQ_HEAD(http_call_list, http_call);

enum http_link_state {
    HTTP_LINK_CONNECTING,
    HTTP_LINK_POOLED,
    HTTP_LINK_BUSY,
    HTTP_LINK_DEAD,
};

/* The addresses of the host. If no address accepts a connection, the client drops the list and resolves the name
 * again for the next connection. A link that is still connecting has its own reference to the list. */
struct http_addresses {
    struct addrinfo *first;
    size_t users;
};

struct http_link {
    TAILQ_ENTRY(http_link) entry;
    struct http_client *client;
    struct http_call *call;
    enum http_link_state state;
    int fd;
    struct http_addresses *addresses;
    const struct addrinfo *address; /* address of the current attempt; NULL for a Unix socket */
    struct event *read_event, *write_event, *timer, *resume_event;
    bool used;     /* the link has carried a call before */
    bool received; /* a byte of the reply has arrived */
    bool complete, eof, write_failed;
    size_t sent; /* number of bytes sent of call->request and call->lent */
    http_parser parser;
    struct buf kept; /* bytes received while the call is paused */
};
TAILQ_HEAD(http_link_list, http_link);

struct http_client {
    struct event_base *base;
    struct url_address address;
    struct http_addresses *resolved; /* addresses of the host; NULL: not resolved yet */
    struct buf host_lines;           /* Host and Authorization */
    int max_connections;
    size_t read_size, max_reply;
    bool cut_reply;
    usec_t connect_timeout, timeout, idle_timeout;
    usec_t heard; /* see http_client_heard */
    struct http_call_list waiting;
    struct http_link_list links, dead;
    size_t n_links;
    struct event *start_event;
    char *read_buffer;
    int depth;
    bool freed;
};

/* Sets the link's timer; `after` 0 stops the timer. libevent would count from the beginning of the loop's turn, so a timer
 * set late in a long turn of an overloaded daemon would expire before the reply could be read. */
static void link_set_timer(struct http_link *l, usec_t after)
{
    struct timeval tv = {.tv_sec = after / USEC_PER_SEC, .tv_usec = after % USEC_PER_SEC};
    if (after <= 0) {
        event_del(l->timer);
        return;
    }
    event_base_update_cache_time(l->client->base);
    event_add(l->timer, &tv);
}

static void link_drop_socket(struct http_link *l)
{
    if (l->read_event)
        event_free(l->read_event);
    if (l->write_event)
        event_free(l->write_event);
    l->read_event = l->write_event = NULL;
    if (l->fd >= 0)
        close(l->fd);
    l->fd = -1;
}

/* Releases the reference *a, which may be NULL, and sets *a to NULL. */
static void addresses_release(struct http_addresses **a)
{
    if (*a && --(*a)->users == 0) {
        freeaddrinfo((*a)->first);
        free(*a);
    }
    *a = NULL;
}

static void client_enter(struct http_client *c)
{
    c->depth++;
}

static void client_leave(struct http_client *c)
{
    struct http_link *l;
    if (--c->depth > 0)
        return;
    while ((l = TAILQ_FIRST(&c->dead))) {
        TAILQ_REMOVE(&c->dead, l, entry);
        addresses_release(&l->addresses);
        event_free(l->timer);
        event_free(l->resume_event);
        buf_free(&l->kept);
        free(l);
    }
    if (!c->freed)
        return;
    event_free(c->start_event);
    addresses_release(&c->resolved);
    buf_free(&c->host_lines);
    free(c->read_buffer);
    free(c);
}

/* Asks the event loop to start the waiting calls. */
static void client_start_soon(struct http_client *c)
{
    if (!c->freed && !TAILQ_EMPTY(&c->waiting))
        event_active(c->start_event, EV_TIMEOUT, 1);
}

static void link_close(struct http_link *l)
{
    struct http_client *c = l->client;
    assert(l->state != HTTP_LINK_DEAD);
    l->state = HTTP_LINK_DEAD;
    l->call = NULL;
    event_del(l->timer);
    event_del(l->resume_event);
    link_drop_socket(l);
    TAILQ_REMOVE(&c->links, l, entry);
    c->n_links--;
    TAILQ_INSERT_TAIL(&c->dead, l, entry);
    client_start_soon(c);
}

/* Calls on_done and frees the call. The call's link returns to the pool if `keep` is true; if not, the link is closed.
 *
 * The call leaves its link or the queue before on_done runs, because on_done may start calls or free the client. */
static void call_end(struct http_call *call, enum http_client_result result, bool keep)
{
    struct http_client *c = call->client;
    struct http_link *l = call->link;
    assert(!call->ended);
    call->ended = true;
    if (!l) {
        TAILQ_REMOVE(&c->waiting, call, entry);
    } else if (keep) {
        l->state = HTTP_LINK_POOLED;
        l->call = NULL;
        event_del(l->timer);
        event_del(l->write_event);
    } else {
        link_close(l);
    }
    call->link = NULL;
    client_start_soon(c);
    struct http_reply_view view = {.status = call->status, .body = buf_bytes(&call->body), .call = call};
    if (call->on_done)
        call->on_done(result, &view, call->arg);
    buf_free(&call->request);
    buf_free(&call->head);
    buf_free(&call->body);
    free(call);
}

/* Ends a call whose reply is incomplete, and closes the connection. */
static void fail(struct http_link *l, enum http_client_result result)
{
    call_end(l->call, result, false);
}

/* Handles the end of a connection. If the server closed a pooled connection before any byte of a reply, a call that may
 * be resent returns to the queue. Any other call fails. */
static void lost(struct http_link *l)
{
    struct http_call *call = l->call;
    if (!l->used || l->received || !call->may_resend) {
        fail(l, HTTP_CLIENT_RESET);
        return;
    }
    link_close(l);
    call->link = NULL;
    TAILQ_INSERT_HEAD(&call->client->waiting, call, entry);
    client_start_soon(call->client);
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

/* A NUL follows each name and value in call->head, so the client refuses a reply with a NUL in its headers. */
static int append_head(struct http_call *call, const char *at, size_t n)
{
    if (call->head.len + n + 2 > HEAD_MAX || (n > 0 && memchr(at, '\0', n)))
        return -1;
    buf_append(&call->head, at, n);
    return 0;
}

/* The beginning of a header's name ends the previous header's value. The client ignores trailers. */
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

/* Parses until the reply ends or the call is paused. Returns false after a pause or the end of call or link. */
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
    /* If further bytes follow the reply, the client does not reuse the connection. */
    bool keep = http_should_keep_alive(&l->parser) && used == n && !l->eof && !l->write_failed && is_sent(l);
    call_end(l->call, HTTP_CLIENT_OK, keep);
    return false;
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    (void)what;
    struct http_link *l = arg;
    struct http_client *c = l->client;
    ssize_t n = read(fd, c->read_buffer, c->read_size);
    if (n < 0 && errno_is_retry(errno))
        return;
    c->heard = clock_monotonic();
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

/* Sends the rest of the request's head and body in one system call. A server may reply (for example with 413) and close
 * the connection before it has read the whole request. After a failed write, the client therefore stops sending, but
 * still waits for the reply. */
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
    call->sent_at = clock_monotonic();
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

/* Tries to connect to l->address, and then to the addresses after l->address. */
static bool connect_next(struct http_link *l)
{
    for (; l->address; l->address = l->address->ai_next) {
        if (connect_to(l, l->address->ai_addr, l->address->ai_addrlen))
            return true;
    }
    return false;
}

/* Opens a connection for a call. */
static void link_open(struct http_client *c, struct http_call *call)
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
        memcpy(to.sun_path, c->address.host,
            sizeof to.sun_path - 1); /* url_address_parse has checked the length */
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

const char *http_client_strerror(enum http_client_result r)
{
    switch (r) {
    case HTTP_CLIENT_OK:
        return "ok";
    case HTTP_CLIENT_REFUSED:
        return "no connection";
    case HTTP_CLIENT_RESET:
        return "the connection ended before the reply";
    case HTTP_CLIENT_TIMEOUT:
        return "no reply in time";
    case HTTP_CLIENT_TOO_LARGE:
        return "the reply is too large";
    case HTTP_CLIENT_BAD_REPLY:
        return "the reply is malformed";
    case HTTP_CLIENT_CANCELLED:
        return "cancelled";
    }
    return "unknown result";
}

static void on_start(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct http_client *c = arg;
    struct http_call *call;
    client_enter(c);
    while (!c->freed && (call = TAILQ_FIRST(&c->waiting))) {
        struct http_link *l = TAILQ_FIRST(&c->links);
        while (l && l->state != HTTP_LINK_POOLED)
            l = TAILQ_NEXT(l, entry);
        if (!l && c->n_links >= (size_t)c->max_connections)
            break;
        char byte;
        if (l && (recv(l->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || !errno_is_retry(errno))) {
            link_close(l); /* the server has closed the link; the call still waits */
            continue;
        }
        TAILQ_REMOVE(&c->waiting, call, entry);
        if (!l) {
            link_open(c, call);
            continue;
        }
        l->call = call;
        call->link = l;
        l->used = true;
        begin(l);
    }
    client_leave(c);
}

struct http_client *http_client_new(const struct http_client_config *config)
{
    struct url_address address;
    if (url_address_parse(config->url, 80, &address) < 0)
        return NULL;
    struct http_client *c = mem_zalloc(sizeof *c);
    c->base = config->base;
    c->address = address;
    c->max_connections = config->max_connections > 0 ? config->max_connections : 1;
    c->read_size = config->read_size ? config->read_size : DEFAULT_READ_SIZE;
    c->max_reply = config->max_reply ? config->max_reply : DEFAULT_MAX_REPLY;
    c->cut_reply = config->cut_reply;
    c->connect_timeout = config->connect_timeout ? config->connect_timeout : DEFAULT_CONNECT_TIMEOUT;
    c->timeout = config->timeout ? config->timeout : DEFAULT_TIMEOUT;
    c->idle_timeout = config->idle_timeout;
    TAILQ_INIT(&c->waiting);
    TAILQ_INIT(&c->links);
    TAILQ_INIT(&c->dead);
    c->start_event = event_new(c->base, -1, 0, on_start, c);
    c->read_buffer = mem_alloc(c->read_size);
    if (config->host)
        buf_printf(&c->host_lines, "Host: %s\r\n", config->host);
    else if (address.is_unix)
        buf_append_str(&c->host_lines, "Host: localhost\r\n");
    else
        buf_printf(&c->host_lines, strchr(address.host, ':') ? "Host: [%s]:%d\r\n" : "Host: %s:%d\r\n",
            address.host, address.port);
    if (config->auth_token)
        buf_printf(&c->host_lines, "Authorization: Bearer %s\r\n", config->auth_token);
    return c;
}

struct bytes http_client_host(const struct http_client *c)
{
    size_t begin = strlen("Host: ");
    const char *end = memchr(c->host_lines.ptr, '\r', c->host_lines.len);
    return bytes_of(c->host_lines.ptr + begin, (size_t)(end - c->host_lines.ptr) - begin);
}

void http_client_free(struct http_client **cp)
{
    struct http_client *c = *cp;
    struct http_call *call;
    struct http_link *l;
    if (!c)
        return;
    *cp = NULL;
    c->freed = true;
    client_enter(c);
    while ((call = TAILQ_FIRST(&c->waiting)))
        call_end(call, HTTP_CLIENT_CANCELLED, false);
    while ((l = TAILQ_FIRST(&c->links))) {
        if (l->call)
            call_end(l->call, HTTP_CLIENT_CANCELLED, false);
        else
            link_close(l);
    }
    client_leave(c);
}

struct http_call *http_client_request(struct http_client *c, const struct http_call_spec *spec)
{
    assert(!c->freed);
    struct http_call *call = mem_zalloc(sizeof *call);
    struct buf *out = &call->request;
    call->client = c;
    call->is_head = strcmp(spec->method, "HEAD") == 0;
    call->may_resend = spec->may_resend;
    call->timeout = spec->timeout ? spec->timeout : c->timeout;
    call->arg = spec->arg;
    call->on_headers = spec->on_headers;
    call->on_body = spec->on_body;
    call->on_done = spec->on_done;
    buf_reserve(out, (spec->body_is_lent ? 0 : spec->body.len) + 512);
    buf_printf(out, "%s %s HTTP/1.1\r\n", spec->method, spec->target);
    buf_append_bytes(out, buf_bytes(&c->host_lines));
    if (spec->content_type)
        buf_printf(out, "Content-Type: %s\r\n", spec->content_type);
    if (spec->body.len > 0 || strcmp(spec->method, "POST") == 0 || strcmp(spec->method, "PUT") == 0)
        buf_printf(out, "Content-Length: %zu\r\n", spec->body.len);
    if (spec->headers)
        buf_append_str(out, spec->headers);
    buf_append_str(out, "\r\n");
    if (spec->body_is_lent)
        call->lent = spec->body;
    else
        buf_append_bytes(out, spec->body);
    TAILQ_INSERT_TAIL(&c->waiting, call, entry);
    client_start_soon(c);
    return call;
}

usec_t http_client_heard(const struct http_client *c)
{
    return c->heard;
}

usec_t http_call_sent_at(const struct http_call *call)
{
    return call->sent_at;
}

void http_call_cancel(struct http_call *call)
{
    struct http_client *c = call->client;
    client_enter(c);
    call_end(call, HTTP_CLIENT_CANCELLED, false);
    client_leave(c);
}

bool http_call_is_waiting(const struct http_call *call)
{
    return !call->link;
}

void http_call_set_target(struct http_call *call, const char *target)
{
    struct buf old = call->request;
    assert(http_call_is_waiting(call));
    const char *method_end = memchr(old.ptr, ' ', old.len);
    const char *target_end = memchr(method_end + 1, ' ', old.len - (size_t)(method_end + 1 - old.ptr));
    call->request = (struct buf){0};
    buf_append(&call->request, old.ptr, (size_t)(method_end + 1 - old.ptr));
    buf_append_str(&call->request, target);
    buf_append(&call->request, target_end, (size_t)(old.ptr + old.len - target_end));
    buf_free(&old);
}

void http_call_pause(struct http_call *call)
{
    struct http_link *l = call->link;
    if (call->paused)
        return;
    call->paused = true;
    if (!l || l->state != HTTP_LINK_BUSY)
        return;
    http_parser_pause(&l->parser, 1);
    event_del(l->read_event);
    if (call->streamed)
        event_del(l->timer);
}

void http_call_resume(struct http_call *call)
{
    struct http_link *l = call->link;
    if (!call->paused)
        return;
    call->paused = false;
    if (!l || l->state != HTTP_LINK_BUSY)
        return;
    if (HTTP_PARSER_ERRNO(&l->parser) == HPE_PAUSED)
        http_parser_pause(&l->parser, 0);
    if (call->streamed)
        link_set_timer(l, l->client->idle_timeout);
    /* The event loop parses the bytes that arrived during the pause, because http_call_resume must not call on_body. */
    event_active(l->resume_event, EV_TIMEOUT, 1);
}

const char *http_reply_header(const struct http_reply_view *r, const char *name)
{
    const struct buf *head = &r->call->head;
    const char *p = head->ptr, *end = head->ptr + head->len;
    while (r->call->head_whole && p < end) {
        const char *value = p + strlen(p) + 1;
        if (strcasecmp(p, name) == 0)
            return value;
        p = value + strlen(value) + 1;
    }
    return "";
}

struct fetch {
    enum http_client_result result;
    bool done;
    int *status;
    struct buf *body;
};

static void fetch_done(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct fetch *f = arg;
    f->result = result;
    f->done = true;
    if (f->status)
        *f->status = reply->status;
    if (f->body)
        buf_append_bytes(f->body, reply->body);
}

enum http_client_result http_client_fetch(
    struct http_client *c, const struct http_call_spec *spec, int *status, struct buf *body)
{
    struct fetch f = {.status = status, .body = body};
    struct http_call_spec mine = *spec;
    mine.arg = &f;
    mine.on_done = fetch_done;
    struct http_call *call = http_client_request(c, &mine);
    while (!f.done) {
        bool ended = event_base_loop(c->base, EVLOOP_ONCE) != 0 || event_base_got_break(c->base);
        if (ended && !f.done)
            http_call_cancel(call);
    }
    return f.result;
}
