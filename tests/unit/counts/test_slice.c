/* slice: what its transactions hold, through kills, merges, a full disk, flipped bits, and files that are not ours. */
#include "support/cm.h"

#include "counts/slice.h"
#include "counts/slice_reader.h"
#include "support/count_fixture.h"
#include "support/fault_vfs.h"
#include "support/make_slice.h"
#include "support/test_dir.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define COUNTERS "a = 1\nb = 2\n"

static char dir[64], path[96];
static struct error error;

static int set_up(void **state)
{
    (void)state;
    make_test_dir(dir, sizeof dir);
    snprintf(path, sizeof path, "%s/0000000001.db", dir);
    return 0;
}

static int tear_down(void **state)
{
    char command[96];
    (void)state;
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}

static struct slice_config config_of(const char *counters, unsigned max_pages)
{
    return (struct slice_config){
        .path = path, .number = 1, .counters_text = counters, .started = 7, .max_pages = max_pages};
}

static struct slice *open_good(void)
{
    struct slice *s;
    struct slice_config c = config_of(COUNTERS, 0);
    if (slice_open(&c, &s, &error) != SLICE_OK)
        fail_msg("%s", error.text);
    return s;
}

static enum slice_result commit(struct slice *s, const struct count_fixture *f, struct slice_batch batch)
{
    struct slice_written written;
    struct count_source *sources[2];
    count_fixture_sources(f, &(struct count_range){0}, sources);
    batch.sources = sources;
    batch.n_sources = 2;
    enum slice_result r = slice_commit(s, &batch, &written, &error);
    for (int i = 0; i < 2; i++)
        count_source_close(&sources[i]);
    return r;
}

static void sums_of_values_are_committed(void **state)
{
    (void)state;
    const char *text =
        "total r key = l\ntotal r scale = 2\ntotal r value = p\ntotal s key = l\ntotal s scale = 0\n";
    struct slice_config c = config_of(text, 0);
    struct count_fixture f;
    struct slice *s;
    struct slice_state looked;
    count_fixture_begin(&f);
    assert_int_equal(slice_open(&c, &s, &error), SLICE_OK);
    assert_int_equal(slice_committed(s)->sums.n, 2);
    struct value_sums sums = value_sums_copy(&slice_committed(s)->sums);
    for (uint64_t n = 0; n < 3; n++) {
        sums.list[0].sum = n == 1 ? VALUE_SUM_MAX : n;
        assert_int_equal(
            commit(s, &f, (struct slice_batch){.sums = n < 2 ? &sums : NULL, .seal = n == 2}), SLICE_OK);
        assert_true(slice_committed(s)->sums.list[0].sum == (n == 0 ? 0 : VALUE_SUM_MAX));
    }
    slice_close(&s);
    assert_int_equal(slice_look(c.path, c.number, &looked, &error), SLICE_OK);
    assert_string_equal(looked.sums.list[0].ns, "r");
    assert_true(looked.sums.list[0].sum == VALUE_SUM_MAX && looked.sums.list[1].sum == 0);
    slice_state_free(&looked);
    value_sums_free(&sums);
    count_fixture_end(&f);
}

/* Batch i counts i % 50 keys once each, one of them hashed with a lookup. */
static enum slice_result try_commit_nth(struct slice *s, uint64_t nth)
{
    struct slice_cursor cursor = {
        .stream = "clicks", .id = "0123456789abcdef0123456789abcdef", .offset = nth};
    struct count_fixture f;
    char key[64];
    count_fixture_begin(&f);
    for (uint64_t i = 0; i < nth % 50; i++) {
        snprintf(key, sizeof key, "k%02llu", (unsigned long long)i);
        count_fixture_add(&f, key, NULL, 0, 1);
    }
    count_fixture_add(&f, "a text that is hashed", "US", 1, 1);
    struct slice_batch batch = {
        .cursors = &cursor, .n_cursors = 1, .tally = {.events = nth * 3}, .rejects_length = nth * 2};
    enum slice_result r = commit(s, &f, batch);
    count_fixture_end(&f);
    return r;
}

