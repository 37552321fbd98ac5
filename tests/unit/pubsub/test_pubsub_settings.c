#include "support/cm.h"

#include "pubsub/stream/pubsub_settings.h"

static const struct option_row daemons_rows[] = {
    {.name = "auth_token_file", .type = OPTION_STRING, .help = "a row that every daemon has"},
    {.name = NULL},
};
static const struct options_spec spec = {
    .program = "pubsub", .summary = "test", .rows = {daemons_rows, settings_rows, NULL}};

/* `more` is NULL, or one argument beside a data directory. */
static struct options *parse(const char *first, const char *more)
{
    struct options *o;
    char *argv[] = {(char *)(uintptr_t) "pubsub", (char *)(uintptr_t)first, (char *)(uintptr_t)more, NULL};
    assert_int_equal(options_parse(&spec, more ? 3 : first ? 2 : 1, argv, &o), OPTIONS_OK);
    return o;
}

static void good(const char *more)
{
    struct error error = {0};
    struct options *o = parse("--data-dir=d", more);
    if (settings_check(o, &error) != 0)
        fail_msg("%s: %s", more, error.text);
    options_free(&o);
}

static void bad(const char *first, const char *more, const char *want)
{
    struct error error = {0};
    struct options *o = parse(first, more);
    assert_int_equal(settings_check(o, &error), -1);
    if (!strstr(error.text, want))
        fail_msg("%s lacks %s", error.text, want);
    options_free(&o);
}

static void a_place_is_needed(void **state)
{
    (void)state;
    good(NULL);
    bad("--data-dir=", NULL, "data_dir is not set");
}

static void streams_are_names(void **state)
{
    (void)state;
    good("--streams=");
    good("--streams= clicks,  raw\tx.y-z ,");
    bad("--data-dir=d", "--streams=clicks,a/b", "--streams: \"a/b\" is not a stream name");
    bad("--data-dir=d", "--streams=..", "\"..\" is not a stream name");
}

static void the_stream_of_metrics_keeps_a_day(void **state)
{
    static const struct {
        const char *setting;
        usec_t other, metrics;
    } cases[] = {{"--heartbeat=15s", 0, 86400 * USEC_PER_SEC},
        {"--retain-age=2d", 172800 * USEC_PER_SEC, 172800 * USEC_PER_SEC}, {"--retain-bytes=1G", 0, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct options *o = parse("--metrics-stream=m", cases[i].setting);
        assert_int_equal(settings_limits(o, "other").retain_age, cases[i].other);
        assert_int_equal(settings_limits(o, "m").retain_age, cases[i].metrics);
        options_free(&o);
    }
}

static void the_tap_listens_somewhere(void **state)
{
    (void)state;
    good("--nng-publish=ipc:///run/tap,tcp://127.0.0.1:7000");
    bad("--data-dir=d", "--nng-publish=http://x", "tcp://ADDRESS:PORT or ipc://PATH");
}

static void bounds_fit_together(void **state)
{
    (void)state;
    good("--disk-limit=192M");
    bad("--data-dir=d", "--disk-limit=191M", "three times segment_bytes");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_place_is_needed),
        cmocka_unit_test(streams_are_names),
        cmocka_unit_test(the_stream_of_metrics_keeps_a_day),
        cmocka_unit_test(the_tap_listens_somewhere),
        cmocka_unit_test(bounds_fit_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
