/* publisher against a server in the same loop that answers what the test says. */
#include "support/cm.h"
#include "support/http_world.h"
#include "http/client/http_pool.h"
#include "stream/publisher.h"
#include <event2/event.h>
#include <stdio.h>
#include <string.h>

struct world {
    struct http_world http;
    struct http_pool *pool;
    struct publisher *publisher;
    /* of the server */
    int status; /* 0: it never answers */
    const char *body;
    const char *time, *header, *value; /* NULL: none */
    char target[400], received[100];
    unsigned asked;
    /* of the publisher */
    struct publisher_outcome outcome;
    unsigned outcomes;
};

static void answer(struct http_request *req, void *ctx)
{
    struct world *w = ctx;
    const struct url_query *q = http_query(req);
    int n = snprintf(w->target, sizeof w->target, "%d %s", (int)http_method(req), http_path(req));
    for (size_t i = 0; i < q->n; i++)
        n += snprintf(w->target + n, sizeof w->target - (size_t)n, " %.*s=%.*s", (int)q->params[i].name.len,
            q->params[i].name.ptr, (int)q->params[i].value.len, q->params[i].value.ptr);
    snprintf(w->received, sizeof w->received, "%.*s", (int)http_body(req).len,
        http_body(req).len > 0 ? http_body(req).ptr : "");
    w->asked++;
    if (w->time != NULL)
        http_add_header_text(req, "X-Millrace-Time", w->time);
    if (w->header != NULL)
        http_add_header_text(req, w->header, w->value);
    if (w->status > 0)
        http_reply(req, w->status, "application/json", bytes_str(w->body));
}

static const struct http_route routes[] = {{.path = "/pub", .methods = HTTP_POST_, .handler = answer},
    {.path = "/mput", .methods = HTTP_POST_, .handler = answer},
    {.path = "/producer", .methods = HTTP_GET_, .handler = answer}, {0}};

static void on_outcome(const struct publisher_outcome *outcome, void *arg)
{
    struct world *w = arg;
    w->outcome = *outcome;
    w->outcomes++;
}

static void publish_to(struct world *w, const char *stream, const char *queue)
{
    publisher_free(&w->publisher);
    w->publisher = publisher_new(&(struct publisher_config){
        .pool = w->pool, .stream = stream, .queue = queue, .on_outcome = on_outcome, .arg = w});
}

static int set_up(void **state)
{
    static struct world w;
    char url[64], error[200];
    struct http_server_config config = {.ctx = &w, .routes = routes, .max_body = 1000, .max_connections = 10};
    w = (struct world){.body = ""};
    http_world_open(&w.http, &config);
    snprintf(url, sizeof url, "127.0.0.1:%d", w.http.name.port);
    w.pool = http_pool_new(
        &(struct http_pool_config){
            .base = w.http.base, .url = url, .max_connections = 1, .timeout = PATIENCE},
        error, sizeof error);
    assert_non_null(w.pool);
    publish_to(&w, "s", NULL);
    *state = &w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    publisher_free(&w->publisher);
    http_pool_free(&w->pool);
    http_world_close(&w->http);
    return 0;
}

/* Lets the server answer the next request, which may be under way. */
static void let_answer(struct world *w, int status, const char *body)
{
    w->status = status;
    w->body = body;
}

static const struct publisher_outcome *await(struct world *w)
{
    unsigned before = w->outcomes;
    usec_t end = 0;
    while (w->outcomes == before && is_early(&end))
        event_base_loop(w->http.base, EVLOOP_ONCE);
    assert_int_equal(w->outcomes, before + 1);
    return &w->outcome;
}

static void await_request(struct world *w)
{
    unsigned before = w->asked;
    usec_t end = 0;
    while (w->asked == before && is_early(&end))
        event_base_loop(w->http.base, EVLOOP_ONCE);
    assert_int_equal(w->asked, before + 1);
}

static void ask(struct world *w)
{
    publisher_ask(w->publisher, "p");
}

static void store(struct world *w)
{
    publisher_send(w->publisher,
        &(struct publisher_run){.producer = "p", .mark = 3, .next = 7, .lines = BYTES_LITERAL("a\nb\n")});
}

static void state_only(struct world *w)
{
    publisher_send(
        w->publisher, &(struct publisher_run){.producer = "p", .mark = 7, .next = 7, .states = true});
}

static void (*const acts[])(struct world *w) = {ask, store, state_only};

#define ASKED PUBLISHER_ASKED
#define STORED PUBLISHER_STORED
#define STATED PUBLISHER_STATED
#define CONFLICT PUBLISHER_CONFLICT
#define REFUSED PUBLISHER_REFUSED
#define FAILED PUBLISHER_FAILED

