/* alerts: the states of alerts by a clock of the test, their messages, silences and the file of the state. */
#include "support/cm.h"

#include "ruler/alert_messages.h"
#include "ruler/rule_book.h"

#include <stdio.h>
#include <stdlib.h>

#define START INT64_C(1700000000000)

static const struct message_rules rules[ALERT_WAYS] = {
    {.way = WAY_ALERTMANAGER, .repeat = 60000, .valid_for = 240000, .group_by = "alertname"},
    {.way = WAY_NOTICES, .wait = 30000, .interval = 300000, .repeat = 3600000, .group_by = "alertname"},
};

struct world {
    struct rule_book *book;
    struct silences silences;
    struct error error;
    int64_t slot;  /* of the last evaluation */
    size_t rounds; /* until all alerts were matched with silences, in the last call of `begin` */
    struct sample_lines lines;
};

static struct rule_book *book_of(const char *rule)
{
    struct rule_groups groups = {0};
    struct error error;
    char *text = mem_printf("groups: [{name: g, interval: 10s, rules: [%s]}]", rule);
    if (rules_parse("f", bytes_str(text), 60000, &groups, &error) != 0)
        fail_msg("%s", error.text);
    free(text);
    return rule_book_new(&groups, 60000);
}

static void open_world(struct world *w, const char *rule)
{
    *w = (struct world){.book = book_of(rule), .slot = START};
}

static void close_world(struct world *w)
{
    rule_book_free(&w->book);
    silences_free(&w->silences);
    buf_free(&w->lines.text);
}

/* Evaluates the first rule at START + `at` seconds. `vector` has the members of a result; NULL: the evaluation fails. */
static void evaluate(struct world *w, int64_t at, const char *vector)
{
    struct query_result result = {0};
    struct error error;
    char *body = mem_printf("{\"status\":\"success\",\"data\":{\"resultType\":\"vector\",\"result\":[%s]}}",
        vector ? vector : "");
    assert_int_equal(query_result_read(bytes_str(body), 200, &result, &error), 0);
    w->slot = START + at * 1000;
    buf_free(&w->lines.text);
    rule_book_take(&w->book->runs[0], 0, w->slot, &result, vector ? NULL : "no answer", &w->lines);
    rule_book_end(&w->book->runs[0], w->slot);
    query_result_free(&result);
    free(body);
}

#define ONE "{\"metric\":{\"__name__\":\"up\",\"job\":\"a\"},\"value\":[1,\"1\"]}"
#define TWO "{\"metric\":{\"job\":\"b\"},\"value\":[1,\"2.5\"]}"
#define RULE                                                                                                 \
    "{alert: Down, expr: up, for: 30s, labels: {s: p}, annotations: {v: '{{ $value }} {{ $labels.job }}'}}"

static struct alert_list *list_of(struct world *w)
{
    return &w->book->runs[0].rules[0].alerts;
}

static enum alert_state state_of(struct world *w, size_t i)
{
    return i < list_of(w)->n ? list_of(w)->all[i]->state : ALERT_NONE;
}

static void check_state(
    struct world *w, int64_t at, const char *vector, enum alert_state first, enum alert_state second)
{
    evaluate(w, at, vector);
    assert_int_equal(state_of(w, 0), first);
    assert_int_equal(state_of(w, 1), second);
}

static void states(void **state)
{
    struct world w;
    (void)state;
    open_world(&w, RULE);
    check_state(&w, 0, ONE, ALERT_PENDING, ALERT_NONE);
    check_state(&w, 20, ONE "," TWO, ALERT_PENDING, ALERT_PENDING);
    assert_string_equal(
        list_of(&w)->all[0]->sample.key, "{\"alertname\":\"Down\",\"job\":\"a\",\"s\":\"p\"}");
    check_state(&w, 30, ONE "," TWO, ALERT_FIRING, ALERT_PENDING);
    check_state(&w, 40, ONE, ALERT_FIRING, ALERT_NONE); /* a pending alert ends without a trace */
    check_state(&w, 50, NULL, ALERT_FIRING, ALERT_NONE);
    check_state(&w, 60, "", ALERT_RESOLVED, ALERT_NONE);
    assert_int_equal(list_of(&w)->all[0]->at[RESOLVED_AT], START + 60000);
    check_state(&w, 70, ONE, ALERT_PENDING, ALERT_NONE);
    assert_int_equal(list_of(&w)->all[0]->at[ACTIVE_AT], START + 70000);
    close_world(&w);
}

