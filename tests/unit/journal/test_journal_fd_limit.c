/* A shortage of descriptors or memory says nothing about the storage: reads wait, nothing latches, nothing counts as
 * damaged. */
#include "support/journal_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static struct io_ops lacking;
static int lack_errno;
static int open_lacks, read_lacks, create_lacks; /* as many, still; -1: all */
static int opens;                                /* tried */

static bool lacks(int *left)
{
    int now = __atomic_load_n(left, __ATOMIC_SEQ_CST);
    if (now == 0)
        return false;
    if (now > 0)
        __atomic_sub_fetch(left, 1, __ATOMIC_SEQ_CST);
    errno = lack_errno;
    return true;
}

static int lacking_open(const char *path, int flags, mode_t mode)
{
    __atomic_add_fetch(&opens, 1, __ATOMIC_SEQ_CST);
    bool creates = (flags & O_CREAT) || (flags & O_ACCMODE) == O_RDWR;
    return lacks(creates ? &create_lacks : &open_lacks) ? -1 : open(path, flags, mode);
}

static ssize_t lacking_pread(int fd, void *p, size_t n, off_t at)
{
    return lacks(&read_lacks) ? -1 : pread(fd, p, n, at);
}

static void begin_lack(int system)
{
    lacking = io_system;
    lacking.open = lacking_open;
    lacking.pread = lacking_pread;
    lack_errno = system;
    open_lacks = read_lacks = create_lacks = 0;
    journal_retry_pause = USEC_PER_MSEC;
    io = &lacking;
}

static void set_lack(int *which, int n)
{
    __atomic_store_n(which, n, __ATOMIC_SEQ_CST);
}

static void wait_until(struct fixture *f, const int *calls, int n)
{
    while (*calls < n)
        set_wait(f->set);
}

static void test_a_read_waits_and_goes_on(void **state)
{
    static const int all[] = {EMFILE, ENFILE, ENOMEM, EINTR};
    struct fixture *f = *state;
    segment_bytes = 4096;
    reopen(f);
    fill_segments(f, 12, 1);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct journal_reader *r;
        struct seen s = {0};
        begin_lack(all[i]);
        assert_int_equal(journal_reader_open(f->j, 500, &r, NULL), JOURNAL_OK);
        do {
            set_lack(&open_lacks, 3);
            set_lack(&read_lacks, 3);
            wait_read(f, r, 700, &s);
        } while (s.w.result == JOURNAL_OK);
        assert_int_equal(s.w.result, JOURNAL_END);
        assert_int_equal(s.data.len, 11500);
        assert_null(journal_failure(f->j));
        journal_reader_close(&r);
        buf_free(&s.data);
    }
    put(f, "goes on");
}

/* A reader may be closed while it waits, and retries keep their pause. */
static void test_a_waiting_reader_is_served_or_closed(void **state)
{
    struct fixture *f = *state;
    struct journal_reader *waiting, *closed;
    struct seen never = {0}, late = {0};
    fill_segments(f, 50, 1);
    begin_lack(EMFILE);
    journal_retry_pause = 50 * USEC_PER_MSEC;
    set_lack(&open_lacks, -1);
    opens = 0;
    usec_t began = clock_monotonic();
    assert_int_equal(journal_reader_open(f->j, 0, &waiting, NULL), JOURNAL_OK);
    assert_int_equal(journal_reader_open(f->j, 0, &closed, NULL), JOURNAL_OK);
    journal_reader_read(waiting, 100, on_window, &late);
    journal_reader_read(closed, 100, on_window, &never);
    while (__atomic_load_n(&opens, __ATOMIC_SEQ_CST) < 10)
        set_wait(f->set);
    assert_true(late.calls == 0 && never.calls == 0 && f->j->jobs == 2);
    assert_true(opens <= 2 * (2 + (clock_monotonic() - began) / journal_retry_pause)); /* not all the time */
    fill_segments(f, 1, 1);                                                            /* commits go on */
    journal_reader_close(&closed);
    while (f->j->jobs > 1)
        set_wait(f->set);
    set_lack(&open_lacks, 0);
    wait_until(f, &late.calls, 1);
    assert_true(late.w.result == JOURNAL_OK && late.data.len == 100 && never.calls == 0);
    assert_null(journal_failure(f->j));
    journal_reader_close(&waiting);
    buf_free(&late.data);
}

