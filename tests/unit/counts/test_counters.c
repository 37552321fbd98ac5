#include "support/cm.h"

#include <stdio.h>
#include <stdlib.h>
#include "counts/counters.h"
#include "counts/records.h"

#define INPUT "[input]\ntime = t\n"
#define SAMPLE                                                                                               \
    "[subtotal c.u]\nkey = c\nlabel = country\n"                                                             \
    "[input]\ntime = t\nskip_if = _heartbeat_\n"                                                             \
    "[total u]\nkey = l\nlabel = user\nmax_keys = 10\n"                                                      \
    "[total all]\nkey = \"all\"\n"                                                                           \
    "[subtotal r.u]\nkey = host(r)\n"

static struct counters *read_text(const char *text, struct error *error)
{
    struct config *config = NULL;
    struct counters *c = NULL;
    memset(error, 0, sizeof *error);
    if (config_parse("test.conf", bytes_str(text), &config, error) != 0)
        return NULL;
    if (counters_read(config, &c, error) != 0)
        assert_null(c);
    config_free(&config);
    return c;
}

static struct counters *must_read(const char *text)
{
    struct error error;
    struct counters *c = read_text(text, &error);
    if (!c)
        fail_msg("%s", error.text);
    return c;
}

static void refuse(const char *text, const char *expected)
{
    struct error error;
    struct counters *c = read_text(text, &error);
    assert_null(c);
    if (!strstr(error.text, expected))
        fail_msg("'%s' does not say '%s'", error.text, expected);
}

static void test_reads_what_is_configured(void **state)
{
    struct counters *c = must_read(SAMPLE);
    (void)state;
    assert_string_equal(c->time_field, "t");
    assert_string_equal(c->skip_if, "_heartbeat_");
    assert_int_equal(c->units_a_second, 1);
    assert_int_equal(c->n_totals, 2);
    assert_int_equal(c->n_subtotals, 2);
    assert_string_equal(c->totals[0].ns, "u");
    assert_int_equal(c->totals[0].max_keys, 10);
    assert_int_equal(c->totals[0].kind, COUNTER_FIELD);
    assert_int_equal(c->totals[1].kind, COUNTER_CONSTANT);
    assert_string_equal(c->totals[1].field, "all");
    assert_string_equal(c->totals[1].label, "all");
    assert_string_equal(c->subtotals[0].label, "country");
    assert_string_equal(c->subtotals[1].label, "r");
    assert_int_equal(c->subtotals[1].kind, COUNTER_FUNCTION);
    assert_string_equal(c->subtotals[1].field, "r");
    assert_string_equal(c->subtotals[1].key_text, "host(r)");
    assert_int_equal(c->subtotals[1].total, 0);
    assert_ptr_equal(counters_find(c, BYTES_LITERAL("c.u")), &c->subtotals[0]);
    assert_null(counters_find(c, BYTES_LITERAL("c")));
    assert_ptr_equal(counters_find_total_label(c, BYTES_LITERAL("user")), &c->totals[0]);
    assert_ptr_equal(counters_find_sub_label(c, &c->totals[0], BYTES_LITERAL("country")), &c->subtotals[0]);
    assert_null(counters_find_sub_label(c, &c->totals[1], BYTES_LITERAL("country")));
    counters_free(&c);
    assert_null(c);
}

static void test_text_is_canonical(void **state)
{
    struct counters *a = must_read(SAMPLE), *b;
    (void)state;
    assert_string_equal(a->text, "input skip_if = _heartbeat_\ninput time = t\ninput time_unit = s\n"
                                 "subtotal c.u key = c\nsubtotal r.u key = host(r)\n"
                                 "total all key = \"all\"\ntotal u key = l\ntotal u max_keys = 10\n");
    b = must_read("[total all]\nkey = \"all\"\nlabel = other\n[total u]\nmax_keys = 10\nkey = l\n"
                  "[subtotal r.u]\nkey = host(r)\n[subtotal c.u]\nkey = c\n"
                  "[input]\ntime_unit = s\nskip_if = _heartbeat_\ntime = t\n");
    assert_string_equal(a->text, b->text);
    counters_free(&a);
    counters_free(&b);
}

static void test_functions_of_fields(void **state)
{
    static const struct {
        const char *line, *texts[6];
    } rows[] = {
        {"{\"t\":1332637200,\"u\":\"http://E.org/A?q=x\",\"s\":404,\"l\":\"ABC\"}",
            {"e.org", "/A", "x", "None", "4xx", "abc"}},
        {"{\"t\":1332637200,\"u\":\"\",\"s\":null,\"l\":true}",
            {"None", "None", "None", "None", "None", "true"}},
        {"{\"t\":1332637200,\"u\":\"/a?r=%20\",\"s\":\"200\",\"l\":\"\"}",
            {"/a?r=%20", "/a", "None", " ", "2xx", "None"}},
    };
    struct counters *c = must_read(
        INPUT "[total a]\nkey = host(u)\n[total b]\nkey = path(u)\n[total c]\nkey = query(u,q)\n"
              "[total d]\nkey = query( u, r )\n[total e]\nkey = status_class(s)\n[total f]\nkey = lower(l)\n"
              "[subtotal x.a]\nkey = query(u,r)\n");
    struct counters_reader *r = counters_reader_new(c);
    struct counters_event e;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(counters_extract(r, bytes_str(rows[i].line), &e), COUNTERS_EVENT);
        assert_int_equal(e.n_texts, 6);
        for (size_t k = 0; k < 6; k++)
            assert_true(bytes_equal_str(e.texts[e.text_of[k]], rows[i].texts[k]));
        assert_int_equal(e.text_of[6], e.text_of[3]); /* the same key, written otherwise */
    }
    assert_false(counter_has_key_of(&c->totals[2], &c->totals[3]));
    counters_reader_free(&r);
    counters_free(&c);
}

