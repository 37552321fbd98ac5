/* slice: what a transaction holds, through kills, a full disk, and files that are not ours; and reads of slice and
 * memory merged. */
#include "support/cm.h"

#include "aggregator/reads.h"
#include "aggregator/slice.h"
#include "aggregator/slice_snapshot.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[64], path[96], error[SLICE_ERROR_TEXT];

static int set_up(void **state)
{
    (void)state;
    snprintf(dir, sizeof(dir), "/tmp/millrace-slice-XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/0000000001.db", dir);
    return 0;
}

static int tear_down(void **state)
{
    static const char *const suffixes[] = {"", "-wal", "-shm"};
    char file[128];
    (void)state;
    for (int i = 0; i < 3; i++) {
        snprintf(file, sizeof(file), "%s%s", path, suffixes[i]);
        unlink(file);
    }
    return rmdir(dir);
}

static struct slice_config config_of(const char *counters, unsigned max_pages)
{
    return (struct slice_config){
        .path = path, .number = 1, .counters_text = counters, .started = 7, .max_pages = max_pages};
}

static struct slice *open_good(struct slice_state *state)
{
    struct slice *s;
    struct slice_config c = config_of("a = 1\nb = 2\n", 0);
    if (slice_open(&c, &s, state, error) != SLICE_OK)
        fail_msg("%s", error);
    return s;
}

/* Batch i counts i % 50 keys once each, one of them hashed with a lookup. */
static void commit_nth(struct slice *s, uint64_t nth)
{
    struct slice_cursor cursor = {
        .stream = "clicks", .id = "0123456789abcdef0123456789abcdef", .offset = nth};
    struct slice_written written;
    struct count_map *rows = count_map_new();
    char key[64];
    for (uint64_t i = 0; i < nth % 50; i++) {
        snprintf(key, sizeof(key), "u|k%02llu,c413", (unsigned long long)i);
        count_map_add(rows, bytes_str(key), 1);
    }
    count_map_put_text(rows, BYTES_LITERAL("lookup|x,"), BYTES_LITERAL("text"));
    struct slice_batch batch = {.rows = rows,
        .cursors = &cursor,
        .n_cursors = 1,
        .tally = {.events = nth * 3},
        .rejects_length = nth * 2};
    if (slice_commit(s, &batch, &written, error) != SLICE_OK)
        fail_msg("%s", error);
    assert_int_equal(written.collisions, 0);
    count_map_free(&rows);
}

/* What the slice says must be the sum of the first `offset` batches, whatever that is. */
static uint64_t check_sum(void)
{
    struct slice_state state;
    struct slice_snapshot *snapshot;
    struct slice *s = open_good(&state);
    struct row row;
    const char *text;
    uint64_t nth = state.n_cursors ? state.cursors[0].offset : 0, keys[50] = {0};
    for (uint64_t i = 1; i <= nth; i++) {
        for (uint64_t k = 0; k < i % 50; k++)
            keys[k]++;
    }
    assert_int_equal(state.tally.events, nth * 3);
    assert_int_equal(state.rejects_length, nth * 2);
    assert_int_equal(slice_snapshot_open(path, &snapshot, error), SLICE_OK);
    slice_scan_begin(snapshot, BYTES_NONE);
    for (int k = 0; k < 50 && keys[k]; k++) {
        assert_true(slice_scan_next_count(snapshot, &row));
        assert_int_equal(row.count, keys[k]);
    }
    assert_false(slice_scan_next_count(snapshot, &row));
    assert_int_equal(slice_scan_end(snapshot, &text), SLICE_OK);
    slice_snapshot_close(&snapshot);
    slice_state_free(&state);
    slice_close(&s);
    return nth;
}

static void killed_anywhere_it_holds_whole_batches(void **state)
{
    (void)state;
    uint64_t last = 0;
    for (int round = 0; round < 15 || (last == 0 && round < 1000); round++) {
        pid_t child = fork();
        if (child == 0) {
            struct slice_state at;
            struct slice *s = open_good(&at);
            for (uint64_t n = at.n_cursors ? at.cursors[0].offset : 0;; n++) {
                commit_nth(s, n + 1);
                if (n % 7 == 0)
                    slice_checkpoint(s, error);
            }
        }
        usleep((useconds_t)(random() % (round < 15 ? 30000 : 300000)));
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        uint64_t now = check_sum();
        assert_true(now >= last);
        last = now;
    }
    assert_true(last > 0);
}

static void a_full_disk_leaves_nothing_behind(void **state)
{
    (void)state;
    struct slice_state at;
    struct slice_written written;
    struct slice *s;
    struct slice_config c = config_of("a = 1\nb = 2\n", 12);
    assert_int_equal(slice_open(&c, &s, &at, error), SLICE_OK);
    slice_state_free(&at);
    commit_nth(s, 1);
    struct count_map *rows = count_map_new();
    char key[64];
    for (int i = 0; i < 20000; i++) {
        snprintf(key, sizeof(key), "u|%d,c413", i);
        count_map_add(rows, bytes_str(key), 1);
    }
    struct slice_batch batch = {.rows = rows, .tally = {.events = 9}, .rejects_length = 9};
    assert_int_equal(slice_commit(s, &batch, &written, error), SLICE_FULL);
    slice_close(&s);
    assert_int_equal(check_sum(), 1);
    s = open_good(&at);
    assert_int_equal(slice_commit(s, &batch, &written, error), SLICE_OK);
    assert_int_equal(written.rows, 20000);
    slice_state_free(&at);
    slice_close(&s);
    count_map_free(&rows);
}

