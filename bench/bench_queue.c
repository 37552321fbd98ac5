/* bench_queue: simplequeue beside a raw epoll loop and Debian's peers, in every way that docs/performance.md has a row for.
 *
 *     bench_queue SIMPLEQUEUE GROUP [ROUNDS]        GROUP: put get lease put100 get100 synced synced1 kept
 *
 * The server on one processor, the client on another. A round measures every row of the group in turn, each with a
 * server started for it; shown are medians over the rounds, and medians of the ratios to the first row of the same round. */
#include "base/clock.h"
#include "bench/servers.h"
#include "bench/talk.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define CONNECTIONS 32
#define BATCH 100
#define MAX_ROUNDS 25
#define MAX_ROWS 8
#define BARE_FILE (64 << 20)

enum work { WORK_PUT, WORK_GET, WORK_LEASE, WORK_RIDE, WORKS };

struct dialect {
    void (*fixed)(size_t messages, struct buf *out);
    void (*make)(unsigned connection, struct bytes reply, struct buf *request);
    size_t (*reply_length)(struct bytes have);
    bool pipelined; /* a reply a message */
    void (*hello)(unsigned connection, struct buf *out);
    const char *hello_end;
    double requests_per_message; /* 0: one, or one a batch */
};

static const struct dialect dialects[][WORKS] =
    {
        [SERVER_RAW] =
            {
                [WORK_PUT] = {.fixed = talk_http_put, .reply_length = talk_http_reply},
                [WORK_GET] = {.fixed = talk_http_get, .reply_length = talk_http_full},
            },
        [SERVER_QUEUE] =
            {
                [WORK_PUT] = {.fixed = talk_http_put, .reply_length = talk_http_reply},
                [WORK_GET] = {.fixed = talk_http_get, .reply_length = talk_http_full},
                [WORK_LEASE] = {.make = talk_http_lease, .reply_length = talk_http_full},
            },
        [SERVER_REDIS] =
            {
                [WORK_PUT] = {.fixed = talk_redis_put, .reply_length = talk_redis_reply, .pipelined = true},
                [WORK_GET] = {.fixed = talk_redis_get, .reply_length = talk_redis_reply, .pipelined = true},
            },
        [SERVER_BEANSTALKD] =
            {
                [WORK_PUT] = {.fixed = talk_beanstalk_put,
                    .reply_length = talk_beanstalk_reply,
                    .pipelined = true},
                [WORK_LEASE] = {.make = talk_beanstalk_lease,
                    .reply_length = talk_beanstalk_reply,
                    .requests_per_message = 2},
                [WORK_RIDE] = {.make = talk_beanstalk_ride, .reply_length = talk_beanstalk_ride_reply},
            },
        [SERVER_NATS] =
            {
                [WORK_PUT] = {.make = talk_nats_put,
                    .reply_length = talk_nats_reply,
                    .pipelined = true,
                    .hello = talk_nats_hello,
                    .hello_end = TALK_NATS_HELLO_END},
            },
};

struct row {
    const char *name;
    enum server_kind kind;
    enum work work;
    const char *sync;        /* NULL: in memory */
    size_t messages;         /* a request */
    uint64_t total;          /* messages a round */
    size_t bare;             /* bytes a write of the bare disk loop, which has no server; 0: a server */
#define OWN_COMMITS SIZE_MAX /* as many as simplequeue committed at once on the average, in the same round */
};

