/* Erasures: the old bytes are in no file, all other bytes stay, and readers go on. test_journal_model and
 * test_journal_crash erase at random, with faults. */
#include "support/journal_fixture.h"
#include "support/shell.h"

#include "journal/journal_erase.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

struct ended {
    int calls;
    enum journal_result r;
    char error[JOURNAL_ERROR_TEXT];
};

static void on_erased(enum journal_result r, const char *error, void *arg)
{
    struct ended *e = arg;
    e->calls++;
    e->r = r;
    snprintf(e->error, sizeof e->error, "%s", error);
}

static bool replace(char *payload, size_t len, size_t from, size_t to, bool is_part)
{
    (void)is_part;
    assert_true(from < to && to <= len);
    memset(payload + from, '-', to - from);
    return true;
}

static bool replace_not(char *payload, size_t len, size_t from, size_t to, bool is_part)
{
    (void)is_part;
    memset(payload, '?', len);
    (void)from;
    (void)to;
    return false;
}

static enum journal_result erase(
    struct fixture *f, const struct journal_range *ranges, size_t n, char error[JOURNAL_ERROR_TEXT])
{
    struct ended e = {0};
    struct journal_erasure what = {ranges, n, replace};
    assert_int_equal(journal_erase(f->j, &what, on_erased, &e), JOURNAL_OK);
    while (!e.calls)
        set_wait(f->set);
    assert_int_equal(e.calls, 1);
    if (error)
        snprintf(error, JOURNAL_ERROR_TEXT, "%s", e.error);
    return e.r;
}

static void erase_ok(struct fixture *f, uint64_t offset, uint64_t end)
{
    assert_int_equal(erase(f, &(struct journal_range){offset, end}, 1, NULL), JOURNAL_OK);
}

static bool is_in_a_file(struct fixture *f, const char *text)
{
    char command[256];
    snprintf(command, sizeof command, "grep -rqaF -- '%s' %s", text, f->dir);
    int status = system(command);
    assert_true(status == 0 || status == 256);
    return status == 0;
}

static void test_bytes_in_any_segment_are_replaced(void **state)
{
    struct fixture *f = *state;
    struct answer a;
    segment_bytes = 400;
    reopen(f);
    for (int i = 0; i < 40; i++)
        assert_int_equal(
            append(f, "p", (uint64_t)i, (uint64_t)i + 1, i % 4 ? "other " : "secret", &a), JOURNAL_OK);
    journal_set_flush(f->set);
    struct journal_range ranges[10];
    for (uint64_t i = 0; i < 10; i++)
        ranges[i] = (struct journal_range){i * 24, i * 24 + 6};
    assert_int_equal(erase(f, ranges, 10, NULL), JOURNAL_OK);
    char expected[241] = "";
    for (int i = 0; i < 40; i++)
        strcat(expected, i % 4 ? "other " : "------");
    for (int i = 0; i < 3; i++, open_killed_copy(f)) {
        assert_content(f, expected);
        assert_false(is_in_a_file(f, "secret"));
        assert_int_equal(journal_mark(f->j, BYTES_LITERAL("p"), NULL), 40);
        assert_int_equal(journal_committed_end(f->j), 240);
    }
    assert_int_equal(put(f, "more").commit.start, 240);
}

/* Only the segments with ranges are written, and of these only the frames with ranges change. */
static void test_nothing_else_changes(void **state)
{
    struct fixture *f = *state;
    segment_bytes = 4096;
    reopen(f);
    fill_segments(f, 20, 1);
    struct stat before[5], after;
    assert_true(f->j->n_segments >= 5);
    char *paths[5];
    for (int i = 0; i < 5; i++) {
        paths[i] = mem_strdup(f->j->segments[i]->path);
        assert_int_equal(stat(paths[i], &before[i]), 0);
        shell("cp %s %s.before-%d", paths[i], f->dir, i);
    }
    uint64_t base = f->j->segments[2]->base;
    erase_ok(f, base, base + 1000); /* its first frame: the next may be in the next segment */
    for (int i = 0; i < 5; i++) {
        assert_int_equal(stat(paths[i], &after), 0);
        if (i != 2) {
            assert_int_equal(after.st_ino, before[i].st_ino);
            assert_memory_equal(&after.st_mtim, &before[i].st_mtim, sizeof after.st_mtim);
        }
    }
    struct buf old = {0}, new = {0};
    char kept[128];
    snprintf(kept, sizeof kept, "%s.before-2", f->dir);
    assert_int_equal(io_read_file(kept, SIZE_MAX, &old), 0);
    assert_int_equal(io_read_file(paths[2], SIZE_MAX, &new), 0);
    size_t differ = 0, end = new.len - FRAME_HEADER; /* the file is cut after the zeros behind its frames */
    assert_true(end <= old.len);
    for (size_t i = 0; i < end; i++)
        differ += old.ptr[i] != new.ptr[i];
    assert_in_range(differ, 1000, 1000 + 8); /* the payload, and the checksum of its frame */
    for (int i = 0; i < 5; i++) {
        shell("rm %s.before-%d", f->dir, i);
        free(paths[i]);
    }
    buf_free(&old);
    buf_free(&new);
}

