/* Seeks by time and offset: what they find, and that other reads do not wait for them. */
#include "support/journal_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define LINE ((size_t)1000)

static size_t bytes_read;
static struct io_ops counting;

static ssize_t count_pread(int fd, void *p, size_t n, off_t at)
{
    ssize_t got = io_system.pread(fd, p, n, at);
    if (got > 0)
        __atomic_add_fetch(&bytes_read, (size_t)got, __ATOMIC_RELAXED);
    return got;
}

static size_t read_so_far(void)
{
    return __atomic_load_n(&bytes_read, __ATOMIC_RELAXED);
}

static void count_reads(void)
{
    counting = io_system;
    counting.pread = count_pread;
    io = &counting;
    bytes_read = 0;
}

static size_t entries_of(const struct segment *s)
{
    return s->index ? s->index->n : 0;
}

/* Short steps and a dense index, so that small files have many of each. */
static int setup_small(void **state)
{
    journal_step_max = 10 * LINE;
    journal_index_spacing = 3 * LINE;
    return setup(state);
}

static int teardown_small(void **state)
{
    journal_step_max = (uint64_t)1 << 20;
    journal_index_spacing = (uint64_t)512 << 10;
    return teardown(state);
}
#define SMALL(f) cmocka_unit_test_setup_teardown(f, setup_small, teardown_small)

/* Numbered lines of LINE bytes, `batch` of them an append; line i at the time 1,000 + i. */
static void fill(struct fixture *f, size_t lines, size_t batch)
{
    char *text = mem_alloc(LINE * batch + 1);
    struct bytes piece = bytes_of(text, LINE * batch);
    struct journal_append a = {.pieces = &piece, .n_pieces = 1};
    struct answer answer = {0};
    for (size_t i = 0; i < lines; i += batch) {
        for (size_t k = 0; k < batch; k++)
            snprintf(text + k * LINE, LINE + 1, "%-999zu\n", i + k);
        assert_int_equal(journal_append(f->j, &a, (usec_t)(1000 + i), on_commit, &answer, NULL), JOURNAL_OK);
        if (i / batch % 16 == 0)
            journal_set_flush(f->set);
    }
    journal_set_flush(f->set);
    free(text);
}

static void assert_line_at(struct fixture *f, size_t line)
{
    struct journal_reader *r;
    struct journal_edges edges;
    struct seen s = {0};
    assert_int_equal(journal_reader_open(f->j, line * LINE, &r, &edges), JOURNAL_OK);
    wait_read(f, r, 10, &s);
    assert_int_equal(s.w.result, JOURNAL_OK);
    assert_int_equal(s.w.offset, line * LINE);
    assert_int_equal(strtoull(s.data.ptr, NULL, 10), line);
    journal_reader_close(&r);
    buf_free(&s.data);
}

static void open_with(struct fixture *f, size_t bytes)
{
    sync_ms = JOURNAL_SYNC_NEVER;
    segment_bytes = bytes;
    reopen(f);
}

static void test_the_first_frame_at_or_after_a_time(void **state)
{
    struct fixture *f = *state;
    uint64_t offset;
    segment_bytes = 4096;
    reopen(f);
    assert_int_equal(seek_time(f, 5, &offset), JOURNAL_OK);
    assert_int_equal(offset, 0);
    fill_segments(f, 40, 1000);
    for (usec_t t = 990; t < 1045; t++) {
        uint64_t expected = t < 1000 ? 0 : t < 1040 ? (uint64_t)(t - 1000) * 1000 : 40000;
        assert_int_equal(seek_time(f, t, &offset), JOURNAL_OK);
        assert_int_equal(offset, expected);
    }
}