static const struct group {
    const char *name;
    struct row rows[MAX_ROWS];
} groups[] = {
    {"put", {{"raw epoll loop", SERVER_RAW, WORK_PUT, NULL, 1, 100000, 0},
                {"simplequeue put", SERVER_QUEUE, WORK_PUT, NULL, 1, 100000, 0},
                {"redis LPUSH", SERVER_REDIS, WORK_PUT, NULL, 1, 100000, 0},
                {"beanstalkd put", SERVER_BEANSTALKD, WORK_PUT, NULL, 1, 100000, 0}}},
    {"get", {{"raw epoll loop", SERVER_RAW, WORK_GET, NULL, 1, 100000, 0},
                {"simplequeue get", SERVER_QUEUE, WORK_GET, NULL, 1, 100000, 0},
                {"redis RPOP", SERVER_REDIS, WORK_GET, NULL, 1, 100000, 0}}},
    {"lease", {{"beanstalkd reserve, delete", SERVER_BEANSTALKD, WORK_LEASE, NULL, 1, 50000, 0},
                  {"beanstalkd delete+reserve in one", SERVER_BEANSTALKD, WORK_RIDE, NULL, 1, 50000, 0},
                  {"simplequeue reserve?ack=", SERVER_QUEUE, WORK_LEASE, NULL, 1, 50000, 0}}},
    {"put100", {{"redis LPUSH, pipeline of 100", SERVER_REDIS, WORK_PUT, NULL, BATCH, 500000, 0},
                   {"simplequeue mput of 100", SERVER_QUEUE, WORK_PUT, NULL, BATCH, 1000000, 0},
                   {"raw epoll loop, 45 KB a request", SERVER_RAW, WORK_PUT, NULL, BATCH, 1000000, 0}}},
    {"get100", {{"redis RPOP, pipeline of 100", SERVER_REDIS, WORK_GET, NULL, BATCH, 500000, 0},
                   {"simplequeue mget of 100", SERVER_QUEUE, WORK_GET, NULL, BATCH, 1000000, 0},
                   {"raw epoll loop, 45 KB a reply", SERVER_RAW, WORK_GET, NULL, BATCH, 1000000, 0}}},
    {"synced",
        {{"redis appendfsync always, 100", SERVER_REDIS, WORK_PUT, "0", BATCH, 300000, 0},
            {"simplequeue mput of 100, sync=0", SERVER_QUEUE, WORK_PUT, "0", BATCH, 300000, 0},
            {"JetStream file, 100 (no sync each)", SERVER_NATS, WORK_PUT, "0", BATCH, 200000, 0},
            {"raw epoll loop, a sync a turn", SERVER_RAW, WORK_PUT, "0", BATCH, 300000, 0},
            {"bare write+fdatasync, its commits", SERVER_RAW, WORK_PUT, "0", 1, 300000, OWN_COMMITS},
            {"bare write+fdatasync, 45 KB", SERVER_RAW, WORK_PUT, "0", 1, 200000, (size_t)45100},
            {"bare write+fdatasync, 16 x 45 KB", SERVER_RAW, WORK_PUT, "0", 1, 400000, (size_t)16 * 45100}}},
    {"synced1", {{"redis appendfsync always", SERVER_REDIS, WORK_PUT, "0", 1, 30000, 0},
                    {"simplequeue put, sync=0", SERVER_QUEUE, WORK_PUT, "0", 1, 30000, 0},
                    {"raw epoll loop, a sync a turn", SERVER_RAW, WORK_PUT, "0", 1, 30000, 0},
                    {"bare write+fdatasync, its commits", SERVER_RAW, WORK_PUT, "0", 1, 30000, OWN_COMMITS},
                    {"beanstalkd -f0 put", SERVER_BEANSTALKD, WORK_PUT, "0", 1, 5000, 0}}},
    {"kept", {{"raw epoll loop", SERVER_RAW, WORK_PUT, NULL, 1, 60000, 0},
                 {"simplequeue put, sync=never", SERVER_QUEUE, WORK_PUT, "never", 1, 60000, 0},
                 {"simplequeue mput of 100, sync=never", SERVER_QUEUE, WORK_PUT, "never", BATCH, 500000, 0}}},
};
#define N_GROUPS (sizeof groups / sizeof *groups)

struct result {
    double rate, ratio, cpu; /* messages a second; to the first row; server's microseconds a message */
};

struct bench {
    const char *simplequeue;
    char dir[64];
    double per_sync; /* messages that simplequeue committed with one sync */
};

static void die(const char *what, const char *name)
{
    fprintf(stderr, "bench_queue: %s: %s\n", name, what);
    exit(1);
}

static struct load load_for(
    const struct server *s, enum server_kind kind, enum work work, size_t messages, struct buf *request)
{
    const struct dialect *d = &dialects[kind][work];
    if (d->fixed)
        d->fixed(messages, request);
    return (struct load){.port = s->port,
        .connections = CONNECTIONS,
        .request = buf_bytes(request),
        .make = d->make,
        .reply_length = d->reply_length,
        .replies = d->pipelined ? messages : 1,
        .hello = d->hello,
        .hello_end = d->hello_end};
}

