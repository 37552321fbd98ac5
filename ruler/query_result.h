/* query_result: the samples of an evaluation: the answer of a source of metrics to an instant query, in the form of
 * Prometheus' HTTP API, then with the labels of a rule, then as lines for a stream.
 *
 * 1. A line is a sample in the scraper's form (docs/internals/metrics.md). Labels are in the order of names.
 * 2. A series that the previous evaluation has and this one does not gets "stale". After a start the previous evaluation
 *    is not known: such a series ends by the age of its last sample. */
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
struct sample_lines {
    struct buf text;
    uint64_t n;
};

/* Appends a line for each sample of a sorted result and each stale marker, with the time `at` in milliseconds. Moves the
 * samples to *before, which has those of the previous evaluation. */
void query_result_record(
    struct query_result *r, struct query_result *before, int64_t at, struct sample_lines *out);
/* Adds a sample, which takes over the labels. */
struct result_sample *query_result_add(struct query_result *r, struct label_set labels, double value);
void query_result_sort(struct query_result *r); /* by keys, which it sets */
void result_sample_free(struct result_sample *s);
void query_result_free(struct query_result *r);

#endif
