#include "support/cm.h"
#include "config/options.h"
#include <stdio.h>
#include <stdlib.h>

static const struct option_row rows[] = {
    {.name = "flag", .type = OPTION_BOOL, .help = "a switch", .letter = 'f'},
    {.name = "count",
        .type = OPTION_INT,
        .fallback = "3",
        .min = 1,
        .max = 9,
        .help = "a number",
        .letter = 'n'},
    {.name = "room", .type = OPTION_SIZE, .fallback = "64K", .min = 1, .max = 1 << 30, .help = "a size"},
    {.name = "wait",
        .type = OPTION_DURATION,
        .fallback = "2s",
        .min = 0,
        .max = 60000,
        .unit = "s",
        .help = "a time"},
    {.name = "word", .type = OPTION_STRING, .min = 1, .max = 4, .help = "a text"},
    {.name = "kind",
        .type = OPTION_CHOICE,
        .fallback = "red",
        .choices = "red|green|greenish",
        .help = "a choice"},
    {.name = "sync", .type = OPTION_SYNC, .fallback = "0", .help = "a policy"},
    {.name = NULL},
};
static const struct options_spec spec = {
    .program = "simplequeue", .summary = "x", .operands = "FILE...", .rows = {rows, NULL}};
static const struct options_spec no_operands = {
    .program = "simplequeue", .summary = "x", .rows = {rows, NULL}};

static struct options *parse(
    const struct options_spec *s, enum options_result want, char *first, char *second)
{
    char program[] = "x";
    char *argv[] = {program, first, second, NULL};
    struct options *o = NULL;
    int argc = first == NULL ? 1 : second == NULL ? 2 : 3;
    enum options_result got = options_parse(s, argc, argv, &o);
    if (got != want)
        fail_msg("%d, not %d: %s", got, want, options_error(o));
    return o;
}

/* The tests write arguments as literals; argv's strings are never written to. */
#define ARG(s) ((char *)(uintptr_t)(s))

static void test_defaults(void **state)
{
    struct options *o = parse(&spec, OPTIONS_OK, NULL, NULL);
    (void)state;
    assert_false(options_bool(o, "flag"));
    assert_int_equal(options_int(o, "count"), 3);
    assert_int_equal(options_int(o, "room"), 65536);
    assert_int_equal(options_int(o, "wait"), 2000);
    assert_null(options_string(o, "word"));
    assert_string_equal(options_string(o, "kind"), "red");
    assert_int_equal(options_sync(o, "sync"), 0);
    assert_string_equal(options_source(o, "count"), "default");
    assert_false(options_is_set(o, "count"));
    options_free(&o);
}

static void check_one(const char *arg, const char *name, int64_t want)
{
    struct options *o = parse(&spec, OPTIONS_OK, ARG(arg), NULL);
    assert_int_equal(strcmp(name, "flag") == 0   ? options_bool(o, name)
                     : strcmp(name, "sync") == 0 ? options_sync(o, name)
                                                 : options_int(o, name),
        want);
    assert_true(options_is_set(o, name));
    options_free(&o);
}

static void test_spellings(void **state)
{
    (void)state;
    check_one("--flag", "flag", 1);
    check_one("-f", "flag", 1);
    check_one("--flag=on", "flag", 1);
    check_one("--no-flag", "flag", 0);
    check_one("-n7", "count", 7);
    check_one("--room=2M", "room", 2 << 20);
    check_one("--wait=5", "wait", 5000);
    check_one("--wait=250ms", "wait", 250);
    check_one("--wait=1m", "wait", 60000);
    check_one("--sync=never", "sync", -1);
    check_one("--sync=50", "sync", 50);
    struct options *o = parse(&spec, OPTIONS_OK, ARG("--count"), ARG("8"));
    assert_int_equal(options_int(o, "count"), 8);
    options_free(&o);
    o = parse(&spec, OPTIONS_OK, ARG("--"), ARG("--flag"));
    char **operands;
    assert_int_equal(options_operands(o, &operands), 1);
    assert_string_equal(operands[0], "--flag");
    options_free(&o);
}

