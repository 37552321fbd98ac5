/* agent_rules: the tests of uap-core's own package, and rules of this file. */
#include "support/cm.h"
#include "support/test_dir.h"

#include "enrich/agent_rules.h"
#include "enrich/yaml_lists.h"
#include <unistd.h>

#define UAP_CORE "/usr/share/uap-core/"

static char path[128];

static struct agent_rules *open_text(const char *text, struct error *error)
{
    make_test_file(path, sizeof path);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    struct agent_rules *rules = agent_rules_open(path, error);
    unlink(path);
    return rules;
}

/* A file of uap-core's tests: each item has a user agent text and the values of the answer. */
struct cases {
    struct agent_rules *rules;
    enum agent_list list;
    size_t n, n_wrong;
};

static int check_case(void *arg, const struct yaml_item *item, struct error *error)
{
    static const char *const names[AGENT_LISTS][AGENT_VALUES] = {
        [AGENT_BROWSER] = {"family", "major", "minor", "patch"},
        [AGENT_OS] = {"family", "major", "minor", "patch", "patch_minor"},
        [AGENT_DEVICE] = {"family", "brand", "model"},
    };
    struct cases *c = arg;
    struct bytes values[AGENT_VALUES];
    const char *text = yaml_item_get(item, "user_agent_string");
    if (!text)
        return error_set(error, -1, "no user_agent_string");
    agent_rules_find(c->rules, c->list, bytes_str(text), values);
    c->n++;
    for (size_t i = 0; i < AGENT_VALUES && names[c->list][i]; i++) {
        const char *expected = yaml_item_get(item, names[c->list][i]);
        if (bytes_equal(values[i], bytes_str(expected)))
            continue;
        print_error("line %zu: %s is '%.*s' instead of '%s'\n", item->line, names[c->list][i],
            (int)values[i].len, values[i].ptr, expected ? expected : "");
        c->n_wrong++;
    }
    return 0;
}

/* pgts_browser_list-orig.yaml is left out: pgts_browser_list.yaml is made from it, with the answers of uap-core. */
static void test_the_tests_of_uap_core(void **state)
{
    static const struct {
        const char *file;
        enum agent_list list;
        size_t at_least;
    } files[] = {
        {"tests/test_ua.yaml", AGENT_BROWSER, 1400},
        {"tests/test_os.yaml", AGENT_OS, 400},
        {"tests/test_device.yaml", AGENT_DEVICE, 16000},
        {"test_resources/firefox_user_agent_strings.yaml", AGENT_BROWSER, 200},
        {"test_resources/pgts_browser_list.yaml", AGENT_BROWSER, 12000},
        {"test_resources/opera_mini_user_agent_strings.yaml", AGENT_BROWSER, 200},
        {"test_resources/podcasting_user_agent_strings.yaml", AGENT_BROWSER, 100},
        {"test_resources/additional_os_tests.yaml", AGENT_OS, 20},
    };
    struct error error;
    struct cases c = {.rules = agent_rules_open(UAP_CORE "regexes.yaml", &error)};
    (void)state;
    if (!c.rules)
        fail_msg("%s", error.text);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, UAP_CORE "%s", files[i].file);
        c.list = files[i].list;
        c.n = 0;
        if (yaml_lists_read(path, check_case, &c, &error) != 0)
            fail_msg("%s", error.text);
        assert_true(c.n >= files[i].at_least);
    }
    assert_int_equal(c.n_wrong, 0);
    agent_rules_free(&c.rules);
}

#define OTHER_LISTS "os_parsers:\n  - regex: 'os'\ndevice_parsers:\n  - regex: 'device'\n"

static void check(struct agent_rules *rules, enum agent_list list, struct bytes text, const char *expected)
{
    struct bytes values[AGENT_VALUES];
    struct buf joined = {0};
    agent_rules_find(rules, list, text, values);
    for (size_t i = 0; i < AGENT_VALUES; i++) {
        buf_append_bytes(&joined, values[i]);
        buf_append_char(&joined, '|');
    }
    buf_append_char(&joined, '\0');
    assert_string_equal(joined.ptr, expected);
    buf_free(&joined);
}

