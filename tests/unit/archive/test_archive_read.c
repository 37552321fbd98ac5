/* Requests to archives of random records, beside a model that looks at every line. */
#include "archive/archive_read.h"

#include "base/io.h"
#include "base/url.h"
#include "counts/records.h"
#include "support/cm.h"
#include "support/make_generation.h"
#include "support/test_dir.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LINES_MAX 9000
#define HOURS 2400
#define FIRST (HOUR_FIRST + INT64_C(4468) * 86400) /* in March 2012 */
#define LONG_COUNTS 20000                          /* of one record, which exceeds a piece */

static char *lines[LINES_MAX]; /* of records, with LF, in order */
static size_t n_lines;
static char *texts[LINES_MAX];
static size_t n_texts;
static struct made_generation made;
static struct generation *g;
static uint64_t state64 = 88172645463325252; /* of xorshift */

static unsigned at_random(unsigned n)
{
    state64 ^= state64 << 13;
    state64 ^= state64 >> 7;
    state64 ^= state64 << 17;
    return (unsigned)(state64 % n);
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void add(char **to, size_t *n, struct buf *line)
{
    assert_true(*n < LINES_MAX);
    to[(*n)++] = bytes_dup(buf_bytes(line));
    buf_clear(line);
}

static void add_period(const char *ns_key, int64_t t, enum period_unit unit)
{
    static const char *const subs[] = {"DE", "JP", "None", "US"};
    char hour[HOUR_TEXT_MAX + 1];
    struct buf line = {0};
    hour_encode(t, hour);
    struct bytes period = period_enclosing(bytes_str(hour), PERIOD_HOUR, unit);
    buf_printf(&line, "%s.%.*s", ns_key, (int)period.len, period.ptr);
    unsigned which = 1 + at_random(15);
    for (unsigned i = 0, n = 0; i < 4; i++)
        if (which >> i & 1)
            buf_printf(&line, "%c%s:%u", n++ ? ' ' : ',', subs[i], 1 + at_random(1000));
    buf_append_char(&line, '\n');
    add(lines, &n_lines, &line);
    buf_free(&line);
}

/* Every day and every month of an hour has a record. The counts are any, because the model does not add up. */
static void add_subtotal(const char *ns_key, unsigned every)
{
    char hour[HOUR_TEXT_MAX + 1], before[HOUR_TEXT_MAX + 1] = "   ";
    for (int64_t t = FIRST; t < FIRST + HOURS * 3600; t += 3600) {
        if (at_random(every))
            continue;
        hour_encode(t, hour);
        add_period(ns_key, t, PERIOD_HOUR);
        if (strncmp(hour, before, 3) != 0)
            add_period(ns_key, t, PERIOD_DAY);
        if (strncmp(hour, before, 2) != 0)
            add_period(ns_key, t, PERIOD_MONTH);
        memcpy(before, hour, sizeof(hour));
    }
}

static void add_total(const char *ns_key, unsigned counts)
{
    char hour[HOUR_TEXT_MAX + 1];
    struct buf line = {0};
    buf_append_str(&line, ns_key);
    for (unsigned i = 0; i < counts; i++) {
        hour_encode(FIRST + 3600 * (int64_t)i, hour);
        buf_printf(&line, "%c%s:%u", i ? ' ' : ',', hour, 1 + at_random(100));
    }
    buf_append_char(&line, '\n');
    add(lines, &n_lines, &line);
    buf_free(&line);
}

static void add_hashed(unsigned i)
{
    char text[32], hash[COMPONENT_HASH + 1], key[32];
    struct buf line = {0};
    snprintf(text, sizeof(text), "a long text %03u", i);
    struct bytes stored = component_store(bytes_str(text), hash);
    snprintf(key, sizeof(key), "u|%.*s", (int)stored.len, stored.ptr);
    add_total(key, 1 + at_random(5));
    buf_printf(&line, "lookup|%.*s,%s\n", (int)stored.len, stored.ptr, text);
    add(lines, &n_lines, &line);
    buf_printf(&line, "%s,%.*s\n", text, (int)stored.len, stored.ptr);
    add(texts, &n_texts, &line);
    buf_free(&line);
}

static struct bytes key_of(const char *line)
{
    return bytes_of(line, strcspn(line, ","));
}

static uint32_t shard_of(const char *line, unsigned shards)
{
    struct record_key k;
    assert_true(record_key_parse(key_of(line), &k));
    return record_shard(&k, shards);
}

static void begin(unsigned shards)
{
    struct buf records[MAKE_SHARDS_MAX] = {{0}}, of_texts[MAKE_SHARDS_MAX] = {{0}};
    n_lines = n_texts = 0;
    for (unsigned i = 0; i < 200; i++) {
        char key[16];
        snprintf(key, sizeof(key), "%c|k%02u", i < 100 ? 'u' : 'h', i % 100);
        if (at_random(3))
            add_total(key, 1 + at_random(30));
    }
    for (unsigned i = 0; i < 60; i++)
        add_hashed(i);
    add_total("u|long", LONG_COUNTS);
    add_subtotal("c.u|k01", 2);
    add_subtotal("c.u|k010", 30);
    add_subtotal("c.u|k02", 9);
    qsort(lines, n_lines, sizeof(*lines), compare);
    qsort(texts, n_texts, sizeof(*texts), compare);
    for (size_t i = 0; i < n_lines; i++)
        buf_append_str(&records[shard_of(lines[i], shards)], lines[i]);
    for (size_t i = 0; i < n_texts; i++) {
        char lookup[40];
        snprintf(lookup, sizeof(lookup), "lookup|%.12s,", strchr(texts[i], ',') + 1);
        buf_append_str(&of_texts[shard_of(lookup, shards)], texts[i]);
    }
    make_generation(&made, shards, records, of_texts);
    g = open_made(&made);
    for (unsigned i = 0; i < shards; i++) {
        buf_free(&records[i]);
        buf_free(&of_texts[i]);
    }
}

static void end(void)
{
    generation_unref(&g);
    remove_made(&made);
    while (n_lines > 0)
        free(lines[--n_lines]);
    while (n_texts > 0)
        free(texts[--n_texts]);
}

static void read_all(struct archive_read *r, bool in_pieces, struct buf *out)
{
    struct bytes piece;
    struct error error;
    while (archive_read_next(r, &piece)) {
        assert_true(in_pieces ? piece.len > 0 && piece.len <= ARCHIVE_PIECE : bytes_count_lines(piece) <= 1);
        buf_append_bytes(out, piece);
    }
    assert_true(archive_read_is_whole(r, &error));
}

static void check(const char *target, const struct buf *expected)
{
    struct buf found = {0};
    struct archive_read *r = archive_read_new(g, target);
    assert_non_null(r);
    read_all(r, true, &found);
    if (!bytes_equal(buf_bytes(&found), buf_bytes(expected)))
        fail_msg("%s: %zu bytes, not %zu", target, found.len, expected->len);
    assert_int_equal(archive_read_continuation(r).len, 0);
    assert_int_equal(archive_read_info(r).through, 7);
    archive_read_free(&r);
    buf_free(&found);
}

static void append_key_at_random(struct buf *out)
{
    struct bytes key = key_of(lines[at_random((unsigned)n_lines)]);
    struct buf changed = {0};
    buf_append_bytes(&changed, key);
    if (at_random(4) == 0)
        buf_append_char(&changed, "0!~"[at_random(3)]);
    url_encode(buf_bytes(&changed), out);
    buf_free(&changed);
}

static void append_line_of(struct bytes key, struct buf *out)
{
    for (size_t i = 0; i < n_lines; i++)
        if (bytes_equal(key_of(lines[i]), key))
            buf_append_str(out, lines[i]);
}

static void single_records(void **state)
{
    (void)state;
    for (unsigned shards = 1; shards <= 3; shards += 2) {
        begin(shards);
        for (int round = 0; round < 300; round++) {
            struct buf target = {0}, expected = {0}, key = {0}, raw = {0};
            buf_append_str(&target, "/mget?");
            for (unsigned i = 0, n = 1 + at_random(9); i < n; i++) {
                buf_clear(&key);
                buf_clear(&raw);
                append_key_at_random(&key);
                bool is_long = at_random(20) == 0;
                buf_printf(&target, "%s%s%.*s", i ? "&" : "",
                    at_random(9) ? "k=" : "no=", is_long ? 6 : (int)key.len, is_long ? "u|long" : key.ptr);
                const char *asked = target.ptr + target.len - (is_long ? 6 : key.len);
                assert_int_equal(url_decode(bytes_of(asked, is_long ? 6 : key.len), &raw), 0);
                if (asked[-2] == 'k')
                    append_line_of(buf_bytes(&raw), &expected);
            }
            buf_append_char(&target, '\0');
            check(target.ptr, &expected);
            buf_free(&target);
            buf_free(&expected);
            buf_free(&key);
            buf_free(&raw);
        }
        end();
    }
}

/* The order of records: of their keys with the separator. */
static int order_keys(struct bytes a, struct bytes b)
{
    return record_key_compare(a, b, RECORD_SEPARATOR);
}

static void ranges_of_lines(void **state)
{
    (void)state;
    for (unsigned shards = 1; shards <= 3; shards += 2) {
        begin(shards);
        for (int round = 0; round < 300; round++) {
            struct buf target = {0}, expected = {0}, start = {0}, last = {0};
            append_key_at_random(&start);
            append_key_at_random(&last);
            buf_printf(
                &target, "/range?start=%.*s&end=%.*s", (int)start.len, start.ptr, (int)last.len, last.ptr);
            buf_append_char(&target, '\0');
            struct buf from = {0}, to = {0};
            url_decode(buf_bytes(&start), &from);
            url_decode(buf_bytes(&last), &to);
            for (size_t i = 0; i < n_lines; i++)
                if (order_keys(key_of(lines[i]), buf_bytes(&from)) >= 0 &&
                    order_keys(key_of(lines[i]), buf_bytes(&to)) <= 0)
                    buf_append_str(&expected, lines[i]);
            check(target.ptr, &expected);
            buf_free(&target);
            buf_free(&expected);
            buf_free(&start);
            buf_free(&last);
            buf_free(&from);
            buf_free(&to);
        }
        end();
    }
}

/* Appends the counts of these sub keys, in that order. */
static void append_subs(const char *line, const char *const *subs, unsigned n, struct buf *out)
{
    struct buf found = {0};
    for (unsigned i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof(name), "%s:", subs[i]);
        for (const char *p = line + key_of(line).len; *p != '\n'; p += 1 + strcspn(p + 1, " \n"))
            if (strncmp(p + 1, name, strlen(name)) == 0)
                buf_printf(&found, "%c%.*s", found.len ? ' ' : ',', (int)strcspn(p + 1, " \n"), p + 1);
    }
    if (found.len > 0) {
        buf_append_bytes(out, key_of(line));
        buf_append_bytes(out, buf_bytes(&found));
        buf_append_char(out, '\n');
    }
    buf_free(&found);
}

