/* Reading a stream's backlog: makes one, serves its files by a bare sendfile loop, and reads from either server.
 *
 *     bench_backlog make DIR LINES BYTES       makes a journal of about BYTES bytes, in frames of LINES lines of 450 bytes
 *     bench_backlog serve DIR                  prints its port; sends the journal's files to each client, 256 KB per call
 *     bench_backlog read PORT PATH N BYTES     N clients get PATH and read at most BYTES bytes each; prints the sum of
 *                                              their bytes a second
 * The server is pinned to processor 0, the reader to processor 1. The reader receives into one buffer and does nothing
 * else. */
#include "journal/journal.h"
#include "bench/servers.h"
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINE 450
#define BLOCK ((size_t)256 * 1024)
#define READ_SIZE ((size_t)256 * 1024)
#define FILES_MOST 256
#define CLIENTS_MOST 1024
#define TOO_LONG (120 * USEC_PER_SEC)

_Noreturn static void fail(const char *what)
{
    fprintf(stderr, "bench_backlog: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void no_wake(void *arg)
{
    (void)arg;
}

static void appended(const struct journal_commit *commit, void *arg)
{
    (void)arg;
    if (commit->result != JOURNAL_OK)
        fail("appending");
}

static void make_frame(struct buf *frame, size_t lines)
{
    for (size_t i = 0; i < lines; i++) {
        for (int k = 0; k < LINE - 1; k++)
            buf_append_char(frame, (char)('a' + (k * 7 + (int)i) % 26));
        buf_append_char(frame, '\n');
    }
}

static int make(const char *dir, size_t lines, uint64_t bytes)
{
    struct journal_set_config set_config = {.sync_ms = JOURNAL_SYNC_NEVER, .notify = no_wake};
    struct journal_config config = {.dir = dir};
    struct journal_set *set = journal_set_new(&set_config);
    struct journal *j;
    struct buf frame = {0};
    char error[256];
    if (journal_open(set, &config, &j, error, sizeof error) != JOURNAL_OK)
        fail(error);
    make_frame(&frame, lines);
    struct bytes piece = buf_bytes(&frame);
    struct journal_append append = {.pieces = &piece, .n_pieces = 1};
    uint64_t pending = 0;
    for (uint64_t done = 0; done < bytes; done += frame.len) {
        if (journal_append(j, &append, clock_wall(), appended, NULL, NULL) != JOURNAL_OK)
            fail("appending");
        pending += frame.len;
        if (pending > (size_t)4 << 20) {
            journal_set_flush(set);
            pending = 0;
        }
    }
    journal_set_free(&set);
    buf_free(&frame);
    return 0;
}

struct files {
    int fd[FILES_MOST];
    off_t size[FILES_MOST];
    size_t n;
};

struct served {
    int fd;
    size_t file;
    off_t at;
    bool asked;
};

static void open_files(struct files *f, const char *dir)
{
    char path[400];
    struct stat st;
    for (f->n = 0; f->n < FILES_MOST; f->n++) {
        snprintf(path, sizeof path, "%s/%016zx.seg", dir, f->n + 1);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st) != 0)
            break;
        f->fd[f->n] = fd;
        f->size[f->n] = st.st_size;
    }
    if (f->n == 0)
        fail(path);
}

/* False when there is nothing more to do for it. */
static bool serve_block(const struct files *f, struct served *c)
{
    char request[2048];
    if (!c->asked) {
        c->asked = recv(c->fd, request, sizeof request, 0) > 0;
        return c->asked;
    }
    if (c->file == f->n)
        return false;
    size_t left = (size_t)(f->size[c->file] - c->at);
    ssize_t n = sendfile(c->fd, f->fd[c->file], &c->at, left < BLOCK ? left : BLOCK);
    if (n < 0 && errno != EAGAIN)
        return false;
    if (c->at == f->size[c->file]) {
        c->file++;
        c->at = 0;
    }
    return true;
}

