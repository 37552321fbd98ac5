/* merge: counts add up, whatever is merged with what first; order, shards and damage. */
#include "support/cm.h"

#include "support/make_slice.h"
#include "support/test_dir.h"
#include "compactor/merge.h"
#include "compactor/record_source.h"
#include "counts/records.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <xxhash.h>

#define COUNTERS "total u key = l\n"

static char dir[64];
static struct error error;
static struct merge_report report;

static int set_up(void **state)
{
    (void)state;
    make_test_dir(dir, sizeof dir);
    return 0;
}

static int tear_down(void **state)
{
    char command[96];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}

static char *path_of(const char *name)
{
    static char path[2][128];
    static int turn;
    turn = !turn;
    snprintf(path[turn], sizeof path[turn], "%s/%s", dir, name);
    return path[turn];
}

static void write_file(const char *name, struct bytes text)
{
    FILE *f = fopen(path_of(name), "wb");
    assert_non_null(f);
    fwrite(text.ptr, 1, text.len, f);
    fclose(f);
}

static void read_file(const char *name, struct buf *out)
{
    FILE *f = fopen(path_of(name), "rb");
    size_t n;
    assert_non_null(f);
    do {
        buf_reserve(out, 4096);
        n = fread(out->ptr + out->len, 1, 4096, f);
        out->len += n;
    } while (n);
    fclose(f);
}

static struct manifest_file facts_of(struct bytes text)
{
    struct manifest_file f = {.bytes = text.len, .xxh3 = XXH3_64bits(text.ptr, text.len)};
    for (size_t i = 0; i < text.len; i++)
        f.records += text.ptr[i] == '\n';
    return f;
}

static struct count_source *open_text(const char *name, const char *text)
{
    struct count_source *s = NULL;
    struct manifest_file f = facts_of(bytes_str(text));
    write_file(name, bytes_str(text));
    assert_int_equal(record_source_open_shard(path_of(name), &f, &s, &error), COMPACT_OK);
    return s;
}

static struct record_reader *open_made(const char *name, const struct manifest_file *file)
{
    int fd = open(path_of(name), O_RDONLY);
    assert_true(fd >= 0);
    return record_reader_new(fd, path_of(name), file, RECORD_READER_BYTES_MIN);
}

/* What a merge made, which the next one amends. */
static struct manifest_file made[8], made_texts[8];
static size_t memory;
static int64_t hours_from;

/* Merges the sources, and with `amend` the files of the merge before, into shard-K-of-SHARDS.csv; closes the sources. */
static enum compact_result merge_onto(bool amend, uint32_t shards, struct count_source **sources, size_t n)
{
    struct merge_shard to[8] = {0};
    char name[MANIFEST_NAME_TEXT];
    for (uint32_t k = 0; k < shards; k++) {
        if (amend) {
            to[k].old = open_made(made[k].name, &made[k]);
            to[k].old_texts = open_made(made_texts[k].name, &made_texts[k]);
        }
        for (int kind = MANIFEST_RECORDS; kind <= MANIFEST_TEXTS; kind++) {
            manifest_file_name(kind, k, shards, name);
            unlink(path_of(name));
        }
        assert_int_equal(
            shard_writer_open(dir, MANIFEST_RECORDS, k, shards, 1000, &to[k].records, &error), COMPACT_OK);
        assert_int_equal(
            shard_writer_open(dir, MANIFEST_TEXTS, k, shards, 1000, &to[k].texts, &error), COMPACT_OK);
    }
    struct merge_spec spec = {.sources = sources,
        .n_sources = n,
        .shards = to,
        .n_shards = shards,
        .memory = memory ? memory : 1 << 20,
        .hours_from = hours_from,
        .directory = dir};
    enum compact_result r = merge_run(&spec, &report, &error);
    for (uint32_t k = 0; k < shards; k++) {
        if (r == COMPACT_OK) {
            assert_int_equal(shard_writer_finish(to[k].records, &made[k], &error), COMPACT_OK);
            assert_int_equal(shard_writer_finish(to[k].texts, &made_texts[k], &error), COMPACT_OK);
        }
        shard_writer_close(&to[k].records);
        shard_writer_close(&to[k].texts);
        if (amend) {
            struct count_source *old[] = {&to[k].old->base, &to[k].old_texts->base};
            count_source_close(&old[0]);
            count_source_close(&old[1]);
        }
    }
    for (size_t i = 0; i < n; i++)
        count_source_close(&sources[i]);
    return r;
}

