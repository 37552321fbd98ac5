/* Reads without copies: spans are verified payload in the file, and files that were given out are never reused. */
#include "support/journal_fixture.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LINE ((size_t)450)

static uint64_t count_bytes(struct bytes payload)
{
    uint64_t n = 0;
    for (size_t i = 0; i < payload.len; i++)
        n += payload.ptr[i] == '\n';
    return n;
}

/* A frame of random bytes, ended by an LF. */
static void add_frame(struct fixture *f, size_t len, struct buf *all)
{
    char *text = mem_alloc(len);
    struct answer a = {0};
    for (size_t i = 0; i < len; i++)
        text[i] = (char)rand();
    text[len - 1] = '\n';
    buf_append(all, text, len);
    struct bytes piece = bytes_of(text, len);
    struct journal_append append = {.producer = rand() % 2 ? bytes_str("p") : BYTES_NONE,
        .mark = journal_mark(f->j, bytes_str("p"), NULL),
        .next = journal_mark(f->j, bytes_str("p"), NULL) + 1,
        .pieces = &piece,
        .n_pieces = 1};
    assert_int_equal(journal_append(f->j, &append, 1000, on_commit, &a, NULL), JOURNAL_OK);
    journal_set_flush(f->set);
    assert_int_equal(a.commit.result, JOURNAL_OK);
    free(text);
}

static size_t random_size(void)
{
    switch (rand() % 4) {
    case 0:
        return 1 + (size_t)rand() % 500;
    case 1:
        return JOURNAL_SPAN_MIN - 3 + (size_t)rand() % 7;
    case 2:
        return 1 + (size_t)rand() % 300000;
    default:
        return 20000 + (size_t)rand() % 60000;
    }
}

/* The bytes of a window; for spans, those in the file. */
struct found {
    int calls;
    enum journal_result result;
    struct buf data;
    uint64_t offset, count;
    size_t spans, copied;
    struct journal_file *file; /* of the last, held */
    uint64_t stamp;
};

static void read_spans(struct found *s, const struct journal_window *w)
{
    for (size_t i = 0; i < w->n_spans; i++) {
        const struct journal_span *span = &w->spans[i];
        assert_int_equal(span->offset, s->offset);
        buf_reserve(&s->data, span->len);
        assert_int_equal(
            pread(journal_file_fd(w->file), s->data.ptr + s->data.len, span->len, (off_t)span->position),
            span->len);
        assert_int_equal(count_bytes(bytes_of(s->data.ptr + s->data.len, span->len)), span->count);
        s->data.len += span->len;
        s->offset += span->len;
    }
    s->spans += w->n_spans;
    if (s->file)
        journal_file_release(s->file);
    s->file = journal_file_hold(w->file);
    s->stamp = w->stamp;
}

static void on_located(const struct journal_window *w, void *arg)
{
    struct found *s = arg;
    s->calls++;
    s->result = w->result;
    if (w->result != JOURNAL_OK)
        return;
    assert_int_equal(w->offset, s->offset);
    assert_true((w->n_spans > 0) != (w->data.len > 0));
    if (w->n_spans) {
        read_spans(s, w);
        return;
    }
    buf_append_bytes(&s->data, w->data);
    s->offset += w->data.len;
    s->copied++;
}

static void locate(struct fixture *f, struct journal_reader *r, struct found *s)
{
    struct journal_span_request how = {70000, count_bytes};
    int before = s->calls;
    struct buf memory = {0};
    journal_reader_spans(r, &how, &memory, on_located, s);
    while (s->calls == before)
        set_wait(f->set);
}

static struct journal_reader *reader_at(struct fixture *f, uint64_t offset, struct found *s)
{
    struct journal_reader *r;
    *s = (struct found){.offset = offset};
    assert_int_equal(journal_reader_open(f->j, offset, &r, NULL), JOURNAL_OK);
    return r;
}

static void let_go(struct journal_reader **r, struct found *s)
{
    journal_reader_close(r);
    if (s->file)
        journal_file_release(s->file);
    buf_free(&s->data);
}

