/* bench_service: latency, memory, and puts beside many connections.
 *
 *     bench_service SIMPLEQUEUE latency|memory|connections [ROUNDS]
 *
 * latency: puts at half of the maximum rate, by an open-loop client (load.h), compared to a bare loop, with priority over other
 *          programs if this is allowed. The host of a virtual machine may take processors away, and p99 would then show these
 *          gaps. So a measurement with stolen time is repeated, up to LOAD_MOST_TRIES times, and the number of rounds without
 *          stolen time is printed. Also prints how long the disk takes to sync the bytes of one commit after another.
 * memory:  resident memory per waiting message, compared to redis and beanstalkd.
 * connections: puts to a server with 10,000 idle connections, 200 long-polling readers, 200 clients that send their headers
 *          byte by byte, and 20 clients that request 9 MB each and read nothing, compared to a server without these. */
#include "base/clock.h"
#include "bench/servers.h"
#include "bench/talk.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CONNECTIONS 32
#define BATCH 100
#define MAX_ROUNDS 25
#define PACED_SECONDS 0.5
#define COMMIT ((size_t)16 << 10) /* about the size of a commit with sync=0 */
#define DISK_FILE ((size_t)8 << 20)
#define MOST_COMMITS 100000
#define WAITING 500000
#define IDLE 10000
#define POLLING 200
#define DRIPPING 200
#define STUCK 20
#define CONNECTIONS_REQUESTS 60000

struct bench {
    const char *simplequeue;
    char dir[64];
    size_t rounds;
};

static void die(const char *what)
{
    fprintf(stderr, "bench_service: %s\n", what);
    exit(1);
}

static struct server start_as(const struct server_wish *wish)
{
    struct server s;
    if (!server_start(&s, wish))
        exit(1);
    return s;
}

static struct server start(const struct bench *b, enum server_kind kind, const char *sync)
{
    return start_as(&(struct server_wish){
        .kind = kind, .simplequeue = b->simplequeue, .dir = sync ? b->dir : NULL, .sync = sync});
}

/* The bare loop answers puts with the bytes that simplequeue does. */
static struct server start_bare(const struct bench *b)
{
    struct buf request = {0}, reply = {0};
    talk_http_put(1, &request);
    struct server queue = start(b, SERVER_QUEUE, NULL);
    if (!server_ask(&queue, buf_bytes(&request), &reply))
        die("simplequeue does not answer");
    server_stop(&queue);
    struct server s = start_as(&(struct server_wish){
        .kind = SERVER_RAW, .raw_request = buf_bytes(&request), .raw_reply = buf_bytes(&reply)});
    buf_free(&request);
    buf_free(&reply);
    return s;
}

static double put(const struct server *s, uint64_t requests, double rate, struct load_latency *latency)
{
    struct buf request = {0};
    talk_http_put(1, &request);
    struct load l = {.port = s->port,
        .connections = CONNECTIONS,
        .requests = requests,
        .request = buf_bytes(&request),
        .reply_length = talk_http_reply,
        .rate = rate};
    double took = load_run(&l, latency);
    buf_free(&request);
    if (took < 0)
        die("the server failed");
    return (double)requests / took;
}

struct paced {
    double rate; /* requests a second at the maximum rate */
    struct load_latency latency;
    bool quiet;
};

static double full_rate(const struct server *s, uint64_t requests)
{
    for (size_t tries = 0;; tries++) {
        sleep(1); /* real-time priority is not used up */
        uint64_t stolen = load_stolen();
        double rate = put(s, requests, 0, NULL);
        if (load_counts(stolen, tries))
            return rate;
    }
}

static void paced(const struct server *s, uint64_t requests, struct paced *out)
{
    put(s, requests / 10, 0, NULL);
    out->rate = full_rate(s, requests);
    for (size_t tries = 0;; tries++) {
        sleep(1);
        uint64_t stolen = load_stolen();
        put(s, (uint64_t)(out->rate / 2 * PACED_SECONDS), out->rate / 2, &out->latency);
        out->quiet = load_stolen() == stolen;
        if (load_counts(stolen, tries))
            return;
    }
}

