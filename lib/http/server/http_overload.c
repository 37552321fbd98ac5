/* Connections above the limit on connections or descriptors.
 *
 * A route may replace the 503 (on_overload), so the server reads the request before it refuses. It reads up to OVER_LIMIT_MAX
 * such connections at a time, each for two seconds at most. Once the head is complete, http_route.c refuses the request, and
 * the connection is closed. At OVER_LIMIT_MAX, a new connection replaces the oldest connection that has sent nothing. If all
 * of them have sent something, the server reads the new connection once, answers and closes it. */
#include "http/server/http_internal.h"
#include "http/http_socket.h"

#include <stdio.h>
#include <sys/socket.h>

#define OVER_LIMIT_MAX 64

void http_overload_timeout(struct http_conn *c)
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

/* Reads first: closing a socket with unread input would reset the connection and discard the reply. */
static void answer_and_close(struct http_conn *c)
{
    if (!http_conn_read(c))
        return;
    http_overload_timeout(c);
    http_conn_free(c);
}

void http_overload_accept(struct http_server *s, int fd, const char *peer, bool is_public, bool has_room)
{
    struct http_conn *silent = NULL;
    bool full = s->n_over_limit >= OVER_LIMIT_MAX;
    stats_add(s->refused, 1);
    if (has_room && full) { /* connections above the limit are new, so they are near the end of the list */
        size_t left = s->n_over_limit;
        for (struct http_conn *c = TAILQ_LAST(&s->conns, http_conn_list); c && left > 0;
             c = TAILQ_PREV(c, http_conn_list, link)) {
            left -= c->over_limit;
            if (c->over_limit && c->moved == 0)
                silent = c;
        }
        if (silent)
            answer_and_close(silent);
    }
    http_socket_configure(fd);
    struct http_conn *c = http_conn_new(s, fd, peer);
    c->over_limit = true;
    c->is_public = is_public;
    s->n_over_limit++;
    if (!has_room || (full && !silent))
        answer_and_close(c);
}