static void refuse(const char *arg, const char *message)
{
    struct options *o = parse(&no_operands, OPTIONS_USAGE, ARG(arg), NULL);
    if (strstr(options_error(o), message) == NULL)
        fail_msg("%s: %s", arg, options_error(o));
    options_free(&o);
}

static void test_refusals(void **state)
{
    (void)state;
    refuse("--count=0", "--count=0 is out of bounds: 1..9");
    refuse("--count=-1", "is out of bounds");
    refuse("--count=4x", "is not an integer");
    refuse("--count=", "is not an integer");
    refuse("--count", "--count needs a value");
    refuse("--room=2Q", "is not a size");
    refuse("--wait=5y", "is not a duration");
    refuse("--wait=99h", "is out of bounds");
    refuse("--word=12345", "has 5 bytes; allowed are 1..4");
    refuse("--word=", "has 0 bytes");
    refuse("--kind=gre", "is not one of red|green|greenish");
    refuse("--kind=", "is not one of");
    refuse("--sync=sometimes", "is neither `never` nor a number of milliseconds");
    refuse("--flag=maybe", "is not a boolean");
    refuse("--no-count", "unknown option --no-count");
    refuse("--cuont=1", "did you mean --count?");
    refuse("--chek-config", "did you mean --check-config?");
    refuse("-x", "unknown option -x");
    refuse("-fx", "unknown option -fx");
    refuse("file", "unexpected argument file");
}

static const struct option_row name_rows[] = {
    {.name = "stream", .type = OPTION_STRING, .fallback = "clicks", .help = "one that is needed"},
    {.name = "copy", .type = OPTION_STRING, .help = "one that is not"},
    {.name = NULL},
};
static const struct options_spec names = {.program = "ps_to_http", .summary = "x", .rows = {name_rows, NULL}};

static void check_name(const char *argument, const char *name, const char *wrong)
{
    struct error error;
    struct options *o = parse(&names, OPTIONS_OK, ARG(argument), NULL);
    assert_int_equal(options_check_name(o, name, &error), wrong ? -1 : 0);
    if (wrong)
        assert_string_equal(error.text, wrong);
    options_free(&o);
}

static void test_names(void **state)
{
    (void)state;
    check_name(NULL, "stream", NULL);
    check_name(NULL, "copy", NULL);
    check_name("--copy=", "copy", NULL);
    check_name("--copy=a.b-c", "copy", NULL);
    check_name("--copy=a/b", "copy", "--copy: not a name: [A-Za-z0-9_.-]{1,64}, and neither . nor ..");
    check_name("--stream=", "stream", "--stream: not a name: [A-Za-z0-9_.-]{1,64}, and neither . nor ..");
}

static void test_what_is_refused_later(void **state)
{
    struct error error;
    struct options *o = parse(&names, OPTIONS_OK, ARG("--copy="), NULL);
    (void)state;
    assert_null(options_text(o, "copy"));
    assert_string_equal(options_text(o, "stream"), "clicks");
    assert_int_equal(options_refuse(o, "copy", &error, "%d is %s", 7, "odd"), -1);
    assert_string_equal(error.text, "--copy: 7 is odd");
    options_refuse(o, "stream", &error, "odd");
    assert_string_equal(error.text, "stream: odd");
    options_free(&o);
}

static void test_choice_of_a_longer_word(void **state)
{
    struct options *o = parse(&spec, OPTIONS_OK, ARG("--kind=green"), NULL);
    (void)state;
    assert_string_equal(options_string(o, "kind"), "green");
    options_free(&o);
}

static const struct option_row renamed_rows[] = {
    {.name = "target", .type = OPTION_STRING, .flags = OPTION_LIST, .help = "x"},
    {.name = "way", .type = OPTION_CHOICE, .fallback = "post", .choices = "get|post", .help = "x"},
    {.name = "get_from", .type = OPTION_STRING, .means = "target way=get", .help = "x"},
    {.name = "post_to", .type = OPTION_STRING, .means = "target way=post", .help = "x"},
    {.name = "nothing", .type = OPTION_BOOL, .means = "", .help = "x"},
    {.name = "input", .type = OPTION_STRING, .flags = OPTION_OPERAND, .means = "FILE", .help = "x"},
    {.name = NULL},
};
static const struct options_spec renamed = {
    .program = "simplequeue", .summary = "x", .operands = "FILE...", .rows = {renamed_rows, NULL}};

