/* http_probe: a small server with a route for each thing a test of lib/http/server/http_server.h wants to see.
 *
 *     http_probe [header_timeout=MS] [body_timeout=MS] [write_timeout=MS] [idle_timeout=MS] [max_connections=N]
 *                [max_body=N] [token=TEXT] [allow_admin=1] [descriptors=N] [no_routes=1]
 *
 * Prints its port, then a line for each callback. SIGTERM drains; it exits when every connection is closed.
 * SIGUSR1 makes it not ready. SIGUSR2 answers what /later holds. SIGHUP frees the server at once and exits. */
#include "http/server/http_server.h"
#include "daemon/listen.h"
#include <event2/event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#define HELD_MAX 64

struct probe {
    struct event_base *base;
    struct http_server *server;
    struct stats *stats;
    struct http_request *held[HELD_MAX];
    bool not_ready, draining;
    char *token;
};

static void say(const char *what, const char *about)
{
    printf("%s %s\n", what, about);
    fflush(stdout);
}

static void forget(struct http_request *req, void *arg)
{
    struct probe *p = arg;
    for (size_t i = 0; i < HELD_MAX; i++) {
        if (p->held[i] == req)
            p->held[i] = NULL;
    }
    say("gone", http_path(req));
    http_reply(req, 500, NULL, BYTES_LITERAL("nobody gets this"));
}

static void hold(struct probe *p, struct http_request *req)
{
    for (size_t i = 0; i < HELD_MAX; i++) {
        if (!p->held[i]) {
            p->held[i] = req;
            break;
        }
    }
    http_on_gone(req, forget, p);
    say("held", http_path(req));
}

static void handle_echo(struct http_request *req, void *ctx)
{
    (void)ctx;
    struct bytes data = http_body(req);
    http_param(req, "data", &data);
    http_add_header(req, "X-Echo", "a\r\nb");
    http_reply(req, 200, "application/octet-stream", data);
}

static void handle_later(struct http_request *req, void *ctx)
{
    hold(ctx, req);
}

static void handle_poll(struct http_request *req, void *ctx)
{
    http_set_long_poll(req);
    hold(ctx, req);
}

/* A subscriber's stream: a megabyte, and it stays open. */
static void handle_patient(struct http_request *req, void *ctx)
{
    char *text = mem_zalloc(1 << 20);
    http_stream_start(req, 200, NULL);
    http_stream_disable_timeout(req);
    http_stream_write(req, bytes_of(text, 1 << 20));
    http_on_gone(req, forget, ctx);
    free(text);
}

static void handle_open_stream(struct http_request *req, void *ctx)
{
    http_set_long_poll(req);
    http_stream_start(req, 200, NULL);
    http_on_gone(req, forget, ctx);
    say("held", http_path(req));
}

static void handle_pieces(struct http_request *req, void *ctx)
{
    (void)ctx;
    http_stream_start(req, 200, NULL);
    http_stream_write(req, BYTES_LITERAL("one,"));
    http_stream_write(req, BYTES_LITERAL(""));
    http_stream_write(req, BYTES_LITERAL("two"));
    http_stream_end(req);
}

static void handle_break(struct http_request *req, void *ctx)
{
    (void)ctx;
    http_stream_start(req, 200, NULL);
    http_stream_write(req, BYTES_LITERAL("one,"));
    http_stream_write(req, BYTES_LITERAL("two"));
    http_stream_truncate(req);
}

struct pump {
    uint64_t left;
    size_t most;
};

/* Writes while little is pending, so that the memory used does not depend on the length asked for. */
static void pump_more(struct http_request *req, void *arg)
{
    static char zeros[16 * 1024];
    struct pump *pump = arg;
    while (pump->left > 0 && http_stream_pending(req) < 128 * 1024) {
        size_t n = pump->left < sizeof zeros ? pump->left : sizeof zeros;
        http_stream_write(req, bytes_of(zeros, n));
        pump->left -= n;
        if (http_stream_pending(req) > pump->most)
            pump->most = http_stream_pending(req);
    }
    if (pump->left == 0) {
        char text[32];
        snprintf(text, sizeof text, "%zu", pump->most);
        say("pumped", text);
        free(pump);
        http_stream_end(req);
    }
}

