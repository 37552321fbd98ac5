/* http_client against a server that says exactly what a test tells it to, byte by byte if need be. */
#include "support/cm.h"

#include "http/client/http_client.h"
#include "daemon/listen.h"
#include <arpa/inet.h>
#include <event2/event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECTIONS_MAX 16
#define PATIENCE_TURNS 60000 /* about as many milliseconds */

/* Scripted: each whole request (told by its blank line and length) is answered by the next of `replies`. */
struct server {
    struct event_base *base;
    struct event *event;
    int listen_fd;
    char url[64];
    const char *replies[8]; /* NULL: says nothing */
    size_t n_replied, n_accepted, n_open;
    bool close_after;  /* the reply */
    bool close_before; /* from the second request of a connection on: closes instead of answering */
    bool answer_early; /* on the first bytes, and read no more */
    bool one_byte_at_a_time;
    struct peer {
        struct server *server;
        struct event *event, *sender;
        const char *to_send;
        int fd;
        size_t n_requests;
        struct buf in;
    } peers[CONNECTIONS_MAX];
};

struct outcome {
    enum http_client_result result;
    int status, n_done, n_headers, n_pieces;
    struct buf body;
    char type[64];
    struct http_call *call;
    bool pause_each, cancel_on_piece, free_on_piece, in_request;
    struct http_client **client;
};

struct world {
    struct event_base *base;
    struct server server;
    struct http_client *client;
    struct outcome out[8];
};

static void drop_peer(struct peer *p)
{
    event_free(p->event);
    event_free(p->sender);
    close(p->fd);
    buf_free(&p->in);
    p->event = NULL;
    p->server->n_open--;
}

/* A byte each time the loop comes round, so that the client reads them one by one. */
static void on_next_byte(evutil_socket_t fd, short what, void *arg)
{
    (void)fd;
    (void)what;
    static const struct timeval soon = {0, 0};
    struct peer *p = arg;
    size_t n = p->server->one_byte_at_a_time ? 1 : strlen(p->to_send);
    if (*p->to_send) {
        assert_int_equal(send(p->fd, p->to_send, n, MSG_NOSIGNAL), n);
        p->to_send += n;
        event_add(p->sender, &soon);
    } else if (p->server->close_after) {
        drop_peer(p);
    }
}

static void send_text(struct peer *p, const char *text)
{
    p->to_send = text;
    event_active(p->sender, EV_TIMEOUT, 1);
}

static bool is_whole(const struct buf *in)
{
    const char *end = memmem(in->ptr, in->len, "\r\n\r\n", 4),
               *length = memmem(in->ptr, in->len, "Content-Length: ", 16);
    if (!end)
        return false;
    return in->len - (size_t)(end + 4 - in->ptr) >= (length ? (size_t)atoi(length + 16) : 0);
}

static void on_request(evutil_socket_t fd, short what, void *arg)
{
    (void)what;
    struct peer *p = arg;
    struct server *s = p->server;
    char bytes[4096];
    ssize_t n = read(fd, bytes, sizeof bytes);
    if (n <= 0) {
        drop_peer(p);
        return;
    }
    buf_append(&p->in, bytes, (size_t)n);
    if (s->answer_early)
        event_del(p->event);
    else if (!is_whole(&p->in))
        return;
    if (s->close_before && p->n_requests++ > 0) {
        drop_peer(p);
        return;
    }
    const char *reply = s->replies[s->n_replied++];
    if (!reply)
        return;
    buf_clear(&p->in);
    send_text(p, reply);
}

static void on_accept(evutil_socket_t fd, short what, void *arg)
{
    (void)what;
    struct server *s = arg;
    struct peer *p = &s->peers[s->n_accepted++ % CONNECTIONS_MAX];
    assert_null(p->event);
    *p = (struct peer){.server = s, .fd = accept4(fd, NULL, NULL, SOCK_NONBLOCK)};
    p->event = event_new(s->base, p->fd, EV_READ | EV_PERSIST, on_request, p);
    p->sender = event_new(s->base, -1, 0, on_next_byte, p);
    event_add(p->event, NULL);
    s->n_open++;
}

