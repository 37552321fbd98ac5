/* query_result: the samples of an evaluation: the answer of a source of metrics to an instant query, in the form of
 * Prometheus' HTTP API, then with the labels of a rule. */
#ifndef MILLRACE_QUERY_RESULT_H
#define MILLRACE_QUERY_RESULT_H

#include "ruler/rule_file.h"

struct result_sample {
    struct label_set labels, annotations;
    char *key; /* the labels as JSON, once the result is sorted */
    double value;
};

struct query_result {
    struct result_sample *all; /* a scalar is one sample without labels */
    size_t n, cap;
};

/* Reads the body of a reply. Returns 0, or -1 with the error, which has the source's own words if the source refused the
 * query. A matrix or a string is an error. The caller frees *out in any case. */
int query_result_read(struct bytes body, int status, struct query_result *out, struct error *error);
/* Gives the samples the labels and annotations of a rule, and sorts them. Returns 0, or -1 with the error: more samples
 * than `limit`, or two with the same labels. */
int query_result_apply(struct query_result *r, const struct rule *rule, uint64_t limit, struct error *error);
/* Adds a sample, which takes over the labels. */
struct result_sample *query_result_add(struct query_result *r, struct label_set labels, double value);
void query_result_sort(struct query_result *r); /* by keys, which it sets */
void result_sample_free(struct result_sample *s);
void query_result_free(struct query_result *r);

#endif