static enum compact_result merge_into(uint32_t shards, struct count_source **sources, size_t n)
{
    return merge_onto(false, shards, sources, n);
}

/* Merges texts into one; *out is replaced. */
static enum compact_result merge_texts(const char *const *texts, size_t n, struct buf *out)
{
    struct count_source *sources[8];
    for (size_t i = 0; i < n; i++) {
        char name[32];
        snprintf(name, sizeof name, "in-%zu", i);
        sources[i] = open_text(name, texts[i]);
    }
    enum compact_result r = merge_into(1, sources, n);
    buf_clear(out);
    if (r == COMPACT_OK)
        read_file("shard-0-of-1.csv", out);
    return r;
}

static void assert_text(const struct buf *got, const char *expected)
{
    if (!bytes_equal_str(buf_bytes(got), expected))
        fail_msg("got:\n%.*sinstead of:\n%s", (int)got->len, got->ptr, expected);
}

static void counts_of_one_key_add_up(void **state)
{
    (void)state;
    struct buf out = {0};
    const char *const texts[] = {
        "c.u|jehiah.c41l,JP:1 US:4\nu|a!x,c413:1\nu|a,c413:1\nu|jehiah,c413:2 c41l:5\n",
        "c.u|jehiah.c41l,:7 JP:2 ZA:1\nu|jehiah,c412:1 c413:1\n", "",
        "u|a,c413:9223372036854775806\nu|a-,c413:1\nu|jehiah,w0110:1\n"};
    assert_int_equal(merge_texts(texts, 4, &out), COMPACT_OK);
    assert_text(&out,
        "c.u|jehiah.c41l,:7 JP:3 US:4 ZA:1\nu|a!x,c413:1\nu|a,c413:9223372036854775807\nu|a-,c413:1\n"
        "u|jehiah,c412:1 c413:3 c41l:5 w0110:1\n");
    assert_int_equal(report.records, 5);
    assert_int_equal(report.collisions, 0);
    buf_free(&out);
}

static void values_add_up_and_stay_at_0(void **state)
{
    (void)state;
    struct buf out = {0};
    const char *const texts[] = {
        "c.r|a.c41l,JP:-1 US:4\nr|a,c413:-9223372036854775808 c41l:300\nr|b,c413:0\n",
        "c.r|a.c41l,JP:1 US:-5 ZA:0\nr|a,c413:9223372036854775807 c41l:-300\n"};
    assert_int_equal(merge_texts(texts, 2, &out), COMPACT_OK);
    assert_text(&out, "c.r|a.c41l,JP:0 US:-1 ZA:0\nr|a,c413:-1 c41l:0\nr|b,c413:0\n");
    static const char *const small[] = {"r|a,c413:-9223372036854775808\n", "r|a,c413:-1\n"};
    assert_int_equal(merge_texts(small, 2, &out), COMPACT_REFUSED);
    buf_free(&out);
}

static void the_smaller_text_of_a_lookup_is_kept_and_told(void **state)
{
    (void)state;
    struct buf out = {0};
    /* as they are the texts are ordered \x01 < A; escaped it is the other way round */
    const char *const texts[] = {
        "lookup|h0aMB8AuNw4=,A\n", "lookup|h0aMB8AuNw4=,\\x01\n", "lookup|h0aMB8AuNw4=,B\n"};
    assert_int_equal(merge_texts(texts, 3, &out), COMPACT_OK);
    assert_text(&out, "lookup|h0aMB8AuNw4=,\\x01\n");
    assert_int_equal(report.collisions, 2);
    assert_string_equal(report.collision, "lookup|h0aMB8AuNw4=");
    assert_int_equal(merge_texts((const char *const[]){texts[0], texts[0]}, 2, &out), COMPACT_OK);
    assert_int_equal(report.collisions, 0);
    buf_free(&out);
}

