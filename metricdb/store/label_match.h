/* label_match: the matchers of a query. */
#ifndef MILLRACE_METRICDB_LABEL_MATCH_H
#define MILLRACE_METRICDB_LABEL_MATCH_H

#include "metrics/metric_source.h"

/* The matchers of one query, for one thread. */
struct label_match;

/* The matchers are borrowed. Returns NULL with the error if a pattern is invalid. */
struct label_match *label_match_new(const struct label_matcher *matchers, size_t n, struct error *error);
void label_match_free(struct label_match **m);
size_t label_match_count(const struct label_match *m);
struct bytes label_match_name(const struct label_match *m, size_t i);
/* The text that the i-th matcher requires, or ptr NULL if several texts match. */
struct bytes label_match_only(const struct label_match *m, size_t i);
/* True if the i-th matcher matches the value. The result of a pattern is kept for some values. */
bool label_match_value(struct label_match *m, size_t i, struct bytes value);
/* True if all matchers match the labels of a series. */
bool label_match_series(struct label_match *m, const struct metric_label *labels, size_t n);
/* True if a pattern took too many steps for a value (text_pattern.h), or for all values together: the result of the query
 * is not valid, and no further value is searched. */
bool label_match_failed(const struct label_match *m, struct error *error);

#endif
