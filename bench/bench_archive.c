/* bench_archive PORT BYTES FILE SYNC_MS: the bare loop to which ps_to_file is compared. It reads the stream `s` of the
 * pubsub at PORT from its beginning, over HTTP/1.1 as ps_to_file does, and writes the first BYTES bytes to FILE. Another
 * thread syncs the file every SYNC_MS milliseconds, as the commits of ps_to_file do (0: no syncs).
 *
 * Prints the processor time in seconds. */
#include "base/bytes.h"
#include "bench/load.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define ROOM ((size_t)512 << 10) /* as much as ps_to_file receives at once */

static void fail(const char *what)
{
    fprintf(stderr, "bench_archive: %s: %s\n", what, strerror(errno));
    exit(1);
}

struct syncing {
    int fd;
    long every_ms;
};

static void *sync_often(void *arg)
{
    const struct syncing *s = arg;
    const struct timespec pause = {s->every_ms / 1000, s->every_ms % 1000 * 1000000};
    for (;;) {
        nanosleep(&pause, NULL);
        if (fdatasync(s->fd) != 0)
            fail("fdatasync");
    }
    return NULL;
}

struct reply {
    int fd;
    char room[ROOM];
    size_t at, have;
};

static void receive(struct reply *r)
{
    if (r->at == r->have)
        r->at = r->have = 0;
    ssize_t n = recv(r->fd, r->room + r->have, ROOM - r->have, 0);
    if (n <= 0)
        fail("recv");
    r->have += (size_t)n;
}

/* Behind the next `end`, which is short and seldom far. */
static struct bytes line(struct reply *r, const char *end)
{
    const char *found;
    while ((found = memmem(r->room + r->at, r->have - r->at, end, strlen(end))) == NULL) {
        memmove(r->room, r->room + r->at, r->have - r->at);
        r->have -= r->at;
        r->at = 0;
        receive(r);
    }
    struct bytes text = bytes_of(r->room + r->at, (size_t)(found - (r->room + r->at)));
    r->at += text.len + strlen(end);
    return text;
}

static size_t chunk_length(struct reply *r)
{
    char *behind;
    struct bytes text = line(r, "\r\n");
    errno = EPROTO;
    unsigned long n = strtoul(text.ptr, &behind, 16);
    if (behind == text.ptr || n == 0)
        fail("a chunk");
    return n;
}

static void write_all(int fd, const char *at, size_t n)
{
    while (n > 0) {
        ssize_t done = write(fd, at, n);
        if (done < 0)
            fail("write");
        at += done;
        n -= (size_t)done;
    }
}

static void copy(struct reply *r, int file, uint64_t bytes)
{
    while (bytes > 0) {
        size_t left = chunk_length(r);
        while (left > 0) {
            if (r->at == r->have)
                receive(r);
            size_t n = r->have - r->at < left ? r->have - r->at : left;
            write_all(file, r->room + r->at, n);
            r->at += n;
            left -= n;
            bytes -= n < bytes ? n : bytes;
        }
        line(r, "\r\n");
    }
}

static double processor_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

int main(int argc, char **argv)
{
    static const char request[] = "GET /sub?stream=s&from=earliest HTTP/1.1\r\nHost: x\r\n\r\n";
    static struct reply r;
    static struct syncing syncing;
    pthread_t thread;
    if (argc != 5)
        return 64;
    r.fd = load_connect(atoi(argv[1]));
    syncing = (struct syncing){open(argv[3], O_WRONLY | O_CREAT | O_TRUNC, 0666), atol(argv[4])};
    if (r.fd < 0 || syncing.fd < 0 || send(r.fd, request, sizeof request - 1, 0) < 0)
        fail("beginning");
    if (syncing.every_ms > 0 && pthread_create(&thread, NULL, sync_often, &syncing) != 0)
        fail("a thread");
    line(&r, "\r\n\r\n");
    copy(&r, syncing.fd, strtoull(argv[2], NULL, 10));
    printf("%.3f\n", processor_seconds());
    return 0;
}
