#include "ruler/recorded.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* A series of this evaluation. */
struct fresh {
    char *series;
    double value;
};

struct fresh_list {
    struct fresh *all;
    size_t n, cap;
};

static int compare(const void *a, const void *b)
{
    return strcmp(((const struct fresh *)a)->series, ((const struct fresh *)b)->series);
}

static void add(struct fresh_list *list, const struct label_set *labels, double value)
{
    struct buf text = {0};
    label_set_print(labels, &text);
    buf_append_char(&text, '\0');
    *ARRAY_ADD(list->all, list->n, list->cap) = (struct fresh){text.ptr, value};
}

static void print(struct recorded_lines *out, const char *series, int64_t at, const double *value)
{
    buf_printf(
        &out->text, "{\"t\":%" PRId64 ".%03" PRId64 ",\"labels\":%s,\"v\":", at / 1000, at % 1000, series);
    const char *quote = !value || !isfinite(*value) ? "\"" : "";
    buf_append_str(&out->text, quote);
    if (value)
        number_append(*value, &out->text);
    else
        buf_append_str(&out->text, "stale");
    buf_append_str(&out->text, quote);
    buf_append_str(&out->text, "}\n");
    out->n++;
}

/* Prints the sorted series and the markers, and keeps the series for the next evaluation. */
static void take(struct recorded *r, struct fresh_list *list, int64_t at, struct recorded_lines *out)
{
    struct recorded next = {0};
    size_t i = 0, k = 0;
    while (i < list->n || k < r->n) {
        int order = i == list->n ? 1 : k == r->n ? -1 : strcmp(list->all[i].series, r->all[k]);
        if (order <= 0) {
            print(out, list->all[i].series, at, &list->all[i].value);
            *ARRAY_ADD(next.all, next.n, next.cap) = list->all[i++].series;
        } else {
            print(out, r->all[k], at, NULL);
        }
        k += order >= 0;
    }
    free(list->all);
    recorded_free(r);
    *r = next;
}

int recorded_take(struct recorded *r, const struct rule *rule, const struct query_result *result,
    uint64_t limit, int64_t at, struct recorded_lines *out, struct error *error)
{
    struct fresh_list list = {0};
    int rc = 0;
    if (limit > 0 && result->n > limit)
        return error_set(
            error, -1, "the result has %zu samples, more than the limit %" PRIu64, result->n, limit);
    for (size_t i = 0; i < result->n; i++) {
        const struct result_sample *s = &result->all[i];
        struct label_set labels = label_set_copy(&s->labels);
        rule_labels_expand(&rule->labels, &s->labels, s->value, &labels);
        label_set_put(&labels, BYTES_LITERAL("__name__"), bytes_str(rule->name));
        add(&list, &labels, s->value);
        label_set_free(&labels);
    }
    if (list.n > 1)
        qsort(list.all, list.n, sizeof *list.all, compare);
    for (size_t i = 1; i < list.n && rc == 0; i++)
        if (strcmp(list.all[i - 1].series, list.all[i].series) == 0)
            rc = error_set(error, -1, "two samples have the same labels %.500s after the labels of the rule",
                list.all[i].series);
    if (rc == 0) {
        take(r, &list, at, out);
        return 0;
    }
    for (size_t i = 0; i < list.n; i++)
        free(list.all[i].series);
    free(list.all);
    return rc;
}

void recorded_take_alerts(
    struct recorded *r, const struct alert_list *alerts, int64_t at, struct recorded_lines *out)
{
    struct fresh_list list = {0};
    for (size_t i = 0; i < alerts->n; i++) {
        const struct alert *a = alerts->all[i];
        if (a->state == ALERT_RESOLVED)
            continue;
        struct label_set labels = label_set_copy(&a->labels);
        label_set_put(&labels, BYTES_LITERAL("__name__"), BYTES_LITERAL("ALERTS"));
        label_set_put(&labels, BYTES_LITERAL("alertstate"), bytes_str(alert_state_name(a->state)));
        add(&list, &labels, 1);
        label_set_free(&labels);
    }
    if (list.n > 1)
        qsort(list.all, list.n, sizeof *list.all, compare);
    take(r, &list, at, out);
}

void recorded_free(struct recorded *r)
{
    for (size_t i = 0; i < r->n; i++)
        free(r->all[i]);
    free(r->all);
    *r = (struct recorded){0};
}