static void what_is_not_ours_is_refused(void **state)
{
    (void)state;
    struct slice_state at;
    struct slice *s = open_good(&at);
    assert_int_equal(at.started, 7);
    slice_state_free(&at);
    slice_close(&s);
    struct slice_config other = config_of("a = 1\nb = 3\n", 0);
    assert_int_equal(slice_open(&other, &s, &at, error), SLICE_DIFFERENT);
    assert_non_null(strstr(error, "- b = 2; + b = 3"));
    struct slice_config second = config_of("a = 1\nb = 2\n", 0);
    second.number = 2;
    assert_int_equal(slice_open(&second, &s, &at, error), SLICE_FOREIGN);
    FILE *f = fopen(path, "r+");
    assert_non_null(f);
    fputs("this is no database at all", f);
    fclose(f);
    assert_int_equal(slice_open(&second, &s, &at, error), SLICE_FOREIGN);
}

static void lookups_that_collide_are_told(void **state)
{
    (void)state;
    struct slice_state at;
    struct slice_written written;
    struct slice *s = open_good(&at);
    commit_nth(s, 1);
    struct count_map *rows = count_map_new();
    count_map_put_text(rows, BYTES_LITERAL("lookup|x,"), BYTES_LITERAL("other"));
    struct slice_batch batch = {.rows = rows};
    assert_int_equal(slice_commit(s, &batch, &written, error), SLICE_OK);
    assert_int_equal(written.collisions, 1);
    assert_string_equal(written.collision, "lookup|x,");
    count_map_free(&rows);
    slice_state_free(&at);
    slice_close(&s);
}

static void check_lines(struct reads_answer *a, const char *lines)
{
    buf_append_char(&a->lines, '\0');
    assert_string_equal(a->lines.ptr, lines);
    reads_answer_free(a);
    *a = (struct reads_answer){0};
}

static void reads_add_up_layers_and_snapshots_stand_still(void **state)
{
    (void)state;
    struct slice_state at;
    struct slice *s = open_good(&at);
    struct slice_snapshot *snapshot;
    struct reads_layers layers = {.n_snapshots = 1, .n_maps = 2, .snapshots = &snapshot};
    struct reads_answer a = {0};
    struct count_map *one = count_map_new(), *two = count_map_new();
    commit_nth(s, 2);
    assert_int_equal(slice_snapshot_open(path, &snapshot, error), SLICE_OK);
    commit_nth(s, 2);
    layers.maps[0] = one;
    layers.maps[1] = two;
    count_map_add(one, BYTES_LITERAL("u|k00,c412"), 5);
    count_map_add(one, BYTES_LITERAL("u|k00!,c412"), 1);
    count_map_add(two, BYTES_LITERAL("u|k00,c413"), 7);
    count_map_put_text(two, BYTES_LITERAL("lookup|x,"), BYTES_LITERAL("a\\\x01"));
    assert_int_equal(reads_prefix(&layers, BYTES_NONE, BYTES_NONE, (struct reads_bounds){0}, &a), 0);
    check_lines(&a, "lookup|x,a\\\\\\x01\nu|k00!,c412:1\nu|k00,c412:5 c413:8\nu|k01,c413:1\n");
    assert_int_equal(reads_get(&layers, BYTES_LITERAL("u|k00"), &a), 0);
    check_lines(&a, "u|k00,c412:5 c413:8\n");
    struct reads_bounds two_only = {.max_records = 1};
    assert_int_equal(reads_range(&layers, BYTES_LITERAL("u|k00!"), BYTES_LITERAL("u|k00"), two_only, &a), 0);
    assert_true(a.more && bytes_equal_str(buf_bytes(&a.next), "u|k00"));
    check_lines(&a, "u|k00!,c412:1\n");
    assert_int_equal(slice_snapshot_renew(snapshot, error), SLICE_OK);
    assert_int_equal(reads_prefix(&layers, BYTES_LITERAL("u|k00"), BYTES_LITERAL("u|k00"), two_only, &a), 0);
    check_lines(&a, "u|k00,c412:5 c413:9\n");
    count_map_free(&one);
    count_map_free(&two);
    slice_snapshot_close(&snapshot);
    slice_state_free(&at);
    slice_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(killed_anywhere_it_holds_whole_batches, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_full_disk_leaves_nothing_behind, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_not_ours_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(lookups_that_collide_are_told, set_up, tear_down),
        cmocka_unit_test_setup_teardown(reads_add_up_layers_and_snapshots_stand_still, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