/* A seek finds no frame that only moves a mark, even in a segment of only such frames. */
static void test_marks_alone_are_passed(void **state)
{
    struct fixture *f = *state;
    uint64_t offset;
    struct answer a;
    segment_bytes = 512;
    reopen(f);
    put(f, "one");
    for (uint64_t mark = 0; mark < 40; mark++) {
        struct journal_append move = {.producer = BYTES_LITERAL("p"), .mark = mark, .next = mark + 1};
        assert_int_equal(journal_append(f->j, &move, 2000 + (usec_t)mark, on_commit, &a, NULL), JOURNAL_OK);
        journal_set_flush(f->set);
    }
    assert_int_equal(seek_time(f, 2001, &offset), JOURNAL_OK);
    assert_int_equal(offset, 3);
    struct bytes piece = BYTES_LITERAL("two");
    struct journal_append late = {.pieces = &piece, .n_pieces = 1};
    assert_int_equal(journal_append(f->j, &late, 3000, on_commit, &a, NULL), JOURNAL_OK);
    journal_set_flush(f->set);
    assert_true(f->j->n_segments > 3);
    for (usec_t t = 1001; t <= 3000; t++) {
        assert_int_equal(seek_time(f, t, &offset), JOURNAL_OK);
        assert_int_equal(offset, 3);
    }
}

/* With any index: from appends, empty, or from earlier seeks. */
static void test_the_index_does_not_change_results(void **state)
{
    struct fixture *f = *state;
    open_with(f, 100 * LINE);
    fill(f, 1000, 2);
    assert_true(entries_of(f->j->segments[3]) > 0);
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < 1000; i += 7) {
            uint64_t offset, line = i * 389 % 1000;
            assert_int_equal(seek_time(f, 1000 + (usec_t)line, &offset), JOURNAL_OK);
            assert_int_equal(offset, (line + 1) / 2 * 2 * LINE);
            assert_line_at(f, line);
        }
        assert_true(entries_of(f->j->segments[3]) > 0);
        reopen(f);
        assert_int_equal(entries_of(f->j->segments[3]), 0);
    }
}

static void test_damage_on_the_way_is_named(void **state)
{
    struct fixture *f = *state;
    uint64_t offset;
    open_with(f, 100 * LINE);
    fill(f, 300, 1);
    reopen(f);
    assert_int_equal(f->j->n_segments, 4);
    flip(f->j->segments[1]->path, 50 * (off_t)LINE);
    uint64_t last =
        f->j->segments[2]->base / LINE - 1; /* or the end of segments would depend on the batches */
    assert_int_equal(seek_time(f, 1000 + (usec_t)last, &offset), JOURNAL_DAMAGED);
    assert_non_null(strstr(journal_failure(f->j), f->j->segments[1]->path));
    assert_non_null(strstr(journal_failure(f->j), "damaged at byte"));
    assert_int_equal(seek_time(f, 1000 + 250, &offset), JOURNAL_OK);
    assert_int_equal(offset, 250 * LINE);
}

static void not_called(enum journal_result r, uint64_t offset, void *arg)
{
    (void)r, (void)offset, (void)arg;
    fail_msg("a seek that was cancelled has answered");
}

static void no_window(const struct journal_window *w, void *arg)
{
    (void)w, (void)arg;
    fail_msg("a reader that was closed has answered");
}

static void test_a_cancelled_seek_is_not_answered(void **state)
{
    struct fixture *f = *state;
    struct journal_reader *r;
    struct journal_edges edges;
    open_with(f, 300 * LINE);
    fill(f, 400, 1);
    for (int polls = 0; polls < 5; polls++) {
        reopen(f);
        struct journal_seek *seek = journal_seek_time(f->j, 1270, INT64_MAX, not_called, NULL);
        assert_int_equal(journal_reader_open(f->j, 270 * LINE, &r, &edges), JOURNAL_OK);
        journal_reader_read(r, 10, no_window, NULL);
        for (int i = 0; i < polls; i++)
            set_wait(f->set);
        journal_reader_close(&r);
        journal_seek_cancel(&seek);
        assert_null(seek);
        settle(f);
        assert_int_equal(f->j->segments[0]->refs, 0);
    }
}

static void on_found(enum journal_result r, uint64_t offset, void *arg)
{
    assert_int_equal(r, JOURNAL_OK);
    *(uint64_t *)arg = offset;
}

