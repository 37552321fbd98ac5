#include "bench/stream_talk.h"

#include "bench/load.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

static void add_text(struct buf *out, size_t n, uint64_t stamp)
{
    buf_printf(out, "%016" PRIx64, stamp);
    for (size_t i = STREAM_STAMP; i < n; i++)
        buf_append_char(out, (char)('a' + i % 26));
}

static void publish_pubsub(struct buf *out, size_t messages, uint64_t stamp)
{
    buf_printf(out, "POST /pub?stream=s HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n",
        STREAM_MESSAGE * messages);
    for (size_t i = 0; i < messages; i++) {
        add_text(out, STREAM_MESSAGE - 1, stamp);
        buf_append_char(out, '\n');
    }
}

static void publish_redis(struct buf *out, size_t messages, uint64_t stamp)
{
    for (size_t i = 0; i < messages; i++) {
        buf_printf(out, "*3\r\n$7\r\nPUBLISH\r\n$1\r\ns\r\n$%d\r\n", STREAM_MESSAGE);
        add_text(out, STREAM_MESSAGE, stamp);
        buf_append_str(out, "\r\n");
    }
}

static void publish_nats(struct buf *out, size_t messages, uint64_t stamp)
{
    for (size_t i = 0; i < messages; i++) {
        buf_printf(out, "PUB s %d\r\n", STREAM_MESSAGE);
        add_text(out, STREAM_MESSAGE, stamp);
        buf_append_str(out, "\r\n");
    }
}

#define REDIS_HEAD "*3\r\n$7\r\nmessage\r\n$1\r\ns\r\n$450\r\n"
#define NATS_HEAD "MSG s 1 450\r\n"

static const struct stream_talk talks[] = {
    {"pubsub", "GET /sub?stream=s HTTP/1.0\r\n\r\n", "\r\n\r\n", STREAM_MESSAGE, 0, publish_pubsub, '}', 1,
        0},
    {"redis", "SUBSCRIBE s\r\n", ":1\r\n", sizeof REDIS_HEAD - 1 + STREAM_MESSAGE + 2, sizeof REDIS_HEAD - 1,
        publish_redis, '\n', 0, 1},
    {"nats", "CONNECT {\"verbose\":false}\r\nSUB s 1\r\nPING\r\n", "PONG\r\n",
        sizeof NATS_HEAD - 1 + STREAM_MESSAGE + 2, sizeof NATS_HEAD - 1, publish_nats, 0, 0, 0},
};

const struct stream_talk *stream_talk_find(const char *name)
{
    for (size_t i = 0; i < sizeof talks / sizeof *talks; i++)
        if (strcmp(name, talks[i].name) == 0)
            return &talks[i];
    return NULL;
}

size_t stream_talk_ends(const struct stream_talk *talk, size_t messages)
{
    return talk->ends + talk->ends_a_message * messages;
}

void stream_talk_fail(const char *what)
{
    fprintf(stderr, "bench: %s: %s\n", what, strerror(errno));
    exit(1);
}

int stream_talk_subscribe(const struct stream_talk *talk, int port)
{
    char text[4096] = "";
    size_t n = 0;
    int fd = load_connect(port);
    if (fd < 0 || send(fd, talk->hello, strlen(talk->hello), 0) < 0)
        stream_talk_fail("connecting");
    while (!strstr(text, talk->greeted)) {
        struct pollfd p = {fd, POLLIN, 0};
        ssize_t r = poll(&p, 1, 10000) == 1 ? recv(fd, text + n, sizeof text - 1 - n, 0) : -1;
        if (r <= 0)
            stream_talk_fail("greeting");
        n += (size_t)r;
        text[n] = '\0';
    }
    return fd;
}
