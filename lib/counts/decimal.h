/* decimal: converts between decimals and scaled integers.
 *
 * A scaled integer is a decimal times 10^scale. At scale 2, the decimal 12.5 is the integer 1250. A signed 64-bit integer
 * holds the scaled integer.
 *
 *     accepted                  as
 *     "12.50", "-0.00", "007"   the decimal: -?[0-9]+(\.[0-9]+)?
 *     12, -3                    the integer
 *     12.5, 1e3                 the shortest decimal of the JSON number's double, which has at most 15 digits
 *
 * Zeros at the end of a fraction are not significant. A decimal with more digits than the scale is refused, or rounded
 * half to even.
 */
#ifndef MILLRACE_DECIMAL_H
#define MILLRACE_DECIMAL_H

#include "json/json_fields.h"

#define DECIMAL_SCALE_MAX 9
#define DECIMAL_TEXT_MAX 24 /* bytes of a scaled integer's text, with NUL */

struct decimal_rule {
    unsigned scale; /* at most DECIMAL_SCALE_MAX */
    bool rounds;    /* round half to even, instead of refusing digits beyond the scale */
};

/* Sets *out to the scaled integer. Returns NULL, or the reason why the text or the value is refused ("is not a
 * decimal"), and leaves *out unchanged. */
const char *decimal_read(struct bytes text, struct decimal_rule rule, int64_t *out);
const char *decimal_read_json(const struct json_value *v, struct decimal_rule rule, int64_t *out);

/* Writes the decimal with `scale` digits after the point: -5 at scale 2 is "-0.05". Returns the length. */
size_t decimal_print(int64_t n, unsigned scale, char out[DECIMAL_TEXT_MAX]);

#endif
