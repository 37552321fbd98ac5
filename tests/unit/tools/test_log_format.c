/* Lines of access logs in the formats of Apache and nginx, and the events that they become. */
#include "tools/put/log_format.h"

#include "base/rfc3339.h"
#include "support/cm.h"

#include <stdio.h>

static const char *format = "combined";

static void check(const char *line, const char *expected)
{
    struct buf event = {0};
    struct error error = {.text = ""};
    bool is_changed;
    struct log_format *f = log_format_new(format, &error);
    const char *wrong = f ? log_format_read(f, bytes_str(line), &event, &is_changed) : error.text;
    if (!wrong)
        buf_append_char(&event, '\0');
    assert_string_equal(wrong ? wrong : event.ptr, expected);
    buf_free(&event);
    log_format_free(&f);
}

static void check_wrong(const char *line, const char *words)
{
    struct buf event = {0};
    struct error error = {.text = ""};
    bool is_changed;
    struct log_format *f = log_format_new(format, &error);
    const char *wrong = f ? log_format_read(f, bytes_str(line), &event, &is_changed) : error.text;
    if (!wrong || !strstr(wrong, words))
        fail_msg("%s: %s, not %s", line, wrong ? wrong : "taken", words);
    buf_free(&event);
    log_format_free(&f);
}

#define TIME "[24/Mar/2012:09:00:00 +0900]"
#define BEGIN "{\"time\":1332547200,\"host\":\"192.0.2.7\""
#define ANONYMOUS ",\"user\":null"
#define BARE ",\"referrer\":null,\"agent\":null}" /* "-", or absent in a line of the format "common" */

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
    check("192.0.2.7 - - " TIME " \"GET / HTTP/1.0\" 304 -", BEGIN ANONYMOUS
        ",\"method\":\"GET\",\"path\":\"/\",\"protocol\":\"HTTP/1.0\",\"status\":304,\"bytes\":0" BARE);
    check("192.0.2.7 - - " TIME " \"GET / HTTP/1.0\" 200 1 \"-\" \"-\" \"10.0.0.1\" 0.003", BEGIN ANONYMOUS
        ",\"method\":\"GET\",\"path\":\"/\",\"protocol\":\"HTTP/1.0\",\"status\":200,\"bytes\":1" BARE);
}

static void test_escapes(void **state)
{
    (void)state;
    check("192.0.2.7 - - " TIME
          " \"GET /\\x22\\xC3\\xA9\\\"\\\\\\q HTTP/1.1\" 200 1 \"\\xff\" \"a \\\"b\\\"\"",
        BEGIN ANONYMOUS ",\"method\":\"GET\",\"path\":\"/\\\"\xC3\xA9\\\"\\\\\\\\q\",\"protocol\":\"HTTP/"
                        "1.1\",\"status\":200,"
                        "\"bytes\":1,\"referrer\":\"\xEF\xBF\xBD\",\"agent\":\"a \\\"b\\\"\"}");
}

static void test_requests_that_are_none(void **state)
{
    (void)state;
    check("192.0.2.7 - - " TIME " \"\\x16\\x03\" 400 0",
        BEGIN ANONYMOUS ",\"request\":\"\\u0016\\u0003\",\"status\":400,\"bytes\":0" BARE);
    check("192.0.2.7 - - " TIME " \"-\" 408 0", BEGIN ANONYMOUS ",\"status\":408,\"bytes\":0" BARE);
    check("192.0.2.7 - - " TIME " \"GET / x HTTP/1.1\" 400 0",
        BEGIN ANONYMOUS ",\"request\":\"GET / x HTTP/1.1\",\"status\":400,\"bytes\":0" BARE);
}

