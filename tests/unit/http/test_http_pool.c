/* http_pool against servers in the same loop, which answer as the test tells them to. The test sets the pool's clock,
 * so a slow machine changes no result. Only the time limits of requests use the machine's clock. They are short if
 * the server never answers. */
#include "support/cm.h"
#include "http/client/http_pool.h"
#include "http/server/http_server.h"
#include "daemon/listen.h"
#include <event2/event.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SERVERS 3

static usec_t now;

usec_t clock_monotonic(void)
{
    return now;
}

usec_t clock_wall(void)
{
    return now;
}

struct world {
    struct event_base *base;
    struct stats *stats;
    struct server {
        struct http_server *http;
        int answer; /* 0: it never does */
        const char *retry_after;
        usec_t takes;   /* its handler, on the test's clock */
        usec_t silence; /* on the test's clock: until a request is over that is not answered */
        unsigned asked;
        char url[64];
    } servers[SERVERS];
    struct http_pool *pool;
    unsigned done, timeouts;
    int status;
    enum http_client_result result;
};

static void answer(struct http_request *req, void *ctx)
{
    struct server *s = ctx;
    s->asked++;
    now += s->takes;
    if (s->answer && s->retry_after)
        http_add_header(req, "Retry-After", "%s", s->retry_after);
    if (s->answer)
        http_reply(req, s->answer, NULL, BYTES_NONE);
}

static const struct http_route routes[] = {{.path = "/", .methods = HTTP_GET_, .handler = answer},
    {.path = "/in", .methods = HTTP_GET_, .handler = answer}, {0}};

static void open_pool(struct world *w, int max_connections)
{
    char urls[256], error[200];
    snprintf(urls, sizeof urls, "%s, %s %s", w->servers[0].url, w->servers[1].url, w->servers[2].url);
    struct http_pool_config config = {.base = w->base,
        .urls = urls,
        .max_connections = max_connections,
        .timeout = PATIENCE,
        .backoff_min = 20 * USEC_PER_MSEC,
        .backoff_max = 160 * USEC_PER_MSEC};
    w->pool = http_pool_new(&config, error, sizeof error);
    assert_non_null(w->pool);
    http_pool_register_stats(w->pool, w->stats);
}

static int set_up(void **state)
{
    static struct world w;
    signal(SIGPIPE, SIG_IGN);
    now = USEC_PER_SEC;
    w = (struct world){.base = event_base_new(), .stats = stats_new("test")};
    for (size_t i = 0; i < SERVERS; i++) {
        struct server *s = &w.servers[i];
        struct http_server_config config = {.base = w.base,
            .stats = w.stats,
            .ctx = s,
            .routes = routes,
            .max_body = 1000,
            .max_connections = 1000,
            .server_name = "test"};
        int fd = listen_open("127.0.0.1", 0, NULL);
        struct listen_name name;
        assert_true(fd >= 0);
        listen_name(fd, &name);
        snprintf(s->url, sizeof s->url, "http://127.0.0.1:%d/in?n=%zu", name.port, i);
        s->answer = 200;
        s->http = http_server_new(&config);
        assert_int_equal(http_server_listen_fd(s->http, fd, false), 0);
    }
    open_pool(&w, 1);
    *state = &w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    http_pool_free(&w->pool);
    for (size_t i = 0; i < SERVERS; i++)
        http_server_free(&w->servers[i].http);
    stats_free(&w->stats);
    event_base_free(w->base);
    return 0;
}

static void on_done(enum http_client_result result, const struct http_reply_view *reply, void *arg)
{
    struct world *w = arg;
    w->done++;
    w->timeouts += result == HTTP_CLIENT_TIMEOUT;
    w->result = result;
    w->status = reply->status;
}

#define NO_ANSWER (20 * USEC_PER_MSEC) /* the time limit of what is not answered; of the machine's clock */

static struct server *server_of(struct world *w, const struct http_pool_host *h)
{
    size_t i = 0;
    while (http_pool_at(w->pool, i) != h)
        i++;
    return &w->servers[i];
}

static struct server *begin_request(struct world *w, struct http_pool_host *h)
{
    struct server *s = server_of(w, h);
    http_pool_request(
        h, &(struct http_call_spec){
               .method = "GET", .arg = w, .on_done = on_done, .timeout = s->answer ? PATIENCE : NO_ANSWER});
    return s;
}

/* Makes one request, and waits for its end. False if all hosts are set aside. */
static bool ask(struct world *w)
{
    struct http_pool_host *h = http_pool_next(w->pool, 0);
    unsigned before = w->done;
    if (!h)
        return false;
    struct server *s = begin_request(w, h);
    now += s->answer ? 0 : s->silence;
    while (w->done == before)
        event_base_loop(w->base, EVLOOP_ONCE);
    return true;
}