static void test_refusals_name_the_line(void **state)
{
    static const struct {
        const char *text, *error;
    } wrong[] = {
        {"[total u]\nkey = l\n", "[input]"},
        {INPUT, "no [total NAMESPACE] section"},
        {"[input]\nskip_if = x\n[total u]\nkey = l\n", "test.conf:1: [input] needs time"},
        {INPUT "time_format = loose\n[total u]\nkey = l\n", "test.conf:3: time_format"},
        {INPUT "time_unit = m\n[total u]\nkey = l\n", "test.conf:3: time_unit"},
        {INPUT "tine = t\n[total u]\nkey = l\n", "test.conf:3: [input] has no setting 'tine'"},
        {INPUT "[total u]\nkey = l\nlable = x\n", "test.conf:5: "},
        {INPUT "[total u]\nlabel = x\n", "test.conf:3: "},
        {INPUT "[total U]\nkey = l\n", "test.conf:3: [total U]"},
        {INPUT "[total lookup]\nkey = l\n", "test.conf:3: [total lookup]"},
        {INPUT "[total]\nkey = l\n", "test.conf:3: "},
        {INPUT "[total a_1234567890_wxyz]\nkey = l\n", "test.conf:3: "},
        {INPUT "[total u]\nkey = \"\"\n", "test.conf:4: key must be"},
        {INPUT "[total u]\nkey = \"a\n", "test.conf:4: key must be"},
        {INPUT "[total u]\nkey = host()\n", "test.conf:4: key must be"},
        {INPUT "[total u]\nkey = port(u)\n", "test.conf:4: key must be"},
        {INPUT "[total u]\nkey = query(u)\n", "query(FIELD,NAME)"},
        {INPUT "[total u]\nkey = path(u..v)\n", "test.conf:4: key must be"},
        {INPUT "[total u]\nkey = user..id\n", "test.conf:4: key must be"},
        {INPUT "[total u]\nkey = host(user[x])\n", "test.conf:4: key must be"},
        {"[input]\ntime = t.\n[total u]\nkey = l\n", "test.conf:2: time must be a field"},
        {INPUT "skip_if = [0]\n[total u]\nkey = l\n",
            "test.conf:3: skip_if: column 1: expected a field, not ["},
        {INPUT "keep_if = a == 1\n[total u]\nkey = l\n",
            "test.conf:3: keep_if: column 3: expected an operator, not == (did you mean =?)"},
        {INPUT "[total u]\nkey = l\nlabel = a b\n", "test.conf:5: invalid label"},
        {INPUT "[total u]\nkey = l\nmax_keys = -1\n", "test.conf:5: max_keys"},
        {INPUT "[total u]\nkey = l\n[subtotal c]\nkey = c\n", "test.conf:5: [subtotal c]"},
        {INPUT "[total u]\nkey = l\n[subtotal c.v]\nkey = c\n", "the section [total v] is missing"},
        {INPUT "[total u]\nkey = l\n[subtotal c.c.u]\nkey = c\n", "test.conf:5: "},
        {INPUT "[total u]\nkey = l\n[total v]\nkey = m\nlabel = u\n",
            "test.conf:7: label 'u' is already the label of [total u] on line 3"},
        {INPUT "[total u]\nkey = l\n[subtotal c.u]\nkey = c\nlabel = x\n[subtotal d.u]\nkey = c\nlabel = x\n",
            "test.conf:10: label 'x' is already the label of [subtotal c.u] on line 5"},
        {INPUT "[total u]\nkey = l\n[total u]\nkey = m\n", "test.conf:"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        refuse(wrong[i].text, wrong[i].error);
}

static void test_too_many_counters_are_refused(void **state)
{
    struct buf text = {0};
    (void)state;
    buf_append_str(&text, INPUT "[total u]\nkey = l\n");
    for (int i = 1; i < COUNTERS_MAX; i++)
        buf_printf(&text, "[total n%d]\nkey = l\n", i);
    struct counters *c = must_read(text.ptr);
    counters_free(&c);
    buf_printf(&text, "[subtotal c.u]\nkey = c\n");
    refuse(text.ptr, "more than 2046 counters");
    buf_free(&text);
}

static void test_one_label_in_two_totals_is_fine(void **state)
{
    struct counters *c = must_read(
        INPUT "[total u]\nkey = l\n[total h]\nkey = h\n[subtotal c.u]\nkey = c\n[subtotal c.h]\nkey = c\n");
    (void)state;
    assert_int_equal(c->n_subtotals, 2);
    counters_free(&c);
}

struct fixture {
    struct counters *c;
    struct counters_reader *r;
};

static int open_sample(void **state)
{
    static struct fixture f;
    f.c = must_read(SAMPLE);
    f.r = counters_reader_new(f.c);
    *state = &f;
    return 0;
}

static int close_sample(void **state)
{
    struct fixture *f = *state;
    counters_reader_free(&f->r);
    counters_free(&f->c);
    return 0;
}

static void assert_key(struct bytes got, const char *expected)
{
    if (!bytes_equal_str(got, expected))
        fail_msg("%.*s is not %s", (int)got.len, got.ptr, expected);
}

static void test_values_as_keys(void **state)
{
    static const char *const pairs[][2] = {
        {"", "None"},
        {",\"l\":null", "None"},
        {",\"l\":\"\"", "None"},
        {",\"l\":\"bitly\"", "bitly"},
        {",\"l\":-0", "0"},
        {",\"l\":-7", "-7"},
        {",\"l\":18446744073709551615", "18446744073709551615"},
        {",\"l\":true", "true"},
        {",\"l\":false", "false"},
        {",\"l\":1,\"l\":\"last\"", "last"},
        {",\"l\":[],\"l\":2", "2"},
        {",\"\\u006c\":3", "3"},
        {",\"l\":\"(other)\"", "\\(other)"},
        {",\"l\":\"\\\\(other)\"", "\\\\(other)"},
        {",\"l\":\"(other) \"", "(other) "},
        {",\"l\":\"a(other)\"", "a(other)"},
        {",\"l\":\"\\\\\"", "\\"},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        char line[128];
        struct counters_event e;
        int n = snprintf(line, sizeof line, "{\"t\":1331923247%s,\"r\":\"http://A:1/\"}", pairs[i][0]);
        assert_int_equal(counters_extract(f->r, bytes_of(line, (size_t)n), &e), COUNTERS_EVENT);
        assert_int_equal(e.hour, 1331920800);
        assert_key(e.texts[e.text_of[0]], pairs[i][1]);
        assert_key(e.texts[e.text_of[1]], "all");
        assert_key(e.texts[e.text_of[2]], "None");
        assert_key(e.texts[e.text_of[3]], "a");
    }
}

static void test_times(void **state)
{
    static const struct {
        const char *time;
        int64_t hour; /* 0: rejected */
    } times[] = {
        {"946684800", 946684800},
        {"946684799", 0},
        {"946684799.9", 0},
        {"5995814399", 5995810800},
        {"5995814399.9", 5995810800},
        {"5995814400", 0},
        {"1.331923247e9", 1331920800},
        {"1331924399.999999", 1331920800},
        {"18446744073709551615", 0},
        {"-1331923247", 0},
        {"1e300", 0},
        {"-1e300", 0},
        {"0", 0},
        {"\"1331923247\"", 0},
        {"null", 0},
        {"true", 0},
        {"[1331923247]", 0},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        char line[64];
        struct counters_event e;
        int n = snprintf(line, sizeof line, "{\"t\":%s}", times[i].time);
        enum counters_verdict v = counters_extract(f->r, bytes_of(line, (size_t)n), &e);
        assert_int_equal(v, times[i].hour ? COUNTERS_EVENT : COUNTERS_REJECTED);
        assert_int_equal(e.hour, times[i].hour);
    }
}

static void check_reason(struct fixture *f, struct bytes line, const char *reason)
{
    struct counters_event e;
    assert_int_equal(counters_extract(f->r, line, &e), COUNTERS_REJECTED);
    assert_string_equal(e.reason, reason);
}

static void test_reasons(void **state)
{
    struct fixture *f = *state;
    check_reason(f, BYTES_LITERAL("[1]"), "not an object");
    check_reason(f, BYTES_LITERAL("{}"), "field t is missing: no time");
    check_reason(f, BYTES_LITERAL("{\"t\":\"1\"}"), "field t is not a time");
    check_reason(
        f, BYTES_LITERAL("{\"t\":\"1332637200\"}"), "field t is a time only with time_format = lenient");
    check_reason(f, BYTES_LITERAL("{\"t\":\"2012-03-25 01:00:00+00\"}"),
        "field t is a time only with time_format = lenient");
    check_reason(f, BYTES_LITERAL("{\"t\":1}"), "field t is a time outside 2000 to 2159");
    check_reason(f, BYTES_LITERAL("{\"t\":1332637200000}"),
        "field t is a time outside 2000 to 2159; milliseconds? set time_unit = ms");
    check_reason(f, BYTES_LITERAL("{\"t\":1332637200000000000}"),
        "field t is a time outside 2000 to 2159; nanoseconds? set time_unit = ns");
    check_reason(f, BYTES_LITERAL("{\"t\":1331923247,\"l\":[]}"), "field l is an array");
    check_reason(f, BYTES_LITERAL("{\"t\":1331923247,\"c\":{}}"), "field c is an object");
    check_reason(f, BYTES_LITERAL("{\"t\":1331923247,\"r\":1.0}"), "field r is a number but not an integer");
}

/* Damage rejects before a heartbeat is seen; a heartbeat is skipped before its time is. */
static void test_skips(void **state)
{
    struct fixture *f = *state;
    struct counters_event e;
    assert_int_equal(counters_extract(f->r, BYTES_LITERAL("{\"_heartbeat_\":1}"), &e), COUNTERS_SKIPPED);
    assert_int_equal(
        counters_extract(f->r, BYTES_LITERAL("{\"_heartbeat_\":null,\"l\":[]}"), &e), COUNTERS_SKIPPED);
    assert_int_equal(counters_extract(f->r, BYTES_LITERAL("{\"_heartbeat_\":1"), &e), COUNTERS_REJECTED);
    assert_int_equal(
        counters_extract(f->r, BYTES_LITERAL("{\"x\":{\"_heartbeat_\":1}}"), &e), COUNTERS_REJECTED);
}

static void test_conditions(void **state)
{
    static const struct {
        const char *line;
        enum counters_verdict expected;
    } rows[] = {{"{\"t\":1332637200,\"status\":200}", COUNTERS_EVENT},
        {"{\"t\":1332637200,\"status\":\"200\",\"bot\":false}", COUNTERS_EVENT},
        {"{\"t\":1332637200,\"status\":200,\"bot\":true}", COUNTERS_SKIPPED},
        {"{\"status\":200,\"bot\":true}", COUNTERS_SKIPPED},
        {"{\"t\":1332637200,\"status\":404}", COUNTERS_SKIPPED}, {"{\"t\":1332637200}", COUNTERS_SKIPPED},
        {"{\"status\":200}", COUNTERS_REJECTED},
        {"{\"t\":1332637200,\"status\":200,\"u\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!\"}",
            COUNTERS_REJECTED},
        {"{\"t\":1332637200,\"status\":404,\"u\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!\"}",
            COUNTERS_REJECTED},
        {"{\"t\":1332637200,\"bot\":true,\"u\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!\"}", COUNTERS_SKIPPED}};
    (void)state;
    struct counters *c =
        must_read("[input]\ntime = t\nskip_if = bot = true or u ~ ^(a+)+$\nkeep_if = status < 400\n"
                  "[total u]\nkey = status\n");
    assert_string_equal(c->text, "input keep_if = status < 400\ninput skip_if = bot = true or u ~ ^(a+)+$\n"
                                 "input time = t\ninput time_unit = s\ntotal u key = status\n");
    struct counters_reader *r = counters_reader_new(c);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct counters_event e;
        enum counters_verdict got = counters_extract(r, bytes_str(rows[i].line), &e);
        if (got != rows[i].expected)
            fail_msg("%s: %d, not %d", rows[i].line, got, rows[i].expected);
        if (i >= 7 && got == COUNTERS_REJECTED)
            assert_string_equal(e.reason, "skip_if or keep_if takes too many steps");
    }
    counters_reader_free(&r);
    counters_free(&c);
}

static void test_erased_lines_are_skipped(void **state)
{
    struct fixture *f = *state;
    struct counters_event e;
    assert_int_equal(counters_extract(f->r, BYTES_LITERAL("{} "), &e), COUNTERS_SKIPPED);
    assert_int_equal(counters_extract(f->r, BYTES_LITERAL("{}            "), &e), COUNTERS_SKIPPED);
    assert_int_equal(counters_extract(f->r, BYTES_LITERAL("{}"), &e), COUNTERS_REJECTED);
    assert_int_equal(counters_extract(f->r, BYTES_LITERAL("{} x"), &e), COUNTERS_REJECTED);
    assert_int_equal(counters_extract(f->r, BYTES_LITERAL(" {}"), &e), COUNTERS_REJECTED);
    assert_int_equal(counters_extract(f->r, BYTES_LITERAL("   "), &e), COUNTERS_REJECTED);
}

static void test_finer_units(void **state)
{
    static const struct {
        const char *unit, *inside, *past;
    } units[] = {
        {"us", "1331923247999999", "5995814400000000"}, {"ns", "1331923247999999999", "5995814400000000000"}};
    (void)state;
    for (int i = 0; i < 2; i++) {
        char text[128], line[64];
        struct counters_event e;
        snprintf(text, sizeof text, "[input]\ntime = t\ntime_unit = %s\n[total u]\nkey = l\n", units[i].unit);
        struct counters *c = must_read(text);
        struct counters_reader *r = counters_reader_new(c);
        snprintf(line, sizeof line, "{\"t\":%s}", units[i].inside);
        assert_int_equal(counters_extract(r, bytes_str(line), &e), COUNTERS_EVENT);
        assert_int_equal(e.hour, 1331920800);
        snprintf(line, sizeof line, "{\"t\":%s}", units[i].past);
        assert_int_equal(counters_extract(r, bytes_str(line), &e), COUNTERS_REJECTED);
        counters_reader_free(&r);
        counters_free(&c);
    }
}

static void test_times_as_text(void **state)
{
    static const char *const good[] = {"2012-03-16T18:40:47Z", "2012-03-16t18:40:47.999999999z",
        "2012-03-16 19:40:47+01:00", "2012-03-16T13:10:47.5-05:30", "2012-03-16T18:59:60Z"};
    static const char *const bad[] = {"", "1331923247", "2012-03-16", "2012-03-16T18:40:47",
        "2012-03-16T18:40:47+1", "2012-02-30T18:40:47Z", "2012-13-16T18:40:47Z", "2012-03-16T24:00:00Z",
        "2012-03-16T18:40:47.Z", "2012-03-16T18:40:47+24:00", "2012-03-16T18:40:47Zx", "1999-12-31T23:59:59Z",
        "2012-03-16T1a:40:47Z", "2160-01-01T00:00:00Z"};
    struct counters *c = must_read("[input]\ntime = t\ntime_unit = ms\n[total u]\nkey = l\n");
    struct counters_reader *r = counters_reader_new(c);
    struct counters_event e;
    char line[64];
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        snprintf(line, sizeof line, "{\"t\":\"%s\"}", good[i]);
        assert_int_equal(counters_extract(r, bytes_str(line), &e), COUNTERS_EVENT);
        assert_int_equal(e.hour, 1331920800);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(line, sizeof line, "{\"t\":\"%s\"}", bad[i]);
        assert_int_equal(counters_extract(r, bytes_str(line), &e), COUNTERS_REJECTED);
    }
    counters_reader_free(&r);
    counters_free(&c);
}

