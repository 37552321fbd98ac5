/* metric_query: what a question asks its source for, and the answers of a source that fails, stops or has many series. Answers over
 * real samples: daemons_metricdb, daemons_metricdb_prometheus. */
#include "support/cm.h"

#include "metricdb/metric_query.h"

#include <stdio.h>
#include <stdlib.h>

static const struct metric_label labels_a[] = {
    {BYTES_LITERAL("__name__"), BYTES_LITERAL("m")}, {BYTES_LITERAL("job"), BYTES_LITERAL("a\"")}};
static const struct metric_label labels_b[] = {
    {BYTES_LITERAL("__name__"), BYTES_LITERAL("m")}, {BYTES_LITERAL("job"), BYTES_LITERAL("b")}};
static struct metric_series all[] = {{labels_b, 2, NULL, 0}, {labels_a, 2, NULL, 0}, {labels_a, 1, NULL, 0}};

/* A source whose series are `all`, whatever the matchers. */
static struct {
    struct metric_request last;
    size_t calls, frees;
    enum metric_result result;
} fake;

static void fake_free(struct metric_selection *selection)
{
    (void)selection;
    fake.frees++;
}

static enum metric_result fake_select(void *context, const struct metric_request *request,
    struct metric_selection *selection, struct error *error)
{
    (void)context;
    fake.last = *request;
    fake.calls++;
    if (request->max_series < 3)
        return METRIC_TOO_MANY;
    if (fake.result != METRIC_OK)
        return (enum metric_result)error_set(error, (int)fake.result, "the reason");
    *selection = (struct metric_selection){.series = all, .n_series = 3, .free = fake_free};
    return METRIC_OK;
}

static bool never(void *arg)
{
    (void)arg;
    return false;
}

static bool always(void *arg)
{
    (void)arg;
    return true;
}

static struct metric_limits limits = {
    .max_series = 10, .max_buckets = 100, .max_bytes = 1 << 20, .timeout = 5000};

/* Parses and answers a question, and compares status and body. */
static void check_with(enum metric_query_kind kind, const char *params, const char *label,
    bool (*stop)(void *), int status, const char *body)
{
    const struct metric_source source = {.select = fake_select};
    struct metric_answer answer = {0};
    struct url_query query;
    assert_int_equal(url_query_parse(bytes_str(params), &query), 0);
    fake.calls = fake.frees = 0;
    struct metric_query *q = metric_query_parse(kind, &query, bytes_str(label), 1000, &limits, &answer);
    url_query_free(&query);
    if (q)
        metric_query_answer(q, &source, NULL, stop, NULL, &answer);
    metric_query_free(&q);
    if (answer.status != status || !bytes_equal_str(buf_bytes(&answer.body), body))
        fail_msg("%s: %d %.*s", params, answer.status, (int)answer.body.len, answer.body.ptr);
    buf_free(&answer.body);
}

static void check(enum metric_query_kind kind, const char *params, const char *label, const char *data)
{
    char body[500];
    snprintf(body, sizeof body, "{\"status\":\"success\",\"data\":%s}\n", data);
    check_with(kind, params, label, never, 200, body);
    assert_int_equal(fake.frees, fake.calls);
}

static void check_error(
    enum metric_query_kind kind, const char *params, int status, const char *type, const char *text)
{
    char body[500];
    snprintf(body, sizeof body, "{\"status\":\"error\",\"errorType\":\"%s\",\"error\":\"%s\"}\n", type, text);
    check_with(kind, params, "job", never, status, body);
}

static void collected(void **state)
{
    (void)state;
    check(METRIC_LABELS, "", NULL, "[\"__name__\",\"job\"]");
    assert_true(fake.last.labels_only && fake.last.n_matchers == 0);
    check(METRIC_VALUES, "", "job", "[\"a\\\"\",\"b\"]");
    check(METRIC_VALUES, "", "none", "[]");
    check(METRIC_VALUES, "match[]=m&match[]=m{job=\"b\"}", "__name__", "[\"m\"]");
    assert_int_equal(fake.calls, 2);
    check(METRIC_SERIES, "match[]=m&match[]={job=\"b\"}&start=1&end=2.5", NULL,
        "[{\"__name__\":\"m\"},{\"__name__\":\"m\",\"job\":\"a\\\"\"},{\"__name__\":\"m\",\"job\":\"b\"}]");
    assert_true(fake.last.from == 999 && fake.last.to == 2500 && fake.last.n_matchers == 1);
    assert_int_equal(fake.last.max_series, limits.max_series - 3);
}

