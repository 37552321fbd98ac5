#include "base/amount.h"

#include <stdio.h>

const char *size_write(char out[SIZE_TEXT], uint64_t bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    double n = (double)bytes;
    size_t unit = 0;
    for (; n >= 999.5 && unit + 1 < sizeof units / sizeof *units; unit++) /* 999.5 would become 1000 */
        n /= 1000;
    snprintf(out, SIZE_TEXT, "%.*f %s", unit > 0 && n < 99.95, n, units[unit]);
    return out;
}