/* A record is taken if it lies in the span as a whole, is not too long a period, and no record before includes it. */
static void model_rollups(const char *ns_key, int64_t from, int64_t to, enum period_unit largest,
    const char *const *subs, unsigned n_subs, struct buf *out)
{
    int64_t covered = from;
    for (size_t i = 0; i < n_lines; i++) {
        struct record_key k;
        record_key_parse(key_of(lines[i]), &k);
        if (strncmp(lines[i], ns_key, strlen(ns_key)) != 0 || lines[i][strlen(ns_key)] != '.')
            continue;
        int64_t until = period_end(k.unit, k.start);
        if (k.unit > largest || k.start < covered || until > to)
            continue;
        covered = until;
        if (n_subs > 0)
            append_subs(lines[i], subs, n_subs, out);
        else
            buf_append_str(out, lines[i]);
    }
}

static void ranges_with_rollups(void **state)
{
    (void)state;
    static const char *const units[] = {"hour", "day", "month"};
    static const char *const subs[] = {"US", "DE", "XX"};
    static const char *const keys[] = {"c.u|k01", "c.u|k010", "c.u|k02", "c.u|none"};
    for (unsigned shards = 1; shards <= 3; shards += 2) {
        begin(shards);
        for (int round = 0; round < 300; round++) {
            struct buf target = {0}, expected = {0};
            char first[HOUR_TEXT_MAX + 1], last[HOUR_TEXT_MAX + 1];
            const char *key = keys[at_random(4)];
            int unit = (int)at_random(3);
            unsigned n_subs = at_random(4);
            int64_t from = FIRST + 3600 * (int64_t)at_random(HOURS),
                    to = from + 3600 * (int64_t)at_random(HOURS);
            hour_encode(from, first);
            hour_encode(to, last);
            buf_printf(
                &target, "/range?start=%s.%s&end=%s.%s&rollups=%s", key, first, key, last, units[unit]);
            for (unsigned i = 0; i < n_subs; i++)
                buf_printf(&target, "&sub=%s", subs[i]);
            buf_append_char(&target, '\0');
            model_rollups(key, from, to + 3600, (enum period_unit)unit, subs, n_subs, &expected);
            check(target.ptr, &expected);
            buf_free(&target);
            buf_free(&expected);
        }
        end();
    }
}

