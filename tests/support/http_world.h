/* A server on the loopback in the test's own thread, and clients that are plain sockets of it. */
#ifndef MILLRACE_TEST_HTTP_WORLD_H
#define MILLRACE_TEST_HTTP_WORLD_H

#include "http/server/http_server.h"
#include "daemon/listen.h"

struct http_world {
    struct event_base *base;
    struct stats *stats;
    struct http_server *http;
    struct listen_name name;
};

/* Starts the server, after setting base, stats and server_name in `config`. From then on, the process ignores
 * SIGPIPE. */
void http_world_open(struct http_world *w, struct http_server_config *config);
void http_world_close(struct http_world *w);
int http_world_connect(const struct http_world *w); /* a socket that waits */

#endif
