/* shared_call against a server whose replies the test sends itself: which requests arrive, and who gets which reply. */
#include "support/cm.h"

#include "api/shared_call.h"
#include "daemon/listen.h"

#include <event2/event.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#define SHARES 12

struct world;

struct question {
    struct world *world;
    struct share share;
    struct buf body;
    enum http_client_result result;
    int status, n_done;
    bool has_left;
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
        if (which & (UINT32_C(1) << i)) {
            w->q[i].has_left |= w->q[i].share.part != NULL;
            share_leave(&w->q[i].share);
        }
}

static void on_body(struct bytes piece, void *arg)
{
    struct question *q = arg;
    assert_non_null(q->share.part);
    buf_append_bytes(&q->body, piece);
    leave(q->world, q->leaves_on_body);
}

static void on_done(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct question *q = arg;
    assert_null(q->share.part);
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
    w->base = event_base_new();
    w->listen_fd = listen_open("127.0.0.1", 0, NULL);
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
    assert_null(w->q[i].share.part);
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
    get(w, 5, "/mget?k=u%7Cgone");
    get(w, 6, "/mget?k=u%7Cgone2");
    leave(w, 1 << 0 | 1 << 1 | 1 << 5 | 1 << 6);
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

static void reply_with(int fd, int status, const char *headers, const char *body)
{
    char text[1024];
    snprintf(text, sizeof text, "HTTP/1.1 %d A\r\nContent-Length: %zu\r\n%s\r\n%s", status, strlen(body),
        headers, body);
    say(fd, text);
}

static void test_questions_for_different_keys_are_united(void **state)
{
    struct world *w = *state;
    get(w, 0, "/mget?k=u%7Ca&k=u%7C%28other%29&after=7");
    get(w, 1, "/mget?k=u%7Cb%20b&k=u%7C%28other%29&after=7");
    get(w, 2, "/mget?k=u%7Ca&k=u%7C%28other%29&after=7");
    get(w, 3, "/mget?k=u%7Cnone&k=u%7C%28other%29&after=7");
    int fd = expect_connection(w, "/mget?k=u%7Ca&k=u%7Cb%20b&k=u%7Cnone&k=u%7C%28other%29&after=7");
    reply(fd, "u|a,x:1\nu|a,y:2\nu|b b,x:3\nu|(other),x:4\n");
    expect(w, 0, "u|a,x:1\nu|a,y:2\nu|(other),x:4\n");
    expect(w, 1, "u|b b,x:3\nu|(other),x:4\n");
    expect(w, 2, "u|a,x:1\nu|a,y:2\nu|(other),x:4\n");
    expect(w, 3, "u|(other),x:4\n");
    assert_int_equal(stats_read(&w->joined), 3);
    assert_false(is_readable(w->listen_fd));
    close(fd);
}

static void test_questions_that_differ_in_more_are_not_united(void **state)
{
    static const char *const targets[] = {"/mget?k=u%7Ca", "/mget?k=v%7Ca", "/mget?k=u%7Ca&after=7",
        "/mget?k=u%7Cb&k=u%7Cc", "/mget?k=u%7Cb&k=u%7Cc&k=u%7Cd", "/mget?k=u%7Ce&k=u%7Cc&k=u%7Cd",
        "/range?k=u%7Ca", "/mget?k=ua", "/mget?k=ub", "/mget?k=u%7Cc&k=u%7Cc", "/mget?k=u%7Cb%2C"};
    struct world *w = *state;
    shared_calls_free(&w->calls);
    http_client_free(&w->client);
    make_client(w, SHARES);
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++)
        get(w, i, targets[i]);
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        int fd = expect_connection(w, targets[i]);
        reply(fd, targets[i]);
        expect(w, i, targets[i]);
        close(fd);
    }
    assert_int_equal(stats_read(&w->joined), 0);
}