/* Texts of other programs, by [input] time_format. */
static void test_lenient_times(void **state)
{
    static const char *const good[] = {"2012-03-16T18:40:47+0000", "2012-03-16 18:40:47+00",
        "2012-03-16 18:40:47 UTC", "2012-03-16T18:40:47Z", "1331923247000", "2012-03-16 20:40:47.5 +0200"};
    static const char *const bad[] = {
        "2012-03-16T18:40:47", "2012-03-16 18:40:47 CET", "2012-02-30 18:40:47 UTC", "1331923247000x", ""};
    struct counters *c =
        must_read("[input]\ntime = t\ntime_unit = ms\ntime_format = lenient\n[total u]\nkey = l\n");
    struct counters *strict =
        must_read("[input]\ntime = t\ntime_unit = ms\ntime_format = strict\n[total u]\nkey = l\n");
    struct counters_reader *r = counters_reader_new(c), *s = counters_reader_new(strict);
    struct counters_event e;
    char line[64];
    (void)state;
    assert_non_null(strstr(c->text, "input time_format = lenient\n"));
    assert_null(strstr(strict->text, "time_format"));
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        snprintf(line, sizeof line, "{\"t\":\"%s\"}", good[i]);
        assert_int_equal(counters_extract(r, bytes_str(line), &e), COUNTERS_EVENT);
        assert_int_equal(e.hour, 1331920800);
        assert_int_equal(
            counters_extract(s, bytes_str(line), &e), i == 3 ? COUNTERS_EVENT : COUNTERS_REJECTED);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(line, sizeof line, "{\"t\":\"%s\"}", bad[i]);
        assert_int_equal(counters_extract(r, bytes_str(line), &e), COUNTERS_REJECTED);
    }
    counters_reader_free(&r);
    counters_reader_free(&s);
    counters_free(&c);
    counters_free(&strict);
}

