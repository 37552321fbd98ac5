/* When a commit begins under a policy that syncs: small appends wait for what comes with them, large ones do not. */
#include "journal_fixture.h"

#include <sched.h>
#include <semaphore.h>
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

/* Zeros ahead of the commits that follow are written before. */
static void watch(struct fixture *f)
{
    sync_ms = 0;
    reopen(f);
    put(f, "1");
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

static void test_what_is_large_waits_for_nobody(void **state)
{
    struct fixture *f = *state;
    struct answer a, b;
    watch(f);
    journal_gather_most = 200;
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
    journal_gather_most = 1;
    assert_int_equal(append(f, "", 0, 0, "3", &b), JOURNAL_OK);
    while (so_far(&writes) < 2)
        sched_yield();
    assert_int_equal(so_far(&syncs), 1);
    __atomic_store_n(&syncs_wait, false, __ATOMIC_SEQ_CST);
    sem_post(&may_sync);
    poll_until(f, &b);
    assert_content(f, "123");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_a_turns_appends_are_one_commit),
        T(test_what_is_large_waits_for_nobody),
        T(test_what_comes_during_a_sync_is_the_next_commit),
        T(test_what_is_large_is_written_during_a_sync),
    };
    log_init("test", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
