/* What `millrace forget` matches is what counters count under the value. */
#include "support/cm.h"

#include "counts/counters.h"
#include "counts/records.h"
#include "tools/forget_match.h"

#include <stdio.h>
#include <string.h>

#define MAX_TEXT 64
#define LONG "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\xc3\xa4+"
#define LONGER LONG "x"

static const char *const fields[] = {"user", "user.id", "items[0].sku", "[\"user.id\"]", "lower(user)",
    "host(user)", "path(user)", "query(user,q)", "status_class(user)"};

/* Values of JSON, as they stand in a line. */
static const char *const values[] = {"null", "true", "false", "0", "-0", "5", "\"5\"", "-5", "5.0", "5e0",
    "1.5", "9223372036854775807", "9223372036854775808", "18446744073709551615", "18446744073709551616",
    "\"\"", "\" \"", "\"a\"", "\"A\"", "\"a\\u0062\"", "\"ab\"", "\"AB\"", "\"None\"", "\"(other)\"",
    "\"\\\\(other)\"", "\"\\\\\\\\(other)\"", "\"true\"", "\"404\"", "404", "\"\\u00e4\"",
    "\"a\\nb\\t|c,d:e.f\"", "\"\\\"q\\\\\"", "\"a\\u0000b\"", "\"http://Example.org/p?q=1\"", "\"/p?q=ab\"",
    "\"" LONG "\"", "\"" LONGER "\"", "[]", "[\"a\"]", "{}", "{\"id\":\"a\"}", "{\"id\":5,\"id\":\"ab\"}",
    "{\"id\":{\"x\":1}}"};

/* Lines with the value at each of the fields, and twice at one. */
static const char *const lines[] = {"{\"t\":1331923249,\"user\":%s}",
    "{\"t\":1331923249,\"user\":{\"id\":%s}}", "{\"t\":1331923249,\"items\":[{\"sku\":%s},{\"sku\":\"a\"}]}",
    "{\"t\":1331923249,\"user.id\":%s}", "{\"t\":1331923249,\"user\":\"a\",\"u\\u0073er\":%s}",
    "{\"t\":1331923249,\"user\":%s,\"user\":\"a\"}", "{\"t\":1331923249,\"other\":%s}", "[%s]", "%s",
    "{\"t\":1331923249,\"user\":%s"};

#define N(list) (sizeof(list) / sizeof *(list))

static struct counters *counters_of(const char *key)
{
    struct config *config;
    struct counters *c;
    struct error error;
    char text[256];
    snprintf(text, sizeof text, "[input]\ntime = t\n[counters]\nmax_text = %d\n[total k]\nkey = %s\n",
        MAX_TEXT, key);
    assert_int_equal(config_parse("test.conf", bytes_str(text), &config, &error), 0);
    assert_int_equal(counters_read(config, &c, &error), 0);
    config_free(&config);
    return c;
}

/* The key of the line, as text for a command line; NULL: it is not counted, or no argument can have the text. */
static char *key_of(struct counters_reader *r, const char *line)
{
    struct counters_event e;
    if (counters_extract(r, bytes_str(line), &e) != COUNTERS_EVENT)
        return NULL;
    struct bytes key = e.texts[e.text_of[0]];
    return memchr(key.ptr, 0, key.len) ? NULL : bytes_dup(key);
}

static void compare(const char *field, char *const *all, size_t n)
{
    struct counters *c = counters_of(field);
    struct counters_reader *r = counters_reader_new(c);
    char **keys = mem_zalloc(n * sizeof *keys);
    for (size_t i = 0; i < n; i++)
        keys[i] = key_of(r, all[i]);
    for (size_t k = 0; k < n; k++) {
        struct forget_match *m = keys[k] ? forget_match_new(field, keys[k], MAX_TEXT) : NULL;
        for (size_t i = 0; i < n && m; i++) {
            struct counters_event e;
            bool is_counted = counters_extract(r, bytes_str(all[i]), &e) == COUNTERS_EVENT &&
                              bytes_equal_str(e.texts[e.text_of[0]], keys[k]);
            bool is_matched = forget_match_line(m, bytes_str(all[i])) == FORGET_YES;
            bool has_time = strstr(all[i], "\"t\":");
            if (is_counted != (is_matched && has_time))
                fail_msg("%s = %s: %s is %s", field, keys[k], all[i], is_counted ? "counted" : "matched");
        }
        forget_match_free(&m);
    }
    for (size_t i = 0; i < n; i++)
        free(keys[i]);
    free(keys);
    counters_reader_free(&r);
    counters_free(&c);
}

