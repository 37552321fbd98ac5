/* A filter against an exact multiset, and the faults of bitly's dablooms, each as a test.
 *
 * MILLRACE_UPDATES updates in the model's test (default 40,000) from MILLRACE_SEED (default: the time). */
#include "support/cm.h"
#include "support/filter_model.h"
#include "support/test_dir.h"
#include "support/trees.h"

#include "base/io.h"
#include "filter/filter_header.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define RATE 0.01

struct world {
    char dir[64], path[80], log[80];
    struct filter *f;
    struct error error;
    struct io_ops ops;
};

static int set_up(void **state)
{
    struct world *w = mem_zalloc(sizeof *w);
    make_test_dir(w->dir, sizeof w->dir);
    snprintf(w->path, sizeof w->path, "%s/filter", w->dir);
    snprintf(w->log, sizeof w->log, "%s/filter.log", w->dir);
    w->ops = io_system;
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    io = &io_system;
    filter_close(&w->f);
    remove_tree(w->dir);
    free(w);
    return 0;
}

static enum filter_result try_open(struct world *w, uint64_t capacity)
{
    struct filter_config config = {.path = w->path, .capacity = capacity, .rate = RATE};
    filter_close(&w->f);
    return filter_open(&config, &w->f, &w->error);
}

static void open_filter(struct world *w, uint64_t capacity)
{
    if (try_open(w, capacity) != FILTER_OK)
        fail_msg("%s", w->error.text);
}

static enum filter_result add(struct world *w, const char *text, uint64_t id)
{
    return filter_add(w->f, bytes_str(text), id, filter_sequence(w->f) + 1, &w->error);
}

static enum filter_result take(struct world *w, const char *text, uint64_t id)
{
    return filter_remove(w->f, bytes_str(text), id, filter_sequence(w->f) + 1, &w->error);
}

static bool has(const struct world *w, const char *text)
{
    return filter_check(w->f, bytes_str(text));
}

/* Fills the newest layer. Its ids are one above the highest. */
static void fill(struct world *w, const char *prefix)
{
    struct filter_layer_stats l = filter_layer_stats(w->f, filter_stats(w->f).layers - 1);
    uint64_t id = filter_last_id(w->f) + 1;
    for (uint64_t i = l.members; i < l.capacity; i++) {
        char text[32];
        snprintf(text, sizeof text, "%s %llu", prefix, (unsigned long long)i);
        assert_int_equal(add(w, text, id), FILTER_OK);
    }
}

static void test_model(void **state)
{
    struct world *w = *state;
    const char *given = getenv("MILLRACE_UPDATES");
    uint64_t n = given ? strtoull(given, NULL, 10) : 40000, synced = 0,
             probes = n < 500000 ? n * 10 : 2000000;
    struct filter_model m = filter_model_new(seeded(), n, (uint32_t)n * 2, 2);
    open_filter(w, n * 10 / 11 / 31 + 1);
    assert_int_equal(filter_model_apply(&m, w->f, 1, n / 2, n / 4, &synced, &w->error), FILTER_OK);
    filter_model_check(&m, w->f, n / 2);
    assert_int_equal(filter_model_apply(&m, w->f, n / 2 + 1, n, n / 4, &synced, &w->error), FILTER_OK);
    assert_int_equal(filter_sync(w->f, &w->error), FILTER_OK);
    open_filter(w, 1);
    uint64_t members = filter_model_check(&m, w->f, n);
    struct filter_stats s = filter_stats(w->f);
    double rate = (double)filter_model_false(w->f, probes) / (double)probes;
    print_message(
        "%zu layers, %llu members: %.2f bytes a member; false positives: %.4f %%, expected %.4f %%\n",
        s.layers, (unsigned long long)members, (double)s.bytes / (double)members, 100 * rate, 100 * s.rate);
    assert_int_equal(s.layers, 5);
    assert_true(rate <= 1.2 * RATE);
    filter_model_empty(&m, w->f, n);
    assert_int_equal(filter_sync(w->f, &w->error), FILTER_OK);
    assert_no_counters(w->path);
    assert_true(given || filter_model_false(w->f, 1000) == 0);
    filter_model_free(&m);
}