static double number_of(struct world *w, size_t i, const char *name)
{
    struct buf metrics = {0};
    char row[128];
    stats_print_metrics(w->stats, &metrics);
    buf_append_char(&metrics, '\0');
    snprintf(row, sizeof row, "millrace_test_destination_%s{destination=\"%s\"} ", name, w->servers[i].url);
    const char *at = strstr(metrics.ptr, row);
    assert_non_null(at);
    double value = strtod(at + strlen(row), NULL);
    buf_free(&metrics);
    return value;
}

static double number_of_third(struct world *w, const char *name)
{
    return number_of(w, 2, name);
}

static void those_that_refused_are_left_out(void **state)
{
    struct world *w = *state;
    uint64_t but = 0;
    for (size_t i = 0; i < SERVERS; i++) {
        const struct http_pool_host *h = http_pool_next(w->pool, but);
        assert_ptr_equal(h, http_pool_at(w->pool, i));
        but |= http_pool_host_bit(h);
    }
    assert_null(http_pool_next(w->pool, but));
    assert_non_null(http_pool_next(w->pool, 0));
    w->servers[0].answer = 503; /* set aside: not that one either */
    ask(w);
    assert_null(http_pool_next(w->pool, but & ~http_pool_host_bit(http_pool_at(w->pool, 0))));
}

static void assert_target(const struct http_pool_host *h, const char *target)
{
    struct buf out = {0};
    http_pool_fill_target(h, BYTES_NONE, &out);
    assert_string_equal(out.ptr, target);
    buf_free(&out);
}

static void turns_are_taken(void **state)
{
    struct world *w = *state;
    for (int i = 0; i < 9; i++)
        assert_true(ask(w));
    for (size_t i = 0; i < SERVERS; i++) {
        assert_int_equal(w->servers[i].asked, 3);
        assert_string_equal(http_pool_host_url(http_pool_at(w->pool, i)), w->servers[i].url);
    }
    assert_target(http_pool_at(w->pool, 2), "/in?n=2");
}

static void one_that_fails_is_set_aside_and_comes_back(void **state)
{
    struct world *w = *state;
    w->servers[1].answer = 500;
    for (int i = 0; i < 6; i++)
        assert_true(ask(w));
    assert_int_equal(w->servers[1].asked, 1);
    assert_true(number_of(w, 1, "up") == 0);
    w->servers[1].answer = 200;
    now += 20 * USEC_PER_MSEC;
    for (int i = 0; i < 3; i++)
        assert_true(ask(w));
    assert_int_equal(w->servers[1].asked, 2);
    unsigned before = w->servers[1].asked;
    for (int i = 0; i < 9; i++)
        ask(w);
    assert_int_equal(w->servers[1].asked, before + 3);
}

static void one_that_is_set_aside_gets_one_request_at_a_time(void **state)
{
    struct world *w = *state;
    w->servers[1].answer = 500;
    for (int i = 0; i < 3; i++)
        assert_true(ask(w));
    now += 20 * USEC_PER_MSEC;
    uint64_t others =
        http_pool_host_bit(http_pool_at(w->pool, 0)) | http_pool_host_bit(http_pool_at(w->pool, 2));
    begin_request(w, http_pool_next(w->pool, others));
    assert_null(http_pool_next(w->pool, others));
    while (w->done < 4)
        event_base_loop(w->base, EVLOOP_ONCE);
}

static void all_are_set_aside_for_longer_and_longer(void **state)
{
    struct world *w = *state;
    usec_t longest = 0, end = now + USEC_PER_SEC;
    for (size_t i = 0; i < SERVERS; i++)
        w->servers[i].answer = i ? 503 : 0;
    while (now < end) {
        if (ask(w))
            continue;
        usec_t wait = http_pool_wait(w->pool);
        longest = wait > longest ? wait : longest;
        now += wait;
    }
    assert_in_range(longest, 20 * USEC_PER_MSEC, 160 * USEC_PER_MSEC);
    for (size_t i = 0; i < SERVERS; i++)
        assert_in_range(
            number_of(w, i, "requests_total"), 9, 15); /* waits of 10 to 20 ms that double up to 80 to 160 */
}

