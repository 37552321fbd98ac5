/* promql_functions: the table of functions, by name.
 *
 * A function maps each value of a vector (`map`), reads the samples of a range (`range`), or makes a vector from its arguments
 * (`call`). With `range` and `call`, it makes a vector from the answers of the range. */
#ifndef MILLRACE_PROMQL_FUNCTIONS_H
#define MILLRACE_PROMQL_FUNCTIONS_H

#include "promql/promql_evaluation.h"

#define FUNCTION_ARGS_MAX 4

/* The samples of a series that lie in a range: buckets with at least one sample, whose last sample lies in it. `n` is 0 only for a
 * function that divides buckets, and then `next` is set. */
struct window {
    const struct sample_bucket *buckets;
    size_t n;
    const struct sample_bucket
        *next;            /* the bucket that begins before the end of the range and ends after it, or NULL */
    int64_t from, to, at; /* the range, and the time of the evaluation (milliseconds) */
};

/* Each returns false, or ABSENT, without an answer. `args` are the scalars among the arguments. */
typedef double map_function(double value, const double *args);
typedef bool range_function(const struct window *w, const double *args, double *value);
typedef struct matrix call_function(struct evaluation *e, const struct node *call, struct matrix *args);

struct promql_function {
    const char *name;
    /* A letter for each argument: s scalar, v vector, m matrix, t text. Arguments after '?' may be omitted; '*' repeats the
     * last. NULL: known, but not supported. */
    const char *args;
    map_function *map;
    range_function *range;
    call_function *call;
    bool is_scalar;      /* the answer */
    bool keeps_name;     /* the answer keeps __name__ */
    bool divides;        /* reads also a bucket that lies partly in the range */
    bool is_approximate; /* for buckets with several samples */
};

const struct promql_function *promql_function_find(struct bytes name);
/* The type that argument i must have, or false if there are too many. *least is the number of required arguments, *most the largest. */
void promql_function_arity(const struct promql_function *f, size_t *least, size_t *most);
enum promql_type promql_function_arg(const struct promql_function *f, size_t i);

#endif
