/* alert_text: expands the texts of labels and annotations, with the common part of Go's templates.
 *
 *     {{ $labels.queue }} is at {{ $value | humanize }}, which is {{ printf "%.1f%%" $value }}
 *
 * An action between {{ and }} is a value, perhaps with one function behind `|` or before the value:
 *
 *     values      $value  .Value  $labels.NAME  .Labels.NAME  $labels  .Labels
 *     functions   humanize  humanizeDuration  humanizePercentage  printf "FORMAT"
 *
 * FORMAT has one of %f %e %g, with a precision, or %s %v, and any number of %%. Labels have no function but printf
 * with %s or %v.
 *
 * 1. Every other action is refused by name. This depends on the text alone, so a text that was expanded once can
 *    always be expanded.
 * 2. Results are those of Prometheus. A label that does not exist is an empty text. */
#ifndef MILLRACE_ALERT_TEXT_H
#define MILLRACE_ALERT_TEXT_H

#include "ruler/label_set.h"

/* Appends the expanded text. Returns 0, or -1 with the error. */
int alert_text_expand(
    struct bytes text, const struct label_set *labels, double value, struct buf *out, struct error *error);
/* Puts the expanded texts of a set into another. */
void alert_texts_expand(
    const struct label_set *texts, const struct label_set *labels, double value, struct label_set *out);

/* Appends the shortest decimal that restores the number, as Go's %v does: 1e+06, 0.5, +Inf. */
void number_append(double value, struct buf *out);

#define TIME_TEXT 32
/* Writes milliseconds since 1970 as 2026-12-01T00:00:00.000Z, and 0, no time, as Go does: 0001-01-01T00:00:00Z. */
const char *time_write(int64_t ms, char out[TIME_TEXT]);

#endif