static void test_a_united_request_is_bounded(void **state)
{
    struct world *w = *state;
    char target[SHARED_TARGET_MAX + 100], last[256];
    for (size_t i = 0; i < SHARED_KEYS_MAX + 1; i++) {
        snprintf(last, sizeof last, "/mget?k=u%%7C%zu", i);
        get(w, i, last);
    }
    get(w, SHARED_KEYS_MAX + 1, "/mget?k=u%7C0");
    int full = expect_connection(w, "/mget?k=u%7C0&k=u%7C1&k=u%7C2&k=u%7C3&k=u%7C4&k=u%7C5&k=u%7C6&k=u%7C7");
    int next = expect_connection(w, last);
    reply(full, "u|0,x:1\nu|7,x:8\n");
    expect(w, 0, "u|0,x:1\n");
    expect(w, SHARED_KEYS_MAX - 1, "u|7,x:8\n");
    expect(w, SHARED_KEYS_MAX + 1, "u|0,x:1\n");
    reply(next, "u|8,x:9\n");
    expect(w, SHARED_KEYS_MAX, "u|8,x:9\n");
    for (size_t i = 0; i < 2; i++) {
        snprintf(target, sizeof target, "/mget?k=u%%7C%0*zu", (int)SHARED_TARGET_MAX, i);
        w->q[i].n_done = 0;
        get(w, i, target);
    }
    assert_int_equal(stats_read(&w->joined), SHARED_KEYS_MAX);
    close(full);
    close(next);
}

/* Nothing of the united reply is passed on. Then each target has a request of its own. */
static void ask_again(void **state, int status, const char *headers)
{
    struct world *w = *state;
    get(w, 0, "/mget?k=u%7Ca");
    get(w, 1, "/mget?k=u%7Cb");
    get(w, 2, "/mget?k=u%7Ca");
    get(w, 3, "/mget?k=u%7Cleaves");
    int first = expect_connection(w, "/mget?k=u%7Ca&k=u%7Cb&k=u%7Cleaves");
    leave(w, 1 << 3);
    reply_with(first, status, headers, "u|a,x:1\n");
    expect_request(w, first, "/mget?k=u%7Ca");
    int second = expect_connection(w, "/mget?k=u%7Cb");
    reply_with(second, status, headers, "");
    RUN_UNTIL(w, w->q[1].n_done);
    assert_int_equal(w->q[1].status, status);
    reply(first, "u|a,x:5\n");
    expect(w, 0, "u|a,x:5\n");
    expect(w, 2, "u|a,x:5\n");
    assert_false(is_readable(w->listen_fd));
    close(first);
    close(second);
}

static void test_a_united_reply_with_a_continuation_is_asked_again(void **state)
{
    ask_again(state, 200, "X-Millrace-Next: u%7Cb\r\n");
}

static void test_a_united_reply_with_another_status_is_asked_again(void **state)
{
    ask_again(state, 206, "");
    struct world *w = *state;
    for (size_t i = 0; i < SHARES; i++)
        w->q[i].n_done = 0, buf_clear(&w->q[i].body);
    ask_again(state, 413, "");
}

static void test_a_united_reply_with_a_wrong_line_is_refused(void **state)
{
    static const char *const bodies[] = {"u|a,x:1\nu|c,x:1\nu|b,x:1\n", "u|a,x:1\nu|b,x:", "u|a,x:1\nu|b",
        "u|a,x:1\nu|,\nu|b,x:1\n", "u|a,x:1\n\nu|b,x:1\n"};
    struct world *w = *state;
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        get(w, 0, "/mget?k=u%7Ca");
        get(w, 1, "/mget?k=u%7Cb");
        int fd = expect_connection(w, "/mget?k=u%7Ca&k=u%7Cb");
        reply_with(fd, 200, "Connection: close\r\n", bodies[i]);
        for (size_t k = 0; k < 2; k++) {
            RUN_UNTIL(w, w->q[k].n_done == (int)i + 1);
            assert_int_equal(w->q[k].result, HTTP_CLIENT_BAD_REPLY);
        }
        close(fd);
    }
}

/* A server that has records of some keys, for questions that choose a key, and perhaps a second one that many have. A target has `&after`
 * if it has a second key, so that a request shows whether it is united. */
