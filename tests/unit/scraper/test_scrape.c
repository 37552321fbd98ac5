/* scrape: pages become lines; labels that conflict, limits, duplicates, and the markers of series that vanish. */
#include "support/cm.h"

#include "scraper/scrape.h"

#include <stdio.h>
#include <stdlib.h>

static struct exposition_label own[] = {
    {BYTES_LITERAL("instance"), BYTES_LITERAL("a:1")}, {BYTES_LITERAL("job"), BYTES_LITERAL("j")}};
static const struct target_labels target = {own, 2};
static const struct scrape_rules plain = {.max_lines = 1 << 20, .honor_timestamps = true};
#define OWN_LABELS "\"instance\":\"a:1\",\"job\":\"j\""
#define LINE(t, labels, v) "{\"t\":" t ",\"labels\":{" labels "},\"v\":" v "}\n"
#define UP(v, n)                                                                                             \
    LINE("1.500", "\"__name__\":\"up\"," OWN_LABELS, v)                                                      \
    LINE("1.500", "\"__name__\":\"scrape_duration_seconds\"," OWN_LABELS, "0.250000")                        \
    LINE("1.500", "\"__name__\":\"scrape_samples_scraped\"," OWN_LABELS, n)

static const char *end_of_text(const char *at)
{
    for (at++; *at != '"'; at++)
        at += *at == '\\';
    return at + 1;
}

/* Appends the samples of a line that has several, each as a line of its own. */
static void expand_line(struct bytes line, struct buf *out)
{
    static const char labels[] = "\"labels\":{", by[] = "},\"by\":", values[] = ",\"v\":{";
    const char *end = memmem(line.ptr, line.len, by, strlen(by)), *name = end + strlen(by), *next;
    if (!end) {
        buf_append_bytes(out, line);
        return;
    }
    const char *first = (const char *)memmem(line.ptr, line.len, labels, strlen(labels)) + strlen(labels),
               *at = first;
    while (at < end && strncmp(at, name, (size_t)(end_of_text(name) - name)) < 0)
        at = end_of_text(end_of_text(at) + 1) + 1;
    for (const char *v = end_of_text(name) + strlen(values); *v == '"'; v = next + 1) {
        const char *number = end_of_text(v) + 1;
        next = *number == '"' ? end_of_text(number) : number + strcspn(number, ",}");
        buf_append(out, line.ptr, (size_t)(at - line.ptr));
        out->len -= at > end; /* the comma or brace behind the last label */
        buf_append_str(out, at > end ? "," : "");
        buf_append(out, name, (size_t)(end_of_text(name) - name));
        buf_append_char(out, ':');
        buf_append(out, v, (size_t)(end_of_text(v) - v));
        buf_append_str(out, at < end ? "," : "");
        buf_append(out, at, at < end ? (size_t)(end - at) : 0);
        buf_append_str(out, "},\"v\":");
        buf_append(out, number, (size_t)(next - number));
        buf_append_str(out, "}\n");
    }
}

static void expand(struct bytes lines, struct buf *out)
{
    const char *at = lines.ptr, *end = lines.ptr + lines.len;
    while (at < end) {
        const char *next = (const char *)memchr(at, '\n', (size_t)(end - at)) + 1;
        expand_line(bytes_of(at, (size_t)(next - at)), out);
        at = next;
    }
}

/* Scrapes a page (NULL: none) and compares the samples, each as a line. Returns the counts, without lines. */
static struct scrape check(
    const char *page, const struct scrape_rules *rules, struct known_series *known, const char *expected)
{
    struct scrape s = {.slot = 1500, .seconds = 0.25};
    struct error error = {0};
    if (page)
        scrape_read(&s, EXPOSITION_TEXT, bytes_str(page), rules, &target, &error);
    scrape_end(&s, &target, known);
    struct buf samples = {0};
    expand(buf_bytes(&s.out), &samples);
    if (!bytes_equal_str(buf_bytes(&samples), expected))
        fail_msg("%s\nbecomes\n%.*s\ninstead of\n%s\n%s", page ? page : "(none)", (int)samples.len,
            samples.ptr, expected, error.text);
    buf_free(&samples);
    scrape_free(&s);
    return s;
}

static void check_once(const char *page, const struct scrape_rules *rules, const char *expected)
{
    struct known_series known = {0};
    check(page, rules, &known, expected);
    known_series_free(&known);
}

