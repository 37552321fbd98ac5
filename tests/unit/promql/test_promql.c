/* promql: errors by their place, limits, buckets with several samples, and the JSON of answers. The answers themselves are in
 * answers.test, and test_promql.py compares them with Prometheus. */
#include "support/cm.h"

#include "promql/promql_json.h"
#include "support/promql_world.h"

#include <math.h>
#include <stdio.h>

static const struct {
    const char *text, *error;
} refused[] = {
    {"", "1:1: parse error: no expression found in input"},
    {"# nothing", "1:1: parse error: no expression found in input"},
    {"up +", "1:5: parse error: unexpected end of input"},
    {"up\n  + )", "2:5: parse error: unexpected bracket: ')'"},
    {"(up", "1:4: parse error: unclosed left parenthesis"},
    {"up up", "1:4: parse error: unexpected identifier \"up\""},
    {"* up", "1:1: parse error: unexpected <op:*>"},
    {"bool", "1:1: parse error: unexpected <bool>"},
    {"up{", "1:4: parse error: unexpected end of input inside braces"},
    {"up{a}", "1:5: parse error: unexpected \"}\" in label matching, expected label matching operator"},
    {"up{a=b}", "1:6: parse error: unexpected identifier \"b\" in label matching, expected string"},
    {"up{a=\"b\" c=\"d\"}",
        "1:10: parse error: unexpected identifier \"c\" in label matching, expected \",\" or \"}\""},
    {"up{,}", "1:4: parse error: unexpected \",\" in label matching, expected identifier or \"}\""},
    {"up{a<\"b\"}", "1:5: parse error: unexpected character inside braces: '<'"},
    {"up{a=\"b}", "1:6: parse error: unterminated quoted string"},
    {"'\\q'", "1:1: parse error: invalid escape sequence or character in a string"},
    {"\"\xff\"", "1:1: parse error: invalid UTF-8 rune"},
    {"{a=\"\"}", "1:1: parse error: vector selector must contain at least one non-empty matcher"},
    {"{a=~\".*\"}", "1:1: parse error: vector selector must contain at least one non-empty matcher"},
    {"{a!~\".+\"}", "1:1: parse error: vector selector must contain at least one non-empty matcher"},
    {"{a!=\"b\"}", "1:1: parse error: vector selector must contain at least one non-empty matcher"},
    {"up{__name__=\"a\"}", "1:1: parse error: metric name must not be set twice: \"up\" or \"a\""},
    {"up{a=~\"(\"}", "1:1: parse error: error parsing regexp: invalid pattern at character 9: missing "
                     "closing parenthesis"},
    {"up[5m", "1:6: parse error: unclosed left bracket"},
    {"up[5]", "1:4: parse error: missing unit character in duration"},
    {"up[5mm]", "1:4: parse error: bad duration syntax: \"5m\""},
    {"up[0s]", "1:4: parse error: duration must be greater than 0: \"0s\""},
    {"up[1h1h]", "1:4: parse error: not a valid duration string: \"1h1h\""},
    {"up[300y]", "1:4: parse error: duration out of range: \"300y\""},
    {"(up)[5m]", "1:5: parse error: ranges only allowed for vector selectors"},
    {"up[1m][1m]", "1:7: parse error: ranges only allowed for vector selectors"},
    {"up offset 1m [5m]", "1:14: parse error: no offset modifiers allowed before range"},
    {"up offset 1", "1:11: parse error: unexpected number \"1\" in offset, expected duration"},
    {"up offset 1m offset 2m", "1:1: parse error: offset may not be set multiple times"},
    {"(up) offset 1m", "1:1: parse error: offset modifier must be preceded by an instant vector selector "
                       "or range vector "
                       "selector or a subquery"},
    {"up @ Inf", "1:1: parse error: timestamp out of bounds for @ modifier: inf"},
    {"up @ sum", "1:6: parse error: unexpected <aggr:sum> in @, expected timestamp"},
    {"1m", "1:1: parse error: unexpected duration \"1m\""},
    {"0x", "1:1: parse error: error parsing number"},
    {"1 == 1", "1:3: parse error: comparisons between scalars must use BOOL modifier"},
    {"up + bool 1", "1:4: parse error: bool modifier can only be used on comparison operators"},
    {"up + up[1m]", "1:6: parse error: binary expression must contain only scalar and instant vector types"},
    {"up and 1", "1:1: parse error: set operator \"and\" not allowed in binary scalar expression"},
    {"up + on(a) 1", "1:1: parse error: vector matching only allowed between instant vectors"},
    {"up and on(a) group_left up", "1:1: parse error: no grouping allowed for \"and\" operation"},
    {"up + on(a) group_left(a) up",
        "1:4: parse error: label \"a\" must not occur in ON and GROUP clause at once"},
    {"sum by (1) (up)", "1:9: parse error: unexpected number \"1\" in grouping opts, expected label"},
    {"sum()", "1:1: parse error: no arguments for aggregate expression provided"},
    {"topk(up)", "1:1: parse error: wrong number of arguments for aggregate expression provided, "
                 "expected 2, got 1"},
    {"sum(1)", "1:5: parse error: expected type instant vector in aggregation expression, got scalar"},
    {"topk(up, up)", "1:6: parse error: expected type scalar in aggregation parameter, got instant vector"},
    {"nothing(up)", "1:1: parse error: unknown function with name \"nothing\""},
    {"rate(up)",
        "1:6: parse error: expected type range vector in call to function \"rate\", got instant vector"},
    {"abs(up, up)", "1:1: parse error: expected 1 argument(s) in call to \"abs\", got 2"},
    {"round()", "1:1: parse error: expected at least 1 argument(s) in call to \"round\", got 0"},
    {"hour(up, up)", "1:1: parse error: expected at most 1 argument(s) in call to \"hour\", got 2"},
    {"abs(up,)", "1:7: parse error: trailing commas not allowed in function call args"},
    {"-'a'", "1:1: parse error: unary expression only allowed on expressions of type scalar or instant "
             "vector, got \"string\""},
    {"up[5m][5m:]", "1:1: parse error: subquery is only allowed on instant vector, got range vector instead"},
    {"1 + stddev_over_time(up[5m])", "1:5: parse error: the function stddev_over_time is not supported"},
    {"count_values('a', up)", "1:1: parse error: the aggregation count_values is not supported"},
};

