/* Under JOURNAL_SYNC_NEVER the owner commits what is only a copy into the page cache; the committers do the rest. */
#include "support/journal_fixture.h"

#include <errno.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <unistd.h>

static struct io_ops watching;
static pthread_t owner;
static unsigned by_owner, by_others, owner_begins; /* writes; syncs and renames by the owner */
static unsigned synced_by_others;
static int fault; /* errno of the owner's next write */
static sem_t others_may_write;
static atomic_bool others_wait;

static ssize_t watching_pwrite(int fd, const void *p, size_t n, off_t at)
{
    if (!pthread_equal(pthread_self(), owner)) {
        __atomic_add_fetch(&by_others, 1, __ATOMIC_SEQ_CST);
        if (others_wait)
            sem_wait(&others_may_write);
        return pwrite(fd, p, n, at);
    }
    by_owner++;
    if (!fault)
        return pwrite(fd, p, n, at);
    ssize_t half = pwrite(fd, p, n / 2, at);
    errno = fault;
    fault = 0;
    return half < 0 ? half : -1;
}

static int watching_fsync(int fd)
{
    owner_begins += pthread_equal(pthread_self(), owner) != 0;
    return fsync(fd);
}

static int watching_fdatasync(int fd)
{
    if (pthread_equal(pthread_self(), owner))
        owner_begins++;
    else
        __atomic_add_fetch(&synced_by_others, 1, __ATOMIC_SEQ_CST);
    return fdatasync(fd);
}

static void count_call(void *arg)
{
    ++*(unsigned *)arg;
}

/* Begins a session under `never`, and counts writes by thread after its first commit. */
static void watch(struct fixture *f)
{
    sync_ms = JOURNAL_SYNC_NEVER;
    reopen(f);
    put(f, "1");
    settle_committers(f);
    owner = pthread_self();
    by_owner = by_others = owner_begins = 0;
    fault = 0;
    others_wait = false;
    watching = io_system;
    watching.pwrite = watching_pwrite;
    watching.fsync = watching_fsync;
    watching.fdatasync = watching_fdatasync;
    io = &watching;
}

static void poll_until(struct fixture *f, const struct answer *a)
{
    while (!a->calls) {
        journal_set_poll(f->set);
        sched_yield();
    }
}

/* The appends of one turn of the loop cost one notification and one write. */
static void test_the_owner_commits_without_a_sync(void **state)
{
    struct fixture *f = *state;
    struct answer a, b;
    unsigned calls = 0;
    watch(f);
    f->set->config.notify = count_call;
    f->set->config.notify_arg = &calls;
    assert_int_equal(append(f, "p", 0, 1, "2", &a), JOURNAL_OK);
    assert_int_equal(append(f, "p", 1, 2, "3", &b), JOURNAL_OK);
    assert_int_equal(calls, 1);
    assert_true(by_owner == 0 && by_others == 0 && a.calls == 0);
    journal_set_poll(f->set);
    assert_true(a.calls == 1 && b.calls == 1 && b.commit.result == JOURNAL_OK);
    assert_true(by_owner == 1 && by_others == 0 && owner_begins == 0);
    assert_int_equal(append(f, "", 0, 0, "4", &a), JOURNAL_OK);
    assert_int_equal(calls, 2);
    journal_set_poll(f->set);
    assert_int_equal(a.calls, 1);
    open_killed_copy(f);
    assert_content(f, "1234");
}

/* The first commit of a session and of a segment is synced, never by the owner. */
static void test_committers_begin_sessions_and_segments(void **state)
{
    struct fixture *f = *state;
    struct answer a;
    segment_bytes = 3000;
    watch(f);
    journal_set_free(&f->set);
    assert_int_equal(try_open(f), JOURNAL_OK);
    owner_begins = synced_by_others = 0; /* opening and closing may sync */
    for (int i = 0; i < 40; i++) {
        assert_int_equal(append(f, "", 0, 0, "0123456789012345678901234567890123456789", &a), JOURNAL_OK);
        poll_until(f, &a);
        settle_committers(f); /* or a committer that looks for more work could take the next append */
        assert_int_equal(a.commit.result, JOURNAL_OK);
        assert_true(synced_by_others > 0);
    }
    assert_true(f->j->n_segments > 1);
    assert_int_equal(owner_begins, 0);
    assert_true(by_owner > 20 && by_others >= f->j->n_segments);
}

