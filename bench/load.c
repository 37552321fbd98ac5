#include "bench/load.h"
#include "base/clock.h"
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define ROOM (256 * 1024)
#define MAX_EVENTS 256
#define PATIENCE_MS 30000

struct connection {
    int fd;
    unsigned number;
    bool busy;
    size_t sent, have, parsed; /* bytes of the request; of the replies: here, and already counted */
    size_t replies;
    usec_t due;
    struct buf request;
    char *room;
};

struct running {
    const struct load *load;
    struct connection *all;
    int epoll;
    uint64_t begun, done;
    double start;           /* microseconds */
    uint32_t *latencies;    /* microseconds; NULL without a rate */
    struct connection *due; /* where the search for a free one goes on */
};

void load_pin(int processor)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    (void)sched_setaffinity(0, sizeof set, &set);
}

bool load_prefer(void)
{
    return sched_setscheduler(0, SCHED_RR, &(struct sched_param){.sched_priority = 1}) == 0;
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

uint64_t load_stolen(void)
{
    unsigned long long stolen = 0;
    FILE *f = fopen("/proc/stat", "re");
    if (f && fscanf(f, "cpu %*u %*u %*u %*u %*u %*u %*u %llu", &stolen) != 1)
        stolen = 0;
    if (f)
        fclose(f);
    return stolen;
}

bool load_counts(uint64_t stolen, size_t tries)
{
    return load_stolen() == stolen || tries + 1 >= LOAD_MOST_TRIES;
}

int load_connect(int port)
{
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    if (fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) != 0) {
        close(fd);
        return -1;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static struct bytes request_of(const struct running *r, const struct connection *c)
{
    return r->load->make ? buf_bytes(&c->request) : r->load->request;
}

static void watch(struct running *r, struct connection *c, uint32_t events)
{
    struct epoll_event e = {.events = events, .data = {.ptr = c}};
    epoll_ctl(r->epoll, EPOLL_CTL_MOD, c->fd, &e);
}

/* A request longer than the socket takes goes on when it is writable. */
static bool send_more(struct running *r, struct connection *c)
{
    struct bytes request = request_of(r, c);
    bool waited = c->sent > 0;
    ssize_t n = send(c->fd, request.ptr + c->sent, request.len - c->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n <= 0)
        return false;
    c->sent += (size_t)n;
    if (c->sent < request.len || waited)
        watch(r, c, c->sent < request.len ? EPOLLIN | EPOLLOUT : EPOLLIN);
    return true;
}

static bool begin(struct running *r, struct connection *c, usec_t due)
{
    r->begun++;
    c->busy = true;
    c->due = due;
    c->sent = c->have = c->parsed = c->replies = 0;
    return send_more(r, c);
}

static void finish(struct running *r, struct connection *c)
{
    if (r->latencies)
        r->latencies[r->done] = (uint32_t)(clock_monotonic() - c->due);
    if (r->load->make)
        r->load->make(c->number, bytes_of(c->room, c->have), &c->request);
    r->done++;
    c->busy = false;
}

/* True as long as all is well. */
static bool count_replies(struct running *r, struct connection *c)
{
    size_t wanted = r->load->replies ? r->load->replies : 1;
    while (c->replies < wanted && c->parsed < c->have) {
        size_t n = r->load->reply_length(bytes_of(c->room + c->parsed, c->have - c->parsed));
        if (n == LOAD_BAD) {
            fprintf(stderr, "bench: not what was wanted: %.*s\n",
                (int)(c->have - c->parsed < 200 ? c->have - c->parsed : 200), c->room + c->parsed);
            return false;
        }
        if (n == 0 || c->parsed + n > c->have)
            return true;
        c->parsed += n;
        c->replies++;
    }
    if (c->replies < wanted)
        return true;
    if (c->parsed != c->have)
        return false;
    finish(r, c);
    return r->latencies || r->begun == r->load->requests || begin(r, c, 0);
}

static bool take(struct running *r, struct connection *c, uint32_t events)
{
    if ((events & EPOLLOUT) && c->sent < request_of(r, c).len && !send_more(r, c))
        return false;
    if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
        return true;
    ssize_t n = recv(c->fd, c->room + c->have, ROOM - c->have, 0);
    if (n <= 0 || !c->busy)
        return false;
    c->have += (size_t)n;
    return count_replies(r, c);
}

static bool greet(const struct load *l, const struct connection *c)
{
    struct buf hello = {0};
    size_t have = 0;
    if (!l->hello)
        return true;
    l->hello(c->number, &hello);
    bool ok = send(c->fd, hello.ptr, hello.len, MSG_NOSIGNAL) == (ssize_t)hello.len;
    while (ok && !memmem(c->room, have, l->hello_end, strlen(l->hello_end))) {
        ssize_t n = recv(c->fd, c->room + have, ROOM - have, 0);
        ok = n > 0;
        have += ok ? (size_t)n : 0;
    }
    buf_free(&hello);
    return ok;
}

static bool open_connection(struct running *r, struct connection *c)
{
    struct epoll_event e = {.events = EPOLLIN, .data = {.ptr = c}};
    c->room = mem_alloc(ROOM);
    c->fd = load_connect(r->load->port);
    if (c->fd < 0 || !greet(r->load, c) || epoll_ctl(r->epoll, EPOLL_CTL_ADD, c->fd, &e) != 0)
        return false;
    if (r->load->make)
        r->load->make(c->number, BYTES_NONE, &c->request);
    return true;
}

static bool poll_once(struct running *r, int timeout)
{
    struct epoll_event events[MAX_EVENTS];
    int n = epoll_wait(r->epoll, events, MAX_EVENTS, timeout);
    for (int i = 0; i < n; i++)
        if (!take(r, events[i].data.ptr, events[i].events))
            return false;
    return n > 0 || timeout == 0;
}

static bool run_flat_out(struct running *r)
{
    for (int i = 0; i < r->load->connections && r->begun < r->load->requests; i++)
        if (!begin(r, &r->all[i], 0))
            return false;
    while (r->done < r->load->requests)
        if (!poll_once(r, PATIENCE_MS))
            return false;
    return true;
}

static struct connection *free_connection(struct running *r)
{
    for (int i = 0; i < r->load->connections; i++) {
        struct connection *c = r->due;
        r->due = c + 1 == r->all + r->load->connections ? r->all : c + 1;
        if (!c->busy)
            return c;
    }
    return NULL;
}

/* The client never sleeps: a wake-up of its own would be measured too. */
static bool run_paced(struct running *r)
{
    r->due = r->all;
    while (r->done < r->load->requests) {
        usec_t now = clock_monotonic();
        usec_t due = (usec_t)(r->start + (double)r->begun * 1e6 / r->load->rate);
        struct connection *c = r->begun < r->load->requests && due <= now ? free_connection(r) : NULL;
        if (c && !begin(r, c, due))
            return false;
        if (!poll_once(r, 0) || now - (usec_t)r->start > 60 * USEC_PER_SEC)
            return false;
    }
    return true;
}

static int compare_latencies(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static void summarize(struct running *r, struct load_latency *out)
{
    uint64_t n = r->done;
    qsort(r->latencies, n, sizeof *r->latencies, compare_latencies);
    out->p50 = r->latencies[n / 2] / 1e3;
    out->p99 = r->latencies[n * 99 / 100] / 1e3;
    out->p999 = r->latencies[n * 999 / 1000] / 1e3;
    out->worst = r->latencies[n - 1] / 1e3;
}

static void clean_up(struct running *r)
{
    for (int i = 0; i < r->load->connections; i++) {
        if (r->all[i].fd >= 0)
            close(r->all[i].fd);
        buf_free(&r->all[i].request);
        free(r->all[i].room);
    }
    close(r->epoll);
    free(r->all);
    free(r->latencies);
}

double load_run(const struct load *l, struct load_latency *latency)
{
    struct running r = {.load = l, .epoll = epoll_create1(EPOLL_CLOEXEC)};
    bool ok = true;
    r.all = mem_zalloc((size_t)l->connections * sizeof *r.all);
    for (int i = 0; i < l->connections; i++)
        r.all[i].fd = -1;
    for (int i = 0; ok && i < l->connections; i++) {
        r.all[i].number = (unsigned)i;
        ok = open_connection(&r, &r.all[i]);
    }
    if (l->rate > 0)
        r.latencies = mem_alloc(l->requests * sizeof *r.latencies);
    r.start = (double)clock_monotonic();
    ok = ok && (l->rate > 0 ? run_paced(&r) : run_flat_out(&r));
    double took = ((double)clock_monotonic() - r.start) / 1e6;
    if (ok && latency && r.latencies)
        summarize(&r, latency);
    clean_up(&r);
    return ok ? took : -1;
}
