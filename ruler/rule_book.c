#include "ruler/rule_book.h"

#include "ruler/silences.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct rule_book *rule_book_new(struct rule_groups *groups, int64_t failure_for)
{
    struct rule_book *b = mem_zalloc(sizeof *b);
    b->groups = *groups;
    *groups = (struct rule_groups){0};
    b->failure_for = failure_for;
    b->runs = mem_zalloc((b->groups.n + 1) * sizeof *b->runs);
    for (size_t i = 0; i < b->groups.n; i++) {
        struct group_run *g = &b->runs[i];
        g->group = &b->groups.all[i];
        g->rules = mem_zalloc((g->group->n_rules + 1) * sizeof *g->rules);
        for (size_t k = 0; k < g->group->n_rules; k++)
            g->rules[k].rule = &g->group->rules[k];
    }
    return b;
}

void rule_book_free(struct rule_book **bp)
{
    struct rule_book *b = *bp;
    if (!b)
        return;
    for (size_t i = 0; i < b->groups.n; i++) {
        struct group_run *g = &b->runs[i];
        for (size_t k = 0; k < g->group->n_rules; k++) {
            alerts_free(&g->rules[k].alerts);
            recorded_free(&g->rules[k].recorded);
            free(g->rules[k].error);
        }
        alerts_free(&g->failures);
        free(g->rules);
    }
    alerts_free(&b->orphans);
    free(b->runs);
    rules_free(&b->groups);
    free(b);
    *bp = NULL;
}

void rule_book_take(struct group_run *g, size_t i, int64_t slot, const struct query_result *result,
    const char *why, struct recorded_lines *out)
{
    struct rule_run *r = &g->rules[i];
    struct error error;
    if (!why && r->rule->is_alert &&
        alerts_take(&r->alerts, r->rule, result, g->group->limit, slot, &error) != 0)
        why = error.text;
    if (!why && r->rule->is_alert)
        recorded_take_alerts(&r->recorded, &r->alerts, slot - g->group->offset, out);
    else if (!why && recorded_take(&r->recorded, r->rule, result, g->group->limit, slot - g->group->offset,
                         out, &error) != 0)
        why = error.text;
    free(r->error);
    r->error = why ? mem_strdup(why) : NULL;
    r->last = slot;
}

/* Returns the first rule of a group with this name that failed. */
static const struct rule_run *failed_rule(const struct group_run *g, struct bytes name)
{
    for (size_t i = 0; i < g->group->n_rules; i++)
        if (g->rules[i].error && bytes_equal_str(name, g->rules[i].rule->name))
            return &g->rules[i];
    return NULL;
}

void rule_book_end(struct group_run *g, int64_t failure_for, int64_t slot)
{
    struct rule failing = {.is_alert = true, .name = (char[]){"RuleEvaluationFailed"}, .hold = failure_for};
    struct query_result failed = {0};
    struct error error;
    for (size_t i = 0; i < g->group->n_rules; i++) {
        struct bytes name = bytes_str(g->rules[i].rule->name);
        if (failed_rule(g, name) != &g->rules[i])
            continue;
        struct result_sample *s = ARRAY_ADD(failed.all, failed.n, failed.cap);
        *s = (struct result_sample){.value = 1};
        label_set_put(&s->labels, BYTES_LITERAL("rule"), name);
        label_set_put(&s->labels, BYTES_LITERAL("rule_group"), bytes_str(g->group->name));
    }
    alerts_take(&g->failures, &failing, &failed, 0, slot, &error); /* cannot fail: no two names are equal */
    for (size_t i = 0; i < g->failures.n; i++) {
        struct alert *a = g->failures.all[i];
        const struct rule_run *r = failed_rule(g, label_set_get(&a->labels, BYTES_LITERAL("rule")));
        if (r)
            label_set_put(&a->annotations, BYTES_LITERAL("error"), bytes_str(r->error));
    }
    query_result_free(&failed);
    g->last = slot;
}

void rule_book_each(struct rule_book *b, void (*fn)(struct alert_list *list, void *arg), void *arg)
{
    for (size_t i = 0; i < b->groups.n; i++) {
        for (size_t k = 0; k < b->groups.all[i].n_rules; k++)
            fn(&b->runs[i].rules[k].alerts, arg);
        fn(&b->runs[i].failures, arg);
    }
    fn(&b->orphans, arg);
}