static void test_times(void **state)
{
    (void)state;
    static const char wrong[] = "expected a time such as [24/Mar/2012:09:00:00 +0900] (%t), found `";
    check("a - - [29/Feb/2012:00:00:00 +0000] \"-\" 200 1",
        "{\"time\":1330473600,\"host\":\"a\"" ANONYMOUS ",\"status\":200,\"bytes\":1" BARE);
    check("a - - [01/Jan/2013:00:30:00 -0130] \"-\" 200 1",
        "{\"time\":1357005600,\"host\":\"a\"" ANONYMOUS ",\"status\":200,\"bytes\":1" BARE);
    check_wrong("a - - [30/Feb/2012:00:00:00 +0000] \"-\" 200 1", wrong);
    check_wrong("a - - [24/Maz/2012:09:00:00 +0900] \"-\" 200 1", wrong);
    check_wrong("a - - [24/Mar/2012:09:00:00 +0900 \"-\" 200 1", wrong);
    check_wrong("a - - [24/Mar/2012 09:00:00 +0900] \"-\" 200 1", wrong);
    check_wrong("a - - [24/Mar", wrong);
}

static void test_other_lines(void **state)
{
    (void)state;
    check_wrong(
        "{\"t\":1}", "expected a word (%l), but the line ends after `{\"t\":1}`; use no --format for JSON, ");
    check_wrong("hello", "expected a word (%l), but the line ends after `hello`; use no --format for JSON, "
                         "--format=csv for CSV, and --log-format for another log");
    check_wrong("", "expected an address (%h), but the line is empty; ");
    check_wrong("a - - " TIME " GET 200 1", "expected a request in quotes (%r), found `GET 200 1`");
    check_wrong("a - - " TIME " \"GET", "expected a request in quotes (%r), found `GET`");
    check_wrong("a - - " TIME " \"GET\\", "expected a request in quotes (%r)");
    check_wrong("a - - " TIME " \"-\" x 1", "expected a number (%>s), found `x 1`; use no --format for JSON");
    check_wrong("a - - " TIME " \"-\" 200", "expected a number (%b), but the line ends after `");
    check_wrong("a - - " TIME " \"-\" 0.003 200 1", "expected a number (%>s), found `0.003 200 1`");
    check_wrong("a - - " TIME " \"-\" 200 1 0.003 \"-\" \"-\"", "found `0.003 \"-\" \"-\"`");
}

#define REST TIME " \"-\" 200 1 \"-\" \"-\""
#define STATUS "\"status\":200,\"bytes\":1" BARE
#define WITH_USER(USER) BEGIN ",\"user\":\"" USER "\"," STATUS

/* A client chooses the name. */
static void test_users(void **state)
{
    (void)state;
    check("192.0.2.7 - bob smith " REST, WITH_USER("bob smith"));
    check("192.0.2.7 - bob [ " REST, WITH_USER("bob ["));
    check("192.0.2.7 -  [ " REST, WITH_USER("["));
    check("192.0.2.7 - [01/Jan/2013:00:30:00 -0130] " REST, WITH_USER("[01/Jan/2013:00:30:00 -0130]"));
    check("192.0.2.7 - x [01/Jan/2013:00:30:00 -0130] \\x22GET / HTTP/1.1\\x22 200 5 " REST,
        WITH_USER("x [01/Jan/2013:00:30:00 -0130] \\\"GET / HTTP/1.1\\\" 200 5"));
    check("192.0.2.7 - - - " REST, WITH_USER("- -"));
    check("192.0.2.7 - \"\" " REST, BEGIN ANONYMOUS "," STATUS);
    check("192.0.2.7 -  " REST, BEGIN ANONYMOUS "," STATUS);
    check("192.0.2.7  -  ann \t " REST, WITH_USER("ann"));
    check("192.0.2.7 frank ann " REST, BEGIN ",\"ident\":\"frank\",\"user\":\"ann\"," STATUS);
    check("192.0.2.7 - a\\x5Cb\\n " REST, WITH_USER("a\\\\b\\n"));
}

