#include "api/zone.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

#define ZONE_DIRECTORY "/usr/share/zoneinfo"
#define DAY INT64_C(86400)

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
    return !bytes_starts_with(name, BYTES_LITERAL("right/")); /* those count leap seconds */
}

static bool is_zone_file(const char *path)
{
    struct stat st;
    char magic[4] = "";
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode))
        return false;
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    bool ok = fread(magic, 1, sizeof magic, f) == sizeof magic && memcmp(magic, "TZif", 4) == 0;
    fclose(f);
    return ok;
}

bool zone_find(struct bytes name, struct zone *out)
{
    char path[sizeof ZONE_DIRECTORY + 1 + ZONE_NAME_MAX];
    if (!is_zone_name(name))
        return false;
    snprintf(path, sizeof path, ZONE_DIRECTORY "/%.*s", (int)name.len, name.ptr);
    bool is_utc = bytes_equal_str(name, "UTC");
    if (!is_utc && !is_zone_file(path))
        return false;
    *out = (struct zone){.fixed = is_utc};
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
    static char current[ZONE_NAME_MAX + 1]; /* the process's */
    char value[sizeof ZONE_DIRECTORY + 2 + ZONE_NAME_MAX];
    struct tm local;
    time_t t = utc;
    if (z->fixed)
        return z->offset;
    if (strcmp(current, z->name) != 0) {
        snprintf(value, sizeof value, ":" ZONE_DIRECTORY "/%s", z->name);
        setenv("TZ", value, 1);
        tzset();
        snprintf(current, sizeof current, "%s", z->name);
    }
    return localtime_r(&t, &local) ? local.tm_gmtoff : 0;
}

/* The two probes enclose any change of offset within a day of `wall`; no zone changes twice in that time. The earlier offset gives the
 * earlier candidate, so it comes first. If neither candidate shows `wall`, the zone skips it. */
int64_t zone_instant(const struct zone *z, int64_t wall)
{
    int64_t before = zone_offset(z, wall - DAY);
    int64_t after = zone_offset(z, wall + DAY);
    if (zone_offset(z, wall - before) == before)
        return wall - before;
    if (zone_offset(z, wall - after) == after)
        return wall - after;
    return wall - before;
}
