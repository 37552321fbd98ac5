/* The server: listening sockets, accepting, connections above the limit, time limits and drain. */
#include "http/server/http_internal.h"
#include "http/http_socket.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <event2/util.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/errno_class.h"
#include "base/log.h"

#define ACCEPT_BATCH_MAX 64
#define ACCEPT_PAUSE_USEC 100000
#define SWEEP_MIN (10 * USEC_PER_MSEC)
#define SWEEP_MAX USEC_PER_SEC
#define OVER_LIMIT_MAX 64
#define RESERVE_MAX 256 /* maximum number of descriptors reserved for the daemon's own files */

struct http_listener {
    struct http_listener *next;
    struct http_server *server;
    int fd;
    bool is_public;
    struct event *event;
};

/* Connections above max_connections, or above the limit on descriptors.
 *
 * A route may replace the 503 by another reply (on_overload), so the server must read the request before it refuses the
 * connection. The server keeps at most OVER_LIMIT_MAX connections above the limit at a time, each for at most two
 * seconds. When the head of a request is complete, http_route.c refuses the request, and the connection is closed. If
 * OVER_LIMIT_MAX connections are already above the limit, a new connection replaces the oldest of them that has sent
 * nothing. If each of them has sent bytes, the server reads once from the new connection, answers 503 and closes it. */

/* Sends a 503 to a connection from which no complete request has arrived. */
static void send_overloaded(struct http_conn *c)
{
    static const char body[] = "{\"type\":\"about:blank\",\"title\":\"Service Unavailable\",\"status\":503,"
                               "\"code\":\"overloaded\",\"detail\":\"too many connections\",\"hint\":\"close "
                               "connections, or raise max_connections and the limit of open files, which "
                               "`millrace doctor` shows\"}\n";
    char text[640];
    int n = snprintf(text, sizeof text,
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\n"
        "Content-Length: %zu\r\nRetry-After: 1\r\nConnection: close\r\n\r\n%s",
        sizeof body - 1, body);
    if (c->queued == 0)
        (void)send(c->fd, text, (size_t)n, MSG_NOSIGNAL);
}

/* Reads from the connection before closing it. Closing a socket with unread input would reset the connection, and the
 * client would lose the reply. */
static void answer_and_close(struct http_conn *c)
{
    if (!http_conn_turn(c, true))
        return;
    send_overloaded(c);
    http_conn_free(c);
}

static void on_sweep(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct http_server *s = arg;
    usec_t now = clock_monotonic();
    struct http_conn *next;
    for (struct http_conn *c = TAILQ_FIRST(&s->conns); c; c = next) {
        next = TAILQ_NEXT(c, link);
        if (!http_conn_is_late(c, now))
            continue;
        if (c->over_limit)
            send_overloaded(c);
        http_conn_free(c);
    }
}

STATS_READ(read_connections, ((const struct http_server *)ctx)->totals->conns)
STATS_READ(read_buffered, ((const struct http_server *)ctx)->totals->buffered)

static void on_accept_again(evutil_socket_t fd, short what, void *arg);