static void test_milliseconds(void **state)
{
    struct counters *c = must_read("[input]\ntime = t\ntime_unit = ms\n[total u]\nkey = l\n");
    struct counters_reader *r = counters_reader_new(c);
    struct counters_event e;
    (void)state;
    assert_int_equal(counters_extract(r, BYTES_LITERAL("{\"t\":1331923247999}"), &e), COUNTERS_EVENT);
    assert_int_equal(e.hour, 1331920800);
    assert_int_equal(counters_extract(r, BYTES_LITERAL("{\"t\":5995814399999.9}"), &e), COUNTERS_EVENT);
    assert_int_equal(counters_extract(r, BYTES_LITERAL("{\"t\":5995814400000}"), &e), COUNTERS_REJECTED);
    assert_int_equal(counters_extract(r, BYTES_LITERAL("{\"t\":1331923247}"), &e), COUNTERS_REJECTED);
    counters_reader_free(&r);
    counters_free(&c);
}

#define NOW INT64_C(1331923247)

static enum counters_verdict verdict_at(struct counters_reader *r, int64_t time, struct counters_event *e)
{
    char line[64];
    snprintf(line, sizeof line, "{\"t\":%lld}", (long long)time);
    return counters_extract(r, bytes_str(line), e);
}

static void test_events_far_ahead_are_rejected(void **state)
{
    static const struct {
        const char *setting;
        int64_t ahead; /* 0: unlimited */
    } settings[] = {
        {"", 172800}, {"max_ahead = 90\n", 90}, {"max_ahead = 1h\n", 3600}, {"max_ahead = 0\n", 0}};
    struct counters_event e;
    (void)state;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        char text[128];
        int64_t ahead = settings[i].ahead;
        snprintf(text, sizeof text, INPUT "%s[total u]\nkey = l\n", settings[i].setting);
        struct counters *c = must_read(text);
        struct counters_reader *r = counters_reader_new(c);
        assert_int_equal(verdict_at(r, HOUR_END - 1, &e), COUNTERS_EVENT);
        counters_reader_set_now(r, NOW);
        assert_int_equal(verdict_at(r, NOW + ahead, &e), COUNTERS_EVENT);
        assert_int_equal(e.time, NOW + ahead);
        assert_int_equal(verdict_at(r, NOW + ahead + 1, &e), ahead ? COUNTERS_REJECTED : COUNTERS_EVENT);
        if (ahead)
            assert_string_equal(e.reason, "field t is a time more than max_ahead in the future");
        assert_int_equal(verdict_at(r, HOUR_END - 1, &e), ahead ? COUNTERS_REJECTED : COUNTERS_EVENT);
        counters_reader_set_now(r, INT64_MAX / 2);
        assert_int_equal(verdict_at(r, HOUR_END - 1, &e), COUNTERS_EVENT);
        counters_reader_free(&r);
        counters_free(&c);
    }
    refuse(INPUT "max_ahead = -1\n[total u]\nkey = l\n", "test.conf:3: max_ahead is not a duration");
    /* The canonical text has the setting only if it is not the default. */
    struct counters *c = must_read(INPUT "max_ahead = 1d\n[total u]\nkey = l\n");
    assert_string_equal(
        c->text, "input max_ahead = 86400s\ninput time = t\ninput time_unit = s\ntotal u key = l\n");
    counters_free(&c);
}

