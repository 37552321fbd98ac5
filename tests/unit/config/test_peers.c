#include "support/cm.h"

#include "config/peers.h"

#include <stdlib.h>

static const struct option_row rows[] = {
    {.name = "pubsub_url", .type = OPTION_STRING, .help = "where pubsub is"},
    {.name = NULL},
};
static const struct options_spec spec = {.program = "aggregator", .summary = "test", .rows = {rows, NULL}};

static struct options *parse(const char *argument)
{
    struct options *o;
    char *argv[] = {(char *)(uintptr_t) "aggregator", (char *)(uintptr_t)argument, NULL};
    assert_int_equal(options_parse(&spec, argument ? 2 : 1, argv, &o), OPTIONS_OK);
    return o;
}

static void check_url(const char *argument, const char *want)
{
    struct options *o = parse(argument);
    assert_string_equal(peer_url(o, "pubsub"), want);
    options_free(&o);
}

static void its_own_setting_goes_before(void **state)
{
    (void)state;
    check_url(NULL, "http://127.0.0.1:8081");
    check_url("--pubsub-url=", "http://127.0.0.1:8081");
    check_url("--pubsub-url=http://there:1", "http://there:1");
}

static void check_configured(const char *text, const char *want)
{
    struct config *config;
    struct error error;
    struct buf url = {0};
    assert_int_equal(config_parse("f", bytes_str(text), &config, &error), 0);
    peer_configured_url(peer_named("pubsub"), config, &url);
    buf_append_char(&url, '\0');
    assert_string_equal(url.ptr, want);
    buf_free(&url);
    config_free(&config);
}

static void where_its_section_says(void **state)
{
    (void)state;
    check_configured("[simplequeue]\nport = 1\n", "http://127.0.0.1:8081");
    check_configured("[pubsub]\nport = 81\n", "http://127.0.0.1:81");
    check_configured("[pubsub]\naddress = stream.example\n", "http://stream.example:8081");
    check_configured("[pubsub]\naddress = unix:/run/pubsub\nport = 81\n", "unix:/run/pubsub");
    check_configured("[pubsub]\naddress = 0.0.0.0\n", "http://127.0.0.1:8081");
    check_configured("[pubsub]\naddress = ::\n", "http://127.0.0.1:8081");
    check_configured("[pubsub]\naddress = fd00::1\nport = 2\n", "http://[fd00::1]:2");
}

static void what_is_no_address(void **state)
{
    struct error error;
    struct options *o = parse("--pubsub-url=ftp://x y");
    (void)state;
    assert_int_equal(peer_check(o, "pubsub", &error), -1);
    assert_string_equal(
        error.text, "--pubsub-url: \"ftp://x y\" is not an address (http://HOST:PORT or unix:PATH)");
    options_free(&o);
    o = parse(NULL);
    assert_int_equal(peer_check(o, "pubsub", &error), 0);
    options_free(&o);
}

static void every_one_has_its_own_name_and_port(void **state)
{
    (void)state;
    assert_null(peer_named("pubsubs"));
    for (size_t i = 0; i < PEERS; i++)
        for (size_t j = 0; j < i; j++) {
            assert_string_not_equal(peers[i].name, peers[j].name);
            assert_int_not_equal(peers[i].port, peers[j].port);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_own_setting_goes_before),
        cmocka_unit_test(where_its_section_says),
        cmocka_unit_test(what_is_no_address),
        cmocka_unit_test(every_one_has_its_own_name_and_port),
    };
    unsetenv("MILLRACE_AGGREGATOR_PUBSUB_URL");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
