/* exposition: pages in both formats, as the documents of Prometheus and OpenMetrics describe them, and each kind of error by its place. */
#include "support/cm.h"

#include "metrics/exposition.h"

#include <math.h>
#include <stdio.h>

/* Appends `name{label=value|...} value @time` for each sample, or the error. */
static void describe(enum exposition_format format, struct bytes page, struct buf *out)
{
    struct exposition e;
    enum exposition_result r;
    char *exact = bytes_dup(page); /* the sanitizer sees a read behind the page */
    exposition_init(&e, format, bytes_of(exact, page.len));
    while ((r = exposition_next(&e)) == EXPOSITION_SAMPLE) {
        const struct exposition_sample *s = &e.sample;
        buf_append_bytes(out, s->name);
        for (size_t i = 0; i < s->n_labels; i++) {
            buf_printf(out, "%s%.*s=", i == 0 ? "{" : "|", (int)s->labels[i].name.len, s->labels[i].name.ptr);
            buf_append_bytes(out, s->labels[i].value);
        }
        buf_printf(out, "%s %.*s=%g", s->n_labels > 0 ? "}" : "", (int)s->value_text.len, s->value_text.ptr,
            s->value);
        if (s->has_time)
            buf_printf(out, " @%lld", (long long)s->time);
        buf_append_char(out, '\n');
    }
    if (r == EXPOSITION_BAD)
        buf_append_str(out, e.error.text);
    exposition_free(&e);
    free(exact);
}

static void check(enum exposition_format format, struct bytes page, const char *expected)
{
    struct buf out = {0};
    describe(format, page, &out);
    if (!bytes_equal_str(buf_bytes(&out), expected))
        fail_msg("%.*s\nis read as\n%.*s\ninstead of\n%s", (int)page.len, page.ptr, (int)out.len,
            out.ptr ? out.ptr : "", expected);
    buf_free(&out);
}
#define TEXT(page, expected) check(EXPOSITION_TEXT, BYTES_LITERAL(page), expected)
#define OPEN(page, expected) check(EXPOSITION_OPENMETRICS, BYTES_LITERAL(page), expected)

static void text_pages(void **state)
{
    (void)state;
    TEXT("", "");
    TEXT("\n\n", "");
    TEXT("# any comment\n#\n#TYPE\n# HELP a what a is\n# TYPE a counter\na 1\n", "a 1=1\n");
    TEXT("a:b_1{x=\"1\",y=\"two words\",} 2.5 1395066363000\n",
        "a:b_1{x=1|y=two words} 2.5=2.5 @1395066363000\n");
    TEXT(" a { x = \"\" } 1 -3 \na\t2\t\n", "a{x=} 1=1 @-3\na 2=2\n");
    TEXT("a{x=\"C:\\\\DIR\\\\F\\n\\\"q\\\" \\d\"} 1\n", "a{x=C:\\DIR\\F\n\"q\" \\d} 1=1\n");
    TEXT("a{}1\n", "a 1=1\n");
    TEXT("# TYPE a counter\na 1\n# TYPE a histogram\na 2\n", "a 1=1\na 2=2\n");
    TEXT("a{x=\"\xc3\xa9\"} 1\n", "a{x=\xc3\xa9} 1=1\n");
}

static void numbers(void **state)
{
    (void)state;
    TEXT("a +5\na -.5e-3\na 5.\na 1e5\na 1E+05\n",
        "a +5=5\na -.5e-3=-0.0005\na 5.=5\na 1e5=100000\na 1E+05=100000\n");
    TEXT("a +Inf\na -inf\na Infinity\na NaN\n", "a +Inf=inf\na -inf=-inf\na Infinity=inf\na NaN=nan\n");
    TEXT("a 12345678901234567890\na 1e-999\n", "a 12345678901234567890=1.23457e+19\na 1e-999=0\n");
    TEXT("a 1e999\n", "line 1, column 3: the number is out of range");
    TEXT("a 0x10\n", "line 1, column 3: expected a number");
    TEXT("a 1_000\n", "line 1, column 3: expected a number");
    TEXT("a .\n", "line 1, column 3: expected a number");
    TEXT("a 1e\n", "line 1, column 3: expected a number");
    TEXT("a -\n", "line 1, column 3: expected a number");
    TEXT("a nan(1)\n", "line 1, column 3: expected a number");
}