static void test_long_texts_are_bounded(void **state)
{
    struct counters *c =
        must_read(INPUT "[counters]\nmax_text = 64\n[total u]\nkey = l\n[total d]\nkey = host(l)\n");
    struct counters_reader *r = counters_reader_new(c);
    struct counters_event e;
    char line[256];
    (void)state;
    assert_string_equal(c->text, "counters max_text = 64\ninput time = t\ninput time_unit = s\n"
                                 "total d key = host(l)\ntotal u key = l\n");
    for (int n = 63; n <= 66; n++) {
        char expected[80];
        snprintf(line, sizeof line, "{\"t\":1331923247,\"l\":\"%0*d\"}", n, 7);
        assert_int_equal(counters_extract(r, bytes_str(line), &e), COUNTERS_EVENT);
        snprintf(expected, sizeof expected, "%0*d", n, 7);
        if (n == 65) /* printf %065d 7 | md5sum; then that of the 48 bytes */
            snprintf(expected, sizeof expected, "%031d~489ecdb839d2227688564b4bd18fd8d5", 0);
        if (n <= 65)
            assert_key(e.texts[e.text_of[0]], expected);
        assert_int_equal(e.texts[e.text_of[0]].len, n < 64 ? n : 64);
    }
    /* No UTF-8 character is cut. host() is computed before. */
    struct buf url = {0};
    buf_append_str(&url, "{\"t\":1331923247,\"l\":\"http://aa");
    for (int i = 0; i < 40; i++)
        buf_append_str(&url, "\xc3\xa9");
    buf_append_str(&url, "/\"}");
    assert_int_equal(counters_extract(r, buf_bytes(&url), &e), COUNTERS_EVENT);
    assert_int_equal(e.texts[e.text_of[0]].len, 64);
    assert_int_equal(e.texts[e.text_of[1]].len, 63);
    assert_memory_equal(e.texts[e.text_of[1]].ptr + 28, "\xc3\xa9~", 3);
    buf_free(&url);
    counters_reader_free(&r);
    counters_free(&c);
    c = must_read(INPUT "[total u]\nkey = l\n");
    assert_int_equal(c->max_text, 2048);
    counters_free(&c);
    refuse(INPUT "[counters]\nmax_text = 63\n[total u]\nkey = l\n", "test.conf:4: max_text is out of bounds");
    refuse(INPUT "[counters]\nmax_keys = 1\n[total u]\nkey = l\n",
        "test.conf:4: [counters] has no setting 'max_keys'");
}

static void test_paths_name_fields_everywhere(void **state)
{
    struct counters *c = must_read("[input]\ntime = meta.time\nskip_if = meta[\"no.count\"]\n"
                                   "[total u]\nkey = user.id\n[total d]\nkey = host(items[0].url)\n"
                                   "[total l]\nkey = [\"user.id\"]\n");
    struct counters_reader *r = counters_reader_new(c);
    struct fixture f = {c, r};
    struct counters_event e;
    (void)state;
    struct bytes line = BYTES_LITERAL("{\"meta\":{\"time\":1331923247},\"user\":{\"id\":7},\"user.id\":8,"
                                      "\"items\":[{\"url\":\"http://A/\"}]}");
    assert_int_equal(counters_extract(r, line, &e), COUNTERS_EVENT);
    assert_key(e.texts[e.text_of[0]], "8"); /* the member with this whole name wins */
    assert_key(e.texts[e.text_of[1]], "a");
    assert_key(e.texts[e.text_of[2]], "8");
    assert_int_equal(
        counters_extract(
            r, BYTES_LITERAL("{\"meta\":{\"time\":1331923247},\"user\":{\"id\":7},\"items\":[]}"), &e),
        COUNTERS_EVENT);
    assert_key(e.texts[e.text_of[0]], "7");
    assert_key(e.texts[e.text_of[2]], "None");
    assert_int_equal(
        counters_extract(r, BYTES_LITERAL("{\"meta\":{\"no.count\":null}}"), &e), COUNTERS_SKIPPED);
    check_reason(&f, BYTES_LITERAL("{\"meta\":5}"), "field meta.time is missing: no time");
    check_reason(&f, BYTES_LITERAL("{\"meta\":{\"time\":1331923247},\"user\":{\"id\":[]}}"),
        "field user.id is an array");
    counters_reader_free(&r);
    counters_free(&c);
}

static void test_conflicts(void **state)
{
    (void)state;
    const char *before = "input time = t\nsubtotal c.u key = c\ntotal u key = l\ntotal u max_keys = 9\n";
    assert_int_equal(counters_conflict(before, before).len, 0);
    assert_int_equal(counters_conflict(before, "input time = x\ntotal u key = l\ntotal v key = h\n").len, 0);
    assert_int_equal(counters_conflict(before, "subtotal c.u key = c\ntotal u key = l\n").len, 0);
    assert_int_equal(counters_conflict("", before).len, 0);
    struct bytes line = counters_conflict(before, "subtotal c.u key = cc\ntotal u key = l\n");
    assert_true(bytes_equal_str(line, "subtotal c.u key = c"));
    assert_true(bytes_equal_str(counters_conflict(before, "total u key = h"), "total u key = l"));
    assert_int_equal(counters_conflict("input skip_if = a key = b\n", "input skip_if = a key = c\n").len, 0);
}

static void test_what_is_missing(void **state)
{
    (void)state;
    struct buf out = {0};
    const char *before = "input time = t\nsubtotal c.u key = c\ntotal u key = l\ntotal u max_keys = 9\n";
    counters_append_missing(before, before, &out);
    counters_append_missing("", before, &out);
    counters_append_missing(before, "subtotal c.u key = x\ntotal u key = h\n", &out);
    assert_int_equal(out.len, 0);
    counters_append_missing(before, "total uu key = l\nsubtotal c.u key = c", &out);
    counters_append_missing(before, "", &out);
    assert_true(bytes_equal_str(buf_bytes(&out), "total u key = l\nsubtotal c.u key = c\ntotal u key = l\n"));
    buf_free(&out);
}

#define TOTAL INPUT "[total u]\nkey = l\n"
#define UNIQUES                                                                                              \
    "[unique w.u]\nmember = host(r)\nby = hour\n[unique v.u]\nmember = a\nlabel = visitor\n"                 \
    "[unique v.h]\nmember = a\n"