static bool fill(const struct server *s, enum server_kind kind, uint64_t messages)
{
    struct buf request = {0};
    struct load l = load_for(s, kind, WORK_PUT, BATCH, &request);
    l.requests = messages / BATCH + 1;
    bool ok = load_run(&l, NULL) >= 0;
    buf_free(&request);
    return ok;
}

/* What simplequeue answers to the row's request, for the raw loop to send. */
static void record_reply(
    const struct bench *b, const struct row *row, struct bytes request, struct buf *reply)
{
    struct server s;
    struct server_wish wish = {.kind = SERVER_QUEUE, .simplequeue = b->simplequeue};
    bool ok = server_start(&s, &wish) && fill(&s, SERVER_QUEUE, BATCH) && server_ask(&s, request, reply);
    if (!ok)
        die("simplequeue does not answer", row->name);
    server_stop(&s);
}

static void start(const struct bench *b, const struct row *row, struct server *s)
{
    struct buf request = {0}, reply = {0};
    struct server_wish wish = {.kind = row->kind,
        .simplequeue = b->simplequeue,
        .dir = row->sync ? b->dir : NULL,
        .sync = row->sync};
    if (row->kind == SERVER_RAW) {
        dialects[SERVER_RAW][row->work].fixed(row->messages, &request);
        record_reply(b, row, buf_bytes(&request), &reply);
        wish.raw_request = buf_bytes(&request);
        wish.raw_reply = buf_bytes(&reply);
    }
    if (!server_start(s, &wish))
        exit(1);
    buf_free(&request); /* the child has its copy */
    buf_free(&reply);
}

/* Of simplequeue with a data directory; 0 of others. */
static uint64_t count_syncs(const struct server *s, const struct row *row)
{
    static const char name[] = "\nmillrace_simplequeue_journal_syncs_total ";
    struct buf reply = {0};
    uint64_t n = 0;
    if (row->kind == SERVER_QUEUE && row->sync &&
        server_ask(s, BYTES_LITERAL("GET /metrics HTTP/1.1\r\nHost: bench\r\n\r\n"), &reply)) {
        const char *at = memmem(reply.ptr, reply.len, name, sizeof name - 1);
        n = at ? strtoull(at + sizeof name - 1, NULL, 10) : 0;
    }
    buf_free(&reply);
    return n;
}

static void measure_server(struct bench *b, const struct row *row, struct result *out)
{
    struct server s;
    struct buf request = {0};
    uint64_t warm = row->total / 20 > BATCH * CONNECTIONS ? row->total / 20 : BATCH * CONNECTIONS;
    start(b, row, &s);
    if (row->work != WORK_PUT && row->kind != SERVER_RAW &&
        !fill(&s, row->kind, 2 * warm + row->total + BATCH))
        die("cannot be filled", row->name);
    double factor = dialects[row->kind][row->work].requests_per_message;
    struct load l = load_for(&s, row->kind, row->work, row->messages, &request);
    l.requests = warm / row->messages;
    bool ok = load_run(&l, NULL) >= 0;
    uint64_t syncs = count_syncs(&s, row);
    double cpu = server_cpu_seconds(&s);
    l.requests = (uint64_t)((double)(row->total / row->messages) * (factor > 0 ? factor : 1));
    double took = ok ? load_run(&l, NULL) : -1;
    cpu = server_cpu_seconds(&s) - cpu;
    syncs = count_syncs(&s, row) - syncs;
    if (syncs > 0)
        b->per_sync = (double)row->total / (double)syncs;
    server_stop(&s);
    buf_free(&request);
    if (took < 0)
        die("the server failed", row->name);
    out->rate = (double)row->total / took;
    out->cpu = cpu * 1e6 / (double)row->total;
}