static void check_refused(const char *page, const struct scrape_rules *rules, const char *why)
{
    struct scrape s = {.slot = 1500};
    struct error error = {0};
    assert_int_equal(scrape_read(&s, EXPOSITION_TEXT, bytes_str(page), rules, &target, &error), -1);
    assert_string_equal(error.text, why);
    assert_int_equal(s.out.len, 0);
    assert_int_equal(s.samples, 0);
    scrape_free(&s);
}

static void lines(void **state)
{
    (void)state;
    check_once("a{z=\"1\",b=\"\",A=\"q\\\"\"} 3\n", &plain,
        LINE("1.500", "\"A\":\"q\\\"\",\"__name__\":\"a\"," OWN_LABELS ",\"z\":\"1\"", "3") UP("1", "1"));
    check_once("a 1 -2500\nb +Inf\nc -Inf\nd NaN\ne +5\nf 5.\ng 007\nh 1.0\ni 1e5\nj 12345678901234567890\n",
        &plain,
        LINE("-2.500", "\"__name__\":\"a\"," OWN_LABELS, "1") LINE("1.500", "\"__name__\":\"b\"," OWN_LABELS,
            "\"+Inf\"") LINE("1.500", "\"__name__\":\"c\"," OWN_LABELS, "\"-Inf\"") LINE("1.500",
            "\"__name__\":\"d\"," OWN_LABELS, "\"NaN\"") LINE("1.500", "\"__name__\":\"e\"," OWN_LABELS, "5")
            LINE("1.500", "\"__name__\":\"f\"," OWN_LABELS, "5") LINE("1.500",
                "\"__name__\":\"g\"," OWN_LABELS, "7") LINE("1.500", "\"__name__\":\"h\"," OWN_LABELS, "1.0")
                LINE("1.500", "\"__name__\":\"i\"," OWN_LABELS, "1e5")
                    LINE("1.500", "\"__name__\":\"j\"," OWN_LABELS, "1.2345678901234567e+19") UP("1", "10"));
    check_once("", &plain, UP("1", "0"));
    check_once(NULL, &plain, UP("0", "0"));
}

static void check_lines(const char *page, const char *expected)
{
    struct scrape s = {.slot = 1500};
    struct known_series known = {0};
    struct error error;
    scrape_read(&s, EXPOSITION_TEXT, bytes_str(page), &plain, &target, &error);
    scrape_end(&s, &target, &known);
    char *begin = strndup(s.out.ptr, s.out.len);
    if (strncmp(begin, expected, strlen(expected)) != 0)
        fail_msg("%s\nbecomes\n%s\ninstead of\n%s", page, begin, expected);
    assert_int_equal(s.lines, bytes_count_lines(buf_bytes(&s.out)));
    free(begin);
    known_series_free(&known);
    scrape_free(&s);
}

/* Successive samples share a line if one label differs. */
static void lines_of_several_samples(void **state)
{
    (void)state;
    check_lines("h_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} NaN\nh_sum 2.5\nh_count 2\n",
        "{\"t\":1.500,\"labels\":{\"__name__\":\"h_bucket\"," OWN_LABELS
        "},\"by\":\"le\",\"v\":{\"1\":1,\"+Inf\":\"NaN\"}}\n"
        "{\"t\":1.500,\"labels\":{" OWN_LABELS
        "},\"by\":\"__name__\",\"v\":{\"h_sum\":2.5,\"h_count\":2,\"up\":1,"
        "\"scrape_duration_seconds\":0.000000,\"scrape_samples_scraped\":4}}\n");
    /* the first label differs, a value is the beginning of another, and quotes are escaped */
    check_lines("m{A=\"x\",b=\"\"} 1\nm{A=\"xy\\\"\"} 2\n",
        "{\"t\":1.500,\"labels\":{\"__name__\":\"m\"," OWN_LABELS
        "},\"by\":\"A\",\"v\":{\"x\":1,\"xy\\\"\":2}}\n");
    /* other labels, or another time */
#define ALONE(labels, t) LINE(t, "\"__name__\":\"m\"," OWN_LABELS labels, "1")
    check_lines(
        "m{x=\"1\"} 1\nm{x=\"1\",y=\"1\"} 1\nm{x=\"2\",y=\"2\"} 1\nm{z=\"2\",y=\"2\"} 1\nm 1 5\nm 1 6\n",
        ALONE(",\"x\":\"1\"", "1.500") ALONE(",\"x\":\"1\",\"y\":\"1\"", "1.500")
            ALONE(",\"x\":\"2\",\"y\":\"2\"", "1.500") ALONE(",\"y\":\"2\",\"z\":\"2\"", "1.500")
                ALONE("", "0.005") ALONE("", "0.006"));
    /* the label that differs is that of the line */
    check_lines("m{x=\"1\",y=\"1\"} 1\nm{x=\"2\",y=\"1\"} 2\nm{x=\"2\",y=\"2\"} 3\n",
        "{\"t\":1.500,\"labels\":{\"__name__\":\"m\"," OWN_LABELS
        ",\"y\":\"1\"},\"by\":\"x\",\"v\":{\"1\":1,\"2\":2}}\n" LINE(
            "1.500", "\"__name__\":\"m\"," OWN_LABELS ",\"x\":\"2\",\"y\":\"2\"", "3"));
}