static void test_committers_write_large_commits(void **state)
{
    struct fixture *f = *state;
    struct answer a, b;
    watch(f);
    journal_owner_write_max = 200;
    assert_int_equal(append(f, "", 0, 0, "2", &a), JOURNAL_OK);
    journal_set_poll(f->set);
    assert_true(a.calls == 1 && by_owner == 1);
    char line[301];
    memset(line, 'x', 300);
    line[300] = 0;
    assert_int_equal(append(f, "", 0, 0, line, &b), JOURNAL_OK);
    poll_until(f, &b);
    assert_true(by_owner == 1 && by_others == 1);
}

/* A disk that cannot keep up makes writers wait; the owner tries only once in a while. */
static void test_a_slow_write_keeps_the_owner_away(void **state)
{
    struct fixture *f = *state;
    struct answer a;
    watch(f);
    journal_owner_slow_write = -1;
    assert_int_equal(append(f, "", 0, 0, "2", &a), JOURNAL_OK);
    journal_set_poll(f->set);
    assert_true(a.calls == 1 && by_owner == 1);
    assert_true(f->set->owner_back > 0);
    f->set->owner_back = INT64_MAX; /* however long this takes */
    assert_int_equal(append(f, "", 0, 0, "3", &a), JOURNAL_OK);
    poll_until(f, &a);
    assert_true(by_owner == 1 && by_others == 1);
    settle_committers(f);
    f->set->owner_back = 1; /* long ago */
    assert_int_equal(append(f, "", 0, 0, "4", &a), JOURNAL_OK);
    journal_set_poll(f->set);
    assert_true(a.calls == 1 && by_owner == 2);
    assert_content(f, "1234");
}

/* Or later appends would be written before earlier ones. */
static void test_the_owner_waits_for_a_committer_at_work(void **state)
{
    struct fixture *f = *state;
    struct answer a, b;
    watch(f);
    sem_init(&others_may_write, 0, 0);
    others_wait = true;
    journal_owner_write_max = 0;
    assert_int_equal(append(f, "", 0, 0, "2", &a), JOURNAL_OK);
    while (__atomic_load_n(&by_others, __ATOMIC_SEQ_CST) == 0)
        sched_yield();
    journal_owner_write_max = 1000;
    assert_int_equal(append(f, "", 0, 0, "3", &b), JOURNAL_OK);
    journal_set_poll(f->set);
    assert_true(a.calls == 0 && b.calls == 0 && by_owner == 0);
    others_wait = false;
    sem_post(&others_may_write);
    poll_until(f, &b);
    assert_true(a.calls == 1 && a.commit.start == 1 && b.commit.start == 2);
    open_killed_copy(f);
    assert_content(f, "123");
}

static void test_the_owners_failures(void **state)
{
    struct fixture *f = *state;
    struct answer a, b;
    watch(f);
    fault = ENOSPC;
    assert_int_equal(append(f, "p", 0, 1, "refused", &a), JOURNAL_OK);
    assert_int_equal(append(f, "p", 1, 2, "behind", &b), JOURNAL_OK);
    journal_set_poll(f->set);
    assert_true(a.calls == 1 && a.commit.result == JOURNAL_NO_SPACE);
    assert_true(b.calls == 1 && b.commit.result == JOURNAL_NO_SPACE);
    assert_int_equal(append(f, "p", 0, 1, "2", &a), JOURNAL_OK);
    journal_set_poll(f->set);
    assert_true(a.calls == 1 && a.commit.result == JOURNAL_OK);
    fault = EIO;
    assert_int_equal(append(f, "p", 1, 2, "3", &a), JOURNAL_OK);
    journal_set_poll(f->set);
    assert_true(a.calls == 1 && a.commit.result == JOURNAL_LATCHED);
    assert_int_equal(append(f, "p", 1, 2, "3", &a), JOURNAL_LATCHED);
    assert_int_equal(journal_mark(f->j, bytes_str("p"), NULL), 1);
    assert_non_null(journal_failure(f->j));
    assert_int_equal(by_others, 0);
    open_killed_copy(f);
    assert_content(f, "12");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_the_owner_commits_without_a_sync),
        T(test_committers_begin_sessions_and_segments),
        T(test_committers_write_large_commits),
        T(test_a_slow_write_keeps_the_owner_away),
        T(test_the_owner_waits_for_a_committer_at_work),
        T(test_the_owners_failures),
    };
    log_init("test", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
