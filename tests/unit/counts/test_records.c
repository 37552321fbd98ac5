#include "support/cm.h"

#include <stdlib.h>
#include <time.h>
#include "counts/records.h"

#define B BYTES_LITERAL

static void assert_text(struct bytes got, const char *expected)
{
    assert_int_equal(got.len, strlen(expected));
    assert_memory_equal(got.ptr, expected, got.len);
}

static void test_hour_names_known_times(void **state)
{
    static const struct {
        int64_t seconds;
        const char *text;
    } known[] = {
        {1332637200, "c3p1"},
        {1332637200 + 3599, "c3p1"},
        {HOUR_FIRST, "0110"},
        {INT64_C(1956527999), "vcvn"},
        {INT64_C(1956528000), "w0110"},
        {HOUR_END - 1, "zvcvn"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        char text[HOUR_TEXT_MAX + 1];
        assert_int_equal(hour_encode(known[i].seconds, text), strlen(known[i].text));
        assert_string_equal(text, known[i].text);
    }
}

static void test_hour_refuses_other_years(void **state)
{
    char text[HOUR_TEXT_MAX + 1];
    (void)state;
    assert_int_equal(hour_encode(HOUR_FIRST - 1, text), 0);
    assert_int_equal(hour_encode(HOUR_END, text), 0);
    assert_int_equal(hour_encode(0, text), 0);
    assert_int_equal(hour_encode(INT64_MIN, text), 0);
    assert_int_equal(hour_encode(INT64_MAX, text), 0);
}

static bool hour_decode(struct bytes text, int64_t *seconds)
{
    enum period_unit unit;
    return period_decode(text, &unit, seconds) && unit == PERIOD_HOUR;
}

/* Every hour of 160 years: as the C library's calendar says, back again, and in the order of the text. */
static void test_every_hour_round_trips_in_order(void **state)
{
    char before[HOUR_TEXT_MAX + 1] = "", text[HOUR_TEXT_MAX + 1];
    (void)state;
    for (int64_t t = HOUR_FIRST; t < HOUR_END; t += 3600) {
        int64_t back = 0;
        size_t n = hour_encode(t, text);
        assert_true(hour_decode(bytes_of(text, n), &back));
        assert_int_equal(back, t);
        assert_true(strcmp(before, text) < 0);
        memcpy(before, text, sizeof text);
        if (t % 86400 != 0)
            continue;
        struct tm tm;
        time_t clock = (time_t)t;
        gmtime_r(&clock, &tm);
        const char *digits = "0123456789abcdefghijklmnopqrstuv";
        assert_int_equal(text[n - 4], digits[(tm.tm_year - 100) % 32]);
        assert_int_equal(text[n - 3], digits[tm.tm_mon + 1]);
        assert_int_equal(text[n - 2], digits[tm.tm_mday]);
    }
}

static void test_hour_decode_refuses(void **state)
{
    static const char *const wrong[] = {"", "c", "c3p", "c3p10", "C3P1", "c0p1", "cdp1", "c301", "c2u1",
        "d2t1", "c3po", "c3p ", "wc3p1x", "v0110", "{0110", "x0p1", "z0000", "c4v1", "w", "x52t0"};
    int64_t t;
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(hour_decode(bytes_str(wrong[i]), &t));
    assert_true(hour_decode(B("c2t1"), &t));   /* 29 February 2012 */
    assert_false(hour_decode(B("y42t1"), &t)); /* 2100 has none */
    assert_true(hour_decode(B("y42s1"), &t));
}

static void assert_period(const char *text, enum period_unit unit, int64_t seconds)
{
    enum period_unit got;
    int64_t start;
    assert_true(period_decode(bytes_str(text), &got, &start));
    assert_int_equal(got, unit);
    assert_int_equal(start, seconds);
}

/* A period starts with its first hour, and its text is the start of the text of each of its hours. */
static void test_periods(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        "", "c", "w", "wc", "c0", "cd", "c30", "c2u", "d2t", "wc0", "wc2v", "v01", "{01", "C3", "c3 "};
    int64_t t;
    enum period_unit unit;
    assert_period("c3", PERIOD_MONTH, 1330560000);
    assert_period("c3p", PERIOD_DAY, 1332633600);
    assert_period("c3p1", PERIOD_HOUR, 1332637200);
    assert_period("w01", PERIOD_MONTH, 1956528000); /* 2032, not a day of 2000 */
    assert_period("w011", PERIOD_DAY, 1956528000);
    assert_period("w0110", PERIOD_HOUR, 1956528000);
    assert_period("zvc", PERIOD_MONTH, HOUR_END - 31 * INT64_C(86400));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(period_decode(bytes_str(wrong[i]), &unit, &t));
    assert_text(period_enclosing(B("c41l"), PERIOD_HOUR, PERIOD_DAY), "c41");
    assert_text(period_enclosing(B("wc41l"), PERIOD_HOUR, PERIOD_MONTH), "wc4");
    assert_text(period_enclosing(B("c41"), PERIOD_DAY, PERIOD_MONTH), "c4");
}

