/* alert_text: the texts of labels and annotations, with the common part of Go's templates.
 *
 *     {{ $labels.queue }} is at {{ $value | humanize }}, which is {{ printf "%.1f%%" $value }}
 *
 * An action between {{ and }} is a value, perhaps with one function behind `|` or before the value:
 *
 *     values      $value  .Value  $labels.NAME  .Labels.NAME  $labels  .Labels
 *     functions   humanize  humanizeDuration  humanizePercentage  printf "FORMAT"
 *
 * FORMAT has one of %f %e %g, with a precision, or %s %v, and any number of %%. Labels have no function but printf with %s or %v.
 *
 * 1. alert_text_new refuses every other action by name, so an expansion cannot fail.
 * 2. Results are those of Prometheus. A label that does not exist is an empty text. */
#ifndef MILLRACE_ALERT_TEXT_H
#define MILLRACE_ALERT_TEXT_H

#include "ruler/label_set.h"

struct alert_text;

/* Returns NULL with the error. */
struct alert_text *alert_text_new(struct bytes text, struct error *error);
void alert_text_free(struct alert_text **t);
/* Appends the expanded text. */
void alert_text_expand(
    const struct alert_text *t, const struct label_set *labels, double value, struct buf *out);

/* Appends the shortest decimal that restores the number, as Go's %v does: 1e+06, 0.5, +Inf. */
void number_append(double value, struct buf *out);

#endif
