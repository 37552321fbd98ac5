#include "api/period.h"

#include "base/rfc3339.h"
#include <stdio.h>
#include <time.h>

#define COUNT_MAX 100000 /* maximum number of units in a relative period */
#define MONTHS 12
#define DATE_FORM "0000-00-00"
#define TIME_FORM DATE_FORM "T00:00:00"

/* Weeks begin on Monday if the calendar's unit is an mweek. */
static struct calendar calendar_of(const struct calendar *c, enum unit unit)
{
    struct calendar copy = *c;
    copy.unit = unit == UNIT_WEEK && c->unit == UNIT_MWEEK ? UNIT_MWEEK : unit;
    return copy;
}

static bool date_start(const struct calendar *c, int year, int month, int day, int64_t *out)
{
    struct calendar days = calendar_of(c, UNIT_DAY);
    struct tm t = {.tm_year = year - 1900, .tm_mon = month - 1, .tm_mday = day, .tm_hour = 12};
    struct buf printed = {0};
    char text[32];
    if (year < 1970 || month < 1 || month > MONTHS || day < 1)
        return false;
    int64_t noon = timegm(&t);
    noon -= zone_offset(&c->zone, noon);
    *out = units_start(&days, noon);
    snprintf(text, sizeof text, "%04d-%02d-%02d", year, month, day);
    units_print_date(&days, *out, &printed);
    bool exists = bytes_equal_str(buf_bytes(&printed), text);
    buf_free(&printed);
    return exists;
}

/* True if the text begins with the form. In a form, 0 stands for any digit, T for T, t or a space, and + for + or
 * -. */
static bool begins_as(struct bytes text, const char *form)
{
    size_t n = strlen(form);
    for (size_t i = 0; i < n && i < text.len; i++) {
        char c = text.ptr[i];
        bool fits = form[i] == '0'   ? c >= '0' && c <= '9'
                    : form[i] == 'T' ? c == 'T' || c == 't' || c == ' '
                    : form[i] == '+' ? c == '+' || c == '-'
                                     : c == form[i];
        if (!fits)
            return false;
    }
    return text.len >= n;
}

static bool is_as(struct bytes text, const char *form)
{
    return text.len == strlen(form) && begins_as(text, form);
}

bool period_is_date(struct bytes text)
{
    return is_as(text, "0000") || is_as(text, "0000-00") || is_as(text, DATE_FORM);
}

bool period_time_is_date(struct bytes text)
{
    size_t n = sizeof TIME_FORM - 1;
    if (!begins_as(text, TIME_FORM))
        return is_as(text, DATE_FORM);
    if (begins_as(bytes_of(text.ptr + n, text.len - n), ".0"))
        for (n++; n < text.len && text.ptr[n] >= '0' && text.ptr[n] <= '9';)
            n++;
    struct bytes zone = bytes_of(text.ptr + n, text.len - n);
    return is_as(zone, "Z") || is_as(zone, "z") || is_as(zone, "+00:00");
}

/* Reads YYYY, YYYY-MM or YYYY-MM-DD. Sets absent parts to 0. */
static bool read_date(struct bytes text, int *year, int *month, int *day)
{
    bool has_month = text.len > 4, has_day = text.len > 7;
    if (!period_is_date(text))
        return false;
    *year = rfc3339_digits(text.ptr, 4);
    *month = has_month ? rfc3339_digits(text.ptr + 5, 2) : 0;
    *day = has_day ? rfc3339_digits(text.ptr + 8, 2) : 0;
    return *year >= 1970 && *month <= MONTHS && (!has_month || *month > 0) && (!has_day || *day > 0);
}

bool period_time(const struct calendar *c, struct bytes text, int64_t *out)
{
    int year, month, day;
    if (bytes_to_i64(text, out))
        return true;
    if (text.len == 10 && read_date(text, &year, &month, &day))
        return date_start(c, year, month, day, out);
    return rfc3339_read(text, out);
}