#define READERS 60
#define DESCRIPTORS 4096
static bool is_counted[DESCRIPTORS];
static _Atomic int n_open;
static int most_open, open_limit;

/* Counts files open for reading, and refuses more than the limit. */
static int counting_open(const char *path, int flags, mode_t mode)
{
    bool is_read = (flags & O_ACCMODE) == O_RDONLY && !(flags & O_DIRECTORY);
    if (is_read && n_open >= open_limit) {
        errno = EMFILE;
        return -1;
    }
    int fd = open(path, flags, mode);
    assert_true(fd < DESCRIPTORS);
    if (fd < 0 || !is_read)
        return fd;
    is_counted[fd] = true;
    n_open++;
    most_open = n_open > most_open ? n_open : most_open;
    return fd;
}

static int counting_close(int fd)
{
    n_open -= is_counted[fd];
    is_counted[fd] = false;
    return close(fd);
}

static void begin_counting(int limit)
{
    lacking = io_system;
    lacking.open = counting_open;
    lacking.close = counting_close;
    n_open = most_open = 0;
    open_limit = limit;
    io = &lacking;
}

/* Readers in many segments take turns, so that each read needs another segment. */
static void read_crosswise(struct fixture *f, uint64_t end)
{
    struct journal_reader *r[READERS];
    struct seen s[READERS] = {0};
    for (uint64_t i = 0; i < READERS; i++)
        assert_int_equal(journal_reader_open(f->j, end / READERS * i, &r[i], NULL), JOURNAL_OK);
    for (int round = 0; round < 20; round++)
        for (int i = 0; i < READERS; i++) {
            wait_read(f, r[i], 150, &s[i]);
            assert_int_equal(s[i].w.result, JOURNAL_OK);
        }
    for (uint64_t i = 0; i < READERS; i++) {
        assert_true(s[i].data.len > 1000);
        assert_pattern(end / READERS * i, buf_bytes(&s[i].data));
        journal_reader_close(&r[i]);
        buf_free(&s[i].data);
    }
}

/* Any number of readers, down to a limit of one descriptor. */
static void test_readers_share_descriptors(void **state)
{
    static const int limits[] = {1, 3, DESCRIPTORS};
    struct fixture *f = *state;
    segment_bytes = 4096;
    sync_ms = JOURNAL_SYNC_NEVER; /* then no other thread opens files */
    journal_retry_pause = USEC_PER_MSEC;
    reopen(f);
    for (int i = 0; i < 90; i++) {
        struct answer a = {0};
        append_pattern(f, 1000, on_commit, &a);
        journal_set_flush(f->set);
    }
    assert_true(f->j->n_segments > 2 * FD_CACHE_MAX);
    settle_committers(f);
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        begin_counting(limits[i]);
        read_crosswise(f, 80000);
        int most = limits[i] < FD_CACHE_MAX ? limits[i] : FD_CACHE_MAX;
        assert_int_equal(most_open, most);
        assert_null(journal_failure(f->j));
        for (size_t k = 0; k < f->j->n_segments; k++)
            fd_cache_drop(&f->set->files, f->j->segments[k]);
        assert_int_equal(n_open, 0);
    }
}

/* An open descriptor would keep the space of a removed file. */
static void test_trimmed_files_are_not_kept_open(void **state)
{
    struct fixture *f = *state;
    segment_bytes = 4096;
    sync_ms = JOURNAL_SYNC_NEVER;
    reopen(f);
    fill_segments(f, 90, 1);
    settle_committers(f);
    begin_counting(DESCRIPTORS);
    for (uint64_t at = 0; at < 90000; at += 9000) {
        struct journal_reader *r;
        struct seen s = {0};
        assert_int_equal(journal_reader_open(f->j, at, &r, NULL), JOURNAL_OK);
        wait_read(f, r, 100, &s);
        journal_reader_close(&r);
        buf_free(&s.data);
    }
    assert_int_equal(n_open, FD_CACHE_MAX);
    journal_trim(f->j, journal_committed_end(f->j));
    settle(f);
    assert_int_equal(f->j->n_segments, 1);
    assert_true(n_open <= 1);
}

