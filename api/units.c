#include "api/units.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

#define ZONE_DIRECTORY "/usr/share/zoneinfo"
#define DAY_SECONDS INT64_C(86400)
#define EPOCH_WEEKDAY 4 /* 1 January 1970 was a Thursday */
#define MONDAY 1

static const char *const unit_names[] = {"hour", "day", "week", "mweek", "month"};
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

/* The tables of all zones that were asked for. */
static struct loaded {
    char name[ZONE_NAME_MAX + 1];
    struct zone_table table;
    struct loaded *next;
} * loaded;

static bool load(const char *path, struct zone_table *out)
{
    struct stat st;
    FILE *f = stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size <= (off_t)ZONE_FILE_MAX
                  ? fopen(path, "re")
                  : NULL;
    if (!f)
        return false;
    char *text = mem_alloc(ZONE_FILE_MAX);
    size_t n = fread(text, 1, ZONE_FILE_MAX, f);
    fclose(f);
    bool ok = zone_file_parse(bytes_of(text, n), out);
    free(text);
    return ok;
}

/* Returns NULL if there is no such zone. */
static const struct zone_table *find_table(struct bytes name)
{
    char path[sizeof ZONE_DIRECTORY + 1 + ZONE_NAME_MAX];
    struct zone_table table;
    for (const struct loaded *l = loaded; l; l = l->next)
        if (bytes_equal_str(name, l->name))
            return &l->table;
    snprintf(path, sizeof path, ZONE_DIRECTORY "/%.*s", (int)name.len, name.ptr);
    if (!load(path, &table))
        return NULL;
    struct loaded *l = mem_zalloc(sizeof *l);
    memcpy(l->name, name.ptr, name.len);
    l->table = table;
    l->next = loaded;
    loaded = l;
    return &l->table;
}

bool zone_find(struct bytes name, struct zone *out)
{
    if (!is_zone_name(name))
        return false;
    bool is_utc = bytes_equal_str(name, "UTC");
    const struct zone_table *table = is_utc ? NULL : find_table(name);
    if (!is_utc && !table)
        return false;
    *out = (struct zone){.fixed = is_utc, .table = table};
    memcpy(out->name, name.ptr, name.len);
    return true;
}

void zone_fixed(int hours, struct zone *out)
{
    assert(hours >= ZONE_OFFSET_FIRST && hours <= ZONE_OFFSET_LAST);
    *out = (struct zone){.fixed = true, .offset = hours * INT64_C(3600)};
    snprintf(out->name, sizeof out->name, "%c%02d:00", hours < 0 ? '-' : '+', abs(hours));
}

int64_t zone_offset(const struct zone *z, int64_t utc)
{
    return z->fixed ? z->offset : zone_table_offset(z->table, utc);
}

/* The UTC time at which local clocks show `wall` (local time as seconds, as if it were UTC). If clocks show `wall`
 * twice, the result is the first time. If clocks skip `wall`, the result is after the jump, by as much as `wall` is
 * after the start of the skipped span.
 *
 * The two probes enclose any change of offset within a day of `wall`; no zone changes twice in that time. The earlier offset gives the
 * earlier candidate, so it comes first. If neither candidate shows `wall`, the zone skips it. */
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
    if (c->unit == UNIT_DAY)
        return day;
    int64_t weekday = modulo(day / DAY_SECONDS + EPOCH_WEEKDAY, 7);
    int first = c->unit == UNIT_MWEEK ? MONDAY : c->week_start;
    if (c->unit == UNIT_MONTH)
        return wall_month(day, 0);
    return day - modulo(weekday - first, 7) * DAY_SECONDS;
}

int64_t units_order(const struct calendar *c, int64_t t)
{
    return c->unit == UNIT_HOUR ? t - modulo(t, HOUR_SECONDS) : wall_of(c, t);
}

int64_t units_start(const struct calendar *c, int64_t t)
{
    int64_t order = units_order(c, t);
    return c->unit == UNIT_HOUR ? order : zone_instant(&c->zone, order);
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

/* Appends a number of that many digits, with leading zeros. */
static void print_number(struct buf *out, int n, size_t digits)
{
    buf_reserve(out, digits);
    for (size_t i = digits; i-- > 0; n /= 10)
        out->ptr[out->len + i] = (char)('0' + n % 10);
    out->len += digits;
}

void units_print_date(const struct calendar *c, int64_t start, struct buf *out)
{
    int64_t offset = zone_offset(&c->zone, start);
    time_t local = start + offset;
    struct tm tm;
    gmtime_r(&local, &tm);
    print_number(out, tm.tm_year + 1900, 4);
    buf_append_char(out, '-');
    print_number(out, tm.tm_mon + 1, 2);
    buf_append_char(out, '-');
    print_number(out, tm.tm_mday, 2);
    if (c->unit != UNIT_HOUR)
        return;
    int minutes = (int)(llabs(offset) / 60);
    buf_printf(out, "T%02d:%02d:%02d%c%02d:%02d", tm.tm_hour, tm.tm_min, tm.tm_sec, offset < 0 ? '-' : '+',
        minutes / 60, minutes % 60);
}
