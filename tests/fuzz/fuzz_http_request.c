/* Any bytes as what a client sends, over a real socket: the first byte says how they are cut into pieces. */
#include "support/http_fuzz.h"
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

static const struct http_route routes[] = {
    {.path = "/echo", .methods = HTTP_GET_ | HTTP_POST_, .handler = handle_echo},
    {.path = "/sum", .methods = HTTP_POST_, .handler = http_fuzz_stream},
    {.path = "/p/", .methods = HTTP_GET_, .handler = http_fuzz_stream},
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