static void print_paced(const char *name, const struct paced *p, size_t n)
{
    double rate[MAX_ROUNDS], p50[MAX_ROUNDS], p99[MAX_ROUNDS], p999[MAX_ROUNDS];
    size_t quiet = 0;
    for (size_t i = 0; i < n; i++) {
        rate[i] = p[i].rate;
        p50[i] = p[i].latency.p50;
        p99[i] = p[i].latency.p99;
        p999[i] = p[i].latency.p999;
        quiet += p[i].quiet;
    }
    printf("%-28s %12.0f %9.3f %9.3f %9.3f   %zu of %zu\n", name, load_median(rate, n), load_median(p50, n),
        load_median(p99, n), load_median(p999, n), quiet, n);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double milliseconds_of_commit(int fd, const char *bytes, size_t at)
{
    usec_t begin = clock_monotonic();
    if (pwrite(fd, bytes, COMMIT, (off_t)at) != (ssize_t)COMMIT || fdatasync(fd) != 0)
        die("the disk failed");
    return (double)(clock_monotonic() - begin) / USEC_PER_MSEC;
}

static struct paced disk_alone(int fd, const char *bytes)
{
    static double took[MOST_COMMITS];
    usec_t begin = clock_monotonic(), most = (usec_t)(PACED_SECONDS * USEC_PER_SEC);
    uint64_t stolen = load_stolen();
    size_t n = 0;
    while (n < MOST_COMMITS && clock_monotonic() - begin < most) {
        took[n] = milliseconds_of_commit(fd, bytes, n * COMMIT % DISK_FILE);
        n++;
    }
    double seconds = (double)(clock_monotonic() - begin) / USEC_PER_SEC;
    qsort(took, n, sizeof *took, ascending);
    return (struct paced){.rate = (double)n / seconds,
        .latency = {.p50 = took[n / 2], .p99 = took[n * 99 / 100], .p999 = took[n * 999 / 1000]},
        .quiet = load_stolen() == stolen};
}

static struct paced measure_disk(const struct bench *b)
{
    char path[sizeof b->dir + 8];
    char *bytes = mem_zalloc(DISK_FILE);
    struct paced p;
    snprintf(path, sizeof path, "%s/disk", b->dir);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || pwrite(fd, bytes, DISK_FILE, 0) != (ssize_t)DISK_FILE || fsync(fd) != 0)
        die("the disk failed");
    for (size_t tries = 0;; tries++) {
        sleep(1);
        p = disk_alone(fd, bytes);
        if (p.quiet || tries + 1 >= LOAD_MOST_TRIES)
            break;
    }
    close(fd);
    unlink(path);
    free(bytes);
    return p;
}

static const struct latency_row {
    const char *name;
    enum { BARE_LOOP, QUEUE, DISK } what;
    const char *sync;
    uint64_t requests;
} latency_rows[] = {
    {"a bare loop", BARE_LOOP, NULL, 60000},
    {"in memory", QUEUE, NULL, 60000},
    {"sync=never", QUEUE, "never", 60000},
    {"sync=0", QUEUE, "0", 30000},
    {"write+fdatasync, 16 KB", DISK, NULL, 0},
};
#define LATENCY_ROWS (sizeof latency_rows / sizeof *latency_rows)

static struct paced measure_latency(const struct bench *b, const struct latency_row *row)
{
    struct paced p;
    if (row->what == DISK)
        return measure_disk(b);
    struct server s = row->what == BARE_LOOP ? start_bare(b) : start(b, SERVER_QUEUE, row->sync);
    paced(&s, row->requests, &p);
    server_stop(&s);
    return p;
}

static void run_latency(const struct bench *b)
{
    static struct paced measured[LATENCY_ROWS][MAX_ROUNDS];
    const char *beside = load_prefer() ? "" : "; beside others' work";
    for (size_t i = 0; i < b->rounds; i++)
        for (size_t k = 0; k < LATENCY_ROWS; k++)
            measured[k][i] = measure_latency(b, &latency_rows[k]);
    printf("%-28s %12s %9s %9s %9s   rounds without stolen time (milliseconds, at half of the full rate, "
           "median of %zu%s)\n",
        "puts", "full rate/s", "p50", "p99", "p99.9", b->rounds, beside);
    for (size_t k = 0; k < LATENCY_ROWS; k++)
        print_paced(latency_rows[k].name, measured[k], b->rounds);
}

static void measure_memory(const struct bench *b, const char *name, enum server_kind kind)
{
    struct server s = start(b, kind, NULL);
    struct buf request = {0};
    bool is_http = kind == SERVER_QUEUE;
    (is_http ? talk_http_put : kind == SERVER_REDIS ? talk_redis_put : talk_beanstalk_put)(BATCH, &request);
    struct load l = {.port = s.port,
        .connections = 1,
        .request = buf_bytes(&request),
        .replies = is_http ? 1 : BATCH,
        .reply_length = is_http                ? talk_http_reply
                        : kind == SERVER_REDIS ? talk_redis_reply
                                               : talk_beanstalk_reply};
    l.requests = 10;
    bool ok = load_run(&l, NULL) >= 0;
    double before = server_resident_bytes(&s);
    l.requests = WAITING / BATCH;
    ok = ok && load_run(&l, NULL) >= 0;
    printf("%-28s %12.0f\n", name, (server_resident_bytes(&s) - before) / WAITING);
    server_stop(&s);
    buf_free(&request);
    if (!ok)
        die("a server failed");
}

static void run_memory(const struct bench *b)
{
    printf("%-28s %12s   (%d waiting messages of %d bytes)\n", "resident memory", "bytes each", WAITING,
        MESSAGE_BYTES);
    measure_memory(b, "simplequeue", SERVER_QUEUE);
    measure_memory(b, "redis, a list", SERVER_REDIS);
    measure_memory(b, "beanstalkd", SERVER_BEANSTALKD);
}