static void keys_by_their_texts(void **state)
{
    (void)state;
    for (unsigned shards = 1; shards <= 3; shards += 2) {
        struct buf whole = {0}, parts = {0}, start = {0};
        begin(shards);
        struct archive_read *r = archive_read_new(g, "/keys?prefix=&limit=100000&ns=u&ns=h");
        read_all(r, false, &whole);
        assert_int_equal(archive_read_continuation(r).len, 0);
        archive_read_free(&r);
        size_t n = 0;
        for (size_t i = 0; i < n_lines; i++) {
            struct record_key k;
            record_key_parse(key_of(lines[i]), &k);
            bool is_twice = *lines[i] == 'h' && memmem(whole.ptr, whole.len, lines[i] + 2, 3) != NULL;
            struct buf other = {0};
            buf_printf(&other, "u|%.*s", (int)k.key.len, k.key.ptr);
            struct buf found = {0};
            append_line_of(buf_bytes(&other), &found);
            n += !k.is_subtotal && !k.is_lookup && !(is_twice && found.len > 0);
            buf_free(&found);
            buf_free(&other);
        }
        assert_int_equal(bytes_count_lines(buf_bytes(&whole)), n);
        do {
            struct buf target = {0};
            buf_append_str(&target, "/keys?prefix=&limit=7&ns=u&ns=h&start=");
            url_encode(buf_bytes(&start), &target);
            buf_append_char(&target, '\0');
            r = archive_read_new(g, target.ptr);
            read_all(r, false, &parts);
            buf_clear(&start);
            buf_append_bytes(&start, archive_read_continuation(r));
            archive_read_free(&r);
            buf_free(&target);
        } while (start.len > 0);
        assert_true(bytes_equal(buf_bytes(&parts), buf_bytes(&whole)));
        buf_free(&whole);
        buf_free(&parts);
        buf_free(&start);
        end();
    }
}