static void the_place_of_an_error(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct error error = {0};
        char *exact = bytes_dup(bytes_str(refused[i].text));
        struct promql *query = promql_parse(bytes_str(exact), &error);
        free(exact);
        if (query || error.code != PROMQL_BAD_QUERY || strcmp(error.text, refused[i].error) != 0)
            fail_msg("%s\nis refused with\n%s\ninstead of\n%s", refused[i].text,
                query ? "nothing" : error.text, refused[i].error);
    }
}

static void a_selector_alone(void **state)
{
    const struct label_matcher *matchers;
    size_t n;
    struct error error;
    (void)state;
    struct promql *query = promql_parse_selector(BYTES_LITERAL("up{a!~\"b\",c=`d`}"), &matchers, &n, &error);
    assert_non_null(query);
    assert_int_equal(n, 3);
    assert_true(bytes_equal_str(matchers[0].value, "b") && matchers[0].type == MATCH_NOT_REGEX);
    assert_true(bytes_equal_str(matchers[1].value, "d") && matchers[1].type == MATCH_EQUAL);
    assert_true(bytes_equal_str(matchers[2].name, "__name__") && bytes_equal_str(matchers[2].value, "up"));
    promql_free(&query);
    assert_null(query);
    static const char *const others[] = {"up[5m]", "up offset 1m", "up @ 1", "(up)", "1", "sum(up)"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_null(promql_parse_selector(bytes_str(others[i]), &matchers, &n, &error));
}

/* Evaluates and describes an answer: the series, or "CODE TEXT" of an error. */
static void ask(struct promql_world *w, const char *text, struct promql_request request, struct buf *out)
{
    struct metric_source source = world_source(w);
    struct promql_result result;
    struct error error = {0};
    struct promql *query = promql_parse(bytes_str(text), &error);
    if (!query)
        fail_msg("%s: %s", text, error.text);
    enum promql_result_code code = promql_evaluate(query, &source, &request, &result, &error);
    promql_free(&query); /* the result lives longer */
    buf_clear(out);
    if (code == PROMQL_OK)
        world_describe(&result, out);
    else
        buf_printf(out, "%d %s", code, error.text);
    if (code != PROMQL_OK && (result.series || result.memory || error.code != (int)code))
        fail_msg("%s: a result beside the error", text);
    promql_result_free(&result);
}

static void expect(
    struct promql_world *w, const char *text, struct promql_request request, const char *expected)
{
    struct buf out = {0};
    ask(w, text, request, &out);
    if (!bytes_equal_str(buf_bytes(&out), expected))
        fail_msg("%s\nanswers\n%.*s\ninstead of\n%s", text, (int)out.len, out.ptr, expected);
    buf_free(&out);
}

static void expect_code(
    struct promql_world *w, const char *text, struct promql_request request, enum promql_result_code code)
{
    struct buf out = {0};
    ask(w, text, request, &out);
    if (out.len < 2 || out.ptr[0] != '0' + (int)code || out.ptr[1] != ' ')
        fail_msg("%s: %.*s instead of code %d", text, (int)out.len, out.ptr, code);
    buf_free(&out);
}

static void an_expression_is_bounded(void **state)
{
    static const struct {
        const char *begin, *part, *middle, *end;
    } forms[] = {{"", "(", "1", ")"}, {"", "-", "up", ""}, {"", "abs(", "up", ")"}, {"1", "+1", "", ""},
        {"1", "^1", "", ""}, {"", "sum(", "up", ")"}, {"", "sum_over_time(", "up", "[1m:])"}};
    (void)state;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        for (size_t n = 100; n <= 2000; n *= 20) {
            struct buf text = {0};
            struct error error = {0};
            buf_append_str(&text, forms[i].begin);
            for (size_t k = 0; k < n; k++)
                buf_append_str(&text, forms[i].part);
            buf_append_str(&text, forms[i].middle);
            for (size_t k = 0; k < n; k++)
                buf_append_str(&text, forms[i].end);
            struct promql *query = promql_parse(buf_bytes(&text), &error);
            if ((query != NULL) != (n == 100))
                fail_msg("%zu times %s: %s", n, forms[i].part, error.text);
            if (!query)
                assert_non_null(strstr(error.text, "more than 250 nested operations"));
            promql_free(&query);
            buf_free(&text);
        }
    struct buf patterns = {0};
    for (int i = 0; i <= PROMQL_PATTERNS_MAX; i++)
        buf_append_str(&patterns, i == 0 ? "{a=~\"b\"" : ",a=~\"b\"");
    buf_append_char(&patterns, '}');
    struct error many;
    assert_null(promql_parse(buf_bytes(&patterns), &many));
    assert_non_null(strstr(many.text, "more than 200 patterns"));
    buf_free(&patterns);
    char *long_text = mem_alloc(PROMQL_TEXT_MAX + 1);
    struct error error;
    memset(long_text, ' ', PROMQL_TEXT_MAX + 1);
    long_text[0] = '1';
    struct promql *query = promql_parse(bytes_of(long_text, PROMQL_TEXT_MAX), &error);
    assert_non_null(query);
    promql_free(&query);
    assert_null(promql_parse(bytes_of(long_text, PROMQL_TEXT_MAX + 1), &error));
    free(long_text);
}

static bool stop_later(void *context)
{
    return --*(int *)context < 0;
}

static void an_evaluation_is_bounded(void **state)
{
    struct promql_world w = {.width = 1};
    int polls = 0;
    const struct promql_request range = {.end = 600000, .step = 1000},
                                instant = {.start = 60000, .end = 60000};
    (void)state;
    for (int i = 0; i < 50; i++) {
        char series[40];
        snprintf(series, sizeof series, "up{i=\"%d\"}", i);
        assert_true(world_load(&w, series, "1x60", 10000));
    }
    struct promql_request r = {.end = INT64_C(4000000000000000), .step = 1};
    expect(&w, "up", r,
        "3 exceeded maximum resolution of 11000 points per timeseries. Try decreasing the query resolution "
        "(?step=XX)");
    r = range;
    r.max_steps = 601;
    expect(&w, "count(up) - count(up)", instant, "{} 0@60\n");
    expect_code(&w, "sum_over_time(vector(1)[290y:1ms])", instant, PROMQL_TOO_MANY);
    r.max_steps = 600;
    expect_code(&w, "up", r, PROMQL_TOO_MANY);
    r = instant;
    r.max_series = 49;
    expect(&w, "up", r,
        "3 the query reads more than 49 series or 18446744073709551615 buckets; choose fewer series, a "
        "shorter range or a larger step");
    r.max_series = 51;
    expect_code(&w, "up + up", r, PROMQL_TOO_MANY); /* together */
    r.max_series = 0;
    r.max_buckets = 100;
    expect_code(&w, "count_over_time(up[5m])", r, PROMQL_TOO_MANY);
    r = range;
    r.max_bytes = 100000; /* 50 series of 601 values need 240,400 */
    expect(&w, "up", r, "3 the query needs more than 100000 bytes of memory");
    expect_code(&w, "up[10m]", (struct promql_request){.start = 600000, .end = 600000, .max_bytes = 10000},
        PROMQL_TOO_MANY);
    r = range;
    r.stop = stop_later;
    r.context = &polls;
    expect_code(&w, "sum(rate(up[5m])) + sum(rate(up[5m]))", r, PROMQL_STOPPED);
    w.refuses = true;
    expect(&w, "up", instant, "5 the world is refused");
    w.refuses = false;
    expect_code(&w, "label_replace(up, 'a', '$1', 'i', '(')", instant, PROMQL_FAILED);
    expect_code(&w, "label_replace(up, '1', '$1', 'i', '(.*)')", instant, PROMQL_FAILED);
    expect_code(&w, "up", (struct promql_request){.start = 1, .end = 0, .step = 1}, PROMQL_BAD_QUERY);
    expect_code(&w, "up[1m]", range, PROMQL_BAD_QUERY);
    world_free(&w);
}

/* A label that grows tenfold with each call. */
static void a_label_is_bounded(void **state)
{
    struct promql_world w = {.width = 1};
    struct buf text = {0};
    (void)state;
    assert_true(world_load(&w, "up{i=\"0123456789\"}", "1", 1000));
    for (int i = 0; i < 10; i++)
        buf_append_str(&text, "label_replace(");
    buf_append_str(&text, "up");
    for (int i = 0; i < 10; i++)
        buf_append_str(&text, ", 'i', '$1$1$1$1$1$1$1$1$1$1', 'i', '(.*)')");
    buf_append_char(&text, '\0');
    expect(&w, text.ptr, (struct promql_request){0}, "3 a label would have more than 65536 bytes");
    buf_free(&text);
    world_free(&w);
}

/* Six samples a minute, in buckets of a minute: whole ranges are exact, and the others have the error of the header. */
static void several_samples_in_a_bucket(void **state)
{
    struct promql_world fine = {.width = 1}, coarse = {.width = 60000};
    static const char *const exact[] = {"sum_over_time(x[2m])", "round(avg_over_time(x[2m]), 0.000001)",
        "min_over_time(x[2m])", "max_over_time(x[2m])", "count_over_time(x[2m])", "last_over_time(x[2m])",
        "present_over_time(x[2m])", "sum_over_time(c[2m])", "absent_over_time(x[2m])"};
    const struct promql_request range = {.start = 240000, .end = 600000, .step = 60000};
    struct buf a = {0}, b = {0};
    (void)state;
    for (int i = 0; i < 70; i++) /* samples 5 s after the edge of a bucket */
        for (int k = 0; k < 2; k++) {
            world_add(k ? &fine : &coarse, "x", i * 10000 + 5000, (i * 37) % 101);
            world_add(k ? &fine : &coarse, "c", i * 10000 + 5000, i < 40 ? i : i - 40);
        }
    for (size_t i = 0; i < sizeof exact / sizeof *exact; i++) {
        ask(&fine, exact[i], range, &a);
        ask(&coarse, exact[i], range, &b);
        if (!bytes_equal(buf_bytes(&a), buf_bytes(&b)) || (a.len == 0) != (i == 8))
            fail_msg("%s: %.*s\n%.*s", exact[i], (int)a.len, a.ptr, (int)b.len, b.ptr);
    }
    /* A counter that rises by 1 each 10 s: its rate is exact also in buckets, also over its reset at 400 s. */
    expect(&coarse, "round(rate(c[2m]), 0.000001)", (struct promql_request){.start = 240000, .end = 240000},
        "{} 0.1@240\n");
    expect(&coarse, "increase(c[4m])", (struct promql_request){.start = 480000, .end = 480000},
        "{} 22.956521739130434@480\n");
    expect(&fine, "increase(c[4m])", (struct promql_request){.start = 480000, .end = 480000},
        "{} 22.956521739130434@480\n");
    expect(&coarse, "resets(c[4m])", (struct promql_request){.start = 480000, .end = 480000},
        "{} 1@480\nwarning: resets() is approximate where a bucket has several samples\n");
    expect(&coarse, "irate(c[4m])", (struct promql_request){.start = 420000, .end = 420000},
        "{} 0.08333333333333333@420\nwarning: irate() is approximate where a bucket has several samples\n");
    /* Inside a bucket, an instant selector has the value of the bucket before, and later its own. */
    expect(
        &coarse, "c", (struct promql_request){.start = 90000, .end = 90000}, "{\"__name__\":\"c\"} 5@90\n");
    expect(&coarse, "timestamp(c)", (struct promql_request){.start = 119000, .end = 119000}, "{} 115@119\n");
    buf_free(&a);
    buf_free(&b);
    world_free(&fine);
    world_free(&coarse);
}

static double only_value(struct promql_world *w, const char *text, int64_t time)
{
    struct metric_source source = world_source(w);
    struct promql_request r = {.start = time, .end = time};
    struct promql_result result;
    struct error error;
    struct promql *query = promql_parse(bytes_str(text), &error);
    assert_int_equal(promql_evaluate(query, &source, &r, &result, &error), PROMQL_OK);
    double value = result.n_series == 1 ? result.series[0].points[0].value : NAN;
    promql_result_free(&result);
    promql_free(&query);
    return value;
}

/* At any edges, the increase over buckets of a minute differs from that over samples by at most the rise of the two buckets at the edges;
 * of a steady counter it does not differ. */
static void edges_inside_buckets(void **state)
{
    struct promql_world fine = {.width = 1}, coarse = {.width = 60000};
    unsigned seed = 7;
    double x = 0;
    (void)state;
    for (int i = 0; i < 400; i++) {
        x = i % 90 == 89 ? 0 : x + rand_r(&seed) % 10; /* at most 9 in 15 s, and resets */
        for (int k = 0; k < 2; k++) {
            world_add(k ? &fine : &coarse, "x", i * 15000 + 3000, x);
            world_add(k ? &fine : &coarse, "steady", i * 15000 + 3000, 1000 + i * 15);
        }
    }
    for (int64_t time = 1000000; time < 6000000; time += 7000) {
        double a = only_value(&fine, "increase(x[10m])", time),
               b = only_value(&coarse, "increase(x[10m])", time);
        double rate = only_value(&coarse, "rate(steady[10m])", time);
        if (!(fabs(a - b) <= 2 * 4 * 9) || !(fabs(rate - 1) < 1e-9))
            fail_msg("at %lld: %g and %g, %g", (long long)time, a, b, rate);
    }
    /* A range that lies inside a bucket, and one that only ends in a bucket. */
    assert_true(fabs(only_value(&coarse, "increase(steady[20s])", 1230000) - 20) < 1e-9);
    assert_true(fabs(only_value(&coarse, "rate(steady[30s])", 1215000) - 1) < 1e-9);
    world_free(&fine);
    world_free(&coarse);
}

/* Buckets of an hour are wider than the lookback: the series goes on inside a bucket, and ends by age after its last. */
static void buckets_wider_than_the_lookback(void **state)
{
    struct promql_world w = {.width = 3600000};
    (void)state;
    for (int i = 0; i < 240; i++)
        world_add(&w, "x", i * 60000, i);
    expect(&w, "x", (struct promql_request){.start = 3600000, .end = 7200000, .step = 1800000},
        "{\"__name__\":\"x\"} 59@3600 59@5400 119@7200\n");
    expect(&w, "x", (struct promql_request){.start = 14639000, .end = 14641000, .step = 1000},
        "{\"__name__\":\"x\"} 239@14639 239@14640\n");
    world_add(&w, "x", 14400000, WORLD_STALE);
    expect(&w, "x", (struct promql_request){.start = 14399000, .end = 14400000, .step = 1000},
        "{\"__name__\":\"x\"} 239@14399\n");
    world_free(&w);
    w.width = 60000; /* a marker in the bucket of its series' last sample */
    world_add(&w, "y", 10000, 1);
    world_add(&w, "y", 20000, WORLD_STALE);
    expect(&w, "y", (struct promql_request){.start = 19000, .end = 21000, .step = 1000},
        "{\"__name__\":\"y\"} 1@19\n");
    world_free(&w);
}

/* A change inside a bucket counts once, though the last samples of the buckets are equal. A NaN with the bits of ABSENT is a NaN. */
static void changes_inside_buckets(void **state)
{
    static const double values[] = {1, 2, 1, 1, 3, 1, 1, 1, 1};
    struct promql_world w = {.width = 30000};
    double value;
    uint64_t bits = UINT64_C(0x7ff0000000000002);
    (void)state;
    memcpy(&value, &bits, sizeof value);
    for (int i = 0; i < 9; i++)
        world_add(&w, "x", i * 10000, values[i]);
    world_add(&w, "bits", 0, value);
    expect(&w, "changes(x[2m])", (struct promql_request){.start = 90000, .end = 90000},
        "{} 2@90\nwarning: changes() is approximate where a bucket has several samples\n");
    expect(&w, "bits", (struct promql_request){0}, "{\"__name__\":\"bits\"} NaN@0\n");
    expect(&w, "last_over_time(bits[1m])", (struct promql_request){0}, "{\"__name__\":\"bits\"} NaN@0\n");
    world_free(&w);
}

/* Invariant 3 of the header. */
static void the_width_of_buckets(void **state)
{
    static const struct {
        const char *text;
        int64_t start, step, width;
    } cases[] = {
        {"x", 0, 0, 0},
        {"x", 7200000, 3600000, 3600000},
        {"x", 7201000, 3600000, 360000}, /* not aligned */
        {"x", 5400000, 5400000, 600000}, /* 90 minutes: an hour does not divide them */
        {"x offset 1h", 7200000, 3600000, 3600000},
        {"x offset 1s", 7200000, 3600000, 360000},
        {"x @ 1", 7200000, 3600000, 360000},
        {"rate(x[1h])", 7200000, 3600000, 3600000},
        {"rate(x[90m])", 7200000, 3600000, 540000},
        {"rate(x[5m])", 7200000, 3600000, 30000},
        {"rate(x[1d])", 7200000, 0, 8640000},
    };
    struct promql_world w = {.width = 1};
    (void)state;
    assert_true(world_load(&w, "x", "1", 1000));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buf out = {0};
        ask(&w, cases[i].text,
            (struct promql_request){
                .start = cases[i].start, .end = cases[i].start + 5 * cases[i].step, .step = cases[i].step},
            &out);
        if (w.last.max_width != cases[i].width)
            fail_msg("%s: %lld instead of %lld", cases[i].text, (long long)w.last.max_width,
                (long long)cases[i].width);
        buf_free(&out);
    }
    world_free(&w);
}