static void test_addresses_and_hosts(void **state)
{
    (void)state;
    static const char with_host[] =
        "{\"time\":1332547200,\"vhost\":\"shop.example\",\"port\":443,\"host\":\"192.0.2.7\"" ANONYMOUS
        "," STATUS;
    check("192.0.2.7, 10.0.0.1,  10.0.0.2 - - " REST, BEGIN ANONYMOUS "," STATUS);
    check("192.0.2.7,10.0.0.1 - - " REST, BEGIN ANONYMOUS "," STATUS);
    check("\"192.0.2.7, 10.0.0.1\" - - " REST, BEGIN ANONYMOUS "," STATUS);
    check("\"192.0.2.7\" - - " REST, BEGIN ANONYMOUS "," STATUS);
    check("unknown, 192.0.2.7 - - " REST, BEGIN ANONYMOUS "," STATUS);
    check("-, , _hidden, 192.0.2.7:4711, 203.0.113.9 - - " REST, BEGIN ANONYMOUS "," STATUS);
    check("::ffff:192.0.2.7 - - " REST, BEGIN ANONYMOUS "," STATUS);
    check("unknown, _hidden - - " REST, "{\"time\":1332547200,\"host\":\"unknown\"" ANONYMOUS "," STATUS);
    check_wrong("shop.example:443 192.0.2.7 - - " REST, "--format=vhost_combined");
    check_wrong("Nov 28 10:00:00 web1 192.0.2.7 - - " REST, "`Nov` is not the client");
    check_wrong("web-5c nginx 192.0.2.7 - ann " REST, "`web-5c` is not the client");
    check_wrong("shop.example 192.0.2.7 - ann " REST, "--log-format");
    format = "vhost_combined";
    check("shop.example:443 192.0.2.7 - - " REST, with_host);
    check("shop.example 192.0.2.7 - ann " REST,
        "{\"time\":1332547200,\"vhost\":\"shop.example\",\"host\":\"192.0.2.7\",\"user\":\"ann\"," STATUS);
    check("[2001:db8::1]:8080 192.0.2.7 - - " REST,
        "{\"time\":1332547200,\"vhost\":\"[2001:db8::1]\",\"port\":8080,\"host\":\"192.0.2.7\"" ANONYMOUS
        "," STATUS);
    check_wrong("192.0.2.7 - - " REST, "`192.0.2.7` is not a virtual host: use --format=combined");
    check_wrong(
        "192.0.2.7 - - " TIME " \"-\" 200 1", "`192.0.2.7` is not a virtual host: use --format=combined");
    check_wrong("{}", "expected ");
    check_wrong("Nov 28 10:00:00 web1 192.0.2.7 - ann " REST, "`28` is not the client");
    check_wrong("192.0.2.7 - bob smith " REST, "`192.0.2.7` is not a virtual host: use --format=combined");
    check_wrong("shop.example web1 192.0.2.7 - ann " REST, "`web1` is not the client");
    format = "combined";
}

static void test_prefixes(void **state)
{
    (void)state;
    static const char *const prefixes[] = {"Nov 28 10:00:00 web1 nginx: ",
        "<190>Nov  8 10:00:00 web1 nginx: ", "<190>Nov 28 10:00:00 nginx[12]: ",
        "2026-11-28T10:00:00.123456+00:00 web1 nginx[1]: ", "<190>1 2026-11-28T10:00:00Z web1 nginx 12 - - ",
        "2026-11-28T10:00:00.000000001Z stdout F ", "nginx-1  | ", "2026-11-28T10:00:00.1Z ",
        "web-1  | 2026-11-28T10:00:00.123456789Z ", "web-1  | 2026-11-28T10:00:00+01:00 ",
        "web.1.x7y@node-1    | ", "[pod/web-5c/nginx] ", "Nov 28 10:00:00.123456 web1 nginx[1]: ",
        "Sat 2026-11-28 10:00:00 UTC web1 nginx[1]: ", "1795860001.123456 web1 nginx[1]: ",
        "Nov 28 10:00:00 web1 daemon.info nginx: ", "Sat Nov 28 10:00:00 2026 daemon.info nginx: "};
    char line[400];
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        snprintf(line, sizeof line, "%s192.0.2.7 - bob smith " REST, prefixes[i]);
        check(line, WITH_USER("bob smith"));
    }
    check("{\"log\":\"192.0.2.7 - ann [24/Mar/2012:09:00:00 +0900] \\\"-\\\" 200 1 \\\"-\\\" "
          "\\\"-\\\"\\n\",\"stream\":\"stdout\"}",
        WITH_USER("ann"));
}