static void commit_nth(struct slice *s, uint64_t nth)
{
    if (try_commit_nth(s, nth) != SLICE_OK)
        fail_msg("%s", error.text);
}

static int print_reader(struct slice_reader *r, struct bytes from, struct buf *out)
{
    size_t n = slice_reader_runs(r);
    struct count_source **sources = mem_alloc((n + 1) * sizeof *sources);
    for (size_t i = 0; i < n; i++)
        sources[i] = slice_reader_source(r, i, from);
    int result = count_fixture_print(sources, n, out, &error);
    free(sources);
    return result;
}

/* What the sum of the first `n` batches is as text. */
static void print_model(uint64_t n, struct buf *out)
{
    uint64_t keys[50] = {0};
    for (uint64_t i = 1; i <= n; i++)
        for (uint64_t k = 0; k < i % 50; k++)
            keys[k]++;
    if (n > 0)
        buf_printf(out,
            "c.u|J9Rf6hAVMv4=.c311,US:%llu\nlookup|J9Rf6hAVMv4=,a text that is "
            "hashed\nu|J9Rf6hAVMv4=,c311:%llu\n",
            (unsigned long long)n, (unsigned long long)n);
    for (int k = 0; k < 50 && keys[k]; k++)
        buf_printf(out, "u|k%02d,c310:%llu\n", k, (unsigned long long)keys[k]);
}

/* The slice must be the sum of the first `offset` batches, whatever that is. */
static uint64_t check_sum(void)
{
    struct slice *s = open_good();
    struct slice_reader *reader;
    struct buf got = {0}, expected = {0};
    const struct slice_state *state = slice_committed(s);
    uint64_t nth = state->n_cursors ? state->cursors[0].offset : 0;
    assert_int_equal(state->tally.events, nth * 3);
    assert_int_equal(state->rejects_length, nth * 2);
    assert_int_equal(slice_reader_open(path, &reader, &error), SLICE_OK);
    assert_int_equal(print_reader(reader, BYTES_NONE, &got), 0);
    print_model(nth, &expected);
    assert_int_equal(got.len, expected.len);
    if (got.len)
        assert_memory_equal(got.ptr, expected.ptr, got.len);
    slice_reader_close(&reader);
    slice_close(&s);
    buf_free(&got);
    buf_free(&expected);
    return nth;
}

static void work_until_killed(void)
{
    struct slice_written written;
    struct slice *s = open_good();
    bool whole;
    const struct slice_state *at = slice_committed(s);
    for (uint64_t n = at->n_cursors ? at->cursors[0].offset : 0;; n++) {
        commit_nth(s, n + 1);
        if (n % 7 == 0)
            slice_checkpoint(s, &whole, &error);
        if (slice_merge_is_due(s) && slice_merge_step(s, &written, &error) != SLICE_OK)
            _exit(1);
    }
}

static void killed_anywhere_it_holds_whole_batches(void **state)
{
    (void)state;
    seeded();
    uint64_t last = 0;
    for (int round = 0; round < 15 || (last == 0 && round < 1000); round++) {
        pid_t child = fork();
        if (child == 0)
            work_until_killed();
        usleep((useconds_t)(random() % (round < 15 ? 60000 : 300000)));
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        uint64_t now = check_sum();
        assert_true(now >= last);
        last = now;
    }
    assert_true(last > 0);
}

static void merge_all(struct slice *s)
{
    struct slice_written written;
    while (slice_merge_is_due(s))
        assert_int_equal(slice_merge_step(s, &written, &error), SLICE_OK);
}