static void test_trimmed_frames_are_not_found(void **state)
{
    struct fixture *f = *state;
    uint64_t offset = UINT64_MAX;
    open_with(f, 100 * LINE);
    fill(f, 300, 1);
    char *path = mem_strdup(f->j->segments[0]->path);
    reopen(f);
    journal_seek_time(f->j, 1050, INT64_MAX, on_found, &offset);
    journal_trim(f->j, 200 * LINE);
    assert_int_equal(access(path, F_OK), 0);
    while (offset == UINT64_MAX)
        set_wait(f->set);
    assert_int_equal(offset, journal_earliest(f->j));
    assert_true(offset > 50 * LINE);
    settle(f);
    assert_int_not_equal(access(path, F_OK), 0);
    free(path);
}

#define TIMES ((size_t)400)

static void append_at(struct fixture *f, usec_t time)
{
    static const char text[LINE];
    struct answer answer = {0};
    struct bytes piece = bytes_of(text, sizeof text);
    struct journal_append a = {.pieces = &piece, .n_pieces = 1};
    assert_int_equal(journal_append(f->j, &a, time, on_commit, &answer, NULL), JOURNAL_OK);
    journal_set_flush(f->set);
}

static uint64_t seek_at(struct fixture *f, usec_t time, usec_t now)
{
    uint64_t offset = UINT64_MAX;
    journal_seek_time(f->j, time, now, on_found, &offset);
    while (offset == UINT64_MAX)
        set_wait(f->set);
    return offset;
}

/* What journal_seek_time promises, line after line. */
static size_t first_line(const usec_t *times, usec_t time, usec_t now)
{
    size_t candidate = TIMES;
    for (size_t i = 0; i < TIMES; i++) {
        if (times[i] < time)
            candidate = TIMES;
        else if (candidate == TIMES)
            candidate = i;
        if (candidate < TIMES && times[i] <= now)
            break;
    }
    return candidate;
}

/* A clock that rises, falls, and jumps both ways for a while. The index is that of the appends, empty, or that of the seeks. */
static void test_times_that_fall(void **state)
{
    struct fixture *f = *state;
    usec_t times[TIMES], time = 100000;
    unsigned seed = 1;
    open_with(f, 40 * LINE);
    for (size_t i = 0; i < TIMES; i++) {
        int kind = rand_r(&seed) % 40;
        time += kind == 0 ? 5000 : kind == 1 ? -5000 : rand_r(&seed) % 20;
        times[i] = time + (kind == 2 ? 1000000 : kind == 3 ? -50000 : 0);
        append_at(f, times[i]);
    }
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 700; i++) {
            usec_t wanted = times[(size_t)rand_r(&seed) % TIMES] + rand_r(&seed) % 3 - 1;
            usec_t now = rand_r(&seed) % 3 ? times[(size_t)rand_r(&seed) % TIMES] : INT64_MAX;
            assert_int_equal(seek_at(f, wanted, now), first_line(times, wanted, now) * LINE);
        }
        if (round == 1)
            reopen(f);
    }
}

/* For 5 s the clock is 400 days ahead. Before and after, there is a line a second. */
static void test_a_clock_that_was_ahead(void **state)
{
    struct fixture *f = *state;
    const usec_t ahead = (usec_t)400 * 86400;
    for (size_t segment = 20; segment <= 200; segment += 180) {
        struct journal_retention keep = {.max_age = 50, .hold = UINT64_MAX};
        open_with(f, segment * LINE);
        uint64_t start = journal_committed_end(f->j);
        for (usec_t t = 0; t < 100; t++)
            append_at(f, 1000 + t + (t >= 40 && t < 45 ? ahead : 0));
        for (int round = 0; round < 2; round++) {
            for (usec_t t = 0; t < 100; t++) /* lines of an unknown time are not passed over */
                if (t < 40 || t > 45)
                    assert_int_equal(seek_at(f, 1000 + t, 1100), start + (uint64_t)t * LINE);
            assert_int_equal(seek_at(f, 1045, 1100), start + 40 * LINE);
            assert_int_equal(seek_at(f, 1040 + ahead, 1100), start + 100 * LINE);
            assert_int_equal(journal_last_time(f->j), 1099);
            reopen(f);
        }
        journal_retain(f->j, &keep, 1050);
        assert_true(journal_earliest(f->j) <= start);
        journal_retain(f->j, &keep, 1200);
        assert_true(journal_earliest(f->j) + segment * LINE > start + 100 * LINE - 2 * LINE);
        settle(f);
        journal_trim(f->j, UINT64_MAX);
        settle(f);
        teardown_small(state);
        setup_small(state);
        f = *state;
    }
}

