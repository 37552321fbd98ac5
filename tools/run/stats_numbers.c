#include "tools/run/stats_numbers.h"

#include <string.h>

double stats_number(const struct json_doc *d, const char *pointer)
{
    struct json_value v = json_doc_at(d, pointer);
    return v.type == JSON_I64   ? (double)v.v.i64
           : v.type == JSON_U64 ? (double)v.v.u64
           : v.type == JSON_F64 ? v.v.f64
                                : -1;
}

double stats_metric(
    const struct json_doc *d, const char *name, const char *label, const char *member, bool sum)
{
    struct buf all = {0}, one = {0};
    double found = -1;
    buf_printf(&all, "/%s", name);
    for (size_t i = 0; i < json_doc_length(d, all.ptr); i++) {
        struct bytes labels = json_doc_name(d, all.ptr, i);
        buf_clear(&one);
        buf_append_bytes(&one, buf_bytes(&all));
        json_pointer_append(&one, labels);
        buf_printf(&one, "%s", member);
        double n = stats_number(d, one.ptr);
        if (n < 0 || !memmem(labels.ptr, labels.len, label, strlen(label)))
            continue;
        found = found < 0 ? n : sum ? found + n : n > found ? n : found;
    }
    buf_free(&all);
    buf_free(&one);
    return found;
}