/* Old bytes behind the frames of recycled files, and in the spare file. */
static void test_what_recycled_files_have_left(void **state)
{
    struct fixture *f = *state;
    segment_bytes = 3000;
    reopen(f);
    use_files_again(f);
    assert_int_equal(f->j->prealloc.state, PREALLOC_READY);
    assert_true(is_in_a_file(f, "aaaaaaaaaa"));
    uint64_t end = journal_committed_end(f->j);
    journal_trim(f->j, end);
    erase_ok(f, journal_earliest(f->j), end);
    settle(f);
    assert_false(is_in_a_file(f, "aaaaaaaaaa"));
    open_killed_copy(f);
    assert_int_equal(journal_committed_end(f->j), end);
    assert_int_equal(journal_earliest(f->j) <= end, 1);
    fill_and_trim(f);
    assert_int_equal(put(f, "more").commit.result, JOURNAL_OK);
}

/* Appends bytes that name the newest segment, and trims. */
static void put_named(struct fixture *f, size_t size)
{
    struct buf text = {0};
    while (text.len < size)
        buf_printf(&text, "named %u ", (unsigned)f->j->writer.sequence);
    text.ptr[size] = 0;
    put(f, text.ptr);
    buf_free(&text);
    journal_trim(f->j, journal_committed_end(f->j));
    settle(f);
}

/* True if a file has bytes of segments that are at least two before `newest`. */
static bool has_trimmed_bytes(struct fixture *f, uint64_t newest)
{
    bool has = false;
    for (unsigned i = 1; i + 1 < newest && !has; i++) {
        char name[32];
        snprintf(name, sizeof name, "named %u ", i);
        has = is_in_a_file(f, name);
    }
    return has;
}

/* Without ranges: the bytes of segments that were trimmed before, or are trimmed later. The end of a segment cuts its
 * file, unless the frames reach almost to the file's end. */
static void test_what_is_trimmed_leaves_nothing(void **state)
{
    struct fixture *f = *state;
    segment_bytes = 16000;
    reopen(f);
    for (int i = 0; i < 200 && !f->j->writer.recycled; i++) {
        settle_filler(f);
        put_named(f, 1000);
    }
    assert_true(f->j->writer.recycled);
    uint64_t newest = f->j->writer.sequence;
    put_named(f, segment_bytes - 200 - f->j->writer.position - FRAME_HEADER);
    assert_true(f->j->writer.sequence == newest && has_trimmed_bytes(f, newest));
    assert_int_equal(erase(f, NULL, 0, NULL), JOURNAL_OK);
    assert_false(has_trimmed_bytes(f, newest));
    put_named(f, segment_bytes);
    put(f, "the next secret");
    put_named(f, segment_bytes);
    assert_int_equal(erase(f, NULL, 0, NULL), JOURNAL_OK);
    assert_true(is_in_a_file(f, "the next secret"));
    put_named(f, 100);
    assert_false(is_in_a_file(f, "the next secret"));
}

/* A trimmed segment that a reader holds would come back after a crash. */
static void test_trimmed_segments_that_are_still_there(void **state)
{
    struct fixture *f = *state;
    struct journal_reader *r;
    segment_bytes = 100;
    reopen(f);
    put(f, "the secret of the first segment, which is long enough to end it, and a little longer than that.");
    put(f, "the second");
    assert_int_equal(journal_reader_open(f->j, 0, &r, NULL), JOURNAL_OK);
    journal_trim(f->j, 96);
    assert_int_equal(f->j->n_trimmed, 1);
    erase_ok(f, 4, 10);
    assert_false(is_in_a_file(f, "secret"));
    journal_reader_close(&r);
}

static void test_a_removal_is_awaited(void **state)
{
    struct fixture *f = *state;
    struct journal_reader *r;
    struct ended e = {0}, none = {0};
    segment_bytes = 100;
    reopen(f);
    put(f, "the secret of the first segment, which is long enough to end it, and a little longer than that.");
    put(f, "the second");
    journal_await_removal(f->j, on_erased, &none);
    while (!none.calls)
        set_wait(f->set);
    assert_int_equal(none.r, JOURNAL_OK);
    assert_int_equal(journal_reader_open(f->j, 0, &r, NULL), JOURNAL_OK);
    journal_trim(f->j, 96);
    journal_await_removal(f->j, on_erased, &e);
    for (usec_t end = clock_monotonic() + 3 * journal_retry_pause; !e.calls && clock_monotonic() < end;)
        set_wait(f->set);
    assert_int_equal(e.calls, 0);
    assert_true(is_in_a_file(f, "the secret"));
    journal_reader_close(&r);
    while (!e.calls)
        set_wait(f->set);
    assert_int_equal(e.r, JOURNAL_OK);
    assert_false(is_in_a_file(f, "the secret"));
}