static void what_is_damaged_is_refused(void **state)
{
    (void)state;
    struct buf out = {0};
    static const char *const bad[] = {"u|b,c413:1\nu|a,c413:1\n", /* order */
        "u|a,c413:1\nu|a,c413:1\n",                               /* a key twice */
        "u|a,c413:1\nu|a!x,c413:1\n",                             /* key order is not line order */
        "u|a,c413:1", "u|a\n", "\n", "nothing,c413:1\n", "c.u|a.c,US:1\n", "u|a.b,c413:1\n"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(merge_texts(&bad[i], 1, &out), COMPACT_DAMAGED);
    static const char *const pairs[][2] = {{"u|a,c413:x\n", "u|a,c413:1\n"}, {"u|a,c413\n", "u|a,c413:1\n"},
        {"lookup|h0aMB8AuNw4=,\\q\n", "lookup|h0aMB8AuNw4=,x\n"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        assert_int_equal(merge_texts(pairs[i], 2, &out), COMPACT_DAMAGED);
    static const char *const large[] = {"u|a,c413:9223372036854775807\n", "u|a,c413:1\n"};
    assert_int_equal(merge_texts(large, 2, &out), COMPACT_REFUSED);
    buf_free(&out);
}

static void a_shard_must_be_what_its_manifest_says(void **state)
{
    (void)state;
    struct bytes text = BYTES_LITERAL("u|a,c413:1\nu|b,c413:1\n");
    struct manifest_file good = facts_of(text), changed[3] = {good, good, good};
    changed[0].records++;
    changed[1].bytes--;
    changed[2].xxh3 ^= 1;
    write_file("in", text);
    for (int i = 0; i < 4; i++) {
        struct count_source *s = NULL;
        const struct manifest_file *f = i < 3 ? &changed[i] : &good;
        assert_int_equal(record_source_open_shard(path_of("in"), f, &s, &error), COMPACT_OK);
        assert_int_equal(merge_into(1, &s, 1), i < 3 ? COMPACT_DAMAGED : COMPACT_OK);
    }
}

static void lines_longer_than_any_buffer(void **state)
{
    (void)state;
    struct buf text = {0}, out = {0};
    for (int line = 0; line < 3; line++) {
        buf_printf(&text, "c.u|k%d.c413,", line);
        for (int i = 0; i < 400000; i++)
            buf_printf(&text, "%s%06d:1", i ? " " : "", i);
        buf_append_char(&text, '\n');
    }
    buf_append_char(&text, '\0');
    assert_int_equal(
        merge_texts((const char *const[]){text.ptr, "c.u|k1.c413,000001:1\n"}, 2, &out), COMPACT_OK);
    assert_int_equal(out.len, text.len - 1);
    assert_non_null(memmem(out.ptr, out.len, " 000001:2 ", 10));
    buf_free(&text);
    buf_free(&out);
}

/* The runs of a slice, as sources. */
static enum compact_result merge_slice(const char *path)
{
    struct count_source *sources[4];
    struct slice_reader *reader;
    assert_int_equal(record_source_open_slice(path, &reader, &error), COMPACT_OK);
    size_t n = slice_reader_runs(reader);
    assert_in_range(n, 0, 4);
    for (size_t i = 0; i < n; i++)
        sources[i] = slice_reader_source(reader, i, BYTES_NONE);
    enum compact_result r = merge_into(1, sources, n);
    slice_reader_close(&reader);
    return r;
}

static void counts_of_a_slice_are_records(void **state)
{
    (void)state;
    struct buf out = {0};
    static const struct slice_row rows[] = {{"c.u|jehiah.c413,JP", 1, NULL}, {"c.u|jehiah.c413,US", 2, NULL},
        {"u|jehiah!,c413", 1, NULL}, {"u|jehiah,c413", 2, NULL}, {"u|jehiah,c41l", 5, NULL},
        {"u|jehiah-,c413", 1, NULL}, {NULL, 0, NULL}};
    static const struct slice_row texts[] = {
        {"lookup|h0aMB8AuNw4=,", 0, "a, b\\c\n"}, {"u|a,c413", 1, NULL}, {NULL, 0, NULL}};
    static const struct slice_row bad[] = {{"nothing,c413", 1, NULL}, {NULL, 0, NULL}};
    make_slice(path_of("1.db"), 1, COUNTERS, bad);
    assert_int_equal(merge_slice(path_of("1.db")), COMPACT_DAMAGED); /* no key of a record */
    make_slice(path_of("2.db"), 2, COUNTERS, texts);
    assert_int_equal(merge_slice(path_of("2.db")), COMPACT_OK);
    read_file("shard-0-of-1.csv", &out);
    assert_text(&out, "lookup|h0aMB8AuNw4=,a, b\\\\c\\x0a\nu|a,c413:1\n");
    buf_clear(&out);
    make_slice(path_of("3.db"), 3, COUNTERS, rows);
    assert_int_equal(merge_slice(path_of("3.db")), COMPACT_OK);
    read_file("shard-0-of-1.csv", &out);
    assert_text(
        &out, "c.u|jehiah.c413,JP:1 US:2\nu|jehiah!,c413:1\nu|jehiah,c413:2 c41l:5\nu|jehiah-,c413:1\n");
    buf_free(&out);
}

static void a_slice_without_a_log_has_facts(void **state)
{
    (void)state;
    struct slice_facts f;
    make_slice(
        path_of("1.db"), 1, COUNTERS, (const struct slice_row[]){{"u|a,c413", 1, NULL}, {NULL, 0, NULL}});
    assert_int_equal(slice_facts_read(path_of("1.db"), &f, &error), COMPACT_OK);
    assert_int_equal(f.number, 1);
    assert_int_equal(f.n_streams, 1);
    assert_int_equal(f.streams[0].end, 1000);
    assert_string_equal(f.streams[0].id, "c0ffee");
    slice_facts_free(&f);
    write_file("1.db-wal", BYTES_LITERAL(""));
    assert_int_equal(slice_facts_read(path_of("1.db"), &f, &error), COMPACT_OK);
    slice_facts_free(&f);
    write_file("2.db",
        BYTES_LITERAL("not a database, but as long as a header of one would be, and a bit longer than "
                      "that, to be sure"));
    assert_int_equal(slice_facts_read(path_of("2.db"), &f, &error), COMPACT_DAMAGED);
    assert_int_equal(slice_facts_read(path_of("3.db"), &f, &error), COMPACT_REFUSED);
}

static sqlite3 *open_slice(const char *name)
{
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path_of(name), &db), SQLITE_OK);
    return db;
}

static void run_sql(sqlite3 *db, const char *sql)
{
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
}

static void copy_file(const char *from, const char *to)
{
    struct buf data = {0};
    read_file(from, &data);
    write_file(to, buf_bytes(&data));
    buf_free(&data);
}

/* The seal is in the log: a reader that began before it keeps the log, or a reader was killed. */
static void a_sealed_slice_is_read_with_its_log(void **state)
{
    (void)state;
    struct slice_facts f;
    make_slice(
        path_of("1.db"), 1, COUNTERS, (const struct slice_row[]){{"u|a,c413", 1, NULL}, {NULL, 0, NULL}});
    sqlite3 *writer = open_slice("1.db"), *reader = open_slice("1.db");
    run_sql(writer, "UPDATE meta SET value = 0 WHERE key = 'sealed'; PRAGMA wal_checkpoint");
    run_sql(reader, "BEGIN; SELECT * FROM meta");
    run_sql(writer, "UPDATE meta SET value = 1 WHERE key = 'sealed'");
    sqlite3_close(writer);
    copy_file("1.db", "2.db");
    copy_file("1.db-wal", "2.db-wal");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(slice_facts_read(path_of(i == 0 ? "1.db" : "2.db"), &f, &error), COMPACT_OK);
        slice_facts_free(&f);
        assert_int_equal(access(path_of("1.db-wal"), F_OK), 0);
    }
    sqlite3_close(reader);
    assert_int_not_equal(access(path_of("2.db-wal"), F_OK), 0);
}

