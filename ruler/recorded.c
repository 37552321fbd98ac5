#include "ruler/recorded.h"

#include "ruler/alert_text.h"

#include <inttypes.h>
#include <math.h>

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

void recorded_take(
    struct query_result *before, struct query_result *result, int64_t at, struct recorded_lines *out)
{
    size_t i = 0, k = 0;
    while (i < result->n || k < before->n) {
        int order = i == result->n ? 1 : k == before->n ? -1 : strcmp(result->all[i].key, before->all[k].key);
        if (order <= 0)
            print(out, result->all[i].key, at, &result->all[i].value);
        else
            print(out, before->all[k].key, at, NULL);
        i += order <= 0;
        k += order >= 0;
    }
    query_result_free(before);
    *before = *result;
    *result = (struct query_result){0};
}

void recorded_take_alerts(
    struct query_result *before, const struct alert_list *list, int64_t at, struct recorded_lines *out)
{
    struct query_result series = {0};
    for (size_t i = 0; i < list->n; i++) {
        const struct alert *a = list->all[i];
        if (a->state == ALERT_RESOLVED)
            continue;
        struct label_set labels = label_set_copy(&a->sample.labels);
        label_set_put(&labels, BYTES_LITERAL("__name__"), BYTES_LITERAL("ALERTS"));
        label_set_put(&labels, BYTES_LITERAL("alertstate"), bytes_str(alert_state_name(a->state)));
        query_result_add(&series, labels, 1);
    }
    query_result_sort(&series);
    recorded_take(before, &series, at, out);
}
