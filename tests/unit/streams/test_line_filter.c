#include "support/cm.h"
#include "support/test_dir.h"
#include "streams/filter/line_filter.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct hash_key *key;

/* What becomes of the line: NULL when it does not go on. Static. */
static const char *become(
    const struct line_filter_spec *spec, const char *line, enum line_filter_result expect)
{
    static struct buf out;
    struct error error;
    struct line_filter *f = line_filter_new(spec, &error);
    assert_non_null(f);
    buf_clear(&out);
    enum line_filter_result r = line_filter_apply(f, bytes_str(line), &out);
    line_filter_free(&f);
    assert_int_equal(r, expect);
    if (r != LINE_PASSED) {
        assert_int_equal(out.len, 0);
        return NULL;
    }
    assert_int_equal(out.ptr[out.len - 1], '\n');
    out.ptr[out.len - 1] = '\0';
    return out.ptr;
}

static const char *without(const char *drop, const char *line)
{
    struct line_filter_spec spec = {.drop = drop};
    return become(&spec, line, LINE_PASSED);
}

static void test_fields_are_dropped(void **state)
{
    (void)state;
    assert_string_equal(
        without("b", "{ \"a\": 1, \"b\": [2, {\"c\": \"}\"}], \"c\": 3 }"), "{ \"a\": 1, \"c\": 3 }");
    assert_string_equal(without("a", "{ \"a\": 1, \"b\": 2 }"), "{\"b\": 2 }");
    assert_string_equal(without("b", "{\"a\":1,\"b\":2}"), "{\"a\":1}");
    assert_string_equal(without("a,b", "{\"a\":1,\"b\":2}"), "{}");
    assert_string_equal(without("a b", "{\"x\":\"\\\"\\\\\",\"a\":null,\"y\":\"\\\\\"}"),
        "{\"x\":\"\\\"\\\\\",\"y\":\"\\\\\"}");
    assert_string_equal(without("zz", " {\"a\" : 1} "), " {\"a\" : 1} ");
    assert_string_equal(without("a", "{}"), "{}");
}

/* However it is written, and however often. */
static void test_no_spelling_of_a_name_escapes(void **state)
{
    (void)state;
    assert_string_equal(without("abc", "{\"\\u0061b\\u0063\":1,\"x\":2}"), "{\"x\":2}");
    assert_string_equal(without("a", "{\"a\":1,\"x\":2,\"a\":3}"), "{\"x\":2}");
    assert_string_equal(without("a/b", "{\"a\\/b\":1,\"x\":2}"), "{\"x\":2}");
    assert_string_equal(without("\xf0\x9f\x98\x80", "{\"\\ud83d\\ude00\":1}"), "{}");
    assert_string_equal(without("a", "{\"x\":{\"a\":1}}"), "{\"x\":{\"a\":1}}");
}

static void test_hashing(void **state)
{
    struct line_filter_spec spec = {.hash = "ip", .key = key};
    char first[200];
    (void)state;
    snprintf(first, sizeof first, "%s", become(&spec, "{\"ip\":\"10.0.0.1\",\"n\":1}", LINE_PASSED));
    assert_int_equal(strlen(first), strlen("{\"ip\":\"\",\"n\":1}") + HASH_TOKEN_LENGTH);
    assert_memory_equal(first, "{\"ip\":\"h:", 9);
    assert_memory_equal(first + 9, hash_key_id(key), 8);
    assert_string_equal(become(&spec, "{\"ip\":\"\\u00310.0.0.1\",\"n\":1}", LINE_PASSED), first);
    assert_string_not_equal(become(&spec, "{\"ip\":\"10.0.0.2\",\"n\":1}", LINE_PASSED), first);
    assert_string_equal(become(&spec, "{\"ip\":null}", LINE_PASSED), "{\"ip\":null}");
    assert_null(strstr(become(&spec, "{\"ip\":[1,2,33333]}", LINE_PASSED), "33333"));
    assert_null(strstr(become(&spec, "{\"ip\":44444}", LINE_PASSED), "44444"));
}