/* dablooms adds up the rates of its layers, without a bound, and opens no layer while ids are equal. */
static void test_rates_of_full_layers_add_up_to_the_rate(void **state)
{
    struct world *w = *state;
    double sum = 0;
    uint64_t bytes = 0, members = 0;
    open_filter(w, 40000);
    for (int i = 0; i < 5; i++) {
        char prefix[16];
        snprintf(prefix, sizeof prefix, "layer %d", i);
        if (i > 0 || add(w, "first", 1) == FILTER_OK)
            assert_int_equal(add(w, prefix, filter_last_id(w->f) + 1), FILTER_OK);
        fill(w, prefix);
        struct filter_layer_stats l = filter_layer_stats(w->f, (size_t)i);
        assert_int_equal(l.members, l.capacity);
        assert_int_equal(l.capacity, 40000 << i);
        sum += l.rate;
        bytes += l.bytes;
        members += l.members;
    }
    double expected = filter_stats(w->f).rate, rate = (double)filter_model_false(w->f, 500000) / 500000;
    print_message("%.2f bytes a member; false positives: %.4f %%, expected %.4f %%\n",
        (double)bytes / (double)members, 100 * rate, 100 * expected);
    assert_true(sum < RATE && expected <= sum);
    assert_true(fabs(rate - expected) <= 0.1 * expected);
    assert_true(bytes <= 8 * members);
}

static void test_no_layer_takes_more_than_its_capacity(void **state)
{
    struct world *w = *state;
    open_filter(w, 10);
    for (int i = 0; i < 10; i++)
        assert_int_equal(add(w, "text", 7), FILTER_OK);
    uint64_t sequence = filter_sequence(w->f);
    assert_int_equal(add(w, "other", 7), FILTER_FULL);
    assert_non_null(strstr(w->error.text, "use an id above 7"));
    assert_int_equal(add(w, "other", 6), FILTER_FULL);
    assert_int_equal(filter_sequence(w->f), sequence);
    assert_int_equal(add(w, "other", 8), FILTER_OK);
    assert_int_equal(filter_layer_stats(w->f, 1).first_id, 8);
    assert_int_equal(take(w, "text", 7), FILTER_OK);
    assert_int_equal(add(w, "late", 3), FILTER_OK);
    assert_int_equal(filter_layer_stats(w->f, 0).members, 10);
    assert_int_equal(filter_stats(w->f).layers, 2);
}

/* dablooms decrements the counters of whichever layer the id leads to, also counters of 0. */
static void test_a_removal_changes_no_other_layer(void **state)
{
    struct world *w = *state;
    open_filter(w, 100);
    assert_int_equal(add(w, "old", 1), FILTER_OK);
    fill(w, "filler");
    assert_int_equal(add(w, "new", 1000), FILTER_OK);
    assert_int_equal(filter_stats(w->f).layers, 2);
    assert_int_equal(take(w, "old", 1000), FILTER_ABSENT);
    assert_int_equal(take(w, "new", 1), FILTER_ABSENT);
    assert_int_equal(take(w, "absent", 1000), FILTER_ABSENT);
    assert_true(has(w, "old") && has(w, "new"));
    assert_int_equal(filter_stats(w->f).members, 101);
    assert_int_equal(take(w, "old", 1), FILTER_OK);
    assert_int_equal(take(w, "new", 1000), FILTER_OK);
    assert_false(has(w, "old") || has(w, "new"));
}

/* Two layers of dablooms met: counters of one were the id of the next (pull request 29). */
static void test_counters_stay_in_their_layer(void **state)
{
    struct world *w = *state;
    open_filter(w, 20000);
    assert_int_equal(add(w, "first", 1), FILTER_OK);
    fill(w, "a");
    assert_int_equal(add(w, "b", 100), FILTER_OK);
    fill(w, "b");
    assert_int_equal(filter_sync(w->f, &w->error), FILTER_OK);
    open_filter(w, 1);
    assert_int_equal(filter_layer_stats(w->f, 0).first_id, 0);
    assert_int_equal(filter_layer_stats(w->f, 1).first_id, 3);
    assert_int_equal(filter_layer_stats(w->f, 1).members, 40000);
    for (int i = 1; i < 20000; i++) {
        char text[32];
        snprintf(text, sizeof text, "a %d", i);
        assert_int_equal(take(w, text, 2), FILTER_OK);
    }
    assert_int_equal(take(w, "first", 1), FILTER_OK);
    for (int i = 1; i < 40000; i++) {
        char text[32];
        snprintf(text, sizeof text, "b %d", i);
        assert_int_equal(take(w, text, 101), FILTER_OK);
    }
    assert_int_equal(take(w, "b", 100), FILTER_OK);
    assert_int_equal(filter_sync(w->f, &w->error), FILTER_OK);
    assert_no_counters(w->path);
}

