#include "api/day_counts.h"

#define FEW_DIGITS 15 /* maximum number of digits of a count; the sum of 24 counts fits 64 bits */

static bool is_hour(const struct day_counts *d, char c)
{
    return c >= d->first && c <= d->last && (c <= '9' || c >= 'a');
}

/* Reads a number of at most FEW_DIGITS digits, perhaps after '-', up to a space or `end`. Returns the position after the number and
 * the space. NULL: the text has another form. */
static const char *read_count(const char *p, const char *end, int64_t *n)
{
    bool is_negative = p < end && *p == '-';
    const char *from = p += is_negative;
    *n = 0;
    while (p < end && (unsigned)(*p - '0') < 10 && p - from < FEW_DIGITS)
        *n = *n * 10 + (*p++ - '0');
    if (p == from || (p < end && (*p != ' ' || p + 1 == end)))
        return NULL;
    *n = is_negative ? -*n : *n;
    return p + (p < end);
}

char day_counts_take(const struct day_counts *d, struct bytes *value, int64_t *sum)
{
    const char *p = value->ptr, *end = p + value->len, *next;
    int64_t n;
    char latest = '\0';
    while ((size_t)(end - p) > d->len + 2 && memcmp(p, d->day, d->len) == 0 && is_hour(d, p[d->len]) &&
           p[d->len + 1] == ':' && (next = read_count(p + d->len + 2, end, &n))) {
        latest = p[d->len];
        *sum += n;
        p = next;
    }
    *value = bytes_of(p, (size_t)(end - p));
    return latest;
}
