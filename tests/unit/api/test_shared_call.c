/* shared_call against a server whose replies the test sends itself: which requests arrive, and who gets which reply. */
#include "support/cm.h"

#include "api/shared_call.h"
#include "daemon/listen.h"

#include <event2/event.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#define SHARES 6

struct world;

struct question {
    struct world *world;
    struct share share;
    struct buf body;
    enum http_client_result result;
    int status, n_done;
    uint32_t leaves_on_body, leaves_on_done; /* bits of the questions that leave in its callback */
    const char *asks_on_done;                /* NULL: nothing */
};

struct world {
    struct event_base *base;
    struct http_client *client;
    struct shared_calls *calls;
    struct stats_counter joined;
    int listen_fd;
    struct question q[SHARES];
};

static void get(struct world *w, size_t i, const char *target)
{
    shared_calls_get(w->calls, target, &w->q[i].share);
}

static void leave(struct world *w, uint32_t which)
{
    for (size_t i = 0; i < SHARES; i++)
        if (which & (UINT32_C(1) << i))
            share_leave(&w->q[i].share);
}

static void on_body(struct bytes piece, void *arg)
{
    struct question *q = arg;
    assert_non_null(q->share.call);
    buf_append_bytes(&q->body, piece);
    leave(q->world, q->leaves_on_body);
}

static void on_done(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct question *q = arg;
    assert_null(q->share.call);
    q->n_done++;
    q->result = result;
    q->status = reply->status;
    leave(q->world, q->leaves_on_done);
    if (q->asks_on_done)
        shared_calls_get(q->world->calls, q->asks_on_done, &q->share);
    q->asks_on_done = NULL;
}

static void make_client(struct world *w, int connections)
{
    char url[64];
    listen_url(w->listen_fd, url, sizeof url);
    w->client = http_client_new(
        &(struct http_client_config){.base = w->base, .url = url, .max_connections = connections});
    w->calls = shared_calls_new(w->client, &w->joined);
}

static int set_up(void **state)
{
    struct world *w = mem_zalloc(sizeof *w);
    char error[256];
    w->base = event_base_new();
    w->listen_fd = listen_open("127.0.0.1", 0, error, sizeof error);
    assert_true(w->listen_fd >= 0);
    for (size_t i = 0; i < SHARES; i++) {
        w->q[i].world = w;
        w->q[i].share = (struct share){.on_body = on_body, .on_done = on_done, .arg = &w->q[i]};
    }
    make_client(w, 4);
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    leave(w, UINT32_MAX);
    shared_calls_free(&w->calls);
    http_client_free(&w->client);
    close(w->listen_fd);
    event_base_free(w->base);
    for (size_t i = 0; i < SHARES; i++)
        buf_free(&w->q[i].body);
    free(w);
    return 0;
}

static bool is_readable(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, 1) == 1;
}

#define RUN_UNTIL(w, condition)                                                                              \
    for (usec_t end = 0; !(condition) && is_early(&end);)                                                    \
    event_base_loop((w)->base, EVLOOP_NONBLOCK)

/* Waits for the next request on the connection, which must ask for `target`. */
static void expect_request(struct world *w, int fd, const char *target)
{
    char text[1024], line[256];
    RUN_UNTIL(w, is_readable(fd));
    ssize_t n = recv(fd, text, sizeof text - 1, 0);
    assert_true(n > 0);
    text[n] = '\0';
    snprintf(line, sizeof line, "GET %s HTTP/1.1\r\n", target);
    assert_memory_equal(text, line, strlen(line));
    assert_string_equal(text + n - 4, "\r\n\r\n");
}

/* The same on a new connection, which is returned. */
static int expect_connection(struct world *w, const char *target)
{
    RUN_UNTIL(w, is_readable(w->listen_fd));
    int fd = accept(w->listen_fd, NULL, NULL);
    assert_true(fd >= 0);
    expect_request(w, fd, target);
    return fd;
}