static void test_the_specification(void **state)
{
    struct error error;
    struct agent_rules *rules = open_text("# uap-core\n"
                                          "user_agent_parsers:\n"
                                          "  - regex: '(One)/(\\d+)(?:\\.(\\d+)|)(x|)'\n"
                                          "  - regex: '(One|Two)/(\\d+)'\n"
                                          "    family_replacement: ' $1 ($2) $9$ '\n"
                                          "    v1_replacement: ''\n"
                                          "    v2_replacement: 'v$2'\n"
                                          "  - regex: 'end$'\n"
                                          "    family_replacement: 'End'\n"
                                          "os_parsers:\n"
                                          "  - regex: '(a)(b)(c)(d)(e)(f)(g)(h)(i)(j)'\n"
                                          "later_parsers:\n"
                                          "  - other: 'x'\n"
                                          "device_parsers:\n"
                                          "  - regex: 'phone (\\w+)'\n"
                                          "    regex_flag: 'i'\n"
                                          "    brand_replacement: 'Brand $1'\n",
        &error);
    (void)state;
    assert_non_null(rules);
    check(rules, AGENT_BROWSER, BYTES_LITERAL("see One/12.3x"), "One|12|3|x||");
    check(rules, AGENT_BROWSER, BYTES_LITERAL("One/12"), "One|12||||");
    check(rules, AGENT_BROWSER, BYTES_LITERAL("Two/7"), "Two (7) $||v7|||");
    check(rules, AGENT_BROWSER, BYTES_LITERAL("two/7"), "Other|||||");
    check(rules, AGENT_BROWSER, BYTES_LITERAL("the end"), "End|||||");
    check(rules, AGENT_BROWSER, BYTES_LITERAL("the end\n"), "Other|||||");
    check(rules, AGENT_BROWSER, BYTES_NONE, "Other|||||");
    check(rules, AGENT_OS, BYTES_LITERAL("abcdefghij"), "a|b|c|d|e|");
    check(rules, AGENT_DEVICE, BYTES_LITERAL("PHONE X1"), "X1|Brand X1|X1|||");
    check(rules, AGENT_DEVICE, BYTES_LITERAL("a\0b \xff phone \xff phone z"), "z|Brand z|z|||");
    agent_rules_free(&rules);
}

static void test_bounds(void **state)
{
    struct error error;
    char text[2 * AGENT_TEXT_MAX];
    struct agent_rules *rules =
        open_text("user_agent_parsers:\n  - regex: '^(?:a|aa)*$'\n    family_replacement: 'A'\n"
                  "  - regex: '(Last)'\n" OTHER_LISTS,
            &error);
    (void)state;
    assert_non_null(rules);
    memset(text, 'x', sizeof text);
    memcpy(text + AGENT_TEXT_MAX - 4, "Last", 4);
    check(rules, AGENT_BROWSER, bytes_of(text, sizeof text), "Last|||||");
    memcpy(text + AGENT_TEXT_MAX - 4, "xLast", 5);
    check(rules, AGENT_BROWSER, bytes_of(text, sizeof text), "Other|||||");
    /* The first rule would need millions of steps, fewer than PCRE2's own limit. So its list has no answer. */
    memset(text, 'a', 28);
    memcpy(text + 28, "Last", 4);
    check(rules, AGENT_BROWSER, bytes_of(text, 32), "Other|||||");
    check(rules, AGENT_BROWSER, bytes_of(text + 20, 12), "Last|||||");
    agent_rules_free(&rules);
}

static void test_files_that_are_refused(void **state)
{
    static const struct {
        const char *text, *reason;
    } files[] = {
        {"user_agent_parsers:\n  - regex: 'a'\n  - regex: 'b('\n" OTHER_LISTS,
            "line 3: invalid regular expression at character 3: missing closing parenthesis"},
        {"user_agent_parsers:\n  - family_replacement: 'a'\n" OTHER_LISTS, "line 2: the rule has no regex"},
        {OTHER_LISTS, "there are no user_agent_parsers"},
        {"", "line 1: the file is not a map of lists of flat maps"},
        {"- a\n", "line 1: the file is not"},
        {"user_agent_parsers: a\n", "line 1: the file is not"},
        {"user_agent_parsers:\n  - a\n", "line 2: the file is not"},
        {"user_agent_parsers:\n  - regex: [a]\n", "line 2: the file is not"},
        {"user_agent_parsers:\n  - regex: &x 'a'\n  - *x\n", "line 2: the file is not"},
        {"user_agent_parsers:\n  - regex: 'a\n", "line 3: found unexpected end of stream"},
        {"user_agent_parsers:\n  - regex: '\xff'\n", "invalid leading UTF-8 octet"},
    };
    struct error error;
    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        assert_null(open_text(files[i].text, &error));
        if (strncmp(error.text, path, strlen(path)) != 0 || !strstr(error.text, files[i].reason))
            fail_msg("'%s' instead of '%s'", error.text, files[i].reason);
    }
    assert_null(agent_rules_open("/none/regexes.yaml", &error));
    assert_string_equal(error.text, "/none/regexes.yaml: No such file or directory");
    assert_null(agent_rules_open("/", &error));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_tests_of_uap_core),
        cmocka_unit_test(test_the_specification),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_files_that_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