/* The law: merging is adding, in any order. */

#define KEYS 60

/* A text of some of the keys with random counts, which are added to the model as well. */
static void random_text(unsigned *seed, uint64_t model[KEYS][3], struct buf *out)
{
    static const char *const hours[] = {"c413", "c41l", "w0110"};
    buf_clear(out);
    for (int k = 0; k < KEYS; k++) {
        size_t start = out->len;
        if (rand_r(seed) % 3 == 0)
            continue;
        buf_printf(out, "u|common%03d,", k);
        bool any = false;
        for (int h = 0; h < 3; h++) {
            unsigned n = (unsigned)rand_r(seed) % 4;
            model[k][h] += n;
            if (n)
                buf_printf(out, "%s%s:%u", any ? " " : "", hours[h], n);
            any = any || n;
        }
        if (any)
            buf_append_char(out, '\n');
        else
            out->len = start;
    }
    buf_append_char(out, '\0');
}

static void print_model(uint64_t model[KEYS][3], struct buf *out)
{
    static const char *const hours[] = {"c413", "c41l", "w0110"};
    for (int k = 0; k < KEYS; k++) {
        bool any = false;
        for (int h = 0; h < 3; h++) {
            if (!model[k][h])
                continue;
            if (any)
                buf_append_char(out, ' ');
            else
                buf_printf(out, "u|common%03d,", k);
            buf_printf(out, "%s:%llu", hours[h], (unsigned long long)model[k][h]);
            any = true;
        }
        if (any)
            buf_append_char(out, '\n');
    }
    buf_append_char(out, '\0');
}

