#include "metrics/metric_duration.h"

#define MAX INT64_C(9223372036854) /* 292 years, as the nanoseconds of Prometheus fit into 64 bits */

/* Takes the characters up to the first digit, or up to the first other character. */
static struct bytes take(struct bytes *text, bool digits)
{
    size_t n = 0;
    while (n < text->len && (text->ptr[n] >= '0' && text->ptr[n] <= '9') == digits)
        n++;
    struct bytes taken = bytes_of(text->ptr, n);
    *text = bytes_of(text->ptr + n, text->len - n);
    return taken;
}

const char *metric_duration_read(struct bytes text, int64_t *milliseconds)
{
    static const struct {
        const char *name;
        int64_t ms;
    } units[] = {{"y", 31536000000}, {"w", 604800000}, {"d", 86400000}, {"h", 3600000}, {"m", 60000},
        {"s", 1000}, {"ms", 1}};
    const size_t n_units = sizeof units / sizeof *units;
    size_t next = 0;
    *milliseconds = 0;
    do {
        struct bytes digits = take(&text, true), name = take(&text, false);
        uint64_t n;
        while (next < n_units && !bytes_equal_str(name, units[next].name))
            next++;
        if (next == n_units || digits.len == 0)
            return "not a valid duration string";
        if (!bytes_to_u64(digits, &n) || n > (uint64_t)((MAX - *milliseconds) / units[next].ms))
            return "duration out of range";
        *milliseconds += (int64_t)n * units[next++].ms;
    } while (text.len > 0);
    return NULL;
}
