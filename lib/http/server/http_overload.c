/* Who comes when there are too many connections, and event streams that are to come back.
 *
 * What a connection past the limit gets depends on its request, so up to OVER_LIMIT_MAX of them are read like any other: a
 * head and no body, for LINGER_USEC_MAX at most, and then it closes. Each is refused when its head is there (http_route.c), and
 * costs what a head may take until then. For one more the oldest gives way that has sent nothing yet, so that silence takes no
 * place from others; when there is none, it is itself told at once. Who is told at once is told by what has come, and keeps nothing.
 */
#include "http/server/http_internal.h"
#include "http/http_socket.h"

#include <stdio.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define OVER_LIMIT_MAX 64
#define EVENTS_TYPE "text/event-stream"
#define COME_BACK "retry: 1000\n\n"

static bool names_events(struct bytes text)
{
    static const struct bytes type = BYTES_LITERAL(EVENTS_TYPE);
    for (size_t i = 0; i + type.len <= text.len; i++)
        if (strncasecmp(text.ptr + i, type.ptr, type.len) == 0)
            return true;
    return false;
}

bool http_wants_events(const struct http_request *req)
{
    return (req->endpoint->row->flags & HTTP_ROUTE_EVENTS) && names_events(http_header(req, "Accept"));
}

void http_come_back(struct http_request *req)
{
    http_add_header_text(req, "Cache-Control", "no-store");
    http_add_header_text(req, "Access-Control-Allow-Origin", "*");
    http_reply(req, 200, EVENTS_TYPE, BYTES_LITERAL(COME_BACK));
}

/* As http_come_back says it. */
static const char come_back[] = "HTTP/1.1 200 OK\r\nContent-Type: " EVENTS_TYPE
                                "\r\nCache-Control: no-store\r\nAccess-Control-Allow-Origin: *\r\n"
                                "Connection: close\r\n\r\n" COME_BACK;

static struct bytes write_refusal(char *room, size_t size)
{
    static const char body[] = "{\"type\":\"about:blank\",\"title\":\"Service Unavailable\",\"status\":503,"
                               "\"code\":\"overloaded\",\"detail\":\"too many connections\"}\n";
    int n = snprintf(room, size,
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\nContent-Length: "
        "%zu\r\n"
        "Retry-After: 1\r\nConnection: close\r\n\r\n%s",
        sizeof body - 1, body);
    return bytes_of(room, (size_t)n);
}

/* By the beginning of a request: whether it is one that http_wants_events. */
static bool begins_events(const struct http_server *s, struct bytes head)
{
    for (const struct http_route *row = s->config.routes; row && row->path; row++) {
        size_t len = strlen(row->path);
        if ((row->flags & HTTP_ROUTE_EVENTS) && head.len > len + 4 && memcmp(head.ptr, "GET ", 4) == 0 &&
            memcmp(head.ptr + 4, row->path, len) == 0 &&
            (head.ptr[4 + len] == '?' || head.ptr[4 + len] == ' '))
            return names_events(head);
    }
    return false;
}

/* What has come is read, or closing would take the reply back. */
static void tell_at_once(struct http_server *s, int fd)
{
    char room[512];
    ssize_t n = recv(fd, s->read_buffer, HTTP_READ_SIZE, 0);
    struct bytes text = write_refusal(room, sizeof room);
    if (n > 0 && begins_events(s, bytes_of(s->read_buffer, (size_t)n)))
        text = bytes_of(come_back, sizeof come_back - 1);
    (void)send(fd, text.ptr, text.len, MSG_NOSIGNAL);
}

/* They have all come in the last seconds, so they are near the end of the list. */
static struct http_conn *find_oldest_silent(const struct http_server *s)
{
    struct http_conn *c = TAILQ_LAST(&s->conns, http_conn_list), *oldest = NULL;
    for (size_t left = s->n_over_limit; c && left > 0; c = TAILQ_PREV(c, http_conn_list, link)) {
        left -= c->over_limit;
        if (c->over_limit && c->moved == 0)
            oldest = c;
    }
    return oldest;
}

static bool make_place(struct http_server *s)
{
    if (s->n_over_limit < OVER_LIMIT_MAX)
        return true;
    struct http_conn *c = find_oldest_silent(s);
    if (!c)
        return false;
    tell_at_once(s, c->fd);
    http_conn_free(c);
    return true;
}

void http_overload_accept(struct http_server *s, int fd, const char *peer, bool has_room)
{
    stats_add(s->refused, 1);
    if (!has_room || !make_place(s)) {
        tell_at_once(s, fd);
        close(fd);
        return;
    }
    http_socket_configure(fd);
    http_conn_new(s, fd, peer)->over_limit = true;
    s->n_over_limit++;
}

void http_overload_timeout(struct http_conn *c)
{
    char room[512];
    struct bytes text = write_refusal(room, sizeof room);
    if (c->queued == 0)
        (void)send(c->fd, text.ptr, text.len, MSG_NOSIGNAL);
}