static void the_order_of_merging_does_not_matter(void **state)
{
    (void)state;
    for (unsigned round = 1; round <= 20; round++) {
        unsigned seed = round;
        uint64_t model[KEYS][3] = {{0}};
        struct buf texts[4] = {{0}}, expected = {0}, out = {0}, half = {0};
        const char *all[4];
        for (int i = 0; i < 4; i++) {
            random_text(&seed, model, &texts[i]);
            all[3 - i] = texts[i].ptr;
        }
        print_model(model, &expected);
        assert_int_equal(merge_texts(all, 4, &out), COMPACT_OK);
        assert_text(&out, expected.ptr);
        assert_int_equal(merge_texts(all, 2, &half), COMPACT_OK);
        buf_append_char(&half, '\0');
        assert_int_equal(merge_texts((const char *const[]){all[2], half.ptr, all[3]}, 3, &out), COMPACT_OK);
        assert_text(&out, expected.ptr);
        for (int i = 0; i < 4; i++)
            buf_free(&texts[i]);
        buf_free(&expected);
        buf_free(&out);
        buf_free(&half);
    }
}

static void shards_merge_back_into_one(void **state)
{
    (void)state;
    unsigned seed = 9;
    uint64_t model[KEYS][3] = {{0}};
    struct buf text = {0}, out = {0};
    struct count_source *s[4] = {0};
    random_text(&seed, model, &text);
    s[0] = open_text("in", text.ptr);
    assert_int_equal(merge_into(4, s, 1), COMPACT_OK);
    for (uint32_t k = 0; k < 4; k++) {
        char name[MANIFEST_NAME_TEXT];
        manifest_file_name(MANIFEST_RECORDS, k, 4, name);
        struct buf shard = {0};
        read_file(name, &shard);
        assert_true(shard.len > 0);
        struct manifest_file f = facts_of(buf_bytes(&shard));
        assert_int_equal(record_source_open_shard(path_of(name), &f, &s[k], &error), COMPACT_OK);
        buf_free(&shard);
    }
    assert_int_equal(merge_into(1, s, 4), COMPACT_OK);
    read_file("shard-0-of-1.csv", &out);
    assert_text(&out, text.ptr);
    buf_free(&text);
    buf_free(&out);
}

