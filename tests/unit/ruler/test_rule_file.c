/* rule_file: rules in Prometheus' form, and errors that name the line. */
#include "support/cm.h"

#include "ruler/rule_file.h"

#include <stdio.h>

static void complete(void **state)
{
    (void)state;
    static const char text[] =
        "groups:\n- name: a\n  interval: 1m30s\n  limit: 7\n  query_offset: 5s\n  rules:\n"
        "  - {alert: Down, expr: up == 0, for: 1h, keep_firing_for: 2d, labels: {severity: page},\n"
        "     annotations: {summary: 'x {{ $value }}', description: y}}\n"
        "  - record: job:up:sum\n    expr: |\n      sum by (job) (up)\n    labels: {a: 1}\n"
        "- name: empty\n";
    struct rule_groups groups = {0};
    struct error error = {0};
    if (rules_parse("f", bytes_str(text), 60000, &groups, &error) != 0)
        fail_msg("%s", error.text);
    assert_int_equal(groups.n, 2);
    const struct rule_group *g = &groups.all[0];
    assert_string_equal(g->name, "a");
    assert_int_equal(g->interval, 90000);
    assert_int_equal(g->limit, 7);
    assert_int_equal(g->offset, 5000);
    assert_int_equal(g->n_rules, 2);
    assert_true(g->rules[0].is_alert);
    assert_string_equal(g->rules[0].name, "Down");
    assert_string_equal(g->rules[0].expr, "up == 0");
    assert_int_equal(g->rules[0].hold, 3600000);
    assert_int_equal(g->rules[0].keep_firing, 2 * 86400000);
    assert_int_equal(g->rules[0].annotations.n, 2);
    assert_false(g->rules[1].is_alert);
    assert_string_equal(g->rules[1].expr, "sum by (job) (up)\n");
    assert_true(bytes_equal_str(g->rules[1].labels.all[0].name, "a"));
    assert_int_equal(groups.all[1].interval, 60000);
    assert_int_equal(groups.all[1].n_rules, 0);
    rules_free(&groups);
    assert_int_equal(rules_parse("f", bytes_str(""), 60000, &groups, &error), 0);
    assert_int_equal(groups.n, 0);
}

static void check_refused(const char *text, const char *why)
{
    struct rule_groups groups = {0};
    struct error error = {0};
    if (rules_parse("f", bytes_str(text), 60000, &groups, &error) == 0)
        fail_msg("accepted: %s", text);
    assert_string_equal(error.text, why);
    rules_free(&groups);
}

/* A rule in a group, with its first line 4. */
static void check_rule(const char *rule, const char *why)
{
    char text[500];
    snprintf(text, sizeof text, "groups:\n- name: a\n  rules:\n  - %s\n", rule);
    check_refused(text, why);
}

static void refused(void **state)
{
    (void)state;
    check_refused("groups: [\n", "f:2: did not find expected node content");
    check_refused("[]", "f:1: expected a map: the file");
    check_refused("groups:\n- name: a\n- name: a\n", "f:3: the file has two groups with this name");
    check_refused("groups:\n- interval: 1m\n", "f:2: the group has no name");
    check_refused("groups: {}\n", "f:1: expected a list");
    check_refused("groups: []\nother: 1\n", "f:2: unknown key \"other\" of the file");
    check_refused("groups:\n- name: a\n  interval: 5\n", "f:3: expected a duration such as 30s or 1h30m");
    check_refused("groups:\n- name: a\n  interval: 5s3m\n", "f:3: expected a duration such as 30s or 1h30m");
    check_refused("groups:\n- name: a\n  limit: -1\n", "f:3: expected a number");
    check_rule("expr: up", "f:4: the rule has neither record nor alert");
    check_rule("alert: a", "f:4: the rule has no expr");
    check_rule("alert: a\n    record: b", "f:5: a rule is either record or alert");
    check_rule("alert: a\n    expr: 1\n    expr: 2", "f:6: repeated key \"expr\" of a rule");
    check_rule("alert: a\n    expr: 1\n    fro: 2m", "f:6: unknown key \"fro\" of a rule");
    check_rule("alert: a\n    expr: ' '", "f:5: the expression is empty");
    check_rule("record: 1a\n    expr: 1", "f:4: invalid name of a metric");
    check_rule(
        "record: a\n    expr: 1\n    for: 1m", "f:4: for, keep_firing_for and annotations belong to alerts");
    check_rule("alert: a\n    expr: 1\n    labels: {a-b: 1}", "f:6: invalid name of a label or annotation");
    check_rule(
        "alert: a\n    expr: 1\n    labels: {__name__: b}", "f:6: invalid name of a label or annotation");
    check_rule("alert: a\n    expr: 1\n    labels: {a: [1]}", "f:6: expected a text");
    check_rule("alert: a\n    expr: 1\n    labels: {a: 1, a: 2}", "f:6: the name occurs twice");
    check_rule("alert: a\n    expr: 1\n    annotations:\n      b: '{{ query \"up\" }}'",
        "f:7: template {{ query \"up\" }}: only values and the functions of the guide are supported");
}

static void durations(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t ms; /* -1: refused */
    } rows[] = {{"0", 0}, {"5s", 5000}, {"1h30m", 5400000}, {"100ms", 100}, {"1y2w3d", INT64_C(33004800000)},
        {"", -1}, {"5", -1}, {"s", -1}, {"1s1s", -1}, {"1s1m", -1}, {"1.5s", -1}, {"-1s", -1}, {"101y", -1},
        {"99999999999999999999s", -1}, {"1min", -1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int64_t ms = -1;
        bool is_good = rule_duration_read(rows[i].text, &ms);
        assert_int_equal(is_good, rows[i].ms >= 0);
        if (is_good)
            assert_int_equal(ms, rows[i].ms);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(complete), cmocka_unit_test(refused), cmocka_unit_test(durations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
