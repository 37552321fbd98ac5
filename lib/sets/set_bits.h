/* set_bits: loops over the 65,536 bits of a chunk, with the vector instructions of the processor. */
#ifndef MILLRACE_SET_BITS_H
#define MILLRACE_SET_BITS_H

#include <stddef.h>
#include <stdint.h>

#define SET_BITS_WORDS 1024
#define SET_BITS_BYTES (SET_BITS_WORDS * sizeof(uint64_t))

void set_bits_or(uint64_t *to, const uint64_t *from);
void set_bits_and(uint64_t *to, const uint64_t *from);
void set_bits_and_not(uint64_t *to, const uint64_t *from);
uint64_t set_bits_count(const uint64_t *bits);
/* Sets the bits of a list. */
void set_bits_add_list(uint64_t *bits, const uint16_t *list, size_t n);
/* Sets the bits [first, last]. */
void set_bits_add_range(uint64_t *bits, uint32_t first, uint32_t last);
/* Writes up to `most` set bits, ascending. Returns their number. */
size_t set_bits_list(const uint64_t *bits, uint16_t *out, size_t most);

#endif
