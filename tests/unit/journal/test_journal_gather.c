/* When a commit begins under a policy that syncs: small appends wait for what comes with them, large ones do not. What is
 * one batch, and who waits for it awake. */
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

/* Zeros ahead of the commits that follow are written before, and no committer looks for work without being called: none
 * waits awake. */
static void watch(struct fixture *f)
{
    sync_ms = 0;
    reopen(f);
    pthread_mutex_lock(&f->set->lock);
    f->set->awake = false;
    pthread_mutex_unlock(&f->set->lock);
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

static void wait_for_syncs(unsigned n)
{
    while (so_far(&syncs) < n)
        sched_yield();
}

static void poll_until(struct fixture *f, const struct answer *a)
{
    while (!a->calls) {
        journal_set_poll(f->set);
        sched_yield();
    }
    assert_int_equal(a->commit.result, JOURNAL_OK);
}

/* As many as come in a turn of the loop: its owner is told once that it is to poll, and they are one commit. */
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

/* Whoever appends when he hears of a commit is in a poll, which begins what he appended: he is told nothing. */
static void test_what_is_appended_in_a_poll_needs_no_other(void **state)
{
    struct fixture *f = appends = *state;
    struct answer a = {0};
    unsigned calls = 0;
    struct bytes piece = bytes_str("2");
    watch(f);
    /* Or the first poll might hear of the commit that it began. */
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
    wait_for_syncs(2); /* nobody polls again */
    settle_committers(f);
    assert_int_equal(so_far(&calls), 1); /* of its commit */
    poll_until(f, &next);
    assert_content(f, "123");
}

static void test_what_is_large_waits_for_nobody(void **state)
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
    wait_for_syncs(1); /* nobody polls */
    poll_until(f, &b);
    assert_int_equal(a.calls, 1);
}

/* Nobody is woken to write it; whoever syncs goes on with it, without being told. */
static void test_what_comes_during_a_sync_is_the_next_commit(void **state)
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

/* Enough of it is written meanwhile, so that the next sync can begin at once. */
static void test_what_is_large_is_written_during_a_sync(void **state)
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
    while (so_far(&writes) < 2)
        sched_yield();
    assert_int_equal(so_far(&syncs), 1);
    __atomic_store_n(&syncs_wait, false, __ATOMIC_SEQ_CST);
    sem_post(&may_sync);
    poll_until(f, &b);
    assert_content(f, "123");
}

/* While "-" is being synced. */
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

/* Fresh memory for each would cost more than what is copied there. */
static void test_memory_of_what_was_under_way_is_used_again(void **state)
{
    struct fixture *f = *state;
    static struct answer a[40];
    journal_batch_max = FRAME_HEADER;
    for (size_t i = 0; i < 40; i++)
        assert_int_equal(append(f, "", 0, 0, "1234567", &a[i]), JOURNAL_OK);
    journal_set_flush(f->set);
    assert_int_equal(kept_batches(f), 40);
    for (size_t i = 0; i < 40; i++)
        assert_int_equal(append(f, "", 0, 0, "1234567", &a[i]), JOURNAL_OK);
    assert_int_equal(kept_batches(f), 0);
    journal_set_flush(f->set);
    assert_int_equal(kept_batches(f), 40);
    char *large = mem_zalloc(POOLED_MAX / 4 + 1);
    memset(large, 'x', POOLED_MAX / 4);
    for (size_t i = 0; i < 8; i++)
        assert_int_equal(append(f, "", 0, 0, large, &a[i]), JOURNAL_OK);
    journal_set_flush(f->set);
    free(large);
    assert_in_range(f->set->pool_bytes, POOLED_MAX / 4, POOLED_MAX);
}

/* So that it is being synced while the rest is written. */
static void test_what_is_full_is_synced_alone(void **state)
{
    struct fixture *f = *state;
    struct answer a[3];
    journal_batch_max = 2 * FRAME_HEADER;
    fill_a_batch(f, a);
    sem_post(&may_sync);
    wait_for_syncs(2);
    sem_post(&may_sync);
    wait_for_syncs(3);
    poll_until(f, &a[1]);
    assert_int_equal(so_far(&writes), 3);
    assert_true(a[0].calls == 1 && a[2].calls == 0);
    sem_post(&may_sync);
    poll_until(f, &a[2]);
    assert_int_equal(syncs, 3);
    assert_content(f, "1-234");
}

