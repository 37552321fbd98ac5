/* sample_line: reads a line of the stream of samples: one sample, or samples that differ in the value of the label `by`.
 *
 *     {"t":1732977600.125,"labels":{"__name__":"up","job":"node"},"v":1}
 *     {"t":1732977600.125,"labels":{"__name__":"s_bucket","job":"node"},"by":"le","v":{"0.1":5,"+Inf":7}}
 *
 * 1. The members t, labels and v occur once each, in any order, and no other except `by`. `t` is in seconds. A value is a number or one
 *    of the texts "NaN", "+Inf", "-Inf" and "stale". With `by`, `v` is an object with at least one value.
 * 2. The values of labels are texts. Their names are not checked: sample_store_add does this. */
#ifndef MILLRACE_METRICDB_SAMPLE_LINE_H
#define MILLRACE_METRICDB_SAMPLE_LINE_H

#include "metricdb/store/sample_store.h"

struct sample_value {
    struct bytes text; /* of the label `by` */
    double number;
    bool is_stale;
};

/* Zeroed before the first call. */
struct sample_line {
    struct sample sample; /* its texts point into the line or into `text` */
    struct metric_label *labels;
    size_t n_labels, cap_labels;
    struct metric_label *by; /* among `labels`; NULL: none */
    struct sample_value *values;
    size_t n, cap, next; /* of `values` */
    struct buf text;     /* unescaped texts */
    const char *at, *end;
};

/* Returns false for a line of another form. */
bool sample_line_read(struct sample_line *l, struct bytes line);
/* Sets `sample` to the next sample of the line that was read, valid until the next call. Returns false after the last one. */
bool sample_line_next(struct sample_line *l);
void sample_line_free(struct sample_line *l);

#endif
