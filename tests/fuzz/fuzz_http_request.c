/* Any bytes as what a client sends, over a real socket: the first byte says how they are cut into pieces. */
#include "http_fuzz.h"
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct http_server *server;

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char reply[4096];
    if (size < 2)
        return 0;
    if (!server)
        server = http_fuzz_open(&(struct http_server_config){.routes = routes, .max_body = 1000});
    int fd = http_fuzz_connect();
    size_t step = data[0] ? data[0] : size;
    for (size_t at = 1; at < size; at += step) {
        size_t n = size - at < step ? size - at : step;
        if (send(fd, data + at, n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
            break;
        http_fuzz_turn();
    }
    shutdown(fd, SHUT_WR);
    for (int i = 0; i < 100 && http_server_connections(server) + (i == 0) > 0; i++) {
        http_fuzz_turn();
        if (recv(fd, reply, sizeof reply, MSG_DONTWAIT) == 0)
            break;
    }
    close(fd);
    http_fuzz_turn();
    return 0;
}