/* Writes as a journal does: one file of its whole size, written before. */
static void measure_bare(struct bench *b, const struct row *row, struct result *out)
{
    char path[100];
    char *block = mem_zalloc(BARE_FILE);
    size_t each = row->bare == OWN_COMMITS ? (size_t)(b->per_sync * MESSAGE_BYTES) : row->bare;
    uint64_t bytes = row->total * MESSAGE_BYTES, at = 0;
    snprintf(path, sizeof path, "%s/bare", b->dir);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    bool ok = fd >= 0 && pwrite(fd, block, BARE_FILE, 0) == BARE_FILE && fdatasync(fd) == 0;
    usec_t began = clock_monotonic();
    for (uint64_t done = 0; ok && done < bytes; done += each, at += each) {
        at = at + each > BARE_FILE ? 0 : at;
        ok = pwrite(fd, block, each, (off_t)at) == (ssize_t)each && fdatasync(fd) == 0;
    }
    double took = (double)(clock_monotonic() - began) / 1e6;
    close(fd);
    unlink(path);
    free(block);
    if (!ok)
        die("the disk does not take it", row->name);
    *out = (struct result){.rate = (double)row->total / took};
}

static double median_of(const struct result *results, size_t n, size_t member)
{
    double values[MAX_ROUNDS];
    for (size_t i = 0; i < n; i++)
        memcpy(&values[i], (const char *)&results[i] + member, sizeof *values);
    return load_median(values, n);
}

/* What the queue reaches of a bare loop that syncs as often. */
static void compare_with_disk(
    const struct bench *b, const struct group *g, struct result (*results)[MAX_ROUNDS], size_t rounds)
{
    size_t queue = MAX_ROWS, bare = MAX_ROWS;
    double ratios[MAX_ROUNDS];
    for (size_t i = 0; i < MAX_ROWS && g->rows[i].name; i++) {
        queue = g->rows[i].kind == SERVER_QUEUE ? i : queue;
        bare = g->rows[i].bare == OWN_COMMITS ? i : bare;
    }
    if (bare == MAX_ROWS)
        return;
    for (size_t round = 0; round < rounds; round++)
        ratios[round] = results[queue][round].rate / results[bare][round].rate;
    printf("%s: %.2f of the bare loop with as many messages a sync (%.0f in the last round)\n",
        g->rows[queue].name, load_median(ratios, rounds), b->per_sync);
}

static void run_group(struct bench *b, const struct group *g, size_t rounds)
{
    struct result results[MAX_ROWS][MAX_ROUNDS] = {0};
    size_t n = 0;
    while (n < MAX_ROWS && g->rows[n].name)
        n++;
    for (size_t round = 0; round < rounds; round++)
        for (size_t i = 0; i < n; i++) {
            struct result *r = &results[i][round];
            (g->rows[i].bare ? measure_bare : measure_server)(b, &g->rows[i], r);
            r->ratio = r->rate / results[0][round].rate;
        }
    printf("%-38s %12s %8s %14s   (%d bytes, %d connections, median of %zu)\n", g->name, "messages/s",
        "to first", "server us/msg", MESSAGE_BYTES, CONNECTIONS, rounds);
    for (size_t i = 0; i < n; i++)
        printf("%-38s %12.0f %8.2f %14.2f\n", g->rows[i].name,
            median_of(results[i], rounds, offsetof(struct result, rate)),
            median_of(results[i], rounds, offsetof(struct result, ratio)),
            median_of(results[i], rounds, offsetof(struct result, cpu)));
    compare_with_disk(b, g, results, rounds);
}

static const struct group *find_group(const char *name)
{
    for (size_t i = 0; i < N_GROUPS; i++)
        if (strcmp(groups[i].name, name) == 0)
            return &groups[i];
    return NULL;
}

int main(int argc, char **argv)
{
    struct bench b = {.simplequeue = argc > 1 ? argv[1] : NULL, .dir = "bench-queue-XXXXXX"};
    const struct group *g = argc > 2 ? find_group(argv[2]) : NULL;
    size_t rounds = argc > 3 ? strtoul(argv[3], NULL, 10) : 5;
    if (!g || rounds == 0 || rounds > MAX_ROUNDS || !mkdtemp(b.dir)) {
        fprintf(stderr, "usage: bench_queue SIMPLEQUEUE GROUP [ROUNDS, 1..%d]; groups:", MAX_ROUNDS);
        for (size_t i = 0; i < N_GROUPS; i++)
            fprintf(stderr, " %s", groups[i].name);
        fprintf(stderr, "\n");
        return 64;
    }
    load_pin(1);
    run_group(&b, g, rounds);
    return rmdir(b.dir) == 0 ? 0 : 1;
}
