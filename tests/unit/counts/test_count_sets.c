/* Sets in tables, runs, merges and texts, against a sorted list of (record, code). */
#include "support/cm.h"

#include "compactor/record_reader.h"
#include "compactor/text_record.h"
#include "counts/count_run.h"
#include "counts/count_table.h"
#include "counts/set_text.h"
#include "sets/set_code.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PARTS 5
#define MEMBERS 60000
#define BLOCKS_MAX 400
#define LAST_HOUR_OF_2031 (INT64_C(1956528000) - 3600)

struct row {
    char key[40];
    uint64_t code;
};

static struct row rows[MEMBERS];
static size_t n_rows;
static struct counters *counters;
static struct interner *texts;
static struct count_table *tables[PARTS];

/* A run in memory. */
static struct run {
    uint64_t number;
    struct buf blocks[BLOCKS_MAX];
    size_t n_blocks;
    struct count_run_index *index;
} runs[PARTS];

static int by_key_and_code(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    int order = strcmp(x->key, y->key);
    return order != 0 ? order : (x->code > y->code) - (x->code < y->code);
}

static uint64_t random_code(void)
{
    char text[32];
    switch (random() % 4) {
    case 0:
        return (uint64_t)(random() % 9000); /* enough in a chunk for a bitmap */
    case 1:                                 /* many with the same lower half */
        return (uint64_t)(1 + random() % 16) << 44 | (uint64_t)(random() % 50);
    case 2:
        return (uint64_t)random() * 2 % SET_NUMBER_END;
    default:
        snprintf(text, sizeof text, "visitor-%ld", random() % 4000);
        return set_code(bytes_str(text));
    }
}

/* Adds a member to one or two parts. */
static void add_member(const char *user, size_t unique, int64_t time, uint64_t code)
{
    char hour[HOUR_TEXT_MAX + 1];
    bool by_day = unique == 0;
    int64_t period = by_day ? time - time % SECONDS_PER_DAY : time - time % 3600;
    size_t n = hour_encode(period, hour) - by_day;
    struct count_slot member =
        count_member(tables[0], unique, period, interner_add(texts, bytes_str(user)), code);
    count_table_add(tables[random() % PARTS], &member, 1);
    count_table_add(tables[random() % PARTS], &member, 1);
    struct row *r = &rows[n_rows++];
    snprintf(r->key, sizeof r->key, "%s|%s.%.*s,", by_day ? "v.u" : "h.u", user, (int)n, hour);
    r->code = code;
}

static int set_up(void **state)
{
    (void)state;
    struct config *config = NULL;
    struct error e;
    struct bytes text = BYTES_LITERAL("[input]\ntime = t\n[total u]\nkey = l\n[unique v.u]\nmember = m\n"
                                      "[unique h.u]\nmember = m\nlabel = hourly\nby = hour\n");
    static const char *const users[] = {"a", "a!x", "a-", "ab"};
    srandom(1);
    assert_int_equal(config_parse("test.conf", text, &config, &e), 0);
    assert_int_equal(counters_read(config, &counters, &e), 0);
    config_free(&config);
    texts = interner_new(7);
    n_rows = 0;
    for (size_t i = 0; i < PARTS; i++)
        tables[i] = count_table_new_members(i, 0);
    while (n_rows < MEMBERS)
        add_member(users[random() % 4], (size_t)(random() % 2), LAST_HOUR_OF_2031 + random() % 3 * 3600,
            random_code());
    qsort(rows, n_rows, sizeof *rows, by_key_and_code);
    size_t n = 0;
    for (size_t i = 0; i < n_rows; i++)
        if (n == 0 || by_key_and_code(&rows[n - 1], &rows[i]) != 0)
            rows[n++] = rows[i];
    n_rows = n;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    for (size_t i = 0; i < PARTS; i++) {
        count_table_free(&tables[i]);
        for (size_t k = 0; k < runs[i].n_blocks; k++)
            buf_free(&runs[i].blocks[k]);
        count_run_index_free(&runs[i].index);
        runs[i] = (struct run){0};
    }
    interner_free(&texts);
    counters_free(&counters);
    return 0;
}

