/* aggregate and its chain of slices: sealed, cleared, stopped at every step, and opened beside an archive. */
#include "aggregate.h"
#include "manifest.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#define ID "0123456789abcdef0123456789abcdef"
#define LINE "{\"t\":1331923249,\"l\":\"a\",\"c\":\"US\"}"
#define LENGTH sizeof LINE /* with its LF */
#define PLAIN "[input]\ntime = t\n[total u]\nkey = l\n"
#define MORE PLAIN "[subtotal c.u]\nkey = c\n"
#define OTHER "[input]\ntime = t\n[total u]\nkey = c\n"

static char dir[64], error[SLICE_ERROR_TEXT];
static struct counters *counters;
static const char *archive;

static void read_counters(const char *text)
{
    struct config *config = NULL;
    struct config_error e;
    if (counters)
        counters_free(&counters);
    assert_int_equal(config_parse("test.conf", bytes_str(text), &config, &e), 0);
    assert_int_equal(counters_read(config, &counters, &e), 0);
    config_free(&config);
}

static const char *in_dir(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static int set_up(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/millrace-aggregate-XXXXXX");
    assert_non_null(mkdtemp(dir));
    archive = NULL;
    read_counters(PLAIN);
    return 0;
}

static int tear_down(void **state)
{
    char command[128];
    (void)state;
    counters_free(&counters);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command);
}

static void notify(void *arg)
{
    (void)arg;
}

static enum slice_result try_open(struct aggregate **a)
{
    static const char *const streams[] = {"clicks"};
    const struct aggregate_config c = {.dir = dir,
        .archive = archive,
        .counters = counters,
        .streams = streams,
        .n_streams = 1,
        .flush_interval = USEC_PER_SEC,
        .max_memory = 64 << 20,
        .notify = notify};
    return aggregate_open(&c, 1000 * USEC_PER_SEC, a, error);
}

static struct aggregate *open_good(void)
{
    struct aggregate *a;
    if (try_open(&a) != SLICE_OK)
        fail_msg("%s", error);
    return a;
}

static void refused(enum slice_result expected, const char *reason)
{
    struct aggregate *a;
    assert_int_equal(try_open(&a), expected);
    if (!strstr(error, reason))
        fail_msg("%s: %s", reason, error);
}

static void take(struct aggregate *a, int lines)
{
    if (aggregate_cursor(a, 0)->id[0] == '\0')
        aggregate_begin_stream(a, 0, ID, 0);
    for (int i = 0; i < lines; i++)
        aggregate_take_line(a, 0, BYTES_LITERAL(LINE));
}

static enum slice_result seal(struct aggregate *a)
{
    bool busy;
    enum slice_result r;
    while ((r = aggregate_seal(a, 0, 0, &busy, error)) == SLICE_OK && busy) {
        usleep(100);
        aggregate_poll(a, 0);
    }
    return r;
}

static void seal_good(struct aggregate *a)
{
    if (seal(a) != SLICE_OK)
        fail_msg("%s", error);
}

/* The count of the one user after slice `after`; -1 when that cannot be answered. */
static long count_after(struct aggregate *a, uint64_t after)
{
    struct reads_layers layers;
    struct reads_answer answer = {0};
    if (aggregate_layers(a, after, &layers) != AGGREGATE_AFTER_OK)
        return -1;
    assert_int_equal(reads_get(&layers, BYTES_LITERAL("u|a"), &answer), 0);
    buf_append_char(&answer.lines, '\0');
    const char *colon = strrchr(answer.lines.ptr, ':');
    long n = colon ? strtol(colon + 1, NULL, 10) : 0;
    reads_answer_free(&answer);
    return n;
}

