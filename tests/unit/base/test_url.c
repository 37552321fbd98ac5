/* url: queries, paths, addresses. */
#include "support/cm.h"

#include "base/url.h"
#include <stdio.h>
#include <stdlib.h>

static struct bytes get(const struct url_query *q, const char *name)
{
    struct bytes value = BYTES_NONE;
    assert_true(url_query_get(q, name, &value));
    return value;
}

static void test_query(void **state)
{
    (void)state;
    struct url_query q;
    struct bytes value;
    assert_int_equal(url_query_parse(BYTES_LITERAL("a=1&&b=two+words%21&c&a=2&d%3D=%00x=y&"), &q), 0);
    assert_int_equal(q.n, 5);
    assert_true(bytes_equal_str(get(&q, "a"), "1"));
    assert_true(bytes_equal_str(get(&q, "b"), "two words!"));
    assert_true(bytes_equal_str(get(&q, "c"), ""));
    assert_true(bytes_equal(get(&q, "d="), BYTES_LITERAL("\0x=y")));
    assert_false(url_query_get(&q, "e", &value));
    url_query_free(&q);
    assert_int_equal(url_query_parse(BYTES_NONE, &q), 0);
    assert_int_equal(q.n, 0);
    url_query_free(&q);
}

static void test_query_bad_escapes(void **state)
{
    (void)state;
    static const char *const bad[] = {"a=%", "a=%4", "a=%4g", "%=1", "a=1&b=%zz", "a=%+1"};
    struct url_query q;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(url_query_parse(bytes_str(bad[i]), &q), -1);
}

static void test_query_bounds(void **state)
{
    (void)state;
    struct buf text = {0};
    struct url_query q;
    for (int i = 0; i < URL_PARAMS_MAX; i++)
        buf_append_str(&text, "a&");
    assert_int_equal(url_query_parse(buf_bytes(&text), &q), 0);
    assert_int_equal(q.n, URL_PARAMS_MAX);
    url_query_free(&q);
    buf_append_str(&text, "a");
    assert_int_equal(url_query_parse(buf_bytes(&text), &q), -1);
    buf_free(&text);
}

static void test_every_byte_survives(void **state)
{
    (void)state;
    char all[256];
    struct buf encoded = {0}, decoded = {0};
    for (int i = 0; i < 256; i++)
        all[i] = (char)i;
    url_encode(bytes_of(all, 256), &encoded);
    for (size_t i = 0; i < encoded.len; i++)
        assert_true(encoded.ptr[i] > ' ' && encoded.ptr[i] < 127 && !strchr("&+=?#/", encoded.ptr[i]));
    assert_int_equal(url_decode(buf_bytes(&encoded), &decoded), 0);
    assert_true(bytes_equal(buf_bytes(&decoded), bytes_of(all, 256)));
    struct url_query q;
    assert_int_equal(url_query_parse(buf_bytes(&encoded), &q), 0);
    assert_true(bytes_equal(q.params[0].name, bytes_of(all, 256)));
    url_query_free(&q);
    buf_free(&encoded);
    buf_free(&decoded);
}

static void test_path(void **state)
{
    (void)state;
    struct buf out = {0};
    assert_int_equal(url_decode(BYTES_LITERAL("/a+b%20c"), &out), 0);
    assert_true(bytes_equal_str(buf_bytes(&out), "/a+b c"));
    assert_int_equal(url_decode(BYTES_LITERAL("/a%2"), &out), -1);
    buf_free(&out);
}

static void test_addresses(void **state)
{
    (void)state;
    static const struct {
        const char *text, *host;
        int port;
    } good[] = {
        {"http://127.0.0.1:8080", "127.0.0.1", 8080},
        {"localhost:1", "localhost", 1},
        {"localhost", "localhost", 99},
        {"http://[::1]:65535", "::1", 65535},
        {"[fe80::1%eth]", "fe80::1%eth", 99},
        {"host:0", "host", 0},
    };
    static const char *const bad[] = {"", "http://", ":80", "host:", "host:65536", "host:-1", "host:8x",
        "host:80/", "http://host/path", "https://host", "[::1", "[]:1", "::1", "[::1]80", "a b:1",
        "unix:", "ho\xffst:1"};
    struct url_address a;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(url_address_parse(good[i].text, 99, &a), 0);
        assert_false(a.is_unix);
        assert_string_equal(a.host, good[i].host);
        assert_int_equal(a.port, good[i].port);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (url_address_parse(bad[i], 99, &a) != -1)
            fail_msg("taken: %s", bad[i]);
    }
}

static void test_unix_addresses(void **state)
{
    (void)state;
    struct url_address a;
    char text[300];
    assert_int_equal(url_address_parse("unix:/run/m.sock", 1, &a), 0);
    assert_true(a.is_unix);
    assert_string_equal(a.host, "/run/m.sock");
    memset(text, 'x', sizeof text);
    memcpy(text, "unix:", 5);
    text[5 + 107] = '\0';
    assert_int_equal(url_address_parse(text, 1, &a), 0);
    text[5 + 107] = 'x';
    text[5 + 108] = '\0';
    assert_int_equal(url_address_parse(text, 1, &a), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_query),
        cmocka_unit_test(test_query_bad_escapes),
        cmocka_unit_test(test_query_bounds),
        cmocka_unit_test(test_every_byte_survives),
        cmocka_unit_test(test_path),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_unix_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
