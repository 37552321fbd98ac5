/* bench_reads: requests a second of a server of the read protocol, over keys like `c.u|user00012345.c3h5`.
 *
 *     bench_reads PORT get|fwmatch|range KEYS REQUESTS [bare]
 *     bench_reads PORT target TARGET REQUESTS [bare]
 *     bench_reads PORT check FILE REQUESTS
 *
 * get asks for one key, fwmatch for 10 keys and range for 1,000, each time others. check posts the file to /check. A `#` in the target stands for the number of the
 * connection, 00 to 31. With `bare`, what is measured is a bare loop, which answers with the bytes of the server's first reply. The bare
 * loop's processor time of a request follows, in microseconds. */
#include "base/io.h"
#include "bench/servers.h"
#include "bench/talk.h"

#include <stdio.h>
#include <stdlib.h>

#define CONNECTIONS 32
#define RANGE 1000

static const char *kind;
static const char *target; /* NULL: as `kind` says */
static struct buf body;    /* a request with a body; empty: as `kind` says */
static unsigned keys;
static uint64_t state = 88172645463325252; /* of xorshift */

static unsigned random_key(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (unsigned)(state % keys);
}

static void make_target(unsigned connection, struct buf *request)
{
    size_t before = strcspn(target, "#");
    buf_printf(request, "GET %.*s", (int)before, target);
    if (target[before])
        buf_printf(request, "%02u%s", connection, target + before + 1);
    buf_append_str(request, " HTTP/1.1\r\nHost: bench\r\n\r\n");
}

static void make(unsigned connection, struct bytes reply, struct buf *request)
{
    (void)reply;
    unsigned key = target || body.len > 0 ? 0 : random_key();
    buf_clear(request);
    if (body.len > 0)
        buf_append_bytes(request, buf_bytes(&body));
    else if (target)
        make_target(connection, request);
    else if (strcmp(kind, "get") == 0)
        buf_printf(request, "GET /get?key=c.u%%7Cuser%08u.c3h5 HTTP/1.1\r\nHost: bench\r\n\r\n", key);
    else if (strcmp(kind, "fwmatch") == 0)
        buf_printf(request, "GET /fwmatch?key=c.u%%7Cuser%07u HTTP/1.1\r\nHost: bench\r\n\r\n", key / 10);
    else
        buf_printf(request,
            "GET /range?start=c.u%%7Cuser%08u.c3h5&end=c.u%%7Cuser%08u.c3h5 HTTP/1.1\r\nHost: bench\r\n\r\n",
            key / RANGE * RANGE, key / RANGE * RANGE + RANGE - 1);
}

static bool make_check(const char *path)
{
    struct buf lines = {0};
    bool ok = io_read_file(path, SIZE_MAX, &lines) == 0;
    buf_printf(&body, "POST /check HTTP/1.1\r\nHost: bench\r\nContent-Length: %zu\r\n\r\n", lines.len);
    buf_append_bytes(&body, buf_bytes(&lines));
    buf_free(&lines);
    return ok;
}

int main(int argc, char **argv)
{
    struct server s = {.port = argc > 4 ? atoi(argv[1]) : 0};
    struct buf request = {0}, reply = {0};
    if (s.port == 0) {
        fprintf(stderr, "usage: bench_reads PORT get|fwmatch|range KEYS REQUESTS [bare]\n");
        return 64;
    }
    kind = argv[2];
    target = strcmp(kind, "target") == 0 ? argv[3] : NULL;
    keys = (unsigned)strtoul(argv[3], NULL, 10);
    if (strcmp(kind, "check") == 0 && !make_check(argv[3]))
        return 1;
    make(0, BYTES_NONE, &request);
    if (!server_ask(&s, buf_bytes(&request), &reply)) {
        fprintf(stderr, "bench_reads: the server does not answer\n");
        return 1;
    }
    bool is_bare = argc > 5;
    struct server_wish wish = {
        .kind = SERVER_RAW, .raw_request = buf_bytes(&request), .raw_reply = buf_bytes(&reply)};
    if (is_bare && !server_start(&s, &wish))
        return 1;
    load_pin(1);
    struct load l = {.port = s.port,
        .connections = CONNECTIONS,
        .requests = strtoul(argv[4], NULL, 10),
        .make = make,
        .reply_length = talk_http_full};
    double took = load_run(&l, NULL), used = is_bare ? server_cpu_seconds(&s) : 0;
    if (is_bare)
        server_stop(&s);
    buf_free(&request);
    buf_free(&reply);
    buf_free(&body);
    if (took < 0)
        return 1;
    printf("%.0f", (double)l.requests / took);
    if (is_bare)
        printf(" %.2f", 1e6 * used / (double)l.requests);
    putchar('\n');
    return 0;
}
