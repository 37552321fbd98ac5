/* promql_operations: the operations of an expression on the values of its parts: selectors, aggregations and binary operations.
 *
 * Each function receives evaluated arguments and knows nothing of the rest of the expression. Functions of the language are in
 * promql_functions.h. */
#ifndef MILLRACE_PROMQL_OPERATIONS_H
#define MILLRACE_PROMQL_OPERATIONS_H

#include "promql/promql_functions.h"

/* The end of a selector's or subquery's range, after offset and @, when it is evaluated at `time`. */
int64_t selector_end(const struct evaluation *e, const struct node *n, int64_t time);
/* The vector of a selector; the values are the times of the samples if `times`. */
struct matrix selector_rows(struct evaluation *e, const struct node *n, bool times);
/* Reads the series of a selector's ranges, in the order of labels. `selection` needs metric_selection_free, also after an error. */
void select_series(struct evaluation *e, const struct node *n, struct metric_selection *selection);
/* Makes series of rows: each value is a bucket with one sample. */
void select_rows(struct evaluation *e, struct matrix m, struct metric_selection *selection);
/* Calls a range function at each step. */
struct matrix range_rows(struct evaluation *e, const struct node *call, const struct node *range,
    struct matrix *args, const struct metric_selection *selection);

struct matrix aggregate_rows(struct evaluation *e, const struct node *n, struct matrix *args);
struct matrix binary_rows(
    struct evaluation *e, const struct node *n, struct matrix left, struct matrix right);

#endif