static void test_spans_are_the_payload_from_any_offset(void **state)
{
    struct fixture *f = *state;
    struct buf all = {0};
    struct found s;
    size_t spans = 0, copied = 0;
    segment_bytes = 1 << 20;
    reopen(f);
    for (int i = 0; i < 120; i++)
        add_frame(f, random_size(), &all);
    for (int i = 0; i < 60; i++) {
        uint64_t from = i ? (uint64_t)rand() % all.len : 0;
        struct journal_reader *r = reader_at(f, from, &s);
        do
            locate(f, r, &s);
        while (s.result == JOURNAL_OK);
        assert_int_equal(s.result, JOURNAL_END);
        assert_true(bytes_equal(buf_bytes(&s.data), bytes_of(all.ptr + from, all.len - from)));
        spans += s.spans;
        copied += s.copied;
        let_go(&r, &s);
    }
    assert_true(spans > 100 && copied > 10);
    buf_free(&all);
}

static void test_large_frames_are_spans_and_small_ones_copied(void **state)
{
    struct fixture *f = *state;
    struct buf all = {0};
    struct found s;
    for (int i = 0; i < 100; i++)
        add_frame(f, LINE, &all);
    struct journal_reader *r = reader_at(f, 0, &s);
    locate(f, r, &s);
    assert_true(s.spans == 0 && s.copied == 1 && s.data.len == 100 * LINE);
    for (int i = 0; i < 30; i++)
        add_frame(f, 100 * LINE, &all);
    locate(f, r, &s);
    assert_true(s.copied == 1 && s.spans == (JOURNAL_SPANS_MAX + 100 * LINE - 1) / (100 * LINE));
    let_go(&r, &s);
    buf_free(&all);
}

static void test_a_flipped_bit_is_never_in_a_span(void **state)
{
    struct fixture *f = *state;
    struct buf all = {0};
    struct found s;
    for (int i = 0; i < 6; i++)
        add_frame(f, 40000, &all);
    char *path = last_segment_path(f);
    flip(path, 90000);
    struct journal_reader *r = reader_at(f, 0, &s);
    locate(f, r, &s);
    assert_true(s.result == JOURNAL_OK && s.spans == 2 && s.offset == 80000);
    locate(f, r, &s);
    assert_int_equal(s.result, JOURNAL_DAMAGED);
    assert_non_null(strstr(journal_failure(f->j), path));
    let_go(&r, &s);
    free(path);
    buf_free(&all);
}

/* Waits for a tick of the kernel's clock for file times. */
static void wait_for_tick(void)
{
    struct timespec began, now;
    clock_gettime(CLOCK_REALTIME_COARSE, &began);
    do {
        sched_yield();
        clock_gettime(CLOCK_REALTIME_COARSE, &now);
    } while (now.tv_sec == began.tv_sec && now.tv_nsec == began.tv_nsec);
}

/* Every write to the file changes the stamp. */
static void test_a_write_changes_the_stamp(void **state)
{
    struct fixture *f = *state;
    struct buf all = {0};
    struct found s;
    add_frame(f, 40000, &all);
    struct journal_reader *r = reader_at(f, 0, &s);
    locate(f, r, &s);
    assert_true(journal_file_is_unchanged(s.file, s.stamp));
    assert_true(journal_file_is_unchanged(s.file, s.stamp));
    wait_for_tick();
    char *path = last_segment_path(f);
    flip(path, 20000);
    assert_false(journal_file_is_unchanged(s.file, s.stamp));
    free(path);
    let_go(&r, &s);
    buf_free(&all);
}

/* A held file stays readable after its segment and journal are gone. */
static void test_a_file_outlives_its_segment(void **state)
{
    struct fixture *f = *state;
    struct buf all = {0};
    struct found s;
    char byte;
    segment_bytes = 60000;
    reopen(f);
    for (int i = 0; i < 4; i++)
        add_frame(f, 40000, &all);
    struct journal_reader *r = reader_at(f, 0, &s);
    locate(f, r, &s);
    journal_reader_close(&r);
    journal_trim(f->j, journal_committed_end(f->j));
    settle(f);
    assert_true(journal_earliest(f->j) > 0);
    journal_set_free(&f->set);
    assert_int_equal(pread(journal_file_fd(s.file), &byte, 1, 10000), 1);
    assert_int_equal(try_open(f), JOURNAL_OK);
    let_go(&r, &s);
    buf_free(&all);
}

