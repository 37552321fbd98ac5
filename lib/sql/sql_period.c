#include "sql/sql_period.h"

#include <time.h>

/* Every row of a scan may need a text, and strftime is slow. */
size_t sql_period_write(enum period_unit unit, int64_t start, char out[SQL_PERIOD_TEXT])
{
    static const char after[] = {'\0', '-', '-', ' ', ':', ':', '\0'};
    struct tm t;
    time_t seconds = (time_t)start;
    gmtime_r(&seconds, &t);
    const int year = t.tm_year + 1900;
    const int pairs[] = {year / 100, year % 100, t.tm_mon + 1, t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec};
    size_t n = 0, last = unit > PERIOD_HOUR ? 3 : 6; /* the day or the second */
    for (size_t i = 0; i <= last; i++) {
        out[n++] = (char)('0' + pairs[i] / 10);
        out[n++] = (char)('0' + pairs[i] % 10);
        if (after[i] && i < last)
            out[n++] = after[i];
    }
    out[n] = '\0';
    return n;
}

int64_t sql_period_floor(enum period_unit unit, int64_t time)
{
    char period[PERIOD_TEXT_MAX + 1];
    enum period_unit found;
    int64_t start = time;
    period_decode(bytes_of(period, period_encode(unit, time, period)), &found, &start);
    return start;
}

int64_t sql_period_search(struct bytes text)
{
    char period[SQL_PERIOD_TEXT];
    int64_t low = HOUR_FIRST / SECONDS_PER_QUARTER, high = HOUR_END / SECONDS_PER_QUARTER;
    while (low < high) {
        int64_t middle = (low + high) / 2;
        size_t n = sql_period_write(PERIOD_QUARTER, middle * SECONDS_PER_QUARTER, period);
        if (bytes_compare(bytes_of(period, n), text) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low * SECONDS_PER_QUARTER;
}