static void merging_changes_no_count(void **state)
{
    (void)state;
    struct slice *s = open_good();
    struct slice_reader *before;
    struct buf old = {0}, again = {0}, expected = {0};
    for (uint64_t n = 1; n < SLICE_MERGE_RUNS; n++)
        commit_nth(s, n);
    assert_false(slice_merge_is_due(s));
    assert_int_equal(slice_reader_open(path, &before, &error), SLICE_OK);
    assert_int_equal(print_reader(before, BYTES_NONE, &old), 0);
    commit_nth(s, SLICE_MERGE_RUNS);
    assert_true(slice_merge_is_due(s));
    merge_all(s);
    assert_int_equal(slice_committed(s)->n_runs, 1);
    assert_int_equal(slice_committed(s)->runs[0].level, 1);
    /* Runs that were merged away are still those that an older reader shows. */
    assert_int_equal(print_reader(before, BYTES_NONE, &again), 0);
    assert_true(bytes_equal(buf_bytes(&again), buf_bytes(&old)));
    buf_clear(&again);
    assert_int_equal(slice_reader_renew(before), SLICE_OK);
    assert_int_equal(slice_reader_runs(before), 1);
    assert_int_equal(print_reader(before, BYTES_NONE, &again), 0);
    print_model(SLICE_MERGE_RUNS, &expected);
    assert_true(bytes_equal(buf_bytes(&again), buf_bytes(&expected)));
    slice_reader_close(&before);
    for (uint64_t n = SLICE_MERGE_RUNS + 1; n <= 2 * SLICE_MERGE_RUNS + 3; n++) {
        commit_nth(s, n);
        merge_all(s);
    }
    assert_int_equal(slice_committed(s)->n_runs, 5);
    slice_close(&s);
    assert_int_equal(check_sum(), 2 * SLICE_MERGE_RUNS + 3);
    buf_free(&old);
    buf_free(&again);
    buf_free(&expected);
}

/* Commits a run of 8,000 counts, whose blocks take several pages. */
static void commit_large(struct slice *s, int nth)
{
    struct count_fixture f;
    char key[64];
    count_fixture_begin(&f);
    for (int i = 0; i < 4000; i++) {
        snprintf(key, sizeof key, "%d-%d", nth, i);
        count_fixture_add(&f, key, "US", 0, 1);
    }
    assert_int_equal(commit(s, &f, (struct slice_batch){0}), SLICE_OK);
    count_fixture_end(&f);
}

/* What a merge that was interrupted left is deleted at the next opening. */
static void an_abandoned_merge_leaves_nothing(void **state)
{
    (void)state;
    struct slice_written written;
    struct slice *s = open_good();
    for (int n = 0; n < SLICE_MERGE_RUNS; n++)
        commit_large(s, n);
    assert_int_equal(slice_merge_step(s, &written, &error), SLICE_OK);
    assert_int_equal(slice_committed(s)->n_runs, SLICE_MERGE_RUNS);
    slice_close(&s);
    s = open_good();
    merge_all(s);
    assert_int_equal(slice_committed(s)->n_runs, 1);
    assert_int_equal(slice_committed(s)->runs[0].counts, 2 * 4000 * SLICE_MERGE_RUNS);
    uint64_t bytes = slice_committed(s)->runs[0].bytes;
    slice_close(&s);
    sqlite3 *db;
    sqlite3_stmt *q;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, "SELECT sum(length(data)) FROM blocks", -1, &q, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(q), SQLITE_ROW);
    assert_int_equal(sqlite3_column_int64(q, 0), bytes);
    sqlite3_finalize(q);
    sqlite3_close(db);
}

static void a_full_disk_leaves_nothing_behind(void **state)
{
    (void)state;
    struct slice *s;
    struct slice_config c = config_of(COUNTERS, 16);
    struct count_fixture f;
    char key[64];
    assert_int_equal(slice_open(&c, &s, &error), SLICE_OK);
    commit_nth(s, 1);
    count_fixture_begin(&f);
    for (int i = 0; i < 20000; i++) {
        snprintf(key, sizeof key, "%d", i);
        count_fixture_add(&f, key, NULL, 0, 1);
    }
    struct slice_batch batch = {.tally = {.events = 9}, .rejects_length = 9};
    assert_int_equal(commit(s, &f, batch), SLICE_FULL);
    slice_close(&s);
    assert_int_equal(check_sum(), 1);
    s = open_good();
    assert_int_equal(commit(s, &f, batch), SLICE_OK);
    assert_int_equal(slice_committed(s)->runs[1].counts, 20000);
    slice_close(&s);
    count_fixture_end(&f);
}