static void print_list(const struct alert_list *list, const char *before, struct buf *out)
{
    buf_append_str(out, before);
    for (size_t i = 0; i < list->n; i++) {
        buf_append_str(out, i > 0 ? ",\n" : "\n");
        alert_print(list->all[i], out);
    }
    buf_append_char(out, ']');
}

void rule_book_print(const struct rule_book *b, struct buf *out)
{
    buf_append_str(out, "\"groups\":[");
    for (size_t i = 0; i < b->groups.n; i++) {
        const struct group_run *g = &b->runs[i];
        buf_append_str(out, i > 0 ? ",\n{\"file\":" : "\n{\"file\":");
        buf_append_json(out, bytes_str(g->group->file));
        buf_append_str(out, ",\"name\":");
        buf_append_json(out, bytes_str(g->group->name));
        buf_printf(out, ",\"last\":%" PRId64 ",\"rules\":[", g->last);
        for (size_t k = 0; k < g->group->n_rules; k++) {
            buf_append_str(out, k > 0 ? ",{\"name\":" : "{\"name\":");
            buf_append_json(out, bytes_str(g->rules[k].rule->name));
            print_list(&g->rules[k].alerts, ",\"alerts\":[", out);
            buf_append_char(out, '}');
        }
        print_list(&g->failures, "],\"failures\":[", out);
        buf_append_char(out, '}');
    }
    print_list(&b->orphans, "],\"orphans\":[", out);
}

struct restoring {
    struct rule_book *book;
    struct group_run *group; /* NULL: the group is gone */
    struct alert_list *list;
    int64_t last, now; /* `last`: the group's last evaluation */
};

static bool restore_alert(const struct json_doc *d, size_t i, void *arg)
{
    struct restoring *r = arg;
    struct alert_list *list = r->list ? r->list : &r->book->orphans;
    int64_t outage = r->now - r->last - (r->group ? r->group->group->interval : 0);
    (void)i;
    if (!alert_read(list, d))
        return false;
    struct alert *a = list->all[list->n - 1];
    if (a->state == ALERT_PENDING)
        a->active_at = outage > RULE_OUTAGE_MAX ? r->now : a->active_at + (outage > 0 ? outage : 0);
    return true;
}

static bool restore_rule(const struct json_doc *d, size_t i, void *arg)
{
    struct restoring *r = arg;
    struct bytes name = json_doc_text(d, "/name");
    size_t n = r->group ? r->group->group->n_rules : 0, k = 0;
    struct rule_run *rules = r->group ? r->group->rules : NULL;
    (void)i;
    while (k < n && (rules[k].is_restored || !bytes_equal_str(name, rules[k].rule->name)))
        k++;
    r->list = k < n && rules[k].rule->is_alert ? &rules[k].alerts : NULL;
    if (k < n)
        rules[k].is_restored = true; /* two rules of one name get their own alerts */
    return json_doc_each(d, "/alerts", restore_alert, r);
}

static bool restore_group(const struct json_doc *d, size_t i, void *arg)
{
    struct restoring *r = arg;
    struct rule_book *b = r->book;
    struct bytes file = json_doc_text(d, "/file"), name = json_doc_text(d, "/name");
    (void)i;
    r->group = NULL;
    r->last = (int64_t)json_doc_number(d, "/last");
    r->last = r->last < r->now ? r->last : r->now; /* the clock may have been set back */
    for (size_t k = 0; k < b->groups.n; k++)
        if (bytes_equal_str(file, b->groups.all[k].file) && bytes_equal_str(name, b->groups.all[k].name))
            r->group = &b->runs[k];
    if (r->group)
        r->group->last = r->last;
    if (!json_doc_each(d, "/rules", restore_rule, r))
        return false;
    r->list = r->group ? &r->group->failures : NULL;
    return json_doc_each(d, "/failures", restore_alert, r);
}

static void resort(struct alert_list *list, void *arg)
{
    (void)arg;
    alerts_sort(list);
}

