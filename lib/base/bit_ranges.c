#include "base/bit_ranges.h"

#include <stdio.h>

/* Reads "A-B" or "A". */
static bool read_range(struct bytes text, uint64_t *first, uint64_t *last)
{
    const char *dash = memchr(text.ptr, '-', text.len);
    size_t n = dash ? (size_t)(dash - text.ptr) : text.len;
    if (!bytes_to_u64(bytes_of(text.ptr, n), first))
        return false;
    *last = *first;
    return !dash || bytes_to_u64(bytes_of(dash + 1, text.len - n - 1), last);
}

bool bit_ranges_read(const char *text, uint64_t *set, struct bytes *bad)
{
    uint64_t first, last;
    *set = 0;
    while (bytes_next_word(&text, " ,", bad)) {
        if (!read_range(*bad, &first, &last) || first > last || last >= BIT_RANGES_NUMBERS)
            return false;
        for (uint64_t i = first; i <= last; i++)
            *set |= UINT64_C(1) << i;
    }
    return true;
}

const char *bit_ranges_write(uint64_t set, char out[BIT_RANGES_TEXT])
{
    size_t len = 0;
    out[0] = '\0';
    for (unsigned first = 0, last; first < BIT_RANGES_NUMBERS; first = last + 1) {
        last = first;
        if (!(set >> first & 1))
            continue;
        while (last + 1 < BIT_RANGES_NUMBERS && set >> (last + 1) & 1)
            last++;
        len += (size_t)snprintf(out + len, BIT_RANGES_TEXT - len, "%s%u", len > 0 ? "," : "", first);
        if (last > first)
            len += (size_t)snprintf(out + len, BIT_RANGES_TEXT - len, "-%u", last);
    }
    return out;
}
