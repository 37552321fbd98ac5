#include "base/rfc3339.h"

#include <time.h>

int rfc3339_digits(const char *at, int n)
{
    int value = 0;
    for (int i = 0; i < n; i++) {
        if (at[i] < '0' || at[i] > '9')
            return -1;
        value = value * 10 + at[i] - '0';
    }
    return value;
}

/* Reads the zone offset that ends an RFC 3339 time, in seconds. False if it is malformed. */
static bool read_zone(struct bytes zone, int *seconds)
{
    *seconds = 0;
    if (zone.len == 1)
        return zone.ptr[0] == 'Z' || zone.ptr[0] == 'z';
    if (zone.len != 6 || (zone.ptr[0] != '+' && zone.ptr[0] != '-') || zone.ptr[3] != ':')
        return false;
    int hours = rfc3339_digits(zone.ptr + 1, 2), minutes = rfc3339_digits(zone.ptr + 4, 2);
    *seconds = (hours * 60 + minutes) * 60 * (zone.ptr[0] == '-' ? -1 : 1);
    return hours >= 0 && hours < 24 && minutes >= 0 && minutes < 60;
}

bool rfc3339_read(struct bytes text, int64_t *out)
{
    static const char form[] = "0000-00-00T00:00:00";
    size_t n = sizeof form - 1;
    int zone;
    if (text.len <= n)
        return false;
    for (size_t i = 0; i < n; i++)
        if (form[i] != '0' && text.ptr[i] != form[i] &&
            !(form[i] == 'T' && (text.ptr[i] == 't' || text.ptr[i] == ' ')))
            return false;
    struct tm t = {.tm_year = rfc3339_digits(text.ptr, 4) - 1900,
        .tm_mon = rfc3339_digits(text.ptr + 5, 2) - 1,
        .tm_mday = rfc3339_digits(text.ptr + 8, 2),
        .tm_hour = rfc3339_digits(text.ptr + 11, 2),
        .tm_min = rfc3339_digits(text.ptr + 14, 2),
        .tm_sec = rfc3339_digits(text.ptr + 17, 2)};
    if (text.ptr[n] == '.')
        for (n++; n < text.len && text.ptr[n] >= '0' && text.ptr[n] <= '9';)
            n++;
    bool has_fraction = text.ptr[n - 1] != '.';
    if (!has_fraction || !read_zone(bytes_of(text.ptr + n, text.len - n), &zone) || t.tm_year < 0 ||
        t.tm_hour < 0 || t.tm_hour > 23 || t.tm_min < 0 || t.tm_min > 59 || t.tm_sec < 0 || t.tm_sec > 60)
        return false;
    t.tm_sec -= t.tm_sec == 60;
    struct tm normal = t;
    *out = timegm(&normal) - zone;
    return normal.tm_mon == t.tm_mon && normal.tm_mday == t.tm_mday;
}

const char *rfc3339_write(int64_t seconds, char out[RFC3339_TEXT])
{
    struct tm tm;
    time_t t = (time_t)seconds;
    if (!gmtime_r(&t, &tm) || strftime(out, RFC3339_TEXT, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0)
        strcpy(out, "-");
    return out;
}
