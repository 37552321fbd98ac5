/* servers: the measured servers. Each is a process on processor 0.
 *
 * SERVER_RAW is a bare epoll loop: it reads requests of a fixed length and answers each with the same bytes, so it shows
 * the cost of the socket calls alone. Its requests and replies have the same bytes as those of simplequeue. With a
 * directory it also writes the requests of each turn to a file and syncs the file before it answers, which shows the
 * cost of the disk. */
#ifndef MILLRACE_BENCH_SERVERS_H
#define MILLRACE_BENCH_SERVERS_H

#include "bench/load.h"
#include <sys/types.h>

enum server_kind { SERVER_RAW, SERVER_QUEUE, SERVER_REDIS, SERVER_BEANSTALKD, SERVER_NATS };

struct server {
    pid_t pid;
    int port;
    char dir[300]; /* of its data; empty: in memory */
};

struct server_wish {
    enum server_kind kind;
    const char *simplequeue; /* path of the program */
    const char *dir;         /* of its data; NULL: memory only */
    const char *sync; /* setting of simplequeue; the other servers sync before each reply if it is set */
    struct bytes raw_request, raw_reply;
};

/* Returns false, with the reason on stderr, if the program is missing or does not start. */
bool server_start(struct server *s, const struct server_wish *wish);
/* Also removes its directory. */
void server_stop(struct server *s);
/* Sends one HTTP request. Returns false unless the answer is a complete 200. */
bool server_ask(const struct server *s, struct bytes request, struct buf *reply);

/* For bare loops: returns a socket that listens on a free port of 127.0.0.1. */
int server_listen(int *port);
/* Accepts connections, and calls `take` when a connection is readable or has ended. `take` must close it. After all ready
 * connections, calls `end_turn`, which may be NULL. */
_Noreturn void server_loop(
    int listener, void (*take)(int fd, void *arg), void (*end_turn)(void *arg), void *arg);
/* Sends the whole text, and waits if the peer reads slowly. */
void server_send(int fd, struct bytes text);
#define SERVER_FDS 4096 /* `fd` of server_loop is below */

double server_cpu_seconds(const struct server *s);
double server_resident_bytes(const struct server *s);

#endif
