/* http_server: a request is answered as on a connection of its own, whatever came before it and wherever it is cut. */
#include "support/cm.h"
#include "support/http_world.h"
#include "http/server/http_internal.h"
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#define LAST "GET /end HTTP/1.1\r\nHost: last\r\nConnection: close\r\n\r\n"
#define TEN(x) x x x x x x x x x x
static const char long_head[] = "GET /a HTTP/1.1\r\nHost: h\r\nL: " TEN(TEN("longer")) "\r\nX: one\r\n\r\n";

/* The requests of a group differ little. */
static const char *const requests[] = {
    "GET /a?x=1 HTTP/1.1\r\nHost: h\r\n\r\n",
    "GET /a?x=1 HTTP/1.1\nHost: h\n\n",
    "GET /a?x=1 HTTP/1.1\r\nHost: h\r\nX: one\r\n\r\n",
    "GET /a?x=1 HTTP/1.1\r\nHost: h\r\nX: two\r\n\r\n",
    "GET /a?x=1 HTTP/1.1\r\nHost: h\r\nX: one\r\nAuthorization: Bearer token\r\n\r\n",
    "GET /a?x=1 HTTP/1.1\r\nX: one\r\nHost: h\r\n\r\n",
    "GET /a?x=1 HTTP/1.1\r\nX: one\r\n\r\n",
    "GET /a?x=1 HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n",
    "GET /a?x=1 HTTP/1.1\r\nHost: h\r\n folded: x\r\n\r\n",
    "GET /a?x=1 HTTP/1.1\r\n\r\n",
    "GET /a?x=1 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
    "GET /a?x=1 HTTP/1.1\r\nHost: h\r\nConnection: keep-alive\r\n\r\n",
    "GET /a?x=1 HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\n\r\n",
    "GET /a?x=1 HTTP/1.0\r\nHost: h\r\n\r\n",
    "HEAD /a?x=1 HTTP/1.1\r\nHost: h\r\n\r\n",
    "GET /a?x=2 HTTP/1.1\r\nHost: h\r\n\r\n",
    "GET /a?y=1 HTTP/1.1\r\nHost: h\r\n\r\n",
    "GET /b?x=1 HTTP/1.1\r\nHost: h\r\n\r\n",
    "GET /none HTTP/1.1\r\nHost: h\r\n\r\n",
    "DELETE /a?x=1 HTTP/1.1\r\nHost: h\r\n\r\n",
    "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc",
    "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nxyz",
    "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 13\r\n\r\nabcdefghijklm",
    "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n",
    "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nX: one\r\n\r\nabc",
    "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\nabc",
    "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nExpect: much\r\n\r\nabc",
    "POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 2000\r\n\r\n",
    "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2;e=1\r\nyz\r\n0\r\nT: t\r\n\r\n",
    "POST /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\nabc",
    "GET /a?a&b&c&d&e&f&g&h&i&j&k&l&m&n&o&p&q&r HTTP/1.1\r\nHost: h\r\n\r\n",
    long_head,
    "GET /c HTTP/1.1\r\nHost: h\r\n\r\n",
    "GET /c HTTP/1.1\r\nHost: h\r\nX: one\r\n\r\n",
};
#define N_REQUESTS (sizeof requests / sizeof *requests)

struct world {
    struct http_world http;
    bool unready;
};

static void tell_header(struct http_request *req, const char *name, struct buf *out)
{
    buf_printf(out, "%s=", name);
    buf_append_bytes(out, http_header(req, name));
    buf_append_char(out, '\n');
}

