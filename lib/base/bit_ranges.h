/* bit_ranges: a set of the numbers from 0 to 63 as text, such as "0-15,32". */
#ifndef MILLRACE_BIT_RANGES_H
#define MILLRACE_BIT_RANGES_H

#include "base/bytes.h"

#define BIT_RANGES_NUMBERS 64
#define BIT_RANGES_TEXT (3 * BIT_RANGES_NUMBERS)

/* Reads ranges and numbers, separated by spaces or commas. Returns false with the first wrong word in *bad. The empty
 * text is the empty set. */
bool bit_ranges_read(const char *text, uint64_t *set, struct bytes *bad);
/* Returns `out`. */
const char *bit_ranges_write(uint64_t set, char out[BIT_RANGES_TEXT]);

#endif