static void what_is_not_ours_is_refused(void **state)
{
    (void)state;
    struct slice *s = open_good();
    assert_int_equal(slice_committed(s)->started, 7);
    slice_close(&s);
    struct slice_config other = config_of("a = 1\nb = 3\n", 0);
    assert_int_equal(slice_open(&other, &s, &error), SLICE_DIFFERENT);
    assert_non_null(strstr(error.text, "- b = 2; + b = 3"));
    struct slice_config second = config_of(COUNTERS, 0);
    second.number = 2;
    assert_int_equal(slice_open(&second, &s, &error), SLICE_FOREIGN);
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "PRAGMA user_version = 1", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    second.number = 1;
    assert_int_equal(slice_open(&second, &s, &error), SLICE_VERSION);
    assert_non_null(strstr(error.text, path));
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    fputs("this is no database at all", file);
    fclose(file);
    assert_int_equal(slice_open(&second, &s, &error), SLICE_FOREIGN);
}

static void read_file(const char *name, struct buf *out)
{
    FILE *file = fopen(name, "rb");
    size_t n;
    assert_non_null(file);
    do {
        buf_reserve(out, 1 << 16);
        n = fread(out->ptr + out->len, 1, 1 << 16, file);
        out->len += n;
    } while (n);
    fclose(file);
}

static void write_file(const char *name, const struct buf *text)
{
    FILE *file = fopen(name, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text->ptr, 1, text->len, file), text->len);
    fclose(file);
}

/* The slice's text, or -1 when it is refused; then its file or the damage is named. */
static int try_read(struct buf *out)
{
    struct slice_reader *reader;
    error.text[0] = '\0';
    int refused = slice_reader_open_sealed(path, &reader, &error) != SLICE_OK;
    if (!refused) {
        refused = print_reader(reader, BYTES_NONE, out) != 0;
        slice_reader_close(&reader);
    }
    if (refused)
        assert_true(error.text[0] != '\0');
    return refused ? -1 : 0;
}

/* Wherever a bit is flipped in a sealed slice, it is refused or harmless. */
static void flipped_bits_are_refused_or_harmless(void **state)
{
    (void)state;
    seeded();
    struct slice *s = open_good();
    struct count_fixture f;
    struct buf good = {0}, file = {0}, got = {0};
    char key[64];
    count_fixture_begin(&f);
    for (int i = 0; i < 3000; i++) {
        snprintf(key, sizeof key, "user number %d", i);
        count_fixture_add(&f, key, i % 2 ? "US" : "JP", i % 30, (uint32_t)i);
    }
    struct slice_cursor cursor = {
        .stream = "clicks", .id = "0123456789abcdef0123456789abcdef", .offset = 12345};
    struct slice_batch last = {.cursors = &cursor, .n_cursors = 1, .tally = {.events = 3}, .seal = true};
    assert_int_equal(commit(s, &f, last), SLICE_OK);
    slice_close(&s);
    count_fixture_end(&f);
    read_file(path, &file);
    assert_int_equal(try_read(&good), 0);
    int refused = 0, rounds = 400;
    for (int i = 0; i < rounds; i++) {
        size_t at = (size_t)random() % file.len;
        char old = file.ptr[at];
        file.ptr[at] = (char)(old ^ 1 << random() % 8);
        write_file(path, &file);
        file.ptr[at] = old;
        buf_clear(&got);
        if (try_read(&got) != 0)
            refused++;
        else
            assert_true(bytes_equal(buf_bytes(&got), buf_bytes(&good)));
    }
    assert_true(refused > rounds / 2); /* the rest is in unused bytes of pages */
    buf_free(&good);
    buf_free(&file);
    buf_free(&got);
}

/* Opens the damaged slice, reads it, commits one more batch, merges and reads again. Returns how many of the reads gave the
 * model's text before the file was refused. Any other text fails, and so does an error that does not name the file. */