/* All frames are in the future, as in journals whose times never decreased. The files tell their age. */
static void test_the_age_of_files_bounds_that_of_frames(void **state)
{
    struct fixture *f = *state;
    struct journal_retention keep = {.max_age = 60 * USEC_PER_SEC, .hold = UINT64_MAX};
    usec_t begin = clock_wall();
    open_with(f, 20 * LINE);
    for (usec_t t = 0; t < 100; t++)
        append_at(f, begin + 400 * 86400 * USEC_PER_SEC);
    usec_t end = clock_wall();
    reopen(f);
    journal_retain(f->j, &keep, begin + keep.max_age);
    assert_int_equal(journal_earliest(f->j), 0);
    journal_retain(f->j, &keep, end + keep.max_age + 1);
    assert_true(journal_earliest(f->j) > 70 * LINE);
}

/* For a while the clock is a day behind. */
static void test_a_clock_that_was_behind(void **state)
{
    struct fixture *f = *state;
    struct journal_retention keep = {.max_age = 50, .hold = UINT64_MAX};
    open_with(f, 20 * LINE);
    for (usec_t t = 0; t < 100; t++)
        append_at(f, 100000 + t - (t >= 40 && t < 65 ? 86400 : 0));
    for (int round = 0; round < 2; round++) {
        for (usec_t t = 0; t < 100; t++)
            assert_int_equal(seek_at(f, 100000 + t, 100100), (uint64_t)(t >= 40 && t < 65 ? 65 : t) * LINE);
        assert_int_equal(seek_at(f, 100000 + 50 - 86400, 100000 + 50 - 86400), 50 * LINE);
        reopen(f);
    }
    journal_retain(f->j, &keep, 100065);
    assert_int_equal(journal_earliest(f->j), 0);
    journal_retain(f->j, &keep, 100100);
    assert_true(journal_earliest(f->j) > 20 * LINE && journal_earliest(f->j) <= 65 * LINE);
}

#define LONG_LINES ((size_t)16000)
#define STEP ((size_t)1 << 20)

/* A segment of 16 MB without an index. */
static void open_a_long_segment(struct fixture *f)
{
    open_with(f, 2 * LONG_LINES * LINE);
    fill(f, LONG_LINES, 10);
    assert_int_equal(f->j->n_segments, 1);
    reopen(f);
    count_reads();
}

static void on_flag(const struct journal_window *w, void *arg)
{
    assert_int_equal(w->result, JOURNAL_OK);
    *(bool *)arg = true;
}

/* Bytes read, for any reader, between a request for the journal's first bytes and its answer. */
static size_t most_waited_for(struct fixture *f, const volatile bool *over)
{
    size_t most = 0;
    struct journal_edges edges;
    while (!*over) {
        struct journal_reader *other;
        bool read = false;
        size_t before = read_so_far();
        assert_int_equal(journal_reader_open(f->j, 0, &other, &edges), JOURNAL_OK);
        journal_reader_read(other, 100, on_flag, &read);
        while (!read)
            set_wait(f->set);
        journal_reader_close(&other);
        most = read_so_far() - before > most ? read_so_far() - before : most;
    }
    return most;
}

static bool time_is_found;

static void on_time(enum journal_result r, uint64_t offset, void *arg)
{
    assert_int_equal(r, JOURNAL_OK);
    *(uint64_t *)arg = offset;
    time_is_found = true;
}

static void test_others_read_during_a_seek(void **state)
{
    struct fixture *f = *state;
    uint64_t offset;
    open_a_long_segment(f);
    time_is_found = false;
    journal_seek_time(f->j, 1000 + 15900, INT64_MAX, on_time, &offset);
    size_t most = most_waited_for(f, &time_is_found);
    print_message("most read while another waits: %zu of %zu bytes\n", most, read_so_far());
    assert_int_equal(offset, 15900 * LINE);
    assert_true(read_so_far() > LONG_LINES * LINE * 9 / 10);
    assert_true(most <= 4 * STEP);
}