static void conflicts_of_labels(void **state)
{
    (void)state;
    struct scrape_rules honest = plain;
    honest.honor_labels = true;
    static const char page[] = "a{job=\"mine\",instance=\"\"} 1\n";
    check_once(page, &plain,
        LINE("1.500", "\"__name__\":\"a\",\"exported_job\":\"mine\"," OWN_LABELS, "1") UP("1", "1"));
    check_once(page, &honest, LINE("1.500", "\"__name__\":\"a\",\"job\":\"mine\"", "1") UP("1", "1"));
    check_once("a{job=\"mine\",exported_job=\"x\"} 1\n", &plain,
        LINE("1.500",
            "\"__name__\":\"a\",\"exported_exported_job\":\"mine\",\"exported_job\":\"x\"," OWN_LABELS, "1")
            UP("1", "1"));
    check_refused("a{x=\"1\",x=\"2\"} 1\n", &plain, "line 1, column 1: a label occurs twice");
    check_refused("b 1\na{__name__=\"b\"} 1\n", &plain, "line 2, column 1: a label occurs twice");
}

static void limits(void **state)
{
    (void)state;
    struct scrape_rules r = plain;
    r.sample_limit = 2;
    check_refused("a 1\nb 1\nc 1\n", &r, "line 3, column 1: the page has more samples than sample_limit");
    r = plain;
    r.label_limit = 4;
    check_once("a{x=\"1\"} 1\n", &r,
        LINE("1.500", "\"__name__\":\"a\"," OWN_LABELS ",\"x\":\"1\"", "1") UP("1", "1"));
    check_refused(
        "a{x=\"1\",y=\"2\"} 1\n", &r, "line 1, column 1: the sample has more labels than label_limit");
    r = plain;
    r.label_name_limit = 8;
    check_refused("a{long_name=\"1\"} 1\n", &r,
        "line 1, column 1: the name of a label is longer than label_name_length_limit");
    r = plain;
    r.label_value_limit = 3;
    check_refused("a{x=\"1234\"} 1\n", &r,
        "line 1, column 1: the value of a label is longer than label_value_length_limit");
    r = plain;
    r.max_lines = 500;
    check_refused("a 1\nb 1\nc 1\n", &r,
        "line 3, column 1: the lines of the page are longer than two fifths of publish_max");
    struct buf page = {0};
    buf_append_str(&page, "a{x=\"");
    for (int i = 0; i < 66000; i++)
        buf_append_char(&page, 'x');
    buf_append(&page, "\"} 1\n\0", 6);
    check_refused(page.ptr, &plain, "line 1, column 1: the labels of a sample are longer than 64 KiB");
    buf_clear(&page);
    buf_append_str(&page, "a{");
    for (int i = 0; i <= 256; i++)
        buf_printf(&page, "l%d=\"\",", i);
    buf_append(&page, "} 1\n\0", 5);
    check_refused(page.ptr, &plain, "line 1, column 1: the sample has more than 256 labels");
    buf_free(&page);
}