static int set_up(void **state)
{
    struct world *w = mem_zalloc(sizeof *w);
    w->base = w->server.base = event_base_new();
    w->server.listen_fd = listen_open("127.0.0.1", 0, NULL);
    assert_true(w->server.listen_fd >= 0);
    listen_url(w->server.listen_fd, w->server.url, sizeof w->server.url);
    w->server.event = event_new(w->base, w->server.listen_fd, EV_READ | EV_PERSIST, on_accept, &w->server);
    event_add(w->server.event, NULL);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    http_client_free(&w->client);
    for (size_t i = 0; i < CONNECTIONS_MAX; i++) {
        if (w->server.peers[i].event)
            drop_peer(&w->server.peers[i]);
    }
    event_free(w->server.event);
    close(w->server.listen_fd);
    event_base_free(w->base);
    for (size_t i = 0; i < 8; i++)
        buf_free(&w->out[i].body);
    free(w);
    return 0;
}

static void make_client(struct world *w, struct http_client_config config)
{
    config.base = w->base;
    config.url = config.url ? config.url : w->server.url;
    w->client = http_client_new(&config);
    assert_non_null(w->client);
}

static void on_headers(const struct http_reply_view *reply, void *arg)
{
    struct outcome *o = arg;
    o->n_headers++;
    o->status = reply->status;
}

static void on_piece(struct http_call *call, struct bytes piece, void *arg)
{
    struct outcome *o = arg;
    assert_int_equal(o->n_done, 0);
    o->n_pieces++;
    buf_append_bytes(&o->body, piece);
    if (o->pause_each)
        http_call_pause(call);
    if (o->cancel_on_piece)
        http_call_cancel(call);
    else if (o->free_on_piece)
        http_client_free(o->client);
}

static void on_done(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct outcome *o = arg;
    assert_false(o->in_request);
    o->n_done++;
    o->result = result;
    o->status = reply->status;
    buf_append_bytes(&o->body, reply->body);
    snprintf(o->type, sizeof o->type, "%s", http_reply_header(reply, "content-TYPE"));
}

static struct http_call *ask(struct world *w, size_t i, struct http_call_spec spec)
{
    spec.method = spec.method ? spec.method : "GET";
    spec.target = spec.target ? spec.target : "/";
    spec.arg = &w->out[i];
    spec.on_done = on_done;
    w->out[i].client = &w->client;
    w->out[i].in_request = true;
    w->out[i].call = http_client_request(w->client, &spec);
    w->out[i].in_request = false;
    return w->out[i].call;
}

static bool turn_again(struct world *w, int *turns)
{
    event_base_loop(w->base, EVLOOP_NONBLOCK);
    if (*turns > 1000)
        usleep(1000);
    return ++*turns < PATIENCE_TURNS;
}
#define RUN_UNTIL(w, condition)                                                                              \
    for (int turns = 0; !(condition) && turn_again(w, &turns);)                                              \
    continue

static void run_until_done(struct world *w, size_t i)
{
    RUN_UNTIL(w, w->out[i].n_done > 0);
    assert_int_equal(w->out[i].n_done, 1);
}

static void some_turns(struct world *w)
{
    for (int turn = 0; turn < 200; turn++)
        event_base_loop(w->base, EVLOOP_NONBLOCK);
}

static void expect(struct world *w, size_t i, enum http_client_result result, int status, const char *body)
{
    run_until_done(w, i);
    assert_int_equal(w->out[i].result, result);
    assert_int_equal(w->out[i].status, status);
    assert_true(bytes_equal_str(buf_bytes(&w->out[i].body), body));
}

static void test_framings(void **state)
{
    struct world *w = *state;
    static const struct {
        const char *reply, *body;
        bool close;
    } cases[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Type: a/b\r\n\r\nabc", "abc", false},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: "
         "a/b\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\nX: y\r\n\r\n",
            "abc", false},
        {"HTTP/1.1 200 OK\r\nContent-Type: a/b\r\n\r\nto the end", "to the end", true},
        {"HTTP/1.0 200 OK\r\nContent-Type: a/b\r\n\r\nto the end", "to the end", true},
        {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\nA: b\r\n\r\nHTTP/1.1 200 "
         "OK\r\nContent-Type: a/b\r\n"
         "Content-Length: 1\r\n\r\nx",
            "x", false},
    };
    make_client(w, (struct http_client_config){0});
    for (int slow = 0; slow < 2; slow++) {
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            w->server.n_replied = 0;
            w->server.replies[0] = cases[i].reply;
            w->server.close_after = cases[i].close;
            w->server.one_byte_at_a_time = slow;
            memset(&w->out[0], 0, sizeof w->out[0]);
            ask(w, 0, (struct http_call_spec){0});
            expect(w, 0, HTTP_CLIENT_OK, 200, cases[i].body);
            assert_string_equal(w->out[0].type, "a/b");
            buf_free(&w->out[0].body);
        }
    }
}