static void test_others_read_while_a_reader_starts_inside_a_segment(void **state)
{
    struct fixture *f = *state;
    struct journal_reader *r;
    struct journal_edges edges;
    bool over = false;
    open_a_long_segment(f);
    assert_int_equal(journal_reader_open(f->j, 15905 * LINE, &r, &edges), JOURNAL_OK);
    journal_reader_read(r, 10, on_flag, &over);
    size_t most = most_waited_for(f, &over);
    print_message("most read while another waits: %zu of %zu bytes\n", most, read_so_far());
    assert_true(read_so_far() > LONG_LINES * LINE * 9 / 10);
    assert_true(most <= 4 * STEP);
    journal_reader_close(&r);
}

/* A second reader, or one behind this session's appends, passes one step at most. */
static void test_passed_frames_are_indexed(void **state)
{
    struct fixture *f = *state;
    uint64_t offset;
    open_a_long_segment(f);
    assert_int_equal(seek_time(f, 1000 + 15900, &offset), JOURNAL_OK);
    for (size_t line = 0; line < LONG_LINES; line += 1597) {
        bytes_read = 0;
        assert_line_at(f, line);
        assert_int_equal(seek_time(f, 1000 + (usec_t)line, &offset), JOURNAL_OK);
        assert_true(read_so_far() <= 3 * STEP);
    }
    fill(f, LONG_LINES, 10);
    bytes_read = 0;
    assert_int_equal(seek_time(f, 1000 + 15980, &offset), JOURNAL_OK);
    struct journal_reader *r;
    struct journal_edges edges;
    struct seen s = {0};
    assert_int_equal(journal_reader_open(f->j, (LONG_LINES + 9007) * LINE, &r, &edges), JOURNAL_OK);
    wait_read(f, r, 10, &s);
    assert_int_equal(strtoull(s.data.ptr, NULL, 10), 9007);
    assert_true(read_so_far() <= 4 * STEP);
    journal_reader_close(&r);
    buf_free(&s.data);
}

/* The index is bounded in segments, and in entries per segment. */
static void test_the_index_is_bounded(void **state)
{
    struct fixture *f = *state;
    size_t segments = 0, places = 0, most = 0;
    open_with(f, 20 * LINE);
    fill(f, 40 * (FRAME_INDEX_SEGMENTS_MAX + 100), 1);
    for (size_t i = 0; i < f->j->n_segments; i++) {
        size_t n = entries_of(f->j->segments[i]);
        segments += n > 0;
        places += n;
    }
    assert_true(f->j->n_segments > FRAME_INDEX_SEGMENTS_MAX + 50);
    assert_true(segments > FRAME_INDEX_SEGMENTS_MAX / 2 && segments <= FRAME_INDEX_SEGMENTS_MAX);
    assert_true(places >= segments && entries_of(f->j->segments[0]) == 0);
    assert_line_at(f, 3);
    assert_line_at(f, 19);
    open_with(f, 16 * FRAME_INDEX_ENTRIES_MAX * 3 * LINE);
    fill(f, 16 * FRAME_INDEX_ENTRIES_MAX * 3, 1);
    for (size_t i = 0; i < f->j->n_segments; i++)
        if (entries_of(f->j->segments[i]) > most)
            most = entries_of(f->j->segments[i]);
    assert_true(most >= FRAME_INDEX_ENTRIES_MAX / 4 && most < FRAME_INDEX_ENTRIES_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_the_first_frame_at_or_after_a_time),
        SMALL(test_marks_alone_are_passed),
        SMALL(test_the_index_does_not_change_results),
        SMALL(test_damage_on_the_way_is_named),
        SMALL(test_a_cancelled_seek_is_not_answered),
        SMALL(test_trimmed_frames_are_not_found),
        SMALL(test_times_that_fall),
        SMALL(test_a_clock_that_was_ahead),
        SMALL(test_the_age_of_files_bounds_that_of_frames),
        SMALL(test_a_clock_that_was_behind),
        T(test_others_read_during_a_seek),
        T(test_others_read_while_a_reader_starts_inside_a_segment),
        T(test_passed_frames_are_indexed),
        SMALL(test_the_index_is_bounded),
    };
    log_init("test", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