static void test_each_reply_has_its_outcome(void **state)
{
    static const struct {
        int status;
        const char *body, *why;
        enum publisher_result results[3]; /* of acts */
    } replies[] = {
        {200, "{\"mark\":\"7\",\"known\":true,\"duplicate\":false}", "200", {ASKED, STORED, STATED}},
        {200, "OK", "200", {FAILED, STORED, STATED}},
        {200, "{\"mark\":\"x\"}", "200", {FAILED, STORED, STATED}},
        {404, "{\"code\":\"unknown-stream\"}", "404 unknown-stream", {ASKED, FAILED, FAILED}},
        {404, "{\"code\":\"not-found\",\"detail\":\"no\"}", "404 not-found: no", {FAILED, FAILED, FAILED}},
        {409, "{\"code\":\"mark-conflict\",\"mark\":\"5\"}", "409 mark-conflict",
            {FAILED, CONFLICT, CONFLICT}},
        {409, "{\"code\":\"too-many-streams\"}", "409 too-many-streams", {FAILED, FAILED, FAILED}},
        {400, "{\"code\":\"empty-line\"}", "400 empty-line", {FAILED, REFUSED, FAILED}},
        {413, "{\"code\":\"line-too-large\",\"detail\":\"line 1\"}", "413 line-too-large: line 1",
            {FAILED, REFUSED, FAILED}},
        {413, "{\"code\":\"too-large\"}", "413 too-large", {FAILED, REFUSED, FAILED}},
        {413, "<html>", "413", {FAILED, FAILED, FAILED}},
        {400, "{\"code\":\"bad-parameter\"}", "400 bad-parameter", {FAILED, FAILED, FAILED}},
        {400, "{\"code\":\"too-large\"}", "400 too-large", {FAILED, FAILED, FAILED}},
        {401, "{\"code\":\"unauthorized\"}", "401 unauthorized", {FAILED, FAILED, FAILED}},
        {503, "{\"code\":\"overloaded\"}", "503 overloaded", {FAILED, FAILED, FAILED}},
    };
    struct world *w = *state;
    for (size_t i = 0; i < sizeof replies / sizeof *replies; i++)
        for (size_t act = 0; act < 3; act++) {
            let_answer(w, replies[i].status, replies[i].body);
            acts[act](w);
            const struct publisher_outcome *o = await(w);
            print_message("%d %s, act %zu\n", replies[i].status, replies[i].body, act);
            assert_int_equal(o->result, replies[i].results[act]);
            assert_string_equal(o->why, replies[i].why);
            assert_int_equal(o->status, replies[i].status);
            assert_int_equal(o->body.len, strlen(replies[i].body));
        }
}

static void test_a_mark_has_an_opening(void **state)
{
    struct world *w = *state;
    let_answer(w, 200,
        "{\"id\":\"0123456789abcdef\",\"mark\":\"18446744073709551615\",\"opening\":\"a-1\",\"known\":true}");
    ask(w);
    const struct publisher_outcome *o = await(w);
    assert_true(o->mark == UINT64_MAX && o->known);
    assert_true(bytes_equal_str(o->opening, "a-1"));
    assert_string_equal(publisher_destination(w->publisher)->id, "0123456789abcdef");
    assert_string_equal(w->target, "1 /producer stream=s producer=p");
    let_answer(w, 200, "{\"mark\":\"0\",\"opening\":\"a b\",\"known\":false}");
    ask(w);
    o = await(w);
    assert_true(o->mark == 0 && !o->known);
    assert_int_equal(o->opening.len, 0);
    assert_string_equal(publisher_destination(w->publisher)->id, "0123456789abcdef");
    let_answer(w, 409, "{\"code\":\"mark-conflict\",\"mark\":\"5\"}");
    store(w);
    assert_true(await(w)->mark == 5);
}

static void test_requests(void **state)
{
    struct world *w = *state;
    let_answer(w, 200, "{}");
    struct publisher_run run = {.producer = "p",
        .mark = 3,
        .next = 7,
        .lines = BYTES_LITERAL("a\nb\n"),
        .opening = "o",
        .states = true,
        .until = 5 * USEC_PER_SEC + 42,
        .name = "n"};
    publisher_send(w->publisher, &run);
    await(w);
    assert_string_equal(w->received, "a\nb\n");
    assert_string_equal(
        w->target, "2 /pub stream=s producer=p mark=3 next=7 opening=o until=5.000042 era= name=n");
    run = (struct publisher_run){.producer = "p", .mark = 7, .states = true};
    publisher_send(w->publisher, &run);
    assert_int_equal(await(w)->result, PUBLISHER_STATED);
    assert_string_equal(w->received, "");
    assert_string_equal(w->target, "2 /pub stream=s producer=p mark=7 until=0.000000 era=");
    run = (struct publisher_run){.producer = "p", .mark = 7, .next = 7, .opening = "o"};
    publisher_send(w->publisher, &run);
    assert_int_equal(await(w)->result, PUBLISHER_STORED);
    assert_string_equal(w->target, "2 /pub stream=s producer=p mark=7 next=7 opening=o");
    publish_to(w, NULL, "q&r");
    store(w);
    await(w);
    assert_string_equal(w->target, "2 /mput separator=\n queue=q&r producer=p mark=3 next=7");
    publisher_send(w->publisher, &(struct publisher_run){.next = 4, .lines = BYTES_LITERAL("a\nb\n")});
    assert_int_equal(await(w)->result, STORED);
    assert_string_equal(w->target, "2 /mput separator=\n queue=q&r");
    ask(w);
    await(w);
    assert_string_equal(w->target, "1 /producer queue=q&r producer=p");
}