static void keep_firing(void **state)
{
    struct world w;
    (void)state;
    open_world(&w, "{alert: Down, expr: up, keep_firing_for: 30s}");
    check_state(&w, 0, ONE, ALERT_FIRING, ALERT_NONE);
    check_state(&w, 10, "", ALERT_FIRING, ALERT_NONE);
    check_state(&w, 30, "", ALERT_FIRING, ALERT_NONE);
    check_state(&w, 35, ONE, ALERT_FIRING, ALERT_NONE);
    check_state(&w, 40, "", ALERT_FIRING, ALERT_NONE);
    check_state(&w, 69, "", ALERT_FIRING, ALERT_NONE);
    check_state(&w, 70, "", ALERT_RESOLVED, ALERT_NONE);
    close_world(&w);
}

static void results_that_are_errors(void **state)
{
    struct world w;
    (void)state;
    open_world(&w, "{alert: Down, expr: up}");
    check_state(&w, 0, ONE, ALERT_FIRING, ALERT_NONE);
    check_state(&w, 10, "{\"metric\":{\"__name__\":\"x\",\"job\":\"a\"},\"value\":[1,\"1\"]}," ONE,
        ALERT_FIRING, ALERT_NONE);
    assert_non_null(strstr(w.book->runs[0].rules[0].error,
        "two samples have the same labels {\"alertname\":\"Down\",\"job\":\"a\"}"));
    const struct alert_list *failures = &w.book->runs[0].failures->alerts;
    assert_int_equal(failures->n, 1);
    assert_string_equal(failures->all[0]->sample.key,
        "{\"alertname\":\"RuleEvaluationFailed\",\"rule\":\"Down\",\"rule_group\":\"g\"}");
    assert_int_equal(failures->all[0]->state, ALERT_PENDING);
    evaluate(&w, 70, NULL);
    assert_int_equal(failures->all[0]->state, ALERT_FIRING);
    assert_true(bytes_equal_str(
        label_set_get(&failures->all[0]->sample.annotations, BYTES_LITERAL("error")), "no answer"));
    evaluate(&w, 80, ONE);
    assert_int_equal(failures->all[0]->state, ALERT_RESOLVED);
    static const struct {
        int status;
        const char *body, *why;
    } rows[] = {
        {422, "{\"status\":\"error\",\"errorType\":\"execution\",\"error\":\"many-to-many\"}",
            "many-to-many"},
        {502, "<html>", "the source answered 502"},
        {200, "{", "the source answered 200"},
        {200, "{\"status\":\"success\",\"data\":{\"resultType\":\"matrix\",\"result\":[]}}",
            "the result is a matrix, neither a vector nor a scalar"},
        {200, "{\"status\":\"success\",\"data\":{\"resultType\":\"vector\",\"result\":[{\"metric\":{}}]}}",
            "the source sent a malformed vector"},
        {200,
            "{\"status\":\"success\",\"data\":{\"resultType\":\"vector\",\"result\":[{\"metric\":{},"
            "\"value\":[1,\"x\"]}]}}",
            "the source sent a malformed vector"},
        {200, "{\"status\":\"success\",\"data\":{\"resultType\":\"scalar\",\"result\":[1,\"2\"]}}", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct query_result result = {0};
        struct error error;
        assert_int_equal(query_result_read(bytes_str(rows[i].body), rows[i].status, &result, &error),
            rows[i].why ? -1 : 0);
        if (rows[i].why)
            assert_string_equal(error.text, rows[i].why);
        else
            assert_true(result.n == 1 && result.all[0].value == 2 && result.all[0].labels.n == 0);
        query_result_free(&result);
    }
    close_world(&w);
}

static void check_lines(struct world *w, const char *expected)
{
    buf_append_char(&w->lines.text, '\0');
    assert_string_equal(w->lines.text.ptr, expected);
}

static void recorded_lines(void **state)
{
    struct world w;
    (void)state;
    open_world(&w, "{record: 'a:b', expr: up, labels: {z: 1}}");
    evaluate(&w, 0, ONE "," TWO);
    check_lines(&w,
        "{\"t\":1700000000.000,\"labels\":{\"__name__\":\"a:b\",\"job\":\"a\",\"z\":\"1\"},\"v\":1}\n"
        "{\"t\":1700000000.000,\"labels\":{\"__name__\":\"a:b\",\"job\":\"b\",\"z\":\"1\"},\"v\":2.5}\n");
    evaluate(&w, 10, "{\"metric\":{\"job\":\"a\"},\"value\":[1,\"NaN\"]}");
    check_lines(&w,
        "{\"t\":1700000010.000,\"labels\":{\"__name__\":\"a:b\",\"job\":\"a\",\"z\":\"1\"},\"v\":\"NaN\"}\n"
        "{\"t\":1700000010.000,\"labels\":{\"__name__\":\"a:b\",\"job\":\"b\",\"z\":\"1\"},\"v\":\"stale\"}"
        "\n");
    w.book->groups.all[0].offset = 5000; /* query_offset */
    evaluate(&w, 20, "{\"metric\":{\"job\":\"a\"},\"value\":[1,\"3\"]}");
    check_lines(
        &w, "{\"t\":1700000015.000,\"labels\":{\"__name__\":\"a:b\",\"job\":\"a\",\"z\":\"1\"},\"v\":3}\n");
    close_world(&w);
    open_world(&w, "{alert: Down, expr: up, for: 10s}");
    w.book->groups.all[0].offset = 5000; /* query_offset */
    evaluate(&w, 0, ONE);
    check_lines(&w, "{\"t\":1699999995.000,\"labels\":{\"__name__\":\"ALERTS\",\"alertname\":\"Down\","
                    "\"alertstate\":\"pending\",\"job\":\"a\"},\"v\":1}\n");
    w.book->groups.all[0].offset = 0;
    evaluate(&w, 10, ONE);
    check_lines(&w, "{\"t\":1700000010.000,\"labels\":{\"__name__\":\"ALERTS\",\"alertname\":\"Down\","
                    "\"alertstate\":\"firing\",\"job\":\"a\"},\"v\":1}\n"
                    "{\"t\":1700000010.000,\"labels\":{\"__name__\":\"ALERTS\",\"alertname\":\"Down\","
                    "\"alertstate\":\"pending\",\"job\":\"a\"},\"v\":\"stale\"}\n");
    close_world(&w);
}

static void forget(struct world *w, unsigned ways)
{
    for (size_t i = 0; i < w->book->n; i++)
        alerts_tidy(&w->book->all[i].alerts, ways, INT64_MAX);
}

static struct alert_list *orphans_of(struct world *w)
{
    return &w->book->all[w->book->n - 1].alerts;
}

static void begin(struct world *w, struct message_batch *b, enum alert_way way, int64_t at)
{
    w->rounds = 0;
    do {
        assert_in_range(++w->rounds, 1, 100);
        b->n = 0;
        for (size_t i = 0; i < w->book->n; i++)
            alert_messages_add(b, &w->book->all[i].alerts);
    } while (!alert_messages_begin(b, &rules[way], &w->silences, START + at * 1000, 1 << 20));
}

/* Returns the messages of a way at START + `at` seconds; the caller frees them. */
static char *messages(struct world *w, enum alert_way way, int64_t at, bool is_stored)
{
    struct message_batch b = {0};
    silences_update(&w->silences, START + at * 1000);
    begin(w, &b, way, at);
    buf_append_char(&b.lines, '\0');
    char *text = mem_strdup(b.lines.ptr);
    alert_messages_end(&b, way, is_stored, START + at * 1000);
    forget(w, 1U << way);
    return text;
}

static void check_none(struct world *w, enum alert_way way, int64_t at)
{
    char *text = messages(w, way, at, true);
    assert_string_equal(text, "");
    free(text);
}

/* `parts`: texts that the messages have, in this order; a NULL ends them. */
static void check_message(
    struct world *w, enum alert_way way, int64_t at, bool is_stored, const char *const *parts)
{
    char *text = messages(w, way, at, is_stored);
    const char *rest = text;
    for (; *parts; parts++) {
        if (!(rest = strstr(rest, *parts)))
            fail_msg("%s is not in %s", *parts, text);
        rest += strlen(*parts);
    }
    free(text);
}
#define PARTS(...)                                                                                           \
    (const char *const[])                                                                                    \
    {                                                                                                        \
        __VA_ARGS__, NULL                                                                                    \
    }

static void messages_to_alertmanager(void **state)
{
    struct world w;
    (void)state;
    open_world(&w, RULE);
    evaluate(&w, 0, ONE);
    check_none(&w, WAY_ALERTMANAGER, 5);
    evaluate(&w, 30, ONE);
    const char *const *firing = PARTS(
        "[{\"labels\":{\"alertname\":\"Down\",\"job\":\"a\",\"s\":\"p\"},\"annotations\":{\"v\":\"1 a\"},"
        "\"startsAt\":\"2023-11-14T22:13:50.000Z\",\"endsAt\":\"2023-11-14T22:1");
    check_message(&w, WAY_ALERTMANAGER, 31, false, firing);
    check_message(&w, WAY_ALERTMANAGER, 32, true, firing);
    check_none(&w, WAY_ALERTMANAGER, 91);
    check_message(&w, WAY_ALERTMANAGER, 92, true, firing);
    evaluate(&w, 100, "");
    check_message(&w, WAY_ALERTMANAGER, 100, false, PARTS("\"endsAt\":\"2023-11-14T22:15:00.000Z\"}]\n"));
    evaluate(&w, 110, ONE); /* the receiver does not know of the end: the alert begins again */
    evaluate(&w, 120, "");
    check_message(&w, WAY_ALERTMANAGER, 120, true, PARTS("\"endsAt\":\"2023-11-14T22:15:20.000Z\"}]\n"));
    assert_int_equal(list_of(&w)->n, 0);
    check_none(&w, WAY_ALERTMANAGER, 500);
    evaluate(&w, 600, ONE);
    evaluate(&w, 630, ONE);
    evaluate(&w, 640, "");
    check_none(&w, WAY_ALERTMANAGER, 640); /* fired and ended before a message was stored */
    assert_int_equal(list_of(&w)->n, 0);
    close_world(&w);
}

static void notices(void **state)
{
    struct world w;
    (void)state;
    open_world(&w, "{alert: Down, expr: up, annotations: {v: '{{ $labels.job }}', w: x}}");
    evaluate(&w, 0, ONE);
    check_none(&w, WAY_NOTICES, 29);
    evaluate(&w, 29, ONE "," TWO);
    check_message(&w, WAY_NOTICES, 30, false, PARTS("\"status\":\"firing\""));
    check_message(&w, WAY_NOTICES, 31, true,
        PARTS("{\"version\":\"4\",\"status\":\"firing\",",
            "\"groupKey\":\"{\\\"alertname\\\":\\\"Down\\\"}\",\"title\":\"[FIRING:2] Down\"",
            "\"groupLabels\":{\"alertname\":\"Down\"},\"commonLabels\":{\"alertname\":\"Down\"},"
            "\"commonAnnotations\":{\"w\":\"x\"},\"alerts\":[{\"status\":\"firing\"",
            "\"job\":\"a\"", "\"endsAt\":\"0001-01-01T00:00:00Z\"", "\"id\":\"", "\"job\":\"b\""));
    evaluate(&w, 40, TWO);
    check_none(&w, WAY_NOTICES, 330);
    check_message(&w, WAY_NOTICES, 331, true,
        PARTS("[FIRING:1] Down", "{\"status\":\"resolved\",\"labels\":{\"alertname\":\"Down\",\"job\":\"a\"}",
            "{\"status\":\"firing\""));
    assert_int_equal(list_of(&w)->n, 1);
    check_none(&w, WAY_NOTICES, 331 + 3599);
    check_message(&w, WAY_NOTICES, 331 + 3600, true, PARTS("[FIRING:1] Down job=b"));
    evaluate(&w, 4000, "");
    check_message(&w, WAY_NOTICES, 4300, true, PARTS("\"status\":\"resolved\"", "[RESOLVED] Down job=b"));
    assert_int_equal(list_of(&w)->n, 0);
    close_world(&w);
}

/* Each alert of a group that needs several notices, and more than one request, is sent; no notice is large. */
static void large_groups(void **state)
{
    struct world w;
    struct buf vector = {0};
    size_t n_sent = 0;
    (void)state;
    open_world(
        &w, "{alert: Down, expr: up, annotations: {text: 'a text of some length about {{ $labels.job }}'}}");
    for (int i = 0; i < 6000; i++)
        buf_printf(&vector, "%s{\"metric\":{\"job\":\"job %d\"},\"value\":[1,\"1\"]}", i > 0 ? "," : "", i);
    buf_append_char(&vector, '\0');
    evaluate(&w, 0, vector.ptr);
    for (int64_t at = 30; at < 900; at += 300) {
        char *text = messages(&w, WAY_NOTICES, at, true);
        for (const char *line = text, *end; (end = strchr(line, '\n')); line = end + 1)
            assert_in_range(end - line, 1, 200 << 10);
        free(text);
    }
    for (size_t i = 0; i < list_of(&w)->n; i++)
        n_sent += list_of(&w)->all[i]->sent[WAY_NOTICES] == ALERT_FIRING;
    assert_int_equal(n_sent, 6000);
    buf_free(&vector);
    close_world(&w);
}

static void titles(void **state)
{
    struct world w;
    (void)state;
    open_world(&w, "{alert: Down, expr: up}");
    evaluate(&w, 0, "{\"metric\":{\"job\":\"a\\r\\nBcc: b\u00e9\"},\"value\":[1,\"1\"]}");
    check_message(
        &w, WAY_NOTICES, 30, true, PARTS("\"title\":\"[FIRING:1] Down job=a  Bcc: b\u00e9\"", "a\\r\\nBcc"));
    close_world(&w);
}

static const char *silence(struct world *w, const char *text, int64_t at)
{
    const char *id = NULL;
    struct json_doc *d = json_doc_parse(bytes_str(text));
    if (silences_add(&w->silences, d, START + at * 1000, &id, &w->error) != 0)
        id = NULL;
    json_doc_free(&d);
    return id;
}

static void silenced(void **state)
{
    struct world w;
    (void)state;
    open_world(&w, "{alert: Down, expr: up}");
    const char *id = silence(&w,
        "{\"matchers\":[{\"name\":\"job\",\"value\":\"[ax]\",\"isRegex\":true},{\"name\":\"rack\",\"value\":"
        "\"4\",\"isEqual\":false}],"
        "\"endsAt\":\"2023-11-14T22:15:00Z\",\"comment\":\"c\"}",
        0);
    assert_non_null(id);
    evaluate(&w, 0, ONE "," TWO);
    check_message(&w, WAY_NOTICES, 30, true, PARTS("[FIRING:1] Down job=b"));
    check_none(&w, WAY_NOTICES, 99);
    assert_true(silences_update(&w.silences, START + 100000));
    check_message(&w, WAY_NOTICES, 330, true, PARTS("[FIRING:2] Down"));
    id = silence(&w,
        "{\"id\":\"mine\",\"matchers\":[{\"name\":\"alertname\",\"value\":\"Down\"}],\"endsAt\":\"2033-01-"
        "01T00:00:00Z\"}",
        400);
    assert_string_equal(id, "mine");
    evaluate(&w, 400, ONE);
    check_none(&w, WAY_NOTICES, 900); /* the end of a silenced alert is not sent */
    assert_int_equal(list_of(&w)->n, 1);
    assert_true(silences_remove(&w.silences, BYTES_LITERAL("mine")));
    assert_false(silences_remove(&w.silences, BYTES_LITERAL("mine")));
    static const char *const bad[][2] = {{"[]", "a silence needs matchers"},
        {"{\"matchers\":[]}", "a silence needs matchers"},
        {"{\"matchers\":[{\"name\":\"a b\",\"value\":\"\"}]}", "a matcher needs name and value"},
        {"{\"matchers\":[{\"name\":\"a\",\"value\":\"\"}]}",
            "startsAt and endsAt are times such as 2026-12-01T00:00:00Z; endsAt is required"},
        {"{\"matchers\":[{\"name\":\"a\",\"value\":\"\"}],\"endsAt\":\"2023-11-14T22:13:00Z\"}",
            "endsAt must be after startsAt and in the future"},
        {"{\"matchers\":[{\"name\":\"a\",\"value\":\"\"}],\"endsAt\":\"soon\"}",
            "startsAt and endsAt are times such as 2026-12-01T00:00:00Z; endsAt is required"}};
    for (size_t i = 0; i < 3; i++) { /* they would silence every alert, for example of a mistyped label */
        static const char *const matchers[] = {
            "\"value\":\"\"", "\"value\":\".*\",\"isRegex\":true", "\"value\":\"x\",\"isEqual\":false"};
        char *text = mem_printf(
            "{\"matchers\":[{\"name\":\"jbo\",%s}],\"endsAt\":\"2033-01-01T00:00:00Z\"}", matchers[i]);
        assert_null(silence(&w, text, 0));
        assert_non_null(strstr(w.error.text, "match every alert"));
        free(text);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_null(silence(&w, bad[i][0], 0));
        assert_string_equal(w.error.text, bad[i][1]);
    }
    assert_null(silence(&w,
        "{\"matchers\":[{\"name\":\"a\",\"value\":\"(\",\"isRegex\":true}],\"endsAt\":\"2033-01-01T00:00:"
        "00Z\"}",
        0));
    close_world(&w);
}

/* Alerts are matched when they or the silences change, a bounded number in a batch. */
static void many_silences(void **state)
{
    struct world w;
    struct buf vector = {0};
    (void)state;
    open_world(&w, "{alert: Down, expr: up}");
    for (int i = 0; i < 300; i++)
        buf_printf(&vector, "%s{\"metric\":{\"job\":\"job %d\"},\"value\":[1,\"1\"]}", i > 0 ? "," : "", i);
    evaluate(&w, 0, vector.ptr);
    for (int i = 0; i < 20; i++) {
        char *text = mem_printf(
            "{\"matchers\":[{\"name\":\"job\",\"value\":\"job %d\"}],\"startsAt\":\"2023-11-14T22:1%d:00Z\","
            "\"endsAt\":\"2033-01-01T00:00:00Z\"}",
            i, i < 19 ? 0 : 9);
        assert_non_null(silence(&w, text, 0));
        free(text);
    }
    check_message(&w, WAY_NOTICES, 30, true, PARTS("[FIRING:281]"));
    assert_in_range(w.rounds, 2, 30);
    check_none(&w, WAY_NOTICES, 31);
    assert_int_equal(w.rounds, 1);
    buf_printf(&vector, ",{\"metric\":{\"job\":\"job 300\"},\"value\":[1,\"1\"]}");
    evaluate(&w, 331, vector.ptr);
    check_message(&w, WAY_NOTICES, 332, true, PARTS("[FIRING:282]"));
    assert_int_equal(w.rounds, 1);
    evaluate(&w, 400, ""); /* the last silence has started at 340 */
    check_message(&w, WAY_NOTICES, 700, true, PARTS("[RESOLVED]"));
    assert_in_range(w.rounds, 2, 30);
    for (size_t i = 0; i < list_of(&w)->n; i++)
        fail_msg("%s is left", list_of(&w)->all[i]->sample.key);
    buf_free(&vector);
    close_world(&w);
}

/* While a message is in progress, other alerts may end, and those in the message stay. */
static void ends_meanwhile(void **state)
{
    struct world w;
    struct message_batch b = {0};
    (void)state;
    open_world(&w, "{alert: Down, expr: up, for: 30s}");
    evaluate(&w, 0, ONE);
    evaluate(&w, 30, ONE "," TWO);
    begin(&w, &b, WAY_ALERTMANAGER, 31);
    assert_int_equal(b.n, 1);
    evaluate(&w, 40, "");
    forget(&w, 1U << WAY_ALERTMANAGER);
    check_state(&w, 50, "", ALERT_RESOLVED, ALERT_NONE);
    alert_messages_end(&b, WAY_ALERTMANAGER, true, START + 50000);
    assert_int_equal(list_of(&w)->all[0]->sent[WAY_ALERTMANAGER], ALERT_FIRING);
    check_message(&w, WAY_ALERTMANAGER, 60, true, PARTS("\"endsAt\":\"2023-11-14T22:14:00.000Z\""));
    close_world(&w);
}

/* Replaces the book by a new one with the same state, `at` seconds after START. */
static void restart(struct world *w, const char *rule, int64_t at)
{
    struct buf text = {0};
    buf_append_char(&text, '{');
    rule_book_print(w->book, &text);
    buf_append_char(&text, '}');
    struct json_doc *d = json_doc_parse(buf_bytes(&text));
    rule_book_free(&w->book);
    w->book = book_of(rule);
    assert_true(rule_book_restore(w->book, d, START + at * 1000));
    json_doc_free(&d);
    buf_free(&text);
}

static void restarts(void **state)
{
    struct world w;
    (void)state;
    open_world(&w, RULE);
    evaluate(&w, 0, ONE "," TWO);
    evaluate(&w, 10, ONE "," TWO);
    restart(&w, RULE, 15); /* within the interval: the time counts for `for` */
    check_state(&w, 20, ONE "," TWO, ALERT_PENDING, ALERT_PENDING);
    restart(&w, RULE, 130); /* 100 s more than the interval do not count */
    check_state(&w, 129, ONE "," TWO, ALERT_PENDING, ALERT_PENDING);
    check_state(&w, 130, ONE "," TWO, ALERT_FIRING, ALERT_FIRING);
    check_message(&w, WAY_NOTICES, 160, true, PARTS("[FIRING:2]"));
    restart(&w, RULE, 170);
    check_none(&w, WAY_NOTICES, 500); /* the sent notice is remembered */
    evaluate(&w, 500, ONE);
    restart(&w, RULE, 510);
    check_message(&w, WAY_NOTICES, 510, true, PARTS("\"status\":\"resolved\"", "2.5 b"));
    restart(&w, "{alert: Other, expr: up}", 600); /* the rule is gone */
    assert_int_equal(orphans_of(&w)->n, 1);
    check_message(&w, WAY_NOTICES, 900, true, PARTS("[RESOLVED] Down"));
    forget(&w, 1U << WAY_NOTICES);
    assert_int_equal(orphans_of(&w)->n, 0);
    evaluate(&w, 1000, ONE);
    restart(&w, RULE, 1000);
    evaluate(&w, 1010, ONE);
    restart(&w, RULE, 1010 + 2 * 3600); /* a pending alert begins again after a long outage */
    assert_int_equal(list_of(&w)->all[0]->at[ACTIVE_AT], START + (1010 + 2 * 3600) * 1000);
    close_world(&w);
}

/* Rules that change their places keep their alerts; two rules of one name and the same labels keep their order. */
static void moved_rules(void **state)
{
    struct world w;
    (void)state;
    open_world(&w, "{alert: Down, expr: up}, {alert: Other, expr: x}, {alert: Down, expr: z}");
    evaluate(&w, 0, ONE);
    restart(&w, "{alert: Other, expr: x}, {alert: Down, expr: up}, {alert: Down, expr: z}", 5);
    assert_int_equal(orphans_of(&w)->n, 0);
    assert_int_equal(w.book->runs[0].rules[1].alerts.n, 1);
    restart(&w, "{alert: Down, expr: up}, {alert: Down, expr: z}, {alert: Other, expr: x}", 6);
    assert_int_equal(orphans_of(&w)->n, 0);
    assert_int_equal(list_of(&w)->n, 1);
    close_world(&w);
    open_world(&w, "{alert: Down, expr: up, labels: {s: a}}, {alert: Down, expr: z, labels: {s: b}}");
    evaluate(&w, 0, ONE);
    restart(&w, "{alert: Down, expr: z, labels: {s: b}}, {alert: Down, expr: up, labels: {s: a}}", 5);
    assert_int_equal(orphans_of(&w)->n, 0);
    assert_int_equal(list_of(&w)->n, 0);
    assert_int_equal(w.book->runs[0].rules[1].alerts.n, 1);
    close_world(&w);
}

/* The end of an alert is sent if a queue may have its beginning: after a put without an answer, and after a kill. */
static void unknown_puts(void **state)
{
    struct world w;
    (void)state;
    for (int is_restarted = 0; is_restarted < 2; is_restarted++)
        for (int way = 0; way < ALERT_WAYS; way++) {
            open_world(&w, "{alert: Down, expr: up}");
            evaluate(&w, 0, ONE);
            if (is_restarted)
                restart(&w, "{alert: Down, expr: up}", 5);
            else
                free(messages(&w, (enum alert_way)way, 30, false));
            evaluate(&w, 40, "");
            check_message(&w, (enum alert_way)way, 80, true,
                PARTS("\"startsAt\":\"2023-11-14T22:13:20.000Z\",\"endsAt\":\"2023-11-14T22:14:00.000Z\""));
            close_world(&w);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(states), cmocka_unit_test(keep_firing),
        cmocka_unit_test(results_that_are_errors), cmocka_unit_test(recorded_lines),
        cmocka_unit_test(messages_to_alertmanager), cmocka_unit_test(notices), cmocka_unit_test(large_groups),
        cmocka_unit_test(titles), cmocka_unit_test(silenced), cmocka_unit_test(many_silences),
        cmocka_unit_test(ends_meanwhile), cmocka_unit_test(moved_rules), cmocka_unit_test(restarts),
        cmocka_unit_test(unknown_puts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
