#include "sql/sql_period.h"

#include <time.h>

size_t sql_period_write(enum period_unit unit, int64_t start, char out[SQL_PERIOD_TEXT])
{
    struct tm t;
    time_t seconds = (time_t)start;
    return strftime(
        out, SQL_PERIOD_TEXT, unit > PERIOD_HOUR ? "%Y-%m-%d" : "%Y-%m-%d %H:%M:%S", gmtime_r(&seconds, &t));
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