/* The part of `seconds` that passed in requests to the third server, which fail after `takes`. */
static usec_t lost_to_the_third(struct world *w, usec_t takes, usec_t seconds)
{
    unsigned asked = w->servers[2].asked;
    usec_t end = now + seconds * USEC_PER_SEC;
    w->servers[2].answer = 503;
    w->servers[2].takes = takes;
    while (now < end) {
        assert_true(ask(w));
        now += 100 * USEC_PER_MSEC;
    }
    return (w->servers[2].asked - asked) * takes;
}

static void one_that_takes_long_to_fail_costs_the_others_little(void **state)
{
    struct world *w = *state;
    assert_in_range(lost_to_the_third(w, 2 * USEC_PER_SEC, 420), 18 * USEC_PER_SEC, 22 * USEC_PER_SEC);
    assert_in_range(lost_to_the_third(w, 10 * USEC_PER_SEC, 700), 90 * USEC_PER_SEC, 110 * USEC_PER_SEC);
    w->servers[2].answer = 200;
    w->servers[2].takes = 0;
    unsigned asked = w->servers[2].asked;
    for (usec_t back = now; w->servers[2].asked == asked; now += 100 * USEC_PER_MSEC) {
        assert_true(ask(w));
        assert_in_range(now - back, 0, HTTP_POOL_COOLDOWN_MAX);
    }
}

static void it_is_not_spared_when_no_other_is_up(void **state)
{
    struct world *w = *state;
    lost_to_the_third(w, 10 * USEC_PER_SEC, 12);
    w->servers[0].answer = w->servers[1].answer = 503;
    w->servers[2].answer = 200;
    w->servers[2].takes = 0;
    unsigned asked = w->servers[2].asked;
    usec_t fell = now;
    for (int i = 0; i < 2; i++)
        assert_true(ask(w));
    assert_false(ask(w));
    while (w->servers[2].asked == asked) {
        if (!ask(w))
            now += http_pool_wait(w->pool);
        assert_in_range(now - fell, 0, 160 * USEC_PER_MSEC);
    }
    assert_in_range(now - fell, 10 * USEC_PER_MSEC, 160 * USEC_PER_MSEC);
}

static void when_all_fail_slowly_none_is_spared(void **state)
{
    struct world *w = *state;
    lost_to_the_third(w, 10 * USEC_PER_SEC, 12);
    for (size_t i = 0; i < 2; i++) {
        w->servers[i].answer = 503;
        w->servers[i].takes = 10 * USEC_PER_SEC;
    }
    for (int i = 0; i < 20; i++) {
        if (ask(w))
            continue;
        assert_in_range(http_pool_wait(w->pool), 1, 160 * USEC_PER_MSEC);
        now += http_pool_wait(w->pool);
    }
}

static void fall_silent(struct world *w)
{
    w->servers[2].answer = 0;
    w->servers[2].silence = 10 * USEC_PER_SEC;
}

static void one_that_never_answers_is_spared(void **state)
{
    struct world *w = *state;
    fall_silent(w);
    for (usec_t end = now + 700 * USEC_PER_SEC; now < end; now += 100 * USEC_PER_MSEC)
        assert_true(ask(w));
    assert_in_range(w->timeouts, 9, 11); /* once in 70 s */
    assert_true(number_of_third(w, "up") == 0);
}

static void one_that_stalled_once_has_its_share_after_its_cooldown(void **state)
{
    struct world *w = *state;
    fall_silent(w);
    while (w->timeouts == 0)
        assert_true(ask(w));
    w->servers[2].answer = 200;
    for (usec_t back = now; number_of_third(w, "up") == 0; now += 10 * USEC_PER_MSEC) {
        assert_true(ask(w));
        assert_in_range(now - back, 0, HTTP_POOL_COOLDOWN_MAX);
    }
    unsigned before = w->servers[2].asked;
    for (int i = 0; i < 9; i++)
        ask(w);
    assert_int_equal(w->servers[2].asked, before + 3);
}

/* The host is set aside for the first and shortest wait. */
static void requests_that_fail_together_are_one_fault(void **state)
{
    struct world *w = *state;
    http_pool_free(&w->pool);
    open_pool(w, 4);
    w->servers[2].answer = 503;
    for (int i = 0; i < 12; i++)
        begin_request(w, http_pool_next(w->pool, 0));
    while (w->done < 12)
        event_base_loop(w->base, EVLOOP_ONCE);
    assert_true(number_of_third(w, "faults_total") == 4);
    assert_in_range(number_of_third(w, "set_aside_seconds") * 1000, 10, 20);
}

