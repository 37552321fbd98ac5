#include "base/rfc3339.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
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

/* Reads the zone at the end of a time, as an offset in seconds: Z or +00:00, and if lenient also UTC, GMT, +00 and
 * +0000. Returns false if the zone is malformed. */
static bool read_zone(struct bytes zone, bool is_lenient, int *seconds)
{
    *seconds = 0;
    if (bytes_equal_str(zone, "Z") || bytes_equal_str(zone, "z"))
        return true;
    if (is_lenient && (bytes_equal_str(zone, "UTC") || bytes_equal_str(zone, "GMT")))
        return true;
    bool has_form = zone.len == 6 ? zone.ptr[3] == ':' : is_lenient && (zone.len == 3 || zone.len == 5);
    if (!has_form || (zone.ptr[0] != '+' && zone.ptr[0] != '-'))
        return false;
    int hours = rfc3339_digits(zone.ptr + 1, 2);
    int minutes = zone.len > 3 ? rfc3339_digits(zone.ptr + zone.len - 2, 2) : 0;
    *seconds = (hours * 60 + minutes) * 60 * (zone.ptr[0] == '-' ? -1 : 1);
    return hours >= 0 && hours < 24 && minutes >= 0 && minutes < 60;
}

/* Reads the date and the time, and leaves the zone in *text. A leap second becomes the second before it. */
static bool read_date(struct bytes *text, bool needs_seconds, struct tm *t)
{
    static const char form[] = "0000-00-00T00:00:00";
    size_t n = sizeof form - 1, minutes = n - strlen(":00");
    const char *at = text->ptr;
    if (!needs_seconds && text->len >= minutes && (text->len == minutes || at[minutes] != ':'))
        n = minutes;
    if (text->len < n)
        return false;
    for (size_t i = 0; i < n; i++)
        if (form[i] != '0' && at[i] != form[i] && !(form[i] == 'T' && (at[i] == 't' || at[i] == ' ')))
            return false;
    *t = (struct tm){.tm_year = rfc3339_digits(at, 4) - 1900,
        .tm_mon = rfc3339_digits(at + 5, 2) - 1,
        .tm_mday = rfc3339_digits(at + 8, 2),
        .tm_hour = rfc3339_digits(at + 11, 2),
        .tm_min = rfc3339_digits(at + 14, 2),
        .tm_sec = n == minutes ? 0 : rfc3339_digits(at + 17, 2)};
    if (n > minutes && n < text->len && at[n] == '.')
        for (n++; n < text->len && at[n] >= '0' && at[n] <= '9';)
            n++;
    *text = bytes_of(at + n, text->len - n);
    bool is_in_range = at[n - 1] != '.' && t->tm_year >= 0 && t->tm_hour >= 0 && t->tm_hour <= 23 &&
                       t->tm_min >= 0 && t->tm_min <= 59 && t->tm_sec >= 0 && t->tm_sec <= 60;
    t->tm_sec -= t->tm_sec == 60;
    return is_in_range;
}

/* Returns false if the date does not exist. */
static bool in_seconds(const struct tm *t, int zone, int64_t *out)
{
    struct tm normal = *t;
    *out = timegm(&normal) - zone;
    return normal.tm_mon == t->tm_mon && normal.tm_mday == t->tm_mday;
}

/* Converts the time with the zone's offset of the day before, and of the day after. (mktime is not used: if a time is
 * shown twice, its result depends on the previous call.) */
static bool in_local_seconds(const struct tm *t, int64_t *out, enum rfc3339_zone *zone)
{
    int64_t shown, times[2];
    bool is_shown[2];
    if (!in_seconds(t, 0, &shown))
        return false;
    for (int i = 0; i < 2; i++) {
        struct tm near, at;
        time_t day = (time_t)shown + (i == 0 ? -86400 : 86400);
        localtime_r(&day, &near);
        time_t time = (time_t)shown - near.tm_gmtoff;
        localtime_r(&time, &at);
        times[i] = time;
        is_shown[i] = at.tm_gmtoff == near.tm_gmtoff;
    }
    *out = times[!is_shown[0] && is_shown[1]];
    *zone = !is_shown[0] && !is_shown[1]                         ? RFC3339_SKIPPED
            : is_shown[0] && is_shown[1] && times[0] != times[1] ? RFC3339_TWICE
                                                                 : RFC3339_NAIVE;
    return true;
}

bool rfc3339_read(struct bytes text, int64_t *out)
{
    struct tm t;
    int zone;
    return read_date(&text, true, &t) && read_zone(text, false, &zone) && in_seconds(&t, zone, out);
}

bool rfc3339_read_lenient(struct bytes text, int64_t *out, enum rfc3339_zone *zone)
{
    struct tm t;
    int offset;
    text = bytes_trim(text);
    if (!read_date(&text, false, &t))
        return false;
    text = bytes_trim(text);
    if (text.len == 0 && zone)
        return in_local_seconds(&t, out, zone);
    if (zone)
        *zone = RFC3339_ZONED;
    return read_zone(text, true, &offset) && in_seconds(&t, offset, out);
}

bool rfc3339_form_is_valid(const char *form)
{
    for (const char *c = form; (c = strchr(c, '%')); c++) {
        c += 1 + strspn(c + 1, "-_0^#EO");
        if (!*c || !strchr("aAbBcCdDeFgGhHIjklmMnprRsStTuUVwWxXyYzZ%", *c))
            return false;
    }
    return true;
}

bool rfc3339_read_form(const char *text, const char *form, int64_t *out, enum rfc3339_zone *zone)
{
    struct tm t = {.tm_mday = 1};
    const char *end = strptime(text, form, &t);
    if (!end || *end)
        return false;
    *zone = RFC3339_ZONED;
    if (strstr(form, "%s"))
        return (*out = mktime(&t)) != -1; /* strptime has filled t by the process's zone */
    if (strstr(form, "%z"))
        return in_seconds(&t, (int)t.tm_gmtoff, out);
    return in_local_seconds(&t, out, zone);
}

const char *rfc3339_write(int64_t seconds, char out[RFC3339_TEXT])
{
    struct tm tm;
    time_t t = (time_t)seconds;
    if (!gmtime_r(&t, &tm) || strftime(out, RFC3339_TEXT, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0)
        strcpy(out, "-");
    return out;
}

bool rfc3339_use_zone(const char *zone)
{
    struct stat st;
    const char *dir = getenv("TZDIR");
    char *path = mem_printf("%s/%s", dir ? dir : "/usr/share/zoneinfo", zone);
    bool is_utc = strcmp(zone, "UTC") == 0,
         is_known = is_utc || (stat(path, &st) == 0 && S_ISREG(st.st_mode) && !strstr(zone, ".."));
    free(path);
    setenv("TZ", is_utc ? "UTC0" : zone, 1);
    tzset();
    return is_known;
}