/* Rollups: after each of many merges the file is what the sum of all counts so far prints from scratch. */

#define PEOPLE 5
#define HOURS 24
#define SUBS 4
#define LINES_MAX 4000

/* Months of one day, days of one hour, ends of months and years, and the first year with a letter. */
static const char *const rollup_hours[HOURS] = {"c313", "c314", "c31n", "c320", "c3v0", "c3vn", "c410",
    "c41l", "c41m", "c421", "c513", "cc15", "cc1n", "ccvn", "d110", "d111", "d1v0", "vcvm", "vcvn", "w0110",
    "w0111", "w0120", "w0210", "z0110"};

struct rollup_model {
    uint64_t n[PEOPLE][HOURS][SUBS];
};

static int compare_lines(const void *a, const void *b)
{
    char *const *x = a, *const *y = b;
    return strcmp(*x, *y);
}

/* Prints the sum over the hours whose text begins with `period`; no line if it is zero. */
static void print_period(
    const struct rollup_model *m, int person, const char *period, char *lines[LINES_MAX], size_t *n)
{
    struct buf line = {0};
    size_t begin;
    buf_printf(&line, "c.u|p%d.%s,", person, period);
    begin = line.len;
    for (int s = 0; s < SUBS; s++) {
        uint64_t sum = 0;
        for (int h = 0; h < HOURS; h++)
            sum += strncmp(rollup_hours[h], period, strlen(period)) == 0 ? m->n[person][h][s] : 0;
        if (sum)
            buf_printf(&line, "%sS%d:%llu", line.len > begin ? " " : "", s, (unsigned long long)sum);
    }
    buf_append_char(&line, '\0');
    if (line.len > begin + 1)
        lines[(*n)++] = line.ptr;
    else
        buf_free(&line);
}

/* The parts of a period that have counts: its days or hours. */
static size_t parts_of(const struct rollup_model *m, int person, const char *period)
{
    char seen[HOURS][8];
    size_t n = 0;
    for (int h = 0; h < HOURS; h++) {
        bool any = false;
        char part[8];
        for (int s = 0; s < SUBS; s++)
            any = any || m->n[person][h][s];
        if (!any || strncmp(rollup_hours[h], period, strlen(period)) != 0)
            continue;
        snprintf(part, sizeof part, "%.*s", (int)strlen(period) + 1, rollup_hours[h]);
        bool is_new = true;
        for (size_t i = 0; i < n; i++)
            is_new = is_new && strcmp(seen[i], part) != 0;
        if (is_new)
            memcpy(seen[n++], part, sizeof part);
    }
    return n;
}

static bool is_dropped(const char *hour)
{
    int64_t t;
    enum period_unit unit;
    assert_true(period_decode(bytes_str(hour), &unit, &t));
    return t < hours_from;
}

/* The text of all counts, with rollups or without; sorted, and ended by NUL. */
static void print_counts(const struct rollup_model *m, bool rollups, struct buf *out)
{
    static char *lines[LINES_MAX];
    size_t n = 0;
    for (int p = 0; p < PEOPLE; p++)
        for (int h = 0; h < HOURS; h++) {
            char day[8], month[8];
            const char *hour = rollup_hours[h];
            snprintf(day, sizeof day, "%.*s", (int)strlen(hour) - 1, hour);
            snprintf(month, sizeof month, "%.*s", (int)strlen(hour) - 2, hour);
            bool drops = rollups && is_dropped(hour);
            if (!drops)
                print_period(m, p, hour, lines, &n);
            if (!rollups)
                continue;
            /* each rollup once: at its first hour */
            if ((h == 0 || strncmp(rollup_hours[h - 1], day, strlen(day)) != 0) &&
                (drops || parts_of(m, p, day) > 1))
                print_period(m, p, day, lines, &n);
            if ((h == 0 || strncmp(rollup_hours[h - 1], month, strlen(month)) != 0) &&
                parts_of(m, p, month) > 1)
                print_period(m, p, month, lines, &n);
        }
    qsort(lines, n, sizeof *lines, compare_lines);
    buf_clear(out);
    for (size_t i = 0; i < n; i++) {
        buf_printf(out, "%s\n", lines[i]);
        free(lines[i]);
    }
    buf_append_char(out, '\0');
}

