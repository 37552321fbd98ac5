/* http_server: when replies leave. Clients are plain sockets of the same thread, so that what a handler sees of them is
 * what had been sent when it ran. */
#include "base/clock.h"
#include "support/cm.h"
#include "http/server/http_internal.h"
#include "support/http_world.h"
#include <event2/event.h>
#include <linux/sockios.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define CLIENTS (HTTP_CORKED_MAX + 8)

struct world {
    struct http_world http;
    int clients[CLIENTS];
    unsigned asked;
    usec_t takes; /* each request keeps its handler so long */
    /* For each request, whether the one that was answered first had its reply by then. */
    bool first_had[CLIENTS];
    usec_t began, latest; /* the turn that found them, and the latest request */
    int first;            /* its socket */
    unsigned due;         /* the request before whose answer it must have left; 0: none */
};

/* True if the client has received a reply. A reply that has left may still be on its way, so the call waits for
 * it. */
static bool has_reply(int fd, bool has_left)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, has_left ? (int)(PATIENCE / USEC_PER_MSEC) : 0) == 1;
}

static void answer(struct http_request *req, void *ctx)
{
    struct world *w = ctx;
    usec_t began = clock_monotonic();
    struct bytes n;
    assert_true(http_param(req, "n", &n));
    uint64_t number;
    assert_true(bytes_to_u64(n, &number));
    if (w->asked == 0)
        w->first = w->clients[number];
    w->first_had[w->asked] = has_reply(w->first, w->due > 0 && w->asked == w->due);
    w->asked++;
    w->latest = clock_monotonic();
    while (clock_monotonic() - began < w->takes)
        ;
    http_reply(req, 200, NULL, BYTES_NONE);
}

static void answer_any(struct http_request *req, void *ctx)
{
    static const char text[1000];
    struct world *w = ctx;
    w->asked++;
    http_reply(req, 200, NULL, bytes_of(text, sizeof text));
}

static const struct http_route routes[] = {{.path = "/", .methods = HTTP_GET_, .handler = answer},
    {.path = "/any", .methods = HTTP_GET_, .handler = answer_any}, {0}};

static int set_up(void **state)
{
    static struct world w;
    struct http_server_config config = {
        .ctx = &w, .routes = routes, .max_body = 1000, .max_connections = CLIENTS};
    w = (struct world){0};
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

static void wait_until_arrived(int fd)
{
    int left = 1;
    while (left > 0) {
        assert_int_equal(ioctl(fd, SIOCOUTQ, &left), 0);
        sched_yield();
    }
}

/* All clients send requests before the loop runs, so the loop finds the requests together. Returns once all have
 * their replies. */
static void ask_together(struct world *w, unsigned n)
{
    char text[64];
    w->asked = 0;
    for (unsigned i = 0; i < n; i++)
        w->clients[i] = http_world_connect(&w->http);
    while (http_server_connections(w->http.http) < n)
        event_base_loop(w->http.base, EVLOOP_ONCE);
    for (unsigned i = 0; i < n; i++) {
        int len = snprintf(text, sizeof text, "GET /?n=%u HTTP/1.1\r\nHost: x\r\n\r\n", i);
        assert_int_equal(send(w->clients[i], text, (size_t)len, 0), len);
    }
    for (unsigned i = 0; i < n; i++)
        wait_until_arrived(w->clients[i]);
    w->began = clock_monotonic();
    while (w->asked < n)
        event_base_loop(w->http.base, EVLOOP_ONCE);
    for (unsigned i = 0; i < n; i++) {
        assert_true(has_reply(w->clients[i], true));
        close(w->clients[i]);
    }
    while (http_server_connections(w->http.http) > 0)
        event_base_loop(w->http.base, EVLOOP_ONCE);
}

/* Repeated if the machine stood still between the two requests for longer than a reply may wait. */
static void test_replies_leave_together(void **state)
{
    struct world *w = *state;
    unsigned tries = 0;
    do
        ask_together(w, 2);
    while (w->first_had[1] && w->latest - w->began >= HTTP_CORK_USEC_MAX && ++tries < 10000);
    assert_false(w->first_had[1]);
}

static void test_a_slow_handler_keeps_no_reply_waiting(void **state)
{
    struct world *w = *state;
    w->takes = 2 * HTTP_CORK_USEC_MAX;
    w->due = 3;
    ask_together(w, 4);
    assert_true(w->first_had[3]);
}

static void test_many_do_not_wait_for_all(void **state)
{
    struct world *w = *state;
    w->due = HTTP_CORKED_MAX;
    ask_together(w, CLIENTS);
    assert_true(w->first_had[HTTP_CORKED_MAX]);
}

static void ask_any(struct world *w, int client)
{
    static const char text[] = "GET /any HTTP/1.1\r\nHost: x\r\n\r\n";
    unsigned before = w->asked;
    assert_int_equal(send(client, text, sizeof text - 1, 0), sizeof text - 1);
    while (w->asked == before)
        event_base_loop(w->http.base, EVLOOP_ONCE);
}

static unsigned count_replies(const struct buf *got)
{
    static const char begins[] = "HTTP/1.1 200 ";
    const char *p = got->ptr, *end = p + got->len;
    unsigned n = 0;
    for (; p && (p = memmem(p, (size_t)(end - p), begins, sizeof begins - 1)); p++)
        n++;
    return n;
}

/* Each request is sent after the reply to the one before, until the socket is full, and then one more. */
static void test_a_client_that_pauses_gets_all_replies(void **state)
{
    struct world *w = *state;
    int client = http_world_connect(&w->http), small = 1;
    char room[4096];
    struct buf got = {0};
    while (http_server_connections(w->http.http) < 1)
        event_base_loop(w->http.base, EVLOOP_ONCE);
    struct http_conn *c = TAILQ_FIRST(&w->http.http->conns);
    assert_int_equal(setsockopt(c->fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small), 0);
    while (!c->writing)
        ask_any(w, client);
    assert_in_range(http_output_pending(c), 1, HTTP_KEPT_BUFFER_MAX / 2);
    ask_any(w, client);
    for (usec_t end = 0; count_replies(&got) < w->asked && is_early(&end);) {
        ssize_t n = recv(client, room, sizeof room, MSG_DONTWAIT);
        if (n > 0)
            buf_append(&got, room, (size_t)n);
        event_base_loop(w->http.base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
    }
    assert_int_equal(count_replies(&got), w->asked);
    buf_free(&got);
    close(client);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_replies_leave_together, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_slow_handler_keeps_no_reply_waiting, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_many_do_not_wait_for_all, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_client_that_pauses_gets_all_replies, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