static void test_endings(void **state)
{
    struct world *w = *state;
    static const struct {
        const char *reply;
        enum http_client_result result;
    } cases[] = {
        {"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc", HTTP_CLIENT_RESET},
        {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", HTTP_CLIENT_RESET},
        {"HTTP/1.1 200 OK\r\nContent-Le", HTTP_CLIENT_RESET},
        {"HTTP/1.1 100 Continue\r\n\r\n", HTTP_CLIENT_RESET},
        {"", HTTP_CLIENT_RESET},
        {"SSH-2.0-OpenSSH\r\n", HTTP_CLIENT_BAD_REPLY},
        {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", HTTP_CLIENT_BAD_REPLY},
        {"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", HTTP_CLIENT_BAD_REPLY},
        {"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n12345678901", HTTP_CLIENT_TOO_LARGE},
    };
    make_client(w, (struct http_client_config){.max_reply = 10});
    w->server.close_after = true;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        w->server.n_replied = 0;
        w->server.replies[0] = cases[i].reply;
        memset(&w->out[0], 0, sizeof w->out[0]);
        ask(w, 0,
            (struct http_call_spec){.may_resend = true}); /* these are new connections: never sent again */
        run_until_done(w, 0);
        assert_int_equal(w->out[0].result, cases[i].result);
        assert_int_equal(w->server.n_replied, 1);
        buf_free(&w->out[0].body);
    }
}

/* Cut at its bound it is a whole answer; what follows on its connection is not read. */
static void test_long_replies_are_cut(void **state)
{
    struct world *w = *state;
    make_client(w, (struct http_client_config){.max_reply = 10, .cut_reply = true});
    w->server.replies[0] = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n1234567890";
    w->server.replies[1] = "HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n12345678901";
    w->server.replies[2] =
        "HTTP/1.1 400 Bad\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n9\r\n123456789\r\n";
    for (int i = 0; i < 3; i++)
        ask(w, i, (struct http_call_spec){.may_resend = true});
    run_until_done(w, 2);
    expect(w, 0, HTTP_CLIENT_OK, 200, "1234567890");
    expect(w, 1, HTTP_CLIENT_OK, 200, "1234567890");
    expect(w, 2, HTTP_CLIENT_OK, 400, "abc1234567");
    assert_int_equal(w->server.n_accepted, 2); /* the first was whole: its connection served the second too */
}

#define EMPTY_OK "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

static void test_connections_are_kept_and_bounded(void **state)
{
    struct world *w = *state;
    make_client(w, (struct http_client_config){.max_connections = 2});
    for (size_t i = 0; i < 6; i++) {
        w->server.replies[i] = EMPTY_OK;
        ask(w, i, (struct http_call_spec){0});
    }
    for (size_t i = 0; i < 6; i++)
        expect(w, i, HTTP_CLIENT_OK, 200, "");
    assert_int_equal(w->server.n_accepted, 2);
}

static void test_a_kept_connection_closed_while_idle_is_dropped(void **state)
{
    struct world *w = *state;
    make_client(w, (struct http_client_config){0});
    w->server.close_after = true;
    w->server.replies[0] = w->server.replies[1] = EMPTY_OK;
    ask(w, 0, (struct http_call_spec){0});
    expect(w, 0, HTTP_CLIENT_OK, 200, "");
    ask(w, 1, (struct http_call_spec){0}); /* the loop has not yet told that it was closed */
    expect(w, 1, HTTP_CLIENT_OK, 200, "");
    assert_int_equal(w->server.n_accepted, 2);
}

static void test_only_what_may_be_is_resent(void **state)
{
    struct world *w = *state;
    make_client(w, (struct http_client_config){0});
    w->server.close_before = true;
    w->server.replies[0] = w->server.replies[1] = w->server.replies[2] = EMPTY_OK;
    ask(w, 0, (struct http_call_spec){0});
    expect(w, 0, HTTP_CLIENT_OK, 200, "");
    ask(w, 1, (struct http_call_spec){.may_resend = true});
    expect(w, 1, HTTP_CLIENT_OK, 200, "");
    ask(w, 2, (struct http_call_spec){.may_resend = false});
    expect(w, 2, HTTP_CLIENT_RESET, 0, "");
}

/* It has the port, and does not listen. */
static int keep_port(char url[64])
{
    struct sockaddr_in loopback = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&loopback, sizeof loopback), 0);
    listen_url(fd, url, 64);
    return fd;
}