static int use_damaged(uint64_t committed)
{
    struct slice_config c = config_of(COUNTERS, 0);
    struct slice *s;
    int reads = 0;
    error.text[0] = '\0';
    enum slice_result r = slice_open(&c, &s, &error);
    for (; r == SLICE_OK && reads < 2; reads++) {
        struct slice_reader *reader;
        struct buf got = {0}, expected = {0};
        const struct slice_state *state = slice_committed(s);
        uint64_t nth = state->n_cursors ? state->cursors[0].offset : 0;
        assert_in_range(nth, 0, committed + (uint64_t)reads);
        r = slice_reader_open(path, &reader, &error);
        if (r == SLICE_OK)
            r = print_reader(reader, BYTES_NONE, &got) == 0 ? SLICE_OK : SLICE_DAMAGED;
        slice_reader_close(&reader);
        print_model(nth, &expected);
        bool equal = bytes_equal(buf_bytes(&got), buf_bytes(&expected));
        buf_free(&got);
        buf_free(&expected);
        if (r != SLICE_OK)
            break;
        assert_true(equal);
        r = try_commit_nth(s, nth + 1);
        struct slice_written written;
        while (r == SLICE_OK && slice_merge_is_due(s))
            r = slice_merge_step(s, &written, &error);
    }
    slice_close(&s);
    if (r != SLICE_OK && !strstr(error.text, path))
        fail_msg("the error does not name the slice: %s", error.text);
    return reads;
}

/* A byte of a page's header, of its pointers to cells, of the schema, or any. */
static size_t random_place(size_t len)
{
    size_t page = (size_t)random() % (len / 4096), kind = (size_t)random() % 4;
    size_t within[] = {12, 100, 300, 4096};
    return page * 4096 + (size_t)random() % within[kind];
}

/* Wherever a bit is flipped in an open slice or its log, what is committed is answered, an earlier commit is, from which
 * counting goes on, or the slice is refused by name. */
static void flipped_bits_in_an_open_slice_are_refused_or_harmless(void **state)
{
    (void)state;
    seeded();
    enum { COMMITS = 3 * SLICE_MERGE_RUNS + 5 };
    struct buf files[2] = {0};
    char log[128];
    int intact = 0, rounds = 120;
    snprintf(log, sizeof log, "%s-wal", path);
    pid_t child = fork();
    if (child == 0) {
        struct slice *s = open_good();
        bool whole;
        for (uint64_t n = 1; n <= COMMITS; n++) {
            commit_nth(s, n);
            if (n < COMMITS - 5)
                merge_all(s);
            if (n == COMMITS - 6)
                slice_checkpoint(s, &whole, &error);
        }
        _exit(0);
    }
    waitpid(child, NULL, 0);
    read_file(path, &files[0]);
    read_file(log, &files[1]);
    assert_true(files[1].len > 4096);
    for (int i = 0; i < rounds; i++) {
        struct buf *file = &files[i % 2];
        size_t at = random_place(file->len);
        char old = file->ptr[at];
        file->ptr[at] = (char)(old ^ 1 << random() % 8);
        write_file(path, &files[0]);
        write_file(log, &files[1]);
        file->ptr[at] = old;
        alarm(120);
        intact += use_damaged(COMMITS) == 2;
        alarm(0);
    }
    assert_in_range(intact, 1, rounds - 1);
    buf_free(&files[0]);
    buf_free(&files[1]);
}

/* No id of a block, whatever the file says, keeps the opening busy or makes a run that no block can belong to. */
static void a_block_of_an_impossible_run_is_refused(void **state)
{
    (void)state;
    static const char *const ids[] = {"9223372032559808512", "9223372036854775807", "-1", "-4294967296"};
    struct slice *s = open_good();
    commit_nth(s, 1);
    slice_close(&s);
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        char sql[128];
        sqlite3 *db;
        snprintf(sql, sizeof sql,
            "DELETE FROM blocks WHERE id NOT BETWEEN 0 AND 1 << 40; INSERT INTO blocks VALUES(%s, x'00')",
            ids[i]);
        assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
        assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
        sqlite3_close(db);
        struct slice_config c = config_of(COUNTERS, 0);
        alarm(120);
        assert_int_equal(slice_open(&c, &s, &error), SLICE_DAMAGED);
        alarm(0);
        assert_non_null(strstr(error.text, path));
    }
}