static void test_directives(void **state)
{
    (void)state;
    format = "%h %l %u %t \\\"%r\\\" %!200,304>s %b %D %T \"%{Referer}i\" \"%{X-Request-Id}o\"";
    check("192.0.2.7 - - " TIME " \"GET /a HTTP/2.0\" 200 5 1200 0 \"http://r/\" \"i d\"",
        BEGIN ANONYMOUS ",\"method\":\"GET\",\"path\":\"/a\",\"protocol\":\"HTTP/"
                        "2.0\",\"status\":200,\"bytes\":5,\"duration_us\":1200,"
                        "\"duration\":0,\"referrer\":\"http://r/\",\"x_request_id\":\"i d\"}");
    check_wrong("192.0.2.7 - - " TIME " \"-\" 200 5 1 0 \"-\" \"-\" more",
        "expected the end of the line, found `more`; ");
    format = "%{%Y-%m-%d %H:%M:%S}t %u|%a";
    check(
        "2012-03-24 00:00:00 a b|192.0.2.7", "{\"time\":1332547200,\"user\":\"a b\",\"host\":\"192.0.2.7\"}");
    format = "%h\t%r\t%u\t%{sec}t";
    check("h\tGET /a HTTP/1.1\tb c\t1332547200",
        "{\"time\":1332547200,\"host\":\"h\",\"method\":\"GET\",\"path\":\"/a\","
        "\"protocol\":\"HTTP/1.1\",\"user\":\"b c\"}");
    format = "$msec $upstream_addr $upstream_status $scheme://$http_host$request_uri $status";
    check("1332547200.1 10.0.0.1:80, 10.0.0.2:80 : 10.0.0.3:80 502, 502 : 200 "
          "https://shop.example:8443/a?b=c/d 200",
        "{\"time\":1332547200,\"upstream_addr\":\"10.0.0.1:80, 10.0.0.2:80 : "
        "10.0.0.3:80\",\"upstream_status\":\"502, 502 : 200\","
        "\"scheme\":\"https\",\"vhost\":\"shop.example:8443\",\"path\":\"/a\",\"query\":\"b=c/"
        "d\",\"status\":200}");
    format = "%{sec}t %v%U%q";
    check("1332547200 shop.example/a?b",
        "{\"time\":1332547200,\"vhost\":\"shop.example\",\"path\":\"/a\",\"query\":\"b\"}");
    format = "%{usec}t %h";
    check("1332547200123456 h", "{\"time\":1332547200,\"host\":\"h\"}");
    format = "%{msec}t %h";
    check("1332547200123 h", "{\"time\":1332547200,\"host\":\"h\"}");
    format = "%t %T %{s}T %{ms}T %{us}T %D %b %{Foo}i %{c}p %k";
    check(TIME " 1 1 1500 1500001 1500001 5 x 80 3", "{\"time\":1332547200,\"duration\":1,\"duration_ms\":"
                                                     "1500,\"duration_us\":1500001,"
                                                     "\"bytes\":5,\"foo\":\"x\",\"port\":80}");
    format = "%{sec}t %m %U %q %h %>s %s";
    check("1332547200 GET /a ?x=1 h 200 301", "{\"time\":1332547200,\"method\":\"GET\",\"path\":\"/"
                                              "a\",\"query\":\"x=1\",\"host\":\"h\",\"status\":200}");
    check("1332547200 GET /a x=1 h 200 301", "{\"time\":1332547200,\"method\":\"GET\",\"path\":\"/"
                                             "a\",\"query\":\"x=1\",\"host\":\"h\",\"status\":200}");
    check("1332547200 GET /a  h 200 301",
        "{\"time\":1332547200,\"method\":\"GET\",\"path\":\"/a\",\"host\":\"h\",\"status\":200}");
    format = "combined";
}

