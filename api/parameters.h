/* parameters: the parameters of a request for counts: the names that each endpoint takes, and their values.
 *
 * A table in parameters.c lists each parameter with its endpoints. The modules that read the parameters (query.h,
 * period_query.h, unique_query.h) may read any parameter without a check whether the endpoint takes it.
 *
 * 1. parameters_check refuses an unknown, misplaced, repeated or contradictory parameter, so that a misspelling does not
 *    silently change the query.
 * 2. A name that is a parameter of series, breakdown, compare or top is a parameter at every endpoint. Names that
 *    only a query for sets takes, such as `all`, are parameters only there. Any other name is the label of a total. A
 *    counter with the label of a parameter must be named by ns=.
 * 3. A query may repeat one parameter, with at most QUERY_SERIES_MAX values. A cohort may repeat several parameters,
 *    and a breakdown may repeat where=. */
#ifndef MILLRACE_PARAMETERS_H
#define MILLRACE_PARAMETERS_H

#include "api/query.h"

struct parameters {
    enum query_kind kind;
    const struct query_context *context;
    const struct url_query *given;
    struct query *q; /* the query that the parameters set */
    struct query_error *error;
};

/* Applies the rules above, and sets q->repeated and q->n_values. This and the following functions return 0, or -1 with an
 * error. */
int parameters_check(struct parameters *p);
/* True if the query is for sets (unique_query.h). */
bool parameters_is_of_sets(const struct parameters *p);
static inline bool parameters_get(const struct parameters *p, const char *name, struct bytes *value)
{
    return url_query_get(p->given, name, value);
}
/* Returns the parameter that is the label of a total, and sets *total. If the label is repeated, returns the first. NULL:
 * no parameter is a label. */
const struct url_param *parameters_label(const struct parameters *p, const struct counter **total);
/* Sets *out if the parameter is given. */
int parameters_number(struct parameters *p, const char *name, int64_t least, int64_t most, int64_t *out);
/* Sets *given to whether the parameter is given. `word` is its only valid value. */
int parameters_word(struct parameters *p, const char *name, const char *word, bool *given);

/* Sets the error and returns -1. */
int parameters_refuse(struct parameters *p, int status, const char *code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
#define BAD(p, ...) parameters_refuse((p), 400, "bad-parameter", __VA_ARGS__)
#define MISSING(p, ...) parameters_refuse((p), 400, "missing-parameter", __VA_ARGS__)
/* Appends a text to the hint of the error. */
void parameters_hint(struct parameters *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Appends ": did you mean NEAREST?" to the error unless `nearest` is NULL. Returns -1. */
int parameters_suggest(struct parameters *p, const char *nearest);
/* Refuses an unknown namespace of a counter, or with `or_label` an unknown namespace or label. */
int parameters_refuse_counter(struct parameters *p, struct bytes name, bool or_label);

/* The part of a client's text that an error message shows: at most PARAMETERS_SHOWN bytes, up to a NUL. */
#define PARAMETERS_SHOWN 64
struct parameters_text {
    char text[PARAMETERS_SHOWN + 1];
};
struct parameters_text parameters_shown(struct bytes text);

#endif