/* A full counter of dablooms is decremented, and other texts that share it are lost. */
static void test_a_full_counter_never_changes(void **state)
{
    struct world *w = *state;
    open_filter(w, 1000);
    for (uint64_t i = 0; i < 40; i++)
        assert_int_equal(add(w, "popular", 1), FILTER_OK);
    for (uint64_t i = 0; i < 40; i++)
        assert_int_equal(take(w, "popular", 1), FILTER_OK);
    assert_true(has(w, "popular"));
    assert_int_equal(take(w, "popular", 1), FILTER_ABSENT);
    for (uint64_t i = 0; i < 14; i++)
        assert_int_equal(add(w, "known", 1), FILTER_OK);
    for (uint64_t i = 0; i < 14; i++) {
        assert_true(has(w, "known"));
        assert_int_equal(take(w, "known", 1), FILTER_OK);
    }
}

/* A text whose counters coincide, and that was never added. */
static void test_no_counter_passes_0(void **state)
{
    (void)state;
    static unsigned char block[FILTER_BLOCK];
    uint64_t changed = 0;
    struct filter_layer l = {.shape = {.blocks = 1, .half = 2}, .counters = block, .changed = &changed};
    const struct filter_place place = {.lines = {0, 1}, .words = {5 | 5 << 7, 5 | 5 << 7}};
    block[2] = block[FILTER_LINE + 2] = 0x17;
    assert_true(filter_layer_has(&l, &place));
    for (unsigned i = 0; i < 2; i++) {
        filter_layer_change(&l, &place, -1);
        assert_int_equal(block[2], 0x07);
    }
    assert_int_equal(block[FILTER_LINE + 2], 0x07);
    assert_false(filter_layer_has(&l, &place));
    assert_int_equal(changed, 1);
}

/* Some of these texts have counters that coincide. */
static void test_14_adds_fill_no_counter(void **state)
{
    struct world *w = *state;
    open_filter(w, 100000);
    for (int text = 0; text < 1000; text++) {
        char name[24];
        snprintf(name, sizeof name, "text %d", text);
        for (int i = 0; i < 14; i++)
            assert_int_equal(add(w, name, 1), FILTER_OK);
        for (int i = 0; i < 14; i++)
            assert_int_equal(take(w, name, 1), FILTER_OK);
    }
    assert_int_equal(filter_sync(w->f, &w->error), FILTER_OK);
    assert_no_counters(w->path);
}

static int refuse_allocation(int fd, int mode, off_t at, off_t length)
{
    (void)fd, (void)mode, (void)at, (void)length;
    errno = EOPNOTSUPP;
    return -1;
}

/* Offsets of dablooms had 32 bits (pull request 55). The file is sparse. */
static void test_a_file_of_more_than_4_gib(void **state)
{
    struct world *w = *state;
    w->ops.fallocate = refuse_allocation;
    io = &w->ops;
    open_filter(w, 700000000);
    for (int i = 0; i < 1000; i++) {
        char text[32];
        snprintf(text, sizeof text, "text %d", i);
        assert_int_equal(add(w, text, (uint64_t)i), FILTER_OK);
    }
    assert_true(filter_stats(w->f).bytes > (uint64_t)4 << 30);
    assert_int_equal(filter_sync(w->f, &w->error), FILTER_OK);
    open_filter(w, 1);
    for (int i = 0; i < 1000; i++) {
        char text[32];
        snprintf(text, sizeof text, "text %d", i);
        assert_true(has(w, text));
        snprintf(text, sizeof text, "other %d", i);
        assert_false(has(w, text));
    }
}

static void test_a_filter_may_be_numbered_anew(void **state)
{
    struct world *w = *state;
    open_filter(w, 100);
    assert_int_equal(filter_add(w->f, bytes_str("a"), 1, 10, &w->error), FILTER_OK);
    filter_number(w->f, 5);
    assert_int_equal(filter_sync(w->f, &w->error), FILTER_OK);
    open_filter(w, 100);
    assert_int_equal(filter_sequence(w->f), 5);
    assert_int_equal(filter_add(w->f, bytes_str("b"), 1, 5, &w->error), FILTER_REPEATED);
    assert_int_equal(filter_add(w->f, bytes_str("b"), 1, 6, &w->error), FILTER_OK);
    assert_true(has(w, "a") && has(w, "b"));
}