/* Each segment has one large frame and lines. */
static bool is_recycled(struct fixture *f, bool locate_them)
{
    struct buf all = {0};
    for (int i = 0; i < 200 && !f->j->writer.recycled; i++) {
        struct found s;
        uint64_t end = journal_committed_end(f->j);
        if (i % 10 == 0)
            add_frame(f, JOURNAL_SPAN_MIN, &all);
        struct journal_reader *r = reader_at(f, end, &s);
        if (locate_them && i % 10 == 0)
            locate(f, r, &s);
        let_go(&r, &s);
        fill_segments(f, 1, 2000);
        settle_filler(f); /* so that no file is prepared meanwhile */
        journal_trim(f->j, journal_committed_end(f->j));
        settle(f);
    }
    buf_free(&all);
    return f->j->writer.recycled;
}

/* Sockets may hold pages of the file for any time. */
static void test_a_file_that_was_given_out_is_not_reused(void **state)
{
    struct fixture *f = *state;
    segment_bytes = 20000;
    reopen(f);
    assert_false(is_recycled(f, true));
}

static void test_files_that_were_not_given_out_are_reused(void **state)
{
    struct fixture *f = *state;
    segment_bytes = 20000;
    reopen(f);
    assert_true(is_recycled(f, false));
}

/* An earlier session may have given out any of them, to receivers that outlived it. */
static void test_files_an_earlier_session_may_have_given_out_are_not_reused(void **state)
{
    struct fixture *f = *state;
    segment_bytes = 20000;
    for (int i = 0; i < 2; i++) {
        shares_files = i == 0;
        reopen(f);
        for (size_t n = f->j->n_segments; f->j->n_segments < n + 3;)
            fill_segments(f, 1, 1);
        reopen(f);
        journal_trim(f->j, journal_committed_end(f->j));
        settle(f);
        assert_int_equal(f->j->n_segments, 1);
        assert_true(shares_files != f->j->prealloc.trimmed);
    }
}

/* A stalled receiver holds its file. Past the limit bytes are copied. */
static void test_few_files_are_given_out_at_a_time(void **state)
{
    struct fixture *f = *state;
    struct buf all = {0};
    struct found s[6];
    struct journal_reader *r[6];
    segment_bytes = 1 << 20;
    unsigned most = journal_shared_files_max;
    journal_shared_files_max = 3;
    reopen(f);
    while (f->j->n_segments < 7)
        add_frame(f, 300000, &all);
    for (size_t i = 0; i < 6; i++) {
        r[i] = reader_at(f, f->j->segments[i]->base, &s[i]);
        locate(f, r[i], &s[i]);
        bool copied = i >= 3;
        assert_true((s[i].copied == 1) == copied && (s[i].file == NULL) == copied);
        assert_memory_equal(s[i].data.ptr, all.ptr + f->j->segments[i]->base, s[i].data.len);
    }
    let_go(&r[1], &s[1]);
    while (s[4].result == JOURNAL_OK && !s[4].file) /* a begun frame is copied to its end */
        locate(f, r[4], &s[4]);
    assert_non_null(s[4].file);
    for (size_t i = 0; i < 6; i++)
        if (i != 1)
            let_go(&r[i], &s[i]);
    journal_shared_files_max = most;
    buf_free(&all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_spans_are_the_payload_from_any_offset),
        T(test_large_frames_are_spans_and_small_ones_copied),
        T(test_a_flipped_bit_is_never_in_a_span),
        T(test_a_write_changes_the_stamp),
        T(test_a_file_outlives_its_segment),
        T(test_a_file_that_was_given_out_is_not_reused),
        T(test_files_an_earlier_session_may_have_given_out_are_not_reused),
        T(test_few_files_are_given_out_at_a_time),
        T(test_files_that_were_not_given_out_are_reused),
    };
    const char *seed = getenv("MILLRACE_SEED");
    srand(seed ? (unsigned)strtoul(seed, NULL, 10) : 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