static void numbers_in_json(void **state)
{
    static const struct {
        double value;
        const char *text;
    } cases[] = {{0, "\"0\""}, {-0.0, "\"-0\""}, {1, "\"1\""}, {-12, "\"-12\""}, {0.1, "\"0.1\""},
        {1.0 / 3, "\"0.3333333333333333\""}, {1e15, "\"1000000000000000\""},
        {123456789012345678.0, "\"123456789012345680\""}, {1e20, "\"100000000000000000000\""},
        {1e21, "\"1e+21\""}, {1.5e300, "\"1.5e+300\""}, {0.000001, "\"0.000001\""}, {1.25e-7, "\"1.25e-07\""},
        {5e-324, "\"5e-324\""}, {2.5, "\"2.5\""}, {100.25, "\"100.25\""},
        {1732977600.125, "\"1732977600.125\""}, {0.30000000000000004, "\"0.30000000000000004\""},
        {NAN, "\"NaN\""}, {INFINITY, "\"+Inf\""}, {-INFINITY, "\"-Inf\""},
        {9007199254740993.0, "\"9007199254740992\""}};
    static const struct {
        int64_t time;
        const char *text;
    } times[] = {{0, "0"}, {1000, "1"}, {1435781430781, "1435781430.781"}, {-1500, "-1.500"}, {5, "0.005"},
        {50, "0.050"}};
    struct buf out = {0};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        buf_clear(&out);
        promql_json_value(&out, cases[i].value);
        if (!bytes_equal_str(buf_bytes(&out), cases[i].text))
            fail_msg("%.*s instead of %s", (int)out.len, out.ptr, cases[i].text);
    }
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        buf_clear(&out);
        promql_json_time(&out, times[i].time);
        assert_true(bytes_equal_str(buf_bytes(&out), times[i].text));
    }
    buf_free(&out);
}