static void test_repeated_updates_change_nothing(void **state)
{
    struct world *w = *state;
    open_filter(w, 100);
    assert_int_equal(filter_add(w->f, bytes_str("a"), 1, 10, &w->error), FILTER_OK);
    assert_int_equal(filter_add(w->f, bytes_str("b"), 1, 20, &w->error), FILTER_OK);
    for (uint64_t s = 0; s <= 20; s++) {
        assert_int_equal(filter_add(w->f, bytes_str("c"), 1, s, &w->error), FILTER_REPEATED);
        assert_int_equal(filter_remove(w->f, bytes_str("a"), 1, s, &w->error), FILTER_REPEATED);
    }
    assert_true(has(w, "a") && has(w, "b") && !has(w, "c"));
    assert_int_equal(filter_stats(w->f).members, 2);
    assert_int_equal(filter_remove(w->f, bytes_str("a"), 1, 21, &w->error), FILTER_OK);
    assert_false(has(w, "a"));
}

static void test_updates_without_a_sync_are_lost_as_a_whole(void **state)
{
    struct world *w = *state;
    open_filter(w, 100);
    assert_int_equal(add(w, "kept", 5), FILTER_OK);
    assert_int_equal(filter_sync(w->f, &w->error), FILTER_OK);
    assert_int_equal(add(w, "lost", 9), FILTER_OK);
    assert_int_equal(take(w, "kept", 5), FILTER_OK);
    open_filter(w, 100);
    assert_true(has(w, "kept") && !has(w, "lost"));
    assert_int_equal(filter_sequence(w->f), 1);
    assert_int_equal(filter_last_id(w->f), 5);
    assert_false(filter_stats(w->f).was_recovered);
}

static bool fails;

static int maybe_fdatasync(int fd)
{
    if (!fails)
        return io_system.fdatasync(fd);
    errno = EIO;
    return -1;
}

static void test_a_failed_sync_stops_updates_until_the_next_opening(void **state)
{
    struct world *w = *state;
    w->ops.fdatasync = maybe_fdatasync;
    io = &w->ops;
    open_filter(w, 100);
    assert_int_equal(filter_sync(w->f, &w->error), FILTER_OK);
    assert_int_equal(add(w, "a", 1), FILTER_OK);
    fails = true;
    assert_int_equal(filter_sync(w->f, &w->error), FILTER_FAILED);
    fails = false;
    assert_int_equal(filter_sync(w->f, &w->error), FILTER_FAILED);
    assert_int_equal(add(w, "b", 1), FILTER_FAILED);
    assert_int_equal(take(w, "a", 1), FILTER_FAILED);
    assert_true(has(w, "a"));
    open_filter(w, 100);
    assert_true(filter_stats(w->f).was_recovered && has(w, "a"));
    assert_int_equal(add(w, "b", 1), FILTER_OK);
    assert_int_equal(filter_sync(w->f, &w->error), FILTER_OK);
}

static void test_a_reader_sees_each_sync(void **state)
{
    struct world *w = *state;
    struct filter *reader;
    assert_int_equal(filter_open_reader(w->path, &reader, &w->error), FILTER_FAILED);
    assert_null(reader);
    open_filter(w, 100);
    assert_int_equal(filter_open_reader(w->path, &reader, &w->error), FILTER_OK);
    assert_int_equal(filter_add(reader, bytes_str("x"), 1, 1, &w->error), FILTER_FAILED);
    assert_int_equal(filter_sync(reader, &w->error), FILTER_FAILED);
    for (int i = 0; i < 6; i++) {
        char text[32];
        snprintf(text, sizeof text, "member %d", i);
        assert_int_equal(add(w, text, filter_last_id(w->f) + 1), FILTER_OK);
        fill(w, text);
        assert_false(filter_check(reader, bytes_str(text)));
        assert_int_equal(filter_sync(w->f, &w->error), FILTER_OK);
        assert_int_equal(filter_refresh(reader, &w->error), FILTER_OK);
        assert_true(filter_check(reader, bytes_str(text)));
        assert_int_equal(filter_sequence(reader), filter_sequence(w->f));
        assert_int_equal(filter_stats(reader).members, filter_stats(w->f).members);
    }
    filter_close(&reader);
}