static void vanished_series(void **state)
{
    (void)state;
    struct known_series known = {0};
    static const char a[] = LINE("1.500", "\"__name__\":\"a\"," OWN_LABELS, "1"),
                      stale_a[] = LINE("1.500", "\"__name__\":\"a\"," OWN_LABELS, "\"stale\""),
                      stale_b[] = LINE("1.500", "\"__name__\":\"b\"," OWN_LABELS, "\"stale\"");
    char expected[2000];
    check("a 1\nb 2 5\n", &plain, &known, /* b has a time of its own */
        LINE("1.500", "\"__name__\":\"a\"," OWN_LABELS, "1")
            LINE("0.005", "\"__name__\":\"b\"," OWN_LABELS, "2") UP("1", "2"));
    snprintf(expected, sizeof expected, "%s%s", stale_a, UP("1", "0"));
    check("", &plain, &known, expected);
    check("", &plain, &known, UP("1", "0"));
    snprintf(expected, sizeof expected, "%s%s%s", a, LINE("1.500", "\"__name__\":\"b\"," OWN_LABELS, "2"),
        UP("1", "2"));
    check("a 1\nb 2\n", &plain, &known, expected);
    snprintf(expected, sizeof expected, "%s%s%s", stale_a, stale_b, UP("0", "0"));
    check("a 1\nb x\n", &plain, &known, expected); /* a bad page is taken as a whole or not at all */
    check(NULL, &plain, &known, UP("0", "0"));
    check("a 1\n", &plain, &known, LINE("1.500", "\"__name__\":\"a\"," OWN_LABELS, "1") UP("1", "1"));
    struct scrape s = {.slot = 1500};
    scrape_vanish(&s, &known);
    assert_int_equal(s.lines, 4); /* of a and the scraper's own */
    assert_int_equal(known.n, 0);
    scrape_free(&s);
}

/* The markers of lines that were not published are repeated by the next scrape, unless the page has the series again. */
static void markers_taken_back(void **state)
{
    (void)state;
    struct known_series known = {0};
    char lines[4000];
#define Q "\"__name__\":\"q\"," OWN_LABELS ",\"x\":\"\\\",\\\"v\\\":\\\"stale\\\"}\""
    static const char page[] = "a 1\nq{x=\"\\\",\\\"v\\\":\\\"stale\\\"}\"} 1\n",
                      a[] = LINE("1.500", "\"__name__\":\"a\"," OWN_LABELS, "1"),
                      stale_a[] = LINE("1.500", "\"__name__\":\"a\"," OWN_LABELS, "\"stale\""),
                      q[] = LINE("1.500", Q, "1"), stale_q[] = LINE("1.500", Q, "\"stale\"");
    snprintf(lines, sizeof lines, "%s%s%s", a, q, UP("1", "2"));
    check(page, &plain, &known, lines);
    scrape_take_back(bytes_str(lines), &known); /* has no markers */
    snprintf(lines, sizeof lines, "%s%s%s", stale_a, stale_q, UP("1", "0"));
    check("", &plain, &known, lines);
    scrape_take_back(bytes_str(lines), &known);
    check("", &plain, &known, lines);
    check("", &plain, &known, UP("1", "0"));
    scrape_take_back(bytes_str(lines), &known);
    snprintf(lines, sizeof lines, "%s%s%s", a, stale_q, UP("1", "1"));
    check("a 1\n", &plain, &known, lines);
    known_series_free(&known);
}

static void duplicates(void **state)
{
    (void)state;
    struct known_series known = {0};
    struct scrape s = check("a 1\na 2\nup{job=\"j\"} 5\nup 7\n", &plain, &known,
        LINE("1.500", "\"__name__\":\"a\"," OWN_LABELS, "1")
            LINE("1.500", "\"__name__\":\"up\",\"exported_job\":\"j\"," OWN_LABELS, "5") UP("1", "4"));
    assert_int_equal(s.duplicates, 2);
    known_series_free(&known);
}

/* Many series, which come and go, against counts of a model. */
static void many_series(void **state)
{
    (void)state;
    struct known_series known = {0};
    bool was[3000] = {0};
    srand(1);
    for (int round = 0; round < 20; round++) {
        struct buf page = {0};
        uint64_t expected = 3;
        for (size_t i = 0; i < 3000; i++) {
            bool is = rand() % 3 > 0;
            if (is)
                buf_printf(&page, "m{i=\"%zu\"} %d\n", i, round);
            expected += is || was[i];
            was[i] = is;
        }
        struct scrape s = {.slot = 1500};
        struct error error;
        assert_int_equal(scrape_read(&s, EXPOSITION_TEXT, buf_bytes(&page), &plain, &target, &error), 0);
        scrape_end(&s, &target, &known);
        struct buf samples = {0};
        expand(buf_bytes(&s.out), &samples);
        assert_int_equal(bytes_count_lines(buf_bytes(&samples)), expected);
        assert_int_equal(bytes_count_lines(buf_bytes(&s.out)), s.lines);
        buf_free(&samples);
        scrape_free(&s);
        buf_free(&page);
    }
    known_series_free(&known);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines),
        cmocka_unit_test(lines_of_several_samples),
        cmocka_unit_test(conflicts_of_labels),
        cmocka_unit_test(limits),
        cmocka_unit_test(vanished_series),
        cmocka_unit_test(markers_taken_back),
        cmocka_unit_test(duplicates),
        cmocka_unit_test(many_series),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