static void text_errors(void **state)
{
    (void)state;
    TEXT("a 1\nb 2", "a 1=1\nline 2, column 4: the page ends inside a line");
    TEXT("a 1\n9a 2\n", "a 1=1\nline 2, column 1: expected the name of a metric");
    TEXT("a\n", "line 1, column 2: expected a space");
    TEXT("a{x=\"1\"}\n", "line 1, column 9: expected a number");
    TEXT("a{x=1} 1\n", "line 1, column 5: expected a quote");
    TEXT("a{x} 1\n", "line 1, column 4: expected =");
    TEXT("a{:x=\"1\"} 1\n", "line 1, column 3: expected the name of a label");
    TEXT("a{x=\"1\" y=\"2\"} 1\n", "line 1, column 9: expected , or }");
    TEXT("a{x=\"1\n\"} 1\n", "line 1, column 5: the quoted text has no end");
    TEXT("a{x=\"1\\\n", "line 1, column 5: the quoted text has no end");
    TEXT("a{x=\"\xff\"} 1\n", "line 1, column 6: the text is not UTF-8");
    TEXT("a 1 2 3\n", "line 1, column 7: expected the end of the line");
    TEXT("a 1 2.5\n", "line 1, column 5: expected a timestamp in milliseconds");
    TEXT("a 1\r\n", "line 1, column 3: expected a number");
    TEXT("# TYPE a thing\n", "line 1, column 10: unknown type");
    TEXT("# TYPE a counter or not\n", "line 1, column 18: expected the end of the line");
    TEXT("a{x=\"1\",,} 1\n", "line 1, column 9: expected the name of a label");
    TEXT("a\0 1\n", "line 1, column 2: expected a space");
}

static void openmetrics_pages(void **state)
{
    (void)state;
    OPEN("# EOF\n", "");
    OPEN("# EOF", "");
    OPEN("# TYPE a counter\n# UNIT a_seconds seconds\n# HELP a text\n# HELP b\na_total 1\na_created 2.5\n# "
         "EOF\n",
        "a_total 1=1\na_created 2.5=2.5\n");
    OPEN("a{x=\"1\"} 2 1520879607.789\n# EOF\n", "a{x=1} 2=2 @1520879607789\n");
    OPEN(
        "a_bucket{le=\"10\"} 17 # {trace_id=\"KOO\"} 9.8 1520879607.789\n# EOF\n", "a_bucket{le=10} 17=17\n");
    OPEN("a_bucket{le=\"10\"} 17 3 # {} 9.8\n# EOF\n", "a_bucket{le=10} 17=17 @3000\n");
    OPEN("# TYPE a stateset\n# TYPE b info\n# TYPE c gaugehistogram\nb_info{v=\"1\"} 1\n# EOF\n",
        "b_info{v=1} 1=1\n");
}

static void openmetrics_errors(void **state)
{
    (void)state;
    OPEN("", "line 1, column 1: the page ends without # EOF");
    OPEN("a 1\n", "a 1=1\nline 2, column 1: the page ends without # EOF");
    OPEN("a 1\n# EOF\na 2\n", "a 1=1\nline 2, column 6: bytes follow # EOF");
    OPEN("a 1\n\n# EOF\n", "a 1=1\nline 2, column 1: expected the name of a metric");
    OPEN("# any comment\n# EOF\n", "line 1, column 3: expected TYPE, HELP, UNIT or EOF");
    OPEN("#EOF\n", "line 1, column 2: expected one space");
    OPEN("a  1\n# EOF\n", "line 1, column 2: expected one space");
    OPEN("a 1 \n# EOF\n", "line 1, column 5: expected a timestamp in seconds");
    OPEN("a 1 inf\n# EOF\n", "line 1, column 5: the timestamp is out of range");
    OPEN("a 1 # x\n# EOF\n", "line 1, column 7: expected the labels of an exemplar");
    OPEN("a 1 # {x=\"1\"}\n# EOF\n", "line 1, column 14: expected one space");
    OPEN("a 1 # {x=\"1\"} 2 3 4\n# EOF\n", "line 1, column 18: expected the end of the line");
    OPEN("a 1 2 3\n# EOF\n", "line 1, column 7: expected an exemplar");
    OPEN("a 1 2 \n# EOF\n", "line 1, column 7: expected an exemplar");
    OPEN("a 1\n# EO", "a 1=1\nline 2, column 5: the page ends inside a line");
}

static void content_types(void **state)
{
    (void)state;
    enum exposition_format f;
    assert_true(exposition_format_of("text/plain; version=0.0.4; charset=utf-8", &f) && f == EXPOSITION_TEXT);
    assert_true(exposition_format_of("Text/Plain", &f) && f == EXPOSITION_TEXT);
    assert_true(exposition_format_of("application/openmetrics-text;version=1.0.0", &f) &&
                f == EXPOSITION_OPENMETRICS);
    assert_false(exposition_format_of("", &f));
    assert_false(
        exposition_format_of("application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily", &f));
    assert_false(exposition_format_of("text/html", &f));
}

/* Every truncation of a page ends in an error, or in the samples of its whole lines. */
static void truncations(void **state)
{
    (void)state;
    static const char page[] = "# TYPE a counter\na{x=\"1\\n\",y=\"\\\\\"} 17.5 123\nb NaN\n";
    for (size_t n = 0; n < sizeof page - 1; n++) {
        struct buf out = {0};
        describe(EXPOSITION_TEXT, bytes_of(page, n), &out);
        bool is_whole = n == 0 || page[n - 1] == '\n';
        assert_int_equal(out.len > 0 && memmem(out.ptr, out.len, "inside a line", 13) != NULL, !is_whole);
        buf_free(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_pages),
        cmocka_unit_test(numbers),
        cmocka_unit_test(text_errors),
        cmocka_unit_test(openmetrics_pages),
        cmocka_unit_test(openmetrics_errors),
        cmocka_unit_test(content_types),
        cmocka_unit_test(truncations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