/* Each forgets the addresses that the name was found to have, and has its own list of them to the end. */
static void test_several_are_refused_at_once(void **state)
{
    struct world *w = *state;
    char url[64];
    int fd = keep_port(url);
    make_client(w, (struct http_client_config){.url = url, .max_connections = 3});
    for (size_t i = 0; i < 6; i++)
        ask(w, i, (struct http_call_spec){0});
    for (size_t i = 0; i < 6; i++)
        expect(w, i, HTTP_CLIENT_REFUSED, 0, "");
    close(fd);
}

static void test_refused(void **state)
{
    struct world *w = *state;
    char url[64];
    int fd = keep_port(url);
    make_client(w, (struct http_client_config){.url = url});
    ask(w, 0, (struct http_call_spec){0});
    expect(w, 0, HTTP_CLIENT_REFUSED, 0, "");
    http_client_free(&w->client);
    close(fd);
    make_client(w, (struct http_client_config){.url = "unix:/nonexistent/socket"});
    ask(w, 1, (struct http_call_spec){0});
    expect(w, 1, HTTP_CLIENT_REFUSED, 0, "");
    const struct http_client_config bad = {.base = w->base, .url = "http://"};
    assert_null(http_client_new(&bad));
}

static void test_timeouts(void **state)
{
    struct world *w = *state;
    make_client(
        w, (struct http_client_config){.timeout = 50 * USEC_PER_MSEC, .idle_timeout = 50 * USEC_PER_MSEC});
    ask(w, 0, (struct http_call_spec){0});
    expect(w, 0, HTTP_CLIENT_TIMEOUT, 0, "");
    w->server.replies[1] = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc";
    ask(w, 1, (struct http_call_spec){0});
    run_until_done(w, 1);
    assert_int_equal(w->out[1].result, HTTP_CLIENT_TIMEOUT);
    w->server.replies[2] = w->server.replies[1];
    ask(w, 2, (struct http_call_spec){.on_body = on_piece, .timeout = 60 * USEC_PER_SEC});
    expect(w, 2, HTTP_CLIENT_TIMEOUT, 200, "abc");
}

static void on_late_turn(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    usleep(2200 * 1000);
    ask(arg, 1, (struct http_call_spec){.timeout = 2 * USEC_PER_SEC});
}