/* A forged state with a valid checksum neither keeps a merge busy nor reaches past the levels. */
static void an_impossible_run_is_refused(void **state)
{
    (void)state;
    static const char *const changes[] = {"UPDATE runs SET level = 9223372036854775807",
        "UPDATE runs SET level = -1", "UPDATE runs SET level = 17", "UPDATE runs SET id = 0",
        "UPDATE runs SET id = -5", "UPDATE runs SET id = 2147483647"};
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        struct slice *s = open_good();
        struct slice_config c = config_of(COUNTERS, 0);
        commit_nth(s, 1);
        slice_close(&s);
        change_slice(path, changes[i]);
        alarm(120);
        assert_int_equal(slice_open(&c, &s, &error), SLICE_DAMAGED);
        alarm(0);
        assert_non_null(strstr(error.text, path));
        assert_int_equal(unlink(path), 0);
    }
}

/* A read that fails says nothing about the bytes on the disk. */
static void a_failed_read_is_not_damage(void **state)
{
    (void)state;
    struct slice_written written;
    struct slice_reader *reader;
    fault_vfs_set(0);
    struct slice *s = open_good();
    bool whole;
    for (int n = 0; n < SLICE_MERGE_RUNS; n++)
        commit_large(s, n);
    assert_int_equal(slice_checkpoint(s, &whole, &error), SLICE_OK);
    slice_close(&s);
    s = open_good();
    fault_vfs_set(SQLITE_IOERR_READ);
    assert_int_equal(slice_merge_step(s, &written, &error), SLICE_FAILED);
    assert_non_null(strstr(error.text, path));
    fault_vfs_set(0);
    assert_int_equal(slice_reader_open(path, &reader, &error), SLICE_OK);
    fault_vfs_set(SQLITE_IOERR_READ);
    struct count_source *source = slice_reader_source(reader, 0, BYTES_NONE);
    assert_int_equal(source->kind->next_record(source), COUNT_FAILED);
    assert_int_equal(source->error.code, COUNT_UNREADABLE);
    count_source_close(&source);
    fault_vfs_set(0);
    slice_reader_close(&reader);
    slice_close(&s);
    change_slice(path, "UPDATE blocks SET data = x'00' || data");
    s = open_good();
    assert_int_equal(slice_merge_step(s, &written, &error), SLICE_DAMAGED);
    slice_close(&s);
}

static enum count_next one_record(struct count_source *s)
{
    bool again = s->key.len > 0;
    s->key = BYTES_LITERAL("u|a,");
    return again ? COUNT_END : COUNT_FOUND;
}

static enum count_next one_long_name(struct count_source *s)
{
    static char name[COUNT_NAME_MAX + 1];
    bool again = s->name.len > 0;
    memset(name, 'x', sizeof name);
    s->name = bytes_of(name, sizeof name);
    s->count = 1;
    return again ? COUNT_END : COUNT_FOUND;
}

/* The format has one byte for the length of a name. */
static void a_name_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    static const struct count_source_kind kind = {one_record, one_long_name, NULL, NULL};
    struct count_source source = {.kind = &kind}, *sources[] = {&source};
    struct slice_batch batch = {.sources = sources, .n_sources = 1};
    struct slice_written written;
    struct slice *s = open_good();
    assert_int_equal(slice_commit(s, &batch, &written, &error), SLICE_FAILED);
    assert_non_null(strstr(error.text, "too long at \"u|a,\""));
    assert_int_equal(slice_committed(s)->n_runs, 0);
    slice_close(&s);
}