static void test_duplicates(void **state)
{
    struct world *w = *state;
    for (int i = 0; i < 3; i++) { /* a reply that does not say so may be of a duplicate */
        static const char *const bodies[] = {"{\"duplicate\":false}", "{\"duplicate\":true}", "OK"};
        let_answer(w, 200, bodies[i]);
        store(w);
        assert_int_equal(await(w)->result, STORED);
        assert_int_equal(w->outcome.is_duplicate, i > 0);
    }
    state_only(w);
    assert_false(await(w)->is_duplicate);
    publish_to(w, NULL, "q");
    let_answer(w, 200, "");
    store(w);
    assert_false(await(w)->is_duplicate);
    w->header = "X-Millrace-Duplicate";
    w->value = "1";
    store(w);
    assert_true(await(w)->is_duplicate);
}

static void test_times_have_eras(void **state)
{
    struct world *w = *state;
    const struct publisher_destination *d = publisher_destination(w->publisher);
    let_answer(w, 200, "{\"mark\":\"7\"}");
    w->time = "12.5";
    w->header = "X-Millrace-Era";
    w->value = "one";
    ask(w);
    assert_true(await(w)->is_new_era);
    assert_true(d->time == 12 * USEC_PER_SEC + USEC_PER_SEC / 2);
    assert_string_equal(d->era, "one");
    state_only(w);
    assert_false(await(w)->is_new_era);
    assert_string_equal(w->target, "2 /pub stream=s producer=p mark=7 until=0.000000 era=one");
    w->value = "two";
    state_only(w);
    assert_true(await(w)->is_new_era);
    w->value = "no name"; /* such a reply names no time */
    state_only(w);
    assert_false(await(w)->is_new_era);
    assert_string_equal(d->era, "two");
    w->header = "X-Millrace-Stream-Place";
    w->value = "life/s";
    let_answer(w, 409, "{}");
    state_only(w);
    assert_false(await(w)->is_new_era);
    assert_string_equal(d->place.text, "life/s");
    assert_true(d->time > 0);
    w->header = NULL;
    state_only(w);
    await(w);
    assert_string_equal(d->place.text, "");
}

/* What a failure says about the destination and about the lines. */
static void test_failures(void **state)
{
    static const struct {
        int status;
        const char *body;
        bool waits, is_temporary, may_be_stored;
    } replies[] = {
        {401, "", false, false, false},
        {413, "", false, false, false},
        {429, "", true, true, false},
        {500, "", true, false, true},
        {502, "{\"code\":\"x\"}", true, false, true},
        {503, "{\"code\":\"overloaded\"}", true, true, false},
        {503, "{\"code\":\"storage-failed\"}", true, true, true},
    };
    struct world *w = *state;
    for (size_t i = 0; i < sizeof replies / sizeof *replies; i++) {
        let_answer(w, 200, "{}"); /* the destination is up */
        store(w);
        await(w);
        let_answer(w, replies[i].status, replies[i].body);
        store(w);
        const struct publisher_outcome *o = await(w);
        print_message("%d %s\n", replies[i].status, replies[i].body);
        assert_int_equal(o->result, FAILED);
        assert_int_equal(o->wait > 0, replies[i].waits);
        assert_int_equal(o->is_temporary, replies[i].is_temporary);
        assert_int_equal(o->may_be_stored, replies[i].may_be_stored);
    }
}

static void test_no_connection(void **state)
{
    struct world *w = *state;
    http_server_free(&w->http.http);
    store(w);
    const struct publisher_outcome *o = await(w);
    assert_int_equal(o->result, FAILED);
    assert_int_equal(o->status, 0);
    assert_string_equal(o->why, "no connection");
    assert_true(o->wait > 0 && o->is_temporary && !o->may_be_stored);
}

static void test_a_request_is_cancelled(void **state)
{
    struct world *w = *state;
    publisher_cancel(w->publisher); /* nothing is under way */
    assert_int_equal(w->outcomes, 0);
    store(w);
    await_request(w);
    publisher_cancel(w->publisher);
    assert_int_equal(w->outcomes, 1);
    assert_int_equal(w->outcome.result, FAILED);
    assert_true(w->outcome.is_temporary && w->outcome.may_be_stored);
    let_answer(w, 200, "{}");
    store(w);
    assert_int_equal(await(w)->result, STORED);
}

static void test_freed_while_a_request_is_under_way(void **state)
{
    struct world *w = *state;
    store(w);
    await_request(w);
    publisher_free(&w->publisher);
    assert_null(w->publisher);
    assert_int_equal(w->outcomes, 0);
    publish_to(w, "s", NULL); /* the pool's only connection is free again */
    let_answer(w, 200, "{}");
    store(w);
    assert_int_equal(await(w)->result, STORED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_each_reply_has_its_outcome, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_mark_has_an_opening, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_requests, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_duplicates, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_times_have_eras, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_failures, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_connection, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_request_is_cancelled, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_freed_while_a_request_is_under_way, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
