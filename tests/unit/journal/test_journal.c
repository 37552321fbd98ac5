/* Appends, reads and trims, as the owner sees them. */
#include "support/journal_fixture.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void test_appends_are_kept(void **state)
{
    struct fixture *f = *state;
    char id[JOURNAL_ID_TEXT];
    strcpy(id, journal_id(f->j));
    assert_int_equal(put(f, "one").commit.end, 3);
    assert_int_equal(put(f, "two").commit.start, 3);
    assert_int_equal(journal_committed_end(f->j), 6);
    for (int i = 0; i < 3; i++) {
        reopen(f);
        assert_string_equal(journal_id(f->j), id);
        assert_int_equal(journal_committed_end(f->j), 6 + i);
        assert_int_equal(journal_cut_bytes(f->j), 0);
        put(f, "x");
    }
    assert_content(f, "onetwoxxx");
}

static void test_segments_roll_and_are_trimmed(void **state)
{
    struct fixture *f = *state;
    struct answer a;
    segment_bytes = 4096;
    reopen(f);
    append(f, "p", 0, 77, "", &a);
    char line[1001];
    memset(line, 'a', 1000);
    line[1000] = 0;
    for (int i = 0; i < 50; i++)
        put(f, line);
    uint64_t disk = journal_disk_bytes(f->j);
    journal_trim(f->j, 25000);
    assert_true(journal_earliest(f->j) > 15000 && journal_earliest(f->j) <= 25000);
    assert_true(journal_disk_bytes(f->j) < disk);
    uint64_t earliest = journal_earliest(f->j);
    reopen(f);
    assert_int_equal(journal_earliest(f->j), earliest);
    assert_int_equal(journal_mark(f->j, bytes_str("p"), NULL), 77);
    assert_int_equal(journal_committed_end(f->j), 50000);
}

static void test_readers_follow(void **state)
{
    struct fixture *f = *state;
    struct journal_reader *r;
    struct journal_edges edges;
    segment_bytes = 4096;
    reopen(f);
    struct buf all = {0};
    for (int i = 0; i < 400; i++) {
        char line[64];
        snprintf(line, sizeof line, "line %d is here\n", i);
        buf_append_str(&all, line);
        put(f, line);
    }
    for (size_t max = 1; max < 100000; max = max * 3 + 1) {
        struct seen s = {0};
        assert_int_equal(journal_reader_open(f->j, 7, &r, &edges), JOURNAL_OK);
        do
            wait_read(f, r, max, &s);
        while (s.w.result == JOURNAL_OK);
        assert_int_equal(s.w.result, JOURNAL_END);
        assert_int_equal(s.data.len, all.len - 7);
        assert_memory_equal(s.data.ptr, all.ptr + 7, s.data.len);
        journal_reader_close(&r);
        buf_free(&s.data);
    }
    assert_int_equal(journal_reader_open(f->j, all.len + 1, &r, &edges), JOURNAL_BEYOND);
    buf_free(&all);
}

static void test_retention_by_age_bytes_and_cursor(void **state)
{
    struct fixture *f = *state;
    segment_bytes = 4096;
    reopen(f);
    fill_segments(f, 40, 1000);
    struct journal_retention keep = {.max_age = 100, .hold = UINT64_MAX};
    journal_retain(f->j, &keep, 1100);
    assert_int_equal(journal_earliest(f->j), 0);
    journal_retain(f->j, &keep, 1120);
    uint64_t aged = journal_earliest(f->j);
    assert_true(aged > 10000 && aged <= 20000);
    keep = (struct journal_retention){.min_bytes = 1, .hold = 25500};
    journal_retain(f->j, &keep, 1);
    assert_true(journal_earliest(f->j) > aged && journal_earliest(f->j) <= 25500);
    settle(f);
    uint64_t earliest = journal_earliest(f->j);
    reopen(f);
    assert_int_equal(journal_earliest(f->j), earliest);
}

static void test_a_reader_holds_its_segment(void **state)
{
    struct fixture *f = *state;
    struct journal_reader *r;
    struct journal_edges edges;
    struct seen s = {0};
    segment_bytes = 4096;
    reopen(f);
    fill_segments(f, 40, 1);
    assert_int_equal(journal_reader_open(f->j, 500, &r, &edges), JOURNAL_OK);
    char *path = mem_strdup(f->j->segments[0]->path);
    journal_trim(f->j, 30000);
    settle(f);
    assert_int_equal(access(path, F_OK), 0);
    wait_read(f, r, 100, &s);
    assert_true(s.w.result == JOURNAL_OK && s.w.offset == 500 && s.w.data.len == 100);
    journal_reader_close(&r);
    settle(f);
    assert_int_not_equal(access(path, F_OK), 0);
    assert_int_equal(journal_reader_open(f->j, 500, &r, &edges), JOURNAL_GONE);
    assert_int_equal(edges.after, journal_earliest(f->j));
    buf_free(&s.data);
    free(path);
}

static struct io_ops unsynced;

static int no_sync(int fd)
{
    (void)fd;
    return 0;
}

static bool nothing(const struct journal_scanned *frame, void *arg)
{
    *(uint64_t *)arg = frame->offset + frame->payload.len;
    return true;
}

/* Heap in use after a journal of so many small segments was opened, read to its end and scanned. */
static size_t heap_at(struct fixture *f, size_t segments)
{
    struct journal_edges edges;
    uint64_t end = 0;
    while (f->j->n_segments < segments)
        fill_segments(f, 1, 1);
    journal_set_free(&f->set);
    malloc_trim(0);
    size_t before = mallinfo2().uordblks;
    assert_int_equal(try_open(f), JOURNAL_OK);
    struct journal_reader *r;
    struct seen s = {0};
    assert_int_equal(journal_reader_open(f->j, 0, &r, &edges), JOURNAL_OK);
    for (s.w.result = JOURNAL_OK; s.w.result == JOURNAL_OK; s.data.len = 0)
        wait_read(f, r, 5000, &s);
    assert_int_equal(s.w.result, JOURNAL_END);
    buf_free(&s.data);
    assert_int_equal(journal_scan(f->j, 0, nothing, &end), JOURNAL_OK);
    assert_int_equal(end, journal_committed_end(f->j));
    size_t used = mallinfo2().uordblks - before;
    journal_reader_close(&r);
    return used;
}

#define MOST_A_SEGMENT                                                                                       \
    256 /* a segment costs its name and bounds: 4 MB for a tebibyte in segments of 64 MiB */

static void test_memory_does_not_grow_with_the_journal(void **state)
{
    struct fixture *f = *state;
    unsynced = io_system;
    unsynced.fsync = unsynced.fdatasync = no_sync;
    io = &unsynced;
    sync_ms = JOURNAL_SYNC_NEVER;
    segment_bytes = 1000;
    reopen(f);
    size_t few = heap_at(f, 100), many = heap_at(f, 4000);
    print_message("%zu bytes of heap with 100 segments, %zu with 4,000\n", few, many);
    assert_true(journal_disk_bytes(f->j) > 4000 * 1000);
    assert_true(many <= few + 3900 * MOST_A_SEGMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_appends_are_kept),
        T(test_segments_roll_and_are_trimmed),
        T(test_readers_follow),
        T(test_retention_by_age_bytes_and_cursor),
        T(test_a_reader_holds_its_segment),
        T(test_memory_does_not_grow_with_the_journal),
    };
    log_init("test", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
