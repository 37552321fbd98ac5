/* sample_line and query_params: the lines of samples, and the times and durations of questions. */
#include "support/cm.h"

#include "metricdb/query_params.h"
#include "metricdb/sample_line.h"

#include <math.h>
#include <stdlib.h>

static struct sample_line reader;

static const struct sample *read_line(const char *text)
{
    char *copy = mem_strdup(text); /* so that a read beyond the end is found */
    bool ok = sample_line_read(&reader, bytes_of(copy, strlen(copy))) && sample_line_next(&reader);
    static struct sample sample;
    static struct metric_label labels[8];
    static char texts[1000];
    size_t used = 0;
    sample = reader.sample;
    for (size_t i = 0; ok && i < sample.n_labels; i++) {
        struct bytes *both[] = {&labels[i].name, &labels[i].value};
        labels[i] = sample.labels[i];
        for (int k = 0; k < 2; k++) {
            memcpy(texts + used, both[k]->ptr, both[k]->len);
            both[k]->ptr = texts + used;
            used += both[k]->len;
        }
    }
    sample.labels = labels;
    free(copy);
    return ok ? &sample : NULL;
}

#define LABELS "\"labels\":{\"__name__\":\"up\",\"job\":\"a b\"}"

static void assert_label(const struct sample *s, size_t i, const char *name, const char *value)
{
    assert_true(i < s->n_labels);
    if (!bytes_equal_str(s->labels[i].name, name) || !bytes_equal_str(s->labels[i].value, value))
        fail_msg("label %zu is %.*s=%.*s", i, (int)s->labels[i].name.len, s->labels[i].name.ptr,
            (int)s->labels[i].value.len, s->labels[i].value.ptr);
}

static void lines(void **state)
{
    (void)state;
    static const char *const forms[] = {"{\"t\":1732977600.125," LABELS ",\"v\":1.5}",
        "{\"v\":15e-1," LABELS ",\"t\":1732977600.125}",
        " { \"t\" : 1.732977600125e9 , " LABELS " ,\t\"v\": 1.5 } ",
        "{\"t\":1732977600.125,\"labels\":{ \"__name__\" : \"up\" , \"job\" : \"a b\" },\"v\":1.5}"};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const struct sample *s = read_line(forms[i]);
        assert_non_null(s);
        assert_int_equal(s->at, 1732977600125);
        assert_true(s->value == 1.5 && !s->is_stale && s->n_labels == 2);
        assert_label(s, 0, "__name__", "up");
        assert_label(s, 1, "job", "a b");
    }
    const struct sample *s = read_line("{\"t\":-1,\"labels\":{},\"v\":-0.5}");
    assert_true(s && s->at == -1000 && s->value == -0.5 && s->n_labels == 0);
}

static void values(void **state)
{
    (void)state;
    const struct sample *s = read_line("{\"t\":1," LABELS ",\"v\":\"NaN\"}");
    assert_true(s && isnan(s->value) && !s->is_stale);
    s = read_line("{\"t\":1," LABELS ",\"v\":\"+Inf\"}");
    assert_true(s && isinf(s->value) && s->value > 0);
    s = read_line("{\"t\":1," LABELS ",\"v\":\"-Inf\"}");
    assert_true(s && isinf(s->value) && s->value < 0);
    s = read_line("{\"t\":1," LABELS ",\"v\":\"stale\"}");
    assert_true(s && s->is_stale);
    s = read_line("{\"t\":1," LABELS ",\"v\":1}");
    assert_true(s && !s->is_stale);
}

static void several(void **state)
{
    (void)state;
    static const char *const forms[] = {"{\"t\":1.5,\"labels\":{\"b\":\"x\",\"d\":\"y\"},\"by\":\"c\",\"v\":{"
                                        "\"p\\\"\":1,\"q\":\"stale\",\"r\":\"NaN\"}}",
        "{\"v\": { \"p\\\"\" : 1 , \"q\":\"stale\",\"r\":\"NaN\" } , \"by\" : \"c\", "
        "\"labels\":{\"b\":\"x\",\"d\":\"y\"},\"t\":1.5}"};
    static const char *const names[] = {"p\"", "q", "r"};
    for (size_t i = 0; i < 2; i++) {
        assert_true(sample_line_read(&reader, bytes_str(forms[i])));
        for (size_t k = 0; k < 3; k++) {
            assert_true(sample_line_next(&reader));
            const struct sample *s = &reader.sample;
            assert_label(s, 0, "b", "x");
            assert_label(s, 1, "c", names[k]);
            assert_label(s, 2, "d", "y");
            assert_true(s->n_labels == 3 && s->at == 1500 && s->is_stale == (k == 1));
            assert_true(k == 0 ? s->value == 1 : k == 1 || isnan(s->value));
        }
        assert_false(sample_line_next(&reader));
    }
    const struct sample *s = read_line("{\"t\":1,\"labels\":{},\"by\":\"a\",\"v\":{\"b\":2}}");
    assert_true(s && s->n_labels == 1 && s->value == 2);
    assert_label(s, 0, "a", "b");
}

static void escapes(void **state)
{
    (void)state;
    const struct sample *s = read_line("{\"t\":1,\"labels\":{\"a\":\"\\\"x\\\\\\/"
                                       "\\b\\f\\n\\r\\t\",\"b\":\"p\\u0041\\u00e9\\u20ac\\ud83d\\ude00q\","
                                       "\"\\u0063\":\" q \"},\"\\u0076\":1}");
    assert_non_null(s);
    assert_label(s, 0, "a", "\"x\\/\b\f\n\r\t");
    assert_label(s, 1, "b", "pA\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80q");
    assert_label(s, 2, "c", " q ");
}

