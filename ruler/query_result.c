#include "ruler/query_result.h"

#include "ruler/alert_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

/* Reads the text of a sample's value, such as 1.5, NaN or +Inf. */
static bool read_value(struct bytes text, double *value)
{
    char *copy = bytes_dup(text), *end;
    *value = strtod(copy, &end);
    bool is_number = end != copy && *end == '\0' && strlen(copy) == text.len;
    free(copy);
    return is_number;
}

struct result_sample *query_result_add(struct query_result *r, struct label_set labels, double value)
{
    struct result_sample *s = ARRAY_ADD(r->all, r->n, r->cap);
    *s = (struct result_sample){.labels = labels, .value = value};
    return s;
}

static bool read_item(const struct json_doc *item, size_t i, void *arg)
{
    struct result_sample *s = query_result_add(arg, (struct label_set){0}, 0);
    (void)i;
    return label_set_read(&s->labels, item, "/metric") &&
           read_value(json_doc_text(item, "/value/1"), &s->value);
}

int query_result_read(struct bytes body, int status, struct query_result *out, struct error *error)
{
    struct json_doc *d = json_doc_parse(body);
    struct bytes type = json_doc_text(d, "/data/resultType"), why = json_doc_text(d, "/error");
    double scalar;
    int rc = 0;
    if (status != 200 || !bytes_equal_str(json_doc_text(d, "/status"), "success"))
        rc = why.len > 0 ? error_set(error, -1, "%.*s", (int)why.len, why.ptr)
                         : error_set(error, -1, "the source answered %d", status);
    else if (bytes_equal_str(type, "vector"))
        rc = json_doc_each(d, "/data/result", read_item, out)
                 ? 0
                 : error_set(error, -1, "the source sent a malformed vector");
    else if (!bytes_equal_str(type, "scalar"))
        rc = error_set(
            error, -1, "the result is a %.*s, neither a vector nor a scalar", (int)type.len, type.ptr);
    else if (read_value(json_doc_text(d, "/data/result/1"), &scalar))
        query_result_add(out, (struct label_set){0}, scalar);
    else
        rc = error_set(error, -1, "the source sent a malformed scalar");
    json_doc_free(&d);
    return rc;
}

static int compare_keys(const void *a, const void *b)
{
    return strcmp(((const struct result_sample *)a)->key, ((const struct result_sample *)b)->key);
}

void query_result_sort(struct query_result *r)
{
    for (struct result_sample *s = r->all; s < r->all + r->n; s++) {
        struct buf key = {0};
        label_set_print(&s->labels, &key);
        buf_append_char(&key, '\0');
        s->key = key.ptr;
    }
    if (r->n > 1)
        qsort(r->all, r->n, sizeof *r->all, compare_keys);
}

int query_result_apply(struct query_result *r, const struct rule *rule, uint64_t limit, struct error *error)
{
    if (limit > 0 && r->n > limit)
        return error_set(error, -1, "the result has %zu samples, more than the limit %" PRIu64, r->n, limit);
    for (struct result_sample *s = r->all; s < r->all + r->n; s++) {
        struct label_set labels = label_set_copy(&s->labels);
        label_set_put(
            &labels, BYTES_LITERAL("__name__"), rule->is_alert ? BYTES_NONE : bytes_str(rule->name));
        alert_texts_expand(&rule->labels, &s->labels, s->value, &labels);
        alert_texts_expand(&rule->annotations, &s->labels, s->value, &s->annotations);
        if (rule->is_alert)
            label_set_put(&labels, BYTES_LITERAL("alertname"), bytes_str(rule->name));
        label_set_free(&s->labels);
        s->labels = labels;
    }
    query_result_sort(r);
    for (size_t i = 1; i < r->n; i++)
        if (strcmp(r->all[i - 1].key, r->all[i].key) == 0)
            return error_set(error, -1,
                "two samples have the same labels %.500s after the labels of the rule", r->all[i].key);
    return 0;
}

static void print_line(struct sample_lines *out, const char *series, int64_t at, const double *value)
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

void query_result_record(
    struct query_result *r, struct query_result *before, int64_t at, struct sample_lines *out)
{
    size_t i = 0, k = 0;
    while (i < r->n || k < before->n) {
        int order = i == r->n ? 1 : k == before->n ? -1 : strcmp(r->all[i].key, before->all[k].key);
        if (order <= 0)
            print_line(out, r->all[i].key, at, &r->all[i].value);
        else
            print_line(out, before->all[k].key, at, NULL);
        i += order <= 0;
        k += order >= 0;
    }
    query_result_free(before);
    *before = *r;
    *r = (struct query_result){0};
}

void result_sample_free(struct result_sample *s)
{
    label_set_free(&s->labels);
    label_set_free(&s->annotations);
    free(s->key);
}

void query_result_free(struct query_result *r)
{
    for (size_t i = 0; i < r->n; i++)
        result_sample_free(&r->all[i]);
    free(r->all);
    *r = (struct query_result){0};
}