static void test_paths(void **state)
{
    (void)state;
    assert_string_equal(without("user.ip", "{\"user\": {\"id\": 1, \"ip\": \"10.0.0.1\"}, \"user.ip\": 2}"),
        "{\"user\": {\"id\": 1}}");
    assert_string_equal(
        without("[\"user.ip\"]", "{\"user\":{\"ip\":1},\"user.ip\":2}"), "{\"user\":{\"ip\":1}}");
    assert_string_equal(without("a.b.c,a.d", "{\"a\":{\"b\":{\"c\":1,\"e\":2},\"d\":3},\"x\":4}"),
        "{\"a\":{\"b\":{\"e\":2}},\"x\":4}");
    assert_string_equal(
        without("a.b", "{\"a\":{\"\\u0062\":1},\"x\":{\"b\":1},\"\\u0061\":{\"b\":2,\"b\":3}}"),
        "{\"a\":{},\"x\":{\"b\":1},\"\\u0061\":{}}");
    assert_string_equal(without("a.b", "{\"a\":[{\"b\":1}]}"), "{\"a\":[{\"b\":1}]}");
    assert_string_equal(without("a.b", "{\"a\":\"{\\\"b\\\":1}\"}"), "{\"a\":\"{\\\"b\\\":1}\"}");
    assert_string_equal(without("[\"\"]", "{\"\":1,\"b\":2}"), "{\"b\":2}");
    struct line_filter_spec hash = {.hash = "user.ip", .drop = "user.name", .key = key};
    const char *hashed = become(&hash, "{\"user\":{\"name\":\"n\",\"ip\":\"10.0.0.1\"}}", LINE_PASSED);
    assert_int_equal(strlen(hashed), strlen("{\"user\":{\"ip\":\"\"}}") + HASH_TOKEN_LENGTH);
    assert_memory_equal(hashed, "{\"user\":{\"ip\":\"h:", 17);
    struct line_filter_spec subject = {.keep_if = "items[1].c = US", .heartbeat = "meta.beat"};
    become(&subject, "{\"items\":[0,{\"c\":\"US\"}]}", LINE_PASSED);
    become(&subject, "{\"items\":[{\"c\":\"US\"}]}", LINE_FILTERED);
    become(&subject, "{\"meta\":{\"beat\":null}}", LINE_PASSED);
}

/* RFC 4231, test case 2, and a token checked by hand with openssl dgst -sha256 -hmac. */
static void test_the_token_is_hmac_sha256(void **state)
{
    char token[HASH_TOKEN_LENGTH];
    struct hash_key *jefe = hash_key_of(BYTES_LITERAL("Jefe"));
    (void)state;
    hash_key_token(jefe, BYTES_LITERAL("what do ya want for nothing?"), token);
    /* 5bdcc146bf60754e6a042426089575c7, base64url */
    assert_memory_equal(token + 11, "W9zBRr9gdU5qBCQmCJV1xw", 22);
    hash_key_free(&jefe);
}

static void test_conditions(void **state)
{
    (void)state;
    struct line_filter_spec keep = {.keep_if = "c in (US, JP)"};
    become(&keep, "{\"c\":\"US\"}", LINE_PASSED);
    become(&keep, "{\"c\":\"DE\"}", LINE_FILTERED);
    become(&keep, "{\"c\":null}", LINE_FILTERED);
    become(&keep, "{}", LINE_FILTERED);
    become(&keep, "{\"c\":\"DE\",\"c\":\"JP\"}", LINE_PASSED);
    struct line_filter_spec drop = {.drop_if = "u ~ ^http://x/"};
    become(&drop, "{\"u\":\"http:\\/\\/x\\/y\"}", LINE_FILTERED);
    become(&drop, "{\"u\":\"https://x/\"}", LINE_PASSED);
    become(&drop, "{}", LINE_PASSED);
    struct line_filter_spec both = {.keep_if = "n ~ ^4[0-9]{2}$", .drop_if = "n = 404 or bot"};
    become(&both, "{\"n\":400}", LINE_PASSED);
    become(&both, "{\"n\":\"400\"}", LINE_PASSED);
    become(&both, "{\"n\":1404}", LINE_FILTERED);
    become(&both, "{\"n\":404}", LINE_FILTERED);
    become(&both, "{\"n\":400,\"bot\":1}", LINE_FILTERED);
    struct line_filter_spec hashed = {.keep_if = "c = US", .hash = "c", .key = key};
    become(&hashed, "{\"c\":\"US\"}", LINE_PASSED);
}