static void test_agrees_with_counting(void **state)
{
    size_t n = 0;
    char **all = mem_zalloc(N(lines) * N(values) * sizeof *all);
    (void)state;
    for (size_t l = 0; l < N(lines); l++)
        for (size_t v = 0; v < N(values); v++) {
            const char *at = strstr(lines[l], "%s");
            all[n++] = mem_printf("%.*s%s%s", (int)(at - lines[l]), lines[l], values[v], at + 2);
        }
    for (size_t f = 0; f < N(fields); f++)
        compare(fields[f], all, n);
    while (n > 0)
        free(all[--n]);
    free(all);
}

static enum forget_verdict verdict(const char *field, const char *value, const char *line)
{
    struct forget_match *m = forget_match_new(field, value, MAX_TEXT);
    enum forget_verdict v = forget_match_line(m, bytes_str(line));
    forget_match_free(&m);
    return v;
}

static void test_a_long_value_matches_whole_and_cut(void **state)
{
    struct buf other = {0}, cut = {0};
    (void)state;
    buf_append_bytes(&cut, component_bound(BYTES_LITERAL(LONG), MAX_TEXT, &other));
    buf_append_char(&cut, '\0');
    for (size_t max = MAX_TEXT; max < MAX_TEXT + 3; max++) { /* also after a change of max_text */
        assert_int_equal(verdict("user", LONG, "{\"user\":\"" LONG "\"}"), FORGET_YES);
        assert_int_equal(verdict("user", cut.ptr, "{\"user\":\"" LONG "\"}"), FORGET_YES);
        assert_int_equal(verdict("user", cut.ptr, "{\"user\":\"" LONGER "\"}"), FORGET_NO);
        assert_int_equal(verdict("user", LONG, "{\"user\":\"" LONGER "\"}"), FORGET_NO);
        cut.len = 0;
        buf_append_bytes(&cut, component_bound(BYTES_LITERAL(LONG), max + 1, &other));
        buf_append_char(&cut, '\0');
    }
    buf_free(&other);
    buf_free(&cut);
}

static void test_lines_without_a_key(void **state)
{
    (void)state;
    assert_int_equal(verdict("user", "bob", "not json: bob"), FORGET_CONTAINS);
    assert_int_equal(verdict("user", "bob", "not json: alice"), FORGET_NO);
    assert_int_equal(verdict("user", "bob", "{\"user\":[\"bob\"]}"), FORGET_CONTAINS);
    assert_int_equal(verdict("user", "bob", "{\"user\":{\"id\":\"bob\"}}"), FORGET_CONTAINS);
    assert_int_equal(verdict("user", "1.5", "{\"user\":1.5}"), FORGET_CONTAINS);
    assert_int_equal(verdict("user", "bob", "{\"user\":[\"alice\"]}"), FORGET_NO);
    assert_int_equal(verdict("user", "bob", "{\"from\":\"bob\"}"), FORGET_NO);
    assert_int_equal(verdict("user", "bob", "{}    "), FORGET_NO);
}

static enum forget_key key(const char *field, const char *of_counter)
{
    struct forget_match *m = forget_match_new(field, "x", MAX_TEXT);
    enum forget_key k = forget_match_key(m, bytes_str(of_counter));
    forget_match_free(&m);
    return k;
}

static void test_keys_of_counters(void **state)
{
    (void)state;
    assert_int_equal(key("user", "user"), FORGET_SAME_KEY);
    assert_int_equal(key("lower(user)", "lower( user )"), FORGET_SAME_KEY);
    assert_int_equal(key("query(u,q)", "query(u, q)"), FORGET_SAME_KEY);
    assert_int_equal(key("query(u,q)", "query(u,p)"), FORGET_OTHER_KEY);
    assert_int_equal(key("user", "lower(user)"), FORGET_OTHER_KEY);
    assert_int_equal(key("user", "\"user\""), FORGET_OTHER_FIELD);
    assert_int_equal(key("user", "use"), FORGET_OTHER_FIELD);
    assert_int_equal(key("user.id", "user"), FORGET_OTHER_FIELD);
    /* The same field in another spelling: the operator must see that its counts stay. */
    assert_int_equal(key("user.id", "[\"user\"].id"), FORGET_OTHER_KEY);
    assert_int_equal(key("user.id", "lower(user[\"id\"])"), FORGET_OTHER_KEY);
    assert_int_equal(key("user.id", "[\"user.id\"]"), FORGET_OTHER_FIELD);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_agrees_with_counting),
        cmocka_unit_test(test_a_long_value_matches_whole_and_cut), cmocka_unit_test(test_lines_without_a_key),
        cmocka_unit_test(test_keys_of_counters)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