static void test_names_with_a_meaning(void **state)
{
    struct error error;
    struct buf out = {0};
    char **operands;
    (void)state;
    struct options *o = parse(&renamed, OPTIONS_OK, ARG("--get-from=a"), ARG("--get-from=b"));
    assert_string_equal(options_string(o, "target"), "a b");
    assert_string_equal(options_string(o, "way"), "get");
    assert_string_equal(options_source(o, "way"), "--get-from");
    assert_true(options_is_set(o, "get_from"));
    options_print_settings(o, &out);
    assert_null(memmem(out.ptr, out.len, "get_from =", 10));
    assert_int_equal(options_rewrite(o, "target", "c", &error), 0);
    assert_string_equal(options_string(o, "target"), "c");
    assert_true(options_is_set(o, "target"));
    buf_free(&out);
    options_free(&o);
    o = parse(&renamed, OPTIONS_OK, NULL, NULL);
    assert_null(options_string(o, "target"));
    assert_string_equal(options_string(o, "way"), "post");
    options_free(&o);
    o = parse(&renamed, OPTIONS_USAGE, ARG("--get-from=a"), ARG("--post-to=a"));
    assert_string_equal(options_error(o), "--post-to sets way = post, but --get-from sets get");
    options_free(&o);
    o = parse(&renamed, OPTIONS_OK, ARG("--nothing"), ARG("--input=in"));
    assert_int_equal(options_operands(o, &operands), 1);
    assert_string_equal(operands[0], "in");
    options_free(&o);
    setenv("MILLRACE_SIMPLEQUEUE_GET_FROM", "a", 1);
    o = parse(&renamed, OPTIONS_OK, ARG("--way=post"), NULL); /* the command line is above the environment */
    assert_string_equal(options_string(o, "target"), "a");
    assert_string_equal(options_string(o, "way"), "post");
    options_free(&o);
    unsetenv("MILLRACE_SIMPLEQUEUE_GET_FROM");
}

static void test_environment(void **state)
{
    (void)state;
    setenv("MILLRACE_SIMPLEQUEUE_COUNT", "5", 1);
    struct options *o = parse(&spec, OPTIONS_OK, NULL, NULL);
    assert_int_equal(options_int(o, "count"), 5);
    assert_string_equal(options_source(o, "count"), "$MILLRACE_SIMPLEQUEUE_COUNT");
    options_free(&o);
    o = parse(&spec, OPTIONS_OK, ARG("--count=6"), NULL);
    assert_int_equal(options_int(o, "count"), 6);
    options_free(&o);
    unsetenv("MILLRACE_SIMPLEQUEUE_COUNT");
    setenv("MILLRACE_SIMPLEQUEUE_CUONT", "5", 1);
    o = parse(&spec, OPTIONS_CONFIG, NULL, NULL);
    assert_non_null(strstr(options_error(o), "did you mean count"));
    options_free(&o);
    unsetenv("MILLRACE_SIMPLEQUEUE_CUONT");
}

static void test_help_names_everything(void **state)
{
    char program[] = "x", check[] = "--check-config";
    char *argv[] = {program, check, NULL};
    struct options *o;
    struct buf out = {0};
    (void)state;
    assert_int_equal(options_parse(&spec, 2, argv, &o), OPTIONS_OK);
    assert_true(options_check_only(o));
    options_print_settings(o, &out);
    buf_append_char(&out, '\0');
    for (const struct option_row *r = rows; r->name != NULL; r++)
        assert_non_null(strstr(out.ptr, r->name));
    buf_free(&out);
    options_free(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_defaults), cmocka_unit_test(test_spellings),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_choice_of_a_longer_word),
        cmocka_unit_test(test_environment), cmocka_unit_test(test_names_with_a_meaning),
        cmocka_unit_test(test_names), cmocka_unit_test(test_what_is_refused_later),
        cmocka_unit_test(test_help_names_everything)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
