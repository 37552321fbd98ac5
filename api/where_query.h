/* where_query: a breakdown of the events that meet further conditions, `product=hat&by=page&where=country:JP`.
 *
 * Each condition is LABEL:VALUE. LABEL names a counter, whose key the condition compares, or a field. `by` may name any
 * counter or field, too.
 *
 * 1. If a total has the key of the only condition, and a subtotal of this total has the key of `by`, the query asks for this
 *    subtotal. The key of a total over a constant is not a condition.
 * 2. Any other query gets a 422. The hint has the sections to add to the configuration, and a statement for `millrace
 *    sql` that counts the lines themselves. Both are ready to copy. */
#ifndef MILLRACE_WHERE_QUERY_H
#define MILLRACE_WHERE_QUERY_H

#include "api/parameters.h"

#define WHERE_MAX 8 /* maximum number of where= */

/* Sets the counters and the key of the query; `sub` stays NULL if no subtotal has the answer. Returns 0, or -1 with an
 * error. */
int where_query_parse(struct parameters *p);
/* Refuses a query without a subtotal, after its time and its limit are parsed. Returns -1. */
int where_query_refuse(struct parameters *p);

#endif