/* A load renames a new filter to the path, with its log. */
static void test_a_reader_follows_the_path(void **state)
{
    struct world *w = *state;
    struct filter *reader;
    char old[96], old_log[96];
    snprintf(old, sizeof old, "%s/old", w->dir);
    snprintf(old_log, sizeof old_log, "%s/old.log", w->dir);
    open_filter(w, 100);
    assert_int_equal(add(w, "a", 1), FILTER_OK);
    assert_int_equal(filter_sync(w->f, &w->error), FILTER_OK);
    assert_int_equal(filter_open_reader(w->path, &reader, &w->error), FILTER_OK);
    filter_close(&w->f);
    assert_int_equal(rename(w->path, old) | rename(w->log, old_log), 0);
    assert_int_equal(filter_refresh(reader, &w->error), FILTER_FAILED);
    assert_true(filter_check(reader, bytes_str("a")));
    open_filter(w, 1000);
    for (uint64_t id = 1; id <= 200; id++)
        assert_int_equal(add(w, "b", id), FILTER_OK);
    assert_int_equal(filter_sync(w->f, &w->error), FILTER_OK);
    assert_int_equal(filter_refresh(reader, &w->error), FILTER_OK);
    assert_true(filter_check(reader, bytes_str("b")) && !filter_check(reader, bytes_str("a")));
    assert_int_equal(filter_stats(reader).members, 200);
    unlink(w->path);
    assert_int_equal(rename(old, w->path), 0);
    assert_int_equal(filter_refresh(reader, &w->error), FILTER_OK);
    assert_true(filter_check(reader, bytes_str("a")));
    filter_close(&reader);
}

#define STAYING 500
#define PIECE ((size_t)128)

static struct filter *watching;
static unsigned long pieces;

/* Writes in pieces. After each piece, the reader checks the members that stay. */
static ssize_t watched_pwrite(int fd, const void *p, size_t n, off_t at)
{
    char text[32];
    for (size_t done = 0; done < n; done += PIECE) {
        size_t more = n - done < PIECE ? n - done : PIECE;
        assert_int_equal(io_system.pwrite(fd, (const char *)p + done, more, at + (off_t)done), more);
        for (int i = 0; watching && i < STAYING; i++) {
            snprintf(text, sizeof text, "stays %d", i);
            assert_true(filter_check(watching, bytes_str(text)));
        }
        pieces++;
    }
    return (ssize_t)n;
}

static void test_a_reader_misses_no_member_during_a_sync(void **state)
{
    struct world *w = *state;
    char text[32];
    open_filter(w, 2000);
    for (int i = 0; i < STAYING; i++) {
        snprintf(text, sizeof text, "stays %d", i);
        assert_int_equal(add(w, text, 1), FILTER_OK);
    }
    assert_int_equal(filter_sync(w->f, &w->error), FILTER_OK);
    assert_int_equal(filter_open_reader(w->path, &watching, &w->error), FILTER_OK);
    w->ops.pwrite = watched_pwrite;
    io = &w->ops;
    pieces = 0;
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < STAYING; i++) {
            snprintf(text, sizeof text, "goes %d", i);
            assert_int_equal(round % 2 == 0 ? add(w, text, 1) : take(w, text, 1), FILTER_OK);
        }
        assert_int_equal(filter_sync(w->f, &w->error), FILTER_OK);
    }
    assert_true(pieces > 10 * FILTER_BLOCK / PIECE);
    filter_close(&watching);
}

static void test_only_one_writer(void **state)
{
    struct world *w = *state;
    struct filter_config config = {.path = w->path, .capacity = 1, .rate = RATE};
    struct filter *other;
    open_filter(w, 100);
    assert_int_equal(filter_open(&config, &other, &w->error), FILTER_BUSY);
    assert_null(other);
    filter_close(&w->f);
    assert_int_equal(filter_open(&config, &other, &w->error), FILTER_OK);
    filter_close(&other);
}

static void test_settings_have_limits(void **state)
{
    struct world *w = *state;
    static const struct filter_config wrong[] = {{NULL, 0, RATE}, {NULL, FILTER_CAPACITY_MAX + 1, RATE},
        {NULL, 100, 0}, {NULL, 100, -1}, {NULL, 100, 0.5}, {NULL, 100, NAN}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct filter_config config = wrong[i];
        config.path = w->path;
        assert_int_equal(filter_open(&config, &w->f, &w->error), FILTER_INVALID);
        assert_null(w->f);
    }
    assert_int_equal(access(w->path, F_OK), -1);
}