/* A block in another's place has a right checksum of its own, and does not fit. */
static void swapped_blocks_are_refused(void **state)
{
    (void)state;
    struct slice *s = open_good();
    struct count_fixture f;
    struct buf got = {0};
    char key[64];
    count_fixture_begin(&f);
    for (int i = 0; i < 9000; i++) {
        snprintf(key, sizeof key, "%d", i);
        count_fixture_add(&f, key, NULL, 0, 1);
    }
    assert_int_equal(commit(s, &f, (struct slice_batch){.seal = true}), SLICE_OK);
    count_fixture_end(&f);
    slice_close(&s);
    assert_int_equal(try_read(&got), 0);
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db,
                         "UPDATE blocks SET id = -1 WHERE id = 4294967296; UPDATE blocks SET id = 4294967296 "
                         "WHERE id = 4294967297; UPDATE blocks SET id = 4294967297 WHERE id = -1",
                         NULL, NULL, NULL),
        SQLITE_OK);
    sqlite3_close(db);
    assert_int_equal(try_read(&got), -1);
    assert_non_null(strstr(error.text, "run 1, block 0"));
    assert_non_null(strstr(error.text, path));
    buf_free(&got);
}

/* A read from any key finds the same records as a read of everything. */
static void reads_begin_anywhere(void **state)
{
    (void)state;
    seeded();
    struct slice *s = open_good();
    struct slice_reader *reader;
    struct count_fixture f;
    struct buf all = {0}, some = {0};
    char key[64];
    count_fixture_begin(&f);
    for (int i = 0; i < 20000; i++) {
        snprintf(key, sizeof key, "%x", (unsigned)random() % 100000);
        count_fixture_add(&f, "all", key, i % 3, 1);
        count_fixture_add(&f, key, "US", 0, 1);
    }
    assert_int_equal(commit(s, &f, (struct slice_batch){0}), SLICE_OK);
    count_fixture_end(&f);
    assert_int_equal(slice_reader_open(path, &reader, &error), SLICE_OK);
    assert_int_equal(print_reader(reader, BYTES_NONE, &all), 0);
    for (size_t at = 0, line = 0; at < all.len; line++) {
        const char *start = all.ptr + at, *end = memchr(start, '\n', all.len - at);
        if (line % 1009 == 0 || line < 5) {
            const char *comma = memchr(start, ',', (size_t)(end - start));
            buf_clear(&some);
            assert_int_equal(print_reader(reader, bytes_of(start, (size_t)(comma - start) + 1), &some), 0);
            assert_int_equal(some.len, all.len - at);
            assert_memory_equal(some.ptr, start, some.len);
        }
        at = (size_t)(end - all.ptr) + 1;
    }
    slice_reader_close(&reader);
    slice_close(&s);
    buf_free(&all);
    buf_free(&some);
}

enum { SUBS = 60000, SEARCHES = 150 };

/* Of the record of hour 2, prints the counts of two names or of those that follow, and then the key of the next record. */
static void search(struct slice_reader *reader, const char *first, const char *second, struct buf *out)
{
    struct count_source *sources[4];
    size_t n = slice_reader_runs(reader);
    struct count_value value;
    assert_true(n > 1 && n <= 4);
    for (size_t i = 0; i < n; i++)
        sources[i] = slice_reader_source(reader, i, BYTES_LITERAL("c.u|all.c312,"));
    struct count_merge *m = count_merge_new(sources, n);
    assert_int_equal(count_merge_next_record(m), COUNT_FOUND);
    assert_true(bytes_equal_str(count_merge_key(m), "c.u|all.c312,"));
    for (int k = 0; k < 2; k++) {
        struct bytes name = bytes_str(k ? second : first);
        enum count_next r = count_merge_skip_values(m, name);
        while (r == COUNT_FOUND && (r = count_merge_next_value(m, &value)) == COUNT_FOUND)
            if (bytes_compare(value.name, name) >= 0)
                break;
        if (r == COUNT_FOUND)
            buf_printf(out, "%.*s:%d ", (int)value.name.len, value.name.ptr, (int)value.count);
    }
    assert_int_equal(count_merge_next_record(m), COUNT_FOUND);
    buf_append_bytes(out, count_merge_key(m));
    count_merge_free(&m);
    for (size_t i = 0; i < n; i++)
        count_source_close(&sources[i]);
}

