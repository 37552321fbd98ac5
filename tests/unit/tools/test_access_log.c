/* Lines of access logs, and the events that they become. */
#include "tools/put/access_log.h"

#include "support/cm.h"

static void check(const char *line, const char *expected)
{
    struct buf event = {0};
    const char *wrong = access_log_read(bytes_str(line), &event);
    buf_append_char(&event, '\0');
    assert_string_equal(wrong ? wrong : event.ptr, expected);
    buf_free(&event);
}

#define TIME "[24/Mar/2012:09:00:00 +0900]"
#define BEGIN "{\"time\":1332547200,\"host\":\"192.0.2.7\""

static void test_combined(void **state)
{
    (void)state;
    check("192.0.2.7 - ann " TIME " \"GET /a?b=c HTTP/1.1\" 200 512 \"http://example.org/\" \"curl/7.88\"",
        BEGIN
        ",\"user\":\"ann\",\"method\":\"GET\",\"path\":\"/a\",\"query\":\"b=c\",\"protocol\":\"HTTP/1.1\","
        "\"status\":200,\"bytes\":512,\"referrer\":\"http://example.org/\",\"agent\":\"curl/7.88\"}");
}

static void test_common_and_further_fields(void **state)
{
    (void)state;
    check("192.0.2.7 - - " TIME " \"GET / HTTP/1.0\" 304 -",
        BEGIN ",\"method\":\"GET\",\"path\":\"/\",\"protocol\":\"HTTP/1.0\",\"status\":304,\"bytes\":0}");
    check("192.0.2.7 - - " TIME " \"GET / HTTP/1.0\" 200 1 \"-\" \"-\" \"10.0.0.1\" 0.003",
        BEGIN ",\"method\":\"GET\",\"path\":\"/\",\"protocol\":\"HTTP/1.0\",\"status\":200,\"bytes\":1}");
}

static void test_escapes(void **state)
{
    (void)state;
    check("192.0.2.7 - - " TIME
          " \"GET /\\x22\\xC3\\xA9\\\"\\\\\\q HTTP/1.1\" 200 1 \"\\xff\" \"a \\\"b\\\"\"",
        BEGIN ",\"method\":\"GET\",\"path\":\"/\\\"\xC3\xA9\\\"\\\\\\\\q\",\"protocol\":\"HTTP/"
              "1.1\",\"status\":200,"
              "\"bytes\":1,\"referrer\":\"\xEF\xBF\xBD\",\"agent\":\"a \\\"b\\\"\"}");
}

static void test_requests_that_are_none(void **state)
{
    (void)state;
    check("192.0.2.7 - - " TIME " \"\\x16\\x03\" 400 0",
        BEGIN ",\"request\":\"\\u0016\\u0003\",\"status\":400,\"bytes\":0}");
    check("192.0.2.7 - - " TIME " \"-\" 408 0", BEGIN ",\"status\":408,\"bytes\":0}");
    check("192.0.2.7 - - " TIME " \"GET / x HTTP/1.1\" 400 0",
        BEGIN ",\"request\":\"GET / x HTTP/1.1\",\"status\":400,\"bytes\":0}");
}

static void test_times(void **state)
{
    (void)state;
    static const char wrong[] = "expected a time such as [24/Mar/2012:09:00:00 +0900] after the user";
    check("a - - [29/Feb/2012:00:00:00 +0000] \"-\" 200 1",
        "{\"time\":1330473600,\"host\":\"a\",\"status\":200,\"bytes\":1}");
    check("a - - [01/Jan/2013:00:30:00 -0130] \"-\" 200 1",
        "{\"time\":1357005600,\"host\":\"a\",\"status\":200,\"bytes\":1}");
    check("a - - [30/Feb/2012:00:00:00 +0000] \"-\" 200 1", wrong);
    check("a - - [24/Maz/2012:09:00:00 +0900] \"-\" 200 1", wrong);
    check("a - - [24/Mar/2012:09:00:00 +0900 \"-\" 200 1", wrong);
    check("a - - [24/Mar/2012 09:00:00 +0900] \"-\" 200 1", wrong);
    check("a - - [24/Mar", wrong);
}

static void test_other_lines(void **state)
{
    (void)state;
    check("{\"t\":1}", "expected a host, an identity and a user");
    check("", "expected a host, an identity and a user");
    check("a - - " TIME " GET 200 1", "expected a request in quotes after the time");
    check("a - - " TIME " \"GET", "expected a request in quotes after the time");
    check("a - - " TIME " \"GET\\", "expected a request in quotes after the time");
    check("a - - " TIME " \"-\" x 1", "expected a status and a number of bytes after the request");
    check("a - - " TIME " \"-\" 200", "expected a status and a number of bytes after the request");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_combined),
        cmocka_unit_test(test_common_and_further_fields),
        cmocka_unit_test(test_escapes),
        cmocka_unit_test(test_requests_that_are_none),
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_other_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
