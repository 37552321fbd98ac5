/* When a commit begins under a policy that syncs: small appends gather until the owner polls, large ones start a
 * commit. */
#include "support/journal_fixture.h"

#include <errno.h>
#include <sched.h>
#include <semaphore.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static struct io_ops watching;
static unsigned writes, syncs; /* begun; while `watched` */
static bool syncs_wait;
static sem_t may_sync;

static ssize_t watching_pwrite(int fd, const void *p, size_t n, off_t at)
{
    __atomic_add_fetch(&writes, 1, __ATOMIC_SEQ_CST);
    return pwrite(fd, p, n, at);
}

static int watching_fdatasync(int fd)
{
    bool waits = __atomic_load_n(&syncs_wait, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(&syncs, 1, __ATOMIC_SEQ_CST);
    if (waits)
        sem_wait(&may_sync);
    return fdatasync(fd);
}

static void count_call(void *arg)
{
    __atomic_add_fetch((unsigned *)arg, 1, __ATOMIC_SEQ_CST);
}

static unsigned so_far(const unsigned *count)
{
    return __atomic_load_n(count, __ATOMIC_SEQ_CST);
}

/* The first commit writes zeros ahead, so that the next ones do not. The committers are idle. */
static void watch(struct fixture *f)
{
    sync_ms = 0;
    reopen(f);
    put(f, "1");
    settle_committers(f);
    writes = syncs = 0;
    syncs_wait = false;
    sem_init(&may_sync, 0, 0);
    watching = io_system;
    watching.pwrite = watching_pwrite;
    watching.fdatasync = watching_fdatasync;
    io = &watching;
}

static void wait_for(const unsigned *count, unsigned n)
{
    usec_t end = 0;
    while (so_far(count) < n) {
        assert_true(is_early(&end));
        sched_yield();
    }
}

static void wait_for_syncs(unsigned n)
{
    wait_for(&syncs, n);
}

static void poll_until(struct fixture *f, const struct answer *a)
{
    usec_t end = 0;
    while (!a->calls) {
        assert_true(is_early(&end));
        journal_set_poll(f->set);
        sched_yield();
    }
    assert_int_equal(a->commit.result, JOURNAL_OK);
}

/* The appends of one turn of the loop cost one notification and are one commit. */
static void test_a_turns_appends_are_one_commit(void **state)
{
    struct fixture *f = *state;
    struct answer a[10];
    unsigned calls = 0;
    watch(f);
    f->set->config.notify = count_call;
    f->set->config.notify_arg = &calls;
    for (size_t i = 0; i < 10; i++)
        assert_int_equal(append(f, "", 0, 0, "2", &a[i]), JOURNAL_OK);
    assert_int_equal(calls, 1);
    assert_int_equal(so_far(&writes), 0);
    poll_until(f, &a[9]);
    assert_int_equal(syncs, 1);
    assert_int_equal(writes, 1);
    for (size_t i = 0; i < 10; i++)
        assert_int_equal(a[i].calls, 1);
    assert_content(f, "12222222222");
}

static struct fixture *appends;
static struct answer next;

static void append_next(const struct journal_commit *c, void *arg)
{
    on_commit(c, arg);
    assert_int_equal(append(appends, "", 0, 0, "3", &next), JOURNAL_OK);
}

/* A poll starts the commit of what its callbacks append, without another notification. */
static void test_appends_in_a_callback_need_no_other_poll(void **state)
{
    struct fixture *f = appends = *state;
    struct answer a = {0};
    unsigned calls = 0;
    struct bytes piece = bytes_str("2");
    watch(f);
    /* Or the first poll could deliver the commit that it started. */
    __atomic_store_n(&syncs_wait, true, __ATOMIC_SEQ_CST);
    assert_int_equal(journal_append(f->j, &(struct journal_append){.pieces = &piece, .n_pieces = 1}, 1000,
                         append_next, &a, NULL),
        JOURNAL_OK);
    journal_set_poll(f->set);
    wait_for_syncs(1);
    __atomic_store_n(&syncs_wait, false, __ATOMIC_SEQ_CST);
    sem_post(&may_sync);
    settle_committers(f);
    f->set->config.notify = count_call;
    f->set->config.notify_arg = &calls;
    journal_set_poll(f->set);
    assert_int_equal(a.calls, 1);
    wait_for_syncs(2); /* without another poll */
    settle_committers(f);
    assert_int_equal(so_far(&calls), 1); /* for the commit */
    poll_until(f, &next);
    assert_content(f, "123");
}

static void test_large_appends_start_a_commit_at_once(void **state)
{
    struct fixture *f = *state;
    struct answer a, b;
    watch(f);
    journal_gather_max = 200;
    assert_int_equal(append(f, "", 0, 0, "2", &a), JOURNAL_OK);
    char line[301];
    memset(line, 'x', 300);
    line[300] = 0;
    assert_int_equal(append(f, "", 0, 0, line, &b), JOURNAL_OK);
    wait_for_syncs(1); /* without a poll */
    poll_until(f, &b);
    assert_int_equal(a.calls, 1);
}

/* No thread is woken: the committer that syncs goes on with the new appends. */
static void test_appends_during_a_sync_are_the_next_commit(void **state)
{
    struct fixture *f = *state;
    struct answer a, b, c;
    watch(f);
    __atomic_store_n(&syncs_wait, true, __ATOMIC_SEQ_CST);
    assert_int_equal(append(f, "", 0, 0, "2", &a), JOURNAL_OK);
    journal_set_poll(f->set);
    wait_for_syncs(1);
    assert_int_equal(append(f, "", 0, 0, "3", &b), JOURNAL_OK);
    journal_set_poll(f->set);
    assert_int_equal(append(f, "", 0, 0, "4", &c), JOURNAL_OK);
    journal_set_poll(f->set);
    assert_int_equal(so_far(&writes), 1);
    assert_true(a.calls == 0 && b.calls == 0);
    __atomic_store_n(&syncs_wait, false, __ATOMIC_SEQ_CST);
    sem_post(&may_sync);
    wait_for_syncs(2);
    poll_until(f, &c);
    assert_true(a.calls == 1 && b.calls == 1 && syncs == 2 && writes == 2);
    assert_content(f, "1234");
}

/* Enough bytes are written during the sync, so that the next sync can begin at once. */
static void test_large_appends_are_written_during_a_sync(void **state)
{
    struct fixture *f = *state;
    struct answer a, b;
    watch(f);
    __atomic_store_n(&syncs_wait, true, __ATOMIC_SEQ_CST);
    assert_int_equal(append(f, "", 0, 0, "2", &a), JOURNAL_OK);
    journal_set_poll(f->set);
    wait_for_syncs(1);
    journal_gather_max = 1;
    assert_int_equal(append(f, "", 0, 0, "3", &b), JOURNAL_OK);
    wait_for(&writes, 2);
    assert_int_equal(so_far(&syncs), 1);
    __atomic_store_n(&syncs_wait, false, __ATOMIC_SEQ_CST);
    sem_post(&may_sync);
    poll_until(f, &b);
    assert_content(f, "123");
}

/* Appends three frames while "-" is being synced. */
static void fill_a_batch(struct fixture *f, struct answer a[3])
{
    static struct answer before;
    static const char *const text[] = {"2", "3", "4"};
    watch(f);
    __atomic_store_n(&syncs_wait, true, __ATOMIC_SEQ_CST);
    assert_int_equal(append(f, "", 0, 0, "-", &before), JOURNAL_OK);
    journal_set_poll(f->set);
    wait_for_syncs(1);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(append(f, "p", i, i + 1, text[i], &a[i]), JOURNAL_OK);
    journal_set_poll(f->set);
}

static size_t kept_batches(const struct fixture *f)
{
    size_t n = 0;
    for (const struct batch *b = f->set->pool; b; b = b->next)
        n++;
    return n;
}

#define POOLED_MAX ((size_t)8 << 20)

/* The batch under sync and the one that gathers keep their memory for later ones. */
static void test_batches_use_their_memory_again(void **state)
{
    struct fixture *f = *state;
    struct answer a[3];
    fill_a_batch(f, a);
    assert_int_equal(kept_batches(f), 0);
    __atomic_store_n(&syncs_wait, false, __ATOMIC_SEQ_CST);
    sem_post(&may_sync);
    journal_set_flush(f->set);
    assert_int_equal(kept_batches(f), 2);
    put(f, "5");
    assert_int_equal(kept_batches(f), 2);
    char *large = mem_zalloc(POOLED_MAX + 1);
    memset(large, 'x', POOLED_MAX);
    put(f, large);
    free(large);
    assert_int_equal(kept_batches(f), 1); /* a large one is freed */
    assert_in_range(f->set->pool_bytes, 1, POOLED_MAX);
}

/* With an interval between syncs, all appends of the interval are one commit. */
static void test_a_sync_interval_is_one_commit(void **state)
{
    static const char *const text[] = {"1", "2", "3"};
    struct fixture *f = *state;
    struct answer a[3];
    sync_ms = 1;
    reopen(f);
    set_lock(f->set); /* keeps the committers from taking the batch */
    f->set->not_before = INT64_MAX / 2;
    set_unlock(f->set);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(append(f, "p", i, i + 1, text[i], &a[i]), JOURNAL_OK);
    set_lock(f->set);
    assert_true(f->j->pending && f->j->pending->count == 3);
    set_unlock(f->set);
    journal_set_flush(f->set);
    assert_content(f, "123");
}

static ssize_t no_room(int fd, const void *p, size_t n, off_t at)
{
    (void)fd, (void)p, (void)n, (void)at;
    errno = ENOSPC;
    return -1;
}

/* Appends behind a refused one relied on its offsets and marks. */
static void test_appends_behind_a_refused_batch_are_refused(void **state)
{
    struct fixture *f = *state;
    struct answer a[3], again;
    fill_a_batch(f, a);
    set_lock(f->set);
    assert_true(f->j->pending && f->j->pending->count == 3);
    set_unlock(f->set);
    watching.pwrite = no_room;
    __atomic_store_n(&syncs_wait, false, __ATOMIC_SEQ_CST);
    sem_post(&may_sync);
    journal_set_flush(f->set);
    for (unsigned i = 0; i < 3; i++)
        assert_true(a[i].calls == 1 && a[i].commit.result == JOURNAL_NO_SPACE);
    watching.pwrite = watching_pwrite;
    assert_int_equal(append(f, "p", 0, 1, "2", &again), JOURNAL_OK);
    journal_set_flush(f->set);
    assert_int_equal(again.commit.result, JOURNAL_OK);
    assert_int_equal(journal_mark(f->j, bytes_str("p"), NULL), 1);
    assert_content(f, "1-2");
}

#define REFUSED "refused!" /* long enough to be in no random id and no checksum */

static ssize_t no_refused(int fd, const void *p, size_t n, off_t at)
{
    if (!memmem(p, n, REFUSED, strlen(REFUSED)))
        return watching_pwrite(fd, p, n, at);
    errno = EIO;
    return -1;
}

/* A commit is written, and the next one begins a segment, before both fail. The segment's start is past the committed end, so
 * it is no hole for the readers that wait there: after a restart the bytes before it are served. */
static void test_a_segment_behind_a_refused_batch_is_not_read(void **state)
{
    struct fixture *f = *state;
    struct answer first, a, b = {0};
    struct journal_reader *reader;
    struct seen seen = {0};
    struct bytes piece = bytes_str(REFUSED);
    watch(f);
    watching.pwrite = no_refused;
    __atomic_store_n(&syncs_wait, true, __ATOMIC_SEQ_CST);
    assert_int_equal(append(f, "", 0, 0, "2", &first), JOURNAL_OK);
    journal_set_poll(f->set);
    wait_for_syncs(1);
    journal_gather_max = 1;
    assert_int_equal(append(f, "", 0, 0, "3", &a), JOURNAL_OK);
    wait_for(&writes, 2);
    struct journal_append begins = {.pieces = &piece, .n_pieces = 1, .begins_segment = true};
    assert_int_equal(journal_append(f->j, &begins, 1000, on_commit, &b, NULL), JOURNAL_OK);
    usec_t end = 0;
    for (bool taken = false; !taken;) {
        assert_true(is_early(&end));
        set_lock(f->set);
        taken = !f->j->pending;
        set_unlock(f->set);
    }
    __atomic_store_n(&syncs_wait, false, __ATOMIC_SEQ_CST);
    sem_post(&may_sync);
    journal_set_flush(f->set);
    assert_int_equal(first.commit.result, JOURNAL_OK);
    assert_true(a.commit.result == JOURNAL_LATCHED && b.commit.result == JOURNAL_LATCHED);
    assert_int_equal(journal_committed_end(f->j), 2);
    assert_int_equal(journal_reader_open(f->j, 2, &reader, NULL), JOURNAL_OK);
    wait_read(f, reader, 10, &seen);
    assert_int_equal(seen.w.result, JOURNAL_END);
    journal_reader_close(&reader);
    journal_retain(f->j, &(struct journal_retention){.min_bytes = 1, .hold = UINT64_MAX}, 1);
    assert_int_equal(journal_earliest(f->j), 0);
    io = &io_system;
    reopen(f);
    assert_content(f, "123");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_a_turns_appends_are_one_commit),
        T(test_appends_in_a_callback_need_no_other_poll),
        T(test_large_appends_start_a_commit_at_once),
        T(test_appends_during_a_sync_are_the_next_commit),
        T(test_large_appends_are_written_during_a_sync),
        T(test_batches_use_their_memory_again),
        T(test_a_sync_interval_is_one_commit),
        T(test_appends_behind_a_refused_batch_are_refused),
        T(test_a_segment_behind_a_refused_batch_is_not_read),
    };
    log_init("test", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
