#include "support/cm.h"
#include "counts/text_pattern.h"
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static enum text_pattern_result find(const char *pattern, struct bytes text)
{
    struct error error;
    struct text_pattern *p = text_pattern_new(pattern, &error);
    assert_non_null(p);
    enum text_pattern_result r = text_pattern_find(p, text);
    assert_int_equal(text_pattern_find(p, text), r); /* what one text has cost is forgotten with the next */
    text_pattern_free(&p);
    return r;
}

/* Of n letters a and an end. */
static enum text_pattern_result find_in(const char *pattern, size_t n, const char *end)
{
    struct buf text = {0};
    buf_reserve(&text, n);
    memset(text.ptr, 'a', n);
    text.len = n;
    buf_append_str(&text, end);
    enum text_pattern_result r = find(pattern, buf_bytes(&text));
    buf_free(&text);
    return r;
}

static void test_found_or_not(void **state)
{
    (void)state;
    assert_int_equal(find("^(US|JP)$", BYTES_LITERAL("JP")), TEXT_PATTERN_FOUND);
    assert_int_equal(find("^(US|JP)$", BYTES_LITERAL("DE")), TEXT_PATTERN_NOT_FOUND);
    assert_int_equal(find("\xc3\xa9+$", BYTES_LITERAL("caf\xc3\xa9")), TEXT_PATTERN_FOUND);
    assert_int_equal(find("(.)\\1", BYTES_LITERAL("abba")), TEXT_PATTERN_FOUND);
    assert_int_equal(find("^$", BYTES_LITERAL("")), TEXT_PATTERN_FOUND);
}

/* None takes longer than another: seconds to minutes each, were they not given up. */
static void test_what_costs_too_much_is_given_up(void **state)
{
    static const char *const patterns[] = {"^(a+)+$", "(a*)\\1\\1[bc]", "^(?:a*+[bc]|.)*$", "\\w*\\d",
        "^(?:(a*)\\1b|.)*$", ".*?.*?.*?[bc]", "(?:(?=.*[bc])x|.)*[yz]", "(?i)A*[BC]", "(?:a|aa)+?(?<=b)",
        "a*[\\p{Lu}\\p{N}\\p{Lu}\\p{N}\\p{Lu}\\p{N}]"};
    (void)state;
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        assert_int_equal(find_in(patterns[i], 65536, "!"), TEXT_PATTERN_UNDECIDED);
}

/* Few items are tried, and each passes over all the text, or compares it. */
static void test_bytes_count_as_well_as_items(void **state)
{
    (void)state;
    assert_int_equal(find_in("a*+[bc]", 20000, "!"), TEXT_PATTERN_UNDECIDED);
    assert_int_equal(find_in("a*+[bc]", 500, "!"), TEXT_PATTERN_NOT_FOUND);
    /* \1, of 9000 a, is compared with each end of 8999 of them. */
    struct buf end = {0};
    buf_append_char(&end, 'b');
    for (int i = 1; i < 9000; i++)
        buf_append_char(&end, 'a');
    buf_append_char(&end, '!');
    buf_append_char(&end, '\0');
    assert_int_equal(find_in("^(a*)b(?:\\1|.)*$", 9000, end.ptr), TEXT_PATTERN_UNDECIDED);
    assert_int_equal(find_in("^(a*)b(?:c|.)*$", 9000, end.ptr), TEXT_PATTERN_FOUND);
    buf_free(&end);
}

/* One that fails leaves no trace but the next one's place, which may be the same. */
static void test_what_an_item_passed_over_before_it_failed_counts(void **state)
{
    static const char *const patterns[] = {"(?:[^b\\p{Lu}]{60000}|x)", "(?x)(?:[^b\\p{Lu}] {60000}|x)",
        ".*?(?:[^b\\p{Lu}]{60000}|x)", "(?:\\X{60000}|x)", "(?:(?<=[^b]{60000})|x)",
        "(?:(*plb:[^b]{60000})|x)"};
    (void)state;
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        assert_int_equal(find_in(patterns[i], 10000, ""), TEXT_PATTERN_UNDECIDED);
        assert_int_equal(find_in(patterns[i], 300, ""), TEXT_PATTERN_NOT_FOUND);
    }
    struct buf marks = {0}; /* of one character, which \X passes over as one */
    for (int i = 0; i < 8000; i++)
        buf_append_str(&marks, "\xcc\x81");
    assert_int_equal(find("(?:\\X{2}|x)", buf_bytes(&marks)), TEXT_PATTERN_UNDECIDED);
    marks.len = 200;
    assert_int_equal(find("(?:\\X{2}|x)", buf_bytes(&marks)), TEXT_PATTERN_NOT_FOUND);
    buf_free(&marks);
    assert_int_equal(find_in("(?:a{4}b|x)", 10000, ""), TEXT_PATTERN_NOT_FOUND);
    assert_int_equal(find_in("^(?:[a-z0-9-]{1,63}\\.?){1,10}!$", 600, "!"), TEXT_PATTERN_FOUND);
}