bool rule_book_restore(struct rule_book *b, const struct json_doc *d, int64_t now)
{
    struct restoring r = {.book = b, .now = now, .last = now};
    bool is_good = json_doc_each(d, "/groups", restore_group, &r);
    r.list = NULL;
    is_good = is_good && json_doc_each(d, "/orphans", restore_alert, &r);
    alerts_resolve_all(&b->orphans, now);
    rule_book_each(b, resort, NULL);
    return is_good;
}

static void print_time(const char *name, int64_t ms, struct buf *out)
{
    char text[TIME_TEXT];
    buf_printf(out, ",\"%s\":\"%s\"", name, time_write(ms, text));
}

struct printing {
    struct buf *out;
    bool is_later;
};

static void print_alerts(struct alert_list *list, void *arg)
{
    struct printing *p = arg;
    for (size_t i = 0; i < list->n; i++) {
        const struct alert *a = list->all[i];
        if (a->state == ALERT_RESOLVED)
            continue;
        struct buf value = {0};
        number_append(a->value, &value);
        buf_printf(p->out, "%s{\"labels\":%s,\"annotations\":", p->is_later ? "," : "", a->key);
        label_set_print(&a->annotations, p->out);
        buf_printf(p->out, ",\"state\":\"%s\"", alert_state_name(a->state));
        print_time("activeAt", a->active_at, p->out);
        buf_printf(p->out, ",\"value\":\"%.*s\"}", (int)value.len, value.ptr);
        buf_free(&value);
        p->is_later = true;
    }
}

void rule_book_print_alerts(struct rule_book *b, struct buf *out)
{
    struct printing p = {out, false};
    buf_append_str(out, "{\"alerts\":[");
    rule_book_each(b, print_alerts, &p);
    buf_append_str(out, "]}");
}

static void print_rule(const struct rule_run *r, struct buf *out)
{
    struct printing p = {out, false};
    bool is_firing = false;
    struct alert_list list = r->alerts;
    for (size_t i = 0; i < list.n; i++)
        is_firing = is_firing || list.all[i]->state == ALERT_FIRING;
    buf_append_str(out, "{\"name\":");
    buf_append_json(out, bytes_str(r->rule->name));
    buf_append_str(out, ",\"query\":");
    buf_append_json(out, bytes_str(r->rule->expr));
    buf_printf(out, ",\"type\":\"%s\",\"health\":\"%s\"", r->rule->is_alert ? "alerting" : "recording",
        r->error      ? "err"
        : r->last > 0 ? "ok"
                      : "unknown");
    buf_append_str(out, ",\"lastError\":");
    buf_append_json(out, bytes_str(r->error ? r->error : ""));
    buf_printf(out, ",\"evaluationTime\":%.6f", r->seconds);
    print_time("lastEvaluation", r->last, out);
    if (r->rule->is_alert) {
        buf_printf(out, ",\"state\":\"%s\",\"duration\":%.3f,\"keepFiringFor\":%.3f,\"alerts\":[",
            is_firing    ? "firing"
            : list.n > 0 ? "pending"
                         : "inactive",
            (double)r->rule->hold / 1000, (double)r->rule->keep_firing / 1000);
        print_alerts(&list, &p);
        buf_append_char(out, ']');
    }
    buf_append_char(out, '}');
}

void rule_book_print_rules(const struct rule_book *b, struct buf *out)
{
    buf_append_str(out, "{\"groups\":[");
    for (size_t i = 0; i < b->groups.n; i++) {
        const struct group_run *g = &b->runs[i];
        buf_append_str(out, i > 0 ? ",{\"name\":" : "{\"name\":");
        buf_append_json(out, bytes_str(g->group->name));
        buf_append_str(out, ",\"file\":");
        buf_append_json(out, bytes_str(g->group->file));
        buf_printf(out, ",\"interval\":%.3f,\"rules\":[", (double)g->group->interval / 1000);
        for (size_t k = 0; k < g->group->n_rules; k++) {
            buf_append_str(out, k > 0 ? "," : "");
            print_rule(&g->rules[k], out);
        }
        buf_append_str(out, "]}");
    }
    buf_append_str(out, "]}");
}