static struct io_ops failing;

static int fail_unlink(const char *path)
{
    (void)path;
    errno = EIO;
    return -1;
}

static void test_a_removal_that_fails_or_is_closed(void **state)
{
    struct fixture *f = *state;
    struct journal_reader *r;
    struct ended failed = {0}, closed = {0};
    segment_bytes = 100;
    reopen(f);
    for (int i = 0; i < 3; i++)
        put(f, "a line that is long enough to end a segment, so that the next line begins another one, "
               "number 2");
    failing = io_system;
    failing.unlink = fail_unlink;
    io = &failing;
    journal_trim(f->j, 96);
    journal_await_removal(f->j, on_erased, &failed);
    while (!failed.calls)
        set_wait(f->set);
    io = &io_system;
    assert_int_equal(failed.r, JOURNAL_IO);
    assert_non_null(strstr(failed.error, "restart the daemon"));
    reopen(f);
    assert_int_equal(journal_reader_open(f->j, journal_earliest(f->j), &r, NULL), JOURNAL_OK);
    journal_trim(f->j, UINT64_MAX);
    assert_true(f->j->n_trimmed > 0);
    journal_await_removal(f->j, on_erased, &closed);
    journal_reader_close(&r);
    journal_close(&f->j);
    assert_int_equal(closed.calls, 1);
    assert_int_equal(closed.r, JOURNAL_CLOSED);
}

static int no_fallocate(int fd, int mode, off_t at, off_t length)
{
    (void)fd, (void)mode, (void)at, (void)length;
    errno = ENOSPC;
    return -1;
}

/* A newest segment that cannot be ended still has all bytes. */
static void test_no_room_for_another_segment(void **state)
{
    struct fixture *f = *state;
    struct answer a = {0};
    struct bytes line = BYTES_LITERAL("a line");
    struct journal_append append = {.pieces = &line, .n_pieces = 1, .reserve = 4096};
    settle_filler(f);
    assert_int_equal(journal_append(f->j, &append, 1, on_commit, &a, NULL), JOURNAL_OK);
    while (!a.calls)
        set_wait(f->set);
    failing = io_system;
    failing.fallocate = no_fallocate;
    io = &failing;
    assert_int_equal(erase(f, NULL, 0, NULL), JOURNAL_NO_SPACE);
    io = &io_system;
    assert_int_equal(erase(f, NULL, 0, NULL), JOURNAL_OK);
}

/* A reader inside a large frame, one with bytes read ahead, and one before it. */
static void test_readers_go_on(void **state)
{
    struct fixture *f = *state;
    struct seen s = {0};
    struct answer a = {0};
    struct journal_reader *r;
    enum { SMALL = 300, LARGE = 400000 };
    for (int i = 0; i < 50; i++)
        append_pattern(f, SMALL, on_commit, &a);
    append_pattern(f, LARGE, on_commit, &a);
    uint64_t end = journal_committed_end(f->j);
    for (uint64_t stop = 1; stop < end; stop += stop < 15000 ? 997 : 90001) {
        uint64_t from = stop < 15000 ? stop / 2 : stop + 50000, to = from + 20;
        if (to > end)
            break;
        assert_int_equal(journal_reader_open(f->j, 0, &r, NULL), JOURNAL_OK);
        while (s.data.len < stop)
            wait_read(f, r, 701, &s);
        size_t read = s.data.len;
        erase_ok(f, from, to);
        while (s.data.len < end) {
            wait_read(f, r, 701, &s);
            assert_int_equal(s.w.result, JOURNAL_OK);
        }
        for (size_t i = 0; i < end; i++) {
            unsigned char byte = (unsigned char)s.data.ptr[i];
            bool erased = i >= from && i < to;
            if (!(i >= read && erased ? byte == '-' : byte == i % 251 || byte == '-'))
                fail_msg(
                    "byte %zu, read up to %zu, erased %llu: %02x", i, read, (unsigned long long)from, byte);
        }
        journal_reader_close(&r);
        buf_clear(&s.data);
    }
    buf_free(&s.data);
}

static void keep_file(const struct journal_window *w, void *arg)
{
    struct journal_file **file = arg;
    *file = w->file ? journal_file_hold(w->file) : NULL;
    assert_int_equal(w->result, JOURNAL_OK);
}