/* A turn of the loop that takes longer than the timeout leaves the request its whole time. */
static void test_a_request_late_in_a_long_turn(void **state)
{
    struct world *w = *state;
    static const char reply[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    w->server.replies[0] = w->server.replies[1] = reply;
    make_client(w, (struct http_client_config){.max_connections = 1});
    ask(w, 0, (struct http_call_spec){0});
    expect(w, 0, HTTP_CLIENT_OK, 200, "ok");
    event_base_once(w->base, -1, EV_TIMEOUT, on_late_turn, w, NULL);
    expect(w, 1, HTTP_CLIENT_OK, 200, "ok");
}

static void test_streams(void **state)
{
    struct world *w = *state;
    make_client(w, (struct http_client_config){.max_reply = 5});
    w->server.replies[0] = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabcdef";
    ask(w, 0, (struct http_call_spec){.on_headers = on_headers, .on_body = on_piece});
    expect(w, 0, HTTP_CLIENT_OK, 200, "abcdef");
    assert_int_equal(w->out[0].n_headers, 1);
    w->server.replies[1] = "HTTP/1.1 410 Gone\r\nContent-Length: 4\r\n\r\ngone";
    ask(w, 1, (struct http_call_spec){.on_headers = on_headers, .on_body = on_piece});
    expect(w, 1, HTTP_CLIENT_OK, 410, "gone");
    assert_int_equal(w->out[1].n_headers + w->out[1].n_pieces, 0);
}

static void run_for(struct world *w, usec_t time)
{
    usec_t until = clock_monotonic() + time;
    while (clock_monotonic() < until) {
        event_base_loop(w->base, EVLOOP_NONBLOCK);
        usleep(1000);
    }
}

/* A paused stream brings nothing more, whatever has been read already, nor is its silence taken amiss; resumed it goes on
 * where it was. */
static void test_pause(void **state)
{
    struct world *w = *state;
    struct outcome *o = &w->out[0];
    make_client(w, (struct http_client_config){.idle_timeout = 50 * USEC_PER_MSEC});
    w->server.replies[0] =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n2\r\nbc\r\n1\r\nd\r\n0\r\n\r\n";
    w->server.close_after = true;
    o->pause_each = true;
    ask(w, 0, (struct http_call_spec){.on_body = on_piece});
    for (int pieces = 1; pieces <= 3; pieces++) {
        RUN_UNTIL(w, o->n_pieces == pieces);
        run_for(w, 100 * USEC_PER_MSEC);
        assert_int_equal(o->n_pieces, pieces);
        assert_int_equal(o->n_done, 0);
        http_call_resume(o->call);
        assert_int_equal(o->n_pieces, pieces);
    }
    expect(w, 0, HTTP_CLIENT_OK, 200, "abcd");
}

static void test_pause_with_a_length(void **state)
{
    struct world *w = *state;
    struct outcome *o = &w->out[0];
    make_client(w, (struct http_client_config){0});
    w->server.replies[0] = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
    w->server.replies[1] = EMPTY_OK;
    o->pause_each = true;
    ask(w, 0, (struct http_call_spec){.on_body = on_piece});
    RUN_UNTIL(w, o->n_pieces == 1);
    some_turns(w);
    assert_int_equal(o->n_done, 0);
    http_call_resume(o->call);
    expect(w, 0, HTTP_CLIENT_OK, 200, "abc");
    ask(w, 1, (struct http_call_spec){0});
    expect(w, 1, HTTP_CLIENT_OK, 200, "");
    assert_int_equal(w->server.n_accepted, 1);
}

static void test_cancel(void **state)
{
    struct world *w = *state;
    make_client(w, (struct http_client_config){.max_connections = 1});
    w->server.replies[1] = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabcdef";
    w->server.replies[2] = EMPTY_OK;
    for (size_t i = 0; i < 3; i++)
        ask(w, i, (struct http_call_spec){0});
    some_turns(w);
    http_call_cancel(w->out[1].call); /* it waits */
    assert_int_equal(w->out[1].n_done, 1);
    http_call_cancel(w->out[0].call); /* it is under way */
    expect(w, 0, HTTP_CLIENT_CANCELLED, 0, "");
    expect(w, 1, HTTP_CLIENT_CANCELLED, 0, "");
    expect(w, 2, HTTP_CLIENT_OK, 200, "abcdef");
    w->server.n_replied = 1;
    w->out[3].cancel_on_piece = true;
    ask(w, 3, (struct http_call_spec){.on_body = on_piece});
    expect(w, 3, HTTP_CLIENT_CANCELLED, 200, "abcdef");
}

static void test_free_inside_a_callback(void **state)
{
    struct world *w = *state;
    make_client(w, (struct http_client_config){.max_connections = 1});
    w->server.replies[0] = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabcdef";
    w->out[0].free_on_piece = true;
    ask(w, 0, (struct http_call_spec){.on_body = on_piece});
    ask(w, 1, (struct http_call_spec){0});
    expect(w, 0, HTTP_CLIENT_CANCELLED, 200, "abcdef");
    expect(w, 1, HTTP_CLIENT_CANCELLED, 0, "");
    assert_null(w->client);
    some_turns(w);
}

/* The server answers 413 and closes while the body is still being sent. */
static void test_early_answer(void **state)
{
    struct world *w = *state;
    struct buf body = {0};
    make_client(w, (struct http_client_config){0});
    w->server.answer_early = true;
    buf_reserve(&body, 8 << 20);
    memset(body.ptr, 'x', 8 << 20);
    body.len = 8 << 20;
    w->server.replies[0] =
        "HTTP/1.1 413 Content Too Large\r\nContent-Length: 5\r\nConnection: close\r\n\r\nlarge";
    ask(w, 0, (struct http_call_spec){.method = "POST", .body = buf_bytes(&body), .headers = "A: b\r\n"});
    expect(w, 0, HTTP_CLIENT_OK, 413, "large");
    buf_free(&body);
}

static void test_request_bytes(void **state)
{
    struct world *w = *state;
    make_client(w, (struct http_client_config){.auth_token = "secret"});
    const struct http_call_spec spec = {.method = "POST",
        .target = "/pub?stream=s",
        .content_type = "text/plain",
        .body = BYTES_LITERAL("a\0b"),
        .headers = "X-A: 1\r\nX-B: 2\r\n"};
    ask(w, 0, spec);
    RUN_UNTIL(w, w->server.n_replied == 1);
    struct buf wanted = {0};
    buf_printf(&wanted,
        "POST /pub?stream=s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer secret\r\nContent-Type: "
        "text/plain\r\n"
        "Content-Length: 3\r\nX-A: 1\r\nX-B: 2\r\n\r\n",
        w->server.url + 7);
    buf_append(&wanted, "a\0b", 3);
    assert_int_equal(wanted.len, strlen(wanted.ptr) + 2);
    assert_memory_equal(w->server.peers[0].in.ptr, wanted.ptr, wanted.len);
    buf_free(&wanted);
}

/* Over what sockets hold, so in many pieces; what its owner writes into it before it leaves is what leaves. */
static void test_a_lent_body(void **state)
{
    struct world *w = *state;
    struct buf body = {0};
    const struct peer *p = &w->server.peers[0];
    make_client(w, (struct http_client_config){.timeout = 60 * USEC_PER_SEC});
    for (uint32_t i = 0; i < 3 << 18; i++)
        buf_append(&body, &i, sizeof i);
    ask(w, 0, (struct http_call_spec){.method = "POST", .body = buf_bytes(&body), .body_is_lent = true});
    body.ptr[0] = 'L';
    RUN_UNTIL(w, w->server.n_replied == 1);
    assert_int_equal(w->server.n_replied, 1);
    assert_true(p->in.len > body.len);
    assert_memory_equal(p->in.ptr + p->in.len - body.len, body.ptr, body.len);
    assert_non_null(memmem(p->in.ptr, p->in.len, "\r\nContent-Length: 3145728\r\n", 27));
    http_client_free(&w->client);
    buf_free(&body);
}

static void test_fetch(void **state)
{
    struct world *w = *state;
    int status = 0;
    struct buf body = {0};
    make_client(w, (struct http_client_config){0});
    w->server.replies[0] = "HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno";
    const struct http_call_spec spec = {.method = "GET", .target = "/x"};
    assert_int_equal(http_client_fetch(w->client, &spec, &status, &body), HTTP_CLIENT_OK);
    assert_int_equal(status, 404);
    assert_true(bytes_equal_str(buf_bytes(&body), "no"));
    buf_free(&body);
    const struct http_call_spec head = {.method = "HEAD", .target = "/x"};
    w->server.replies[1] = "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n";
    assert_int_equal(http_client_fetch(w->client, &head, &status, NULL), HTTP_CLIENT_OK);
    assert_int_equal(status, 200);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_framings),
        TEST(test_endings),
        TEST(test_long_replies_are_cut),
        TEST(test_connections_are_kept_and_bounded),
        TEST(test_a_kept_connection_closed_while_idle_is_dropped),
        TEST(test_only_what_may_be_is_resent),
        TEST(test_refused),
        TEST(test_several_are_refused_at_once),
        TEST(test_timeouts),
        TEST(test_a_request_late_in_a_long_turn),
        TEST(test_streams),
        TEST(test_pause),
        TEST(test_pause_with_a_length),
        TEST(test_cancel),
        TEST(test_free_inside_a_callback),
        TEST(test_early_answer),
        TEST(test_request_bytes),
        TEST(test_a_lent_body),
        TEST(test_fetch),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