static int write_block(void *arg, uint32_t block, struct bytes data)
{
    struct run *run = arg;
    assert_int_equal(block, run->n_blocks);
    assert_true(block < BLOCKS_MAX);
    buf_append_bytes(&run->blocks[run->n_blocks++], data);
    return 0;
}

static int read_block(void *arg, uint64_t number, uint32_t block, struct buf *out, struct error *error)
{
    struct run *run = arg;
    (void)error;
    assert_int_equal(number, run->number);
    buf_append_bytes(out, buf_bytes(&run->blocks[block]));
    return 0;
}

static void make_run(struct run *run, uint64_t number, struct count_source *source)
{
    struct count_merge *m = count_merge_new(&source, 1);
    struct buf index = {0};
    bool write_failed;
    run->number = number;
    struct count_run_writer *w = count_run_writer_new(number, write_block, run);
    assert_int_equal(count_run_writer_copy(w, m, UINT64_MAX / 2, &write_failed), COUNT_END);
    assert_int_equal(count_run_writer_finish(w, &index), 0);
    run->index = count_run_index_parse(number, buf_bytes(&index));
    assert_non_null(run->index);
    count_run_writer_free(&w);
    count_merge_free(&m);
    count_source_close(&source);
    buf_free(&index);
}

static struct count_source *table_source(size_t part)
{
    return count_table_source(tables[part], texts, counters, &(struct count_range){0});
}

/* Sources of all parts; the first `in_runs` of them are runs. */
static void open_sources(size_t in_runs, struct count_source *out[PARTS])
{
    for (size_t i = 0; i < PARTS; i++) {
        if (i < in_runs && !runs[i].index)
            make_run(&runs[i], i + 7, table_source(i));
        out[i] = i < in_runs ? count_run_source(runs[i].index, BYTES_NONE, "memory", read_block, &runs[i])
                             : table_source(i);
    }
}

static void close_sources(struct count_source **sources, size_t n)
{
    for (size_t i = 0; i < n; i++)
        count_source_close(&sources[i]);
}

/* Checks that the chunk holds the rows from *at on, and moves *at after them. */
static void check_chunk(struct bytes key, struct bytes id, struct bytes chunk, size_t *at)
{
    static uint64_t codes[65536];
    char expected[SET_CHUNK_ID];
    assert_true(set_chunk_check(id, chunk));
    size_t n = set_chunk_codes(id, chunk, codes, 65536);
    assert_int_equal(set_chunk_size(id, chunk), n);
    for (size_t i = 0; i < n; i++, (*at)++) {
        assert_true(*at < n_rows);
        assert_true(bytes_equal_str(key, rows[*at].key));
        assert_true(rows[*at].code == codes[i]);
        set_chunk_id(codes[i], expected);
        assert_memory_equal(id.ptr, expected, SET_CHUNK_ID);
    }
}

static void check_merge(struct count_source **sources, size_t n)
{
    struct count_merge *m = count_merge_new(sources, n);
    struct count_value value;
    enum count_next r;
    size_t at = 0;
    while ((r = count_merge_next_record(m)) == COUNT_FOUND) {
        while ((r = count_merge_next_value(m, &value)) == COUNT_FOUND)
            check_chunk(count_merge_key(m), value.name, value.text, &at);
        assert_int_equal(r, COUNT_END);
    }
    assert_int_equal(r, COUNT_END);
    assert_int_equal(at, n_rows);
    count_merge_free(&m);
}

static void chunks_of_tables_and_runs_unite(void **state)
{
    (void)state;
    struct count_source *sources[PARTS];
    for (size_t in_runs = 0; in_runs <= PARTS; in_runs++) {
        open_sources(in_runs, sources);
        check_merge(sources, PARTS);
        close_sources(sources, PARTS);
    }
    open_sources(PARTS, sources);
    assert_true(runs[0].n_blocks > 3);
    close_sources(sources, PARTS);
}

static void a_copied_table_holds_the_same_members(void **state)
{
    (void)state;
    struct count_source *sources[PARTS];
    for (size_t i = 0; i < PARTS; i++) {
        struct count_table *copy = count_table_copy(tables[i]);
        assert_int_equal(count_table_counts(copy), count_table_counts(tables[i]));
        count_table_free(&tables[i]);
        tables[i] = copy;
    }
    open_sources(0, sources);
    check_merge(sources, PARTS);
    close_sources(sources, PARTS);
}