static void test_variables(void **state)
{
    (void)state;
    format = "'$remote_addr - $remote_user [$time_local] \"$request\" '\n    '$status $body_bytes_sent "
             "\"$http_referer\" '"
             "'\"$http_user_agent\" \"$http_x_forwarded_for\" $request_time ${upstream_addr}'";
    check("192.0.2.7 - bob smith [24/Mar/2012:09:00:00 +0900] \"GET /a?b HTTP/1.1\" 404 7 \"-\" \"x \\x22y\" "
          "\"203.0.113.9, 10.0.0.1\" 0.003 10.0.0.5:80, 10.0.0.6:80",
        BEGIN
        ",\"user\":\"bob "
        "smith\",\"method\":\"GET\",\"path\":\"/a\",\"query\":\"b\",\"protocol\":\"HTTP/1.1\",\"status\":404,"
        "\"bytes\":7,\"referrer\":null,\"agent\":\"x "
        "\\\"y\",\"forwarded_for\":\"203.0.113.9\",\"duration\":0.003,"
        "\"upstream_addr\":\"10.0.0.5:80, 10.0.0.6:80\"}");
    format = "$time_iso8601\t$host\t$request_uri\t$http_cookie";
    check("2012-03-24T09:00:00+09:00\tshop.example\t/a?b\tc=d e",
        "{\"time\":1332547200,\"vhost\":\"shop.example\",\"path\":\"/a\",\"query\":\"b\",\"cookie\":\"c=d "
        "e\"}");
    format = "$msec $status";
    check("1332547200.123 200", "{\"time\":1332547200,\"status\":200}");
    format = "combined";
}

static void test_targets_in_parts(void **state)
{
    (void)state;
    static const char *const formats[] = {"%t \"%m %U%q %H\" %>s",
        "[$time_local] \"$request_method $uri$is_args$args $server_protocol\" $status",
        "[$time_local] \"$request_method $uri$is_args$query_string $server_protocol\" $status"};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        format = formats[i];
        check(TIME " \"GET /a?b=c HTTP/1.1\" 200", "{\"time\":1332547200,\"method\":\"GET\",\"path\":\"/"
                                                   "a\",\"query\":\"b=c\",\"protocol\":\"HTTP/1.1\","
                                                   "\"status\":200}");
        check(TIME " \"GET /a b HTTP/1.1\" 200", "{\"time\":1332547200,\"method\":\"GET\",\"path\":\"/a "
                                                 "b\",\"protocol\":\"HTTP/1.1\",\"status\":200}");
    }
    format = "$msec $uri$is_args$args_x";
    check_wrong("", "nothing separates `$uri`");
    format = "combined";
}

static void test_lines_of_a_configuration(void **state)
{
    (void)state;
    static const char *const formats[] = {"%h %t \"%r\" %>s", "%h %t \\\"%r\\\" %>s", "'%h %t \"%r\" %>s'",
        "'$remote_addr [$time_local] '\n  '\"$request\" $status'",
        "$remote_addr [$time_local] \"$request\" $status"};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        format = formats[i];
        check("192.0.2.7 " TIME " \"GET /it's HTTP/1.1\" 200",
            BEGIN ",\"method\":\"GET\",\"path\":\"/it's\",\"protocol\":\"HTTP/1.1\",\"status\":200}");
    }
    format = "\"%h\" \"%{sec}t\"";
    check("\"192.0.2.7\" \"1332547200\"", BEGIN "}");
    format = "combined";
}

static void test_whole_statements(void **state)
{
    (void)state;
    static const char *const formats[] = {
        "log_format main '$remote_addr [$time_local] \"$request\" $status';",
        "\n    log_format  main  '$remote_addr [$time_local] '\r\n        '\"$request\" '  # the request\n"
        "                      '$status';\n",
        "log_format main escape=default \"$remote_addr [$time_local] \" '\"$request\" $status' ;\n# end\n",
        "log_format main $remote_addr' [$time_local] \"$request\" '$status;",
        "LogFormat \"%h %t \\\"%r\\\" %>s\" common", "  LogFormat  \"%h %t \\\"%r\\\" %>s\"\n"};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        format = formats[i];
        check("192.0.2.7 " TIME " \"GET /it's HTTP/1.1\" 200",
            BEGIN ",\"method\":\"GET\",\"path\":\"/it's\",\"protocol\":\"HTTP/1.1\",\"status\":200}");
    }
    format = "log_format clicks escape=json '{\"t\":$msec}';";
    check_wrong("", "the lines of a format with escape=json are events: omit --log-format");
    format = "log_format a '$msec $remote_addr'; log_format b '$msec';";
    check_wrong("", "text follows the format: give one statement only");
    format = "log_format main '  [] \"\" ';"; /* the shell has removed the variables */
    check_wrong("", "--log-format=\"$(cat FILE)\"");
    format = "combined";
}

