/* sample_line: reads a line of the stream of samples.
 *
 *     {"t":1732977600.125,"labels":{"__name__":"up","job":"node"},"v":1}
 *
 * 1. The members t, labels and v occur once each, in any order, and no other. `t` is in seconds. `v` is a number or one of the texts
 *    "NaN", "+Inf", "-Inf" and "stale".
 * 2. The values of labels are texts. Their names are not checked: sample_store_add does this. */
#ifndef MILLRACE_METRICDB_SAMPLE_LINE_H
#define MILLRACE_METRICDB_SAMPLE_LINE_H

#include "metricdb/store/sample_store.h"

/* Zeroed before the first call. */
struct sample_line {
    struct sample sample; /* its texts point into the line or into `text` */
    struct metric_label *labels;
    size_t cap_labels;
    struct buf text; /* unescaped texts */
    const char *at, *end;
};

/* Returns false for a line of another form. The sample is valid until the next call, as long as the line is. */
bool sample_line_read(struct sample_line *l, struct bytes line);
void sample_line_free(struct sample_line *l);

#endif
