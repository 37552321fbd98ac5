/* alert_text: the texts of labels and annotations, with the common part of Go's templates.
 *
 *     Queue {{ $labels.queue }} is at {{ $value | humanize }}: {{ printf "%.1f" $value }}
 *
 * An action between {{ and }} is a value, followed by functions that are separated by `|`, or a function before its value:
 *
 *     values      $labels.NAME  .Labels.NAME  $value  .Value  "text"
 *     functions   humanize humanize1024 humanizeDuration humanizePercentage toUpper toLower
 *                 printf "FORMAT" with one of %s %v %f %e %g, width and precision, and %%
 *
 * 1. alert_text_new refuses every other action by name. So an expansion has no error but a text that must be a number.
 * 2. Results are those of Prometheus. A label that does not exist is an empty text.
 * 3. {{- and -}} remove the white space before and after the action. */
#ifndef MILLRACE_ALERT_TEXT_H
#define MILLRACE_ALERT_TEXT_H

#include "ruler/label_set.h"

struct alert_text;

/* Returns NULL with the error. */
struct alert_text *alert_text_new(struct bytes text, struct error *error);
void alert_text_free(struct alert_text **t);
/* Appends the expanded text. After an error, appends "<error expanding template: REASON>" instead. */
void alert_text_expand(
    const struct alert_text *t, const struct label_set *labels, double value, struct buf *out);

/* Appends the shortest decimal that restores the number, as Go's %v does: 1e+06, 0.5, +Inf. */
void number_append(double value, struct buf *out);

#endif