static void test_times_in_pieces(void **state)
{
    (void)state;
    static const char *const formats[] = {"%h [%{%d/%b/%Y:%T}t.%{msec_frac}t %{%z}t] %>s",
        "%h [%{%d/%b/%Y}t:%{%T}t.%{usec_frac}t %{%z}t] %>s %{%H}t",
        "%h [%{begin:%d/%b/%Y:%T}t.%{end:msec_frac}t %{%z}t] %>s"};
    static const char *const lines[] = {"192.0.2.7 [24/Mar/2012:09:00:00.123 +0900] 200",
        "192.0.2.7 [24/Mar/2012:09:00:00.123456 +0900] 200 17",
        "192.0.2.7 [24/Mar/2012:09:00:00.123 +0900] 200"};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        format = formats[i];
        check(lines[i], BEGIN ",\"status\":200}");
    }
    format = formats[0];
    check_wrong("192.0.2.7 [24/Mar/2012:09:00:00.123 x] 200", "(%{%z}t)");
    check_wrong("192.0.2.7 [24/Mar/2012:09:00:00.x +0900] 200", "(%{msec_frac}t)");
    format = "%{%Y-%m-%d}t %{%H:%M}t %h";
    check("2012-03-24 00:00 192.0.2.7", BEGIN "}");
    assert_true(rfc3339_use_zone("Europe/Berlin"));
    check("2012-03-24 01:00 192.0.2.7", BEGIN "}");
    check_wrong("2012-03-25 02:30 192.0.2.7", "the clocks of --time-zone skip the time 2012-03-25 02:30");
    assert_true(rfc3339_use_zone("UTC"));
    format = "%{%Q}t";
    check_wrong("", "`%{%Q}t` is not a directive");
    format = "combined";
}

static void test_formats_that_are_none(void **state)
{
    (void)state;
    format = "%h %u";
    check_wrong("", "the format has no time");
    format = "";
    check_wrong("", "the text has no directive");
    format = "%t %";
    check_wrong("", "`%` is not a directive");
    format = "%Q %t";
    check_wrong("", "`%Q` is not a directive");
    format = "%t %{min}T\"";
    check_wrong("", "`%{min}T` is not a directive");
    format = "$time_local$args$uri";
    check_wrong("", "nothing separates `$args`");
    format = "$remote_adr [$time_local]";
    check_wrong(
        "", "unknown variable $remote_adr: did you mean $remote_addr? To keep a variable of your own");
    format = "[$time_local] ${http_user_agnet}";
    check_wrong("", "unknown variable $http_user_agnet: did you mean $http_user_agent?");
    format = "$time_iso8601 $hots $request_id $http_x_forwarded_port $country";
    check("2012-03-24T00:00:00Z a b c d", "{\"time\":1332547200,\"hots\":\"a\",\"request_id\":\"b\",\"x_"
                                          "forwarded_port\":\"c\",\"country\":\"d\"}");
    format = "combined";
}

/* Reads `head`, and then `piece` repeated up to `length` bytes. Checks the reason, if any is given, and returns the work. */
static uint64_t steps_of(const char *head, const char *piece, size_t length, const char *words)
{
    struct buf line = {0}, event = {0};
    struct error error = {.text = ""};
    bool is_changed;
    struct log_format *f = log_format_new(format, &error);
    assert_non_null(f);
    buf_append_str(&line, head);
    while (line.len < length)
        buf_append_str(&line, piece);
    const char *wrong = log_format_read(f, buf_bytes(&line), &event, &is_changed);
    if (words && (!wrong || !strstr(wrong, words)))
        fail_msg("%s: %s, not %s", head, wrong ? wrong : "taken", words);
    uint64_t steps = log_format_steps(f);
    buf_free(&line);
    buf_free(&event);
    log_format_free(&f);
    return steps;
}