static void picked_members_are_those_of_the_keys_and_counters(void **state)
{
    (void)state;
    static const bool wanted[] = {false, true};
    uint32_t keys[] = {interner_add(texts, BYTES_LITERAL("a!x"))};
    struct count_choice choice = {
        .wanted = wanted, .keys = keys, .n_keys = 1, .n_ids = interner_count(texts)};
    size_t n = 0, left = 0;
    for (size_t i = 0; i < PARTS; i++) {
        struct count_table *picked = count_table_pick(tables[i], &choice);
        assert_non_null(picked);
        if (count_table_counts(picked) > 0) {
            choice.most = count_table_counts(picked) - 1;
            assert_true(choice.most == 0 || !count_table_pick(tables[i], &choice));
            choice.most = 0;
        }
        count_table_free(&tables[i]);
        tables[i] = picked;
    }
    for (size_t i = 0; i < n_rows; i++)
        if (strncmp(rows[i].key, "h.u|a!x.", 8) == 0)
            rows[left++] = rows[i];
    n = n_rows;
    n_rows = left;
    assert_true(left > 0 && left < n);
    struct count_source *sources[PARTS];
    open_sources(0, sources);
    check_merge(sources, PARTS);
    close_sources(sources, PARTS);
}

static void a_read_continues_at_any_chunk(void **state)
{
    (void)state;
    struct count_source *sources[PARTS];
    char id[SET_CHUNK_ID], first_id[SET_CHUNK_ID];
    struct count_value value;
    for (size_t i = 0; i < n_rows; i += 1 + n_rows / 97) {
        size_t first = i;
        open_sources(i % (PARTS + 1), sources);
        size_t n = i % 2 ? PARTS : 1; /* one source alone takes another path */
        struct count_merge *m = count_merge_new(sources, n);
        set_chunk_id(rows[i].code, id);
        enum count_next r;
        while ((r = count_merge_next_record(m)) == COUNT_FOUND &&
               !bytes_equal_str(count_merge_key(m), rows[i].key))
            ;
        for (; first > 0 && strcmp(rows[first - 1].key, rows[i].key) == 0; first--) {
            set_chunk_id(rows[first - 1].code, first_id);
            if (memcmp(first_id, id, SET_CHUNK_ID) != 0)
                break;
        }
        if (r == COUNT_FOUND) {
            assert_int_equal(count_merge_skip_values(m, bytes_of(id, SET_CHUNK_ID)), COUNT_FOUND);
            while ((r = count_merge_next_value(m, &value)) == COUNT_FOUND)
                if (bytes_compare(value.name, bytes_of(id, SET_CHUNK_ID)) >= 0)
                    break;
            if (n == PARTS) {
                assert_int_equal(r, COUNT_FOUND);
                check_chunk(count_merge_key(m), value.name, value.text, &first);
            }
        }
        assert_int_not_equal(r, COUNT_FAILED);
        count_merge_free(&m);
        close_sources(sources, PARTS);
    }
}

/* A set in several blocks: the search for a chunk compares the first names of blocks. */
static void a_chunk_is_found_in_any_block(void **state)
{
    (void)state;
    struct count_value value;
    char text[32], id[SET_CHUNK_ID];
    count_table_free(&tables[0]);
    tables[0] = count_table_new_members(1, 0);
    for (int i = 0; i < 20000; i++) {
        snprintf(text, sizeof text, "visitor-%d", i);
        struct count_slot member = count_member(tables[0], 0, LAST_HOUR_OF_2031 - 23 * 3600,
            interner_add(texts, BYTES_LITERAL("a")), set_code(bytes_str(text)));
        count_table_add(tables[0], &member, 1);
    }
    make_run(&runs[0], 7, table_source(0));
    assert_true(runs[0].n_blocks > 8);
    for (int i = 0; i < 20000; i += 97) {
        snprintf(text, sizeof text, "visitor-%d", i);
        set_chunk_id(set_code(bytes_str(text)), id);
        struct count_source *s = count_run_source(runs[0].index, BYTES_NONE, "memory", read_block, &runs[0]);
        struct count_merge *m = count_merge_new(&s, 1);
        assert_int_equal(count_merge_next_record(m), COUNT_FOUND);
        assert_int_equal(count_merge_next_value(m, &value), COUNT_FOUND);
        if (bytes_compare(value.name, bytes_of(id, SET_CHUNK_ID)) < 0) {
            assert_int_equal(count_merge_skip_values(m, bytes_of(id, SET_CHUNK_ID)), COUNT_FOUND);
            assert_int_equal(count_merge_next_value(m, &value), COUNT_FOUND);
        }
        assert_memory_equal(value.name.ptr, id, SET_CHUNK_ID);
        count_merge_free(&m);
        count_source_close(&s);
    }
}

