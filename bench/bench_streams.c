/* bench_streams PROTOCOL PORT SUBSCRIBERS MESSAGES PUBLISHERS [slow]: one client for all servers with subscribers. Prints the
 * messages delivered a second, summed over the subscribers.
 *
 * PUBLISHERS connections publish messages of 450 bytes, 100 in a request. If the server answers requests, each connection has
 * at most one unanswered request. The client pauses while a subscriber is more than WINDOW messages behind, so that no server
 * drops messages. Received messages are counted by their bytes. The client never sleeps: a sleeping client would cost the server
 * wake-ups, and would measure its own.
 *
 * `slow` adds two subscribers that do not make the client pause: one reads 1 KB a second, the other reads nothing. */
#include "base/clock.h"
#include "bench/load.h"
#include "bench/stream_talk.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define BATCH 100
#define WINDOW 20000 /* far more than keeps any of the servers busy */
#define READ_SIZE (256 * 1024)
#define EVENTS 256
#define SLOW_READ 1024 /* bytes a second */

struct publisher {
    int fd;
    size_t written;    /* of the batch */
    size_t unanswered; /* ends of answers to come */
};

struct client {
    const struct stream_talk *talk;
    int epoll;
    size_t subscribers, publishers;
    uint64_t *got; /* bytes, by subscriber */
    struct publisher *publisher;
    uint64_t sent, messages;
    struct buf batch;
    int slow; /* -1: none */
    usec_t slow_due;
};

static uint64_t slowest(const struct client *c)
{
    uint64_t least = UINT64_MAX;
    for (size_t i = 0; i < c->subscribers; i++)
        if (c->got[i] < least)
            least = c->got[i];
    return least / c->talk->delivered;
}

static void publish_on(struct client *c, struct publisher *p, uint64_t limit)
{
    if (p->written == c->batch.len) {
        if (p->unanswered > 0 || c->sent >= limit)
            return;
        p->written = 0;
        p->unanswered = stream_talk_ends(c->talk, BATCH);
        c->sent += BATCH;
    }
    ssize_t n = send(p->fd, c->batch.ptr + p->written, c->batch.len - p->written, MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN)
        stream_talk_fail("publishing");
    p->written += n > 0 ? (size_t)n : 0;
}

static void publish(struct client *c)
{
    uint64_t limit = slowest(c) + WINDOW;
    limit = limit < c->messages ? limit : c->messages;
    for (size_t i = 0; i < c->publishers; i++)
        publish_on(c, &c->publisher[i], limit);
}

static void take_answers(struct client *c, struct publisher *p, const char *text, size_t n)
{
    for (const char *end = text + n; (text = memchr(text, c->talk->end, (size_t)(end - text))); text++)
        p->unanswered -= p->unanswered > 0;
}

static void take(struct client *c, size_t i, int fd)
{
    static char room[READ_SIZE];
    ssize_t n = recv(fd, room, sizeof room, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN))
        stream_talk_fail("receiving");
    if (n < 0)
        return;
    if (i < c->subscribers)
        c->got[i] += (uint64_t)n;
    else
        take_answers(c, &c->publisher[i - c->subscribers], room, (size_t)n);
}

static void read_slowly(struct client *c, usec_t now)
{
    char room[SLOW_READ];
    if (c->slow < 0 || now < c->slow_due)
        return;
    (void)!recv(c->slow, room, sizeof room, MSG_DONTWAIT);
    c->slow_due += USEC_PER_SEC;
}

static double run(struct client *c)
{
    struct epoll_event events[EVENTS];
    usec_t began = clock_monotonic(), now = began;
    c->slow_due = began;
    for (; slowest(c) < c->messages; now = clock_monotonic()) {
        publish(c);
        read_slowly(c, now);
        int n = epoll_wait(c->epoll, events, EVENTS, 0);
        for (int i = 0; i < n; i++)
            take(c, events[i].data.u64 >> 32, (int)(events[i].data.u64 & 0xffffffffu));
        if (now - began > 60 * USEC_PER_SEC)
            stream_talk_fail("too slow");
    }
    return (double)(now - began) / (double)USEC_PER_SEC;
}

static void watch(struct client *c, size_t i, int fd)
{
    struct epoll_event e = {.events = EPOLLIN, .data = {.u64 = (uint64_t)i << 32 | (uint32_t)fd}};
    epoll_ctl(c->epoll, EPOLL_CTL_ADD, fd, &e);
}

/* Small buffers, as a client that does not read would have. */
static int subscribe_slow(const struct client *c, int port)
{
    int fd = stream_talk_subscribe(c->talk, port), room = 4096;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    return fd;
}

static void connect_all(struct client *c, int port, bool slow)
{
    c->epoll = epoll_create1(EPOLL_CLOEXEC);
    c->got = mem_zalloc(c->subscribers * sizeof *c->got);
    c->publisher = mem_zalloc(c->publishers * sizeof *c->publisher);
    for (size_t i = 0; i < c->subscribers; i++)
        watch(c, i, stream_talk_subscribe(c->talk, port));
    for (size_t i = 0; i < c->publishers; i++) {
        int fd = load_connect(port);
        if (fd < 0)
            stream_talk_fail("connecting");
        c->publisher[i] = (struct publisher){.fd = fd, .written = c->batch.len};
        watch(c, c->subscribers + i, fd);
    }
    c->slow = slow ? subscribe_slow(c, port) : -1;
    if (slow)
        subscribe_slow(c, port);
}

int main(int argc, char **argv)
{
    struct client c = {.talk = argc >= 6 ? stream_talk_find(argv[1]) : NULL};
    if (!c.talk) {
        fprintf(
            stderr, "usage: bench_streams pubsub|redis|nats PORT SUBSCRIBERS MESSAGES PUBLISHERS [slow]\n");
        return 64;
    }
    c.subscribers = strtoull(argv[3], NULL, 10);
    c.messages = strtoull(argv[4], NULL, 10) / BATCH * BATCH;
    c.publishers = strtoull(argv[5], NULL, 10);
    load_pin(1);
    c.talk->publish(&c.batch, BATCH, 0);
    connect_all(&c, (int)strtoull(argv[2], NULL, 10), argc > 6);
    double took = run(&c);
    printf("%.0f\n", (double)(c.messages * c.subscribers) / took);
    return 0;
}
