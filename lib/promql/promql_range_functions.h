/* promql_range_functions: computes rate(), avg_over_time() and others from the buckets in a range.
 *
 * A bucket with one sample is that sample. For the error with several samples, see invariant 2 of promql.h. */
#ifndef MILLRACE_PROMQL_RANGE_FUNCTIONS_H
#define MILLRACE_PROMQL_RANGE_FUNCTIONS_H

#include "promql/promql_functions.h"

range_function range_rate, range_increase, range_delta, range_irate, range_idelta, range_deriv, range_predict,
    range_resets, range_changes, range_avg, range_min, range_max, range_sum, range_count, range_last,
    range_present, range_quantile;

/* The quantile of numbers, which are sorted, with NaN first. */
double quantile_of(double q, double *values, size_t n);

#endif