static void answers_in_json(void **state)
{
    static const struct {
        const char *text;
        int64_t step;
        const char *json;
    } cases[] = {
        {"1.5", 0, "{\"resultType\":\"scalar\",\"result\":[60,\"1.5\"]}"},
        {"'a\"b'", 0, "{\"resultType\":\"string\",\"result\":[60,\"a\\\"b\"]}"},
        {"up", 0,
            "{\"resultType\":\"vector\",\"result\":[{\"metric\":{\"__name__\":\"up\",\"a\":\"b\"},\"value\":["
            "60,\"3\"]}]}"},
        {"down", 0, "{\"resultType\":\"vector\",\"result\":[]}"},
        {"up[30s]", 0,
            "{\"resultType\":\"matrix\",\"result\":[{\"metric\":{\"__name__\":\"up\",\"a\":\"b\"},\"values\":"
            "[[30,\"2\"],[60,\"3\"]]}]}"},
        {"sum(up)", 30000,
            "{\"resultType\":\"matrix\",\"result\":[{\"metric\":{},\"values\":[[60,\"3\"],[90,\"3\"]]}]}"},
        {"2", 30000,
            "{\"resultType\":\"matrix\",\"result\":[{\"metric\":{},\"values\":[[60,\"2\"],[90,\"2\"]]}]}"},
    };
    struct promql_world w = {.width = 1};
    struct metric_source source = world_source(&w);
    struct error error;
    (void)state;
    assert_true(world_load(&w, "up{a=\"b\"}", "1 2 3", 30000));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct promql_request r = {
            .start = 60000, .end = cases[i].step ? 90000 : 60000, .step = cases[i].step};
        struct promql *query = promql_parse(bytes_str(cases[i].text), &error);
        struct promql_result result;
        struct buf out = {0};
        assert_non_null(query);
        assert_int_equal(promql_evaluate(query, &source, &r, &result, &error), PROMQL_OK);
        promql_json(&out, SIZE_MAX, &result);
        if (!bytes_equal_str(buf_bytes(&out), cases[i].json))
            fail_msg("%.*s\ninstead of\n%s", (int)out.len, out.ptr, cases[i].json);
        buf_free(&out);
        promql_result_free(&result);
        promql_free(&query);
    }
    world_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_place_of_an_error),
        cmocka_unit_test(a_selector_alone),
        cmocka_unit_test(an_expression_is_bounded),
        cmocka_unit_test(an_evaluation_is_bounded),
        cmocka_unit_test(a_label_is_bounded),
        cmocka_unit_test(several_samples_in_a_bucket),
        cmocka_unit_test(changes_inside_buckets),
        cmocka_unit_test(edges_inside_buckets),
        cmocka_unit_test(buckets_wider_than_the_lookback),
        cmocka_unit_test(the_width_of_buckets),
        cmocka_unit_test(numbers_in_json),
        cmocka_unit_test(answers_in_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