static void say(int fd, const char *text)
{
    (void)!send(fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void open_many(const struct server *s, int n, const char *text)
{
    for (int i = 0; i < n; i++) {
        int fd = load_connect(s->port);
        if (fd < 0)
            die(strerror(errno));
        if (text)
            say(fd, text);
    }
}

/* Sends 200 bytes a second, one to each connection, and reopens closed connections. */
static void drip(const struct server *s)
{
    int fds[DRIPPING];
    for (int i = 0; i < DRIPPING; i++)
        fds[i] = -1;
    for (int i = 0;; i = (i + 1) % DRIPPING) {
        struct pollfd p = {.fd = fds[i], .events = POLLIN};
        if (fds[i] < 0 || poll(&p, 1, 0) > 0) {
            close(fds[i]);
            fds[i] = load_connect(s->port);
            say(fds[i], "POST /put HTTP/1.1\r\nHost: bench\r\nX: ");
        }
        say(fds[i], "x");
        nanosleep(&(struct timespec){0, 1000000000 / DRIPPING}, NULL);
    }
}

static pid_t start_drip(const struct server *s)
{
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        drip(s);
    }
    return pid;
}

static void fill_for_dumps(const struct server *s)
{
    struct buf request = {0}, head = {0}, reply = {0};
    talk_http_put(200 * BATCH, &request);
    const char *rest = memchr(request.ptr, ' ', request.len);
    const char *after = memchr(rest + 1, ' ', request.len - 6);
    buf_append_str(&head, "POST /mput?queue=big");
    buf_append(&head, after, request.len - (size_t)(after - request.ptr));
    if (!server_ask(s, buf_bytes(&head), &reply))
        die("the queue for dumps is not taken");
    buf_free(&request);
    buf_free(&head);
    buf_free(&reply);
}

static pid_t open_connections(const struct server *s)
{
    fill_for_dumps(s);
    open_many(s, IDLE, NULL);
    open_many(s, POLLING, "GET /reserve?queue=quiet&wait=600000 HTTP/1.1\r\nHost: bench\r\n\r\n");
    open_many(s, STUCK, "GET /dump?queue=big HTTP/1.1\r\nHost: bench\r\n\r\n");
    return start_drip(s);
}

static void raise_descriptors(void)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur < IDLE + 1000)
        die("the benchmark needs a hard limit of 11,000 open files (ulimit -Hn)");
}

static void run_connections(const struct bench *b)
{
    double with[MAX_ROUNDS], without[MAX_ROUNDS], ratio[MAX_ROUNDS];
    raise_descriptors();
    struct server busy = start(b, SERVER_QUEUE, NULL), quiet = start(b, SERVER_QUEUE, NULL);
    pid_t dripping = open_connections(&busy);
    put(&busy, CONNECTIONS_REQUESTS / 10, 0, NULL);
    put(&quiet, CONNECTIONS_REQUESTS / 10, 0, NULL);
    for (size_t i = 0; i < b->rounds; i++) {
        without[i] = put(&quiet, CONNECTIONS_REQUESTS, 0, NULL);
        with[i] = put(&busy, CONNECTIONS_REQUESTS, 0, NULL);
        ratio[i] = with[i] / without[i];
    }
    double resident = server_resident_bytes(&busy) - server_resident_bytes(&quiet);
    kill(dripping, SIGKILL);
    waitpid(dripping, NULL, 0);
    server_stop(&busy);
    server_stop(&quiet);
    printf("puts a second alone %.0f, beside the connections %.0f, ratio %.2f; the memory of the connections "
           "%.0f MB (median of "
           "%zu)\n",
        load_median(without, b->rounds), load_median(with, b->rounds), load_median(ratio, b->rounds),
        resident / 1e6, b->rounds);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(const struct bench *b);
    } kinds[] = {{"latency", run_latency}, {"memory", run_memory}, {"connections", run_connections}};
    struct bench b = {.simplequeue = argc > 1 ? argv[1] : NULL, .dir = "bench-service-XXXXXX"};
    size_t kind = 0;
    b.rounds = argc > 3 ? strtoul(argv[3], NULL, 10) : 5;
    while (kind < 3 && (argc < 3 || strcmp(kinds[kind].name, argv[2]) != 0))
        kind++;
    if (kind == 3 || b.rounds == 0 || b.rounds > MAX_ROUNDS || !mkdtemp(b.dir)) {
        fprintf(stderr, "usage: bench_service SIMPLEQUEUE latency|memory|connections [ROUNDS, 1..%d]\n",
            MAX_ROUNDS);
        return 64;
    }
    load_pin(1);
    kinds[kind].run(&b);
    return rmdir(b.dir) == 0 ? 0 : 1;
}
