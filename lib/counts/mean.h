/* mean: finds the divisor of a mean, which is the counter of the events with the value.
 *
 *     [total revenue]          [total buys]
 *     key = product            key = product
 *     value = price            having = price
 *
 * The divisor of a value counter is the total with the same key whose `having` is the value's field: it counts exactly
 * the events whose values were added. The divisor of a subtotal is the subtotal of that total with the same key. A counter
 * and its divisor have the same max_keys, so that both count the same events as `(other)`.
 *
 * A configuration is refused if a counter is meant as a divisor, but is not one: a total that differs only in max_keys, or a
 * subtotal of a divisor with the label of the value's subtotal, and with another key or max_keys. */
#ifndef MILLRACE_MEAN_H
#define MILLRACE_MEAN_H

#include "counts/counters.h"

#define MEAN_MORE_DIGITS 2 /* digits of a mean beyond the scale of the value */
#define MEAN_TEXT_MAX 40   /* bytes of a mean's text, with NUL */

/* Returns the divisor of a total or a subtotal with a value, or NULL. */
const struct counter *mean_divisor(const struct counters *c, const struct counter *of);
/* Returns a counter that is meant as a divisor, but is not one, and sets *of to the counter of the value. NULL: there is no such
 * counter. */
const struct counter *mean_find_unfit(const struct counters *c, const struct counter **of);
/* Appends the missing sections that declare the divisor of a counter. */
void mean_append_sections(const struct counters *c, const struct counter *of, struct buf *out);
/* Writes sum / events with MEAN_MORE_DIGITS digits beyond the scale, rounded half to even. `events` is above 0. Returns
 * the length. */
size_t mean_print(int64_t sum, int64_t events, unsigned scale, char out[MEAN_TEXT_MAX]);

#endif