/* A search for a name in a record of many blocks, in several runs, finds what reading it all finds, and reads few blocks. */
static void names_are_found_in_long_records(void **state)
{
    (void)state;
    seeded();
    static int counts[SUBS];
    struct slice *s = open_good();
    struct slice_reader *reader;
    struct buf got = {0}, expected = {0};
    char name[16], second[16];
    size_t n_counts = 0; /* in all runs' records of the key */
    for (int run = 0; run < 3; run++) {
        struct count_fixture f;
        count_fixture_begin(&f);
        for (int i = 0; i < SUBS; i++) {
            snprintf(name, sizeof name, "p%05d", i);
            if (i % 3 != run && i % 7 != run)
                continue;
            counts[i] += run + 1;
            n_counts++;
            count_fixture_add(&f, "all", name, 2, (uint32_t)run + 1);
            count_fixture_add(&f, "all", name, 1, 1);
            if (i % 100 == 0)
                count_fixture_add(&f, "all", name, 3, 1);
        }
        assert_int_equal(commit(s, &f, (struct slice_batch){0}), SLICE_OK);
        count_fixture_end(&f);
    }
    assert_int_equal(slice_reader_open(path, &reader, &error), SLICE_OK);
    for (int i = 0; i < SEARCHES; i++) {
        int a = i == 0   ? 0
                : i == 1 ? SUBS
                         : (int)(random() % SUBS),
            b = i % 4 ? a + (int)(random() % 3000) : SUBS - 1;
        snprintf(name, sizeof name, "p%05d", a);
        snprintf(second, sizeof second, "p%05d", b);
        buf_clear(&got);
        buf_clear(&expected);
        search(reader, i ? name : "", second, &got);
        while (a < SUBS && counts[a] == 0)
            a++;
        b = b > a ? b : a + 1; /* the first value was read */
        while (b < SUBS && counts[b] == 0)
            b++;
        if (a < SUBS)
            buf_printf(&expected, "p%05d:%d ", a, counts[a]);
        if (b < SUBS)
            buf_printf(&expected, "p%05d:%d ", b, counts[b]);
        buf_append_str(&expected, "c.u|all.c313,");
        buf_append_char(&got, '\0');
        buf_append_char(&expected, '\0');
        assert_string_equal(got.ptr, expected.ptr);
    }
    struct bytes key = BYTES_LITERAL("c.u|all.c312,");
    assert_in_range(slice_reader_records(reader, key, key), 3, 6);
    assert_in_range(slice_reader_counts(reader, key, key), n_counts / 2, n_counts);
    slice_reader_close(&reader);
    slice_close(&s);
    buf_free(&got);
    buf_free(&expected);
}

static void an_error_names_the_path_as_it_is(void **state)
{
    static const char nowhere[] = "/nowhere/a slice?.db";
    struct slice_reader *r = NULL;
    (void)state;
    assert_int_not_equal(slice_reader_open_sealed(nowhere, &r, &error), SLICE_OK);
    assert_int_equal(strncmp(error.text, nowhere, sizeof nowhere - 1), 0);
}

int main(void)
{
#define TEST(t) cmocka_unit_test_setup_teardown(t, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(killed_anywhere_it_holds_whole_batches),
        TEST(sums_of_values_are_committed),
        TEST(merging_changes_no_count),
        TEST(an_abandoned_merge_leaves_nothing),
        TEST(a_full_disk_leaves_nothing_behind),
        TEST(what_is_not_ours_is_refused),
        TEST(flipped_bits_are_refused_or_harmless),
        TEST(flipped_bits_in_an_open_slice_are_refused_or_harmless),
        TEST(a_block_of_an_impossible_run_is_refused),
        TEST(an_impossible_run_is_refused),
        TEST(a_failed_read_is_not_damage),
        TEST(a_name_that_does_not_fit_is_refused),
        TEST(swapped_blocks_are_refused),
        TEST(reads_begin_anywhere),
        TEST(names_are_found_in_long_records),
        TEST(an_error_names_the_path_as_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
