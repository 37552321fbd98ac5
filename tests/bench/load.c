#include "load.h"
#include "clock.h"
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define REPLY_ROOM 65536
#define MAX_EVENTS 256

struct connection {
    int fd;
    size_t have; /* bytes of the reply so far */
    char reply[REPLY_ROOM];
};

struct running {
    const struct load *load;
    int epoll;
    uint64_t sent, done;
};

void load_pin(int processor)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    (void)sched_setaffinity(0, sizeof set, &set);
}

void load_post(struct buf *out, const char *target, size_t len)
{
    buf_clear(out);
    buf_printf(out, "POST %s HTTP/1.1\r\nHost: bench\r\nContent-Length: %zu\r\n\r\n", target, len);
    for (size_t i = 0; i < len; i++)
        buf_append_char(out, (char)('a' + i % 26));
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

double load_median(double *values, size_t n)
{
    qsort(values, n, sizeof *values, compare);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

static bool send_request(struct running *r, struct connection *c)
{
    struct bytes request = r->load->request;
    c->have = 0;
    if (r->sent == r->load->requests)
        return true;
    r->sent++;
    return send(c->fd, request.ptr, request.len, MSG_NOSIGNAL) == (ssize_t)request.len;
}

/* Length of the whole reply, 0 when more must come first, SIZE_MAX when it is not a 200. */
static size_t reply_length(const struct connection *c)
{
    const char *end = memmem(c->reply, c->have, "\r\n\r\n", 4);
    if (end == NULL)
        return 0;
    size_t head = (size_t)(end - c->reply) + 4;
    const char *length = memmem(c->reply, head, "Content-Length: ", 16);
    if (strncmp(c->reply, "HTTP/1.1 200", 12) != 0 || length == NULL)
        return SIZE_MAX;
    return head + strtoul(length + 16, NULL, 10);
}

static bool take(struct running *r, struct connection *c)
{
    ssize_t n = recv(c->fd, c->reply + c->have, sizeof c->reply - c->have, 0);
    if (n <= 0)
        return false;
    c->have += (size_t)n;
    size_t whole = reply_length(c);
    if (whole == 0 || (whole != SIZE_MAX && c->have < whole))
        return true;
    if (whole != c->have)
        return false;
    r->done++;
    return send_request(r, c);
}

static int open_connection(int port)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) != 0)
        return -1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static bool pump(struct running *r)
{
    struct epoll_event events[MAX_EVENTS];
    while (r->done < r->load->requests) {
        int n = epoll_wait(r->epoll, events, MAX_EVENTS, 30000);
        if (n <= 0)
            return false;
        for (int i = 0; i < n; i++)
            if (!take(r, events[i].data.ptr))
                return false;
    }
    return true;
}

double load_run(const struct load *l)
{
    struct running r = {.load = l, .epoll = epoll_create1(EPOLL_CLOEXEC)};
    struct connection *all = mem_zalloc((size_t)l->connections * sizeof *all);
    bool ok = true;
    usec_t start = clock_monotonic();
    for (int i = 0; i < l->connections; i++) {
        struct epoll_event e = {.events = EPOLLIN, .data = {.ptr = &all[i]}};
        all[i].fd = open_connection(l->port);
        ok = ok && all[i].fd >= 0 && epoll_ctl(r.epoll, EPOLL_CTL_ADD, all[i].fd, &e) == 0 &&
             send_request(&r, &all[i]);
    }
    ok = ok && pump(&r);
    usec_t took = clock_monotonic() - start;
    for (int i = 0; i < l->connections; i++)
        if (all[i].fd >= 0)
            close(all[i].fd);
    close(r.epoll);
    free(all);
    return ok ? (double)took / 1e6 : -1;
}