static void malformed_requests_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"/mget", "/get?key=u", "/range", "/range?start=u", "/range?end=u",
        "/mget?k=%zz", "/range?start=c.u|k.c413&end=c.u|k.c413&rollups=year",
        "/range?start=c.u|k.c413&end=c.u|j.c413&rollups=day", "/range?start=u|k&end=u|k&rollups=day",
        "/keys?prefix=a", "/keys?limit=5", "/keys?prefix=a&limit=x", "/keys", "mget?k=u", ""};
    begin(3);
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        assert_null(archive_read_new(g, bad[i]));
    end();
}

static void a_read_keeps_its_generation_and_notices_damage(void **state)
{
    (void)state;
    char path[128];
    struct error error;
    struct bytes piece;
    struct buf found = {0}, expected = {0};
    begin(1);
    struct archive_read *r = archive_read_new(g, "/mget?k=u|long");
    generation_unref(&g);
    read_all(r, true, &found);
    append_line_of(BYTES_LITERAL("u|long"), &expected);
    assert_true(bytes_equal(buf_bytes(&found), buf_bytes(&expected)));
    assert_true(found.len > ARCHIVE_PIECE);
    archive_read_free(&r);
    g = open_made(&made);
    r = archive_read_new(g, "/mget?k=u|long");
    assert_true(archive_read_next(r, &piece));
    snprintf(path, sizeof(path), "%s/000000000001/shard-0-of-1.csv", made.archive);
    assert_int_equal(truncate(path, 4096), 0);
    while (archive_read_next(r, &piece))
        buf_append_bytes(&found, piece);
    assert_false(archive_read_is_whole(r, &error));
    assert_non_null(strstr(error.text, "shard-0-of-1.csv"));
    archive_read_free(&r);
    buf_free(&found);
    buf_free(&expected);
    end();
}

/* The last line of a single file may lack its LF; an answer's last line does not. */
static void every_line_of_an_answer_has_its_end(void **state)
{
    (void)state;
    char path[64];
    struct error error;
    struct buf expected = {0};
    make_test_file(path, sizeof path);
    int fd = open(path, O_WRONLY);
    assert_int_equal(io_write_all(fd, "a,1\nb,2", 7, 0), 0);
    close(fd);
    const struct generation_source source = {.db_file = path, .separator = ','};
    assert_int_equal(generation_open(&source, NULL, NULL, &g, &error), SORTED_FILE_OK);
    static const char *const targets[] = {"/mget?k=b&k=a", "/range?start=a&end=c", "/mget?k=b"};
    static const char *const answers[] = {"b,2\na,1\n", "a,1\nb,2\n", "b,2\n"};
    for (size_t i = 0; i < 3; i++) {
        struct archive_read *r = archive_read_new(g, targets[i]);
        buf_clear(&expected);
        read_all(r, true, &expected);
        assert_true(bytes_equal_str(buf_bytes(&expected), answers[i]));
        archive_read_free(&r);
    }
    assert_null(archive_read_new(g, "/keys?prefix=&limit=5&ns=u")); /* it has no texts */
    generation_unref(&g);
    buf_free(&expected);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(single_records),
        cmocka_unit_test(ranges_of_lines),
        cmocka_unit_test(ranges_with_rollups),
        cmocka_unit_test(keys_by_their_texts),
        cmocka_unit_test(malformed_requests_are_refused),
        cmocka_unit_test(a_read_keeps_its_generation_and_notices_damage),
        cmocka_unit_test(every_line_of_an_answer_has_its_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
