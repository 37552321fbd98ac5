#include "support/cm.h"

#include "simplequeue/server/queue_settings.h"

static const struct option_row daemons_rows[] = {
    {.name = "auth_token_file", .type = OPTION_STRING, .help = "a row that every daemon has"},
    {.name = NULL},
};
static const struct options_spec spec = {
    .program = "simplequeue", .summary = "test", .rows = {daemons_rows, settings_rows, NULL}};

static struct options *parse(const char *first, const char *second)
{
    struct options *o;
    char *argv[] = {
        (char *)(uintptr_t) "simplequeue", (char *)(uintptr_t)first, (char *)(uintptr_t)second, NULL};
    assert_int_equal(options_parse(&spec, second ? 3 : first ? 2 : 1, argv, &o), OPTIONS_OK);
    return o;
}

/* `log` NULL: full queues refuse. */
static void overflows_to(const char *first, const char *second, const char *log)
{
    struct error error = {0};
    struct options *o = parse(first, second);
    assert_int_equal(settings_check(o, &error), 0);
    if (log)
        assert_string_equal(settings_overflow_log(o), log);
    else
        assert_null(settings_overflow_log(o));
    options_free(&o);
}

static void refuses(const char *first, const char *second, const char *want)
{
    struct error error = {0};
    struct options *o = parse(first, second);
    assert_int_equal(settings_check(o, &error), -1);
    if (!strstr(error.text, want))
        fail_msg("%s lacks %s", error.text, want);
    options_free(&o);
}

static void an_overflow_log_is_meant_to_be_used(void **state)
{
    (void)state;
    overflows_to(NULL, NULL, NULL);
    overflows_to("--overflow-log=f", NULL, "f");
    overflows_to("--overflow-log=f", "--when-full=overflow", "f");
    overflows_to("--overflow-log=f", "--when-full=reject", NULL);
    refuses("--when-full=overflow", NULL, "--when-full: overflow needs overflow_log");
}

static void separators_are_newlines_unless_given(void **state)
{
    struct options *o = parse("--mget-item-sep=ab", NULL);
    (void)state;
    assert_true(bytes_equal_str(settings_separator(o, "mget_item_sep"), "ab"));
    assert_true(bytes_equal_str(settings_separator(o, "mput_item_sep"), "\n"));
    options_free(&o);
}

static void a_copy_lies_somewhere(void **state)
{
    (void)state;
    refuses("--restored", NULL, "needs data_dir");
    overflows_to("--restored", "--data-dir=d", NULL);
}

static void nng_asks_for_no_token(void **state)
{
    (void)state;
    overflows_to("--nng-listen=tcp://127.0.0.1:0", NULL, NULL);
    overflows_to("--nng-listen=ipc:///run/x, ipc:///run/y ,ipc:///run/z", NULL, NULL);
    overflows_to("--nng-listen=ipc:///run/x", "--auth-token-file=t", NULL);
    refuses("--nng-listen=tcp://127.0.0.1:0", "--auth-token-file=t", "cannot check a token");
    refuses("--nng-listen=http://x", NULL, "ipc://PATH");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_overflow_log_is_meant_to_be_used),
        cmocka_unit_test(separators_are_newlines_unless_given),
        cmocka_unit_test(a_copy_lies_somewhere),
        cmocka_unit_test(nng_asks_for_no_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
