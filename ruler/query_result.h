/* query_result: the answer of a source of metrics to an instant query, in the form of Prometheus' HTTP API. */
#ifndef MILLRACE_QUERY_RESULT_H
#define MILLRACE_QUERY_RESULT_H

#include "ruler/label_set.h"

struct result_sample {
    struct label_set labels;
    double value;
};

struct query_result {
    struct result_sample *all; /* a scalar is one sample without labels */
    size_t n, cap;
};

/* Reads the body of a reply. Returns 0, or -1 with the error, which has the source's own words if the source refused the
 * query. A matrix or a string is an error. The caller frees *out in any case. */
int query_result_read(struct bytes body, int status, struct query_result *out, struct error *error);
void query_result_free(struct query_result *r);

#endif