static void test_heartbeats_pass(void **state)
{
    struct line_filter_spec spec = {
        .keep_if = "c = US", .drop_if = "secret", .heartbeat = "_heartbeat_", .drop = "secret"};
    (void)state;
    assert_string_equal(
        become(&spec, "{\"_heartbeat_\":1,\"secret\":2}", LINE_PASSED), "{\"_heartbeat_\":1}");
}

static void test_what_is_no_object_is_refused(void **state)
{
    static const char *const lines[] = {
        "", "x", "[1]", "{\"a\":1", "{\"a\":1}{\"a\":1}", "{\"a\":\"\xff\"}", "1"};
    struct line_filter_spec spec = {.drop = "a"};
    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        become(&spec, lines[i], LINE_REFUSED);
}

/* JSON allows them; the reader does not (docs/guide/stream-tools.md). */
static void test_numbers_and_levels_without_end_are_refused(void **state)
{
    struct line_filter_spec spec = {.drop = "a"};
    struct buf deep = {0};
    (void)state;
    become(&spec, "{\"n\":18446744073709551616}", LINE_REFUSED);
    become(&spec, "{\"n\":[-9223372036854775809]}", LINE_REFUSED);
    become(&spec, "{\"n\":{\"m\":1e400}}", LINE_REFUSED);
    become(&spec, "{\"n\":18446744073709551615,\"m\":-9223372036854775808,\"d\":1e300}", LINE_PASSED);
    for (int levels = 900; levels <= 1100; levels += 200) {
        buf_clear(&deep);
        buf_append_str(&deep, "{\"n\":");
        for (int i = 0; i < levels; i++)
            buf_append_char(&deep, '[');
        for (int i = 0; i < levels; i++)
            buf_append_char(&deep, ']');
        buf_append_str(&deep, "}");
        buf_append_char(&deep, '\0');
        become(&spec, deep.ptr, levels < 1000 ? LINE_PASSED : LINE_REFUSED);
    }
    buf_free(&deep);
}

/* A pattern that backtracks without end gives up: the line does not go on, and the next is judged as ever. */
static void test_a_costly_pattern(void **state)
{
    struct line_filter_spec spec = {.keep_if = "s ~ ^(a+)+$"};
    char line[300];
    (void)state;
    snprintf(line, sizeof line, "{\"s\":\"%.200sb\"}",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
        "aaaaaaaaaaaaaa");
    become(&spec, line, LINE_UNDECIDED);
    become(&spec, "{\"s\":\"aaa\"}", LINE_PASSED);
}

/* What a shell in Latin-1 makes of a name would match nothing, and a field that is to go would stay. */
static void test_what_is_no_utf8_is_no_setting(void **state)
{
    static const char foreign[] = "caf\xe9";
    const struct line_filter_spec specs[] = {{.drop = foreign}, {.hash = foreign, .key = key},
        {.keep_if = foreign}, {.drop_if = foreign}, {.heartbeat = foreign}};
    struct error error;
    (void)state;
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        assert_null(line_filter_new(&specs[i], &error));
        assert_non_null(strstr(error.text, "UTF-8"));
    }
    assert_string_equal(without("caf\xc3\xa9", "{\"caf\xc3\xa9\":1}"), "{}");
}

/* A text that is long costs a group more of PCRE2's stack, and is judged all the same. */
static void test_a_long_text(void **state)
{
    struct line_filter_spec spec = {.keep_if = "s ~ ^(?:a|(b))*$"};
    struct buf line = {0};
    (void)state;
    buf_append_str(&line, "{\"s\":\"");
    for (int i = 0; i < 3000; i++)
        buf_append_str(&line, "ab");
    buf_append_str(&line, "\"}");
    buf_append_char(&line, '\0');
    become(&spec, line.ptr, LINE_PASSED);
    buf_free(&line);
}

