#include "api/zone_file.h"

#include <stdlib.h>
#include <time.h>

#define HEADER 44
#define TYPE 6 /* bytes of a type: offset, is_dst, designation */
#define OFFSET_MAX 93600
#define DAY_SECONDS INT64_C(86400)
#define HOUR 3600
#define FIRST_YEAR 1968
#define LAST_YEAR 2161
#define WEEK_LAST 5

static uint32_t read_u32(const char *at)
{
    const unsigned char *b = (const unsigned char *)at;
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

static int64_t read_i64(const char *at)
{
    return (int64_t)((uint64_t)read_u32(at) << 32 | read_u32(at + 4));
}

/* Adds a change. Drops what changes nothing, and keeps only the offset of times before the table. */
static bool add_change(struct zone_table *t, int64_t at, int32_t offset)
{
    struct zone_change *last = t->n > 0 ? &t->changes[t->n - 1] : NULL;
    if (last && at < last->at)
        return false;
    if (last && at == last->at)
        t->n--;
    int32_t before = t->n > 0 ? t->changes[t->n - 1].offset : t->first;
    if (offset == before || at >= ZONE_TABLE_END)
        return true;
    if (at < ZONE_TABLE_FIRST) {
        t->first = offset;
        return true;
    }
    *ARRAY_ADD(t->changes, t->n, t->room) = (struct zone_change){at, offset};
    return true;
}

struct header {
    uint32_t leaps, times, types;
    size_t length; /* of the data that follows */
};

static bool read_header(struct bytes file, size_t time_size, struct header *out)
{
    if (file.len < HEADER || memcmp(file.ptr, "TZif", 4) != 0 || file.ptr[4] < '2')
        return false;
    uint32_t counts[6]; /* isut, isstd, leap, time, type, char */
    for (size_t i = 0; i < 6; i++) {
        counts[i] = read_u32(file.ptr + 20 + 4 * i);
        if (counts[i] > ZONE_FILE_MAX)
            return false;
    }
    *out = (struct header){.leaps = counts[2], .times = counts[3], .types = counts[4]};
    out->length = out->times * (time_size + 1) + out->types * (size_t)TYPE + counts[5] +
                  out->leaps * (time_size + 4) + counts[1] + counts[0];
    return file.len - HEADER >= out->length;
}

/* The dates of a rule, such as M3.2.0/2, J60 or 59/26. */
struct rule_date {
    char kind; /* 'M', 'J' or '0' */
    int month, week, day;
    int64_t time;
};

static bool take_number(struct bytes *text, int most, int *out)
{
    size_t n = 0;
    for (*out = 0; n < text->len && text->ptr[n] >= '0' && text->ptr[n] <= '9' && *out <= most; n++)
        *out = *out * 10 + (text->ptr[n] - '0');
    *text = bytes_of(text->ptr + n, text->len - n);
    return n > 0 && *out <= most;
}

static bool take(struct bytes *text, char c)
{
    if (text->len == 0 || *text->ptr != c)
        return false;
    *text = bytes_of(text->ptr + 1, text->len - 1);
    return true;
}

/* [+-]hh[:mm[:ss]] */
static bool take_time(struct bytes *text, int most_hours, int64_t *out)
{
    int hours, minutes = 0, seconds = 0;
    *out = 0;
    bool is_negative = take(text, '-');
    if (!is_negative)
        take(text, '+');
    bool ok = take_number(text, most_hours, &hours) &&
              (!take(text, ':') || take_number(text, 59, &minutes)) &&
              (!take(text, ':') || take_number(text, 59, &seconds));
    if (!ok)
        return false;
    int64_t time = (int64_t)hours * HOUR + minutes * 60 + seconds;
    *out = is_negative ? -time : time;
    return true;
}

/* Letters, or anything in angle brackets. */
static bool take_designation(struct bytes *text)
{
    size_t n = 0;
    bool quoted = take(text, '<');
    while (n < text->len &&
           (quoted ? text->ptr[n] != '>' : ((text->ptr[n] | 32) >= 'a' && (text->ptr[n] | 32) <= 'z')))
        n++;
    *text = bytes_of(text->ptr + n, text->len - n);
    return n > 0 && (!quoted || take(text, '>'));
}

/* An offset from UTC. POSIX counts westwards. */
static bool take_offset(struct bytes *text, int64_t *out)
{
    bool ok = take_time(text, 24, out);
    *out = -*out;
    return ok;
}

static bool take_date(struct bytes *text, struct rule_date *out)
{
    *out = (struct rule_date){.kind = '0', .time = 2 * HOUR};
    bool ok;
    if (take(text, 'M')) {
        out->kind = 'M';
        ok = take_number(text, 12, &out->month) && out->month > 0 && take(text, '.') &&
             take_number(text, WEEK_LAST, &out->week) && out->week > 0 && take(text, '.') &&
             take_number(text, 6, &out->day);
    } else if (take(text, 'J')) {
        out->kind = 'J';
        ok = take_number(text, 365, &out->day) && out->day > 0;
    } else {
        ok = take_number(text, 365, &out->day);
    }
    return ok && (!take(text, '/') || take_time(text, 167, &out->time));
}

static int64_t day_of(int year, int month, int day)
{
    struct tm t = {.tm_year = year - 1900, .tm_mon = month - 1, .tm_mday = day};
    return timegm(&t) / DAY_SECONDS;
}

static bool is_leap_year(int year)
{
    return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
}

/* Local time as seconds, as if it were UTC. */
static int64_t date_in(const struct rule_date *d, int year)
{
    int64_t day;
    if (d->kind == 'M') {
        int64_t first = day_of(year, d->month, 1), end = day_of(year, d->month + 1, 1);
        day = first + (d->day - (first + 4) % 7 + 7) % 7 +
              (int64_t)(d->week - 1) * 7; /* 1 January 1970 was a Thursday */
        while (day >= end)
            day -= 7;
    } else {
        bool skips_leap_day = d->kind == 'J' && is_leap_year(year) && d->day >= 60;
        day = day_of(year, 1, 1) + d->day - (d->kind == 'J') + skips_leap_day;
    }
    return day * DAY_SECONDS + d->time;
}

/* Adds the changes of the rule after `after`. */
static bool add_rule(struct zone_table *t, struct bytes rule, int64_t after)
{
    int64_t standard = 0, summer;
    struct rule_date begin, end;
    if (!take_designation(&rule) || !take_offset(&rule, &standard))
        return false;
    if (rule.len == 0)
        return add_change(t, after, (int32_t)standard);
    summer = standard + HOUR;
    if (!take_designation(&rule) || (rule.len > 0 && *rule.ptr != ',' && !take_offset(&rule, &summer)) ||
        !take(&rule, ',') || !take_date(&rule, &begin) || !take(&rule, ',') || !take_date(&rule, &end) ||
        rule.len > 0)
        return false;
    for (int year = FIRST_YEAR; year <= LAST_YEAR; year++) {
        struct zone_change changes[2] = {{date_in(&begin, year) - standard, (int32_t)summer},
            {date_in(&end, year) - summer, (int32_t)standard}};
        size_t first = changes[1].at < changes[0].at;
        for (size_t i = 0; i < 2; i++) {
            const struct zone_change *c = &changes[first ^ i];
            if (c->at > after && !add_change(t, c->at, c->offset))
                return false;
        }
    }
    return true;
}

bool zone_file_parse(struct bytes file, struct zone_table *out)
{
    struct header h;
    *out = (struct zone_table){0};
    if (!read_header(file, 4, &h))
        return false;
    file = bytes_of(file.ptr + HEADER + h.length, file.len - HEADER - h.length);
    if (!read_header(file, 8, &h) || h.types == 0 || h.leaps > 0)
        return false;
    const char *times = file.ptr + HEADER, *indexes = times + 8 * (size_t)h.times, *types = indexes + h.times;
    bool ok = true;
    for (size_t i = 0; i < h.types; i++) {
        int32_t offset = (int32_t)read_u32(types + i * TYPE);
        ok = ok && offset >= -OFFSET_MAX && offset <= OFFSET_MAX;
    }
    out->first = (int32_t)read_u32(types);
    for (size_t i = 0; ok && i < h.times; i++) {
        size_t type = (unsigned char)indexes[i];
        ok = type < h.types &&
             add_change(out, read_i64(times + 8 * i), (int32_t)read_u32(types + type * TYPE));
    }
    struct bytes footer = bytes_of(file.ptr + HEADER + h.length, file.len - HEADER - h.length);
    ok = ok && take(&footer, '\n') && footer.len > 0 && footer.ptr[footer.len - 1] == '\n';
    if (ok && footer.len > 1)
        ok = add_rule(out, bytes_of(footer.ptr, footer.len - 1),
            h.times > 0 ? read_i64(times + 8 * (size_t)(h.times - 1)) : INT64_MIN);
    if (!ok) {
        free(out->changes);
        *out = (struct zone_table){0};
    }
    return ok;
}

static struct zone_span span_after(const struct zone_table *t, size_t n)
{
    return (struct zone_span){.from = n > 0 ? t->changes[n - 1].at : INT64_MIN,
        .to = n < t->n ? t->changes[n].at : INT64_MAX,
        .offset = n > 0 ? t->changes[n - 1].offset : t->first};
}

struct zone_span zone_table_span(struct zone_table *t, int64_t utc)
{
    struct zone_span latest = span_after(t, t->latest);
    size_t low = 0, high = t->n; /* the number of changes up to `utc` */
    if (utc >= latest.from && utc < latest.to)
        return latest;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (t->changes[middle].at <= utc)
            low = middle + 1;
        else
            high = middle;
    }
    t->latest = low;
    return span_after(t, low);
}
