/* record_check: passes what the archive writes, and names what is wrong with anything else. */
#include "support/cm.h"

#include "counts/record_check.h"

static void archive_lines_pass(void **state)
{
    (void)state;
    static const char *const lines[] = {"u|jehiah,c413:2 c41l:5", "c.u|jehiah.c41l,JP:1 US:4",
        "c.u|jehiah.c41,JP:1", "c.u|jehiah.c4,JP:1", "u|,zvcvn:9223372036854775807", "c.u|.c41l,:7 A:1",
        "lookup|h0aMB8AuNw4=,http://www.facebook.com/", "u|h0aMB8AuNw4=,vcvn:1 w0110:1",
        "c.u|\xff\xfe.c41l,a!:1 h0aMB8AuNw4=:2"};
    struct buf space = {0};
    struct record_key key;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (record_check(bytes_str(lines[i]), NULL, &key, &space) != NULL)
            fail_msg("%s: %s", lines[i], record_check(bytes_str(lines[i]), NULL, &key, &space));
    buf_free(&space);
}

static void other_lines_do_not(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {{"", "no `,`"}, {"u|a", "no `,`"}, {"a,c413:1", "key"},
        {"U|a,c413:1", "key"}, {"u|twelve_bytes,c413:1", "key"}, {"c.u|a,c413:1", "key"},
        {"c.u|a.c43v,US:1", "key"}, {"u|a,", "no counts"}, {"u|a,c413", "no `:`"}, {"u|a,US:1", "an hour"},
        {"u|a,c41:1", "an hour"}, {"u|a,c413:0", "0"}, {"u|a,c413:01", "0"}, {"u|a,c413:-1", "no value"},
        {"u|a,c413:-", "number"}, {"u|a,c413:--1", "number"}, {"u|a,c413:00", "begins with 0"},
        {"u|a,c413:-0", "begins with 0"}, {"c.u|a.c41l,JP:3 US:-1", "no value"},
        {"u|a,c413:1,c414:1", "space"}, {"u|a,c413:1 ", "space"}, {"u|a,c413:1  c414:1", "an hour"},
        {"u|a,c413:9223372036854775808", "2^63"}, {"u|a,c413:18446744073709551617", "2^63"},
        {"u|a,c413:99999999999999999999", "2^63"}, {"u|a,c413:1 c413:1", "ascend"},
        {"u|a,w0110:1 vcvn:1", "ascend"}, {"c.u|a.c413,US:1 JP:1", "ascend"},
        {"c.u|a.c413,twelve_bytes:1", "stored form"}, {"c.u|a.c413,a.b:1", "stored form"},
        {"u|a,c413:1\r", "space"}, {"lookup|short,x", "key"}, {"lookup|h0aMB8AuNw4=,http://other/", "hash"},
        {"lookup|h0aMB8AuNw4=,\\x41", "escape"}, {"lookup|h0aMB8AuNw4=,a\x01", "escape"}};
    struct buf space = {0};
    struct record_key key;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *why = record_check(bytes_str(wrong[i][0]), NULL, &key, &space);
        if (!why || !strstr(why, wrong[i][1]))
            fail_msg("%s: %s", wrong[i][0], why ? why : "passes");
    }
    buf_free(&space);
}

static void values_may_be_negative(void **state)
{
    (void)state;
    static const char *const good[] = {"r|a,c413:-300 c41l:0", "c.r|a.c41l,JP:-1 US:0 ZA:7",
        "r|a,c413:-9223372036854775808", "r|a,c413:9223372036854775807"};
    static const char *const wrong[][2] = {{"u|a,c413:0", "no value"}, {"r.u|a.c413,US:-1", "no value"},
        {"r|a,c413:-0", "begins with 0"}, {"r|a,c413:-01", "begins with 0"},
        {"r|a,c413:-9223372036854775809", "below"}, {"r|a,c413:9223372036854775808", "2^63"}};
    struct value_sums values = {0};
    struct buf space = {0};
    struct record_key key;
    value_sums_note(&values, "total r key = l\ntotal r scale = 2\ntotal r value = p\ntotal u key = l\n");
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (record_check(bytes_str(good[i]), &values, &key, &space) != NULL)
            fail_msg("%s: %s", good[i], record_check(bytes_str(good[i]), &values, &key, &space));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *why = record_check(bytes_str(wrong[i][0]), &values, &key, &space);
        if (!why || !strstr(why, wrong[i][1]))
            fail_msg("%s: %s", wrong[i][0], why ? why : "passes");
    }
    value_sums_free(&values);
    buf_free(&space);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(archive_lines_pass),
        cmocka_unit_test(other_lines_do_not),
        cmocka_unit_test(values_may_be_negative),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
