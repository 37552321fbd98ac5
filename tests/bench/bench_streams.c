/* bench_streams PROTOCOL PORT SUBSCRIBERS MESSAGES: one lean client for every server that publishes to subscribers; prints
 * messages delivered a second, summed over the subscribers. PROTOCOL is pubsub (stream s, which must be there), redis or
 * nats. 450-byte messages are published 100 at a time while no subscriber is more than WINDOW messages behind, so that
 * no server drops any; what is received is counted in bytes, not looked at. */
#include "bytes.h"
#include "clock.h"
#include "load.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define MESSAGE 450
#define BATCH 100
#define WINDOW 4000
#define READ_SIZE (256 * 1024)

struct protocol {
    const char *name;
    const char *hello;   /* a subscriber's */
    const char *greeted; /* what the answer to it ends with */
    size_t delivered;    /* bytes of one message as a subscriber gets it */
    void (*publish)(struct buf *out);
    size_t answer; /* bytes that answer a batch at least; 0: none */
};

static void add_text(struct buf *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        buf_append_char(out, (char)('a' + i % 26));
}

static void publish_pubsub(struct buf *out)
{
    buf_printf(out, "POST /pub?stream=s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", MESSAGE * BATCH);
    for (int i = 0; i < BATCH; i++) {
        add_text(out, MESSAGE - 1);
        buf_append_char(out, '\n');
    }
}

static void publish_redis(struct buf *out)
{
    for (int i = 0; i < BATCH; i++) {
        buf_printf(out, "*3\r\n$7\r\nPUBLISH\r\n$1\r\ns\r\n$%d\r\n", MESSAGE);
        add_text(out, MESSAGE);
        buf_append_str(out, "\r\n");
    }
}

static void publish_nats(struct buf *out)
{
    for (int i = 0; i < BATCH; i++) {
        buf_printf(out, "PUB s %d\r\n", MESSAGE);
        add_text(out, MESSAGE);
        buf_append_str(out, "\r\n");
    }
}

static const struct protocol protocols[] = {
    {"pubsub", "GET /sub?stream=s HTTP/1.0\r\n\r\n", "\r\n\r\n", MESSAGE, publish_pubsub, 100},
    {"redis", "SUBSCRIBE s\r\n", ":1\r\n",
        sizeof "*3\r\n$7\r\nmessage\r\n$1\r\ns\r\n$450\r\n\r\n" - 1 + MESSAGE, publish_redis, 4 * BATCH},
    {"nats", "CONNECT {\"verbose\":false}\r\nSUB s 1\r\nPING\r\n", "PONG\r\n",
        sizeof "MSG s 1 450\r\n\r\n" - 1 + MESSAGE, publish_nats, 0},
};

struct client {
    const struct protocol *protocol;
    int epoll, publisher;
    size_t n;
    uint64_t *got;     /* bytes, by subscriber */
    uint64_t sent;     /* messages */
    size_t unanswered; /* bytes of answers to come */
    struct buf batch;
    size_t written; /* of the batch */
};

static void fail(const char *what)
{
    fprintf(stderr, "bench_streams: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int connect_and_greet(int port, const char *hello, const char *greeted)
{
    char text[4096] = "";
    size_t n = 0;
    int fd = load_connect(port);
    if (fd < 0 || send(fd, hello, strlen(hello), 0) < 0)
        fail("connecting");
    while (!strstr(text, greeted)) {
        struct pollfd p = {fd, POLLIN, 0};
        ssize_t r = poll(&p, 1, 10000) == 1 ? recv(fd, text + n, sizeof text - 1 - n, 0) : -1;
        if (r <= 0)
            fail("greeting");
        n += (size_t)r;
        text[n] = '\0';
    }
    return fd;
}

static uint64_t slowest(const struct client *c)
{
    uint64_t least = UINT64_MAX;
    for (size_t i = 0; i < c->n; i++)
        if (c->got[i] < least)
            least = c->got[i];
    return least / c->protocol->delivered;
}

static void publish_on(struct client *c)
{
    if (c->written == c->batch.len) {
        if (c->unanswered > 0 || c->sent > slowest(c) + WINDOW)
            return;
        c->written = 0;
        c->unanswered = c->protocol->answer;
        c->sent += BATCH;
    }
    ssize_t n = send(c->publisher, c->batch.ptr + c->written, c->batch.len - c->written, MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN)
        fail("publishing");
    c->written += n > 0 ? (size_t)n : 0;
}

static void take(struct client *c, size_t i, int fd)
{
    static char room[READ_SIZE];
    ssize_t n = recv(fd, room, sizeof room, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN))
        fail("receiving");
    if (n < 0)
        return;
    if (i < c->n)
        c->got[i] += (uint64_t)n;
    else
        c->unanswered -= (size_t)n < c->unanswered ? (size_t)n : c->unanswered;
}

static double run(struct client *c, uint64_t messages)
{
    struct epoll_event events[256];
    usec_t began = clock_monotonic();
    while (slowest(c) < messages) {
        if (c->sent < messages || c->written < c->batch.len)
            publish_on(c);
        int n = epoll_wait(c->epoll, events, 256, 1);
        for (int i = 0; i < n; i++)
            take(c, events[i].data.u64 >> 32, (int)(events[i].data.u64 & 0xffffffffu));
        if (clock_monotonic() - began > 120 * USEC_PER_SEC)
            fail("too slow");
    }
    return (double)(clock_monotonic() - began) / (double)USEC_PER_SEC;
}

static void watch(struct client *c, size_t i, int fd)
{
    struct epoll_event e = {.events = EPOLLIN, .data = {.u64 = (uint64_t)i << 32 | (uint32_t)fd}};
    epoll_ctl(c->epoll, EPOLL_CTL_ADD, fd, &e);
}

int main(int argc, char **argv)
{
    struct client c = {.epoll = epoll_create1(EPOLL_CLOEXEC)};
    for (size_t i = 0; argc == 5 && i < sizeof protocols / sizeof *protocols; i++)
        if (strcmp(argv[1], protocols[i].name) == 0)
            c.protocol = &protocols[i];
    if (!c.protocol) {
        fprintf(stderr, "usage: bench_streams pubsub|redis|nats PORT SUBSCRIBERS MESSAGES\n");
        return 64;
    }
    int port = (int)strtol(argv[2], NULL, 10);
    c.n = strtoul(argv[3], NULL, 10);
    uint64_t messages = strtoull(argv[4], NULL, 10) / BATCH * BATCH;
    load_pin(1);
    c.got = mem_zalloc((c.n + 1) * sizeof *c.got);
    for (size_t i = 0; i < c.n; i++)
        watch(&c, i, connect_and_greet(port, c.protocol->hello, c.protocol->greeted));
    c.publisher = load_connect(port);
    watch(&c, c.n, c.publisher);
    c.protocol->publish(&c.batch);
    c.written = c.batch.len;
    double took = run(&c, messages);
    printf("%.0f\n", (double)(messages * c.n) / took);
    return 0;
}