static void test_unique_counters(void **state)
{
    (void)state;
    struct counters *c = must_read(UNIQUES TOTAL "[total h]\nkey = a\n[subtotal r.u]\nkey = host(r)\n");
    assert_int_equal(c->n_totals + c->n_subtotals, 3);
    assert_int_equal(c->n_uniques, 3);
    assert_string_equal(c->uniques[0].label, "w");
    assert_int_equal(c->uniques[0].by, PERIOD_HOUR);
    assert_int_equal(c->uniques[1].by, PERIOD_DAY);
    assert_int_equal(c->uniques[2].total, 1);
    assert_ptr_equal(counters_find_unique(c, BYTES_LITERAL("v.u")), &c->uniques[1]);
    assert_null(counters_find(c, BYTES_LITERAL("v.u")));
    assert_null(counters_find_unique(c, BYTES_LITERAL("r.u")));
    assert_ptr_equal(counters_find_unique_label(c, &c->totals[0], BYTES_LITERAL("visitor")), &c->uniques[1]);
    assert_null(counters_find_unique_label(c, &c->totals[1], BYTES_LITERAL("visitor")));
    assert_string_equal(c->text, "input time = t\ninput time_unit = s\nsubtotal r.u key = host(r)\n"
                                 "total h key = a\ntotal u key = l\nunique v.h member = a by = day\n"
                                 "unique v.u member = a by = day\nunique w.u member = host(r) by = hour\n");
    counters_free(&c);
}

static void test_wrong_unique_counters(void **state)
{
    (void)state;
    refuse(TOTAL "[unique v.u]\n", ":5: [unique v.u] needs member = FIELD or host(FIELD)");
    refuse(TOTAL "[unique v.u]\nmember = \"all\"\n", ":6: member must be FIELD or host(FIELD)");
    refuse(TOTAL "[unique v.u]\nmember = a[\n", ":6: member must be FIELD");
    refuse(
        TOTAL "[unique v.u]\nmember = a\nby = minute\n", ":7: by must be day, hour or quarter, not 'minute'");
    refuse(TOTAL "[unique v.u]\nmember = a\nkey = b\n", "[unique] has no setting 'key'");
    refuse(TOTAL "[unique v.u]\nmember = a\nlabel = a b\n", ":7: invalid label 'a b'");
    refuse(TOTAL "[unique v]\nmember = a\n", ":5: [unique v]: invalid name; use S.NS");
    refuse(TOTAL "[unique v.x]\nmember = a\n", ":5: [unique v.x]: the section [total x] is missing");
    refuse("[unique c.u]\nmember = a\n" TOTAL "[subtotal c.u]\nkey = c\nlabel = x\n",
        ":1: [unique c.u]: [subtotal c.u] on line 7 has the same name");
    refuse(TOTAL "[unique v.u]\nmember = a\nlabel = c\n[subtotal c.u]\nkey = c\n",
        ":7: label 'c' is already the label of [subtotal c.u] on line 8");
    refuse(TOTAL "[unique v.u]\nmember = a\nlabel = x\n[unique w.u]\nmember = a\nlabel = x\n",
        ":10: label 'x' is already the label of [unique v.u] on line 5");
    struct buf text = {0};
    struct error error;
    buf_append_str(&text, TOTAL);
    for (int i = 0; i < UNIQUES_MAX; i++)
        buf_printf(&text, "[unique v%d.u]\nmember = a\n", i);
    buf_append_char(&text, '\0');
    struct counters *c = read_text(text.ptr, &error);
    assert_non_null(c);
    counters_free(&c);
    text.len--;
    buf_append_str(&text, "[unique w.u]\nmember = a\n");
    buf_append_char(&text, '\0');
    refuse(text.ptr, "more than 255 unique counters");
    buf_free(&text);
}

static void test_values_as_members(void **state)
{
    (void)state;
    static const struct {
        const char *fields, *a, *host; /* NULL: no member */
    } rows[] = {{"\"a\":7,\"r\":\"http://E.org/x\"", "7", "e.org"}, {"\"a\":\"7\",\"r\":\"\"", "7", NULL},
        {"\"a\":-1", "-1", NULL}, {"\"a\":null,\"r\":null", NULL, NULL}, {"\"r\":\"http://\"", NULL, "None"},
        {"\"a\":true,\"r\":5", "true", "5"}, {"\"a\":\"(other)\",\"r\":\"None\"", "(other)", "None"}};
    struct counters *c = must_read("[counters]\nmax_text = 64\n" UNIQUES TOTAL "[total h]\nkey = a\n");
    struct counters_reader *r = counters_reader_new(c);
    struct counters_event e;
    struct buf line = {0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        buf_clear(&line);
        buf_printf(&line, "{\"t\":1332637200,%s}", rows[i].fields);
        assert_int_equal(counters_extract(r, buf_bytes(&line), &e), COUNTERS_EVENT);
        assert_int_equal(e.n_members, 2); /* v.u and v.h have the same member */
        assert_int_equal(e.member_of[1], e.member_of[2]);
        const char *const expected[] = {rows[i].host, rows[i].a};
        for (size_t k = 0; k < 2; k++) {
            struct bytes member = e.members[e.member_of[k]];
            assert_true(expected[k] ? bytes_equal_str(member, expected[k]) : member.len == 0);
        }
        assert_key(e.texts[e.text_of[1]], !rows[i].a            ? "None"
                                          : rows[i].a[0] == '(' ? "\\(other)"
                                                                : rows[i].a);
    }
    buf_clear(&line);
    buf_printf(&line, "{\"t\":1332637200,\"a\":\"%0100d\"}", 0);
    assert_int_equal(counters_extract(r, buf_bytes(&line), &e), COUNTERS_EVENT);
    assert_int_equal(e.members[e.member_of[1]].len, 100);
    assert_int_equal(e.texts[e.text_of[1]].len, 64);
    assert_int_equal(
        counters_extract(r, BYTES_LITERAL("{\"t\":1332637200,\"r\":1.5}"), &e), COUNTERS_REJECTED);
    assert_string_equal(e.reason, "field r is a number but not an integer");
    assert_int_equal(
        counters_extract(r, BYTES_LITERAL("{\"t\":1332637200,\"r\":[]}"), &e), COUNTERS_REJECTED);
    assert_null(counters_reader_absent(r, 0));
    buf_free(&line);
    counters_reader_free(&r);
    counters_free(&c);
}

