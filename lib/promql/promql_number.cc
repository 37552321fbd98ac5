#include "promql/promql_number.h"

#include <charconv>

/* C has no such function, and trying 15, 16 and 17 digits with printf takes several times as long. */
void promql_number_write(double value, char *out)
{
    *std::to_chars(out, out + PROMQL_NUMBER_SIZE - 1, value, std::chars_format::scientific).ptr = '\0';
}
