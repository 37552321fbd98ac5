/* promql_vector_functions: functions that make a vector, and read more than one value at a time. */
#ifndef MILLRACE_PROMQL_VECTOR_FUNCTIONS_H
#define MILLRACE_PROMQL_VECTOR_FUNCTIONS_H

#include "promql/promql_functions.h"

call_function call_absent, call_histogram_quantile, call_label_join, call_label_replace, call_scalar,
    call_sort, call_timestamp, call_vector;

/* Sorts an instant vector by value; NaN comes last in both orders. Rows of equal value keep their order. */
void rows_sort(struct row **rows, size_t n, size_t step, bool descending);

#endif