static void test_fields_that_may_be_absent(void **state)
{
    (void)state;
    struct counters *c =
        must_read("[input]\ntime = t\noptional = r, a.b\n[total u]\nkey = l\n[total h]\nkey = host(r)\n"
                  "[subtotal a.u]\nkey = a.b\n[subtotal c.u]\nkey = c\n");
    struct counters_reader *r = counters_reader_new(c);
    struct counters_event e;
    assert_int_equal(counters_reader_end_sample(r), 0);
    assert_null(counters_reader_absent(r, 0));
    for (int i = 0; i < COUNTERS_SAMPLE; i++)
        assert_int_equal(
            counters_extract(r, BYTES_LITERAL("{\"t\":1332637200,\"l\":\"x\"}"), &e), COUNTERS_EVENT);
    assert_string_equal(counters_reader_absent(r, 0), "c");
    assert_int_equal(counters_reader_end_sample(r), COUNTERS_SAMPLE);
    assert_string_equal(counters_reader_absent(r, 0), "c");
    assert_null(counters_reader_absent(r, 1));
    counters_reader_free(&r);
    counters_free(&c);
    c = must_read("[input]\ntime = t\noptional = paid, price\n[total u]\nkey = l\n[total sales]\nkey = "
                  "l\nvalue = paid\n"
                  "[total buys]\nkey = l\nhaving = price\n");
    r = counters_reader_new(c);
    for (int i = 0; i < COUNTERS_SAMPLE; i++)
        assert_int_equal(
            counters_extract(r, BYTES_LITERAL("{\"t\":1332637200,\"l\":\"x\"}"), &e), COUNTERS_EVENT);
    assert_null(counters_reader_absent(r, 0));
    counters_reader_free(&r);
    counters_free(&c);
    refuse("[input]\ntime = t\noptional = l referer\n[total u]\nkey = l\n",
        "optional: no counter has the field referer");
    refuse("[input]\ntime = t\noptional = all\n[total u]\nkey = \"all\"\n",
        "optional: no counter has the field all");
}

static void test_conflicts_of_unique_counters(void **state)
{
    (void)state;
    const char *before = "total u key = l\nunique v.u member = a by = day\n";
    assert_int_equal(counters_conflict(before, before).len, 0);
    assert_int_equal(counters_conflict(before, "total u key = l\n").len, 0);
    static const char *const changed[] = {"total u key = l\nunique v.u member = b by = day\n",
        "unique v.u member = a by = hour\n", "subtotal v.u key = a\n"};
    for (size_t i = 0; i < sizeof changed / sizeof *changed; i++) {
        assert_true(bytes_equal_str(counters_conflict(before, changed[i]), "unique v.u member = a by = day"));
        assert_true(counters_conflict(changed[i], before).len > 0);
    }
    struct buf out = {0};
    counters_append_missing(before, "total u key = l\nunique v.uu member = a by = day\n", &out);
    assert_true(bytes_equal_str(buf_bytes(&out), "unique v.u member = a by = day\n"));
    buf_free(&out);
}

#define REVENUE "[total revenue]\nkey = product\nvalue = price\nscale = 2\nmax_value = 100\nunit = \"€\"\n"
#define BUYS "[total buys]\nkey = product\nhaving = price\n"

static void test_settings_of_values(void **state)
{
    (void)state;
    struct counters *c = must_read(INPUT "[subtotal c.revenue]\nkey = c\n" REVENUE "round = half_even\n" BUYS
                                         "[total u]\nkey = l\n[unique v.revenue]\nmember = who\n");
    const struct counter *both[] = {&c->totals[0], &c->subtotals[0]};
    for (size_t i = 0; i < 2; i++) {
        assert_string_equal(both[i]->value, "price");
        assert_string_equal(both[i]->unit, "€");
        assert_null(both[i]->having);
        assert_int_equal(both[i]->decimal.scale, 2);
        assert_true(both[i]->decimal.rounds);
        assert_int_equal(both[i]->max_value, 10000);
    }
    assert_string_equal(c->totals[1].having, "price");
    assert_null(c->totals[1].value);
    assert_null(c->totals[2].value);
    assert_string_equal(c->text,
        "input time = t\ninput time_unit = s\nsubtotal c.revenue key = c\ntotal buys key = product\n"
        "total buys having = price\ntotal revenue key = product\ntotal revenue max_value = 100.00\n"
        "total revenue round = half_even\ntotal revenue scale = 2\ntotal revenue value = price\n"
        "total u key = l\nunique v.revenue member = who by = day\n");
    unsigned scale = 9;
    assert_true(counters_text_scale(c->text, BYTES_LITERAL("revenue"), &scale));
    assert_int_equal(scale, 2);
    assert_true(counters_text_scale(c->text, BYTES_LITERAL("c.revenue"), &scale));
    assert_false(counters_text_scale(c->text, BYTES_LITERAL("buys"), &scale));
    assert_false(counters_text_scale(c->text, BYTES_LITERAL("u"), &scale));
    counters_free(&c);
    c = must_read(INPUT "[total m]\nkey = l\nvalue = ms\nunit = ms\n");
    assert_int_equal(c->totals[0].decimal.scale, 0);
    assert_true(c->totals[0].max_value == INT64_MAX);
    assert_string_equal(c->totals[0].unit, "ms");
    counters_free(&c);
}

static void test_wrong_values(void **state)
{
    (void)state;
    refuse(TOTAL "value = a[\n", ":5: value must be a field");
    refuse(TOTAL "having = \"a\"\n", ":5: having must be a field");
    refuse(TOTAL "value = a\nhaving = a\n", ":6: [total u]: value and having exclude each other");
    refuse(TOTAL "scale = 2\n", ":5: [total u]: scale needs value = FIELD");
    refuse(TOTAL "having = a\nunit = EUR\n", ":6: [total u]: unit needs value = FIELD");
    refuse(TOTAL "value = a\nscale = 10\n", ":6: scale ");
    refuse(TOTAL "value = a\nround = up\n", ":6: round must be half_even, not 'up'");
    refuse(TOTAL "value = a\nmax_value = 0\n", ":6: max_value must be a decimal above 0");
    refuse(TOTAL "value = a\nmax_value = 1.5\n", "which has more digits after the point");
    refuse(TOTAL "value = a\nround = half_even\nmax_value = 1.5\n", ":7: max_value must be a decimal");
    refuse(TOTAL "value = a\nunit = 12345678901234567\n", ":6: unit must be a text of 1 to 16 bytes");
    refuse(TOTAL "value = a\nunit = \"\"\n", ":6: unit must be a text");
    refuse(TOTAL "[subtotal c.u]\nkey = c\nvalue = a\n", "[subtotal] has no setting 'value'");
}

