/* Requests on one connection get the same replies whether they arrive cut into pieces or all at once. The input selects parts of
 * requests, many of them repeated; its first byte is the length of a piece. */
#include "support/http_fuzz.h"
#include "http/server/http_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SAID_MOST (8 * 1024)
#define TURNS_MOST 100000

/* A byte over 0x7f. */
static const char *const pieces[] = {"GET ", "POST ", "HEAD ", "DELETE ", "/a", "/p/x", "/none", "?x=1",
    "?y=%41&x", " HTTP/1.1\r\n", " HTTP/1.0\r\n", " HTTP/1.1\n", "Host: h\r\n", "Host: h\n", "host:h \r\n",
    "X: ", "one\r\n", "two\n", " folded\r\n", "Content-Length: 3\r\n", "Content-Length: 0\r\n",
    "Content-Length: 13\n", "Content-Length: ", "Transfer-Encoding: chunked\r\n", "Transfer-Encoding: x\r\n",
    "Connection: close\r\n", "Connection: keep-alive\r\n", "Expect: 100-continue\r\n", "Expect: x\r\n",
    "Content-Encoding: gzip\r\n", "Authorization: Bearer token\r\n", "\r\n", "\n", "\r", "abc",
    "3\r\nabc\r\n", "0\r\n\r\n", "0\r\nT: t\r\n\r\n", "POST /a HTTP/1.1\r\nHost: h\r\n",
    "GET /a?x=1 HTTP/1.1\r\nHost: h\r\n\r\n", "POST /sum HTTP/1.1\r\nHost: h\r\n", "GET /a HTTP/1.0\r\n",
    "GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"};
#define N_PIECES (sizeof pieces / sizeof *pieces)

#define REQUEST 1    /* one begins */
#define AGAIN 2      /* all since the last one began */
#define AGAIN_PART 3 /* as many bytes of that as the next one says */
#define BEFORE 4     /* the request before that */

static struct http_server *server;
static bool unready;

static void tell(struct http_request *req, void *ctx)
{
    struct buf out = {0};
    (void)ctx;
    buf_printf(&out, "%s %d %d %d %d\n", http_path(req), (int)http_method(req), http_is_head(req),
        req->head.http10, (int)req->head.n_headers);
    for (size_t i = 0; i < req->query.n; i++) {
        buf_append_bytes(&out, req->query.params[i].name);
        buf_append_char(&out, '=');
        buf_append_bytes(&out, req->query.params[i].value);
        buf_append_char(&out, '\n');
    }
    for (size_t i = 0; i < req->head.n_headers; i++) {
        const struct http_header_span *h = &req->head.headers[i];
        buf_append(&out, req->head.text.ptr + h->name, h->name_len);
        buf_append_char(&out, ':');
        buf_append(&out, req->head.text.ptr + h->value, h->value_len);
        buf_append_char(&out, '\n');
    }
    buf_append_bytes(&out, http_body(req));
    unready = out.len % 4 == 0;
    http_reply_buf(req, 200, NULL, &out);
    buf_free(&out);
}

static bool why_unready(void *arg, struct buf *why)
{
    (void)arg;
    if (why)
        buf_append_str(why, "resting");
    return unready;
}

static const struct http_route routes[] = {
    {.path = "/a", .methods = HTTP_GET_ | HTTP_POST_, .handler = tell, .flags = HTTP_ROUTE_DECODES_BODY},
    {.path = "/p/x",
        .methods = HTTP_GET_ | HTTP_POST_,
        .handler = tell,
        .params = "x",
        .flags = HTTP_ROUTE_WHEN_READY},
    {.path = "/sum", .methods = HTTP_POST_, .handler = http_fuzz_stream},
    {.path = NULL},
};

static void repeat(struct buf *said, size_t from, size_t len)
{
    struct buf copy = {0};
    buf_append(&copy, said->ptr + from, len);
    buf_append_bytes(said, buf_bytes(&copy));
    buf_free(&copy);
}

/* What the input has the client say. */
static void compose(const uint8_t *data, size_t size, struct buf *said)
{
    size_t begin = 0, before = 0;
    for (size_t i = 0; i < size && said->len < SAID_MOST; i++) {
        size_t n = said->len - begin, end = said->len;
        if (data[i] >= 0x80) {
            buf_append_str(said, pieces[(data[i] - 0x80) % N_PIECES]);
        } else if (data[i] == REQUEST) {
            before = begin;
            begin = end;
        } else if (data[i] == AGAIN) {
            repeat(said, begin, n);
            begin = end;
        } else if (data[i] == AGAIN_PART && i + 1 < size) {
            size_t part = data[++i];
            repeat(said, begin, part < n ? part : n);
            begin = end;
        } else if (data[i] == BEFORE) {
            repeat(said, before, begin - before);
            before = begin;
            begin = end;
        } else {
            buf_append_char(said, (char)data[i]);
        }
    }
}

static bool take(int fd, struct buf *got)
{
    char piece[4096];
    ssize_t n;
    while ((n = recv(fd, piece, sizeof piece, MSG_DONTWAIT)) > 0)
        buf_append(got, piece, (size_t)n);
    return n < 0 && errno == EAGAIN;
}

static void drop_dates(struct buf *got)
{
    static const struct bytes date = BYTES_LITERAL("Date: ");
    size_t kept = 0;
    for (size_t at = 0; at < got->len;) {
        const char *line = got->ptr + at, *lf = memchr(line, '\n', got->len - at);
        size_t n = lf ? (size_t)(lf - line) + 1 : got->len - at;
        if (!bytes_starts_with(bytes_of(line, n), date)) {
            memmove(got->ptr + kept, line, n);
            kept += n;
        }
        at += n;
    }
    got->len = kept;
}

/* All replies to `said`, sent `step` bytes at a time. */
static void answers(struct bytes said, size_t step, struct buf *got)
{
    int fd = http_fuzz_connect();
    bool open = true;
    unready = false;
    for (size_t at = 0, n; open && at < said.len; at += n) {
        n = said.len - at < step ? said.len - at : step;
        if (send(fd, said.ptr + at, n, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)n)
            break;
        http_fuzz_turn();
        open = take(fd, got);
    }
    shutdown(fd, SHUT_WR);
    for (int i = 0; open && i < TURNS_MOST; i++) {
        http_fuzz_turn();
        open = take(fd, got);
    }
    if (open)
        abort(); /* it hangs */
    close(fd);
    while (http_server_connections(server) > 0)
        http_fuzz_turn();
    drop_dates(got);
}

static void show(const char *what, const struct buf *b)
{
    fprintf(stderr, "--- %s\n%.*s\n", what, (int)b->len, b->ptr);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct buf said, cut, whole;
    if (size < 2)
        return 0;
    if (!server)
        server = http_fuzz_open(&(struct http_server_config){
            .routes = routes, .max_body = 1000, .max_connections = 1000, .not_ready = why_unready});
    buf_clear(&said);
    buf_clear(&cut);
    buf_clear(&whole);
    compose(data + 1, size - 1, &said);
    answers(buf_bytes(&said), data[0] ? data[0] : 1, &cut);
    answers(buf_bytes(&said), SIZE_MAX, &whole);
    if (cut.len == whole.len && (cut.len == 0 || memcmp(cut.ptr, whole.ptr, cut.len) == 0))
        return 0;
    show("said", &said);
    show("answered in pieces", &cut);
    show("answered at once", &whole);
    abort();
}