static void refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "{}", "[1]", "{\"t\":1," LABELS "}", "{\"t\":1,\"v\":1}",
        "{" LABELS ",\"v\":1}", "{\"t\":1," LABELS ",\"v\":1,\"v\":2}",
        "{\"t\":1," LABELS ",\"v\":1,\"w\":2}", "{\"t\":1," LABELS ",\"v\":1",
        "{\"t\":1," LABELS ",\"v\":1}x", "{\"t\":1," LABELS ",\"v\":1,}", "{\"t\":\"1\"," LABELS ",\"v\":1}",
        "{\"t\":1," LABELS ",\"v\":\"1\"}", "{\"t\":1," LABELS ",\"v\":nan}", "{\"t\":1," LABELS ",\"v\":+1}",
        "{\"t\":1," LABELS ",\"v\":1e}", "{\"t\":1," LABELS ",\"v\":0x1}", "{\"t\":1e30," LABELS ",\"v\":1}",
        "{\"t\":1,\"labels\":{\"a\":1},\"v\":1}", "{\"t\":1,\"labels\":{\"a\"},\"v\":1}",
        "{\"t\":1,\"labels\":{\"a\":\"b\",},\"v\":1}", "{\"t\":1,\"labels\":[],\"v\":1}",
        "{\"t\":1,\"labels\":{\"a\":\"\\x\"},\"v\":1}", "{\"t\":1,\"labels\":{\"a\":\"\\u12\"},\"v\":1}",
        "{\"t\":1,\"labels\":{\"a\":\"\\ud83d\"},\"v\":1}",
        "{\"t\":1,\"labels\":{\"a\":\"\\ude00\"},\"v\":1}",
        "{\"t\":1,\"labels\":{\"a\":\"\\ud83d\\u0041\"},\"v\":1}",
        "{\"t\":1,\"labels\":{\"a\":\"\x01\"},\"v\":1}", "{\"t\":1,\"labels\":{\"a\":\"\xff\"},\"v\":1}",
        "{\"t\":1,\"labels\":{\"a\":\"b", "{\"t\":1,\"labels\":{\"a\":\"b\\",
        "{\"t\":1," LABELS ",\"v\":{\"a\":1}}", "{\"t\":1," LABELS ",\"by\":\"x\",\"v\":1}",
        "{\"t\":1," LABELS ",\"by\":\"x\",\"v\":{}}", "{\"t\":1," LABELS ",\"by\":\"x\",\"v\":{\"a\":1,}}",
        "{\"t\":1," LABELS ",\"by\":1,\"v\":{\"a\":1}}", "{\"t\":1," LABELS ",\"by\":\"x\",\"v\":{\"a\":{}}}",
        "{\"t\":1," LABELS ",\"by\":\"x\",\"by\":\"x\",\"v\":{\"a\":1}}",
        "{\"t\":1," LABELS ",\"by\":\"x\",\"v\":{\"a\":1}",
        "{\"t\":1," LABELS ",\"v\":1111111111111111111111111111111111111111111111111111111111111111111}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (read_line(bad[i]))
            fail_msg("accepted: %s", bad[i]);
    const char *line = "{\"t\":1," LABELS ",\"v\":1}";
    for (size_t n = 0; n < strlen(line); n++) {
        char *cut = bytes_dup(bytes_of(line, n));
        assert_null(read_line(cut));
        free(cut);
    }
}

static void times(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t ms;
    } good[] = {{"0", 0}, {"1.5", 1500}, {"1732977600.1256", 1732977600126}, {"-3", -3000}, {"1e3", 1000000},
        {"2012-03-16T18:40:47.5+01:00", 1331919647500}, {"2012-03-16T17:40:47.12345Z", 1331919647123},
        {"2012-03-16T17:40:47Z", 1331919647000}};
    static const char *const bad[] = {
        "", "x", "1x", "1 ", "inf", "nan", "0x10", "1e300", "2012-13-16T17:40:47Z", "2012-03-16", "1h"};
    int64_t ms;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!query_time_read(bytes_str(good[i].text), &ms) || ms != good[i].ms)
            fail_msg("%s", good[i].text);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (query_time_read(bytes_str(bad[i]), &ms))
            fail_msg("accepted: %s", bad[i]);
}

static void durations(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t ms;
    } good[] = {{"15", 15000}, {"0.25", 250}, {"-1", -1000}, {"0", 0}, {"1h30m", 5400000}, {"1d", 86400000},
        {"1y2w3d4h5m6s7ms", 33019506007}, {"90s", 90000}, {"500ms", 500}, {"0s", 0}};
    static const char *const bad[] = {
        "", "h", "m1", "1m1h", "1m1m", "1h ", "1.5h", "99999999999999999999y", "9999999999y", "1x", "-1h"};
    int64_t ms;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!query_duration_read(bytes_str(good[i].text), &ms) || ms != good[i].ms)
            fail_msg("%s: %lld", good[i].text, (long long)ms);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (query_duration_read(bytes_str(bad[i]), &ms))
            fail_msg("accepted: %s", bad[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(lines), cmocka_unit_test(values),
        cmocka_unit_test(several), cmocka_unit_test(escapes), cmocka_unit_test(refused),
        cmocka_unit_test(times), cmocka_unit_test(durations)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    sample_line_free(&reader);
    return failed;
}