static void test_text_keys_hold_no_separator(void **state)
{
    static const char *const texts[][2] = {{"", ""}, {"a", "a"}, {"a,b,", "a\\x2cb\\x2c"},
        {"\\\\x2c,", "\\\\x2c\\x2c"}, {"\\x0a,", "\\x0a\\x2c"}};
    struct buf key = {0}, again = {0};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        buf_clear(&key);
        buf_clear(&again);
        text_key_escape(bytes_str(texts[i][0]), &key);
        assert_text(buf_bytes(&key), texts[i][1]);
        text_key_unescape(buf_bytes(&key), &again);
        assert_text(buf_bytes(&again), texts[i][0]);
    }
    buf_free(&key);
    buf_free(&again);
}

static void test_component_is_plain(void **state)
{
    (void)state;
    assert_true(component_is_plain(B("")));
    assert_true(component_is_plain(B("jehiah")));
    assert_true(component_is_plain(B("eleven_byte")));
    assert_false(component_is_plain(B("twelve_bytes")));
    assert_true(component_is_plain(B("\xc5\xbc\x80\xff!/=\\\"")));
    for (int c = 0; c < 256; c++) {
        char byte = (char)c;
        bool reserved = c < 0x20 || c == 0x7f || memchr(" :,.|", c, 5);
        assert_int_equal(component_is_plain(bytes_of(&byte, 1)), !reserved);
    }
}

static void test_component_hash(void **state)
{
    char space[COMPONENT_HASH + 1];
    (void)state;
    assert_text(component_store(B("http://www.facebook.com/"), space), "h0aMB8AuNw4=");
    assert_text(component_store(B("US"), space), "US");
    assert_text(component_store(B("a\0b"), space), "cDUPYCe843E=");
    component_hash(B(""), space);
    assert_string_equal(space, "1B2M2Y8AsgQ=");
    assert_true(component_is_hash(B("h0aMB8AuNw4=")));
    assert_false(component_is_hash(B("jehiah")));
}

static void assert_hash_of(struct bytes text, struct bytes of)
{
    char hash[COMPONENT_HASH + 1], expected[COMPONENT_HASH + 1];
    component_hash(text, hash);
    component_hash(of, expected);
    assert_string_equal(hash, expected);
}

static void test_a_cut_text_keeps_its_hash(void **state)
{
    struct buf whole = {0}, other = {0}, space = {0}, cut = {0}, again = {0};
    (void)state;
    for (int i = 0; i < 300; i++)
        buf_append_str(&whole, i % 3 ? "a" : "\xc3\xa9");
    buf_append_bytes(&other, buf_bytes(&whole));
    other.ptr[100] = '!';
    assert_true(bytes_equal(component_bound(buf_bytes(&whole), whole.len, &space), buf_bytes(&whole)));
    for (size_t max = COMPONENT_BOUND_MIN; max < whole.len; max++) {
        buf_clear(&cut);
        buf_append_bytes(&cut, component_bound(buf_bytes(&whole), max, &space));
        assert_true(cut.len <= max && cut.len >= max - 1 && bytes_is_utf8(buf_bytes(&cut)));
        assert_hash_of(buf_bytes(&cut), buf_bytes(&whole));
        assert_true(component_is_same(buf_bytes(&cut), buf_bytes(&whole)));
        assert_true(component_is_same(component_bound(buf_bytes(&whole), 90, &again), buf_bytes(&cut)));
        assert_int_equal(component_is_same(buf_bytes(&cut), buf_bytes(&other)), cut.len <= 100 + 33);
        assert_false(component_is_same(buf_bytes(&cut), bytes_of(whole.ptr, 20)));
        cut.ptr[0] ^= 1; /* no longer what component_bound writes */
        assert_false(component_is_same(buf_bytes(&cut), buf_bytes(&whole)));
    }
    buf_free(&whole);
    buf_free(&other);
    buf_free(&space);
    buf_free(&cut);
    buf_free(&again);
}

