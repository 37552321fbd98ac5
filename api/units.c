#include "api/units.h"

#include <stdlib.h>
#include <time.h>

#define DAY_SECONDS INT64_C(86400)
#define EPOCH_WEEKDAY 4 /* 1 January 1970 was a Thursday */
#define MONDAY 1

static const char *const unit_names[] = {"hour", "day", "week", "mweek", "month"};
static const char *const weekday_names[] = {
    "sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"};

static int find_name(const char *const *names, int n, struct bytes text)
{
    for (int i = 0; i < n; i++)
        if (bytes_equal_str(text, names[i]))
            return i;
    return -1;
}

bool unit_find(struct bytes name, enum unit *out)
{
    int i = find_name(unit_names, UNIT_MONTH + 1, name);
    if (i >= 0)
        *out = (enum unit)i;
    return i >= 0;
}

const char *unit_name(enum unit u)
{
    return unit_names[u];
}

bool weekday_find(struct bytes name, int *out)
{
    int i = find_name(weekday_names, 7, name);
    if (i >= 0)
        *out = i;
    return i >= 0;
}

static int64_t modulo(int64_t a, int64_t b)
{
    int64_t r = a % b;
    return r < 0 ? r + b : r;
}

/* Local time written as if it were UTC ("wall"), where every day has 24 hours. */

static int64_t wall_month(int64_t wall, int64_t months)
{
    time_t t = wall;
    struct tm tm;
    gmtime_r(&t, &tm);
    struct tm first = {.tm_year = tm.tm_year, .tm_mon = tm.tm_mon + (int)months, .tm_mday = 1};
    return timegm(&first);
}

static int64_t wall_step(const struct calendar *c, int64_t wall, int64_t n)
{
    if (c->unit == UNIT_MONTH)
        return wall_month(wall, n);
    return wall + n * (c->unit == UNIT_DAY ? DAY_SECONDS : 7 * DAY_SECONDS);
}

static int64_t wall_of(const struct calendar *c, int64_t t)
{
    int64_t wall = t + zone_offset(&c->zone, t);
    int64_t day = wall - modulo(wall, DAY_SECONDS);
    int64_t weekday = modulo(day / DAY_SECONDS + EPOCH_WEEKDAY, 7);
    int first = c->unit == UNIT_MWEEK ? MONDAY : c->week_start;
    if (c->unit == UNIT_MONTH)
        return wall_month(day, 0);
    return c->unit == UNIT_DAY ? day : day - modulo(weekday - first, 7) * DAY_SECONDS;
}

int64_t units_start(const struct calendar *c, int64_t t)
{
    if (c->unit == UNIT_HOUR)
        return t - modulo(t, HOUR_SECONDS);
    return zone_instant(&c->zone, wall_of(c, t));
}

int64_t units_next(const struct calendar *c, int64_t start)
{
    if (c->unit == UNIT_HOUR)
        return start + HOUR_SECONDS;
    int64_t wall = wall_of(c, start), t;
    do {
        wall = wall_step(c, wall, 1);
        t = zone_instant(&c->zone, wall);
    } while (wall_of(c, t) != wall); /* a date that was skipped */
    return t;
}

int64_t units_back(const struct calendar *c, int64_t start, int64_t n)
{
    if (c->unit == UNIT_HOUR)
        return start - n * HOUR_SECONDS;
    return zone_instant(&c->zone, wall_step(c, wall_of(c, start), -n));
}

void units_print_date(const struct calendar *c, int64_t start, struct buf *out)
{
    int64_t offset = zone_offset(&c->zone, start);
    time_t local = start + offset;
    struct tm tm;
    gmtime_r(&local, &tm);
    buf_printf(out, "%04d-%02d-%02d", tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday);
    if (c->unit != UNIT_HOUR)
        return;
    int minutes = (int)(llabs(offset) / 60);
    buf_printf(out, "T%02d:%02d:%02d%c%02d:%02d", tm.tm_hour, tm.tm_min, tm.tm_sec, offset < 0 ? '-' : '+',
        minutes / 60, minutes % 60);
}