static void test_long_lines(void **state)
{
    (void)state;
    steps_of("h - ", "x", 200000, "expected a time");
    steps_of("a b ", "x", 1 << 20, "expected a time");
    format = "vhost_combined";
    steps_of("", "x", 200000, "expected an address (%h)");
    format = "combined";
}

/* Each byte is looked at a few times. */
static void test_missing_literals(void **state)
{
    (void)state;
    format = "$remote_addr - $remote_user [$time_local] $status ($body_bytes_sent)";
    check_wrong(
        "this fits nothing", "expected `- ` and a text ($remote_user), found `fits nothing`; --log-format");
    check_wrong("a - b " TIME " 200 5", "expected `(` and a number ($body_bytes_sent), found `5`");
    check_wrong("a - b " TIME " 200 (5", "expected `)` at the end, but the line ends after `");
    check_wrong("a - b " TIME " 200 (x)", "expected a number ($body_bytes_sent), found `x)`");
    format = "$msec \"$http_user_agent\" $request_time";
    check_wrong("1332547200.5 \"curl\"",
        "expected a number ($request_time), but the line ends after `1332547200.5 \"curl\"`");
    format = "<$remote_addr> $msec";
    check_wrong("a", "expected `<` and an address ($remote_addr), found `a`");
    format = "combined";
}

static void test_linear_work(void **state)
{
    (void)state;
    static const char *const heads[] = {"1.1.1.1,", "h - a", "h - ", "h - a [", "h - a [24/Mar", ""};
    static const char *const pieces[] = {" ", "x", " [", ", ", "\"", " \"", "]"};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
        for (size_t k = 0; k < sizeof pieces / sizeof *pieces; k++)
            assert_in_range(
                steps_of(heads[i], pieces[k], 1 << 20, NULL), 1, 2 * LOG_FORMAT_STEPS_MAX(1 << 20));
    assert_in_range(steps_of("1.1.1.1,", " ", 1 << 20, NULL), 1, 6 << 20);
    assert_in_range(steps_of("h - a", " ", 1 << 20, NULL), 1, 6 << 20);
}

/* In these formats each field may end at any blank; the steps stay within the limit. */
static void test_bounded_work(void **state)
{
    (void)state;
    static const char *const formats[] = {"%{a}i %{b}i %{c}i %{d}i %t", "%h %u %f %R %U %t",
        "%h %u %f %R %U %{%d/%b/%Y:%T}t", "%u  %t", "%u x  y%t"};
    static const char *const pieces[] = {"x ", "  ", "a", "x  ", "a x "};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        for (size_t k = 0; k < sizeof pieces / sizeof *pieces; k++)
            for (size_t length = 4000; length <= 1 << 20; length <<= 4) {
                format = formats[i];
                uint64_t steps = steps_of("h ", pieces[k], length, i > 2 ? NULL : " ");
                /* A line is matched with and without a prefix. One more match may begin below the limit. */
                assert_in_range(steps, length / 2, 2 * LOG_FORMAT_STEPS_MAX(length) + 16 * length);
            }
    format = formats[0];
    steps_of("h ", "x ", 8192, "in too many ways");
    format = "combined";
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
        cmocka_unit_test(test_users),
        cmocka_unit_test(test_addresses_and_hosts),
        cmocka_unit_test(test_prefixes),
        cmocka_unit_test(test_directives),
        cmocka_unit_test(test_variables),
        cmocka_unit_test(test_targets_in_parts),
        cmocka_unit_test(test_lines_of_a_configuration),
        cmocka_unit_test(test_whole_statements),
        cmocka_unit_test(test_times_in_pieces),
        cmocka_unit_test(test_formats_that_are_none),
        cmocka_unit_test(test_long_lines),
        cmocka_unit_test(test_missing_literals),
        cmocka_unit_test(test_linear_work),
        cmocka_unit_test(test_bounded_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