static void add_counts(unsigned *seed, struct rollup_model *all, struct rollup_model *some)
{
    int n = rand_r(seed) % 12;
    memset(some, 0, sizeof *some);
    for (int i = 0; i < n; i++) {
        int p = rand_r(seed) % PEOPLE, h = rand_r(seed) % HOURS, s = rand_r(seed) % SUBS;
        some->n[p][h][s]++;
        all->n[p][h][s]++;
    }
}

static void check_made(uint32_t shards, const char *expected)
{
    struct buf out = {0}, sorted = {0};
    char *lines[LINES_MAX];
    size_t n = 0;
    for (uint32_t k = 0; k < shards; k++)
        read_file(made[k].name, &out);
    buf_append_char(&out, '\0');
    for (char *rest = out.ptr, *line; (line = strsep(&rest, "\n")) && rest;)
        lines[n++] = line;
    qsort(lines, n, sizeof *lines, compare_lines);
    for (size_t i = 0; i < n; i++)
        buf_printf(&sorted, "%s\n", lines[i]);
    buf_append_char(&sorted, '\0');
    if (strcmp(sorted.ptr, expected) != 0)
        fail_msg("hours_from %lld, memory %zu, got:\n%sinstead of:\n%s", (long long)hours_from, memory,
            sorted.ptr, expected);
    buf_free(&out);
    buf_free(&sorted);
}

static void rollups_follow_every_merge(void **state)
{
    (void)state;
    for (unsigned round = 1; round <= 120; round++) {
        static struct rollup_model all, some[2];
        unsigned seed = round;
        uint32_t shards = 1 + round % 2;
        struct buf text[2] = {{0}}, expected = {0};
        memset(&all, 0, sizeof all);
        memory = round % 3 ? 1 << 20 : 64;                                      /* nothing fits into memory */
        hours_from = round % 4 ? 0 : INT64_C(1333238400) + 86400 * (round % 8); /* c4 or later */
        for (int merges = 0; merges < 8; merges++) {
            struct count_source *sources[2];
            for (int i = 0; i < 2; i++) {
                add_counts(&seed, &all, &some[i]);
                print_counts(&some[i], false, &text[i]);
                sources[i] = open_text(i ? "two" : "one", text[i].ptr);
            }
            assert_int_equal(merge_onto(merges > 0, shards, sources, 2), COMPACT_OK);
            print_counts(&all, true, &expected);
            check_made(shards, expected.ptr);
        }
        buf_free(&text[0]);
        buf_free(&text[1]);
        buf_free(&expected);
    }
    memory = 0;
    hours_from = 0;
}

static void assert_texts(const char *expected)
{
    struct buf out = {0};
    read_file("texts-0-of-1.csv", &out);
    assert_text(&out, expected);
    buf_free(&out);
}

/* Texts stay in the order of their keys; a text that loses to a smaller one goes. */
static void texts_follow_the_lookups(void **state)
{
    (void)state;
    struct count_source *s = open_text("in", "lookup|AAAAAAAAAAA=,b,c\nlookup|BBBBBBBBBBB=,b\n");
    assert_int_equal(merge_onto(false, 1, &s, 1), COMPACT_OK);
    assert_texts("b,BBBBBBBBBBB=\nb\\x2cc,AAAAAAAAAAA=\n");
    s = open_text("in", "lookup|AAAAAAAAAAA=,a z\nlookup|BBBBBBBBBBB=,b\nlookup|CCCCCCCCCCC=,aa\n");
    assert_int_equal(merge_onto(true, 1, &s, 1), COMPACT_OK);
    assert_int_equal(report.collisions, 1);
    assert_string_equal(report.collision, "lookup|AAAAAAAAAAA=");
    assert_texts("a z,AAAAAAAAAAA=\naa,CCCCCCCCCCC=\nb,BBBBBBBBBBB=\n");
    s = open_text("in", "lookup|BBBBBBBBBBB=,z\n");
    assert_int_equal(merge_onto(true, 1, &s, 1), COMPACT_OK);
    assert_int_equal(report.collisions, 1);
    assert_texts("a z,AAAAAAAAAAA=\naa,CCCCCCCCCCC=\nb,BBBBBBBBBBB=\n");
}