/* A source of one record with the given values. */
struct values {
    struct count_source base; /* first */
    struct count_value list[2];
    size_t at, n;
    bool is_over;
};

static enum count_next values_next_record(struct count_source *base)
{
    struct values *v = (struct values *)base;
    base->key = BYTES_LITERAL("v.u|a.c41,");
    base->text = BYTES_NONE;
    bool is_over = v->is_over;
    v->is_over = true;
    return is_over ? COUNT_END : COUNT_FOUND;
}

static enum count_next values_next_value(struct count_source *base)
{
    struct values *v = (struct values *)base;
    if (v->at == v->n)
        return COUNT_END;
    base->name = v->list[v->at].name;
    base->text = v->list[v->at].text;
    base->count = v->list[v->at++].count;
    return COUNT_FOUND;
}

static void values_close(struct count_source *base)
{
    (void)base;
}

static struct values values_of(struct count_value a, struct count_value b)
{
    static const struct count_source_kind kind = {values_next_record, values_next_value, values_close, NULL};
    return (struct values){.base.kind = &kind, .list = {a, b}, .n = b.name.len > 0 ? 2 : 1};
}

static const struct count_value good = {.name = {"\0\0\0", 3}, .text = {"\1\0", 2}},
                                unsorted = {.name = {"\0\0\0", 3}, .text = {"\2\0\1\0", 4}},
                                foreign = {.name = {"\1\0\1", 3}, .text = {"\1\0\0\0\0\0\0\0", 8}},
                                count = {.name = {"US", 2}, .count = 3}, none = {.count = 0};

enum { CHOSEN = 10 * SET_CHUNK_HASHES };
#define BEFORE_CHOSEN (UINT64_C(0x1233) << 48)

/* Makes runs whose hashes share one chunk id, after hashes with the preceding chunk id. Run k has the hashes whose
 * number is a multiple of 2 + k, and some others. */
static void make_runs_of_chosen_hashes(size_t n_runs)
{
    for (size_t k = 0; k < n_runs; k++) {
        struct count_table *table = count_table_new_members(3, 0);
        for (uint64_t i = 0; i < CHOSEN; i++) {
            struct count_slot member = count_member(table, 0, LAST_HOUR_OF_2031,
                interner_add(texts, BYTES_LITERAL("a")), UINT64_C(0x1234) << 48 | i);
            if (i % (2 + k) == 0 || i % 100 == 1)
                count_table_add(table, &member, 1);
            member = count_member(
                table, 0, LAST_HOUR_OF_2031, interner_add(texts, BYTES_LITERAL("a")), BEFORE_CHOSEN | i);
            if (i < SET_CHUNK_HASHES)
                count_table_add(table, &member, 1);
        }
        make_run(&runs[k], k + 9, count_table_source(table, texts, counters, &(struct count_range){0}));
        count_table_free(&table);
    }
}

/* Returns the number of the next of these hashes that a run has. */
static uint64_t next_chosen(uint64_t i, size_t n_runs)
{
    for (;; i++)
        for (size_t k = 0; k < n_runs; k++)
            if (i % (2 + k) == 0 || i % 100 == 1)
                return i;
}

