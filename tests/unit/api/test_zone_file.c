/* Tables of time zones equal what the C library reads from the same files; damaged files are refused. */
#include "support/cm.h"

#include "api/zone_file.h"
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define DIRECTORY "/usr/share/zoneinfo/"
#define DAY INT64_C(86400)

static size_t n_zones;

static struct buf read_whole(const char *path)
{
    static char text[ZONE_FILE_MAX];
    struct buf file = {0};
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    buf_append(&file, text, fread(text, 1, sizeof text, f));
    fclose(f);
    return file;
}

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
    char value[512];
    struct zone_table t;
    (void)st, (void)place;
    if (flag != FTW_F || strncmp(name, "right/", 6) == 0 || strncmp(name, "posix/", 6) == 0)
        return 0;
    struct buf file = read_whole(path);
    bool is_zone = file.len > 4 && memcmp(file.ptr, "TZif", 4) == 0;
    assert_int_equal(zone_file_parse(buf_bytes(&file), &t), is_zone);
    if (is_zone) {
        snprintf(value, sizeof value, ":%s", path);
        setenv("TZ", value, 1);
        tzset();
        for (int64_t utc = 0; utc < ZONE_TABLE_END; utc += 61 * DAY + 12345)
            check_at(&t, path, utc);
        for (size_t i = 0; i < t.n; i++)
            for (int64_t second = -1; second <= 1; second++)
                check_at(&t, path, t.changes[i].at + second);
        n_zones++;
    }
    free(t.changes);
    buf_free(&file);
    return 0;
}

static void every_zone_equals_the_c_librarys(void **state)
{
    (void)state;
    assert_int_equal(nftw(DIRECTORY, check_zone, 16, FTW_PHYS), 0);
    assert_true(n_zones > 300);
}

static void put(struct buf *out, uint64_t n, int bytes)
{
    while (bytes-- > 0)
        buf_append_char(out, (char)(bytes < 8 ? n >> (8 * bytes) : 0));
}

/* A file with one change, from the first type to the second. */
static struct buf file_of(
    int64_t at, int32_t first, int32_t second, const char *rule, uint32_t leaps, uint8_t type)
{
    struct buf b = {0};
    for (int version = 1; version <= 2; version++) {
        bool is_second = version == 2;
        buf_append_str(&b, "TZif2");
        put(&b, 0, 15);
        const uint32_t counts[6] = {0, 0, is_second ? leaps : 0, is_second, is_second ? 2 : 1, 1};
        for (int i = 0; i < 6; i++)
            put(&b, counts[i], 4);
        if (is_second) {
            put(&b, (uint64_t)at, 8);
            put(&b, type, 1);
        }
        put(&b, (uint32_t)first, 4);
        put(&b, 0, 2);
        if (is_second) {
            put(&b, (uint32_t)second, 4);
            put(&b, 0, 2);
        }
        put(&b, 0, 1);
        if (is_second)
            put(&b, 0, (int)(12 * leaps));
    }
    buf_append_str(&b, rule);
    return b;
}

static bool parse(const struct buf *b, size_t len, struct zone_table *t)
{
    char *exact = mem_alloc(len + 1); /* so that a sanitizer sees a read beyond the end */
    memcpy(exact, b->ptr, len);
    bool ok = zone_file_parse(bytes_of(exact, len), t);
    free(exact);
    return ok;
}

/* The rule of a file is what the C library makes of the same text in TZ. */
static void rules_equal_the_c_librarys(void **state)
{
    (void)state;
    static const char *const rules[] = {"EST5EDT,M3.2.0,M11.1.0", "<-03>3<-02>,M3.5.0/-2,M10.5.0/-1",
        "NZST-12NZDT,M9.5.0,M4.1.0/3", "IST-2IDT,M3.4.4/26,M10.5.0", "<+0330>-3:30",
        "AAA1:02:03BBB0:30,J60/0,J300/1:30", "AAA-3BBB,59/2,305/25:00:01", "WET0WEST,M3.5.0/1,M10.5.0"};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        struct zone_table t;
        char text[128];
        snprintf(text, sizeof text, "\n%s\n", rules[i]);
        struct buf b = file_of(0, 60, 3600, text, 0, 1);
        assert_true(parse(&b, b.len, &t));
        setenv("TZ", rules[i], 1);
        tzset();
        for (int64_t utc = 400 * DAY; utc < ZONE_TABLE_END - 400 * DAY; utc += DAY + 1)
            check_at(&t, rules[i], utc);
        for (size_t k = 2; k + 2 < t.n; k++) {
            check_at(&t, rules[i], t.changes[k].at - 1);
            check_at(&t, rules[i], t.changes[k].at);
        }
        assert_int_equal(zone_table_span(&t, -1).offset, 60);
        free(t.changes);
        buf_free(&b);
    }
}

static void damaged_files_are_refused(void **state)
{
    (void)state;
    struct zone_table t;
    struct buf good = file_of(1000, 0, 3600, "\nEST5EDT,M3.2.0,M11.1.0\n", 0, 1);
    assert_true(parse(&good, good.len, &t));
    free(t.changes);
    for (size_t len = 0; len < good.len; len++)
        assert_false(parse(&good, len, &t));
    good.ptr[0] = 'U';
    assert_false(parse(&good, good.len, &t));
    buf_free(&good);
    static const char *const rules[] = {"", "\n", "EST5\n", "\nEST5", "\nEST\n", "\n5\n", "\nEST25\n",
        "\nEST5EDT\n", "\nEST5EDT,M3.2.0\n", "\nEST5EDT,M13.2.0,M11.1.0\n", "\nEST5EDT,M3.6.0,M11.1.0\n",
        "\nEST5EDT,M3.2.7,M11.1.0\n", "\nEST5EDT,J0,J5\n", "\nEST5EDT,366,5\n",
        "\nEST5EDT,M3.2.0/168,M11.1.0\n", "\nEST5EDT,M3.2.0,M11.1.0x\n", "\n<+035\n"};
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        struct buf b = file_of(1000, 0, 3600, rules[i], 0, 1);
        if (parse(&b, b.len, &t))
            fail_msg("%s was taken", rules[i]);
        buf_free(&b);
    }
    struct buf none = file_of(1000, 0, 3600, "\n\n", 0, 1);
    assert_true(parse(&none, none.len, &t));
    assert_int_equal(zone_table_span(&t, ZONE_TABLE_END).offset, 3600);
    free(t.changes);
    buf_free(&none);
    struct buf others[] = {file_of(1000, 0, 3600, "\n\n", 1, 1), file_of(1000, 0, 3600, "\n\n", 0, 2),
        file_of(1000, 0, 100000, "\n\n", 0, 1), file_of(1000, INT32_MIN, 0, "\n\n", 0, 1)};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        assert_false(parse(&others[i], others[i].len, &t));
        buf_free(&others[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_zone_equals_the_c_librarys),
        cmocka_unit_test(rules_equal_the_c_librarys),
        cmocka_unit_test(damaged_files_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
