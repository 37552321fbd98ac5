/* Connections past the limit on connections or descriptors.
 *
 * The reply depends on the request, so up to OVER_LIMIT_MAX of these connections are read like any other, but for the time
 * limit on lingering only. Each is refused once its head is complete (http_route.c) and then closed. When another
 * connection comes, the oldest that has sent nothing is closed to make room: silence must not keep others out. If there
 * is none, the new connection is read once, answered by what has come, and closed. */
#include "http/server/http_internal.h"
#include "http/http_socket.h"

#include <stdio.h>
#include <sys/socket.h>

#define OVER_LIMIT_MAX 64

static void send_refusal(struct http_conn *c)
{
    static const char body[] = "{\"type\":\"about:blank\",\"title\":\"Service Unavailable\",\"status\":503,"
                               "\"code\":\"overloaded\",\"detail\":\"too many connections\"}\n";
    char text[512];
    int n = snprintf(text, sizeof text,
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\n"
        "Content-Length: %zu\r\nRetry-After: 1\r\nConnection: close\r\n\r\n%s",
        sizeof body - 1, body);
    if (c->queued == 0)
        (void)send(c->fd, text, (size_t)n, MSG_NOSIGNAL);
}

/* Reading first also keeps close() from resetting the connection, which would discard the reply. */
static void answer_and_close(struct http_conn *c)
{
    if (!http_conn_read(c))
        return;
    send_refusal(c);
    http_conn_free(c);
}

/* Those past the limit came in the last seconds, so they are near the end of the list. */
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

void http_overload_accept(struct http_server *s, int fd, const char *peer, bool has_room)
{
    struct http_conn *silent = NULL;
    bool full = s->n_over_limit >= OVER_LIMIT_MAX;
    stats_add(s->refused, 1);
    if (has_room && full && (silent = find_oldest_silent(s)))
        answer_and_close(silent);
    http_socket_configure(fd);
    struct http_conn *c = http_conn_new(s, fd, peer);
    c->over_limit = true;
    s->n_over_limit++;
    if (!has_room || (full && !silent))
        answer_and_close(c);
}

void http_overload_timeout(struct http_conn *c)
{
    send_refusal(c);
}