static void pump_gone(struct http_request *req, void *arg)
{
    say("gone", http_path(req));
    free(arg);
}

static void handle_pump(struct http_request *req, void *ctx)
{
    (void)ctx;
    struct pump *pump = mem_zalloc(sizeof *pump);
    if (!http_param_u64(req, "n", 1, 1, UINT64_C(1) << 32, &pump->left)) {
        free(pump);
        return;
    }
    http_stream_start(req, 200, NULL);
    http_on_gone(req, pump_gone, pump);
    http_on_drain(req, 64 * 1024, pump_more, pump);
    pump_more(req, pump);
}

static void handle_large(struct http_request *req, void *ctx)
{
    (void)ctx;
    uint64_t n;
    if (!http_param_u64(req, "n", 1, 0, 100 << 20, &n))
        return;
    struct buf b = {0};
    buf_reserve(&b, n + 1);
    memset(b.ptr, 'x', n);
    b.len = n;
    http_reply_buf(req, 200, NULL, &b);
    buf_free(&b);
}

static void handle_sum(struct http_request *req, void *ctx)
{
    (void)ctx;
    http_replyf(req, 200, NULL, "%zu", http_body(req).len);
}

/* The path behind "/files/". */
static void handle_rest(struct http_request *req, void *ctx)
{
    (void)ctx;
    http_replyf(req, 200, NULL, "%s", http_path(req) + strlen("/files/"));
}

static void handle_plain(struct http_request *req, void *ctx)
{
    (void)ctx;
    http_reply(req, 200, NULL, BYTES_LITERAL("done"));
}

/* Takes the place of 503 for a client that accepts an event stream, as pubsub does. */
static bool retry_events(struct http_request *req, void *ctx)
{
    char *accept = bytes_dup(http_header(req, "Accept"));
    bool wanted = strcasestr(accept, "text/event-stream") != NULL;
    (void)ctx;
    free(accept);
    if (wanted) {
        http_add_header_text(req, "Cache-Control", "no-store");
        http_add_header_text(req, "Access-Control-Allow-Origin", "*");
        http_reply(req, 200, "text/event-stream", BYTES_LITERAL("retry: 1000\n\n"));
    }
    return wanted;
}

static const struct http_route routes[] = {
    {.path = "/echo", .methods = HTTP_GET_ | HTTP_POST_, .handler = handle_echo, .help = "gives back"},
    {.path = "/later", .methods = HTTP_GET_ | HTTP_POST_, .handler = handle_later},
    {.path = "/poll", .methods = HTTP_GET_, .handler = handle_poll},
    {.path = "/open", .methods = HTTP_GET_, .handler = handle_open_stream},
    {.path = "/patient", .methods = HTTP_GET_, .handler = handle_patient},
    {.path = "/pieces", .methods = HTTP_GET_, .handler = handle_pieces},
    {.path = "/break", .methods = HTTP_GET_, .handler = handle_break},
    {.path = "/pump", .methods = HTTP_GET_, .handler = handle_pump},
    {.path = "/large", .methods = HTTP_GET_, .handler = handle_large},
    {.path = "/sum", .methods = HTTP_POST_, .handler = handle_sum, .max_body = 1 << 20},
    {.path = "/files/a b", .methods = HTTP_GET_, .handler = handle_rest},
    {.path = "/files/x", .methods = HTTP_GET_, .handler = handle_rest},
    {.path = "/two", .methods = HTTP_GET_, .handler = handle_plain},
    {.path = "/two", .methods = HTTP_DELETE_, .handler = handle_plain},
    {.path = "/events", .methods = HTTP_GET_, .on_overload = retry_events, .handler = handle_plain},
    {.path = "/act", .methods = HTTP_POST_, .flags = HTTP_ROUTE_NEEDS_TOKEN, .handler = handle_plain},
    {.path = "/ready", .methods = HTTP_GET_, .flags = HTTP_ROUTE_WHEN_READY, .handler = handle_plain},
    {.path = NULL},
};

static bool why_not(void *ctx, struct buf *why)
{
    const struct probe *p = ctx;
    if (why)
        buf_append_str(why, "told so");
    return p->not_ready;
}

