/* workers: threads that serve HTTP beside the daemon's own loop.
 *
 * Each worker has an event loop, an HTTP server and a duplicate of the daemon's listening socket. One thread serves a
 * connection from its accept to its end. The servers share routes, statistics and the limits on connections and memory.
 *
 * 1. Handlers run in the thread of their connection, with the ctx that `begin` returned for this thread. Handlers must
 *    protect all data that they share, except the statistics.
 * 2. The callbacks not_ready, reply_health and print_health must be safe in any thread.
 * 3. workers_free stops the loops and joins the threads, and then closes the connections in the caller's thread. */
#ifndef MILLRACE_WORKERS_H
#define MILLRACE_WORKERS_H

#include "http/server/http_server.h"

struct workers;

struct workers_config {
    /* The configuration of each worker's server, except base and ctx. workers_new only borrows the texts. */
    struct http_server_config http;
    int fd;   /* the listening socket, which workers_new duplicates */
    size_t n; /* number of workers */
    void *(*begin)(void *ctx, size_t worker, struct event_base *base); /* called before the threads start */
    void (*end)(void *worker_ctx); /* called after the thread has ended, before its event base is freed */
    void *ctx;
};

/* Returns NULL if a socket, a loop or a thread cannot be created. */
struct workers *workers_new(const struct workers_config *config);
/* Makes the servers drain. */
void workers_drain(struct workers *w);
void workers_free(struct workers **w);

#endif