static void test_any_text_may_be_a_member(void **state)
{
    struct world *w = *state;
    static const struct bytes texts[] = {{NULL, 0}, {"\0", 1}, {"\0\0", 2}, {"a\0b", 3}};
    open_filter(w, 100);
    for (size_t i = 0; i < 4; i++) {
        assert_false(filter_check(w->f, texts[i]));
        assert_int_equal(filter_add(w->f, texts[i], UINT64_MAX, i + 1, &w->error), FILTER_OK);
        assert_true(filter_check(w->f, texts[i]));
    }
    assert_int_equal(filter_add(w->f, texts[0], 0, UINT64_MAX, &w->error), FILTER_OK);
    assert_int_equal(filter_sync(w->f, &w->error), FILTER_OK);
    open_filter(w, 100);
    assert_int_equal(filter_sequence(w->f), UINT64_MAX);
}

static void change(const char *path, off_t at, const char *to)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(pwrite(fd, to, strlen(to), at), strlen(to));
    close(fd);
}

static void test_a_damaged_file_is_refused(void **state)
{
    struct world *w = *state;
    static const struct {
        off_t at;
        const char *to, *why;
    } damages[] = {{0, "X", "not a filter"}, {8, "\x02", "unknown format version"},
        {24, "X", "the header is damaged"}, {4095, "X", "the header is damaged"}};
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        open_filter(w, 100);
        assert_int_equal(add(w, "a", 1), FILTER_OK);
        assert_int_equal(filter_sync(w->f, &w->error), FILTER_OK);
        change(w->path, damages[i].at, damages[i].to);
        assert_int_equal(try_open(w, 100), FILTER_DAMAGED);
        assert_non_null(strstr(w->error.text, damages[i].why));
        assert_int_equal(filter_open_reader(w->path, &w->f, &w->error), FILTER_DAMAGED);
        unlink(w->path);
    }
    static const off_t lengths[] = {0, 4095, 4096, 65536};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        open_filter(w, 100);
        assert_int_equal(add(w, "a", 1), FILTER_OK);
        assert_int_equal(filter_sync(w->f, &w->error), FILTER_OK);
        assert_int_equal(truncate(w->path, lengths[i]), 0);
        assert_int_equal(try_open(w, 100), FILTER_DAMAGED);
        assert_non_null(strstr(w->error.text, "shorter"));
        unlink(w->path);
    }
}

/* A valid header, except for one number. Layer 32 would lie in the zeros behind the layers. */
static void make_header(struct filter_header *h, int wrong)
{
    memset(h, 0, sizeof *h);
    h->identity = filter_identity_new();
    h->capacity = wrong == 1 ? 0 : 1;
    h->rate = wrong == 2 ? 1 : (uint32_t)(RATE * FILTER_RATE_UNIT);
    h->n_layers = wrong == 3 ? FILTER_LAYERS + 1 : FILTER_LAYERS;
    for (size_t i = 0; i < FILTER_LAYERS + 1; i++) {
        struct filter_range r = {.first_id = i, .capacity = 1, .shape = {1, 1}};
        memcpy((char *)h->layers + i * sizeof r, &r, i < h->n_layers ? sizeof r : 0);
    }
    struct filter_range *last = &h->layers[FILTER_LAYERS - 1];
    last->members = wrong == 4 ? 2 : 0;
    last->first_id = wrong == 5 ? last[-1].first_id : last->first_id;
    last->shape.blocks = wrong == 6 ? 0 : wrong == 7 ? FILTER_BLOCKS_MAX + 1 : 1;
    last->shape.half = wrong == 8 ? 0 : wrong == 9 ? FILTER_HALF_MAX + 1 : 1;
    last->capacity = wrong == 10 ? FILTER_LAYER_MAX + 1 : 1;
    filter_header_seal(h);
}

static void test_a_header_outside_its_limits_is_refused(void **state)
{
    struct world *w = *state;
    static struct filter_header h;
    for (int wrong = 0; wrong <= 10; wrong++) {
        make_header(&h, wrong);
        assert_int_equal(io_replace_file(w->path, bytes_of(&h, sizeof h), 0600), 0);
        assert_int_equal(truncate(w->path, (off_t)65536 * (FILTER_LAYERS + 2)), 0);
        assert_int_equal(try_open(w, 1), wrong == 0 ? FILTER_OK : FILTER_DAMAGED);
        if (wrong > 0)
            assert_non_null(strstr(w->error.text, "the header is damaged"));
        else
            assert_int_equal(add(w, "text", 100), FILTER_OK);
    }
}

