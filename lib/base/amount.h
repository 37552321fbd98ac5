/* amount: numbers in messages for people. */
#ifndef MILLRACE_AMOUNT_H
#define MILLRACE_AMOUNT_H

#include <stdint.h>

/* Returns `one` if `n` is 1, else `many`: 1 event, 0 events, 2 events. */
static inline const char *plural(uint64_t n, const char *one, const char *many)
{
    return n == 1 ? one : many;
}

#define SIZE_TEXT 16
/* Writes a number of bytes with two or three digits and a unit of a power of 1000, such as "1.5 GB", "25.3 MB" or
 * "268 kB". Less than 1 kB is written exactly. Returns `out`. */
const char *size_write(char out[SIZE_TEXT], uint64_t bytes);

#endif