/* With time between syncs, what came in that time is one commit however much it is. */
static void test_spaced_syncs_take_all_there_is(void **state)
{
    static const char *const text[] = {"1", "2", "3"};
    struct fixture *f = *state;
    struct answer a[3];
    sync_ms = 1;
    reopen(f);
    journal_batch_max = 2 * FRAME_HEADER;
    pthread_mutex_lock(&f->set->lock); /* no committer takes what is pending */
    f->set->not_before = INT64_MAX / 2;
    pthread_mutex_unlock(&f->set->lock);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(append(f, "p", i, i + 1, text[i], &a[i]), JOURNAL_OK);
    pthread_mutex_lock(&f->set->lock);
    assert_true(!f->j->full && f->j->pending && f->j->pending->count == 3);
    pthread_mutex_unlock(&f->set->lock);
    journal_set_flush(f->set);
    assert_content(f, "123");
}

static ssize_t no_room(int fd, const void *p, size_t n, off_t at)
{
    (void)fd, (void)p, (void)n, (void)at;
    errno = ENOSPC;
    return -1;
}

/* All that is behind relied on it, whatever batch it is in. */
static void test_what_is_behind_a_refused_batch_is_refused(void **state)
{
    struct fixture *f = *state;
    struct answer a[3], again;
    journal_batch_max = FRAME_HEADER;
    fill_a_batch(f, a);
    pthread_mutex_lock(&f->set->lock);
    assert_true(f->j->full && f->j->full->next && f->j->full->next->next && !f->j->pending);
    pthread_mutex_unlock(&f->set->lock);
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

static bool expects_call(struct fixture *f)
{
    pthread_mutex_lock(&f->set->lock);
    bool expects = f->set->committers[0].quick > 0 || f->set->committers[1].quick > 0;
    pthread_mutex_unlock(&f->set->lock);
    return expects;
}

static int64_t time_of(clockid_t clock)
{
    struct timespec t;
    assert_int_equal(clock_gettime(clock, &t), 0);
    return t.tv_sec * USEC_PER_SEC + t.tv_nsec / 1000;
}

/* Of the processor, by both committers. */
static int64_t processor_time(struct fixture *f)
{
    int64_t sum = 0;
    for (size_t i = 0; i < COMMITTERS; i++) {
        clockid_t clock;
        assert_int_equal(pthread_getcpuclockid(f->set->committers[i].thread, &clock), 0);
        sum += time_of(clock);
    }
    return sum;
}

/* A committer that was called once waits awake from then on, until it is called again, however long that takes. */
static void reopen_awake(struct fixture *f)
{
    journal_awake_most = INT64_MAX / 4;
    reopen(f);
    pthread_mutex_lock(&f->set->lock);
    f->set->awake = true;
    pthread_mutex_unlock(&f->set->lock);
    while (!expects_call(f))
        put(f, "1");
}

/* One that was called soon is awake when it is called again, and hears it; else this hangs. */
static void test_who_is_called_soon_stays_awake(void **state)
{
    struct fixture *f = *state;
    struct answer a;
    reopen_awake(f);
    int64_t before = processor_time(f);
    while (processor_time(f) < before + 1000)
        sched_yield();
    for (unsigned i = 0; i < 20; i++) {
        assert_int_equal(append(f, "", 0, 0, "2", &a), JOURNAL_OK);
        poll_until(f, &a);
    }
    reopen(f);
}

/* In the time in which this thread is busy for as long as one that is awake would be often. */
static void test_who_waited_in_vain_sleeps(void **state)
{
    struct fixture *f = *state;
    reopen_awake(f);
    journal_awake_most = 1000;
    put(f, "2");
    while (expects_call(f))
        sched_yield();
    settle_committers(f);
    int64_t before = processor_time(f), mine = time_of(CLOCK_THREAD_CPUTIME_ID);
    while (time_of(CLOCK_THREAD_CPUTIME_ID) < mine + 20000)
        ;
    assert_true(processor_time(f) < before + 5000);
    put(f, "3");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_a_turns_appends_are_one_commit),
        T(test_what_is_appended_in_a_poll_needs_no_other),
        T(test_what_is_large_waits_for_nobody),
        T(test_what_comes_during_a_sync_is_the_next_commit),
        T(test_what_is_large_is_written_during_a_sync),
        T(test_memory_of_what_was_under_way_is_used_again),
        T(test_what_is_full_is_synced_alone),
        T(test_spaced_syncs_take_all_there_is),
        T(test_what_is_behind_a_refused_batch_is_refused),
        T(test_who_is_called_soon_stays_awake),
        T(test_who_waited_in_vain_sleeps),
    };
    log_init("test", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