static void test_a_header_without_layers_has_no_members(void **state)
{
    struct world *w = *state;
    static struct filter_header h;
    make_header(&h, 0);
    h.n_layers = 0;
    h.layers[0].members = 1;
    filter_header_seal(&h);
    assert_int_equal(io_replace_file(w->path, bytes_of(&h, sizeof h), 0600), 0);
    open_filter(w, 1);
    assert_int_equal(filter_stats(w->f).members, 0);
    assert_int_equal(take(w, "text", 0), FILTER_ABSENT);
    assert_false(has(w, "text"));
    assert_int_equal(add(w, "text", 0), FILTER_OK);
    assert_int_equal(filter_stats(w->f).members, 1);
}

static off_t size_of(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_size;
}

static int keep_log(int fd, off_t length)
{
    (void)fd;
    assert_int_equal(length, 0);
    errno = EIO;
    return -1;
}

static bool pwrite_fails;

static ssize_t maybe_pwrite(int fd, const void *p, size_t n, off_t at)
{
    if (!pwrite_fails)
        return io_system.pwrite(fd, p, n, at);
    errno = EIO;
    return -1;
}

static ssize_t full_pwritev(int fd, const struct iovec *parts, int n, off_t at)
{
    if (!pwrite_fails)
        return io_system.pwritev(fd, parts, n, at);
    errno = ENOSPC;
    return -1;
}

static void test_a_sync_on_a_full_disk_can_be_repeated(void **state)
{
    struct world *w = *state;
    w->ops.pwritev = full_pwritev;
    io = &w->ops;
    open_filter(w, 100);
    assert_int_equal(add(w, "a", 1), FILTER_OK);
    assert_int_equal(filter_sync(w->f, &w->error), FILTER_OK);
    assert_int_equal(add(w, "b", 1), FILTER_OK);
    pwrite_fails = true;
    assert_int_equal(filter_sync(w->f, &w->error), FILTER_NO_SPACE);
    assert_int_equal(filter_sync(w->f, &w->error), FILTER_NO_SPACE);
    pwrite_fails = false;
    assert_int_equal(size_of(w->log), 0);
    assert_int_equal(add(w, "c", 1), FILTER_OK);
    assert_int_equal(filter_sync(w->f, &w->error), FILTER_OK);
    open_filter(w, 100);
    assert_true(has(w, "a") && has(w, "b") && has(w, "c"));
    assert_int_equal(filter_sequence(w->f), 3);
}

static bool is_full;

static int full_fallocate(int fd, int mode, off_t from, off_t n)
{
    if (!is_full)
        return io_system.fallocate(fd, mode, from, n);
    errno = ENOSPC;
    return -1;
}

/* 1000 adds open layers of 100, 200, 400 and 800 members. */
static void test_reserved_adds_need_no_space(void **state)
{
    struct world *w = *state;
    char name[16];
    w->ops.fallocate = full_fallocate;
    io = &w->ops;
    open_filter(w, 100);
    is_full = true;
    assert_int_equal(filter_reserve(w->f, 1, &w->error), FILTER_NO_SPACE);
    is_full = false;
    assert_int_equal(filter_reserve(w->f, 1000, &w->error), FILTER_OK);
    is_full = true;
    for (unsigned i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "%u", i);
        assert_int_equal(add(w, name, 1 + i), FILTER_OK);
    }
    assert_int_equal(filter_reserve(w->f, 500, &w->error), FILTER_OK);
    assert_int_equal(filter_reserve(w->f, 501, &w->error), FILTER_NO_SPACE);
    assert_int_equal(filter_sync(w->f, &w->error), FILTER_OK);
    is_full = false;
    open_filter(w, 100);
    assert_int_equal(filter_stats(w->f).layers, 4);
    assert_true(has(w, "0") && has(w, "999"));
}