static void test_wrong_specs(void **state)
{
    const struct line_filter_spec specs[] = {{.hash = "x"}, {.drop = "a,,b"}, {.drop = ",a"},
        {.drop = "a , ,b"}, {.drop = "a,"}, {.drop = ","}, {.drop = " "},
        {.drop = "a", .hash = "b,a", .key = key}, {.drop = "a.b", .hash = "a", .key = key}, {.drop = "a,a.b"},
        {.drop = "a[0].b"}, {.drop = "a..b"}, {.heartbeat = "[0]"}, {.keep_if = "x. = a"},
        {.drop_if = "a and"}, {.keep_if = "x ~ a\\C"}, {.keep_if = ""}, {.drop_if = "x ~ \"(a\""}};
    struct error error;
    (void)state;
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        *error.text = '\0';
        assert_null(line_filter_new(&specs[i], &error));
        assert_true(strlen(error.text) > 0);
    }
    assert_non_null(strstr(error.text, "drop_if: column 5: invalid pattern at character 3"));
}

static void write_key(const char *path, const char *text, mode_t mode)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    assert_int_equal(chmod(path, mode), 0);
}

static void test_key_files(void **state)
{
    char path[64];
    struct error error;
    (void)state;
    make_test_file(path, sizeof path);
    write_key(path, "0123456789abcdef\n", 0600);
    struct hash_key *a = hash_key_read(path, &error), *b = hash_key_of(BYTES_LITERAL("0123456789abcdef"));
    assert_non_null(a);
    assert_string_equal(hash_key_id(a), hash_key_id(b));
    hash_key_free(&a);
    hash_key_free(&b);
    assert_null(a);
    chmod(path, 0644);
    assert_null(hash_key_read(path, &error));
    assert_non_null(strstr(error.text, "chmod o="));
    write_key(path, "short\n", 0600);
    assert_null(hash_key_read(path, &error));
    unlink(path);
    assert_null(hash_key_read(path, &error));
    assert_non_null(strstr(error.text, "No such file"));
}

static void test_the_verdict_is_the_last_member(void **state)
{
    (void)state;
    struct mark_reader *marks = mark_reader_new("/nonexistent", NULL);
    struct line_filter_spec spec = {.marks = marks, .marks_field = "url", .drop = "b"};
    assert_string_equal(become(&spec, "{\"a\":{} }", LINE_PASSED), "{\"a\":{},\"marked\":null}");
    assert_string_equal(become(&spec, " { } ", LINE_PASSED), " {\"marked\":null}");
    assert_string_equal(
        become(&spec, "{\"marked\":\"}\", \"b\":1,\"\\u006darked\":[]}", LINE_PASSED), "{\"marked\":null}");
    assert_string_equal(become(&spec, "{\"a\":\"{\",\"b\":1}", LINE_PASSED), "{\"a\":\"{\",\"marked\":null}");
    spec.marks_action = MARKS_DROP;
    assert_string_equal(become(&spec, "{\"marked\":1, \"b\":2} ", LINE_PASSED), "{\"marked\":1} ");
    mark_reader_free(&marks);
}

static int make_key(void **state)
{
    (void)state;
    key = hash_key_of(BYTES_LITERAL("a key for tests, sixteen bytes and more"));
    return 0;
}

static int drop_key(void **state)
{
    (void)state;
    hash_key_free(&key);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_fields_are_dropped),
        cmocka_unit_test(test_no_spelling_of_a_name_escapes), cmocka_unit_test(test_hashing),
        cmocka_unit_test(test_the_token_is_hmac_sha256), cmocka_unit_test(test_conditions),
        cmocka_unit_test(test_heartbeats_pass), cmocka_unit_test(test_what_is_no_object_is_refused),
        cmocka_unit_test(test_numbers_and_levels_without_end_are_refused),
        cmocka_unit_test(test_a_costly_pattern), cmocka_unit_test(test_a_long_text),
        cmocka_unit_test(test_paths), cmocka_unit_test(test_what_is_no_utf8_is_no_setting),
        cmocka_unit_test(test_wrong_specs), cmocka_unit_test(test_the_verdict_is_the_last_member),
        cmocka_unit_test(test_key_files)};
    return cmocka_run_group_tests(tests, make_key, drop_key);
}
