/* aggregate and its chain of slices: sealed, cleared, stopped at every step, and opened beside an archive. */
#include "support/cm.h"

#include "aggregator/aggregate.h"
#include "aggregator/count_watermark.h"
#include "counts/slice.h"
#include "base/io.h"
#include "support/fault_vfs.h"
#include "support/make_slice.h"
#include "support/test_dir.h"
#include "counts/manifest.h"

#include <errno.h>
#include <pthread.h>
#include <sqlite3.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define ID "0123456789abcdef0123456789abcdef"
#define LINE "{\"t\":1331923249,\"l\":\"a\",\"c\":\"US\"}"
#define LENGTH sizeof LINE /* with its LF */
#define WALL (1400000000 * USEC_PER_SEC)
#define SLICES 60
#define PLAIN "[input]\ntime = t\n[total u]\nkey = l\n"
#define MORE PLAIN "[subtotal c.u]\nkey = c\n"
#define OTHER "[input]\ntime = t\n[total u]\nkey = c\n"

static char dir[64];
static struct error error;
static struct counters *counters;
static const char *archive;
static char retired[64];        /* of the manifest */
static const char *no_room_for; /* the file that cannot be written, by its name */
static uint64_t max_batch;
static usec_t wall; /* at the next opening */
static struct stats_histogram *lateness;

static void read_counters(const char *text)
{
    struct config *config = NULL;
    struct error e;
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
    make_test_dir(dir, sizeof dir);
    archive = NULL;
    no_room_for = NULL;
    max_batch = 0;
    wall = WALL;
    retired[0] = '\0';
    io = &io_system;
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

static _Atomic unsigned jobs_over; /* of the storage thread */

static void notify(void *arg)
{
    (void)arg;
    jobs_over++;
}

/* One turn of a wait that began at `began`: sleeps briefly, or fails after PATIENCE. */
static void wait_turn(usec_t began)
{
    if (clock_monotonic() - began > PATIENCE)
        fail_msg("nothing happened for %d s", (int)(PATIENCE / USEC_PER_SEC));
    usleep(100);
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
        .max_sealed = SLICES,
        .max_batch = max_batch,
        .lateness = lateness,
        .notify = notify};
    return aggregate_open(&c, wall, a, &error);
}

static struct aggregate *open_good(void)
{
    struct aggregate *a;
    if (try_open(&a) != SLICE_OK)
        fail_msg("%s", error.text);
    return a;
}

static void refused(enum slice_result expected, const char *reason)
{
    struct aggregate *a;
    assert_int_equal(try_open(&a), expected);
    if (!strstr(error.text, reason))
        fail_msg("%s: %s", reason, error.text);
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
    uint64_t n = aggregate_open_slice(a);
    usec_t began = clock_monotonic();
    while (!sealed_find(aggregate_sealed(a), n)) {
        enum slice_result r = aggregate_seal(a, 0, 0, &error);
        if (r != SLICE_OK)
            return r;
        wait_turn(began);
        aggregate_poll(a, 0);
    }
    return SLICE_OK;
}

static enum aggregate_clear clear(struct aggregate *a, uint64_t through)
{
    enum aggregate_clear r;
    usec_t began = clock_monotonic();
    while ((r = aggregate_clear(a, 0, through, &error)) == AGGREGATE_CLEAR_BUSY) {
        wait_turn(began);
        aggregate_poll(a, 0);
    }
    return r;
}

/* Polls until nothing is under way, or something waits or has failed. */
static void settle(struct aggregate *a, usec_t now)
{
    usec_t began = clock_monotonic();
    while (!aggregate_is_clean(a) && !aggregate_failure(a)) {
        wait_turn(began);
        aggregate_flush(a, now);
        aggregate_poll(a, now);
    }
}

static void seal_good(struct aggregate *a)
{
    if (seal(a) != SLICE_OK)
        fail_msg("%s", error.text);
}

static int read_layers(
    const struct reads_layers *layers, const struct reads_query *query, struct reads_answer *answer)
{
    struct reads *r = reads_new(query);
    reads_begin(r, layers, true);
    int result = reads_run(r, answer);
    reads_free(&r);
    return result;
}

static int get(const struct reads_layers *layers, struct reads_answer *answer)
{
    struct bytes key = BYTES_LITERAL("u|a");
    return read_layers(layers, &(struct reads_query){.keys = &key, .n_keys = 1}, answer);
}

/* The count of the one user after slice `after`; -1 when that cannot be answered. */
static long count_after(struct aggregate *a, uint64_t after)
{
    struct reads_layers layers;
    struct reads_answer answer = {0};
    if (aggregate_layers(a, after, &layers) != AGGREGATE_AFTER_OK)
        return -1;
    assert_int_equal(get(&layers, &answer), 0);
    buf_append_char(&answer.lines, '\0');
    const char *colon = strrchr(answer.lines.ptr, ':');
    long n = colon ? strtol(colon + 1, NULL, 10) : 0;
    reads_answer_free(&answer);
    return n;
}

