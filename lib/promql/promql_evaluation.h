/* promql_evaluation: the values of parts of an expression, at all steps at once.
 *
 * 1. A value is a matrix: rows with a number for each step, or ABSENT. A vector has no two rows with the same labels.
 *    A scalar is one row without labels and without ABSENT.
 * 2. A matrix belongs to the function that receives it, which may change it in place.
 * 3. An error is kept in the evaluation: the first is final, and the matrix that is returned has no rows. A caller
 *    that uses two matrices checks `failed` between them.
 * 4. All memory comes from one arena. `evaluation_rows` fails before it exceeds the limit. */
#ifndef MILLRACE_PROMQL_EVALUATION_H
#define MILLRACE_PROMQL_EVALUATION_H

#include "promql/promql_tree.h"

struct row {
    const struct metric_label *labels;
    size_t n_labels;
    double *values;
};

struct matrix {
    struct row *rows;
    size_t n;
};

struct grid { /* the times of the steps */
    int64_t start, step;
    size_t n;
};

static inline int64_t grid_time(const struct grid *g, size_t k)
{
    return g->start + (int64_t)k * g->step;
}

struct evaluation {
    const struct metric_source *source;
    struct promql_request request; /* with defaults */
    struct grid grid;
    struct arena *memory;
    size_t n_series, n_buckets; /* read so far */
    int64_t width;              /* width of the widest buckets that a selector requests */
    size_t work;                /* since `stop` was polled */
    enum promql_result_code code;
    struct error *error;
    const char **warnings;
    size_t n_warnings;
};

/* The mark of a step without a value: a signalling NaN, which no operation returns. */
#define ABSENT_BITS UINT64_C(0x7ff0000000000002)
static inline double absent(void)
{
    double value;
    uint64_t bits = ABSENT_BITS;
    memcpy(&value, &bits, sizeof value);
    return value;
}
static inline bool is_absent(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits == ABSENT_BITS;
}

/* Sets the error and returns a matrix without rows. */
struct matrix evaluation_fail(struct evaluation *e, enum promql_result_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static inline bool evaluation_failed(const struct evaluation *e)
{
    return e->code != PROMQL_OK;
}
/* Counts work, about a nanosecond each, and polls `stop`. Returns false if the evaluation has failed. */
bool evaluation_work(struct evaluation *e, size_t work);
/* n rows of ABSENT without labels. */
struct matrix evaluation_rows(struct evaluation *e, size_t n);
/* Returns true if n more bytes fit into the limit of memory. Otherwise sets the error. */
bool evaluation_fits(struct evaluation *e, size_t n, size_t size);
/* Adds the warning once. */
void evaluation_warn(struct evaluation *e, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