static void test_a_seek_waits(void **state)
{
    struct fixture *f = *state;
    uint64_t offset;
    fill_segments(f, 20, 5000);
    begin_lack(ENFILE);
    set_lack(&open_lacks, 4);
    set_lack(&read_lacks, 1);
    assert_int_equal(seek_time(f, 5007, &offset), JOURNAL_OK);
    assert_int_equal(offset, 7000);
    assert_null(journal_failure(f->j));
}

static void test_a_scrub_calls_nothing_damaged(void **state)
{
    struct fixture *f = *state;
    usec_t now = USEC_PER_SEC;
    segment_bytes = 4096;
    journal_scrub_interval = 0;
    reopen(f);
    fill_segments(f, 40, 1);
    begin_lack(EMFILE);
    for (int i = 0; journal_set_scrubbed(f->set).passes < 3; i++) {
        set_lack(&open_lacks, i % 3 == 1);
        set_lack(&read_lacks, i % 3 == 2);
        now += USEC_PER_SEC / 10;
        journal_set_scrub(f->set, 100000, now);
        settle(f);
    }
    struct journal_scrubbed done = journal_set_scrubbed(f->set);
    assert_int_equal(done.damaged, 0);
    assert_int_equal(done.segments, 3 * (f->j->n_segments - 1));
    assert_null(done.damage);
}

/* A read error of the disk is reported by file, and the read ends there. */
static void test_a_read_error_is_reported(void **state)
{
    struct fixture *f = *state;
    struct journal_reader *r;
    struct seen s = {0};
    fill_segments(f, 5, 1);
    begin_lack(EIO);
    set_lack(&read_lacks, 1);
    assert_int_equal(journal_reader_open(f->j, 0, &r, NULL), JOURNAL_OK);
    wait_read(f, r, 100, &s);
    assert_int_equal(s.w.result, JOURNAL_IO);
    assert_non_null(strstr(journal_failure(f->j), f->j->segments[0]->path));
    journal_reader_close(&r);
}

/* Without a descriptor for the next segment the current one grows; directory syncs and trims need none. */
static void test_commits_and_trims_need_no_descriptor(void **state)
{
    static const int64_t policies[] = {0, JOURNAL_SYNC_NEVER};
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++) {
        io = &io_system;
        sync_ms = policies[i];
        segment_bytes = 4096;
        reopen(f);
        fill_segments(f, 20, 1);
        size_t n = f->j->n_segments;
        begin_lack(EMFILE);
        set_lack(&create_lacks, -1);
        set_lack(&open_lacks, -1);
        fill_segments(f, 20, 1);
        assert_int_equal(f->j->n_segments, n);
        assert_null(journal_failure(f->j));
        uint64_t end = journal_committed_end(f->j);
        journal_trim(f->j, end - 25000);
        settle(f);
        assert_false(f->j->unlink_failed);
        set_lack(&create_lacks, 0);
        set_lack(&open_lacks, 0);
        fill_segments(f, 20, 1);
        assert_true(f->j->segments[f->j->n_segments - 1]->sequence > n + 1);
        open_killed_copy(f);
        assert_int_equal(journal_committed_end(f->j), end + 20000);
        assert_int_equal(journal_cut_bytes(f->j), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_a_read_waits_and_goes_on),
        T(test_a_waiting_reader_is_served_or_closed),
        T(test_readers_share_descriptors),
        T(test_trimmed_files_are_not_kept_open),
        T(test_a_seek_waits),
        T(test_a_scrub_calls_nothing_damaged),
        T(test_a_read_error_is_reported),
        T(test_commits_and_trims_need_no_descriptor),
    };
    log_init("test", LOG_LEVEL_ERROR + 1, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