/* A client that chooses its members can choose them so that their hashes have one id. */
static void many_chosen_hashes_of_one_id_are_chunks_of_limited_length(void **state)
{
    (void)state;
    static uint64_t codes[SET_CHUNK_HASHES];
    make_runs_of_chosen_hashes(3);
    for (size_t n = 1; n <= 3; n++) {
        struct count_source *sources[3];
        struct count_value value;
        uint64_t expected = next_chosen(0, n);
        for (size_t k = 0; k < n; k++)
            sources[k] = count_run_source(runs[k].index, BYTES_NONE, "slice.db", read_block, &runs[k]);
        struct count_merge *m = count_merge_new(sources, n);
        enum count_next r;
        assert_int_equal(count_merge_next_record(m), COUNT_FOUND);
        while ((r = count_merge_next_value(m, &value)) == COUNT_FOUND) {
            assert_true(set_chunk_check(value.name, value.text));
            size_t size = set_chunk_codes(value.name, value.text, codes, SET_CHUNK_HASHES);
            if (codes[0] == BEFORE_CHOSEN) {
                assert_int_equal(size, SET_CHUNK_HASHES);
                continue;
            }
            assert_true(
                size == SET_CHUNK_HASHES || next_chosen((codes[size - 1] + 1) << 16 >> 16, n) >= CHOSEN);
            for (size_t i = 0; i < size; i++, expected = next_chosen(expected + 1, n))
                assert_true(codes[i] == (UINT64_C(0x1234) << 48 | expected));
        }
        assert_int_equal(r, COUNT_END);
        assert_true(expected >= CHOSEN);
        count_merge_free(&m);
        close_sources(sources, n);
    }
}

/* The first block that has the id is found, although several blocks begin with the id. */
static void a_read_continues_inside_an_id(void **state)
{
    (void)state;
    struct count_value value;
    char id[SET_CHUNK_ID];
    make_runs_of_chosen_hashes(1);
    assert_true(runs[0].n_blocks >= 5);
    set_chunk_id(UINT64_C(0x1234) << 48, id);
    size_t before = 0;
    for (uint64_t from = 0; from < CHOSEN; from = next_chosen(from + 1, 1), before++) {
        if (before % 997 != 0)
            continue;
        struct count_source *s = count_run_source(runs[0].index, BYTES_NONE, "memory", read_block, &runs[0]);
        struct count_merge *m = count_merge_new(&s, 1);
        uint64_t code = UINT64_C(0x1234) << 48 | from;
        assert_int_equal(count_merge_next_record(m), COUNT_FOUND);
        assert_int_equal(count_merge_skip_values(m, bytes_of(id, SET_CHUNK_ID)), COUNT_FOUND);
        size_t skipped = 0;
        do {
            assert_int_equal(count_merge_next_value(m, &value), COUNT_FOUND);
        } while (set_chunk_is_before(value.name, value.text, code) && ++skipped);
        assert_int_equal(skipped, before / SET_CHUNK_HASHES);
        count_merge_free(&m);
        count_source_close(&s);
    }
}