/* An event's text that looks like a cut one, as a copy of an answer's text does, is a key of its own. */
static void test_a_text_that_looks_cut_is_cut(void **state)
{
    char whole[200], hash[COMPONENT_HASH + 1], copied[COMPONENT_HASH + 1];
    struct buf space = {0}, cut = {0}, again = {0};
    (void)state;
    memset(whole, 'x', sizeof whole);
    component_hash(bytes_of(whole, sizeof whole), hash);
    buf_append_bytes(&cut, component_bound(bytes_of(whole, sizeof whole), 64, &space));
    for (size_t max = 64; max <= 200; max += 17) {
        struct bytes text = component_bound(buf_bytes(&cut), max, &again);
        assert_true(text.len <= max && text.len > 33);
        component_hash(text, copied);
        assert_string_not_equal(copied, hash);
    }
    buf_free(&space);
    buf_free(&cut);
    buf_free(&again);
}

static void test_lookup_escapes_and_back(void **state)
{
    struct buf text = {0}, back = {0};
    char all[256];
    (void)state;
    for (int i = 0; i < 256; i++)
        all[i] = (char)i;
    lookup_escape(bytes_of(all, sizeof all), &text);
    assert_null(memchr(text.ptr, '\n', text.len));
    assert_int_equal(lookup_unescape(buf_bytes(&text), &back), 0);
    assert_int_equal(back.len, sizeof all);
    assert_memory_equal(back.ptr, all, sizeof all);
    buf_clear(&text);
    lookup_escape(B("a\\b\n\x7f,"), &text);
    assert_text(buf_bytes(&text), "a\\\\b\\x0a\\x7f,");
    static const char *const wrong[] = {
        "\\", "a\\", "\\n", "\\x", "\\x0", "\\x0A", "\\x41", "\\x7g", "\\xv0", "\\x0v"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(lookup_unescape(bytes_str(wrong[i]), &back), -1);
    buf_free(&text);
    buf_free(&back);
}

static void test_namespaces(void **state)
{
    (void)state;
    assert_true(namespace_is_valid(B("u")));
    assert_true(namespace_is_valid(B("a_1234567890_xyz")));
    assert_true(namespace_is_valid(B("lookups")));
    assert_false(namespace_is_valid(B("lookup")));
    assert_false(namespace_is_valid(B("")));
    assert_false(namespace_is_valid(B("a_1234567890_wxyz")));
    assert_false(namespace_is_valid(B("U")));
    assert_false(namespace_is_valid(B("c.u")));
    assert_false(namespace_is_valid(B("a\0b")));
}

static void test_record_split(void **state)
{
    struct record r;
    (void)state;
    assert_true(record_split(B("a,b,c"), ',', &r));
    assert_text(r.key, "a");
    assert_text(r.value, "b,c");
    assert_true(record_split(B(","), ',', &r));
    assert_text(r.key, "");
    assert_text(r.value, "");
    assert_false(record_split(B(""), ',', &r));
    assert_false(record_split(B("abc"), ',', &r));
}

static int sign(int n)
{
    return (n > 0) - (n < 0);
}

/* As bytes_compare of key + separator, which is what the lines of a sorted file begin with. */
static void test_key_order_is_that_of_lines(void **state)
{
    static const char *const keys[] = {"", "a", "a!x", "a+", "a,", "a-", "aa", "b", "a!", "\xff", "a,b"};
    (void)state;
    assert_true(record_key_compare(B("a!x"), B("a"), ',') < 0);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        for (size_t j = 0; j < sizeof keys / sizeof *keys; j++) {
            struct buf a = {0}, b = {0};
            buf_printf(&a, "%s,", keys[i]);
            buf_printf(&b, "%s,", keys[j]);
            assert_int_equal(sign(record_key_compare(bytes_str(keys[i]), bytes_str(keys[j]), ',')),
                sign(bytes_compare(buf_bytes(&a), buf_bytes(&b))));
            buf_free(&a);
            buf_free(&b);
        }
}

static void test_counts_are_walked(void **state)
{
    struct bytes rest = B("JP:1 US:9223372036854775807 ZA:-9223372036854775808 ZM:0"), name;
    int64_t n;
    bool bad;
    (void)state;
    assert_true(record_next_count(&rest, &name, &n, &bad));
    assert_text(name, "JP");
    assert_int_equal(n, 1);
    assert_true(record_next_count(&rest, &name, &n, &bad));
    assert_text(name, "US");
    assert_true(n == INT64_MAX);
    assert_true(record_next_count(&rest, &name, &n, &bad));
    assert_true(n == INT64_MIN);
    assert_true(record_next_count(&rest, &name, &n, &bad));
    assert_int_equal(n, 0);
    assert_false(record_next_count(&rest, &name, &n, &bad));
    assert_false(bad);
}

static void test_malformed_counts_end_the_walk(void **state)
{
    static const char *const wrong[] = {"JP", "JP:", "JP:x", "JP:-", "JP:--1", "JP:+1", "JP:1x", " JP:1",
        "JP:1 ", "JP:1  US:2", "JP:9223372036854775808", "JP:-9223372036854775809", "JP:1:2", " "};
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct bytes rest = bytes_str(wrong[i]), name;
        int64_t n;
        bool bad = false;
        while (record_next_count(&rest, &name, &n, &bad))
            ;
        assert_true(bad);
    }
}