static void other_refusals_are_answers(void **state)
{
    struct world *w = *state;
    for (size_t i = 0; i < SERVERS; i++)
        w->servers[i].answer = 404;
    for (int i = 0; i < 6; i++)
        assert_true(ask(w));
    assert_int_equal(w->status, 404);
    assert_false(http_pool_is_fault(HTTP_CLIENT_OK, 404));
    assert_true(http_pool_is_fault(HTTP_CLIENT_OK, 429));
    assert_true(http_pool_is_fault(HTTP_CLIENT_TIMEOUT, 0));
}

static void retry_after_is_heeded_up_to_the_bound(void **state)
{
    struct world *w = *state;
    for (size_t i = 0; i < SERVERS; i++) {
        w->servers[i].answer = 429;
        w->servers[i].retry_after = "3000";
    }
    for (size_t i = 0; i < SERVERS; i++)
        assert_true(ask(w));
    assert_false(ask(w));
    assert_int_equal(http_pool_wait(w->pool), 160 * USEC_PER_MSEC);
}

static void what_is_no_url_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "", " , ", "http://", "https://x/", "http://a:99999/", "http://a/ok http://b:x/"};
    char error[200];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        error[0] = '\0';
        assert_null(http_pool_new(&(struct http_pool_config){.urls = bad[i]}, error, sizeof error));
        assert_true(error[0] != '\0');
    }
    struct http_pool *p = http_pool_new(
        &(struct http_pool_config){.urls = "http://a?x=1 unix:/tmp/s http://b"}, error, sizeof error);
    assert_target(http_pool_at(p, 0), "/?x=1");
    assert_target(http_pool_at(p, 1), "/");
    assert_int_equal(http_pool_size(p), 3);
    http_pool_free(&p);
}

/* The address of a single server may lack its scheme, and must not be a list. */
static void one_is_named_as_a_client_s_server_is(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "http://a b", "http://a,b", "http://a/x"};
    char error[200];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_null(http_pool_new(&(struct http_pool_config){.url = bad[i]}, error, sizeof error));
    struct http_pool *p = http_pool_new(&(struct http_pool_config){.url = "a:80"}, error, sizeof error);
    assert_ptr_equal(http_pool_single(p), http_pool_next(p, 0));
    assert_int_equal(http_pool_size(p), 1);
    http_pool_free(&p);
}

/* Makes one request to the single server, and waits for its end. */
static void ask_only(struct world *w)
{
    unsigned before = w->done;
    http_pool_request(http_pool_single(w->pool),
        &(struct http_call_spec){.method = "GET", .target = "/in", .arg = w, .on_done = on_done});
    while (w->done == before)
        event_base_loop(w->base, EVLOOP_ONCE);
}

static void the_only_one_has_its_last_word_though_it_is_set_aside(void **state)
{
    struct world *w = *state;
    struct http_pool_config config = {.base = w->base, .url = w->servers[0].url, .max_connections = 1};
    char error[200];
    http_pool_free(&w->pool);
    w->servers[0].answer = 503;
    *strrchr(w->servers[0].url, '/') = '\0';
    w->pool = http_pool_new(&config, error, sizeof error);
    ask_only(w);
    assert_null(http_pool_next(w->pool, 0));
    assert_in_range(http_pool_wait(w->pool), 25 * USEC_PER_MSEC, 50 * USEC_PER_MSEC);
    w->servers[0].answer = 200;
    ask_only(w);
    assert_int_equal(w->status, 200);
    assert_int_equal(http_pool_wait(w->pool), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(turns_are_taken, set_up, tear_down),
        cmocka_unit_test_setup_teardown(those_that_refused_are_left_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_that_fails_is_set_aside_and_comes_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_that_is_set_aside_gets_one_request_at_a_time, set_up, tear_down),
        cmocka_unit_test_setup_teardown(all_are_set_aside_for_longer_and_longer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            one_that_takes_long_to_fail_costs_the_others_little, set_up, tear_down),
        cmocka_unit_test_setup_teardown(it_is_not_spared_when_no_other_is_up, set_up, tear_down),
        cmocka_unit_test_setup_teardown(when_all_fail_slowly_none_is_spared, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_that_never_answers_is_spared, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            one_that_stalled_once_has_its_share_after_its_cooldown, set_up, tear_down),
        cmocka_unit_test_setup_teardown(requests_that_fail_together_are_one_fault, set_up, tear_down),
        cmocka_unit_test_setup_teardown(other_refusals_are_answers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(retry_after_is_heeded_up_to_the_bound, set_up, tear_down),
        cmocka_unit_test(what_is_no_url_is_refused),
        cmocka_unit_test(one_is_named_as_a_client_s_server_is),
        cmocka_unit_test_setup_teardown(
            the_only_one_has_its_last_word_though_it_is_set_aside, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