static void test_amounts(void **state)
{
    static const struct {
        const char *fields;
        bool has_value, has_field;
        int64_t n;
        const char *why; /* NULL: the event counts */
    } rows[] = {{"", false, false, 0, NULL}, {",\"price\":null", false, false, 0, NULL},
        {",\"price\":12.5", true, true, 1250, NULL}, {",\"price\":\"-0.05\"", true, true, -5, NULL},
        {",\"price\":0", true, true, 0, NULL}, {",\"price\":100", true, true, 10000, NULL},
        {",\"price\":-100.00", true, true, -10000, NULL},
        {",\"price\":100.01", true, true, 0, "field price exceeds max_value"},
        {",\"price\":\"-100.01\"", true, true, 0, "field price exceeds max_value"},
        {",\"price\":\"\"", true, true, 0, "field price is not a decimal"},
        {",\"price\":true", true, true, 0, "field price is not a decimal"},
        {",\"price\":[1]", true, true, 0, "field price is not a decimal"},
        {",\"price\":0.001", true, true, 0,
            "field price has more digits after the point than the counter's scale"}};
    struct counters *c = must_read(INPUT REVENUE BUYS "[total u]\nkey = product\n");
    struct counters_reader *r = counters_reader_new(c);
    struct fixture f = {c, r};
    struct counters_event e;
    struct buf line = {0};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        buf_clear(&line);
        buf_printf(&line, "{\"t\":1332637200%s}", rows[i].fields);
        if (rows[i].why) {
            check_reason(&f, buf_bytes(&line), rows[i].why);
            continue;
        }
        assert_int_equal(counters_extract(r, buf_bytes(&line), &e), COUNTERS_EVENT);
        assert_int_equal(e.amounts[0].is_counted, rows[i].has_value);
        if (rows[i].has_value)
            assert_int_equal(e.amounts[0].n, rows[i].n);
        assert_int_equal(e.amounts[1].is_counted, rows[i].has_field);
        assert_int_equal(e.amounts[1].n, 1);
        assert_true(e.amounts[2].is_counted && e.amounts[2].n == 1);
    }
    buf_free(&line);
    counters_reader_free(&r);
    counters_free(&c);
    c = must_read(TOTAL);
    r = counters_reader_new(c);
    assert_int_equal(counters_extract(r, BYTES_LITERAL("{\"t\":1332637200}"), &e), COUNTERS_EVENT);
    assert_null(e.amounts);
    counters_reader_free(&r);
    counters_free(&c);
}

static void test_absent_value(void **state)
{
    (void)state;
    struct counters *c =
        must_read(INPUT "[total u]\nkey = l\nvalue = prise\n[total b]\nkey = l\nhaving = price\n");
    struct counters_reader *r = counters_reader_new(c);
    struct counters_event e;
    for (int i = 0; i < COUNTERS_SAMPLE; i++)
        assert_int_equal(
            counters_extract(r, BYTES_LITERAL("{\"t\":1332637200,\"l\":1,\"price\":2}"), &e), COUNTERS_EVENT);
    assert_string_equal(counters_reader_absent(r, 0), "prise");
    assert_null(counters_reader_absent(r, 1));
    counters_reader_free(&r);
    counters_free(&c);
}

static void test_conflicts_of_values(void **state)
{
    (void)state;
    const char *before = "subtotal c.u key = c\ntotal u key = l\ntotal u max_value = 9\ntotal u scale = 2\n"
                         "total u value = price\n";
    const char *kept = "subtotal c.u key = c\ntotal u key = l\ntotal u round = half_even\ntotal u scale = 2\n"
                       "total u value = price\n";
    static const struct {
        const char *now, *line;
    } changed[] = {{"total u key = l\ntotal u scale = 3\ntotal u value = price\n", "total u scale = 2"},
        {"total u key = l\ntotal u scale = 2\ntotal u value = cost\n", "total u value = price"},
        {"total u key = l\n", "total u scale = 2"},
        {"total u having = price\ntotal u key = l\n", "total u scale = 2"}};
    assert_int_equal(counters_conflict(before, kept).len, 0);
    assert_int_equal(counters_conflict(before, "total v key = l\n").len, 0);
    for (size_t i = 0; i < sizeof changed / sizeof *changed; i++)
        assert_true(bytes_equal_str(counters_conflict(before, changed[i].now), changed[i].line));
    assert_true(bytes_equal_str(counters_conflict("total u key = l\n", before), "total u key = l"));
    assert_true(
        bytes_equal_str(counters_conflict("total u key = l\n", "total u having = price\ntotal u key = l\n"),
            "total u key = l"));
    struct buf out = {0};
    counters_append_missing(before, "total v key = l\n", &out);
    assert_true(bytes_equal_str(buf_bytes(&out), "subtotal c.u key = c\ntotal u key = l\ntotal u scale = 2\n"
                                                 "total u value = price\n"));
    buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_settings_of_values),
        cmocka_unit_test(test_wrong_values),
        cmocka_unit_test(test_amounts),
        cmocka_unit_test(test_absent_value),
        cmocka_unit_test(test_conflicts_of_values),
        cmocka_unit_test(test_unique_counters),
        cmocka_unit_test(test_wrong_unique_counters),
        cmocka_unit_test(test_values_as_members),
        cmocka_unit_test(test_conflicts_of_unique_counters),
        cmocka_unit_test(test_reads_what_is_configured),
        cmocka_unit_test(test_text_is_canonical),
        cmocka_unit_test(test_functions_of_fields),
        cmocka_unit_test(test_refusals_name_the_line),
        cmocka_unit_test(test_one_label_in_two_totals_is_fine),
        cmocka_unit_test(test_too_many_counters_are_refused),
        cmocka_unit_test_setup_teardown(test_values_as_keys, open_sample, close_sample),
        cmocka_unit_test_setup_teardown(test_times, open_sample, close_sample),
        cmocka_unit_test_setup_teardown(test_reasons, open_sample, close_sample),
        cmocka_unit_test_setup_teardown(test_skips, open_sample, close_sample),
        cmocka_unit_test(test_conditions),
        cmocka_unit_test_setup_teardown(test_erased_lines_are_skipped, open_sample, close_sample),
        cmocka_unit_test(test_lenient_times),
        cmocka_unit_test(test_milliseconds),
        cmocka_unit_test(test_finer_units),
        cmocka_unit_test(test_times_as_text),
        cmocka_unit_test(test_events_far_ahead_are_rejected),
        cmocka_unit_test(test_long_texts_are_bounded),
        cmocka_unit_test(test_paths_name_fields_everywhere),
        cmocka_unit_test(test_conflicts),
        cmocka_unit_test(test_fields_that_may_be_absent),
        cmocka_unit_test(test_what_is_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