static void failures(void **state)
{
    (void)state;
    limits.max_series = 8;
    check_error(METRIC_LABELS, "match[]=a&match[]=b&match[]=c", 422, "execution",
        "the selectors match more than 8 series");
    assert_int_equal(fake.frees, 2);
    limits.max_series = 6;
    check_error(METRIC_SERIES, "match[]=a&match[]=b&match[]=c", 422, "execution",
        "the selectors match more than 6 series");
    limits.max_series = 10;
    fake.result = METRIC_FAILED;
    check_error(METRIC_VALUES, "", 500, "internal", "the reason");
    check_error(METRIC_INSTANT, "query=m", 500, "internal", "the reason");
    fake.result = METRIC_BAD_PATTERN;
    check_error(METRIC_VALUES, "match[]=m", 400, "bad_data", "invalid parameter \\\"match[]\\\": the reason");
    fake.result = METRIC_STOPPED;
    check_error(METRIC_VALUES, "", 503, "timeout", "query timed out in expression evaluation");
    check_error(METRIC_INSTANT, "query=m", 503, "timeout", "query timed out in expression evaluation");
    fake.result = METRIC_OK;
    assert_true(fake.last.stop == never);
    limits.max_bytes = 100;
    check_error(METRIC_SERIES, "match[]=m", 422, "execution",
        "the answer needs more than 100 bytes: select fewer series or steps");
    check_error(METRIC_RANGE, "query=vector(1)&start=0&end=5&step=1", 422, "execution",
        "the query needs more than 100 bytes of memory");
    limits.max_bytes = 350000; /* 240,000 for numbers and points; the answer has 420,000 bytes */
    check_error(METRIC_RANGE, "query=-1.2345678901234567e-6&start=0.001&end=10000&step=1.001", 422,
        "execution", "the answer needs more than 350000 bytes: select fewer series or steps");
    limits.max_bytes = 1 << 20;
    check_with(METRIC_LABELS, "", NULL, always, 503,
        "{\"status\":\"error\",\"errorType\":\"timeout\",\"error\":\"query timed out in expression "
        "evaluation\"}\n");
    assert_int_equal(fake.calls, 0);
    check_with(METRIC_INSTANT, "query=m%2Bm", NULL, always, 503,
        "{\"status\":\"error\",\"errorType\":\"timeout\",\"error\":\"query timed out in expression "
        "evaluation\"}\n");
}

static void parameters(void **state)
{
    (void)state;
    char shown[101];
    memset(shown, 'x', 100);
    shown[100] = '\0';
    char *params = mem_printf("query=1&time=%sy", shown),
         *text = mem_printf(
             "invalid parameter \\\"time\\\": cannot parse \\\"%s\\\" to a valid timestamp", shown);
    check_error(METRIC_INSTANT, params, 400, "bad_data", text);
    free(params);
    free(text);
    check_error(METRIC_RANGE, "query=1&start=0&end=11001&step=1", 400, "bad_data",
        "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution "
        "(?step=XX)");
    check_error(METRIC_RANGE, "query=1&start=-1e300&end=1&step=1", 400, "bad_data",
        "invalid parameter \\\"start\\\": cannot parse \\\"-1e300\\\" to a valid timestamp");
    check(METRIC_INSTANT, "query=1&time=", NULL, "{\"resultType\":\"scalar\",\"result\":[1,\"1\"]}");
    check(METRIC_RANGE, "query=1&start=0.5&end=2&step=1&timeout=1h", NULL,
        "{\"resultType\":\"matrix\",\"result\":[{\"metric\":{},\"values\":[[0.500,\"1\"],[1.500,\"1\"]]}]}");
}

static void timeouts(void **state)
{
    (void)state;
    static const struct {
        const char *params;
        int64_t ms;
    } cases[] = {{"query=1", 5000}, {"query=1&timeout=2", 2000}, {"query=1&timeout=250ms", 250},
        {"query=1&timeout=1d", 5000}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct metric_answer answer = {0};
        struct url_query query;
        assert_int_equal(url_query_parse(bytes_str(cases[i].params), &query), 0);
        struct metric_query *q = metric_query_parse(METRIC_INSTANT, &query, BYTES_NONE, 0, &limits, &answer);
        assert_non_null(q);
        assert_int_equal(metric_query_timeout(q), cases[i].ms);
        metric_query_free(&q);
        url_query_free(&query);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collected),
        cmocka_unit_test(failures),
        cmocka_unit_test(parameters),
        cmocka_unit_test(timeouts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
