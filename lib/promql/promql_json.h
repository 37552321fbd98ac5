/* promql_json: the answer of a query as Prometheus' HTTP API prints it. */
#ifndef MILLRACE_PROMQL_JSON_H
#define MILLRACE_PROMQL_JSON_H

#include "promql/promql.h"

/* Appends the value of the member `data`: {"resultType":"vector","result":[...]}. Returns false, with a part of the value, once *out has
 * more than max_bytes. */
bool promql_json(struct buf *out, size_t max_bytes, const struct promql_result *result);
/* Appends {"name":"value",...}, as in the answers of /api/v1/series. */
void promql_json_labels(struct buf *out, const struct metric_label *labels, size_t n_labels);
/* Appends a number as a JSON string: the shortest digits that read as the same number, "NaN", "+Inf" or "-Inf". */
void promql_json_value(struct buf *out, double value);
/* Appends seconds with milliseconds: 1435781430.781. */
void promql_json_time(struct buf *out, int64_t time);

#endif