#define MODEL_KEYS 7
#define MODEL_COMMON 5 /* the first of the keys that many have */
#define MODEL_LINE 2000
#define MODEL_MAX ((size_t)64 << 10)
#define MODEL_ROUNDS 100

enum model_reply {
    MODEL_WHOLE,
    MODEL_REFUSED,
    MODEL_NEXT, /* from here on only of a united request, which is asked again after these two */
    MODEL_RESET,
    MODEL_CUT,
    MODEL_FOREIGN,
    MODEL_REPLIES
};

struct model {
    char records[MODEL_KEYS][3 * MODEL_LINE]; /* lines of the key, or "" */
    int fds[64];
    size_t n_fds, n_replies[MODEL_REPLIES]; /* to united requests */
    bool is_failing;                        /* in this round, some questions may fail */
    char expected[SHARES][MODEL_MAX], body[MODEL_MAX], text[MODEL_MAX + 256];
};

static bool is_one_in(int n)
{
    return random() % n == 0;
}

static void make_records(struct model *m)
{
    for (size_t k = 0; k < MODEL_KEYS; k++) {
        int lines = (int)(random() % 3), len = 0;
        m->records[k][0] = '\0';
        for (int i = 0; i < lines; i++)
            len += snprintf(m->records[k] + len, MODEL_LINE, "u|%zu,x:%0*d\n", k,
                (int)(1 + random() % (is_one_in(8) ? 1900 : 20)), i);
    }
}

/* The records of the keys, in the order of the target. Returns their number. */
static int answer(const struct model *m, const char *target, char out[MODEL_MAX])
{
    int n = 0;
    *out = '\0';
    for (const char *k = target; (k = strstr(k, "k=u%7C")); k++, n++) {
        const char *lines = m->records[k[6] - '0'];
        size_t len = strlen(lines);
        memcpy(out, lines, len + 1);
        out += len;
    }
    return n;
}

static void send_in_pieces(struct world *w, int fd, const char *text)
{
    static const size_t sizes[] = {2, 10, 50, 2000};
    size_t most = sizes[random() % 4];
    for (size_t n; *text; text += n) {
        size_t left = strlen(text);
        n = 1 + (size_t)random() % most;
        n = n < left ? n : left;
        if (send(fd, text, n, MSG_NOSIGNAL) < 0)
            return; /* all have left */
        event_base_loop(w->base, EVLOOP_NONBLOCK);
    }
}

static void make_reply(struct model *m, enum model_reply kind)
{
    size_t len = strlen(m->body);
    if (kind == MODEL_CUT && len > 0) {
        size_t cut = (size_t)random() % len;
        m->body[cut > 0 && m->body[cut - 1] == '\n' ? cut + 1 : cut + !cut] = '\0';
    } else if (kind == MODEL_CUT || kind == MODEL_FOREIGN) {
        strcat(m->body, is_one_in(2) ? "u|9,x:1\n" : "u|11,x:1\n");
    }
    snprintf(m->text, sizeof m->text, "HTTP/1.1 %d A\r\nContent-Length: %zu\r\n%s\r\n%s",
        kind == MODEL_REFUSED ? 413 : 200, strlen(m->body) + (kind == MODEL_RESET),
        kind == MODEL_NEXT ? "X-Millrace-Next: a\r\n" : "", m->body);
}

/* Returns false if the connection ends with this reply. */
static bool serve(struct world *w, struct model *m, int fd)
{
    char request[2048];
    ssize_t n = recv(fd, request, sizeof request - 1, 0);
    if (n <= 0)
        return false;
    request[n] = '\0';
    assert_string_equal(request + n - 4, "\r\n\r\n");
    *strstr(request, " HTTP/1.1\r\n") = '\0';
    bool is_united = answer(m, request, m->body) > 1 + (strstr(request, "&after") != NULL);
    enum model_reply kind = MODEL_WHOLE;
    if (is_united && is_one_in(2))
        kind = (enum model_reply)(random() % (m->is_failing ? MODEL_REPLIES : MODEL_RESET));
    else if (m->is_failing && is_one_in(8))
        kind = MODEL_REFUSED;
    if (is_united)
        m->n_replies[kind]++;
    make_reply(m, kind);
    send_in_pieces(w, fd, m->text);
    return kind != MODEL_RESET;
}

