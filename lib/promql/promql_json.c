#include "promql/promql_json.h"
#include "promql/promql_number.h"

#include <math.h>
#include <stdlib.h>

/* Appends a number that is written as 1.5e-07: as 1.5e-07 or as 0.00000015. */
static void append_number(struct buf *out, const char *written, bool is_scientific)
{
    const char *mark = strchr(written, 'e');
    int exponent = is_scientific ? 0 : atoi(mark + 1), n = 0;
    char digits[32];
    if (*written == '-')
        buf_append_char(out, *written++);
    for (const char *c = written; c < mark; c++)
        if (*c != '.')
            digits[n++] = *c;
    if (exponent < 0)
        buf_append_str(out, "0.");
    for (int i = -1; i > exponent; i--)
        buf_append_char(out, '0');
    for (int i = 0; i < n || i <= exponent; i++) {
        if (i == exponent + 1 && exponent >= 0)
            buf_append_char(out, '.');
        buf_append_char(out, i < n ? digits[i] : '0');
    }
    if (is_scientific)
        buf_append_str(out, mark);
}

void promql_json_value(struct buf *out, double value)
{
    char digits[PROMQL_NUMBER_SIZE];
    double size = fabs(value);
    buf_append_char(out, '"');
    if (isnan(value) || isinf(value)) {
        buf_append_str(out, isnan(value) ? "NaN" : value > 0 ? "+Inf" : "-Inf");
    } else if (value == floor(value) && size < 1e15 && !signbit(value)) {
        buf_append_u64(out, (uint64_t)value);
    } else {
        promql_number_write(value, digits);
        append_number(out, digits, size != 0 && (size < 1e-6 || size >= 1e21));
    }
    buf_append_char(out, '"');
}

void promql_json_time(struct buf *out, int64_t time)
{
    uint64_t size = time < 0 ? 0 - (uint64_t)time : (uint64_t)time;
    buf_append_str(out, time < 0 ? "-" : "");
    buf_append_u64(out, size / 1000);
    if (size % 1000 > 0)
        buf_printf(out, ".%03u", (unsigned)(size % 1000));
}

void promql_json_labels(struct buf *out, const struct metric_label *labels, size_t n_labels)
{
    buf_append_char(out, '{');
    for (size_t i = 0; i < n_labels; i++) {
        buf_append_str(out, i > 0 ? "," : "");
        buf_append_json(out, labels[i].name);
        buf_append_char(out, ':');
        buf_append_json(out, labels[i].value);
    }
    buf_append_char(out, '}');
}

static void append_point(struct buf *out, struct promql_point point)
{
    buf_append_char(out, '[');
    promql_json_time(out, point.time);
    buf_append_char(out, ',');
    promql_json_value(out, point.value);
    buf_append_char(out, ']');
}

static void append_series(struct buf *out, const struct promql_series *s, bool is_matrix)
{
    buf_append_str(out, "{\"metric\":");
    promql_json_labels(out, s->labels, s->n_labels);
    buf_append_str(out, is_matrix ? ",\"values\":[" : ",\"value\":");
    for (size_t i = 0; i < s->n_points; i++) {
        buf_append_str(out, i > 0 ? "," : "");
        append_point(out, s->points[i]);
    }
    buf_append_str(out, is_matrix ? "]}" : "}");
}

bool promql_json(struct buf *out, size_t max_bytes, const struct promql_result *result)
{
    static const char *const types[] = {"scalar", "vector", "matrix", "string"};
    buf_printf(out, "{\"resultType\":\"%s\",\"result\":", types[result->type]);
    if (result->type == PROMQL_SCALAR) {
        append_point(out, result->series[0].points[0]);
    } else if (result->type == PROMQL_STRING) {
        buf_append_char(out, '[');
        promql_json_time(out, result->time);
        buf_append_char(out, ',');
        buf_append_json(out, result->text);
        buf_append_char(out, ']');
    } else {
        buf_append_char(out, '[');
        for (size_t i = 0; i < result->n_series && out->len <= max_bytes; i++) {
            buf_append_str(out, i > 0 ? "," : "");
            append_series(out, &result->series[i], result->type == PROMQL_MATRIX);
        }
        buf_append_char(out, ']');
    }
    buf_append_char(out, '}');
    return out->len <= max_bytes;
}
