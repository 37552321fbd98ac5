/* The latency from a publisher to a subscriber, for the servers of bench_streams except NATS, which sends pings between the
 * messages.
 *
 *     bench_stream_latency PROTOCOL PORT RATE SECONDS    prints p50, p99, p99.9 and the maximum in milliseconds, and 1 if no
 *                                                        time was stolen from the machine meanwhile, else 0
 *     bench_stream_latency bare                          prints its port: a server with pubsub's protocol that only forwards
 *                                                        published messages to the subscriber
 *
 * The host of a virtual machine may take processors away, and p99 would then show these gaps. So a measurement with stolen
 * time is repeated, up to LOAD_MOST_TRIES times. The bare loop of the same round shows the share of the machine and the
 * sockets.
 *
 * RATE messages of 450 bytes a second are published in requests of 10 messages, open-loop: batch k is due at k * 10 / RATE,
 * even if the server is late. Each message contains its due time, and its latency starts at this time. So a stall delays every
 * message that is due meanwhile. One subscriber checks every message. The first tenth of the batches is not counted.
 *
 * The client sleeps until a batch is due or a message arrives. Therefore it can have priority over all other programs
 * (measuring.prefer): the kernel interrupts such a program for milliseconds if it never sleeps. */
#include "base/clock.h"
#include "bench/servers.h"
#include "bench/stream_talk.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define BATCH 10
#define PUBLISHERS                                                                                           \
    64 /* they take turns, because some servers process the requests of one connection one after the other */
#define READ_SIZE (256 * 1024)

struct client {
    const struct stream_talk *talk;
    int publishers[PUBLISHERS], subscriber;
    double spacing; /* microseconds between batches */
    uint64_t batches, sent;
    usec_t began;
    struct buf batch;
    char stamp[STREAM_STAMP + 1]; /* of the message that is being received */
    uint64_t got;                 /* bytes */
    double *latencies;            /* milliseconds */
    uint64_t n;
};

static usec_t next_due(const struct client *c)
{
    return c->began + (usec_t)((double)c->sent * c->spacing);
}

static void publish(struct client *c, usec_t now)
{
    static char answers[READ_SIZE];
    usec_t due = next_due(c);
    int fd = c->publishers[c->sent % PUBLISHERS];
    if (c->sent == c->batches || due > now)
        return;
    (void)!recv(fd, answers, sizeof answers, MSG_DONTWAIT); /* of its last request; not waited for */
    buf_clear(&c->batch);
    c->talk->publish(&c->batch, BATCH, (uint64_t)due);
    if (send(fd, c->batch.ptr, c->batch.len, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)c->batch.len)
        stream_talk_fail("publishing: the server is far behind");
    c->sent++;
}

static void finish_message(struct client *c, usec_t now)
{
    uint64_t number = c->got / c->talk->delivered;
    if (number * 10 < c->batches * BATCH)
        return;
    c->latencies[c->n++] = (double)(now - (usec_t)strtoull(c->stamp, NULL, 16)) / 1e3;
}

/* Takes the bytes of at most one message. Returns their number. */
static size_t take_message(struct client *c, const char *text, size_t n, usec_t now)
{
    size_t at = (size_t)(c->got % c->talk->delivered), left = c->talk->delivered - at;
    size_t used = n < left ? n : left;
    for (size_t i = 0; i < STREAM_STAMP; i++) {
        size_t place = c->talk->text_at + i;
        if (place >= at && place < at + used)
            c->stamp[i] = text[place - at];
    }
    if (used == left)
        finish_message(c, now);
    c->got += used;
    return used;
}

/* Waits until a message arrives or the next batch is due. */
static void sleep_on(const struct client *c, usec_t now)
{
    usec_t left = c->sent == c->batches ? USEC_PER_SEC : next_due(c) - now;
    struct pollfd p = {c->subscriber, POLLIN, 0};
    if (left > 0)
        ppoll(&p, 1, &(struct timespec){left / USEC_PER_SEC, left % USEC_PER_SEC * 1000}, NULL);
}