/* The interpreter, which goes on if the stack of the compiled matcher overflows, copies all groups for each item. */
static void test_groups_cost_what_they_are_copied(void **state)
{
    struct buf pattern = {0};
    (void)state;
    buf_append_str(&pattern, "^(?:a|aa)+b");
    for (int i = 0; i < 900; i++)
        buf_append_str(&pattern, "|()!");
    buf_append_char(&pattern, '\0');
    assert_int_equal(find_in(pattern.ptr, 100000, ""), TEXT_PATTERN_UNDECIDED);
    assert_int_equal(find_in(pattern.ptr, 100, "b"), TEXT_PATTERN_FOUND);
    struct rusage use;
    assert_int_equal(getrusage(RUSAGE_SELF, &use), 0);
    assert_in_range(use.ru_maxrss, 1, 300 << 10);
    buf_free(&pattern);
}

/* Machine code of these patterns would take 250 MB. */
static void test_a_large_pattern_takes_little_memory(void **state)
{
    struct text_pattern *p[600];
    struct error error;
    struct rusage use;
    (void)state;
    for (size_t i = 0; i < 600; i++)
        assert_non_null(p[i] = text_pattern_new("((a{1,40}){1,40}b){1,30}", &error));
    assert_int_equal(text_pattern_find(p[0], BYTES_LITERAL("xab")), TEXT_PATTERN_FOUND);
    assert_int_equal(getrusage(RUSAGE_SELF, &use), 0);
    assert_in_range(use.ru_maxrss, 1, 200 << 10);
    for (size_t i = 0; i < 600; i++)
        text_pattern_free(&p[i]);
}

/* PCRE2 reports three bytes behind a pattern that ends with (?). AddressSanitizer sees a read of them. */
static void test_an_empty_setting_at_the_end(void **state)
{
    char *alone = strdup("ab(?)");
    (void)state;
    assert_int_equal(find(alone, BYTES_LITERAL("xab")), TEXT_PATTERN_FOUND);
    free(alone);
}

static void test_verbs_that_lift_a_bound_are_refused(void **state)
{
    static const char *const patterns[] = {"(*NO_JIT)a", "(*LIMIT_MATCH=9)a", "(*UCP)(*NO_JIT)a",
        "(*sr:.*)[bc]", "x(*script_run:.*)", "(*asr:.*)", "a|(*atomic_script_run:.*)"};
    struct error error;
    (void)state;
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        assert_null(text_pattern_new(patterns[i], &error));
        assert_string_equal(error.text, "the pattern begins with (* or contains a script run");
    }
    assert_int_equal(find("a(*ACCEPT)b", BYTES_LITERAL("a")), TEXT_PATTERN_FOUND);
}

static void test_a_long_text_is_looked_through(void **state)
{
    (void)state;
    assert_int_equal(find_in("foo", 1000000, "foo"), TEXT_PATTERN_FOUND);
    assert_int_equal(find_in("foo", 1000000, "fo"), TEXT_PATTERN_NOT_FOUND);
    assert_int_equal(find_in("^a.*foo$", 500000, "foo"), TEXT_PATTERN_FOUND);
    assert_int_equal(find_in("^(?:a|(b))*$", 6000, ""), TEXT_PATTERN_FOUND); /* more than PCRE2's stack */
    assert_int_equal(find_in("foo", TEXT_PATTERN_TEXT_MAX, ""), TEXT_PATTERN_NOT_FOUND);
    assert_int_equal(find_in("foo", TEXT_PATTERN_TEXT_MAX, "!"), TEXT_PATTERN_UNDECIDED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_found_or_not),
        cmocka_unit_test(test_what_costs_too_much_is_given_up),
        cmocka_unit_test(test_bytes_count_as_well_as_items),
        cmocka_unit_test(test_what_an_item_passed_over_before_it_failed_counts),
        cmocka_unit_test(test_groups_cost_what_they_are_copied),
        cmocka_unit_test(test_a_large_pattern_takes_little_memory),
        cmocka_unit_test(test_an_empty_setting_at_the_end),
        cmocka_unit_test(test_verbs_that_lift_a_bound_are_refused),
        cmocka_unit_test(test_a_long_text_is_looked_through)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
