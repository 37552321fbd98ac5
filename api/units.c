#include "api/units.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

#define DAY_SECONDS INT64_C(86400)
#define FAR                                                                                                  \
    (2 * DAY_SECONDS)   /* distance from an offset change beyond which units_next may ignore the change */
#define EPOCH_WEEKDAY 4 /* 1 January 1970 was a Thursday */
#define MONDAY 1
#define DATE_MAX 32

static const char *const unit_names[] = {"minute", "15m", "hour", "day", "week", "mweek", "month"};
static const char *const weekday_names[] = {
    "sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"};

static bool is_zone_name(struct bytes name)
{
    if (name.len == 0 || name.len > ZONE_NAME_MAX || name.ptr[0] == '/')
        return false;
    for (size_t i = 0; i < name.len; i++) {
        char c = name.ptr[i];
        if (c == '/' ? i + 1 == name.len || name.ptr[i + 1] == '/'
                     : !isalnum((unsigned char)c) && !strchr("_+-", c))
            return false;
        if (c == '\0')
            return false;
    }
    return !bytes_starts_with(name, BYTES_LITERAL("right/")); /* the zones in right/ count leap seconds */
}

/* Tables of all zones that were requested. */
static struct loaded {
    char name[ZONE_NAME_MAX + 1];
    struct zone_table *table;
    struct loaded *next;
} * loaded;

/* Returns the table of a zone, or NULL if the zone does not exist. Only names of existing files are loaded, because
 * libcctz keeps each name. */
static struct zone_table *find_table(struct bytes name)
{
    char path[sizeof ZONE_DIRECTORY + 1 + ZONE_NAME_MAX];
    struct stat st;
    for (struct loaded *l = loaded; l; l = l->next)
        if (bytes_equal_str(name, l->name))
            return l->table;
    snprintf(path, sizeof path, ZONE_DIRECTORY "/%.*s", (int)name.len, name.ptr);
    struct zone_table *table = stat(path, &st) == 0 && S_ISREG(st.st_mode) ? zone_table_load(path) : NULL;
    if (!table)
        return NULL;
    struct loaded *l = mem_zalloc(sizeof *l);
    memcpy(l->name, name.ptr, name.len);
    l->table = table;
    l->next = loaded;
    loaded = l;
    return table;
}

bool zone_find(struct bytes name, struct zone *out)
{
    if (!is_zone_name(name))
        return false;
    bool is_utc = bytes_equal_str(name, "UTC");
    struct zone_table *table = is_utc ? NULL : find_table(name);
    if (!is_utc && !table)
        return false;
    *out = (struct zone){.fixed = is_utc, .table = table};
    memcpy(out->name, name.ptr, name.len);
    return true;
}

void zone_fixed(int hours, struct zone *out)
{
    assert(hours >= ZONE_OFFSET_FIRST && hours <= ZONE_OFFSET_LAST);
    *out = (struct zone){.fixed = true, .offset = hours * 3600};
    snprintf(out->name, sizeof out->name, "%c%02d:00", hours < 0 ? '-' : '+', abs(hours));
}

struct zone_span zone_span_at(const struct zone *z, int64_t utc)
{
    return z->fixed ? (struct zone_span){INT64_MIN, INT64_MAX, z->offset} : zone_table_span(z->table, utc);
}

int64_t zone_offset(const struct zone *z, int64_t utc)
{
    return zone_span_at(z, utc).offset;
}

/* Returns the UTC time at which local clocks show `wall`: local time in seconds, as if local time were UTC. If clocks
 * show `wall` twice, the result is the first time. If clocks skip `wall`, the result is after the jump, as far as
 * `wall` is after the start of the skipped span.
 *
 * The two probes enclose any offset change within a day of `wall`. No zone changes twice in this time. If neither of
 * the two candidates shows `wall`, the zone skips `wall`. */
static int64_t zone_instant(const struct zone *z, int64_t wall)
{
    int64_t before = zone_offset(z, wall - DAY_SECONDS);
    int64_t after = zone_offset(z, wall + DAY_SECONDS);
    if (zone_offset(z, wall - before) == before)
        return wall - before;
    if (zone_offset(z, wall - after) == after)
        return wall - after;
    return wall - before;
}

static int find_name(const char *const *names, int n, struct bytes text)
{
    for (int i = 0; i < n; i++)
        if (bytes_equal_str(text, names[i]))
            return i;
    return -1;
}

