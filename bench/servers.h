/* servers: what is measured, each a process of its own on processor 0, stopped by its pid.
 *
 * SERVER_RAW is a bare epoll loop: it reads requests of a known length and answers each with the same bytes, so it is
 * what the socket calls alone cost. It is given the very bytes that simplequeue is asked and answers with. With a directory
 * it writes what a turn brought into a file, and syncs that, before it answers: what the disk's calls add. */
#ifndef MILLRACE_BENCH_SERVERS_H
#define MILLRACE_BENCH_SERVERS_H

#include "bench/load.h"
#include <sys/types.h>

enum server_kind { SERVER_RAW, SERVER_QUEUE, SERVER_REDIS, SERVER_BEANSTALKD, SERVER_NATS };

struct server {
    pid_t pid;
    int port;
    char dir[300]; /* its data; empty: in memory */
};

struct server_wish {
    enum server_kind kind;
    const char *simplequeue; /* path of the program */
    const char *dir;         /* where it may write; NULL: memory only */
    const char *sync;        /* of simplequeue; for the others any text asks for a sync before the reply */
    struct bytes raw_request, raw_reply;
};

/* False, with the reason on stderr, when its program is not there or does not come up. */
bool server_start(struct server *s, const struct server_wish *wish);
/* Also removes its directory. */
void server_stop(struct server *s);
/* One HTTP request; false when the answer is not a whole 200. */
bool server_ask(const struct server *s, struct bytes request, struct buf *reply);

/* For bare loops. A socket that listens at 127.0.0.1 on a free port. */
int server_listen(int *port);
/* Accepts, and calls `take` when something has come on a connection, or its end; closing it is the callee's. `end_turn` is
 * called after all that was ready; NULL: nothing is. */
_Noreturn void server_loop(
    int listener, void (*take)(int fd, void *arg), void (*end_turn)(void *arg), void *arg);
/* All of it: waits for a peer that takes it slowly. */
void server_send(int fd, struct bytes text);
#define SERVER_FDS 4096 /* `fd` of server_loop is below */

double server_cpu_seconds(const struct server *s);
double server_resident_bytes(const struct server *s);

#endif