static bool calendar_period(const struct calendar *c, struct bytes text, struct period *out)
{
    struct calendar days = calendar_of(c, UNIT_DAY);
    int year, month, day;
    if (!read_date(text, &year, &month, &day))
        return false;
    if (day > 0) {
        bool exists = date_start(c, year, month, day, &out->from);
        *out = (struct period){out->from, exists ? units_next(&days, out->from) : 0, UNIT_DAY, 1};
        return exists;
    }
    bool is_year = month == 0, is_december = month == MONTHS;
    out->unit = UNIT_MONTH;
    out->n = is_year ? MONTHS : 1;
    return date_start(c, year, is_year ? 1 : month, 1, &out->from) &&
           date_start(
               c, year + (is_year || is_december), is_year || is_december ? 1 : month + 1, 1, &out->to);
}

static bool relative_period(const struct calendar *c, struct bytes text, int64_t now, struct period *out)
{
    static const struct {
        const char *suffix;
        enum unit unit;
    } suffixes[] = {{"h", UNIT_HOUR}, {"d", UNIT_DAY}, {"w", UNIT_WEEK}, {"mo", UNIT_MONTH}};
    uint64_t n;
    size_t digits = 0;
    if (text.len > 0 && *text.ptr == '-')
        text = bytes_of(text.ptr + 1, text.len - 1);
    while (digits < text.len && text.ptr[digits] >= '0' && text.ptr[digits] <= '9')
        digits++;
    if (!bytes_to_u64(bytes_of(text.ptr, digits), &n) || n == 0 || n > COUNT_MAX)
        return false;
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        if (!bytes_equal_str(bytes_of(text.ptr + digits, text.len - digits), suffixes[i].suffix))
            continue;
        struct calendar units = calendar_of(c, suffixes[i].unit);
        int64_t last = units_start(&units, now);
        *out = (struct period){
            units_back(&units, last, (int64_t)n - 1), units_next(&units, last), units.unit, (int64_t)n};
        return true;
    }
    return false;
}

static bool word_period(const struct calendar *c, struct bytes text, int64_t now, struct period *out)
{
    static const struct {
        const char *word;
        enum unit unit;
        bool is_last;
    } words[] = {{"today", UNIT_DAY, false}, {"yesterday", UNIT_DAY, true}, {"this-week", UNIT_WEEK, false},
        {"last-week", UNIT_WEEK, true}, {"this-month", UNIT_MONTH, false}, {"last-month", UNIT_MONTH, true}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (!bytes_equal_str(text, words[i].word))
            continue;
        struct calendar units = calendar_of(c, words[i].unit);
        int64_t start = units_start(&units, now);
        *out = (struct period){words[i].is_last ? units_back(&units, start, 1) : start,
            words[i].is_last ? start : units_next(&units, start), units.unit, 1};
        return true;
    }
    bool is_last = bytes_equal_str(text, "last-year");
    if (!is_last && !bytes_equal_str(text, "this-year"))
        return false;
    struct buf date = {0};
    struct calendar days = calendar_of(c, UNIT_DAY);
    units_print_date(&days, units_start(&days, now), &date);
    int year = rfc3339_digits(date.ptr, 4) - is_last;
    buf_free(&date);
    out->unit = UNIT_MONTH;
    out->n = MONTHS;
    return date_start(c, year, 1, 1, &out->from) && date_start(c, year + 1, 1, 1, &out->to);
}

bool period_named(const struct calendar *c, struct bytes text, int64_t now, struct period *out)
{
    return word_period(c, text, now, out) || calendar_period(c, text, out) ||
           relative_period(c, text, now, out);
}

int64_t period_before(const struct calendar *c, const struct period *p)
{
    struct calendar units = calendar_of(c, p->unit);
    return units_back(&units, p->from, p->n);
}

int64_t period_year_before(const struct calendar *c, int64_t t)
{
    time_t local = t + zone_offset(&c->zone, t);
    struct tm tm;
    gmtime_r(&local, &tm);
    tm.tm_year--;
    int64_t before = timegm(&tm);
    before -= zone_offset(&c->zone, before - zone_offset(&c->zone, before));
    return before;
}