/* Hours after the last one are appended; others are merged. */
static void totals_are_appended_or_merged(void **state)
{
    (void)state;
    struct buf out = {0};
    struct count_source *s = open_text("in", "u|a,c413:1\nu|b,c413:1\nu|c,c413:1 c415:1\nu|d,c413:1\n");
    assert_int_equal(merge_onto(false, 1, &s, 1), COMPACT_OK);
    s = open_text("in", "u|a,c414:2 w0110:1\nu|b,c413:2 c414:1\nu|c,c414:7\nu|cc,c413:1\n");
    assert_int_equal(merge_onto(true, 1, &s, 1), COMPACT_OK);
    read_file("shard-0-of-1.csv", &out);
    assert_text(&out,
        "u|a,c413:1 c414:2 w0110:1\nu|b,c413:3 c414:1\nu|c,c413:1 c414:7 c415:1\nu|cc,c413:1\nu|d,c413:1\n");
    buf_free(&out);
}

/* Of the old file, what no added record touches is verified too. */
static void a_changed_old_file_is_refused(void **state)
{
    (void)state;
    struct buf out = {0};
    for (int file = 0; file < 2; file++) {
        struct count_source *s = open_text("in", "lookup|AAAAAAAAAAA=,b\nu|a,c413:1\nu|z,c413:1\n");
        assert_int_equal(merge_onto(false, 1, &s, 1), COMPACT_OK);
        const char *name = file ? "texts-0-of-1.csv" : "shard-0-of-1.csv";
        buf_clear(&out);
        read_file(name, &out);
        out.ptr[out.len - 2] ^= 1;
        write_file(name, buf_bytes(&out));
        s = open_text("in", "u|b,c413:1\n");
        assert_int_equal(merge_onto(true, 1, &s, 1), COMPACT_DAMAGED);
        assert_non_null(strstr(error.text, name));
    }
    buf_free(&out);
}

/* The added record is of the month of an old one whose period is damaged. */
static void a_damaged_period_of_the_old_file_is_refused(void **state)
{
    (void)state;
    struct buf out = {0};
    struct count_source *s = open_text("in", "c.u|a.cc10,x:1\n");
    assert_int_equal(merge_onto(false, 1, &s, 1), COMPACT_OK);
    read_file("shard-0-of-1.csv", &out);
    memcpy(out.ptr + strlen("c.u|a.cc"), "zz", 2);
    write_file("shard-0-of-1.csv", buf_bytes(&out));
    s = open_text("in", "c.u|a.cc11,x:1\n");
    assert_int_equal(merge_onto(true, 1, &s, 1), COMPACT_DAMAGED);
    assert_non_null(strstr(error.text, "c.u|a.cczz"));
    buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(counts_of_one_key_add_up, set_up, tear_down),
        cmocka_unit_test_setup_teardown(values_add_up_and_stay_at_0, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_smaller_text_of_a_lookup_is_kept_and_told, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_damaged_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_shard_must_be_what_its_manifest_says, set_up, tear_down),
        cmocka_unit_test_setup_teardown(lines_longer_than_any_buffer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(counts_of_a_slice_are_records, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_slice_without_a_log_has_facts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_sealed_slice_is_read_with_its_log, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_order_of_merging_does_not_matter, set_up, tear_down),
        cmocka_unit_test_setup_teardown(shards_merge_back_into_one, set_up, tear_down),
        cmocka_unit_test_setup_teardown(rollups_follow_every_merge, set_up, tear_down),
        cmocka_unit_test_setup_teardown(texts_follow_the_lookups, set_up, tear_down),
        cmocka_unit_test_setup_teardown(totals_are_appended_or_merged, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_changed_old_file_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_damaged_period_of_the_old_file_is_refused, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
