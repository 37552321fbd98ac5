#include "support/cm.h"
#include "streams/archive/event_time.h"
#include "counts/event_seconds.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST INT64_C(1000000000000000)

static bool told(const char *field, const char *line, int64_t *seconds)
{
    struct event_time *e = event_time_new(field, 1);
    bool tells = event_time_of(e, bytes_str(line), seconds);
    event_time_free(&e);
    return tells;
}

static void test_what_a_line_tells(void **state)
{
    static const struct {
        const char *field, *line;
        int64_t seconds; /* -1: nothing */
    } cases[] = {
        {"t", "{\"t\":5}", 5},
        {"t", "{ \"a\": \"x\", \"t\" : 1331923247 , \"b\": 1 }", 1331923247},
        {"time", "{\"a\":\"........................................\",\"time\":17}", 17},
        {"t", "{\"t\":1,\"t\":2}", 2},
        {"t", "{\"t\":1,\"\\u0074\":2}", 2},
        {"t", "{\"\\u0074\":2}", 2},
        {"time", "{\"time\":1,\"tim\\u0065\":2}", 2},
        {"t", "{\"a\":{\"t\":1},\"t\":2}", 2},
        {"t", "{\"t\":2,\"a\":{\"t\":1}}", 2},
        {"t", "{\"a\":{\"t\":1}}", -1},
        {"t", "{\"a\":\"t\",\"b\":1}", -1},
        {"t", "{\"a\":[\"t\"],\"b\":1}", -1},
        {"t", "{\"a\\\"t\":3}", -1},
        {"t", "{\"a\":\"\\\"t\\\":3\"}", -1},
        {"t", "{\"a\":\"\\\\\",\"t\":3}", 3},
        {"t", "{\"t\":1.9}", 1},
        {"t", "{\"t\":0.5 }", 0},
        {"t", "{\"t\":1360281600.999}", 1360281600},
        {"t", "{\"t\":1360281600.99999999999}", 1360281601}, /* the nearest double */
        {"t", "{\"t\":1.}", -1},
        {"t", "{\"t\":.5}", -1},
        {"t", "{\"t\":01.5}", -1},
        {"t", "{\"t\":1.5.5}", -1},
        {"time", "{\"time\":1,\"tame\":2}", 1},
        {"t", "{\"a\":{\"t\":1,\"b\":2}}", -1},
        {"t", "{\"t\":1,\"a\":\"}\"}", 1},
        {"t", "{\"t\":1,\"a\":[\"t\",\"\\u00e9\"]}", 1},
        {"t", "{\"t\":1,\"a\":\"\\u007", -1},
        {"t", "{\"t\":-1}", -1},
        {"t", "{\"t\":1e3}", 1000},
        {"t", "{\"t\":\"5\"}", -1},
        {"t", "{\"t\":null}", -1},
        {"t", "{\"t\":1000000000000000}", MOST},
        {"t", "{\"t\":1000000000000001}", -1},
        {"t", "{\"t\":99999999999999999999}", -1},
        {"t", "{\"t\":2e15}", -1},
        {"a\"b", "{\"a\\\"b\":7}", 7},
        {"a/b", "{\"a\\/b\":7}", 7},
        {"\xc3\xa9", "{\"\\u00e9\":7}", 7},
        {"t", "", -1},
        {"t", "{}", -1},
        {"t", "no json", -1},
        {"t", "[{\"t\":1}]", -1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t seconds = -1;
        bool tells = told(cases[i].field, cases[i].line, &seconds);
        if (tells != (cases[i].seconds >= 0) || seconds != cases[i].seconds)
            fail_msg("%s: %lld", cases[i].line, (long long)seconds);
    }
}

static void test_units_and_text(void **state)
{
    static const struct {
        const char *unit, *time;
        int64_t seconds; /* -1: nothing */
    } cases[] = {
        {"ms", "1360281600999", 1360281600},
        {"ms", "1360281600999.5", 1360281600},
        {"ms", "99999999999999", 99999999999},
        {"us", "1360281600999999", 1360281600},
        {"us", "1360281600999999.5", 1360281600},
        {"ns", "1360281600999999999", 1360281600},
        {"ns", "999999999", 0},
        {"ns", "9223372036854775807", 9223372036},
        {"ns", "9223372036854775808", -1},
        {"ns", "9999999999999999999", -1},
        {"ns", "-1000000001", -1},
        {"ns", "1.3602816e18", 1360281600},
        {"s", "1e300", -1},
        {"s", "-1e300", -1},
        {"s", "\"2013-02-08T00:00:00Z\"", 1360281600},
        {"ns", "\"2013-02-08T01:00:00.999+01:00\"", 1360281600},
        {"ms", "\"2013-02-08T00:00:0\\u0030Z\"", 1360281600},
        {"s", "\"2013-02-08T00:00:00\"", -1},
        {"s", "\"1969-12-31T23:59:59Z\"", -1},
        {"s", "\"1360281600\"", -1},
        {"s", "true", -1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[100];
        int64_t seconds = -1;
        struct event_time *e = event_time_new("t", event_seconds_units(cases[i].unit));
        snprintf(line, sizeof line, "{\"a\":1,\"t\":%s}", cases[i].time);
        bool tells = event_time_of(e, bytes_str(line), &seconds);
        if (tells != (cases[i].seconds >= 0) || seconds != cases[i].seconds)
            fail_msg("%s in %s: %lld", line, cases[i].unit, (long long)seconds);
        event_time_free(&e);
    }
}

/* The line may end where memory does. */
static void test_it_reads_no_byte_behind_the_line(void **state)
{
    struct event_time *e = event_time_new("time", 1);
    (void)state;
    for (size_t pad = 0; pad < 100; pad++) {
        char *line = malloc(pad + 30);
        assert_non_null(line);
        int n = snprintf(line, pad + 30, "{\"a\":\"%0*d\",\"time\":1}", (int)pad + 1, 0);
        char *exact = malloc((size_t)n);
        assert_non_null(exact);
        memcpy(exact, line, (size_t)n);
        int64_t seconds = 0;
        assert_true(event_time_of(e, bytes_of(exact, (size_t)n), &seconds));
        assert_int_equal(seconds, 1);
        free(exact);
        free(line);
    }
    event_time_free(&e);
}

/* What a line is told by may be what was seen in the line before. */
static void test_what_a_line_tells_behind_another(void **state)
{
    static const struct {
        const char *line;
        int64_t seconds; /* -1: nothing */
    } cases[] = {
        {"{\"a\":1, \"t\": 1331923247, \"b\":1}", 1331923247},
        {"{\"a\":1, \"t\": 1331923248, \"b\":1}", 1331923248},
        {"{\"a\":1, \"t\": 1331923299}", 1331923299},
        {"{\"a\":1, \"t\": 1331923300}", 1331923300},
        {"{\"a\":1, \"t\": 13319233}", 13319233},
        {"{\"a\":1, \"t\": 133192330}", 133192330},
        {"{\"a\":1, \"t\": 13319233001}", 13319233001},
        {"{\"a\":1, \"t\": 13319233.1}", 13319233},
        {"{\"a\":1, \"t\": 1331923301.9}", 1331923301},
        {"{\"a\":1, \"t\": 1331923302e1}", 13319233020},
        {"{\"a\":1, \"t\": \"1331923303\"}", -1},
        {"{\"a\":1, \"t\": -1331923304}", -1},
        {"{\"a\":1, \"t\": 1331923305 }", 1331923305},
        {"{\"a\":{\"b\":1, \"t\": 1331923306}}", -1},
        {"{\"a\":\", \\\"t\\\": 1331923307,\"}", -1},
        {"{\"a\":1, \"t\": 1331923308, \"t\": 5}", 5},
        {"{\"a\":1, \"t\": 1331923309, \"\\u0074\": 6}", 6},
        {"{\"t\": 1331923310, \"b\":1}", 1331923310},
        {"{\"a\":1, \"t\": 1331923311, \"b\":1}", 1331923311},
        {"{\"a\":1,\"t\": 1331923312, \"b\":1}", 1331923312},
        {"{\"t\":1331923313}", 1331923313},
        {"{\"t\":1331923314}", 1331923314},
        {"{\"t\":13319233}", 13319233},
        {"{\"t\":13319233", -1},
        {"{}", -1},
    };
    (void)state;
    struct event_time *e = event_time_new("t", 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t seconds = -1;
        bool tells = event_time_of(e, bytes_str(cases[i].line), &seconds);
        if (tells != (cases[i].seconds >= 0) || seconds != cases[i].seconds)
            fail_msg("%s: %lld", cases[i].line, (long long)seconds);
    }
    event_time_free(&e);
}

/* Nor in front of it, though the line before had more there. */
static void test_it_reads_no_byte_around_the_line(void **state)
{
    static const char *const lines[] = {"{\"time\":1331923248}", "{\"time\":1}", "{ \"time\":   1}",
        "{\"a\":1,   \"time\":   1}", "{\"a\":1,   \"time\":   13319232}",
        "{\"a\":1,   \"time\":   133192321}", "{\"a\":1,   \"time\":   13319232"};
    struct event_time *e = event_time_new("time", 1);
    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        int64_t seconds = 0;
        assert_true(event_time_of(e, BYTES_LITERAL("{\"a\":1,   \"time\":   1331923247}"), &seconds));
        assert_int_equal(seconds, 1331923247);
        char *exact = malloc(strlen(lines[i]));
        assert_non_null(exact);
        memcpy(exact, lines[i], strlen(lines[i]));
        event_time_of(e, bytes_of(exact, strlen(lines[i])), &seconds);
        free(exact);
    }
    event_time_free(&e);
}

static void test_a_path_names_the_field(void **state)
{
    static const struct {
        const char *path, *line;
        int64_t seconds;
    } cases[] = {{"meta.t", "{\"meta\":{\"t\":5},\"t\":6}", 5},
        {"meta.t", "{\"meta\":{\"t\":5},\"t\":6,\"meta.t\":7}", 7},
        {"[\"meta.t\"]", "{\"meta\":{\"t\":5},\"meta.t\":7}", 7}, {"[\"t\"]", "{\"a\":1, \"t\": 8}", 8},
        {"a[1].t", "{\"a\":[{\"t\":1},{\"t\":9}]}", 9}, {"meta.t", "{\"t\":5}", -1}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct event_time *e = event_time_new(cases[i].path, 1);
        int64_t seconds = -1;
        event_time_of(e, bytes_str(cases[i].line), &seconds);
        assert_int_equal(seconds, cases[i].seconds);
        event_time_free(&e);
    }
}

static unsigned seed;

static unsigned dice(unsigned n)
{
    return (unsigned)rand_r(&seed) % n;
}

#define PICK(list) list[dice(sizeof list / sizeof *list)]

static const char *const names[] = {"\"t\"", "\"t\"", "\"t\"", "\"tt\"", "\"\\u0074\"", "\"\\\"t\"",
    "\"t\\\\\"", "\"a{\"", "\"\"", "\"\\u00e9\"", "\"a\"", "\"at\""};
static const char *const values[] = {"1331923247", "0", "12", "1.5", "1331923247.123", "-3", "1e2", "\"t\"",
    "\"x\"", "\"\\\"t\\\":1\"", "\"a long one, with more than sixteen bytes, and {braces}\"", "null", "true",
    "[\"t\", 1]", "{\"t\":4}", "[{\"t\":5}]", "\"\\u0074\"", "\"\\\\\"", "18446744073709551615",
    "{\"t\":1331923248}", "{\"b\":{\"t\":1331923249}}", "\", \\\"t\\\":1331923250,\"", "[1331923247, \"t\"]",
    "\"a longer one, in which neither a brace nor the name stands, of more than sixty-four bytes\""};
/* Some differ from others in their last digits only, and some begin as they do and go on otherwise. */
static const char *const times[] = {"1331923247", "1331923200", "1331923299", "1331923300", "1331923199",
    "13319232471", "133192324", "13319232", "1331923247.5", "13319232.5", "13319232e1", "1331923247e1",
    "1331923247E0", "-1331923247", "\"1331923247\"", "0331923247", "13319232 47", "133192324x", "1331923247x",
    "1331923247]", "9999999999", "10000000000", "1000000000", "999999999", "1331923247000", "1331923247999",
    "99999999999999999999", "1331923247000000", "1331923247999999999", "9223372036854775807",
    "9223372036854775808", "1331923247999999.5", "\"2012-03-16T18:40:47Z\"",
    "\"2012-03-16T18:40:47.5+01:00\"", "\"2012-03-16 18:40:47\""};
static const char *const spaces[] = {"", "", "", " ", "\t", "  "};

static void add_member(struct buf *out)
{
    bool is_time = dice(3) == 0;
    buf_printf(out, "%s%s%s%s:%s%s%s", out->len > 1 ? "," : "", PICK(spaces), is_time ? "\"t\"" : PICK(names),
        PICK(spaces), PICK(spaces), is_time ? PICK(times) : PICK(values), PICK(spaces));
}

static void make_line(struct buf *out)
{
    buf_clear(out);
    buf_append_str(out, "{");
    for (unsigned n = dice(7); n > 0; n--)
        add_member(out);
    buf_append_str(out, "}");
}

/* So that many are no JSON any more. */
static void spoil(struct buf *line)
{
    static const char bytes[] = "\"\\{}[]:,t0u ";
    for (unsigned n = dice(4) > 0 ? 0 : dice(3); n > 0; n--)
        line->ptr[dice((unsigned)line->len)] = bytes[dice(sizeof bytes - 1)];
}

static bool told_by_parser(
    struct json_fields *f, struct bytes line, int64_t units, bool *is_object, int64_t *out)
{
    struct json_value v;
    const char *reason;
    *is_object = json_fields_extract(f, line, &v, &reason) == 0;
    return *is_object && event_seconds_read(&v, units, out) && *out >= 0 && *out <= MOST;
}

static void check_random_lines(const char *unit, unsigned lines)
{
    const char *field = "t";
    int64_t units = event_seconds_units(unit);
    struct json_fields *f = json_fields_new(&field, 1);
    struct event_time *e = event_time_new(field, units);
    struct buf line = {0};
    unsigned objects = 0, timed = 0;
    for (unsigned i = 0; i < lines; i++) {
        bool is_object;
        int64_t expected = 0, seconds = 0;
        make_line(&line);
        spoil(&line);
        bool tells = told_by_parser(f, buf_bytes(&line), units, &is_object, &expected);
        bool told_too = event_time_of(e, buf_bytes(&line), &seconds);
        objects += is_object;
        timed += tells;
        if (is_object && (tells != told_too || (tells && seconds != expected)))
            fail_msg("%.*s in %s: %lld, not %lld", (int)line.len, line.ptr, unit, (long long)seconds,
                (long long)expected);
    }
    assert_true(objects > lines / 4 && timed > lines / 20);
    buf_free(&line);
    event_time_free(&e);
    json_fields_free(&f);
}

static void test_it_tells_what_the_parser_does(void **state)
{
    (void)state;
    seed = seeded();
    check_random_lines("s", 200000);
    check_random_lines("ms", 50000);
    check_random_lines("us", 50000);
    check_random_lines("ns", 50000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_what_a_line_tells),
        cmocka_unit_test(test_what_a_line_tells_behind_another),
        cmocka_unit_test(test_a_path_names_the_field), cmocka_unit_test(test_units_and_text),
        cmocka_unit_test(test_it_reads_no_byte_around_the_line),
        cmocka_unit_test(test_it_reads_no_byte_behind_the_line),
        cmocka_unit_test(test_it_tells_what_the_parser_does)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