bool unit_find(struct bytes name, enum unit *out)
{
    int i = bytes_equal_str(name, "quarter") ? UNIT_QUARTER : find_name(unit_names, UNIT_MONTH + 1, name);
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

/* In the following functions, `wall` is local time as if local time were UTC. Every day of `wall` has 24 hours. */

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

/* Returns the start of the unit that contains `wall`. */
static int64_t wall_start(const struct calendar *c, int64_t wall)
{
    int64_t day = wall - modulo(wall, DAY_SECONDS);
    if (c->unit == UNIT_DAY)
        return day;
    int64_t weekday = modulo(day / DAY_SECONDS + EPOCH_WEEKDAY, 7);
    int first = c->unit == UNIT_MWEEK ? MONDAY : c->week_start;
    if (c->unit == UNIT_MONTH)
        return wall_month(day, 0);
    return day - modulo(weekday - first, 7) * DAY_SECONDS;
}

static int64_t wall_of(const struct calendar *c, int64_t t)
{
    return wall_start(c, t + zone_offset(&c->zone, t));
}

static bool is_of_clock(const struct calendar *c)
{
    return c->unit <= UNIT_HOUR;
}

static int64_t clock_seconds(const struct calendar *c)
{
    static const int64_t seconds[] = {MINUTE_SECONDS, QUARTER_SECONDS, HOUR_SECONDS};
    return seconds[c->unit];
}

/* Returns the start of the hour, quarter hour or minute that clocks show at `t`, and sets its end. If the offset changes within
 * it, it starts or ends at the change. */
static int64_t clock_span(const struct calendar *c, int64_t t, int64_t *to)
{
    struct zone_span zone = zone_span_at(&c->zone, t);
    int64_t start = t - modulo(t + zone.offset, clock_seconds(c)), end = start + clock_seconds(c);
    *to = end < zone.to ? end : zone.to;
    return start > zone.from ? start : zone.from;
}

int64_t units_order(const struct calendar *c, int64_t t)
{
    int64_t to;
    return is_of_clock(c) ? clock_span(c, t, &to) : wall_of(c, t);
}

int64_t units_span(const struct calendar *c, int64_t t, int64_t *from, int64_t *to)
{
    if (is_of_clock(c)) {
        *from = clock_span(c, t, to);
        return *from;
    }
    struct zone_span zone = zone_span_at(&c->zone, t);
    int64_t wall = wall_start(c, t + zone.offset);
    int64_t first = wall - zone.offset, end = wall_step(c, wall, 1) - zone.offset;
    *from = first > zone.from ? first : zone.from;
    *to = end < zone.to ? end : zone.to;
    return wall;
}

int64_t units_start(const struct calendar *c, int64_t t)
{
    int64_t order = units_order(c, t);
    return is_of_clock(c) ? order : zone_instant(&c->zone, order);
}

int64_t units_next(const struct calendar *c, int64_t start)
{
    int64_t end;
    if (is_of_clock(c))
        return clock_span(c, start, &end), end;
    struct zone_span zone = zone_span_at(&c->zone, start);
    int64_t next = wall_step(c, start + zone.offset, 1) - zone.offset;
    if (c->unit != UNIT_MONTH && zone.from <= start - FAR && zone.to > next + FAR)
        return next;
    int64_t wall = wall_of(c, start), t;
    do {
        wall = wall_step(c, wall, 1);
        t = zone_instant(&c->zone, wall);
    } while (wall_of(c, t) != wall); /* the zone skips this date */
    return t;
}

int64_t units_back(const struct calendar *c, int64_t start, int64_t n)
{
    if (is_of_clock(c))
        return units_start(c, start - n * clock_seconds(c));
    return zone_instant(&c->zone, wall_step(c, wall_of(c, start), -n));
}

struct date {
    int year, month, day;
};

/* `day` is the number of days since 1970. The computation uses years that begin in March, so that 29 February is
 * the last day of a year. 400 years have 146,097 days. */
static struct date date_of(int day)
{
    unsigned days = (unsigned)(day + 719468), era = days / 146097; /* days since 1 March of the year 0 */
    days %= 146097;
    unsigned year = (days - days / 1460 + days / 36524 - days / 146096) / 365;
    days -= 365 * year + year / 4 - year / 100;
    unsigned month = (5 * days + 2) / 153; /* 0 is March */
    bool is_next = month >= 10;
    return (struct date){.year = (int)(year + era * 400 + is_next),
        .month = (int)(is_next ? month - 9 : month + 3),
        .day = (int)(days - (153 * month + 2) / 5 + 1)};
}

static char *print_two(char *p, int n, char after)
{
    p[0] = (char)('0' + n / 10);
    p[1] = (char)('0' + n % 10);
    p[2] = after;
    return p + 3;
}

void units_print_date(const struct calendar *c, int64_t start, struct buf *out)
{
    int offset = (int)zone_offset(&c->zone, start);
    int64_t wall = start + offset;
    int second = (int)modulo(wall, DAY_SECONDS);
    struct date d = date_of((int)((wall - second) / DAY_SECONDS));
    buf_reserve(out, DATE_MAX);
    char *p = print_two(out->ptr + out->len, d.year / 100, '0') - 1;
    p = print_two(p, d.year % 100, '-');
    p = print_two(p, d.month, '-');
    p = print_two(p, d.day, 'T');
    if (is_of_clock(c)) {
        int minutes = abs(offset) / 60;
        p = print_two(p, second / 3600, ':');
        p = print_two(p, second / 60 % 60, ':');
        p = print_two(p, second % 60, offset < 0 ? '-' : '+');
        p = print_two(p, minutes / 60, ':');
        p = print_two(p, minutes % 60, '\0');
    }
    out->len = (size_t)(p - 1 - out->ptr);
}