static void test_keys_are_parsed(void **state)
{
    struct record_key k;
    (void)state;
    assert_true(record_key_parse(B("u|jehiah"), &k));
    assert_false(k.is_subtotal || k.is_lookup);
    assert_text(k.ns, "u");
    assert_text(k.key, "jehiah");
    assert_text(k.period, "");
    assert_true(record_key_parse(B("c.u|h0aMB8AuNw4=.w0110"), &k));
    assert_true(k.is_subtotal);
    assert_text(k.ns, "c.u");
    assert_text(k.key, "h0aMB8AuNw4=");
    assert_text(k.period, "w0110");
    assert_int_equal(k.unit, PERIOD_HOUR);
    assert_true(record_key_parse(B("c.u|jehiah.c41"), &k));
    assert_int_equal(k.unit, PERIOD_DAY);
    assert_text(k.period, "c41");
    assert_true(record_key_parse(B("c.u|jehiah.wc4"), &k));
    assert_int_equal(k.unit, PERIOD_MONTH);
    assert_true(record_key_parse(B("lookup|h0aMB8AuNw4="), &k));
    assert_true(k.is_lookup);
    assert_text(k.key, "h0aMB8AuNw4=");
}

static void test_malformed_keys_are_refused(void **state)
{
    static const char *const wrong[] = {"", "u", "|", "|a", "U|a", "u|a.b", "u|a b", "u|twelve_bytes",
        "u|h0aMB8AuNw4=x", "c.|a.c3p1", ".u|a.c3p1", "c.u|a", "c.u|a.c0p1", "c.u|a.", "c.u|a.b.c3p1",
        "c.lookup|a.c3p1", "a.b.u|a.c3p1", "lookup|a", "lookup|"};
    struct record_key k;
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(record_key_parse(bytes_str(wrong[i]), &k));
}

static uint32_t shard_of(const char *key)
{
    struct record_key k;
    assert_true(record_key_parse(bytes_str(key), &k));
    return record_shard(&k, 1000);
}

/* crc32 as Python's zlib has it: crc32(b"u|jehiah") % 1000 and crc32(b"lookup|h0aMB8AuNw4=") % 1000. */
static void test_shards(void **state)
{
    struct record_key k;
    (void)state;
    assert_int_equal(shard_of("u|jehiah"), 444);
    assert_int_equal(shard_of("c.u|jehiah.c413"), 444);
    assert_int_equal(shard_of("lookup|h0aMB8AuNw4="), 682);
    assert_true(record_key_parse(B("c.u|jehiah.c413"), &k));
    assert_int_equal(record_shard(&k, 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hour_names_known_times),
        cmocka_unit_test(test_hour_refuses_other_years),
        cmocka_unit_test(test_every_hour_round_trips_in_order),
        cmocka_unit_test(test_hour_decode_refuses),
        cmocka_unit_test(test_periods),
        cmocka_unit_test(test_text_keys_hold_no_separator),
        cmocka_unit_test(test_component_is_plain),
        cmocka_unit_test(test_component_hash),
        cmocka_unit_test(test_a_cut_text_keeps_its_hash),
        cmocka_unit_test(test_a_text_that_looks_cut_is_cut),
        cmocka_unit_test(test_lookup_escapes_and_back),
        cmocka_unit_test(test_namespaces),
        cmocka_unit_test(test_record_split),
        cmocka_unit_test(test_key_order_is_that_of_lines),
        cmocka_unit_test(test_counts_are_walked),
        cmocka_unit_test(test_malformed_counts_end_the_walk),
        cmocka_unit_test(test_keys_are_parsed),
        cmocka_unit_test(test_malformed_keys_are_refused),
        cmocka_unit_test(test_shards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
