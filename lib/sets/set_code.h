/* set_code: maps the text of a member to a code of 64 bits.
 *
 * 1. Canonical decimal digits below 2^32 ("0", "8211") map to the number. Every other text ("007", "4294967296",
 *    "bob") maps to its XXH3 (64 bits, seed 0). A hash below 2^32 is inverted, so no hash is below 2^32.
 * 2. Equal texts have equal codes. Different numbers have different codes. Two other texts have the same code with
 *    probability 2^-64.
 * 3. The code of a text never changes, because codes are stored (docs/internals/sets.md).
 */
#ifndef MILLRACE_SET_CODE_H
#define MILLRACE_SET_CODE_H

#include "base/bytes.h"

#include <stdint.h>

#define SET_NUMBER_END (UINT64_C(1) << 32) /* codes below are numbers, all others are hashes */
#define SET_CODE_TEXT 18                   /* buffer for the text of a code, with NUL */

uint64_t set_code(struct bytes text);
/* Writes the digits of a number, or `~` and 16 hexadecimal digits of a hash. Returns the length. */
size_t set_code_print(uint64_t code, char out[SET_CODE_TEXT]);
/* Parses the text of set_code_print. Returns false for any other text, such as "~" and the hash of a number. */
bool set_code_parse(struct bytes text, uint64_t *code);

#endif
