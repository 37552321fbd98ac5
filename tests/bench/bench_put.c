/* bench_put: single puts and batches of 100 into simplequeue, against a raw epoll loop that only reads requests and writes
 * a fixed reply. The server on one processor, the client on another; every round measures all of them in turn.
 *
 *     bench_put SIMPLEQUEUE [ROUNDS]
 */
#include "clock.h"
#include "load.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define CONNECTIONS 32
#define MESSAGE 450
#define BATCH 100
#define MAX_ROUNDS 25
#define RAW_ROOM 65536
#define MAX_FDS 4096

/* ---- the raw loop ---- */

struct raw {
    size_t have; /* bytes of the request so far */
};

static void raw_read(int fd, struct raw *r, size_t request)
{
    static const char reply[] = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    static char room[RAW_ROOM];
    ssize_t n = recv(fd, room, sizeof room, 0);
    if (n <= 0) {
        close(fd);
        return;
    }
    r->have += (size_t)n;
    if (r->have < request)
        return;
    r->have = 0;
    (void)!send(fd, reply, sizeof reply - 1, MSG_NOSIGNAL);
}

static void raw_accept(int epoll, int listener, struct raw *all)
{
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), on = 1;
    struct epoll_event e = {.events = EPOLLIN, .data = {.fd = fd}};
    if (fd < 0 || fd >= MAX_FDS)
        return;
    all[fd] = (struct raw){0};
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e);
}

static void raw_serve(int listener, size_t request)
{
    static struct raw all[MAX_FDS];
    struct epoll_event events[256], e = {.events = EPOLLIN, .data = {.fd = listener}};
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &e);
    for (;;) {
        int n = epoll_wait(epoll, events, 256, -1);
        for (int i = 0; i < n; i++) {
            if (events[i].data.fd == listener)
                raw_accept(epoll, listener, all);
            else
                raw_read(events[i].data.fd, &all[events[i].data.fd], request);
        }
    }
}

/* ---- servers, each in a process of its own on processor 0 ---- */

static int listener_on_free_port(int *port)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof name;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&name, sizeof name) != 0 || listen(fd, 1024) != 0 ||
        getsockname(fd, (struct sockaddr *)&name, &len) != 0) {
        perror("bench_put");
        exit(1);
    }
    *port = ntohs(name.sin_port);
    return fd;
}

static pid_t start_raw(int *port, size_t request)
{
    int fd = listener_on_free_port(port);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        load_pin(0);
        raw_serve(fd, request);
    }
    close(fd);
    return pid;
}

static pid_t start_queue(const char *path, const char *dir, const char *sync, int *port)
{
    char text[16], data[300], policy[40];
    int fd = listener_on_free_port(port);
    pid_t pid = fork();
    if (pid != 0) {
        close(fd);
        return pid;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    load_pin(0);
    dup2(fd, 3);
    fcntl(3, F_SETFD, 0);
    snprintf(text, sizeof text, "%d", (int)getpid());
    setenv("LISTEN_FDS", "1", 1);
    setenv("LISTEN_PID", text, 1);
    snprintf(data, sizeof data, "--data-dir=%s", dir);
    snprintf(policy, sizeof policy, "--sync=%s", sync != NULL ? sync : "never");
    execl(path, path, "--log-level=error", "--max-memory=4G", sync != NULL ? data : "--log-level=error",
        sync != NULL ? policy : "--log-level=error", (char *)NULL);
    perror(path);
    _exit(1);
}

static void stop(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

/* ---- what is measured ---- */

struct work {
    const char *name;
    const char *target; /* NULL: the raw loop */
    const char *sync;   /* NULL: in memory */
    size_t messages;    /* a request */
    uint64_t requests;
    double rates[MAX_ROUNDS]; /* messages a second */
};

static struct work works[] = {
    {"raw epoll loop, 1 a request", NULL, NULL, 1, 100000, {0}},
    {"put, 1 a request, memory", "/put", NULL, 1, 100000, {0}},
    {"put, 1 a request, sync=never", "/put", "never", 1, 60000, {0}},
    {"put, 1 a request, sync=0", "/put", "0", 1, 20000, {0}},
    {"mput, 100 a request, memory", "/mput", NULL, BATCH, 5000, {0}},
    {"mput, 100 a request, sync=never", "/mput", "never", BATCH, 3000, {0}},
    {"mput, 100 a request, sync=0", "/mput", "0", BATCH, 1500, {0}},
};
#define N_WORKS (sizeof works / sizeof *works)

static void make_request(const struct work *w, struct buf *out)
{
    load_post(out, w->target != NULL ? w->target : "/put", w->messages * (MESSAGE + 1) - 1);
    for (size_t i = 1; i < w->messages; i++)
        out->ptr[out->len - i * (MESSAGE + 1)] = '\n';
}

static void measure(struct work *w, const char *queue, const char *dir, size_t round)
{
    struct buf request = {0};
    char data[280];
    int port;
    make_request(w, &request);
    snprintf(
        data, sizeof data, "%s/%s-%zu-%zu", dir, w->sync != NULL ? w->sync : "memory", w->messages, round);
    pid_t pid = w->target == NULL ? start_raw(&port, request.len) : start_queue(queue, data, w->sync, &port);
    struct load l = {port, CONNECTIONS, CONNECTIONS * 20, buf_bytes(&request)};
    double warm = load_run(&l);
    l.requests = w->requests;
    double took = warm < 0 ? warm : load_run(&l);
    stop(pid);
    buf_free(&request);
    if (took < 0) {
        fprintf(stderr, "bench_put: %s: the server failed\n", w->name);
        exit(1);
    }
    w->rates[round] = (double)(w->requests * w->messages) / took;
}

int main(int argc, char **argv)
{
    char dir[] = "bench-put-XXXXXX", command[64];
    size_t rounds = argc > 2 ? strtoul(argv[2], NULL, 10) : 5;
    if (argc < 2 || rounds == 0 || rounds > MAX_ROUNDS || mkdtemp(dir) == NULL) {
        fprintf(stderr, "usage: bench_put SIMPLEQUEUE [ROUNDS, 1..%d]\n", MAX_ROUNDS);
        return 64;
    }
    load_pin(1);
    for (size_t round = 0; round < rounds; round++)
        for (size_t i = 0; i < N_WORKS; i++)
            measure(&works[i], argv[1], dir, round);
    printf("%-36s %12s %8s   (%zu-byte messages, %d connections, median of %zu)\n", "", "messages/s",
        "to raw", (size_t)MESSAGE, CONNECTIONS, rounds);
    double raw = load_median(works[0].rates, rounds);
    for (size_t i = 0; i < N_WORKS; i++) {
        double rate = load_median(works[i].rates, rounds);
        printf("%-36s %12.0f %8.2f\n", works[i].name, rate, rate / raw);
    }
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command) == 0 ? 0 : 1; /* NOLINT(cert-env33-c): our own directory's name */
}
