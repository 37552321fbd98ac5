#include "sql/sql_period.h"

#include "base/rfc3339.h"

#include <stdlib.h>
#include <time.h>

static const char *const unit_names[] = {"quarter", "hour", "day", "month"}; /* from PERIOD_QUARTER on */
#define UNITS (sizeof unit_names / sizeof *unit_names)

const char *sql_unit_name(enum period_unit unit)
{
    return unit_names[unit - PERIOD_QUARTER];
}

bool sql_unit_read(struct bytes name, enum period_unit *unit)
{
    for (size_t i = 0; i < UNITS; i++)
        if (bytes_equal_str(name, unit_names[i])) {
            *unit = (enum period_unit)(PERIOD_QUARTER + (int)i);
            return true;
        }
    return false;
}

static char *write_digits(char *at, int number, int digits)
{
    for (int i = digits; i-- > 0; number /= 10)
        at[i] = (char)('0' + number % 10);
    return at + digits;
}

size_t sql_period_write(enum period_unit unit, int64_t start, char out[SQL_PERIOD_TEXT])
{
    struct tm t;
    time_t seconds = (time_t)start;
    gmtime_r(&seconds, &t);
    char *at = write_digits(out, t.tm_year + 1900, 4);
    *at++ = '-';
    at = write_digits(at, t.tm_mon + 1, 2);
    *at++ = '-';
    at = write_digits(at, t.tm_mday, 2);
    if (unit <= PERIOD_HOUR) {
        *at++ = ' ';
        at = write_digits(at, t.tm_hour, 2);
        *at++ = ':';
        at = write_digits(at, unit == PERIOD_HOUR ? 0 : t.tm_min, 2);
        memcpy(at, ":00", 3);
        at += 3;
    }
    *at = '\0';
    return (size_t)(at - out);
}

int64_t sql_period_floor(enum period_unit unit, int64_t time)
{
    char period[PERIOD_TEXT_MAX + 1];
    enum period_unit found;
    int64_t start = time;
    period_decode(bytes_of(period, period_encode(unit, time, period)), &found, &start);
    return start;
}

/* Reads `digits` digits after the character `before` as a number from `min` to `max`. Returns -1 if the text at *at has
 * another form; otherwise moves *at after the digits. */
static int take_number(struct bytes text, size_t *at, const char *before, int digits, int min, int max)
{
    size_t n = strlen(before) + (size_t)digits;
    if (text.len - *at < n || memcmp(text.ptr + *at, before, strlen(before)) != 0)
        return -1;
    int number = rfc3339_digits(text.ptr + *at + strlen(before), digits);
    if (number < min || number > max)
        return -1;
    *at += n;
    return number;
}

static int64_t seconds_of(int year, int month, int day, int hour)
{
    struct tm t = {.tm_year = year - 1900, .tm_mon = month - 1, .tm_mday = day, .tm_hour = hour};
    return (int64_t)timegm(&t);
}

/* Only the leading parts of `text` that are those of a date count. The span is that of the smallest such part, because
 * the rest may sort before or after every text of a period inside this span. */
bool sql_period_span(struct bytes text, int64_t *from, int64_t *end)
{
    size_t at = 0;
    int year = take_number(text, &at, "", 4, 2000, 2159), month = -1, day = -1, hour = -1;
    if (year < 0)
        return false;
    month = take_number(text, &at, "-", 2, 1, 12);
    if (month > 0) {
        int days =
            (int)((seconds_of(year, month + 1, 1, 0) - seconds_of(year, month, 1, 0)) / SECONDS_PER_DAY);
        day = take_number(text, &at, "-", 2, 1, days);
    }
    if (day > 0)
        hour = take_number(text, &at, " ", 2, 0, 23);
    *from = seconds_of(year, month > 0 ? month : 1, day > 0 ? day : 1, hour > 0 ? hour : 0);
    *end = hour >= 0   ? *from + 3600
           : day > 0   ? *from + SECONDS_PER_DAY
           : month > 0 ? seconds_of(year, month + 1, 1, 0)
                       : seconds_of(year + 1, 1, 1, 0);
    return true;
}
