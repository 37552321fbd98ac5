#include "support/http_fuzz.h"

#include <event2/event.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

static struct event_base *base;
static struct sockaddr_un where = {.sun_family = AF_UNIX};
static socklen_t where_len = sizeof where;

struct http_server *http_fuzz_open(struct http_server_config *config)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (bind(fd, (struct sockaddr *)&where, sizeof where.sun_family) < 0 || listen(fd, 16) < 0 ||
        getsockname(fd, (struct sockaddr *)&where, &where_len) < 0)
        abort();
    signal(SIGPIPE, SIG_IGN);
    base = event_base_new();
    config->base = base;
    config->stats = stats_new("fuzz");
    struct http_server *server = http_server_new(config);
    if (http_server_listen_fd(server, fd, false) != 0)
        abort();
    return server;
}

int http_fuzz_connect(void)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&where, where_len) < 0)
        abort();
    return fd;
}

void http_fuzz_turn(void)
{
    event_base_loop(base, EVLOOP_NONBLOCK);
}

void http_fuzz_stream(struct http_request *req, void *ctx)
{
    (void)ctx;
    http_stream_start(req, 200, NULL);
    http_stream_write(req, BYTES_LITERAL("piece"));
    http_stream_end(req);
}