static void receive(struct client *c)
{
    static char room[READ_SIZE];
    ssize_t n = recv(c->subscriber, room, sizeof room, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN))
        stream_talk_fail("receiving");
    usec_t now = clock_monotonic();
    for (size_t done = 0; n > 0 && done < (size_t)n;)
        done += take_message(c, room + done, (size_t)n - done, now);
}

static void run(struct client *c)
{
    uint64_t bytes = c->batches * BATCH * c->talk->delivered;
    c->sent = c->got = c->n = 0;
    c->began = clock_monotonic();
    for (usec_t now = c->began; c->got < bytes; now = clock_monotonic()) {
        publish(c, now);
        receive(c);
        if (c->got < bytes)
            sleep_on(c, clock_monotonic());
        if (now - c->began > 60 * USEC_PER_SEC)
            stream_talk_fail("too slow");
    }
}

/* True when no time was stolen. */
static bool run_quietly(struct client *c)
{
    for (size_t tries = 0;; tries++) {
        uint64_t stolen = load_stolen();
        run(c);
        if (load_counts(stolen, tries))
            return load_stolen() == stolen;
    }
}

static void print(struct client *c, bool quiet)
{
    (void)load_median(c->latencies, c->n); /* sorts them */
    printf("%.3f %.3f %.3f %.3f %d\n", c->latencies[c->n / 2], c->latencies[c->n * 99 / 100],
        c->latencies[c->n * 999 / 1000], c->latencies[c->n - 1], quiet);
}

/* The bare loop. Every request is as long as any other, and its lines stand at its end. */
struct bare {
    int subscriber;
    size_t request, head;
    size_t have[SERVER_FDS]; /* bytes of a connection's request so far */
};

static void pass_on(struct bare *b, size_t *have, struct bytes text)
{
    while (text.len > 0) {
        bool in_head = *have < b->head;
        size_t left = (in_head ? b->head : b->request) - *have, n = text.len < left ? text.len : left;
        if (!in_head)
            server_send(b->subscriber, bytes_of(text.ptr, n));
        *have = (*have + n) % b->request;
        text = bytes_of(text.ptr + n, text.len - n);
    }
}

static void bare_take(int fd, void *arg)
{
    static char room[READ_SIZE];
    struct bare *b = arg;
    ssize_t n = recv(fd, room, sizeof room, 0);
    if (n <= 0) {
        b->have[fd] = 0;
        close(fd);
    } else if (b->have[fd] == 0 && room[0] == 'G') {
        b->subscriber = fd;
        server_send(fd, BYTES_LITERAL("HTTP/1.0 200 OK\r\n\r\n"));
    } else {
        pass_on(b, &b->have[fd], bytes_of(room, (size_t)n));
    }
}

_Noreturn static void be_bare(void)
{
    static struct bare b;
    struct buf request = {0};
    int port, listener = server_listen(&port);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    load_pin(0);
    stream_talk_find("pubsub")->publish(&request, BATCH, 0);
    b.request = request.len;
    b.head = request.len - (size_t)BATCH * STREAM_MESSAGE;
    printf("%d\n", port);
    fflush(stdout);
    server_loop(listener, bare_take, NULL, &b);
}

int main(int argc, char **argv)
{
    struct client c = {.talk = argc == 5 ? stream_talk_find(argv[1]) : NULL};
    if (argc == 2 && strcmp(argv[1], "bare") == 0)
        be_bare();
    if (!c.talk) {
        fprintf(stderr,
            "usage: bench_stream_latency pubsub|redis PORT RATE SECONDS, or bench_stream_latency bare\n");
        return 64;
    }
    int port = (int)strtol(argv[2], NULL, 10);
    double rate = strtod(argv[3], NULL);
    c.batches = (uint64_t)(rate * strtod(argv[4], NULL)) / BATCH;
    c.spacing = BATCH * 1e6 / rate;
    load_pin(1);
    c.latencies = mem_alloc(c.batches * BATCH * sizeof *c.latencies);
    c.subscriber = stream_talk_subscribe(c.talk, port);
    for (size_t i = 0; i < PUBLISHERS; i++)
        if ((c.publishers[i] = load_connect(port)) < 0)
            stream_talk_fail("connecting");
    bool quiet = run_quietly(&c);
    print(&c, quiet);
    return 0;
}
