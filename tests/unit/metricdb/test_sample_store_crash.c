/* Crash points and damage of the store. A cut, a merge or an opening meets a fault at each of its file
 * operations. The store is then opened again and follows the lines from its cursor: it equals a sum over all
 * lines.
 *
 * MILLRACE_STRIDE: every how many bytes the damage is tried (default 7). */
#include "support/cm.h"
#include "support/power.h"
#include "support/test_dir.h"
#include "support/trees.h"

#include "base/io.h"
#include "metricdb/store/sample_store.h"

#include <dirent.h>
#include <linux/limits.h>
#include <stdio.h>
#include <unistd.h>

#define LINES 40
#define PART 7 /* lines between two cuts */
#define STEP 7000
#define BEGIN INT64_C(1700000000000)

static const int64_t widths[] = {10000, 60000, 600000, 3600000, 86400000};

static struct sample_store_config config_of(const char *dir)
{
    return (struct sample_store_config){
        .dir = dir, .resolution = 10000, .open_bytes = 1 << 30, .series_max = 10, .fan_in = 2};
}

/* Line i is a sample of series i % 2 with the value i. */
static void follow(struct sample_store *s, uint64_t to)
{
    static const struct metric_label labels[] = {
        {BYTES_LITERAL("job"), BYTES_LITERAL("even")}, {BYTES_LITERAL("job"), BYTES_LITERAL("odd")}};
    struct stream_cursor cursor = {"id", "opening", to};
    sample_store_begin(s);
    for (uint64_t i = sample_store_cursor(s)->offset; i < to; i++)
        assert_int_equal(sample_store_add(s, &(struct sample){&labels[i % 2], 1, BEGIN + (int64_t)i * STEP,
                                                 (double)i, false}),
            SAMPLE_STORED);
    sample_store_end(s, &cursor);
}

static enum metric_result sum_of(
    struct sample_store *s, int64_t width, uint64_t *count, double sums[2], struct error *error)
{
    struct metric_request request = {
        .to = INT64_MAX, .max_width = width, .max_series = 2, .max_buckets = LINES};
    struct metric_selection selection;
    struct metric_source source = sample_store_source(s);
    enum metric_result r = source.select(source.context, &request, &selection, error);
    *count = 0;
    sums[0] = sums[1] = 0;
    for (size_t i = 0; r == METRIC_OK && i < selection.n_series; i++)
        for (size_t k = 0; k < selection.series[i].n_buckets; k++) {
            const struct sample_bucket *b = &selection.series[i].buckets[k];
            *count += b->count;
            sums[0] += b->sum;
            sums[1] += b->rise;
        }
    metric_selection_free(&selection);
    return r;
}

/* The first n lines are in the store, each once. */
static void check(struct sample_store *s, uint64_t n)
{
    double sums[2];
    uint64_t count;
    struct error error;
    for (int w = 0; w < 5; w++) {
        if (sum_of(s, widths[w], &count, sums, &error) != METRIC_OK)
            fail_msg("%s", error.text);
        assert_int_equal(count, n);
        assert_true(sums[0] == (double)n * ((double)n - 1) / 2);
        assert_true(sums[1] == (n > 2 ? 2 * ((double)n - 2) : 0));
    }
}

/* The cursor of the last cut that succeeded. */
static uint64_t acknowledged;

/* Opens, adds lines and cuts. Returns false if a fault stopped it. */
static bool live(const char *dir)
{
    struct sample_store_config config = config_of(dir);
    struct error error;
    struct sample_store *s = sample_store_open(&config, &error);
    bool ok = s != NULL;
    if (!s)
        return false;
    check(s, sample_store_cursor(s)->offset);
    assert_true(sample_store_cursor(s)->offset >= acknowledged);
    for (uint64_t at = sample_store_cursor(s)->offset; at < LINES;) {
        at = at + PART < LINES ? at + PART : LINES;
        follow(s, at);
        bool is_cut = sample_store_cut(s, 1, 0, &error) == 0;
        acknowledged = is_cut ? at : acknowledged;
        ok = ok && is_cut;
        sample_store_settle(s);
        ok = !sample_store_trouble(s, &error) && ok;
        check(s, at);
    }
    sample_store_close(&s);
    return ok;
}

/* Returns false if the life ended before the fault. */
static bool crash_at(enum power_fault fault, unsigned at, unsigned *seed)
{
    char dir[PATH_MAX];
    make_test_dir(dir, sizeof dir);
    acknowledged = 0;
    power_on(fault, at);
    live(dir);
    bool is_over = power_operations() < at;
    power_off(seed);
    if (!live(dir))
        fail_msg("fault %d at %u", (int)fault, at);
    remove_tree(dir);
    return !is_over;
}

static void test_faults(void **state)
{
    static const enum power_fault faults[] = {
        POWER_CUT, POWER_CUT_ALL, POWER_CUT_TORN, POWER_EIO, POWER_NO_SPACE, POWER_SHORT};
    (void)state;
    unsigned seed = seeded(), at;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        for (at = 1; crash_at(faults[i], at, &seed); at++)
            ;
        assert_true(at > 50);
    }
}

static void write_all(const char *path, struct bytes bytes)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes.ptr, 1, bytes.len, file), bytes.len);
    assert_int_equal(fclose(file), 0);
}

/* Returns false if the damage is refused by name. Otherwise the store is as without damage. */
static bool is_as_before(const char *dir, const char *path)
{
    struct sample_store_config config = config_of(dir);
    struct error error;
    struct sample_store *s = sample_store_open(&config, &error);
    double sums[2];
    uint64_t count;
    enum metric_result r = s ? METRIC_OK : METRIC_FAILED;
    for (int w = 0; r == METRIC_OK && w < 5; w++) {
        r = sum_of(s, widths[w], &count, sums, &error);
        if (r == METRIC_OK)
            assert_true(
                count == LINES && sums[0] == LINES * (LINES - 1) / 2.0 && sums[1] == 2.0 * (LINES - 2));
    }
    if (r != METRIC_OK && !strstr(error.text, path))
        fail_msg("%s: %s", path, error.text);
    sample_store_close(&s);
    return r == METRIC_OK;
}

static void damage(const char *dir, const char *path, size_t stride)
{
    struct buf whole = {0};
    size_t unseen = 0;
    assert_int_equal(io_read_file(path, 1 << 20, &whole), 0);
    for (size_t i = (size_t)random() % stride; i < whole.len; i += stride) {
        char before = whole.ptr[i];
        whole.ptr[i] = (char)(before ^ 1 << random() % 8);
        write_all(path, buf_bytes(&whole));
        unseen += is_as_before(dir, path);
        whole.ptr[i] = before;
        write_all(path, bytes_of(whole.ptr, i));
        assert_false(is_as_before(dir, path));
    }
    /* Only the gap after the pieces has no checksum. */
    assert_true(unseen <= 7);
    write_all(path, buf_bytes(&whole));
    assert_true(is_as_before(dir, path));
    buf_free(&whole);
}

static void test_damage(void **state)
{
    (void)state;
    const char *given = getenv("MILLRACE_STRIDE");
    char dir[PATH_MAX], path[PATH_MAX + 300];
    struct dirent *entry;
    unsigned files = 0;
    seeded();
    make_test_dir(dir, sizeof dir);
    acknowledged = 0;
    assert_true(live(dir));
    DIR *d = opendir(dir);
    while ((entry = readdir(d))) {
        snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
        if (!strstr(path, ".block"))
            continue;
        damage(dir, path, given ? (size_t)atoi(given) : 7);
        files++;
    }
    closedir(d);
    assert_true(files > 3);
    remove_tree(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
