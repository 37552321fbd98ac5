#include "ruler/rule_book.h"

#include "ruler/alert_text.h"

#include <inttypes.h>
#include <stdlib.h>

static const struct rule no_rule;

static void set_id(struct rule_run *r, const struct group_run *g)
{
    const struct rule *rule = r->rule;
    struct buf id = {0};
    size_t n = 0;
    buf_printf(&id, "%s %s: %s %s ", g->group->file, g->group->name, rule->is_alert ? "alert" : "record",
        rule->name);
    label_set_print(&rule->labels, &id);
    for (const struct rule_run *before = g->rules; before < r; before++)
        n += strncmp(before->id, id.ptr, id.len) == 0;
    buf_printf(&id, " %zu", n);
    r->id = id.ptr;
}

struct rule_book *rule_book_new(struct rule_groups *groups, int64_t failure_for)
{
    struct rule_book *b = mem_zalloc(sizeof *b);
    b->groups = *groups;
    *groups = (struct rule_groups){0};
    b->failing =
        (struct rule){.is_alert = true, .name = mem_strdup("RuleEvaluationFailed"), .hold = failure_for};
    for (size_t i = 0; i < b->groups.n; i++)
        b->n += b->groups.all[i].n_rules + 1;
    b->all = mem_zalloc(++b->n * sizeof *b->all);
    b->runs = mem_zalloc((b->groups.n + 1) * sizeof *b->runs);
    struct rule_run *r = b->all;
    for (size_t i = 0; i < b->groups.n; i++) {
        struct group_run *g = &b->runs[i];
        *g = (struct group_run){&b->groups.all[i], r, r + b->groups.all[i].n_rules, b->all + b->n - 1};
        for (; r <= g->failures; r++) {
            r->group = g->group;
            r->rule = r < g->failures ? &g->group->rules[r - g->rules] : &b->failing;
            set_id(r, g);
        }
    }
    r->id = mem_strdup(""); /* no other rule has it, so orphans stay orphans */
    return b;
}

void rule_book_free(struct rule_book **bp)
{
    struct rule_book *b = *bp;
    if (!b)
        return;
    for (struct rule_run *r = b->all; r < b->all + b->n; r++) {
        alerts_free(&r->alerts);
        query_result_free(&r->recorded);
        free(r->error);
        free(r->id);
    }
    free(b->failing.name);
    free(b->all);
    free(b->runs);
    rules_free(&b->groups);
    free(b);
    *bp = NULL;
}

void rule_book_take(struct group_run *g, size_t i, int64_t slot, struct query_result *result, const char *why,
    struct sample_lines *out)
{
    struct rule_run *r = &g->rules[i];
    struct query_result series = {0};
    struct error error;
    if (!why && query_result_apply(result, r->rule, g->group->limit, &error) != 0)
        why = error.text;
    if (!why && r->rule->is_alert) {
        alerts_adopt(&r->alerts, &g->gone->alerts, result);
        alerts_take(&r->alerts, r->rule, result, slot);
        alerts_series(&r->alerts, &series);
    }
    if (!why)
        query_result_record(r->rule->is_alert ? &series : result, &r->recorded, slot - g->group->offset, out);
    free(r->error);
    r->error = why ? mem_strdup(why) : NULL;
}

void rule_book_end(struct group_run *g, int64_t slot)
{
    struct query_result failed = {0};
    for (struct rule_run *r = g->rules; r <= g->failures; r++) {
        bool is_repeated = false; /* another rule of this name has failed */
        for (const struct rule_run *before = g->rules; r->error && before < r; before++)
            is_repeated = is_repeated || (before->error && strcmp(before->rule->name, r->rule->name) == 0);
        r->last = slot;
        if (!r->error || is_repeated)
            continue;
        struct result_sample *s = query_result_add(&failed, (struct label_set){0}, 1);
        label_set_put(&s->labels, BYTES_LITERAL("alertname"), bytes_str(g->failures->rule->name));
        label_set_put(&s->labels, BYTES_LITERAL("rule"), bytes_str(r->rule->name));
        label_set_put(&s->labels, BYTES_LITERAL("rule_group"), bytes_str(g->group->name));
        label_set_put(&s->annotations, BYTES_LITERAL("error"), bytes_str(r->error));
    }
    query_result_sort(&failed);
    alerts_take(&g->failures->alerts, g->failures->rule, &failed, slot);
    query_result_free(&failed);
}

/* Appends texts as members of a JSON object. The names end with NULL. */
static void print_texts(struct buf *out, const char *const *pairs)
{
    for (; *pairs; pairs += 2) {
        buf_printf(out, "\"%s\":", pairs[0]);
        buf_append_json(out, bytes_str(pairs[1]));
        buf_append_char(out, ',');
    }
}

void rule_book_print(const struct rule_book *b, struct buf *out)
{
    buf_append_str(out, "\"rules\":[");
    for (size_t i = 0; i < b->n; i++) {
        const struct rule_run *r = &b->all[i];
        buf_append_str(out, i > 0 ? ",\n{" : "\n{");
        print_texts(out, (const char *const[]){"id", r->id, NULL});
        buf_printf(out, "\"last\":%" PRId64 ",\"alerts\":[", r->last);
        for (size_t k = 0; k < r->alerts.n; k++) {
            buf_append_str(out, k > 0 ? ",\n" : "\n");
            alert_print(r->alerts.all[k], out);
        }
        buf_append_str(out, "]}");
    }
    buf_append_char(out, ']');
}