static void take_client(int epoll, int listener)
{
    struct served *c = mem_zalloc(sizeof *c);
    int on = 1;
    c->fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    struct epoll_event e = {.events = EPOLLIN, .data = {.ptr = c}};
    epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &e);
}

static void serve_client(int epoll, const struct files *f, struct served *c)
{
    bool had_asked = c->asked;
    if (!serve_block(f, c)) {
        close(c->fd);
        free(c);
    } else if (!had_asked) {
        struct epoll_event e = {.events = EPOLLOUT, .data = {.ptr = c}};
        epoll_ctl(epoll, EPOLL_CTL_MOD, c->fd, &e);
    }
}

_Noreturn static void serve(const char *dir)
{
    struct epoll_event events[CLIENTS_MOST], e = {.events = EPOLLIN};
    struct files files;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)signal(SIGPIPE, SIG_IGN);
    load_pin(0);
    open_files(&files, dir);
    int port, epoll = epoll_create1(EPOLL_CLOEXEC), listener = server_listen(&port);
    printf("%d\n", port);
    fflush(stdout);
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &e);
    for (;;) {
        int n = epoll_wait(epoll, events, CLIENTS_MOST, -1);
        for (int i = 0; i < n; i++) {
            if (events[i].data.ptr)
                serve_client(epoll, &files, events[i].data.ptr);
            else
                take_client(epoll, listener);
        }
    }
}

struct reader {
    int epoll;
    size_t n, open;
    uint64_t most; /* of each */
    uint64_t got[CLIENTS_MOST], all;
};

static void ask(struct reader *r, size_t i, int port, const char *path)
{
    char text[512];
    int fd = load_connect(port);
    int len = snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: b\r\nConnection: close\r\n\r\n", path);
    struct epoll_event e = {.events = EPOLLIN, .data = {.u64 = (uint64_t)i << 32 | (uint32_t)fd}};
    if (fd < 0 || send(fd, text, (size_t)len, 0) != len)
        fail("asking");
    epoll_ctl(r->epoll, EPOLL_CTL_ADD, fd, &e);
}

static void take(struct reader *r, size_t i, int fd)
{
    static char room[READ_SIZE];
    ssize_t n = recv(fd, room, sizeof room, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN)
        return;
    if (n < 0)
        fail("receiving");
    r->got[i] += (uint64_t)n;
    r->all += (uint64_t)n;
    if (n > 0 && r->got[i] < r->most)
        return;
    close(fd);
    r->open--;
}

static int read_all(int port, const char *path, size_t n, uint64_t most)
{
    static struct reader r;
    struct epoll_event events[64];
    r = (struct reader){.epoll = epoll_create1(EPOLL_CLOEXEC), .n = n, .open = n, .most = most};
    load_pin(1);
    usec_t began = clock_monotonic();
    for (size_t i = 0; i < n; i++)
        ask(&r, i, port, path);
    while (r.open > 0) {
        int ready = epoll_wait(r.epoll, events, 64, 1000);
        for (int i = 0; i < ready; i++)
            take(&r, events[i].data.u64 >> 32, (int)(events[i].data.u64 & 0xffffffffu));
        if (clock_monotonic() - began > TOO_LONG)
            fail("too slow");
    }
    double seconds = (double)(clock_monotonic() - began) / 1e6;
    printf("%.0f %llu\n", (double)r.all / seconds, (unsigned long long)r.all);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[1], "make") == 0)
        return make(argv[2], strtoul(argv[3], NULL, 10), strtoull(argv[4], NULL, 10));
    if (argc == 3 && strcmp(argv[1], "serve") == 0)
        serve(argv[2]);
    if (argc == 6 && strcmp(argv[1], "read") == 0)
        return read_all(
            (int)strtol(argv[2], NULL, 10), argv[3], strtoul(argv[4], NULL, 10), strtoull(argv[5], NULL, 10));
    fprintf(stderr, "usage: bench_backlog make DIR LINES BYTES | serve DIR | read PORT PATH N BYTES\n");
    return 64;
}