/* Changes the low bit of a byte. */
static void flip(const char *path, off_t at)
{
    char byte;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

/* The disk wrote only parts of the log. */
static void test_a_log_with_a_changed_byte_is_ignored(void **state)
{
    struct world *w = *state;
    open_filter(w, 100);
    assert_int_equal(add(w, "a", 1), FILTER_OK);
    assert_int_equal(filter_sync(w->f, &w->error), FILTER_OK);
    assert_int_equal(add(w, "b", 1), FILTER_OK);
    w->ops.pwrite = maybe_pwrite;
    io = &w->ops;
    pwrite_fails = true;
    assert_int_equal(filter_sync(w->f, &w->error), FILTER_FAILED);
    pwrite_fails = false;
    filter_close(&w->f);
    off_t size = size_of(w->log);
    assert_int_equal(size, 32 + 4096 + 16 + 4096);
    const off_t places[] = {0, 8, 16, 24, 32, 64, 32 + 4095, 32 + 4096, 32 + 4096 + 9, size - 4096, size - 1};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        flip(w->log, places[i]);
        open_filter(w, 100);
        assert_false(filter_stats(w->f).was_recovered);
        assert_int_equal(filter_sequence(w->f), 1);
        assert_true(has(w, "a") && !has(w, "b"));
        filter_close(&w->f);
        flip(w->log, places[i]);
    }
    open_filter(w, 100);
    assert_true(filter_stats(w->f).was_recovered);
    assert_true(has(w, "a") && has(w, "b"));
}

/* The log of a deleted file, and of a file that was replaced by an older copy. */
static void test_a_log_of_another_file(void **state)
{
    struct world *w = *state;
    char copy[96];
    snprintf(copy, sizeof copy, "%s.copy", w->path);
    open_filter(w, 100);
    assert_int_equal(add(w, "a", 1), FILTER_OK);
    assert_int_equal(filter_sync(w->f, &w->error), FILTER_OK);
    filter_close(&w->f);
    copy_tree(w->path, copy, false);
    open_filter(w, 100);
    assert_int_equal(add(w, "b", 1), FILTER_OK);
    assert_int_equal(filter_sync(w->f, &w->error), FILTER_OK);
    assert_int_equal(add(w, "c", 1), FILTER_OK);
    w->ops.ftruncate = keep_log;
    io = &w->ops;
    assert_int_equal(filter_sync(w->f, &w->error), FILTER_FAILED);
    filter_close(&w->f);
    io = &io_system;
    assert_true(size_of(w->log) > 0);
    assert_int_equal(rename(copy, w->path), 0);
    assert_int_equal(try_open(w, 100), FILTER_DAMAGED);
    assert_non_null(strstr(w->error.text, "the log continues another copy"));
    unlink(w->path);
    open_filter(w, 100);
    assert_int_equal(filter_stats(w->f).members, 0);
    assert_int_equal(add(w, "d", 1), FILTER_OK);
    assert_int_equal(filter_sync(w->f, &w->error), FILTER_OK);
    assert_int_equal(size_of(w->log), 0);
    open_filter(w, 100);
    assert_true(has(w, "d") && !has(w, "b"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_model),
        TEST(test_rates_of_full_layers_add_up_to_the_rate),
        TEST(test_no_layer_takes_more_than_its_capacity),
        TEST(test_a_removal_changes_no_other_layer),
        TEST(test_counters_stay_in_their_layer),
        TEST(test_a_full_counter_never_changes),
        TEST(test_no_counter_passes_0),
        TEST(test_14_adds_fill_no_counter),
        TEST(test_a_file_of_more_than_4_gib),
        TEST(test_repeated_updates_change_nothing),
        TEST(test_a_filter_may_be_numbered_anew),
        TEST(test_updates_without_a_sync_are_lost_as_a_whole),
        TEST(test_a_failed_sync_stops_updates_until_the_next_opening),
        TEST(test_a_sync_on_a_full_disk_can_be_repeated),
        TEST(test_reserved_adds_need_no_space),
        TEST(test_a_reader_sees_each_sync),
        TEST(test_a_reader_follows_the_path),
        TEST(test_a_reader_misses_no_member_during_a_sync),
        TEST(test_only_one_writer),
        TEST(test_settings_have_limits),
        TEST(test_any_text_may_be_a_member),
        TEST(test_a_damaged_file_is_refused),
        TEST(test_a_header_outside_its_limits_is_refused),
        TEST(test_a_header_without_layers_has_no_members),
        TEST(test_a_log_with_a_changed_byte_is_ignored),
        TEST(test_a_log_of_another_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