/* Returns the rule with this id, or the run for alerts of rules that are gone. */
static struct rule_run *find_rule(struct rule_book *b, struct bytes id)
{
    struct rule_run *r = b->all;
    while (r < b->all + b->n - 1 && !bytes_equal_str(id, r->id))
        r++;
    return r;
}

void rule_book_continue(struct rule_book *b, struct rule_book *old, struct sample_lines *out)
{
    for (struct rule_run *o = old->all; o < old->all + old->n - 1; o++) {
        struct rule_run *r = find_rule(b, bytes_str(o->id));
        struct query_result none = {0};
        if (r == b->all + b->n - 1) {
            query_result_record(&none, &o->recorded, o->last - o->group->offset + 1, out);
        } else {
            r->recorded = o->recorded;
            o->recorded = none;
        }
    }
}

struct restoring {
    struct rule_book *book;
    struct rule_run *run;
    int64_t now;
};

static bool restore_alert(const struct json_doc *d, size_t i, void *arg)
{
    struct restoring *r = arg;
    struct alert_list *list = &r->run->alerts;
    int64_t outage = r->now - r->run->last - (r->run->group ? r->run->group->interval : 0);
    (void)i;
    if (!alert_read(list, d))
        return false;
    struct alert *a = list->all[list->n - 1];
    if (a->state == ALERT_PENDING)
        a->at[ACTIVE_AT] = outage > RULE_OUTAGE_MAX ? r->now : a->at[ACTIVE_AT] + (outage > 0 ? outage : 0);
    return true;
}

static bool restore_rule(const struct json_doc *d, size_t i, void *arg)
{
    struct restoring *r = arg;
    int64_t last = (int64_t)json_doc_number(d, "/last");
    (void)i;
    r->run = find_rule(r->book, json_doc_text(d, "/id"));
    r->run->last = last < r->now ? last : r->now; /* the clock may have been set back */
    return json_doc_each(d, "/alerts", restore_alert, r);
}

bool rule_book_restore(struct rule_book *b, const struct json_doc *d, int64_t now)
{
    struct restoring r = {.book = b, .now = now};
    bool is_good = json_doc_each(d, "/rules", restore_rule, &r);
    alerts_take(&b->all[b->n - 1].alerts, &no_rule, &(struct query_result){0}, now);
    return is_good;
}

static void print_time(const char *name, int64_t ms, struct buf *out)
{
    char text[TIME_TEXT];
    buf_printf(out, ",\"%s\":\"%s\"", name, time_write(ms, text));
}

/* Appends pending and firing alerts, separated by commas. */
static void print_alerts(const struct alert_list *list, struct buf *out)
{
    for (size_t i = 0; i < list->n; i++) {
        const struct alert *a = list->all[i];
        if (a->state == ALERT_RESOLVED)
            continue;
        buf_append_str(out, out->ptr[out->len - 1] == '}' ? ",{" : "{");
        alert_print_members(a, out);
        print_time("activeAt", a->at[ACTIVE_AT], out);
        buf_append_char(out, '}');
    }
}

void rule_book_print_alerts(const struct rule_book *b, struct buf *out)
{
    buf_append_str(out, "{\"alerts\":[");
    for (size_t i = 0; i < b->n; i++)
        print_alerts(&b->all[i].alerts, out);
    buf_append_str(out, "]}");
}

static void print_rule(const struct rule_run *r, struct buf *out)
{
    const struct rule *rule = r->rule;
    print_texts(
        out, (const char *const[]){"name", rule->name, "query", rule->expr, "lastError",
                 r->error ? r->error : "", "type", rule->is_alert ? "alerting" : "recording", "health",
                 r->error      ? "err"
                 : r->last > 0 ? "ok"
                               : "unknown",
                 NULL});
    buf_append_str(out, "\"labels\":");
    label_set_print(&rule->labels, out);
    buf_printf(out, ",\"evaluationTime\":%.6f", r->seconds);
    print_time("lastEvaluation", r->last, out);
    if (!rule->is_alert)
        return;
    buf_append_str(out, ",\"annotations\":");
    label_set_print(&rule->annotations, out);
    buf_printf(out, ",\"state\":\"%s\",\"duration\":%.3f,\"keepFiringFor\":%.3f,\"alerts\":[",
        alerts_count(&r->alerts, ALERT_FIRING)    ? "firing"
        : alerts_count(&r->alerts, ALERT_PENDING) ? "pending"
                                                  : "inactive",
        (double)rule->hold / 1000, (double)rule->keep_firing / 1000);
    print_alerts(&r->alerts, out);
    buf_append_char(out, ']');
}

void rule_book_print_rules(const struct rule_book *b, struct buf *out)
{
    buf_append_str(out, "{\"groups\":[");
    for (size_t i = 0; i < b->groups.n; i++) {
        const struct group_run *g = &b->runs[i];
        double seconds = 0;
        buf_append_str(out, i > 0 ? ",{" : "{");
        print_texts(out, (const char *const[]){"name", g->group->name, "file", g->group->file, NULL});
        buf_printf(out, "\"interval\":%.3f,\"limit\":%" PRIu64 ",\"rules\":[",
            (double)g->group->interval / 1000, g->group->limit);
        for (const struct rule_run *r = g->rules; r < g->failures; r++) {
            buf_append_str(out, r > g->rules ? ",{" : "{");
            print_rule(r, out);
            buf_append_char(out, '}');
            seconds += r->seconds;
        }
        buf_printf(out, "],\"evaluationTime\":%.6f", seconds);
        print_time("lastEvaluation", g->failures->last, out);
        buf_append_char(out, '}');
    }
    buf_append_str(out, "]}");
}
