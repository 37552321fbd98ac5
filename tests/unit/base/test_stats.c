#include "support/cm.h"
#include "base/stats.h"
#include <math.h>
#include <stdlib.h>

static double forty_two(void *ctx)
{
    (void)ctx;
    return 42;
}

static double not_a_number(void *ctx)
{
    (void)ctx;
    return NAN;
}

static char *printed(struct stats *s, void (*print)(struct stats *, struct buf *))
{
    struct buf out = {0};
    print(s, &out);
    buf_append_char(&out, '\0');
    return out.ptr;
}

static void must_hold(char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("no %s in\n%s", part, text);
}

static void test_metrics(void **state)
{
    struct stats *s = stats_new("pubsub");
    (void)state;
    stats_add(stats_counter(s, "lines_total", "stream=\"a\"", "Lines."), 3);
    stats_gauge(s, "depth", NULL, "Depth.", forty_two, s);
    stats_gauge(s, "reads_total", "of=\"a\"", "Reads.", forty_two, s);
    stats_add(stats_counter(s, "lines_total", "stream=\"b\"", "Lines."), 1);
    assert_ptr_equal(stats_counter(s, "lines_total", "stream=\"a\"", "Lines."),
        stats_counter(s, "lines_total", "stream=\"a\"", "Lines."));
    struct stats_histogram *h = stats_histogram(s, "sync_seconds", NULL, "Syncs.");
    char *text = printed(s, stats_print_metrics);
    must_hold(text, "# TYPE millrace_pubsub_sync_seconds histogram\n");
    assert_null(strstr(text, "millrace_pubsub_sync_seconds_"));
    free(text);
    stats_observe(h, 10);
    stats_observe(h, 11);
    stats_observe(h, INT64_C(3600) * 1000000);
    text = printed(s, stats_print_metrics);
    must_hold(text,
        "# HELP millrace_pubsub_lines_total Lines.\n# TYPE millrace_pubsub_lines_total counter\n"
        "millrace_pubsub_lines_total{stream=\"a\"} 3\nmillrace_pubsub_lines_total{stream=\"b\"} 1\n");
    must_hold(text, "millrace_pubsub_depth 42\n");
    must_hold(text, "# TYPE millrace_pubsub_reads_total counter\nmillrace_pubsub_reads_total{of=\"a\"} 42\n");
    must_hold(text, "millrace_pubsub_sync_seconds_bucket{le=\"1e-05\"} 1\n");
    must_hold(text, "millrace_pubsub_sync_seconds_bucket{le=\"2.5e-05\"} 2\n");
    must_hold(text, "millrace_pubsub_sync_seconds_bucket{le=\"60\"} 2\n");
    must_hold(text, "millrace_pubsub_sync_seconds_bucket{le=\"+Inf\"} 3\n");
    must_hold(text, "millrace_pubsub_sync_seconds_sum 3600.000021\n");
    must_hold(text, "millrace_pubsub_sync_seconds_count 3\n");
    free(text);
    stats_remove_gauges(s, s);
    text = printed(s, stats_print_metrics);
    assert_null(strstr(text, "millrace_pubsub_depth"));
    assert_null(strstr(text, "millrace_pubsub_reads"));
    free(text);
    stats_free(&s);
}

static void test_delays(void **state)
{
    struct stats *s = stats_new("aggregator");
    struct stats_histogram *h = stats_delay_histogram(s, "lateness_seconds", NULL, "Late.");
    const usec_t year = INT64_C(365) * 86400 * USEC_PER_SEC;
    (void)state;
    stats_observe(h, -5);
    stats_observe(h, 86400 * USEC_PER_SEC);
    for (int i = 0; i < 1000; i++)
        stats_observe(h, 1000 * year); /* a thousand of these exceed 64 bits in microseconds */
    char *text = printed(s, stats_print_metrics);
    must_hold(text, "millrace_aggregator_lateness_seconds_bucket{le=\"1\"} 1\n");
    must_hold(text, "millrace_aggregator_lateness_seconds_bucket{le=\"86400\"} 2\n");
    must_hold(text, "millrace_aggregator_lateness_seconds_bucket{le=\"31536000\"} 2\n");
    must_hold(text, "millrace_aggregator_lateness_seconds_bucket{le=\"+Inf\"} 1002\n");
    must_hold(text, "millrace_aggregator_lateness_seconds_sum 31536000086400.000000\n");
    assert_int_equal(stats_quantile(h, 0.0005), USEC_PER_SEC);
    free(text);
    stats_free(&s);
}

static void test_json_is_json(void **state)
{
    struct stats *s = stats_new("pubsub");
    (void)state;
    stats_gauge(s, "odd", NULL, "Odd.", not_a_number, NULL);
    stats_counter(s, "lines_total", "stream=\"a\"", "Lines.");
    stats_histogram(s, "sync_seconds", NULL, "Syncs.");
    char *text = printed(s, stats_print_json_members);
    must_hold(text, "\"odd\":0,");
    must_hold(text, "\"lines_total\":{\"stream=\\\"a\\\"\":0}");
    must_hold(text, "\"sync_seconds\":{\"count\":0,\"p50_ms\":0,\"p90_ms\":0,\"p99_ms\":0}");
    free(text);
    stats_free(&s);
}

static void test_quantiles(void **state)
{
    struct stats *s = stats_new("pubsub");
    struct stats_histogram *h = stats_histogram(s, "sync_seconds", NULL, "Syncs.");
    (void)state;
    assert_int_equal(stats_quantile(h, 0.5), 0);
    for (int i = 0; i < 99; i++)
        stats_observe(h, 90);
    stats_observe(h, 4000);
    assert_int_equal(stats_observations(h), 100);
    assert_int_equal(stats_quantile(h, 0.5), 100);
    assert_int_equal(stats_quantile(h, 0.99), 100);
    assert_int_equal(stats_quantile(h, 1.0), 5000);
    stats_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_metrics), cmocka_unit_test(test_delays),
        cmocka_unit_test(test_json_is_json), cmocka_unit_test(test_quantiles)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