static void answer_held(struct probe *p)
{
    for (size_t i = 0; i < HELD_MAX; i++) {
        struct http_request *req = p->held[i];
        p->held[i] = NULL;
        if (req)
            http_reply(req, 200, NULL, BYTES_LITERAL("later"));
    }
}

static void on_signal(evutil_socket_t sig, short what, void *arg)
{
    (void)what;
    struct probe *p = arg;
    if (sig == SIGTERM) {
        p->draining = true;
        http_server_drain(p->server);
        say("draining", "");
    } else if (sig == SIGUSR1) {
        p->not_ready = true;
        say("not", "ready");
    } else if (sig == SIGHUP) {
        event_base_loopbreak(p->base);
    } else {
        answer_held(p);
    }
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    struct probe *p = arg;
    if (p->draining && http_server_connections(p->server) == 0)
        event_base_loopbreak(p->base);
}

static void limit_descriptors(uint64_t n)
{
    const struct rlimit limit = {n, n};
    setrlimit(RLIMIT_NOFILE, &limit);
}

static void set(struct http_server_config *config, struct probe *p, char *text)
{
    char *value = strchr(text, '=');
    uint64_t n = 0;
    *value++ = '\0';
    bytes_to_u64(bytes_str(value), &n);
    if (strcmp(text, "header_timeout") == 0)
        config->header_timeout = (usec_t)n * USEC_PER_MSEC;
    else if (strcmp(text, "body_timeout") == 0)
        config->body_timeout = (usec_t)n * USEC_PER_MSEC;
    else if (strcmp(text, "write_timeout") == 0)
        config->write_timeout = (usec_t)n * USEC_PER_MSEC;
    else if (strcmp(text, "idle_timeout") == 0)
        config->idle_timeout = (usec_t)n * USEC_PER_MSEC;
    else if (strcmp(text, "max_connections") == 0)
        config->max_connections = (int)n;
    else if (strcmp(text, "max_buffered") == 0)
        config->max_buffered = n;
    else if (strcmp(text, "max_body") == 0)
        config->max_body = n;
    else if (strcmp(text, "token") == 0)
        config->auth_token = p->token = value;
    else if (strcmp(text, "allow_admin") == 0)
        config->allow_admin = n;
    else if (strcmp(text, "descriptors") == 0)
        limit_descriptors(n);
    else if (strcmp(text, "no_routes") == 0)
        config->routes = n ? NULL : routes;
}

static int listen_here(struct probe *p)
{
    struct listen_name name;
    int fd = listen_open("127.0.0.1", 0, NULL);
    if (fd < 0 || listen_name(fd, &name) < 0)
        return -1;
    printf("port %d\n", name.port);
    fflush(stdout);
    return http_server_listen_fd(p->server, fd, false);
}

int main(int argc, char **argv)
{
    static const int signals[] = {SIGTERM, SIGUSR1, SIGUSR2, SIGHUP};
    static const struct timeval tick = {0, 5000};
    struct event *events[5];
    struct probe p = {.base = event_base_new(), .stats = stats_new("probe")};
    struct http_server_config config = {.base = p.base,
        .stats = p.stats,
        .ctx = &p,
        .routes = routes,
        .max_body = 4 << 20,
        .server_name = "probe/1",
        .not_ready = why_not,
        .not_ready_arg = &p};
    for (int i = 1; i < argc; i++)
        set(&config, &p, argv[i]);
    signal(SIGPIPE, SIG_IGN);
    p.server = http_server_new(&config);
    for (size_t i = 0; i < 4; i++) {
        events[i] = evsignal_new(p.base, signals[i], on_signal, &p);
        event_add(events[i], NULL);
    }
    events[4] = event_new(p.base, -1, EV_PERSIST, on_tick, &p);
    event_add(events[4], &tick);
    if (listen_here(&p) < 0)
        return 1;
    event_base_dispatch(p.base);
    http_server_free(&p.server);
    for (size_t i = 0; i < 5; i++)
        event_free(events[i]);
    stats_free(&p.stats);
    event_base_free(p.base);
    return 0;
}