/* Replies with all that the server has understood of the request. */
static void tell(struct http_request *req, void *ctx)
{
    static const char *const names[] = {"Host", "X", "Authorization", "Content-Length", "Connection"};
    struct buf out = {0};
    const struct url_query *q = http_query(req);
    (void)ctx;
    buf_printf(&out, "%s method %d head %d old %d\n", http_path(req), (int)http_method(req),
        http_is_head(req), req->head.http10);
    for (size_t i = 0; i < q->n; i++) {
        buf_append_bytes(&out, q->params[i].name);
        buf_append_char(&out, '=');
        buf_append_bytes(&out, q->params[i].value);
        buf_append_char(&out, '\n');
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        tell_header(req, names[i], &out);
    buf_append_bytes(&out, http_body(req));
    http_reply_buf(req, 200, NULL, &out);
    buf_free(&out);
}

static bool why_unready(void *arg, struct buf *why)
{
    if (why)
        buf_append_str(why, "resting");
    return ((const struct world *)arg)->unready;
}

static const struct http_route routes[] = {{.path = "/a", .methods = HTTP_GET_ | HTTP_POST_, .handler = tell},
    {.path = "/b", .methods = HTTP_GET_, .handler = tell, .params = "x", .flags = HTTP_ROUTE_WHEN_READY},
    {.path = "/c", .methods = HTTP_GET_, .handler = tell, .params = "", .flags = HTTP_ROUTE_NEEDS_TOKEN},
    {.path = "/end", .methods = HTTP_GET_, .handler = tell}, {0}};

static int set_up(void **state)
{
    static struct world w;
    struct http_server_config config = {.routes = routes,
        .max_body = 1000,
        .max_connections = 1000,
        .not_ready = why_unready,
        .not_ready_arg = &w};
    w.unready = false;
    http_world_open(&w.http, &config);
    *state = &w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    http_world_close(&w->http);
    return 0;
}

static int open_client(const struct world *w)
{
    int fd = http_world_connect(&w->http), on = 1;
    assert_int_equal(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), 0);
    assert_int_equal(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
    return fd;
}

/* Appends the bytes that have arrived to *got. False at the end of the connection. */
static bool take(int fd, struct buf *got)
{
    char piece[4096];
    ssize_t n = recv(fd, piece, sizeof piece, 0);
    if (n > 0)
        buf_append(got, piece, (size_t)n);
    return n > 0 || (n < 0 && errno == EAGAIN);
}

/* Sends `text`, `each` bytes at a time, with turns of the loop between. The server may have closed the connection. */
static void say(struct world *w, int fd, struct bytes text, size_t each)
{
    for (size_t at = 0, n; at < text.len; at += n) {
        n = text.len - at < each ? text.len - at : each;
        if (send(fd, text.ptr + at, n, 0) != (ssize_t)n)
            return;
        event_base_loop(w->http.base, EVLOOP_NONBLOCK);
    }
}

/* Removes the Date headers, which depend on the clock. */
static void drop_dates(struct buf *got)
{
    char *at;
    size_t from = 0;
    while ((at = memmem(got->ptr + from, got->len - from, "Date: ", 6))) {
        size_t left = got->len - (size_t)(at - got->ptr);
        char *end = memchr(at, '\n', left);
        assert_non_null(end);
        from = (size_t)(at - got->ptr);
        size_t line = (size_t)(end + 1 - at);
        memmove(at, end + 1, left - line);
        got->len -= line;
    }
}

/* Appends all replies to `text` on one connection to *got. */
static void answers(struct world *w, struct bytes text, size_t each, struct buf *got)
{
    usec_t end = 0;
    int fd = open_client(w);
    buf_clear(got);
    say(w, fd, text, each);
    while (take(fd, got)) {
        assert_true(is_early(&end));
        if (event_base_loop(w->http.base, EVLOOP_NONBLOCK) == 0)
            sched_yield();
    }
    close(fd);
    drop_dates(got);
}

/* The replies to a request that is alone on its connection, and to LAST after it. *open: LAST was also answered. */
static void answer_alone(
    struct world *w, const char *request, const struct buf *last, struct buf *got, bool *open)
{
    struct buf text = {0};
    buf_printf(&text, "%s" LAST, request);
    answers(w, buf_bytes(&text), SIZE_MAX, got);
    *open = last->len > 0 && got->len > last->len &&
            memcmp(got->ptr + got->len - last->len, last->ptr, last->len) == 0;
    if (*open)
        got->len -= last->len;
    buf_free(&text);
}

static void check_pair(
    struct world *w, size_t a, size_t b, const struct buf *alone, bool open, const struct buf *last)
{
    static const size_t pieces[] = {SIZE_MAX, 1, 7, 40};
    struct buf text = {0}, want = {0}, got = {0};
    const char *again = open ? requests[a] : "";
    buf_printf(&text, "%s%s%s%s%s", requests[a], requests[b], again, again, open ? LAST : "");
    buf_append_bytes(&want, buf_bytes(&alone[a]));
    buf_append_bytes(&want, buf_bytes(&alone[b]));
    for (int i = 0; open && i < 2; i++)
        buf_append_bytes(&want, buf_bytes(&alone[a]));
    if (open)
        buf_append_bytes(&want, buf_bytes(last));
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        answers(w, buf_bytes(&text), pieces[i], &got);
        if (got.len != want.len || memcmp(got.ptr, want.ptr, want.len) != 0)
            fail_msg("in pieces of %zu, after\n%s\nwas answered\n%.*s\ninstead of\n%.*s", pieces[i], text.ptr,
                (int)got.len, got.ptr, (int)want.len, want.ptr);
    }
    buf_free(&text);
    buf_free(&want);
    buf_free(&got);
}

static void test_after_any_other_a_request_is_what_it_is_alone(void **state)
{
    struct world *w = *state;
    struct buf last = {0}, alone[N_REQUESTS] = {{0}};
    bool open[N_REQUESTS];
    size_t n_open = 0;
    answers(w, BYTES_LITERAL(LAST), SIZE_MAX, &last);
    for (size_t i = 0; i < N_REQUESTS; i++) {
        answer_alone(w, requests[i], &last, &alone[i], &open[i]);
        n_open += open[i];
    }
    assert_true(n_open > N_REQUESTS / 2 && n_open < N_REQUESTS);
    for (size_t a = 0; a < N_REQUESTS; a++)
        for (size_t b = 0; open[a] && b < N_REQUESTS; b++)
            check_pair(w, a, b, alone, open[b], &last);
    for (size_t i = 0; i < N_REQUESTS; i++)
        buf_free(&alone[i]);
    buf_free(&last);
}

static size_t times(const struct buf *got, const char *what)
{
    size_t n = 0;
    for (const char *at = got->ptr, *end = got->ptr + got->len;
         at && (at = memmem(at, (size_t)(end - at), what, strlen(what))); at++)
        n++;
    return n;
}

/* The same head is refused while the daemon is not ready, and taken when it is. */
static void test_what_may_have_changed_is_judged_again(void **state)
{
    static const struct bytes ask = BYTES_LITERAL("GET /b?x=1 HTTP/1.1\r\nHost: h\r\n\r\n");
    struct world *w = *state;
    struct buf got = {0};
    usec_t end = 0;
    int fd = open_client(w);
    for (size_t i = 1; i <= 6; i++) {
        w->unready = i % 2 == 0;
        say(w, fd, ask, SIZE_MAX);
        while (times(&got, "HTTP/1.1 ") < i && is_early(&end) && take(fd, &got))
            event_base_loop(w->http.base, EVLOOP_NONBLOCK);
        assert_int_equal(times(&got, "HTTP/1.1 200 "), (i + 1) / 2);
        assert_int_equal(times(&got, "HTTP/1.1 503 "), i / 2);
    }
    close(fd);
    buf_free(&got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            test_after_any_other_a_request_is_what_it_is_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_may_have_changed_is_judged_again, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