static struct journal_file *read_file(struct fixture *f)
{
    struct journal_reader *r;
    struct buf memory = {0};
    struct journal_span_request how = {.max_bytes = 1000};
    struct journal_file *file = (struct journal_file *)f;
    assert_int_equal(journal_reader_open(f->j, 0, &r, NULL), JOURNAL_OK);
    journal_reader_spans(r, &how, &memory, keep_file, &file);
    while (file == (struct journal_file *)f)
        set_wait(f->set);
    journal_reader_close(&r);
    assert_non_null(file);
    return file;
}

static void test_files_given_out_are_old(void **state)
{
    struct fixture *f = *state;
    struct answer a = {0};
    struct stat old, new;
    append_pattern(f, 100000, on_commit, &a);
    struct journal_file *before = read_file(f);
    erase_ok(f, 1000, 2000);
    struct journal_file *after = read_file(f);
    assert_int_equal(fstat(journal_file_fd(before), &old), 0);
    assert_int_equal(fstat(journal_file_fd(after), &new), 0);
    assert_true(old.st_ino != new.st_ino);
    assert_int_equal(old.st_nlink, 0);
    journal_file_release(before);
    journal_file_release(after);
}

/* Bytes that may not be replaced: the segment stays as it is. */
static void test_a_refusal_changes_nothing(void **state)
{
    struct fixture *f = *state;
    struct ended e = {0};
    struct journal_range range = {2, 4};
    struct journal_erasure what = {&range, 1, replace_not};
    put(f, "a line");
    assert_int_equal(journal_erase(f->j, &what, on_erased, &e), JOURNAL_OK);
    assert_int_equal(journal_erase(f->j, &what, on_erased, &e), JOURNAL_BUSY);
    while (!e.calls)
        set_wait(f->set);
    assert_int_equal(e.r, JOURNAL_CONFLICT);
    assert_content(f, "a line");
    shell("test -z \"$(ls %s | grep new$)\"", f->dir);
    erase_ok(f, 2, 4);
    assert_content(f, "a --ne");
}

static void test_damage_is_named(void **state)
{
    struct fixture *f = *state;
    char error[JOURNAL_ERROR_TEXT];
    struct journal_range range = {0, 4};
    put(f, "a line");
    char *path = last_segment_path(f);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    flip(path, SEGMENT_HEADER + FRAME_HEADER + 20); /* in the open frame or the line */
    assert_int_equal(erase(f, &range, 1, error), JOURNAL_DAMAGED);
    assert_non_null(strstr(error, path));
    assert_non_null(strstr(error, "damaged at byte"));
    free(path);
}

static void test_a_close_ends_it(void **state)
{
    struct fixture *f = *state;
    struct ended e = {0};
    struct answer a = {0};
    struct journal_range range = {100, 5000000};
    struct journal_erasure what = {&range, 1, replace};
    append_pattern(f, 6000000, on_commit, &a);
    assert_int_equal(journal_erase(f->j, &what, on_erased, &e), JOURNAL_OK);
    for (int i = 0; i < 3; i++)
        journal_set_poll(f->set);
    journal_set_free(&f->set);
    assert_int_equal(e.calls, 1);
    shell("touch %s/0000000000000001.seg.new", f->dir);
    assert_int_equal(try_open(f), JOURNAL_OK);
    shell("test -z \"$(ls %s | grep new$)\"", f->dir);
    erase_ok(f, 100, 5000000);
}

/* A file of a backup is another name of the segment's file. */
static void test_a_hard_link_keeps_the_bytes(void **state)
{
    struct fixture *f = *state;
    put(f, "a secret");
    char *path = last_segment_path(f);
    shell("ln %s %s.linked", path, f->dir);
    erase_ok(f, 2, 8);
    assert_false(is_in_a_file(f, "secret"));
    shell("grep -qa 'a secret' %s.linked && rm %s.linked", f->dir, f->dir);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_bytes_in_any_segment_are_replaced),
        T(test_nothing_else_changes),
        T(test_what_recycled_files_have_left),
        T(test_what_is_trimmed_leaves_nothing),
        T(test_trimmed_segments_that_are_still_there),
        T(test_a_removal_is_awaited),
        T(test_a_removal_that_fails_or_is_closed),
        T(test_no_room_for_another_segment),
        T(test_readers_go_on),
        T(test_files_given_out_are_old),
        T(test_a_refusal_changes_nothing),
        T(test_damage_is_named),
        T(test_a_close_ends_it),
        T(test_a_hard_link_keeps_the_bytes),
    };
    log_init("test", LOG_LEVEL_ERROR + 1, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