static void say(int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

static void reply(int fd, const char *body)
{
    char text[256];
    snprintf(text, sizeof text, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n%s", strlen(body), body);
    say(fd, text);
}

static void expect(struct world *w, size_t i, const char *body)
{
    RUN_UNTIL(w, w->q[i].n_done > 0);
    assert_int_equal(w->q[i].n_done, 1);
    assert_int_equal(w->q[i].result, HTTP_CLIENT_OK);
    assert_int_equal(w->q[i].status, 200);
    assert_true(bytes_equal_str(buf_bytes(&w->q[i].body), body));
}

static void expect_nothing(struct world *w, size_t i)
{
    assert_int_equal(w->q[i].n_done, 0);
    assert_null(w->q[i].share.call);
}

static void test_equal_questions_share_a_request(void **state)
{
    struct world *w = *state;
    for (size_t i = 0; i < 3; i++)
        get(w, i, "/a?k=1");
    get(w, 3, "/a?k=2");
    int a = expect_connection(w, "/a?k=1"), b = expect_connection(w, "/a?k=2");
    reply(b, "two");
    expect(w, 3, "two");
    reply(a, "one");
    for (size_t i = 0; i < 3; i++)
        expect(w, i, "one");
    assert_int_equal(stats_read(&w->joined), 2);
    assert_false(is_readable(w->listen_fd));
    close(a);
    close(b);
}

static void test_a_request_that_is_sent_is_not_joined(void **state)
{
    struct world *w = *state;
    get(w, 0, "/a");
    int first = expect_connection(w, "/a");
    get(w, 1, "/a");
    int second = expect_connection(w, "/a");
    reply(second, "new");
    expect(w, 1, "new");
    assert_int_equal(w->q[0].n_done, 0);
    reply(first, "old");
    expect(w, 0, "old");
    assert_int_equal(stats_read(&w->joined), 0);
    close(first);
    close(second);
}

static void test_a_request_that_waits_for_a_connection_is_joined(void **state)
{
    struct world *w = *state;
    shared_calls_free(&w->calls);
    http_client_free(&w->client);
    make_client(w, 1);
    get(w, 0, "/a");
    int fd = expect_connection(w, "/a");
    get(w, 1, "/a");
    event_base_loop(w->base, EVLOOP_NONBLOCK);
    get(w, 2, "/a");
    reply(fd, "old");
    expect(w, 0, "old");
    expect_request(w, fd, "/a");
    reply(fd, "new");
    expect(w, 1, "new");
    expect(w, 2, "new");
    close(fd);
}

static void test_a_request_that_is_resent_answers_all(void **state)
{
    struct world *w = *state;
    get(w, 0, "/a");
    int fd = expect_connection(w, "/a");
    reply(fd, "old");
    expect(w, 0, "old");
    get(w, 1, "/a");
    get(w, 2, "/a");
    expect_request(w, fd, "/a");
    close(fd);
    fd = expect_connection(w, "/a");
    reply(fd, "new");
    expect(w, 1, "new");
    expect(w, 2, "new");
    close(fd);
}

static void test_some_leave_before_it_is_sent(void **state)
{
    struct world *w = *state;
    get(w, 0, "/gone");
    get(w, 1, "/gone");
    leave(w, 3);
    get(w, 2, "/a");
    get(w, 3, "/a");
    get(w, 4, "/a");
    leave(w, 1 << 2 | 1 << 4);
    int fd = expect_connection(w, "/a");
    reply(fd, "one");
    expect(w, 3, "one");
    for (size_t i = 0; i < SHARES; i++)
        if (i != 3)
            expect_nothing(w, i);
    assert_false(is_readable(w->listen_fd));
    close(fd);
}

/* The first leaves itself and the next, the third one that was called before. */
static void test_some_leave_inside_a_callback(void **state)
{
    struct world *w = *state;
    for (size_t i = 0; i < 5; i++)
        get(w, i, "/a");
    w->q[0].leaves_on_body = 1 << 0 | 1 << 1;
    w->q[3].leaves_on_body = 1 << 2;
    int fd = expect_connection(w, "/a");
    say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\non");
    RUN_UNTIL(w, w->q[4].body.len == 2);
    say(fd, "ce");
    expect(w, 3, "once");
    expect(w, 4, "once");
    for (size_t i = 0; i < 3; i++)
        expect_nothing(w, i);
    assert_int_equal(w->q[0].body.len, 2);
    assert_int_equal(w->q[1].body.len, 0);
    close(fd);
}

static void test_all_leave_inside_a_callback(void **state)
{
    struct world *w = *state;
    char byte;
    for (size_t i = 0; i < 3; i++)
        get(w, i, "/a");
    w->q[1].leaves_on_body = 7;
    int fd = expect_connection(w, "/a");
    say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\non");
    RUN_UNTIL(w, is_readable(fd));
    assert_int_equal(recv(fd, &byte, 1, MSG_DONTWAIT), 0); /* the request is cancelled */
    for (size_t i = 0; i < 3; i++)
        expect_nothing(w, i);
    close(fd);
}

static void test_a_question_asks_again_or_makes_others_leave_at_the_end(void **state)
{
    struct world *w = *state;
    for (size_t i = 0; i < 3; i++)
        get(w, i, "/a");
    w->q[0].asks_on_done = "/a";
    w->q[0].leaves_on_done = 1 << 1;
    int fd = expect_connection(w, "/a");
    reply(fd, "one");
    expect(w, 2, "one");
    expect_nothing(w, 1);
    assert_int_equal(w->q[0].n_done, 1);
    expect_request(w, fd, "/a");
    reply(fd, "two");
    RUN_UNTIL(w, w->q[0].n_done == 2);
    assert_true(bytes_equal_str(buf_bytes(&w->q[0].body), "onetwo"));
    close(fd);
}

static void test_a_failure_is_passed_to_all(void **state)
{
    struct world *w = *state;
    get(w, 0, "/a");
    get(w, 1, "/a");
    int fd = expect_connection(w, "/a");
    say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf");
    RUN_UNTIL(w, w->q[1].body.len == 4);
    close(fd);
    for (size_t i = 0; i < 2; i++) {
        RUN_UNTIL(w, w->q[i].n_done > 0);
        assert_int_equal(w->q[i].n_done, 1);
        assert_int_equal(w->q[i].result, HTTP_CLIENT_RESET);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_equal_questions_share_a_request, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_request_that_is_sent_is_not_joined, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_a_request_that_waits_for_a_connection_is_joined, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_request_that_is_resent_answers_all, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_some_leave_before_it_is_sent, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_some_leave_inside_a_callback, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_all_leave_inside_a_callback, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_a_question_asks_again_or_makes_others_leave_at_the_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_failure_is_passed_to_all, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