static void damage_in_a_run_is_named(void **state)
{
    (void)state;
    static const struct {
        struct count_value a, b;
        const char *error;
    } cases[] = {{unsorted, none, "slice.db: run 9, block 0: a malformed chunk"},
        {good, foreign, "slice.db: run 9, block 0: a malformed chunk"},
        {good, count, "slice.db: run 9, block 0: a malformed count"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct values values = values_of(cases[i].a, cases[i].b);
        struct buf out = {0};
        make_run(&runs[0], 9, &values.base);
        struct count_source *s =
            count_run_source(runs[0].index, BYTES_NONE, "slice.db", read_block, &runs[0]);
        struct count_merge *m = count_merge_new(&s, 1);
        assert_int_equal(count_merge_next_record(m), COUNT_FOUND);
        assert_int_equal(count_merge_print(m, &out), COUNT_FAILED);
        assert_string_equal(count_merge_error(m)->text, cases[i].error);
        assert_int_equal(count_merge_error(m)->code, COUNT_DAMAGED);
        count_merge_free(&m);
        count_source_close(&s);
        buf_free(&out);
        buf_free(&runs[0].blocks[0]);
        count_run_index_free(&runs[0].index);
        runs[0] = (struct run){0};
    }
}

static void counts_and_sets_do_not_mix(void **state)
{
    (void)state;
    struct count_value same = {.name = good.name, .count = 1};
    for (int order = 0; order < 2; order++) {
        struct values a = values_of(order ? good : same, none), b = values_of(order ? same : good, none);
        struct count_source *sources[] = {&a.base, &b.base};
        struct count_merge *m = count_merge_new(sources, 2);
        struct count_value value;
        assert_int_equal(count_merge_next_record(m), COUNT_FOUND);
        assert_int_equal(count_merge_next_value(m, &value), COUNT_FAILED);
        assert_string_equal(count_merge_error(m)->text, "memory: both counts and sets at \"v.u|a.c41,\"");
        count_merge_free(&m);
    }
}

/* Prints the merged parts, with all chunks or in short form. */
static void print_all(struct buf *out, bool is_short)
{
    struct count_source *sources[PARTS];
    open_sources(2, sources);
    struct count_merge *m = count_merge_new(sources, PARTS);
    while (count_merge_next_record(m) == COUNT_FOUND)
        assert_int_equal(is_short ? count_merge_print_short(m, out) : count_merge_print(m, out), COUNT_END);
    count_merge_free(&m);
    close_sources(sources, PARTS);
}

static void short_texts_have_size_or_members(void **state)
{
    (void)state;
    struct buf got = {0}, expected = {0};
    add_member("few", 0, LAST_HOUR_OF_2031, 17);
    add_member("few", 0, LAST_HOUR_OF_2031, UINT64_C(0xa1b2c3d4e5f60718));
    add_member("few", 0, LAST_HOUR_OF_2031, 4294967295);
    add_member("one", 0, LAST_HOUR_OF_2031, 0);
    qsort(rows, n_rows, sizeof *rows, by_key_and_code);
    for (size_t i = 0, n; i < n_rows; i += n) {
        for (n = 1; i + n < n_rows && strcmp(rows[i].key, rows[i + n].key) == 0;)
            n++;
        if (strncmp(rows[i].key, "v.u|few", 7) == 0)
            buf_printf(&expected, "%s=17 4294967295 ~a1b2c3d4e5f60718\n", rows[i].key);
        else if (n == 1)
            buf_printf(&expected, "%s=0\n", rows[i].key);
        else
            buf_printf(&expected, "%s#%zu\n", rows[i].key, n);
    }
    print_all(&got, true);
    assert_int_equal(got.len, expected.len);
    assert_memory_equal(got.ptr, expected.ptr, got.len);
    buf_free(&got);
    buf_free(&expected);
}

static void texts_with_chunks_are_read_again(void **state)
{
    (void)state;
    struct buf text = {0};
    print_all(&text, false);
    char path[] = "/tmp/test_count_sets.XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text.ptr, text.len), (ssize_t)text.len);
    unlink(path);
    struct record_reader in_memory, in_file; /* lines in memory; a file in pieces smaller than the lines */
    record_reader_of_memory(&in_memory, "memory", buf_bytes(&text));
    record_reader_of_range(&in_file, fd, "file", 0, text.len);
    struct count_source *alone[] = {&in_file.base}, *both[] = {&in_memory.base, &in_file.base};
    check_merge(alone, 1);
    record_reader_end(&in_file);
    record_reader_of_range(&in_file, fd, "file", 0, text.len);
    check_merge(both, 2);
    record_reader_end(&in_memory);
    record_reader_end(&in_file);
    close(fd);
    buf_free(&text);
}

/* Reads the text as the line of a source in memory, of a file, and as the value of a text_record. */
static void check_text(const char *value, const char *expected)
{
    struct buf line = {0}, out = {0};
    buf_printf(&line, "v.u|a.c41,%s\n", value);
    for (int i = 0; i < 2; i++) {
        struct record_reader reader;
        static const struct count_source_kind kind = {
            values_next_record, text_record_next_value, values_close, NULL};
        struct text_record record = {.base.kind = &kind};
        record_reader_of_memory(&reader, "memory", buf_bytes(&line));
        struct count_source *s = i == 0 ? &reader.base : &record.base;
        const char *error = NULL;
        enum count_next r =
            i == 0 ? s->kind->next_record(s) : text_record_set(&record, bytes_of(line.ptr, line.len - 1));
        assert_int_equal(r, COUNT_FOUND);
        buf_clear(&out);
        for (bool is_first = true; (r = s->kind->next_value(s)) == COUNT_FOUND; is_first = false) {
            assert_non_null(s->text.ptr);
            set_text_append_chunk(is_first, s->name, s->text, &out);
        }
        if (r == COUNT_FAILED)
            error = s->error.text + strlen("memory: ");
        if (!error)
            buf_append_char(&out, '\0');
        assert_string_equal(error ? error : out.ptr, expected);
        record_reader_end(&reader);
        text_record_end(&record);
    }
    buf_free(&line);
    buf_free(&out);
}

static void texts_of_sets(void **state)
{
    (void)state;
    check_text("=17 204", "@000000EQDMAA");
    check_text("=0", "@000000AAA");
    check_text("=17 65536 65537", "@000000EQA 000001AAABAA");
    check_text("=17 ~a1b2c3d4e5f60718", "@000000EQA 01a1b2GAf25dTDsqE");
    check_text("@000000EQDMAA 01a1b2GAf25dTDsqE", "@000000EQDMAA 01a1b2GAf25dTDsqE");
    check_text("#8211", SET_TEXT_IS_SIZE);
    check_text("=17 17", "the members do not ascend");
    check_text("=204 17", "the members do not ascend");
    check_text("=1 2 3 4", "a set with `=` has more than three members");
    check_text("=007", "a member is malformed");
    check_text("=17  18", "a member is malformed");
    check_text("=bob", "a member is malformed");
    check_text("=17 ", "a member is malformed");
    check_text("@000000EQDMAA ", "a chunk is malformed");
    check_text("@000000EQDMAA  000001EQA", "a chunk is malformed");
    check_text("=", "a member is malformed");
    check_text("@", "a chunk is malformed");
    check_text("@000000", "a chunk is malformed");
    check_text("@000000EQDMAA==", "a chunk is malformed");
    check_text("@000000EQDMAB", "a chunk is malformed"); /* unused bits that are not 0 */
    check_text("@000000EQDMA", "a chunk is malformed");
    check_text("@00000GEQDMAA", "a chunk is malformed");
    check_text("@000000zAARAA", "a chunk is malformed"); /* codes that do not ascend */
    check_text("@010000EQDMAA", "a chunk is malformed");
    check_text("@000001EQA 000000EQA", "the chunks do not ascend");
    check_text("@000001EQA 000001EQA", "the chunks do not ascend");
}

static void words_of_sets_are_not_counts(void **state)
{
    (void)state;
    static const char *const sets[] = {"=17", "#3", "@000000AAA", "#8211 x"}, *const counts[] = {"=17:1",
                                                                                  "#3:2 x:1", "@:1", "JP:1",
                                                                                  "", "x=1"};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        assert_true(set_text_is(bytes_str(sets[i])));
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        assert_false(set_text_is(bytes_str(counts[i])));
    struct record_reader reader;
    record_reader_of_memory(&reader, "memory", BYTES_LITERAL("c.u|a.c41l,#3:2 =4:1 @:7\n"));
    struct count_source *s = &reader.base;
    struct buf out = {0};
    struct count_merge *m = count_merge_new(&s, 1);
    assert_int_equal(count_merge_next_record(m), COUNT_FOUND);
    s->line = BYTES_NONE; /* as if the line were longer than the buffer */
    assert_int_equal(count_merge_print(m, &out), COUNT_END);
    assert_true(bytes_equal_str(buf_bytes(&out), "c.u|a.c41l,#3:2 =4:1 @:7\n"));
    count_merge_free(&m);
    record_reader_end(&reader);
    buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(chunks_of_tables_and_runs_unite, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_copied_table_holds_the_same_members, set_up, tear_down),
        cmocka_unit_test_setup_teardown(picked_members_are_those_of_the_keys_and_counters, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_read_continues_at_any_chunk, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_chunk_is_found_in_any_block, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            many_chosen_hashes_of_one_id_are_chunks_of_limited_length, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_read_continues_inside_an_id, set_up, tear_down),
        cmocka_unit_test_setup_teardown(damage_in_a_run_is_named, set_up, tear_down),
        cmocka_unit_test(counts_and_sets_do_not_mix),
        cmocka_unit_test_setup_teardown(short_texts_have_size_or_members, set_up, tear_down),
        cmocka_unit_test_setup_teardown(texts_with_chunks_are_read_again, set_up, tear_down),
        cmocka_unit_test(texts_of_sets),
        cmocka_unit_test(words_of_sets_are_not_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
