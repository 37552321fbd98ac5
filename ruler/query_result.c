#include "ruler/query_result.h"

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

static struct result_sample *add(struct query_result *r)
{
    struct result_sample *s = ARRAY_ADD(r->all, r->n, r->cap);
    *s = (struct result_sample){0};
    return s;
}

static bool read_item(const struct json_doc *item, size_t i, void *arg)
{
    struct result_sample *s = add(arg);
    (void)i;
    return label_set_read(&s->labels, item, "/metric") &&
           read_value(json_doc_text(item, "/value/1"), &s->value);
}

int query_result_read(struct bytes body, int status, struct query_result *out, struct error *error)
{
    struct json_doc *d = json_doc_parse(body);
    struct bytes type = json_doc_text(d, "/data/resultType"), why = json_doc_text(d, "/error");
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
    else if (!read_value(json_doc_text(d, "/data/result/1"), &add(out)->value))
        rc = error_set(error, -1, "the source sent a malformed scalar");
    json_doc_free(&d);
    return rc;
}

void query_result_free(struct query_result *r)
{
    for (size_t i = 0; i < r->n; i++)
        label_set_free(&r->all[i].labels);
    free(r->all);
    *r = (struct query_result){0};
}
