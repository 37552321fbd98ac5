/* geo: files of support/make_mmdb.pl, whole and damaged. */
#include "support/cm.h"
#include "support/shell.h"
#include "support/test_dir.h"

#include "base/io.h"
#include "enrich/geo.h"
#include <unistd.h>

static char dir[64];
static struct buf city; /* the bytes of city.mmdb */

static const char *path_of(const char *name)
{
    static char path[sizeof dir + 32];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static int set_up(void **state)
{
    (void)state;
    make_test_dir(dir, sizeof dir);
    if (system("perl -MMaxMind::DB::Writer -e 1 2>/dev/null") != 0) {
        const char *ci = getenv("CI");
        print_error("libmaxmind-db-writer-perl is not installed (scripts/setup --test)\n");
        exit(ci && strcmp(ci, "true") == 0 ? 1 : 77);
    }
    shell("perl '%s' '%s'", MAKE_MMDB, dir);
    return io_read_file(path_of("city.mmdb"), 1 << 20, &city);
}

static int tear_down(void **state)
{
    (void)state;
    buf_free(&city);
    shell("rm -r '%s'", dir);
    return 0;
}

/* The place as "COUNTRY|REGION|CITY". */
static const char *place_of(struct geo *geo, const char *address)
{
    static char text[300];
    struct geo_place p;
    struct client_address a;
    assert_true(client_address_parse(bytes_str(address), &a));
    geo_find(geo, &a, &p);
    snprintf(text, sizeof text, "%.*s|%.*s|%.*s", (int)p.country.len, p.country.ptr, (int)p.region.len,
        p.region.ptr, (int)p.city.len, p.city.ptr);
    return text;
}

static struct geo *open_file(const char *name)
{
    struct error error;
    struct geo *geo = geo_open(path_of(name), &error);
    if (!geo)
        fail_msg("%s", error.text);
    return geo;
}

static void test_places(void **state)
{
    static const struct {
        const char *file, *address, *place;
    } rows[] = {
        {"city.mmdb", "1.2.3.4", "US|US-MA|Boston"},
        {"city.mmdb", "5.6.255.255", "DE|DE-NW|Cologne"},
        {"city.mmdb", "2a02:1::1", "DE|DE-NW|Cologne"},
        {"city.mmdb", "::ffff:1.2.3.4", "US|US-MA|Boston"},
        {"city.mmdb", "::ffff:10.0.0.1", "||"},
        {"city.mmdb", "7.7.7.7", "FR||"},   /* a city without an English name */
        {"city.mmdb", "8.8.8.8", "||"},     /* only a registered country */
        {"city.mmdb", "9.9.9.9", "CH||"},   /* neither region nor city */
        {"city.mmdb", "1.2.4.0", "||"},     /* the next network */
        {"city.mmdb", "192.168.1.1", "||"}, /* private */
        {"city.mmdb", "127.0.0.1", "||"},
        {"city.mmdb", "::1", "||"},
        {"city.mmdb", "fe80::1", "||"},
        {"country.mmdb", "1.2.3.4", "US||"},
        {"country.mmdb", "2a02:1::1", "DE||"},
        {"dbip.mmdb", "1.2.3.4", "US|Massachusetts|Boston"},
        {"flat.mmdb", "1.2.3.4", "US||"},
        {"ipv4.mmdb", "1.2.3.4", "US|US-MA|Boston"},
        {"ipv4.mmdb", "::ffff:1.2.3.4", "US|US-MA|Boston"},
        {"ipv4.mmdb", "2a02:1::1", "||"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct geo *geo = open_file(rows[i].file);
        const char *place = place_of(geo, rows[i].address);
        if (strcmp(place, rows[i].place) != 0)
            fail_msg("%s in %s is '%s' instead of '%s'", rows[i].address, rows[i].file, place, rows[i].place);
        geo_free(&geo);
    }
}

static void write_file(const char *name, struct bytes content)
{
    FILE *file = fopen(path_of(name), "w"); /* in place */
    assert_non_null(file);
    assert_int_equal(fwrite(content.ptr, 1, content.len, file), content.len);
    assert_int_equal(fclose(file), 0);
}

/* Waits until geo_find has looked at the file again. */
static bool waits_for(struct geo *geo, const char *place, bool has_problem)
{
    for (usec_t end = 0; is_early(&end); clock_sleep(20 * USEC_PER_MSEC)) {
        if (strcmp(place_of(geo, "1.2.3.4"), place) == 0 && (geo_problem(geo) != NULL) == has_problem)
            return true;
    }
    print_error("%s, problem: %s\n", place_of(geo, "1.2.3.4"), geo_problem(geo) ? geo_problem(geo) : "none");
    return false;
}

#define WHOLE "US|US-MA|Boston"

static void test_a_replaced_file(void **state)
{
    (void)state;
    write_file("used.mmdb", buf_bytes(&city));
    struct geo *geo = open_file("used.mmdb");
    assert_null(geo_problem(geo));
    shell("cp '%s/country.mmdb' '%s/new' && mv '%s/new' '%s/used.mmdb'", dir, dir, dir, dir);
    assert_true(waits_for(geo, "US||", false));
    /* In place, as cp does. */
    write_file("used.mmdb", buf_bytes(&city));
    assert_true(waits_for(geo, WHOLE, false));
    geo_free(&geo);
}

static void test_a_file_that_is_damaged_or_missing_later(void **state)
{
    (void)state;
    write_file("used.mmdb", buf_bytes(&city));
    struct geo *geo = open_file("used.mmdb");
    assert_int_equal(truncate(path_of("used.mmdb"), 100), 0);
    assert_string_equal(place_of(geo, "1.2.3.4"), WHOLE);
    assert_true(waits_for(geo, WHOLE, true));
    assert_non_null(strstr(geo_problem(geo), "used.mmdb: "));
    assert_int_equal(truncate(path_of("used.mmdb"), 0), 0);
    assert_true(waits_for(geo, WHOLE, true));
    assert_int_equal(unlink(path_of("used.mmdb")), 0);
    for (usec_t end = 0; is_early(&end) && !strstr(geo_problem(geo), "No such file"); clock_sleep(20000))
        assert_string_equal(place_of(geo, "1.2.3.4"), WHOLE);
    assert_non_null(strstr(geo_problem(geo), "No such file"));
    shell("cp '%s/country.mmdb' '%s/used.mmdb'", dir, dir);
    assert_true(waits_for(geo, "US||", false));
    geo_free(&geo);
}

static void check_refused(const char *name, const char *reason)
{
    struct error error;
    assert_null(geo_open(path_of(name), &error));
    if (strncmp(error.text, dir, strlen(dir)) != 0 || !strstr(error.text, reason))
        fail_msg("'%s' instead of '%s'", error.text, reason);
}

static void test_files_that_are_refused(void **state)
{
    (void)state;
    check_refused("none.mmdb", "none.mmdb: No such file or directory");
    check_refused(".", ": not a MaxMind DB file");
    write_file("bad.mmdb", BYTES_LITERAL(""));
    check_refused("bad.mmdb", "bad.mmdb: not a MaxMind DB file");
    write_file("bad.mmdb", BYTES_LITERAL("1.2.3.0,1.2.3.255,US\n"));
    check_refused("bad.mmdb", "bad.mmdb: ");
    for (size_t n = 1; n < city.len; n += 101) { /* a cut file has no metadata, which are at its end */
        write_file("bad.mmdb", bytes_of(city.ptr, n));
        check_refused("bad.mmdb", "bad.mmdb: ");
    }
}

/* With a sanitizer: no damage leads to a read outside of the file. */
static void test_any_damaged_byte(void **state)
{
    static const char *const addresses[] = {"1.2.3.4", "5.6.7.8", "2a02:1::1", "255.255.255.255", "::"};
    struct error error;
    size_t n_opened = 0;
    (void)state;
    for (size_t i = 0; i < city.len; i++) {
        char whole = city.ptr[i];
        city.ptr[i] = (char)(i % 2 ? whole ^ 1 << i / 2 % 8 : 255);
        write_file("bad.mmdb", buf_bytes(&city));
        city.ptr[i] = whole;
        struct geo *geo = geo_open(path_of("bad.mmdb"), &error);
        for (size_t j = 0; geo && j < sizeof addresses / sizeof *addresses; j++)
            place_of(geo, addresses[j]);
        n_opened += geo != NULL;
        geo_free(&geo);
    }
    assert_in_range(n_opened, 1, city.len - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_a_replaced_file),
        cmocka_unit_test(test_a_file_that_is_damaged_or_missing_later),
        cmocka_unit_test(test_files_that_are_refused),
        cmocka_unit_test(test_any_damaged_byte),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
