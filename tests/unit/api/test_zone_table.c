/* Tables of time zones equal what the C library reads from the same files; other files are refused. */
#include "support/cm.h"

#include "api/zone_table.h"
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define DIRECTORY "/usr/share/zoneinfo/"
#define DAY INT64_C(86400)
#define MOST_ZONES 5000

static struct zone_table *tables[MOST_ZONES]; /* so that no sanitizer sees a leak */
static size_t n_zones;

static int32_t of_c_library(int64_t utc)
{
    struct tm local;
    time_t t = utc;
    assert_non_null(localtime_r(&t, &local));
    return (int32_t)local.tm_gmtoff;
}

static void check_at(struct zone_table *t, const char *path, int64_t utc)
{
    if (zone_table_span(t, utc).offset != of_c_library(utc))
        fail_msg("%s at %lld: %d, not %d", path, (long long)utc, zone_table_span(t, utc).offset,
            of_c_library(utc));
}

static int check_zone(const char *path, const struct stat *st, int flag, struct FTW *place)
{
    const char *name = path + strlen(DIRECTORY);
    char value[512], magic[4] = "";
    (void)st, (void)place;
    if (flag != FTW_F || strncmp(name, "right/", 6) == 0 || strncmp(name, "posix/", 6) == 0)
        return 0;
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    bool is_zone = fread(magic, 1, sizeof magic, f) == sizeof magic && memcmp(magic, "TZif", 4) == 0;
    fclose(f);
    struct zone_table *t = zone_table_load(path);
    assert_int_equal(t != NULL, is_zone);
    if (is_zone) {
        snprintf(value, sizeof value, ":%s", path);
        setenv("TZ", value, 1);
        tzset();
        for (int64_t utc = 0; utc < ZONE_TABLE_END; utc += 61 * DAY + 12345)
            check_at(t, path, utc);
        struct zone_span s = zone_table_span(t, ZONE_TABLE_FIRST), next;
        for (; s.to != INT64_MAX; s = next) {
            for (int64_t second = -1; second <= 1; second++)
                check_at(t, path, s.to + second);
            next = zone_table_span(t, s.to);
            assert_true(next.from == s.to && next.offset != s.offset);
        }
        assert_true(n_zones < MOST_ZONES);
        tables[n_zones++] = t;
    }
    return 0;
}

static void every_zone_equals_the_c_librarys(void **state)
{
    (void)state;
    assert_int_equal(nftw(DIRECTORY, check_zone, 16, FTW_PHYS), 0);
    assert_true(n_zones > 300);
}

/* Files that are damaged or of no zone, and a file of no name. */
static void other_files_are_refused(void **state)
{
    char path[] = "/tmp/zone_table.XXXXXX", text[200];
    int fd = mkstemp(path);
    FILE *f = fopen(DIRECTORY "Europe/Paris", "re");
    (void)state;
    assert_true(fd >= 0 && f && fread(text, 1, sizeof text, f) == sizeof text);
    fclose(f);
    assert_null(zone_table_load(path));
    assert_int_equal(write(fd, text, sizeof text), sizeof text);
    close(fd);
    char *other = mem_printf("%s.cut", path); /* a path is loaded once */
    assert_int_equal(rename(path, other), 0);
    assert_null(zone_table_load(other));
    assert_null(zone_table_load(DIRECTORY "tzdata.zi"));
    assert_null(zone_table_load(DIRECTORY "Europe"));
    assert_null(zone_table_load("/nowhere/at/all"));
    unlink(other);
    free(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_zone_equals_the_c_librarys),
        cmocka_unit_test(other_files_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