static void put_manifest(uint64_t through, uint64_t end)
{
    char name[MANIFEST_NAME_TEXT], path[200];
    struct manifest_file file = {.name = "shard-0-of-1.csv"};
    struct manifest_stream stream = {.name = "clicks", .id = ID, .end = end};
    char text[] = "total u key = l\n";
    const struct manifest m = {.generation = through,
        .through = through,
        .counters = text,
        .shards = 1,
        .files = &file,
        .streams = &stream,
        .n_streams = 1};
    struct buf out = {0};
    manifest_print(&m, &out);
    manifest_directory_name(through, name);
    mkdir(in_dir("archive"), 0755);
    snprintf(path, sizeof path, "%s/archive/%s", dir, name);
    mkdir(path, 0755);
    snprintf(path, sizeof path, "%s/archive/%s/manifest.json", dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fwrite(out.ptr, 1, out.len, f);
    fclose(f);
    unlink(in_dir("archive/current"));
    assert_int_equal(symlink(name, in_dir("archive/current")), 0);
    buf_free(&out);
    static char at[128];
    snprintf(at, sizeof at, "%s", in_dir("archive"));
    archive = at;
}

/* ---- sealing ---- */

static void the_next_begins_where_it_ended(void **state)
{
    (void)state;
    struct aggregate *a = open_good();
    struct aggregate_numbers numbers;
    take(a, 3);
    assert_int_equal(count_after(a, 0), 3);
    seal_good(a);
    assert_int_equal(aggregate_open_slice(a), 2);
    assert_int_equal(count_after(a, 0), 3);
    assert_int_equal(count_after(a, 1), 0);
    assert_int_equal(count_after(a, 2), -1);
    take(a, 2);
    assert_int_equal(count_after(a, 0), 5);
    assert_int_equal(count_after(a, 1), 2);
    const struct sealed_slice *s = sealed_find(aggregate_sealed(a), 1);
    assert_int_equal(s->state.cursors[0].offset, 3 * LENGTH);
    assert_int_equal(access(in_dir("slices/0000000001.db-wal"), F_OK), -1);
    assert_null(sealed_find(aggregate_sealed(a), 2));
    aggregate_numbers(a, &numbers);
    assert_int_equal(numbers.slice.events, 2);
    assert_int_equal(numbers.total.events, 5);
    aggregate_close(&a);
    a = open_good();
    assert_int_equal(aggregate_open_slice(a), 2);
    assert_int_equal(aggregate_cursor(a, 0)->offset, 3 * LENGTH);
    assert_int_equal(count_after(a, 0), 3);
    take(a, 2);
    seal_good(a);
    seal_good(a);
    assert_int_equal(count_after(a, 1), 2);
    assert_int_equal(count_after(a, 2), 0);
    aggregate_close(&a);
}

static void sealing_takes_what_is_being_flushed(void **state)
{
    (void)state;
    struct aggregate *a = open_good();
    take(a, 3);
    aggregate_flush(a, 0);
    take(a, 4);
    seal_good(a);
    assert_int_equal(count_after(a, 0), 7);
    assert_int_equal(count_after(a, 1), 0);
    aggregate_close(&a);
}

static void found_between_its_two_steps(void **state)
{
    (void)state;
    static const char *const next[] = {
        "slices/0000000002.db", "slices/0000000002.db-wal", "slices/0000000002.db-shm"};
    for (int only_begun = 0; only_begun < 2; only_begun++) {
        struct aggregate *a = open_good();
        take(a, 5);
        seal_good(a);
        aggregate_close(&a);
        for (int i = 0; i < 3; i++)
            unlink(in_dir(next[i]));
        if (only_begun)
            fclose(fopen(in_dir(next[0]), "w"));
        a = open_good();
        assert_int_equal(aggregate_open_slice(a), 2);
        assert_int_equal(aggregate_cursor(a, 0)->offset, 5 * LENGTH);
        assert_int_equal(count_after(a, 0), 5);
        aggregate_close(&a);
        tear_down(NULL);
        set_up(NULL);
    }
}

/* Seals without end; says how many lines are in sealed slices for sure, when a seal is over. */
static void seal_until_killed(int out)
{
    struct aggregate *a = open_good();
    for (;;) {
        take(a, 1 + (int)(random() % 50));
        if (random() % 2)
            aggregate_flush(a, 0);
        take(a, (int)(random() % 50));
        seal_good(a);
        uint64_t at[2] = {aggregate_open_slice(a), aggregate_cursor(a, 0)->offset / LENGTH};
        if (write(out, at, sizeof at) != sizeof at)
            _exit(1);
    }
}

static void killed_anywhere_it_is_open_or_sealed(void **state)
{
    (void)state;
    uint64_t at[2] = {1, 0};
    for (int round = 0; round < 20 && at[0] < SEALED_MAX / 2; round++) {
        int pipes[2];
        assert_int_equal(pipe(pipes), 0);
        pid_t child = fork();
        if (child == 0) {
            srandom((unsigned)getpid());
            seal_until_killed(pipes[1]);
        }
        close(pipes[1]);
        usleep((useconds_t)(random() % 60000));
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        while (read(pipes[0], at, sizeof at) == sizeof at)
            ;
        close(pipes[0]);
        struct aggregate *a = open_good();
        assert_in_range(aggregate_open_slice(a), at[0], at[0] + 1);
        assert_true(aggregate_cursor(a, 0)->offset >= at[1] * LENGTH);
        assert_int_equal(count_after(a, 0), aggregate_cursor(a, 0)->offset / LENGTH);
        at[0] = aggregate_open_slice(a);
        aggregate_close(&a);
    }
    assert_true(at[0] > 1);
}

static void without_a_next_slice_nothing_is_answered_or_lost(void **state)
{
    (void)state;
    bool latched;
    struct aggregate *a = open_good();
    take(a, 5);
    assert_int_equal(mkdir(in_dir("slices/0000000002.db"), 0755), 0);
    assert_int_equal(seal(a), SLICE_FAILED);
    assert_non_null(aggregate_failure(a, &latched));
    assert_true(latched && aggregate_is_full(a));
    assert_int_equal(count_after(a, 0), -1);
    aggregate_poll(a, 0);
    assert_false(aggregate_tick(a, 9 * USEC_PER_SEC));
    assert_int_equal(seal(a), SLICE_FAILED);
    aggregate_close(&a);
    assert_int_equal(rmdir(in_dir("slices/0000000002.db")), 0);
    a = open_good();
    assert_int_equal(aggregate_open_slice(a), 2);
    assert_int_equal(count_after(a, 0), 5);
    aggregate_close(&a);
}

/* ---- clearing, and the archive ---- */

static void only_what_is_archived_is_cleared(void **state)
{
    (void)state;
    struct aggregate *a = open_good();
    for (int n = 1; n <= 3; n++) {
        take(a, n);
        seal_good(a);
    }
    assert_int_equal(aggregate_clear(a, 4, error), AGGREGATE_CLEAR_OPEN);
    assert_int_equal(aggregate_clear(a, 1, error), AGGREGATE_CLEAR_NOT_ARCHIVED);
    aggregate_close(&a);
    put_manifest(2, 3 * LENGTH);
    a = open_good();
    assert_int_equal(aggregate_clear(a, 3, error), AGGREGATE_CLEAR_NOT_ARCHIVED);
    assert_non_null(strstr(error, "through slice 2"));
    assert_int_equal(count_after(a, 0), 6);
    assert_int_equal(aggregate_clear(a, 2, error), AGGREGATE_CLEAR_OK);
    assert_int_equal(aggregate_clear(a, 2, error), AGGREGATE_CLEAR_OK);
    assert_int_equal(aggregate_clear(a, 1, error), AGGREGATE_CLEAR_OK);
    assert_int_equal(count_after(a, 1), -1);
    assert_int_equal(count_after(a, 2), 3);
    assert_int_equal(access(in_dir("slices/0000000002.db"), F_OK), -1);
    aggregate_close(&a);
    a = open_good();
    assert_int_equal(count_after(a, 1), -1);
    assert_int_equal(count_after(a, 2), 3);
    aggregate_close(&a);
}

static void it_begins_behind_the_archive(void **state)
{
    (void)state;
    put_manifest(3, 7 * LENGTH);
    struct aggregate *a = open_good();
    assert_int_equal(aggregate_open_slice(a), 4);
    assert_int_equal(aggregate_cursor(a, 0)->offset, 7 * LENGTH);
    assert_string_equal(aggregate_cursor(a, 0)->id, ID);
    take(a, 2);
    seal_good(a);
    aggregate_close(&a);
    a = open_good();
    assert_int_equal(count_after(a, 3), 2);
    aggregate_close(&a);
    put_manifest(3, 6 * LENGTH);
    refused(SLICE_FOREIGN, "slice 4 begins in stream clicks");
    put_manifest(4, 8 * LENGTH);
    refused(SLICE_FOREIGN, "slice 5 begins in stream clicks");
    unlink(in_dir("slices/0000000005.db"));
    refused(SLICE_FOREIGN, "slice 4 ends in stream clicks");
    put_manifest(4, 9 * LENGTH);
    a = open_good();
    aggregate_close(&a);
    put_manifest(2, 0);
    refused(SLICE_FOREIGN, "goes through slice 2, but the oldest");
    put_manifest(6, 0);
    refused(SLICE_FOREIGN, "goes through slice 6 already");
}

static void a_gap_is_refused(void **state)
{
    (void)state;
    struct aggregate *a = open_good();
    for (int n = 1; n <= 3; n++)
        seal_good(a);
    aggregate_close(&a);
    unlink(in_dir("slices/0000000002.db"));
    refused(SLICE_FOREIGN, "slice 2 is missing");
}

/* ---- counters that change ---- */

static void rejected_once(void)
{
    FILE *f = fopen(in_dir("rejects/0000000001.ndjson"), "a");
    assert_non_null(f);
    fputs("what was written and not recorded\n", f);
    fclose(f);
}

static void what_the_old_counters_counted_is_sealed(void **state)
{
    (void)state;
    struct stat st;
    struct aggregate *a = open_good();
    take(a, 3);
    aggregate_flush(a, 0);
    aggregate_close(&a);
    rejected_once();
    read_counters(MORE);
    a = open_good();
    assert_int_equal(aggregate_open_slice(a), 2);
    assert_int_equal(count_after(a, 0), 3);
    assert_int_equal(stat(in_dir("rejects/0000000001.ndjson"), &st), 0);
    assert_int_equal(st.st_size, 0);
    take(a, 2);
    seal_good(a);
    assert_int_equal(count_after(a, 0), 5);
    aggregate_close(&a);
    a = open_good();
    assert_int_equal(aggregate_open_slice(a), 3);
    aggregate_close(&a);
    read_counters(OTHER);
    refused(SLICE_DIFFERENT, "total u key = l");
}

static void another_key_under_a_name_is_refused(void **state)
{
    (void)state;
    put_manifest(3, 7 * LENGTH);
    read_counters(OTHER);
    refused(SLICE_DIFFERENT, "total u key = l");
    assert_int_equal(access(in_dir("slices/0000000004.db"), F_OK), -1);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(the_next_begins_where_it_ended),
        TEST(sealing_takes_what_is_being_flushed),
        TEST(found_between_its_two_steps),
        TEST(killed_anywhere_it_is_open_or_sealed),
        TEST(without_a_next_slice_nothing_is_answered_or_lost),
        TEST(only_what_is_archived_is_cleared),
        TEST(it_begins_behind_the_archive),
        TEST(a_gap_is_refused),
        TEST(what_the_old_counters_counted_is_sealed),
        TEST(another_key_under_a_name_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
