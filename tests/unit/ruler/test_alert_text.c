/* alert_text: templates of labels and annotations. daemons/test_ruler.py compares them with a real Prometheus. */
#include "support/cm.h"

#include "ruler/alert_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void check(const char *text, double value, const char *expected)
{
    struct error error = {0};
    struct buf out = {0};
    struct label_set labels = {0};
    label_set_put(&labels, BYTES_LITERAL("queue"), BYTES_LITERAL("Mail"));
    label_set_put(&labels, BYTES_LITERAL("number"), BYTES_LITERAL("1500"));
    if (alert_text_expand(bytes_str(text), &labels, value, &out, &error) != 0)
        fail_msg("%s: %s", text, error.text);
    buf_append_char(&out, '\0');
    assert_string_equal(out.ptr, expected);
    buf_free(&out);
    label_set_free(&labels);
}

static void check_refused(const char *text, const char *why)
{
    struct error error = {0};
    struct label_set labels = {0};
    struct buf out = {0};
    assert_int_equal(alert_text_expand(bytes_str(text), &labels, 1, &out, &error), -1);
    buf_free(&out);
    assert_string_equal(error.text, why);
}

static void values(void **state)
{
    (void)state;
    check("", 1, "");
    check("plain } text", 1, "plain } text");
    check("{{ $labels.queue }} is at {{$value}}.", 7, "Mail is at 7.");
    check("{{ .Labels.queue }}{{ .Value }}{{ $labels.none }}", 0.5, "Mail0.5");
    check("{{ $labels }} {{.Labels}}", 1, "map[number:1500 queue:Mail] map[number:1500 queue:Mail]");
    check("{{ printf \"%s!\" $labels.queue }}{{ $labels.queue | printf \"%v\" }}", 1, "Mail!Mail");
}

static void numbers(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *shortest, *humanized, *duration, *percentage;
    } rows[] = {
        {0, "0", "0", "0s", "0%"},
        {1, "1", "1", "1s", "100%"},
        {0.1, "0.1", "100m", "100ms", "10%"},
        {-1234.5, "-1234.5", "-1.234k", "-20m 34s", "-1.234e+05%"},
        {1e6, "1e+06", "1M", "11d 13h 46m 40s", "1e+08%"},
        {123456, "123456", "123.5k", "1d 10h 17m 36s", "1.235e+07%"},
        {0.000012, "1.2e-05", "12u", "12us", "0.0012%"},
        {3600, "3600", "3.6k", "1h 0m 0s", "3.6e+05%"},
        {INFINITY, "+Inf", "+Inf", "+Inf", "+Inf%"},
        {NAN, "NaN", "NaN", "NaN", "NaN%"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        check("{{ $value }}", rows[i].value, rows[i].shortest);
        check("{{ $value | humanize }}", rows[i].value, rows[i].humanized);
        check("{{ humanizeDuration $value }}", rows[i].value, rows[i].duration);
        check("{{ $value | humanizePercentage }}", rows[i].value, rows[i].percentage);
    }
    check("{{ printf \"%.2f of %%\" $value }}", 1.005, "1.00 of %");
    check("{{ $value | printf \"a%.3f|\" }}", 2, "a2.000|");
    check("{{ printf \"%v\" $value }}{{ printf \"%g\" $value }}{{ printf \"%.1e\" $value }}", 0.25,
        "0.250.252.5e-01");
    check("{{ printf \"%f %%\" $value }}", 2, "2.000000 %");
}

static void refused(void **state)
{
    (void)state;
    static const char only[] = "only values and the functions of the guide are supported";
    char why[300];
    for (size_t i = 0; i < 7; i++) {
        const char *const actions[] = {"if $value", "query \"up\"", "end", "$externalURL", "$labels.a-b",
            "- $value -", "toUpper $labels.a"};
        char text[60];
        snprintf(text, sizeof text, "x {{ %s }}", actions[i]);
        snprintf(why, sizeof why, "template {{ %s }}: %s", actions[i], only);
        check_refused(text, why);
    }
    check_refused(
        "{{ $labels.a | humanize }}", "template {{ $labels.a | humanize }}: the function needs $value");
    check_refused("{{ $value | humanize | humanize }}",
        "template {{ $value | humanize | humanize }}: only one function is supported");
    check_refused("{{ $value", "template: {{ without }}");
    check_refused("{{ $value | }}",
        "template {{ $value | }}: only values and the functions of the guide are supported");
    check_refused("{{ $value $value }}", "template {{ $value $value }}: expected |");
    check_refused("{{ humanize }}", "template {{ humanize }}: the function needs a value such as $value");
    for (size_t i = 0; i < 8; i++) {
        const char *const formats[] = {
            "%d", "%s %s", "none", "%.999999999999f", "%.2f%", "%8f", "%.2s", "\\n%s"};
        char text[60];
        snprintf(text, sizeof text, "{{ printf \"%s\" $value }}", formats[i]);
        snprintf(why, sizeof why,
            "template {{ printf \"%s\" $value }}: printf needs a format with one of %%s %%v %%f %%e %%g, "
            "without a width",
            formats[i]);
        check_refused(text, why);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values), cmocka_unit_test(numbers), cmocka_unit_test(refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