static void serve_all(struct world *w, struct model *m)
{
    while (is_readable(w->listen_fd)) {
        assert_true(m->n_fds < 64);
        m->fds[m->n_fds++] = accept(w->listen_fd, NULL, NULL);
    }
    for (size_t i = 0; i < m->n_fds;) {
        if (!is_readable(m->fds[i]) || serve(w, m, m->fds[i])) {
            i++;
            continue;
        }
        close(m->fds[i]);
        m->fds[i] = m->fds[--m->n_fds];
    }
}

static bool is_open(const struct world *w)
{
    for (size_t i = 0; i < SHARES; i++)
        if (w->q[i].share.part)
            return true;
    return false;
}

static uint32_t random_leavers(void)
{
    return is_one_in(8) ? (uint32_t)(random() & random() & random()) : 0;
}

static void ask_some(struct world *w, struct model *m)
{
    char target[256];
    for (size_t i = 0; i < SHARES; i++) {
        struct question *q = &w->q[i];
        int common = (int)(MODEL_COMMON + random() % 2);
        buf_clear(&q->body);
        q->n_done = 0;
        q->has_left = false;
        q->leaves_on_body = random_leavers();
        q->leaves_on_done = random_leavers();
        int len = snprintf(target, sizeof target, "/mget?k=u%%7C%d", (int)(random() % MODEL_KEYS));
        if (is_one_in(2))
            snprintf(target + len, sizeof target - (size_t)len, "&k=u%%7C%d&after=%d", common, is_one_in(4));
        answer(m, target, m->expected[i]);
        get(w, i, target);
        if (is_one_in(8))
            event_base_loop(w->base, EVLOOP_NONBLOCK);
        if (is_one_in(16))
            leave(w, UINT32_C(1) << (random() % SHARES));
    }
}

/* Each question got the start of its lines, and if its result is a whole answer, all of them. */
static void check(const struct world *w, const struct model *m)
{
    for (size_t i = 0; i < SHARES; i++) {
        const struct question *q = &w->q[i];
        assert_int_equal(q->n_done, !q->has_left);
        assert_true(q->body.len <= strlen(m->expected[i]));
        if (q->body.len > 0)
            assert_memory_equal(q->body.ptr, m->expected[i], q->body.len);
        bool is_ok = q->result == HTTP_CLIENT_OK && q->status == 200;
        if (q->n_done) {
            assert_true(is_ok || m->is_failing);
            assert_true(!is_ok || q->body.len == strlen(m->expected[i]));
        }
    }
}

static void test_random_questions_get_what_they_would_get_alone(void **state)
{
    struct world *w = *state;
    struct model *m = mem_zalloc(sizeof *m);
    seeded();
    for (int round = 0; round < MODEL_ROUNDS; round++) {
        make_records(m);
        m->is_failing = is_one_in(2);
        ask_some(w, m);
        for (usec_t end = 0; is_open(w) && is_early(&end);) {
            event_base_loop(w->base, EVLOOP_NONBLOCK);
            serve_all(w, m);
        }
        assert_false(is_open(w));
        check(w, m);
    }
    for (size_t kind = 0; kind < MODEL_REPLIES; kind++)
        assert_true(m->n_replies[kind] > 0);
    for (size_t i = 0; i < m->n_fds; i++)
        close(m->fds[i]);
    free(m);
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
        cmocka_unit_test_setup_teardown(test_questions_for_different_keys_are_united, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_questions_that_differ_in_more_are_not_united, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_united_request_is_bounded, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_a_united_reply_with_a_continuation_is_asked_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_a_united_reply_with_another_status_is_asked_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_united_reply_with_a_wrong_line_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_random_questions_get_what_they_would_get_alone, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