struct http_server *http_server_new(const struct http_server_config *config)
{
    struct http_server *s = mem_zalloc(sizeof *s);
    s->config = *config;
    s->auth_token = config->auth_token ? mem_strdup(config->auth_token) : NULL;
    rate_limit_init(&s->public_rate, config->public_rate);
    rate_limit_fill(&s->public_rate);
    s->allowed_hosts = config->allowed_hosts ? mem_strdup(config->allowed_hosts) : NULL;
    s->allowed_origins = config->allowed_origins ? mem_strdup(config->allowed_origins) : NULL;
    s->public_path = bytes_str(config->public_path);
    s->public_path.len -= s->public_path.len && s->public_path.ptr[s->public_path.len - 1] == '/';
    s->tokens = config->tokens ? http_tokens_ref(config->tokens) : NULL;
    if (config->server_name)
        buf_printf(&s->server_line, "Server: %s\r\n", config->server_name);
    s->read_buffer = mem_alloc(HTTP_READ_SIZE);
    s->now = clock_monotonic();
    TAILQ_INIT(&s->conns);
    TAILQ_INIT(&s->scheduled);
    s->scheduled_event = event_new(config->base, -1, 0, http_conn_run_scheduled, s);
    s->accept_again = event_new(config->base, -1, 0, on_accept_again, s);
    http_route_init(s, http_builtin_routes, &http_preflight_route);
    s->totals = config->first ? config->first->totals : &s->own_totals;
    if (!config->first) {
        stats_gauge(config->stats, "http_connections", NULL, "Open connections", read_connections, s);
        stats_gauge(config->stats, "http_buffered_bytes", NULL,
            "Memory held for requests and replies of all clients", read_buffered, s);
    }
    s->evicted = stats_counter(config->stats, "http_evicted_total", NULL,
        "Stalled connections closed because max_buffered was exceeded");
    s->refused = stats_counter(config->stats, "http_connections_refused_total", NULL,
        "Connections refused with 503 because of max_connections or the limit of open files");
    /* The server checks its connections at intervals of 1/8 of the smallest time limit, so a connection exceeds its
     * time limit by at most 1/8. */
    const usec_t limits[] = {
        config->header_timeout, config->body_timeout, config->write_timeout, config->idle_timeout};
    usec_t every = SWEEP_MAX;
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++)
        if (limits[i] > 0 && limits[i] / 8 < every)
            every = limits[i] / 8 > SWEEP_MIN ? limits[i] / 8 : SWEEP_MIN;
    struct timeval tv = {.tv_sec = every / USEC_PER_SEC, .tv_usec = every % USEC_PER_SEC};
    s->sweep_event = event_new(config->base, -1, EV_PERSIST, on_sweep, s);
    event_add(s->sweep_event, &tv);
    return s;
}

/* Returns RLIMIT_NOFILE. A new descriptor gets the lowest free number, which shows how many descriptors are in use. */
static int descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur > INT_MAX)
        return INT_MAX;
    return (int)limit.rlim_cur;
}

static int reserve_of(int most)
{
    return most / 4 < RESERVE_MAX ? most / 4 : RESERVE_MAX;
}

int http_descriptors_for_files(void)
{
    int most = descriptor_limit();
    return most - 2 * reserve_of(most);
}

size_t http_descriptors_with_files(size_t files)
{
    return files < 2 * RESERVE_MAX ? 2 * files : files + 2 * RESERVE_MAX;
}

int http_descriptors_for_connections(void)
{
    int most = descriptor_limit();
    return most - reserve_of(most);
}

size_t http_descriptors_with_connections(size_t connections)
{
    return connections < 3 * RESERVE_MAX ? 4 * connections / 3 : connections + RESERVE_MAX;
}

