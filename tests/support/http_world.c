#include "support/http_world.h"

#include "support/cm.h"

#include <arpa/inet.h>
#include <event2/event.h>
#include <signal.h>
#include <sys/socket.h>

void http_world_open(struct http_world *w, struct http_server_config *config)
{
    signal(SIGPIPE, SIG_IGN);
    *w = (struct http_world){.base = event_base_new(), .stats = stats_new("test")};
    config->base = w->base;
    config->stats = w->stats;
    config->server_name = "test";
    int fd = listen_open("127.0.0.1", 0, NULL);
    assert_true(fd >= 0);
    listen_name(fd, &w->name);
    w->http = http_server_new(config);
    assert_int_equal(http_server_listen_fd(w->http, fd, false), 0);
}

void http_world_close(struct http_world *w)
{
    http_server_free(&w->http);
    stats_free(&w->stats);
    event_base_free(w->base);
}

int http_world_connect(const struct http_world *w)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
        .sin_port = htons((uint16_t)w->name.port),
        .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}
