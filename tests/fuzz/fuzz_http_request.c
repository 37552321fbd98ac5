/* Any bytes as what a client sends, over a real socket pair: the first byte says how they are cut into pieces. */
#include "http_server.h"
#include <event2/event.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct event_base *base;
static struct http_server *server;
static int listen_fd;

static void handle_echo(struct http_request *req, void *ctx)
{
    (void)ctx;
    struct bytes data = http_body(req);
    http_param(req, "data", &data);
    http_reply(req, 200, NULL, data);
}

static bool take_piece(struct http_request *req, struct bytes piece, void *ctx)
{
    (void)ctx;
    if (!memchr(piece.ptr, '!', piece.len))
        return true;
    http_problem(req, 400, "bad-request", NULL, "no exclamations");
    return false;
}

static void handle_stream(struct http_request *req, void *ctx)
{
    (void)ctx;
    http_stream_start(req, 200, NULL, -1);
    http_stream_write(req, BYTES_LITERAL("piece"));
    http_stream_end(req);
}

static const struct http_route routes[] = {
    {.path = "/echo", .methods = HTTP_GET_ | HTTP_POST_, .handler = handle_echo},
    {.path = "/sum", .methods = HTTP_POST_, .handler = handle_stream, .on_body = take_piece},
    {.path = "/p/", .methods = HTTP_GET_, .flags = HTTP_ROUTE_PREFIX, .handler = handle_stream},
    {.path = NULL},
};

static void set_up(void)
{
    static struct sockaddr_in any = {.sin_family = AF_INET};
    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    signal(SIGPIPE, SIG_IGN);
    base = event_base_new();
    listen_fd = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listen_fd, (struct sockaddr *)&any, sizeof any) < 0 || listen(listen_fd, 16) < 0)
        abort();
    struct http_server_config config = {
        .base = base, .stats = stats_new("fuzz"), .routes = routes, .max_body = 1000};
    server = http_server_new(&config);
    http_server_listen_fd(server, listen_fd);
}

static int connect_here(void)
{
    struct sockaddr_in to;
    socklen_t len = sizeof to;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    getsockname(listen_fd, (struct sockaddr *)&to, &len);
    if (connect(fd, (struct sockaddr *)&to, len) < 0)
        abort();
    return fd;
}

static void turn(void)
{
    event_base_loop(base, EVLOOP_NONBLOCK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char reply[4096];
    if (size < 2)
        return 0;
    if (!base)
        set_up();
    int fd = connect_here();
    size_t step = data[0] ? data[0] : size;
    for (size_t at = 1; at < size; at += step) {
        size_t n = size - at < step ? size - at : step;
        if (send(fd, data + at, n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
            break;
        turn();
    }
    shutdown(fd, SHUT_WR);
    for (int i = 0; i < 100 && http_server_connections(server) + (i == 0) > 0; i++) {
        turn();
        if (recv(fd, reply, sizeof reply, MSG_DONTWAIT) == 0)
            break;
    }
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger));
    close(fd);
    turn();
    return 0;
}