/* Sets up a new connection. Connections above the limit may use half of the reserved descriptors for a short time. */
static void take_connection(struct http_listener *l, int fd, const char *peer)
{
    struct http_server *s = l->server;
    int most = descriptor_limit(), reserve = reserve_of(most), limit = most - reserve;
    bool is_full = false;
    if (s->config.max_connections > 0) {
        is_full = s->totals->conns - s->n_over_limit >= (size_t)s->config.max_connections;
        limit = s->config.max_connections < limit ? s->config.max_connections : limit;
    }
    bool public_is_full = l->is_public && s->n_public >= (size_t)limit / 2;
    bool over_limit = fd >= most - reserve || is_full || public_is_full;
    bool has_room = fd < most - reserve / 2, full = s->n_over_limit >= OVER_LIMIT_MAX;
    struct http_conn *silent = NULL;
    if (over_limit && has_room && full) { /* connections above the limit are new, so near the list's end */
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
    c->is_public = l->is_public;
    c->over_limit = over_limit;
    s->n_public += l->is_public && !over_limit;
    s->n_over_limit += over_limit;
    stats_add(s->refused, over_limit);
    if (over_limit && (!has_room || (full && !silent)))
        answer_and_close(c);
}

static void on_accept_again(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct http_server *s = arg;
    for (struct http_listener *l = s->listeners; l; l = l->next)
        event_add(l->event, NULL);
}

static void on_acceptable(evutil_socket_t listen_fd, short what, void *arg)
{
    (void)what;
    static const struct timeval pause = {0, ACCEPT_PAUSE_USEC};
    struct http_listener *l = arg;
    struct http_server *s = l->server;
    /* A server that shares its socket takes one connection at a time, so that all servers get connections. */
    for (int i = 0; i < (s->config.is_shared ? 1 : ACCEPT_BATCH_MAX); i++) {
        struct sockaddr_storage from = {0};
        socklen_t len = sizeof from;
        char peer[80] = "unix", host[INET6_ADDRSTRLEN];
        const struct sockaddr_in *in = (const void *)&from;
        const struct sockaddr_in6 *in6 = (const void *)&from;
        int fd = accept4(listen_fd, (struct sockaddr *)&from, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0 && !errno_is_shortage(errno))
            return;
        if (fd < 0) {
            /* The connection stays in the backlog and the socket readable. Without a pause the loop would spin. */
            if (!s->accept_logged)
                log_error("cannot accept connections", LOG_S("error", strerror(errno)));
            s->accept_logged = true;
            for (struct http_listener *each = s->listeners; each; each = each->next)
                event_del(each->event);
            event_add(s->accept_again, &pause);
            return;
        }
        s->accept_logged = false;
        if (from.ss_family == AF_INET)
            snprintf(peer, sizeof peer, "%s:%d", inet_ntop(AF_INET, &in->sin_addr, host, sizeof host),
                ntohs(in->sin_port));
        else if (from.ss_family == AF_INET6)
            snprintf(peer, sizeof peer, "[%s]:%d", inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof host),
                ntohs(in6->sin6_port));
        take_connection(l, fd, peer);
    }
}

int http_server_listen_fd(struct http_server *s, int fd, bool is_public)
{
    if (evutil_make_socket_nonblocking(fd) < 0)
        return -1;
    struct http_listener *l = mem_zalloc(sizeof *l);
    l->server = s;
    l->is_public = is_public;
    l->fd = fd;
    l->event = event_new(s->config.base, fd, EV_READ | EV_PERSIST, on_acceptable, l);
    l->next = s->listeners;
    s->listeners = l;
    return event_add(l->event, NULL);
}

void http_server_set_tokens(struct http_server *s, struct http_tokens *tokens)
{
    http_tokens_unref(&s->tokens);
    s->tokens = tokens ? http_tokens_ref(tokens) : NULL;
}

static void stop_listening(struct http_server *s)
{
    struct http_listener *l;
    while ((l = s->listeners)) {
        s->listeners = l->next;
        event_free(l->event);
        close(l->fd);
        free(l);
    }
    event_del(s->accept_again);
}

bool http_server_stop_accepting(struct http_server *s, usec_t age)
{
    struct http_conn *c;
    usec_t now = clock_monotonic();
    stop_listening(s);
    TAILQ_FOREACH(c, &s->conns, link)
    {
        if (c->first && c->state < HTTP_CONN_HANDLER && now - c->since < age)
            return true;
    }
    return false;
}

/* Reads once more from each idle connection, so that a request that has just arrived still gets its reply. */
void http_server_drain(struct http_server *s)
{
    struct http_conn *c;
    s->draining = true;
    stop_listening(s);
    TAILQ_FOREACH(c, &s->conns, link)
    {
        if (c->state == HTTP_CONN_IDLE) {
            c->read_once_more = true;
            http_output_schedule(c);
        }
    }
}

size_t http_server_connections(const struct http_server *s)
{
    return s->totals->conns;
}

void http_server_free(struct http_server **sp)
{
    struct http_server *s = *sp;
    struct http_conn *c;
    if (!s)
        return;
    assert(!s->in_scheduled);
    *sp = NULL;
    stop_listening(s);
    while ((c = TAILQ_FIRST(&s->conns)))
        http_conn_free(c);
    stats_remove_gauges(s->config.stats, s);
    event_free(s->scheduled_event);
    event_free(s->sweep_event);
    event_free(s->accept_again);
    free(s->endpoints);
    buf_free(&s->server_line);
    buf_free(&s->top);
    free(s->auth_token);
    free(s->allowed_hosts);
    free(s->allowed_origins);
    http_tokens_unref(&s->tokens);
    free(s->read_buffer);
    free(s);
}
