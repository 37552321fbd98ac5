#include "compactor/import_date.h"

#include "base/rfc3339.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define HOUR_SECONDS 3600
#define ZONE_MAX 16

/* 0 is a digit, T is T or a space, and any other character is itself. A form that begins with another form comes
 * before that form. */
static const struct form {
    const char *text;
    enum import_unit unit;
} forms[] = {
    {"0000-00-00T00:00:00", IMPORT_TIME},
    {"0000-00-00T00:00", IMPORT_TIME},
    {"0000-00-00T00", IMPORT_HOUR},
    {"0000-00-00", IMPORT_DAY},
    {"0000-00", IMPORT_MONTH},
    {"0000000000", IMPORT_HOUR},
    {"00000000", IMPORT_DAY},
    {"000000", IMPORT_MONTH},
};

/* Year, month, day, hour, minute and second. */
#define PARTS 6

enum import_unit import_unit_named(const char *name)
{
    static const char *const names[] = {
        [IMPORT_HOUR] = "hour", [IMPORT_DAY] = "day", [IMPORT_MONTH] = "month"};
    enum import_unit unit = IMPORT_MONTH;
    while (unit > IMPORT_TIME && strcmp(names[unit], name) != 0)
        unit--;
    return unit;
}

static bool has_form(struct bytes text, const char *form)
{
    size_t n = strlen(form);
    if (text.len < n)
        return false;
    for (size_t i = 0; i < n; i++) {
        char c = text.ptr[i];
        bool fits = form[i] == '0'   ? c >= '0' && c <= '9'
                    : form[i] == 'T' ? c == 'T' || c == 't' || c == ' '
                                     : c == form[i];
        if (!fits)
            return false;
    }
    return text.len == n || text.ptr[n] < '0' || text.ptr[n] > '9';
}

/* Reads the digits of the form in text: four of the year, then two of each part. */
static void read_parts(struct bytes text, size_t n, int parts[PARTS])
{
    int seen = 0;
    for (size_t i = 0; i < n; i++) {
        if (text.ptr[i] < '0' || text.ptr[i] > '9')
            continue;
        int *part = &parts[seen < 4 ? 0 : (seen - 2) / 2];
        *part = (seen == 4 || (seen > 4 && seen % 2 == 0) ? 0 : *part) * 10 + text.ptr[i] - '0';
        seen++;
    }
}

/* Finds the time at which clocks show the parts. */
static bool time_of(const int parts[PARTS], struct bytes zone, int64_t *out, enum rfc3339_zone *kind)
{
    char text[64];
    int n = snprintf(text, sizeof text, "%04d-%02d-%02dT%02d:%02d:%02d%.*s", parts[0], parts[1], parts[2],
        parts[3], parts[4], parts[5], (int)zone.len, zone.ptr ? zone.ptr : "");
    return n > 0 && rfc3339_read_lenient(bytes_of(text, (size_t)n), out, kind);
}

/* Advances the parts to the start of the next unit. */
static void advance(int parts[PARTS], enum import_unit unit)
{
    struct tm t = {.tm_year = parts[0] - 1900,
        .tm_mon = parts[1] - 1 + (unit == IMPORT_MONTH),
        .tm_mday = parts[2] + (unit == IMPORT_DAY),
        .tm_hour = parts[3]};
    timegm(&t);
    parts[0] = t.tm_year + 1900;
    parts[1] = t.tm_mon + 1;
    parts[2] = t.tm_mday;
}

static bool begins_unit(const int parts[PARTS], enum import_unit unit)
{
    return parts[4] == 0 && parts[5] == 0 && (unit == IMPORT_HOUR || parts[3] == 0) &&
           (unit != IMPORT_MONTH || parts[2] == 1);
}

const char *import_date_read(struct bytes text, enum import_unit unit, struct import_date *out)
{
    int parts[PARTS] = {0, 1, 1, 0, 0, 0};
    enum rfc3339_zone kind;
    size_t i = 0;
    while (i < sizeof forms / sizeof *forms && !has_form(text, forms[i].text))
        i++;
    if (i == sizeof forms / sizeof *forms)
        return "the date is not a month, day, hour or time such as 2024-01-31";
    const struct form *form = &forms[i];
    size_t n = strlen(form->text);
    struct bytes zone = bytes_of(text.ptr + n, text.len - n);
    if (zone.len > ZONE_MAX || (zone.len > 0 && !strchr(form->text, '-')))
        return "text after the date";
    if (unit != IMPORT_TIME && form->unit > unit)
        return "the date is less exact than --unit";
    read_parts(text, n, parts);
    out->unit = unit == IMPORT_TIME ? form->unit : unit;
    if (out->unit != IMPORT_TIME && !begins_unit(parts, out->unit))
        return "the date is not the start of its --unit";
    if (!time_of(parts, zone, &out->from, &kind))
        return "there is no such date, or its zone is malformed";
    if (kind == RFC3339_SKIPPED && out->unit < IMPORT_DAY)
        return "the clocks of --time-zone skip this time";
    out->is_naive = kind != RFC3339_ZONED;
    out->to = out->from;
    if (out->unit == IMPORT_HOUR)
        out->to += HOUR_SECONDS;
    if (out->unit < IMPORT_DAY)
        return NULL;
    advance(parts, out->unit);
    return time_of(parts, zone, &out->to, &kind) ? NULL : "there is no such date";
}
