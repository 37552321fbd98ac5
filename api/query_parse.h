/* query_parse: what the parsers of a query share (query.h, unique_query.h). */
#ifndef MILLRACE_QUERY_PARSE_H
#define MILLRACE_QUERY_PARSE_H

#include "api/query.h"

struct parse {
    enum query_kind kind;
    const struct query_context *context;
    const struct url_query *params;
    struct query *q;
    struct query_error *error;
};

static inline bool query_get(const struct parse *p, const char *name, struct bytes *value)
{
    return url_query_get(p->params, name, value);
}

/* Sets the error and returns -1. */
int query_refuse(struct parse *p, int status, const char *code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
#define BAD(p, ...) query_refuse((p), 400, "bad-parameter", __VA_ARGS__)
/* Sets the hint of the error, and frees the text. */
void query_hint(struct parse *p, struct buf *text);
/* Refuses an unknown namespace of a counter, or with `or_label` an unknown namespace or label. */
int query_unknown_counter(struct parse *p, struct bytes name, bool or_label);
/* Sets *there to whether the parameter is given, and *out to its value. */
int query_parse_number(
    struct parse *p, const char *name, int64_t least, int64_t most, bool *there, int64_t *out);
/* Sets is_rounded, and refuses a zone that differs from UTC by a part of an hour, without round=hour. query_parse omits
 * this check in queries for sets. */
int query_check_zone(struct parse *p);
/* Parses the value of a parameter that is a time. */
int query_parse_side(struct parse *p, const char *name, const char *forms, struct bytes text, int64_t *out);

#endif