static void put_manifest(uint64_t through, uint64_t end)
{
    char name[MANIFEST_NAME_TEXT], path[200];
    struct manifest_file file = {.name = "shard-0-of-1.csv"}, texts = {.name = "texts-0-of-1.csv"};
    struct manifest_stream stream = {.name = "clicks", .id = ID, .end = end};
    char text[] = "total u key = l\n";
    const struct manifest m = {.generation = through,
        .through = through,
        .until = 1000,
        .counters = text,
        .retired = retired,
        .shards = 1,
        .files = &file,
        .texts = &texts,
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

static uint64_t rejected(const struct aggregate *a)
{
    struct aggregate_numbers n;
    aggregate_numbers(a, &n);
    return n.counted.rejected;
}

/* A clock that was set back, also while the aggregator was stopped, rejects nothing that it had accepted. */
static void the_clock_bounds_times(void **state)
{
    (void)state;
    struct stats *s = stats_new("aggregator");
    struct bytes soon = BYTES_LITERAL("{\"t\":1400172800,\"l\":\"a\"}"),
                 later = BYTES_LITERAL("{\"t\":1400172801}");
    lateness = stats_delay_histogram(s, "lateness_seconds", NULL, "");
    struct aggregate *a = open_good();
    take(a, 1);
    aggregate_take_line(a, 0, soon);
    assert_int_equal(rejected(a), 0);
    aggregate_take_line(a, 0, later);
    assert_int_equal(rejected(a), 1);
    aggregate_set_wall(a, WALL + USEC_PER_SEC, WALL + USEC_PER_SEC);
    aggregate_set_wall(a, 0, 0);
    aggregate_take_line(a, 0, later);
    assert_int_equal(rejected(a), 1);
    assert_int_equal(stats_observations(lateness), 3);
    assert_int_equal(stats_quantile(lateness, 0.5), USEC_PER_SEC);
    assert_int_equal(stats_quantile(lateness, 1), INT64_C(365) * 86400 * USEC_PER_SEC);
    settle(a, 0);
    aggregate_close(&a);
    wall = WALL - 86400 * USEC_PER_SEC;
    a = open_good();
    aggregate_take_line(a, 0, soon);
    assert_int_equal(rejected(a), 0);
    aggregate_close(&a);
    lateness = NULL;
    stats_free(&s);
}

static void take_user(struct aggregate *a, const char *user, const char *country)
{
    char line[100];
    snprintf(line, sizeof line, "{\"t\":1331923249,\"l\":\"%s\",\"c\":\"%s\"}", user, country);
    if (aggregate_cursor(a, 0)->id[0] == '\0')
        aggregate_begin_stream(a, 0, ID, 0);
    aggregate_take_line(a, 0, bytes_str(line));
}

/* Everything after slice `after`, as text. */
static void assert_counts(struct aggregate *a, uint64_t after, const char *expected)
{
    struct reads_layers layers;
    struct reads_answer answer = {0};
    assert_int_equal(aggregate_layers(a, after, &layers), AGGREGATE_AFTER_OK);
    assert_int_equal(read_layers(&layers, &(struct reads_query){0}, &answer), 0);
    buf_append_char(&answer.lines, '\0');
    assert_string_equal(answer.lines.ptr, expected);
    reads_answer_free(&answer);
}

static void keys_over_the_limit_count_as_other(void **state)
{
    (void)state;
    read_counters("[input]\ntime = t\n[total u]\nkey = l\nmax_keys = 3\n[total v]\nkey = c\n"
                  "[subtotal c.u]\nkey = c\n[subtotal d.u]\nkey = c\nmax_keys = 1\n");
    struct aggregate *a = open_good();
    take_user(a, "(other)", "DE"); /* its own key, which is not that of the keys over the limit */
    take_user(a, "twelve_bytes", "US");
    settle(a, 0);
    aggregate_close(&a);
    a = open_good(); /* in the middle of the slice */
    take_user(a, "b", "US");
    settle(a, 0);
    take_user(a, "c_is_hashed_too", "JP");
    take_user(a, "b", "DE");
    assert_int_equal(aggregate_over_max_keys(a, 0), 1);
    assert_int_equal(aggregate_over_max_keys(a, 1), 0);
    assert_int_equal(aggregate_over_max_keys(a, 3), 3 - 1);
    assert_counts(a, 0,
        "c.u|(other).c3gi,JP:1\nc.u|\\(other).c3gi,DE:1\nc.u|b.c3gi,DE:1 US:1\nc.u|j8mUUZ6j0Z4=.c3gi,US:1\n"
        "d.u|(other).c3gi,(other):1\nd.u|\\(other).c3gi,DE:1\nd.u|b.c3gi,(other):1 "
        "DE:1\nd.u|j8mUUZ6j0Z4=.c3gi,(other):1\n"
        "lookup|j8mUUZ6j0Z4=,twelve_bytes\n"
        "u|(other),c3gi:1\nu|\\(other),c3gi:1\nu|b,c3gi:2\nu|j8mUUZ6j0Z4=,c3gi:1\nv|DE,c3gi:2\nv|JP,c3gi:"
        "1\nv|US,c3gi:2\n");
    seal_good(a);
    settle(a, 0);
    take_user(a, "c_is_hashed_too", "JP");
    assert_counts(a, 1,
        "c.u|Wvd10e4qfwE=.c3gi,JP:1\nd.u|Wvd10e4qfwE=.c3gi,JP:1\nlookup|Wvd10e4qfwE=,c_is_hashed_too\n"
        "u|Wvd10e4qfwE=,c3gi:1\nv|JP,c3gi:1\n");
    aggregate_close(&a);
}

/* The first event has no value, so its key has a set, but no count. */
static void keys_with_sets_alone_are_within_the_limit(void **state)
{
    (void)state;
    read_counters(
        "[input]\ntime = t\n[total u]\nkey = l\nmax_keys = 1\nvalue = p\n[unique v.u]\nmember = c\n");
    for (int restarts = 0; restarts < 2; restarts++) {
        struct aggregate *a = open_good();
        take_user(a, "a.b", "DE");
        settle(a, 0);
        if (restarts) {
            aggregate_close(&a);
            a = open_good();
        }
        take_user(a, "b\",\"p\":\"5", "US");
        assert_int_equal(aggregate_over_max_keys(a, 0), 1);
        seal_good(a);
        settle(a, 0);
        aggregate_close(&a);
    }
}

static const char *const watched[] = {"clicks"};

static void reopen(struct aggregate **a, struct count_watermark **w)
{
    count_watermark_free(w);
    aggregate_close(a);
    *a = open_good();
    *w = count_watermark_new(*a, watched, 1);
}

/* Second n was stated at ends[n]. Statements come, lines follow later, and flushes and crashes come at any moment. */
static void a_cursor_has_no_time_of_a_later_offset(void **state)
{
    enum { STEPS = 1000, STEPS_MAX = 20 * STEPS };
    static uint64_t ends[STEPS_MAX + 1];
    (void)state;
    seeded();
    struct aggregate *a = open_good();
    struct count_watermark *w = count_watermark_new(a, watched, 1);
    size_t n = 0, stored = 0;
    unsigned over = jobs_over - 1; /* jobs, when the latest flush began */
    usec_t now = 0;
    /* The first time is stored at a random step. */
    for (int step = 0; step < STEPS || (stored < STEPS / 2 && step < STEPS_MAX); step++) {
        uint64_t at = aggregate_cursor(a, 0)->offset, from = at > ends[n] ? at : ends[n];
        long act = random() % 100;
        if (act < 30) {
            ends[++n] = from + (uint64_t)(random() % 3) * LENGTH;
            count_watermark_on_statement(w, 0,
                &(struct stream_statement){
                    .until = (usec_t)n * USEC_PER_SEC, .now = (usec_t)n * USEC_PER_SEC, .end = ends[n]});
        } else if (act < 70) {
            take(a, 1 + (int)(random() % 2));
            count_watermark_on_cursor(w, 0, false);
        } else if (act < 80) {
            unsigned before = jobs_over;
            over = aggregate_tick(a, now += USEC_PER_SEC) ? before : over;
        } else if (act < 90) {
            for (usec_t began = clock_monotonic(); jobs_over == over;)
                wait_turn(began);
            aggregate_poll(a, now);
        } else if (act < 95) {
            count_watermark_on_response_end(w, 0);
        } else if (act < 97 && aggregate_open_slice(a) < SLICES) {
            seal_good(a);
        } else {
            reopen(&a, &w);
        }
        const struct slice_cursor *c = aggregate_committed(a, 0);
        assert_true(ends[c->until / USEC_PER_SEC] <= c->offset);
        assert_true(ends[count_watermark_stored_until(w)] <= c->offset);
        assert_true(ends[count_watermark_until(w)] <= aggregate_cursor(a, 0)->offset);
        stored += c->until > 0;
    }
    assert_true(stored >= STEPS / 2);
    count_watermark_free(&w);
    aggregate_close(&a);
}

static void state_time(struct count_watermark *w, usec_t until, usec_t now, uint64_t end)
{
    count_watermark_on_statement(w, 0,
        &(struct stream_statement){
            .until = until * USEC_PER_SEC, .now = now * USEC_PER_SEC, .end = end, .at = clock_boot()});
}

static void the_stored_time_holds_for_its_lines_only(void **state)
{
    (void)state;
    struct aggregate *a = open_good();
    struct count_watermark *w = count_watermark_new(a, watched, 1);
    take(a, 3);
    settle(a, 0);
    state_time(w, 3500, 3600, 3 * LENGTH);
    assert_int_equal(count_watermark_stored_until(w), 3500);
    take(a, 1); /* a line in memory takes nothing back */
    state_time(w, 3600, 3600, 4 * LENGTH);
    assert_int_equal(count_watermark_until(w), 3600);
    assert_int_equal(count_watermark_stored_until(w), 3500);
    reopen(&a, &w); /* no flush has stored it */
    assert_int_equal(count_watermark_until(w), 0);
    state_time(w, 3500, 3600, 3 * LENGTH);
    aggregate_keep_untils(a);
    settle(a, 0);
    reopen(&a, &w);
    assert_int_equal(count_watermark_until(w), 3500);
    state_time(w, 0, 100, 3 * LENGTH); /* the clock was ahead when the time was stored */
    assert_int_equal(count_watermark_until(w), 0);
    state_time(w, 90, 101, 3 * LENGTH);
    assert_int_equal(count_watermark_stored_until(w), 90);
    aggregate_cross_hole(a, 0, LENGTH);
    count_watermark_on_cursor(w, 0, true);
    assert_int_equal(count_watermark_until(w), 0);
    assert_int_equal(count_watermark_stored_until(w), 0);
    settle(a, 0);
    reopen(&a, &w);
    assert_int_equal(aggregate_cursor(a, 0)->offset, LENGTH);
    assert_int_equal(count_watermark_until(w), 0);
    count_watermark_free(&w);
    aggregate_close(&a);
}

static void the_next_begins_where_it_ended(void **state)
{
    (void)state;
    struct aggregate *a = open_good();
    struct aggregate_numbers numbers;
    take(a, 3);
    assert_int_equal(count_after(a, 0), 3);
    seal_good(a);
    settle(a, 0);
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
    assert_int_equal(numbers.counted.events, 5);
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

/* The stream's place is what retention must keep, though the commit under way does not have it yet. */
static void a_stream_that_begins_during_a_commit_keeps_its_beginning(void **state)
{
    (void)state;
    struct aggregate *a = open_good();
    assert_int_equal(aggregate_seal(a, 0, 0, &error), SLICE_OK);
    aggregate_begin_stream(a, 0, ID, 700);
    seal_good(a);
    assert_string_equal(aggregate_committed(a, 0)->id, ID);
    assert_int_equal(aggregate_committed(a, 0)->offset, 700);
    aggregate_close(&a);
}

/* The monotonic clock begins at boot: it may be below the flush interval. */
static void the_first_lines_are_committed_at_once(void **state)
{
    (void)state;
    struct aggregate *a = open_good();
    assert_false(aggregate_tick(a, 1));
    aggregate_begin_stream(a, 0, ID, 0);
    assert_false(aggregate_tick(a, 2));
    take(a, 1);
    assert_true(aggregate_tick(a, 3));
    usec_t began = clock_monotonic();
    while (!aggregate_is_clean(a)) {
        wait_turn(began);
        aggregate_poll(a, 3);
    }
    take(a, 1);
    assert_false(aggregate_tick(a, 4));
    assert_int_equal(aggregate_committed(a, 0)->offset, LENGTH);
    aggregate_close(&a);
}

/* While the last batch of a slice is on its way lines are counted into the next, and reads see all of them. */
static void counting_goes_on_while_a_slice_is_sealed(void **state)
{
    (void)state;
    struct aggregate *a = open_good();
    struct aggregate_numbers numbers;
    int lines = 0;
    for (int round = 0; round < 20; round++) {
        uint64_t n = aggregate_open_slice(a);
        take(a, 3);
        lines += 3;
        assert_int_equal(aggregate_seal(a, 0, 0, &error), SLICE_OK);
        do {
            take(a, 1);
            assert_int_equal(count_after(a, 0), ++lines);
            aggregate_numbers(a, &numbers);
            assert_int_equal(numbers.total.events, lines);
            aggregate_poll(a, 0);
            assert_int_equal(aggregate_seal(a, 0, 0, &error), SLICE_OK);
        } while (!sealed_find(aggregate_sealed(a), n));
    }
    settle(a, 0);
    aggregate_close(&a);
    a = open_good();
    assert_int_equal(count_after(a, 0), aggregate_cursor(a, 0)->offset / LENGTH);
    aggregate_close(&a);
}

struct held_read {
    struct reads *reads;
    struct reads_answer answer;
};

static void *run_read(void *arg)
{
    struct held_read *r = arg;
    assert_int_equal(reads_run(r->reads, &r->answer), 0);
    return NULL;
}

/* A read in another thread shows one moment: counting continues, and a completed commit waits for the read. */
static void a_held_read_shows_one_moment(void **state)
{
    (void)state;
    struct aggregate *a = open_good();
    struct aggregate_numbers numbers;
    struct reads_layers layers;
    struct held_read held = {0};
    struct bytes key = BYTES_LITERAL("u|a");
    pthread_t thread;
    take(a, 5);
    settle(a, 0);
    take(a, 3);
    unsigned before = jobs_over;
    aggregate_flush(a, 0);
    for (usec_t began = clock_monotonic(); jobs_over == before;)
        wait_turn(began);
    take(a, 2);
    assert_int_equal(aggregate_layers(a, 0, &layers), AGGREGATE_AFTER_OK);
    held.reads = reads_new(&(struct reads_query){.keys = &key, .n_keys = 1});
    reads_begin(held.reads, &layers, true);
    assert_int_equal(reads_work(held.reads) > 0, true);
    aggregate_hold(a, true);
    assert_int_equal(pthread_create(&thread, NULL, run_read, &held), 0);
    take(a, 1000);
    aggregate_poll(a, 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    aggregate_numbers(a, &numbers);
    assert_int_equal(numbers.flushes, 1);
    assert_true(bytes_equal(buf_bytes(&held.answer.lines), BYTES_LITERAL("u|a,c3gi:10\n")));
    reads_free(&held.reads);
    reads_answer_free(&held.answer);
    assert_int_equal(count_after(a, 0), 1010);
    aggregate_hold(a, false);
    aggregate_poll(a, 0);
    aggregate_numbers(a, &numbers);
    assert_int_equal(numbers.flushes, 2);
    settle(a, 0);
    assert_int_equal(count_after(a, 0), 1010);
    aggregate_close(&a);
}

/* One event in each of so many hours, of one user. */
static void take_hours(struct aggregate *a, int first, int end)
{
    char line[64];
    for (int i = first; i < end; i++) {
        snprintf(line, sizeof line, "{\"t\":%lld,\"l\":\"a\",\"c\":\"US\"}", 946684800LL + i * 3600LL);
        aggregate_take_line(a, 0, bytes_str(line));
    }
}

/* Reads the user's total in parts, and appends its values to `out`. Returns their number. */
static int read_parts(struct aggregate *a, size_t size, struct buf *out)
{
    struct reads_layers layers;
    struct buf place = {0};
    int parts = 0;
    for (bool more = true; more; parts++) {
        struct reads_answer answer = {0};
        struct record r = {.key = BYTES_LITERAL("u|a"), .value = BYTES_NONE}, start = r;
        if (place.len > 0)
            assert_true(record_split(buf_bytes(&place), ',', &start));
        assert_int_equal(aggregate_layers(a, 0, &layers), AGGREGATE_AFTER_OK);
        assert_int_equal(
            read_layers(&layers,
                &(struct reads_query){
                    .start = r.key, .start_name = start.value, .end = r.key, .bounds.max_bytes = size},
                &answer),
            0);
        assert_true(
            answer.lines.len < size + RECORD_WHOLE_MAX && answer.lines.ptr[answer.lines.len - 1] == '\n');
        assert_true(record_split(bytes_of(answer.lines.ptr, answer.lines.len - 1), ',', &r));
        assert_true(bytes_equal_str(r.key, "u|a"));
        if (out->len > 0)
            buf_append_char(out, ' ');
        buf_append_bytes(out, r.value);
        more = answer.more;
        buf_clear(&place);
        buf_append_bytes(&place, buf_bytes(&answer.next));
        reads_answer_free(&answer);
    }
    buf_free(&place);
    return parts;
}

/* The loop does not copy many counts of the batch that counts: they are flushed first, and read where they are. */
static void many_counts_in_memory_are_flushed_before_they_are_read(void **state)
{
    (void)state;
    enum { HOURS = 60000, RUN = 30000 };
    struct aggregate *a = open_good();
    struct reads_layers layers;
    struct bytes key = BYTES_LITERAL("u|a");
    struct buf expected = {0};
    char hour[HOUR_TEXT_MAX + 1];
    take(a, 1);
    settle(a, 0);
    take_hours(a, 0, RUN);
    settle(a, 0);
    take_hours(a, RUN / 2, HOURS);
    struct reads *r = reads_new(&(struct reads_query){.keys = &key, .n_keys = 1});
    assert_int_equal(aggregate_layers(a, 0, &layers), AGGREGATE_AFTER_OK);
    assert_true(reads_begin(r, &layers, false)); /* 45000 counts */
    take_hours(a, HOURS, 2 * HOURS);
    assert_int_equal(aggregate_layers(a, 0, &layers), AGGREGATE_AFTER_OK);
    assert_false(reads_begin(r, &layers, false));
    aggregate_flush(a, 0);
    assert_int_equal(aggregate_layers(a, 0, &layers), AGGREGATE_AFTER_OK);
    assert_int_equal(layers.n_batches, 2);
    assert_true(reads_begin(r, &layers, false));
    reads_free(&r);
    for (int i = 0; i < 2 * HOURS; i++) {
        hour_encode(HOUR_FIRST + i * 3600LL, hour);
        int n = 1 + (i >= RUN / 2 && i < RUN) + (strcmp(hour, "c3gi") == 0);
        buf_printf(&expected, "%s%s:%d", i ? " " : "", hour, n);
    }
    for (int k = 0; k < 2; k++, settle(a, 0)) /* while it is written, and then */
        for (size_t size = 20000; size < 2000000; size *= 20) {
            struct buf got = {0};
            int parts = read_parts(a, size, &got);
            assert_true(parts >= (int)(expected.len / (size + RECORD_WHOLE_MAX)) &&
                        parts <= (int)(expected.len / (size - 64)) + 1);
            assert_int_equal(got.len, expected.len);
            assert_memory_equal(got.ptr, expected.ptr, got.len);
            buf_free(&got);
        }
    buf_free(&expected);
    aggregate_close(&a);
}

/* Flushes that are always due do not keep runs from being merged: a read looks into each. */
static void runs_stay_few_however_often_it_flushes(void **state)
{
    (void)state;
    struct aggregate *a = open_good();
    struct reads_layers layers;
    usec_t now = 0, began = clock_monotonic();
    int lines = 0;
    for (struct aggregate_numbers n = {0}; n.flushes < 10 * SLICE_MERGE_RUNS; aggregate_numbers(a, &n)) {
        take(a, 1);
        lines++;
        aggregate_tick(a, now += 2 * USEC_PER_SEC);
        wait_turn(began);
        aggregate_poll(a, now);
        assert_int_equal(aggregate_layers(a, 0, &layers), AGGREGATE_AFTER_OK);
        assert_true(slice_reader_runs(layers.readers[0]) <= 3 * SLICE_MERGE_RUNS);
    }
    assert_int_equal(count_after(a, 0), lines);
    aggregate_close(&a);
}

/* A slice with so many runs that merging goes before flushes. */
static void make_many_runs(void)
{
    struct slice_config c = {
        .path = in_dir("slices/0000000001.db"), .number = 1, .counters_text = counters->text};
    struct slice *s;
    assert_int_equal(mkdir(in_dir("slices"), 0755), 0);
    c.path = in_dir("slices/0000000001.db");
    assert_int_equal(slice_open(&c, &s, &error), SLICE_OK);
    for (int n = 0; n < 2 * SLICE_MERGE_RUNS; n++) {
        struct tally *t = tally_new(counters, 64 << 20, NULL, 0);
        struct count_source *sources[BATCH_SOURCES];
        struct slice_written written;
        const char *reason;
        int64_t time;
        tally_line(t, BYTES_LITERAL(LINE), &reason, &time);
        batch_sources(tally_batch(t), counters, &(struct count_range){0}, sources);
        struct slice_batch batch = {.sources = sources, .n_sources = BATCH_SOURCES};
        assert_int_equal(slice_commit(s, &batch, &written, &error), SLICE_OK);
        for (int i = 0; i < BATCH_SOURCES; i++)
            count_source_close(&sources[i]);
        tally_free(&t);
    }
    assert_true(slice_merge_is_behind(s));
    slice_close(&s);
}

/* Otherwise restarts that come faster than a merge ends would keep everything from being committed. */
static void the_first_flush_waits_for_no_merge(void **state)
{
    (void)state;
    make_many_runs();
    struct aggregate *a = open_good();
    take(a, 1);
    assert_true(aggregate_tick(a, 1));
    aggregate_close(&a);
}

static void damage_found_by_a_merge_is_named(void **state)
{
    (void)state;
    make_many_runs();
    change_slice(in_dir("slices/0000000001.db"), "UPDATE blocks SET data = x'00' || data");
    struct aggregate *a = open_good();
    usec_t now = 0, began = clock_monotonic();
    while (!aggregate_failure(a)) {
        aggregate_tick(a, ++now);
        wait_turn(began);
        aggregate_poll(a, now);
    }
    assert_true(aggregate_failure(a)->code != SLICE_FULL && aggregate_is_full(a));
    assert_non_null(strstr(aggregate_failure(a)->text, "storage damaged: "));
    assert_non_null(strstr(aggregate_failure(a)->text, in_dir("slices/0000000001.db")));
    aggregate_close(&a);
}

/* While the reader cannot be renewed the batch that it does not show stays, and nothing is answered. */
static void a_full_disk_at_a_renewal_passes(void **state)
{
    (void)state;
    struct reads_layers layers;
    struct reads_answer answer = {0};
    fault_vfs_set(0);
    struct aggregate *a = open_good();
    take(a, 5);
    fault_vfs_set(SQLITE_FULL);
    settle(a, USEC_PER_SEC);
    assert_non_null(strstr(aggregate_failure(a)->text, "storage full"));
    assert_int_equal(aggregate_failure(a)->code, SLICE_FULL);
    assert_int_equal(aggregate_layers(a, 0, &layers), AGGREGATE_AFTER_OK);
    assert_int_equal(get(&layers, &answer), -1);
    take(a, 2);
    aggregate_tick(a, USEC_PER_SEC);
    assert_int_equal(seal(a), SLICE_FULL);
    fault_vfs_set(0);
    aggregate_tick(a, USEC_PER_SEC + 1);
    assert_non_null(aggregate_failure(a)); /* not yet due */
    aggregate_tick(a, 9 * USEC_PER_SEC);
    assert_null(aggregate_failure(a));
    assert_int_equal(count_after(a, 0), 7);
    seal_good(a);
    assert_int_equal(count_after(a, 0), 7);
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

/* Seals until few more slices are allowed, and waits; says how many lines are in sealed slices for sure, when a seal is over. */
static void seal_until_killed(int out)
{
    struct aggregate *a = open_good();
    for (;;) {
        while (aggregate_open_slice(a) > SLICES - 2)
            pause();
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
    unsigned seed = seeded();
    uint64_t at[2] = {1, 0};
    for (int round = 0; (round < 20 && at[0] < SLICES - 10) || (at[0] == 1 && round < 500); round++) {
        int pipes[2];
        assert_int_equal(pipe(pipes), 0);
        pid_t child = fork();
        if (child == 0) {
            srandom(seed + (unsigned)round);
            seal_until_killed(pipes[1]);
        }
        close(pipes[1]);
        usleep((useconds_t)(random() % (round < 20 ? 60000 : 600000)));
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

static void without_a_next_slice_nothing_is_lost(void **state)
{
    (void)state;
    struct aggregate *a = open_good();
    take(a, 5);
    assert_int_equal(mkdir(in_dir("slices/0000000002.db"), 0755), 0);
    seal_good(a); /* slice 1 is sealed, whatever becomes of the next */
    settle(a, 0);
    assert_non_null(aggregate_failure(a));
    assert_true(aggregate_failure(a)->code != SLICE_FULL && aggregate_is_full(a));
    assert_int_equal(count_after(a, 0), 5);
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

static pthread_t loop_thread;
static size_t written_by_loop; /* into any slice's file or log */

static ssize_t pwrite_with_room(int fd, const void *p, size_t n, off_t at)
{
    char link[64], path[128] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, sizeof path - 1);
    const char *name = len > 0 ? strrchr(path, '/') : NULL;
    if (name && strstr(name, ".db") && pthread_equal(pthread_self(), loop_thread))
        written_by_loop += n;
    if (name && no_room_for && strcmp(name + 1, no_room_for) == 0) {
        errno = ENOSPC;
        return -1;
    }
    return pwrite(fd, p, n, at);
}

/* SQLite's writes pass through here; what it opened before too. */
static void watch_writes(bool on)
{
    sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);
    static const char *const calls[] = {"pwrite", "pwrite64"};
    for (int i = 0; i < 2; i++)
        assert_int_equal(
            vfs->xSetSystemCall(vfs, calls[i], on ? (sqlite3_syscall_ptr)pwrite_with_room : NULL), SQLITE_OK);
}

/* Retries the job that failed and waits until it is over. If it succeeds, waits for every later job too. */
static void retry(struct aggregate *a, usec_t now)
{
    unsigned before = jobs_over;
    usec_t began = clock_monotonic();
    aggregate_tick(a, now);
    while (jobs_over == before)
        wait_turn(began);
    aggregate_poll(a, now);
    settle(a, now);
}

static void begins_the_next_when_room_returns(void **state)
{
    (void)state;
    struct aggregate_numbers numbers;
    watch_writes(true);
    struct aggregate *a = open_good();
    take(a, 5);
    no_room_for = "0000000002.db";
    seal_good(a); /* slice 1 is sealed: it may be archived, which makes room */
    settle(a, 0);
    assert_non_null(aggregate_failure(a));
    assert_int_equal(aggregate_failure(a)->code, SLICE_FULL);
    assert_int_equal(aggregate_open_slice(a), 2);
    assert_non_null(sealed_find(aggregate_sealed(a), 1));
    assert_int_equal(count_after(a, 0), 5);
    take(a, 3);
    assert_int_equal(count_after(a, 0), 8);
    assert_int_equal(count_after(a, 1), 3);
    aggregate_numbers(a, &numbers);
    assert_int_equal(numbers.total.events, 8);
    assert_int_equal(seal(a), SLICE_FULL);
    aggregate_flush(a, USEC_PER_SEC);
    retry(a, 9 * USEC_PER_SEC);
    assert_non_null(aggregate_failure(a));
    no_room_for = NULL;
    aggregate_tick(a, 9 * USEC_PER_SEC + 1);
    assert_non_null(aggregate_failure(a)); /* not yet due */
    retry(a, 19 * USEC_PER_SEC);
    assert_null(aggregate_failure(a));
    assert_int_equal(count_after(a, 1), 3);
    seal_good(a);
    assert_int_equal(count_after(a, 0), 8);
    aggregate_numbers(a, &numbers);
    assert_int_equal(numbers.total.events, 8);
    aggregate_close(&a);
    a = open_good();
    assert_int_equal(aggregate_open_slice(a), 3);
    assert_int_equal(count_after(a, 1), 3);
    assert_int_equal(count_after(a, 0), 8);
    aggregate_close(&a);
    watch_writes(false);
}

static void settles_when_room_returns(void **state)
{
    (void)state;
    watch_writes(true);
    struct aggregate *a = open_good();
    take(a, 5);
    no_room_for = "0000000001.db"; /* the log has room, the file it is folded into has not */
    assert_int_equal(seal(a), SLICE_FULL);
    assert_int_equal(aggregate_open_slice(a), 1);
    assert_int_equal(count_after(a, 0), 5); /* reads go on */
    assert_non_null(aggregate_failure(a));
    assert_int_equal(aggregate_failure(a)->code, SLICE_FULL);
    take(a, 2);
    aggregate_close(&a);
    no_room_for = NULL;
    a = open_good(); /* a start with room heals it too */
    assert_int_equal(count_after(a, 0), 5);
    aggregate_close(&a);
    watch_writes(false);
}

static void settles_without_a_restart(void **state)
{
    (void)state;
    watch_writes(true);
    struct aggregate *a = open_good();
    take(a, 5);
    no_room_for = "0000000001.db";
    assert_int_equal(seal(a), SLICE_FULL);
    take(a, 2);
    no_room_for = NULL;
    retry(a, 9 * USEC_PER_SEC);
    assert_null(aggregate_failure(a));
    assert_int_equal(count_after(a, 0), 7);
    seal_good(a);
    assert_int_equal(count_after(a, 1), 2);
    aggregate_close(&a);
    watch_writes(false);
}

/* A count has 32 bits. A batch that cannot be committed must not grow past them. */
static void a_batch_of_too_many_events_pauses(void **state)
{
    (void)state;
    max_batch = 10;
    watch_writes(true);
    struct aggregate *a = open_good();
    take(a, 1);
    no_room_for = "0000000001.db-wal";
    settle(a, 0);
    take(a, 9);
    assert_false(aggregate_is_full(a));
    take(a, 1);
    assert_true(aggregate_is_full(a));
    no_room_for = NULL;
    retry(a, 9 * USEC_PER_SEC);
    assert_false(aggregate_is_full(a));
    assert_int_equal(count_after(a, 0), 11);
    aggregate_close(&a);
    watch_writes(false);
}

/* Keys of every kind, twice and missing ones, are answered as one by one, from memory and from a slice. */
static void many_keys_are_answered_as_one_by_one(void **state)
{
    (void)state;
    enum { USERS = 3000, KEYS = 400 };
    static char texts[KEYS][64];
    struct bytes keys[KEYS];
    struct buf expected = {0};
    read_counters(MORE);
    struct aggregate *a = open_good();
    aggregate_begin_stream(a, 0, ID, 0);
    for (int part = 0; part < 3; part++) {
        for (int i = 0; i < USERS; i++) {
            char line[128];
            int n = snprintf(line, sizeof line, "{\"t\":1331923249,\"l\":\"%s%d\",\"c\":\"c%d\"}",
                i % 2 ? "a long text " : "u", i, (i + part) % 3);
            aggregate_take_line(a, 0, bytes_of(line, (size_t)n));
        }
        if (part < 2)
            aggregate_flush(a, 0);
        if (part == 0)
            settle(a, 0); /* part 1 is being written, part 2 is not */
    }
    for (int i = 0; i < KEYS; i++) {
        char text[64], space[COMPONENT_HASH + 1];
        int user = i * 7 % 350 * 9; /* some twice, some missing */
        snprintf(text, sizeof text, "%s%d", user % 2 ? "a long text " : "u", user);
        struct bytes c = component_store(bytes_str(text), space);
        const char *const forms[] = {"u|%.*s", "c.u|%.*s.c3gi", "lookup|%.*s", "other|%.*s", "%.*s"};
        const char *form = forms[i % 5];
        struct buf key = {0};
        for (const char *at = form; *at; at++) {
            if (strncmp(at, "%.*s", 4) == 0) {
                buf_append_bytes(&key, c);
                at += 3;
            } else {
                buf_append_char(&key, *at);
            }
        }
        buf_append_char(&key, '\0');
        snprintf(texts[i], sizeof texts[i], "%s", key.ptr);
        keys[i] = bytes_str(texts[i]);
        buf_free(&key);
    }
    struct reads_layers layers;
    struct reads_answer all = {0}, cut = {0};
    assert_int_equal(aggregate_layers(a, 0, &layers), AGGREGATE_AFTER_OK);
    assert_int_equal(read_layers(&layers, &(struct reads_query){.keys = keys, .n_keys = KEYS}, &all), 0);
    assert_true(all.records > 150 && all.records < KEYS);
    for (int i = 0; i < KEYS; i++) {
        struct reads_answer one = {0}, ranged = {0}, prefixed = {0};
        assert_int_equal(read_layers(&layers, &(struct reads_query){.keys = &keys[i], .n_keys = 1}, &one), 0);
        buf_append_bytes(&expected, buf_bytes(&one.lines));
        /* A range whose bounds have no component in common walks everything. */
        assert_int_equal(
            read_layers(&layers, &(struct reads_query){.start = keys[i], .end = keys[i]}, &ranged), 0);
        assert_true(bytes_equal(buf_bytes(&ranged.lines), buf_bytes(&one.lines)));
        assert_int_equal(
            read_layers(&layers, &(struct reads_query){.start = keys[i], .bounds.max_records = 1}, &prefixed),
            0);
        if (one.records)
            assert_true(bytes_equal(buf_bytes(&prefixed.lines), buf_bytes(&one.lines)));
        reads_answer_free(&one);
        reads_answer_free(&ranged);
        reads_answer_free(&prefixed);
    }
    assert_true(bytes_equal(buf_bytes(&all.lines), buf_bytes(&expected)));
    assert_int_equal(read_layers(&layers,
                         &(struct reads_query){.keys = keys, .n_keys = KEYS, .bounds.max_bytes = 200}, &cut),
        0);
    assert_true(cut.more && cut.lines.len >= 200 && cut.lines.len < 300);
    reads_answer_free(&all);
    reads_answer_free(&cut);
    buf_free(&expected);
    aggregate_close(&a);
}

static struct io_ops watching;
static bool synced_by_loop;
static unsigned closes_of_deleted;

static int watching_fsync(int fd)
{
    synced_by_loop = synced_by_loop || pthread_equal(pthread_self(), loop_thread);
    return io_system.fsync(fd);
}

static int watching_unlink(const char *path)
{
    synced_by_loop = synced_by_loop || pthread_equal(pthread_self(), loop_thread);
    return io_system.unlink(path);
}

/* The last close of a deleted file frees its space, which takes long. */
static int watching_close(int fd)
{
    struct stat st;
    bool is_deleted = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 0;
    closes_of_deleted += is_deleted;
    synced_by_loop = synced_by_loop || (is_deleted && pthread_equal(pthread_self(), loop_thread));
    return close(fd);
}

static void watch_closes(bool on)
{
    sqlite3_vfs *vfs = sqlite3_vfs_find(NULL);
    assert_int_equal(
        vfs->xSetSystemCall(vfs, "close", on ? (sqlite3_syscall_ptr)watching_close : NULL), SQLITE_OK);
}

/* Also while a batch waits for room, which clearing may make. */
static void the_loop_deletes_no_slice(void **state)
{
    (void)state;
    put_manifest(0, 0);
    watch_writes(true);
    struct aggregate *a = open_good();
    for (int n = 1; n <= 2; n++) {
        take(a, 1);
        seal_good(a);
    }
    settle(a, 0);
    take(a, 1);
    no_room_for = "0000000003.db-wal";
    settle(a, 0);
    assert_non_null(aggregate_failure(a));
    put_manifest(2, 2 * LENGTH);
    loop_thread = pthread_self();
    watching = io_system;
    watching.fsync = watching_fsync;
    watching.unlink = watching_unlink;
    io = &watching;
    watch_closes(true);
    synced_by_loop = false;
    closes_of_deleted = 0;
    assert_int_equal(aggregate_clear(a, 0, 2, &error), AGGREGATE_CLEAR_BUSY);
    assert_int_equal(clear(a, 2), AGGREGATE_CLEAR_OK);
    assert_false(synced_by_loop);
    assert_int_equal(closes_of_deleted, 2);
    watch_closes(false);
    io = &io_system;
    assert_int_equal(access(in_dir("slices/0000000002.db"), F_OK), -1);
    assert_int_equal(count_after(a, 1), -1);
    assert_int_equal(count_after(a, 2), 1);
    no_room_for = NULL;
    retry(a, 9 * USEC_PER_SEC);
    assert_int_equal(count_after(a, 2), 1);
    aggregate_close(&a);
    watch_writes(false);
}

/* Not the last batch, not the log, not the next slice. */
static void the_loop_writes_nothing_while_slices_are_sealed(void **state)
{
    (void)state;
    enum { LINES = 150000 };
    char line[64];
    loop_thread = pthread_self();
    watch_writes(true);
    struct aggregate *a = open_good();
    take(a, 1);
    for (int i = 1; i < LINES; i++) {
        int n = snprintf(line, sizeof line, "{\"t\":1331923249,\"l\":\"u%d\"}", i);
        aggregate_take_line(a, 0, bytes_of(line, (size_t)n));
    }
    written_by_loop = 0;
    seal_good(a);
    struct stat st;
    assert_int_equal(stat(in_dir("slices/0000000001.db"), &st), 0);
    assert_true(st.st_size > 1 << 20);
    settle(a, 0);
    assert_int_equal(written_by_loop, 0);
    assert_int_equal(count_after(a, 0), 1);
    aggregate_close(&a);
    watch_writes(false);
}

/* More than any reader would wait for is refused, with everything as it was. */
static void many_slices_are_read_and_one_more_is_refused(void **state)
{
    (void)state;
    struct aggregate *a = open_good();
    for (int n = 1; n <= SLICES; n++) {
        take(a, 1);
        seal_good(a);
    }
    take(a, 1);
    assert_int_equal(seal(a), SLICE_FULL);
    assert_non_null(strstr(error.text, "sealed but not cleared"));
    assert_int_equal(count_after(a, 0), SLICES + 1);
    assert_int_equal(count_after(a, SLICES), 1);
    settle(a, 0);
    aggregate_close(&a);
    read_counters(MORE); /* though it is one more, what was counted under other counters ends */
    a = open_good();
    assert_int_equal(aggregate_open_slice(a), SLICES + 2);
    assert_int_equal(count_after(a, 0), SLICES + 1);
    aggregate_close(&a);
}

static void only_what_is_archived_is_cleared(void **state)
{
    (void)state;
    struct aggregate *a = open_good();
    for (int n = 1; n <= 3; n++) {
        take(a, n);
        seal_good(a);
    }
    assert_int_equal(clear(a, 4), AGGREGATE_CLEAR_OPEN);
    assert_int_equal(clear(a, 1), AGGREGATE_CLEAR_NOT_ARCHIVED);
    aggregate_close(&a);
    put_manifest(2, 3 * LENGTH);
    a = open_good();
    assert_int_equal(clear(a, 3), AGGREGATE_CLEAR_NOT_ARCHIVED);
    assert_non_null(strstr(error.text, "only slices up to 2"));
    assert_int_equal(count_after(a, 0), 6);
    assert_int_equal(clear(a, 2), AGGREGATE_CLEAR_OK);
    assert_int_equal(clear(a, 2), AGGREGATE_CLEAR_OK);
    assert_int_equal(clear(a, 1), AGGREGATE_CLEAR_OK);
    assert_int_equal(count_after(a, 1), -1);
    assert_int_equal(count_after(a, 2), 3);
    assert_int_equal(access(in_dir("slices/0000000002.db"), F_OK), -1);
    aggregate_close(&a);
    a = open_good();
    assert_int_equal(count_after(a, 1), -1);
    assert_int_equal(count_after(a, 2), 3);
    aggregate_close(&a);
}

static struct io_ops noting;
static bool archive_synced;

static int noting_fsync(int fd)
{
    char link[64], path[200] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    assert_true(readlink(link, path, sizeof path - 1) > 0);
    archive_synced = archive_synced || strcmp(path, archive) == 0;
    return io_system.fsync(fd);
}

static int noting_unlink(const char *path)
{
    if (strstr(path, "/slices/"))
        assert_true(archive_synced);
    return io_system.unlink(path);
}

/* A compactor may have been killed before what it put in force was durable, and somebody else asks. */
static void the_archive_is_durable_before_anything_is_cleared(void **state)
{
    (void)state;
    struct aggregate *a = open_good();
    take(a, 1);
    seal_good(a);
    aggregate_close(&a);
    put_manifest(1, LENGTH);
    noting = io_system;
    noting.fsync = noting_fsync;
    noting.unlink = noting_unlink;
    io = &noting;
    archive_synced = false;
    a = open_good();
    assert_true(archive_synced);
    archive_synced = false;
    assert_int_equal(clear(a, 1), AGGREGATE_CLEAR_OK);
    assert_true(archive_synced);
    assert_int_equal(access(in_dir("slices/0000000001.db"), F_OK), -1);
    aggregate_close(&a);
    io = &io_system;
}

static _Atomic unsigned log_syncs;

/* In the place of the C library's, also for SQLite. */
int fdatasync(int fd)
{
    char link[64], path[200] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    log_syncs += n > 4 && strcmp(path + n - 4, "-wal") == 0;
    return (int)syscall(SYS_fdatasync, fd);
}

static void commit_and_be_killed(void)
{
    struct aggregate *a = open_good();
    take(a, 5);
    aggregate_flush(a, 0);
    usec_t began = clock_monotonic();
    while (!aggregate_is_clean(a)) {
        wait_turn(began);
        aggregate_poll(a, 0);
    }
    kill(getpid(), SIGKILL);
}

/* It may have been killed in the middle of the commit, with the log written and not synced. The keeper tells pubsub of the
 * cursors at once, which then deletes what is before them. */
static void what_a_killed_life_committed_is_durable_before_it_is_told(void **state)
{
    (void)state;
    int status;
    pid_t child = fork();
    if (child == 0)
        commit_and_be_killed();
    assert_true(child > 0 && waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    assert_int_equal(access(in_dir("slices/0000000001.db-wal"), F_OK), 0);
    log_syncs = 0;
    struct aggregate *a = open_good();
    assert_int_equal(aggregate_committed(a, 0)->offset, 5 * LENGTH);
    assert_true(log_syncs > 0);
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
    assert_int_equal(aggregate_cursor(a, 0)->until, 1000 * USEC_PER_SEC);
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
    refused(SLICE_FOREIGN, "includes slices up to 2, but the oldest");
    put_manifest(6, 0);
    refused(SLICE_FOREIGN, "already includes slices up to 6");
}

/* While it runs somebody puts another pipeline's archive in place of its own. */
static void another_archive_clears_nothing(void **state)
{
    (void)state;
    put_manifest(0, 0);
    struct aggregate *a = open_good();
    for (int n = 1; n <= 3; n++) {
        take(a, n);
        seal_good(a);
    }
    put_manifest(2, 4 * LENGTH);
    assert_int_equal(clear(a, 1), AGGREGATE_CLEAR_NOT_ARCHIVED);
    assert_non_null(strstr(error.text, "do not belong together"));
    put_manifest(4, 6 * LENGTH);
    assert_int_equal(clear(a, 3), AGGREGATE_CLEAR_NOT_ARCHIVED);
    assert_non_null(strstr(error.text, "never sealed"));
    assert_int_equal(count_after(a, 0), 6);
    put_manifest(2, 3 * LENGTH);
    assert_int_equal(clear(a, 1), AGGREGATE_CLEAR_OK);
    aggregate_close(&a);
}

static void copy_slice(const char *from, const char *to)
{
    char command[300];
    snprintf(command, sizeof command, "rm -f %s/%s* && cp -a %s/%s %s/%s", dir, to, dir, from, dir, to);
    assert_int_equal(system(command), 0);
}

static void an_old_copy_among_the_slices_is_refused(void **state)
{
    (void)state;
    struct aggregate *a = open_good();
    take(a, 2);
    seal_good(a);
    aggregate_close(&a);
    copy_slice("slices/0000000002.db", "old"); /* open, with nothing in it */
    a = open_good();
    take(a, 3);
    seal_good(a);
    take(a, 1);
    aggregate_close(&a);
    copy_slice("slices/0000000002.db", "good");
    copy_slice("old", "slices/0000000002.db");
    refused(SLICE_FOREIGN, "is not sealed");
    change_slice(in_dir("slices/0000000002.db"), "UPDATE meta SET value = 1 WHERE key = 'sealed'");
    refused(SLICE_FOREIGN, "slice 3 in ");
    copy_slice("good", "slices/0000000002.db");
    change_slice(in_dir("slices/0000000002.db"), "UPDATE begins SET offset = 0");
    refused(SLICE_FOREIGN, "does not begin where slice 1 ends");
    copy_slice("good", "slices/0000000002.db");
    a = open_good();
    assert_int_equal(count_after(a, 0), 5);
    aggregate_close(&a);
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
    read_counters(PLAIN "[total h]\nkey = h\n");
    snprintf(retired, sizeof retired, "total h key = host(u)\n"); /* in the archive, though not at its end */
    put_manifest(3, 7 * LENGTH);
    refused(SLICE_DIFFERENT, "total h key = host(u)");
    snprintf(retired, sizeof retired, "total h key = h\n");
    put_manifest(3, 7 * LENGTH);
    struct aggregate *a = open_good();
    aggregate_close(&a);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(the_clock_bounds_times),
        TEST(keys_over_the_limit_count_as_other),
        TEST(keys_with_sets_alone_are_within_the_limit),
        TEST(a_cursor_has_no_time_of_a_later_offset),
        TEST(the_stored_time_holds_for_its_lines_only),
        TEST(the_next_begins_where_it_ended),
        TEST(sealing_takes_what_is_being_flushed),
        TEST(the_first_lines_are_committed_at_once),
        TEST(a_stream_that_begins_during_a_commit_keeps_its_beginning),
        TEST(counting_goes_on_while_a_slice_is_sealed),
        TEST(a_held_read_shows_one_moment),
        TEST(many_counts_in_memory_are_flushed_before_they_are_read),
        TEST(runs_stay_few_however_often_it_flushes),
        TEST(the_first_flush_waits_for_no_merge),
        TEST(damage_found_by_a_merge_is_named),
        TEST(a_full_disk_at_a_renewal_passes),
        TEST(a_batch_of_too_many_events_pauses),
        TEST(the_loop_deletes_no_slice),
        TEST(many_keys_are_answered_as_one_by_one),
        TEST(found_between_its_two_steps),
        TEST(killed_anywhere_it_is_open_or_sealed),
        TEST(without_a_next_slice_nothing_is_lost),
        TEST(begins_the_next_when_room_returns),
        TEST(settles_when_room_returns),
        TEST(settles_without_a_restart),
        TEST(the_loop_writes_nothing_while_slices_are_sealed),
        TEST(many_slices_are_read_and_one_more_is_refused),
        TEST(only_what_is_archived_is_cleared),
        TEST(the_archive_is_durable_before_anything_is_cleared),
        TEST(what_a_killed_life_committed_is_durable_before_it_is_told),
        TEST(it_begins_behind_the_archive),
        TEST(another_archive_clears_nothing),
        TEST(an_old_copy_among_the_slices_is_refused),
        TEST(a_gap_is_refused),
        TEST(what_the_old_counters_counted_is_sealed),
        TEST(another_key_under_a_name_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
