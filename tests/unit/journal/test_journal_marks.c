/* Producers and their marks. */
#include "support/journal_fixture.h"
#include "support/colliding.h"

#include "journal/journal_internal.h"

#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <unistd.h>

static void test_marks_make_retries_harmless(void **state)
{
    struct fixture *f = *state;
    struct answer a, again, later;
    assert_int_equal(append(f, "p", 0, 5, "abc", &a), JOURNAL_OK);
    assert_int_equal(append(f, "p", 0, 5, "abc", &again), JOURNAL_OK);
    assert_int_equal(append(f, "p", 3, 6, "def", &later), JOURNAL_CONFLICT);
    assert_int_equal(journal_mark(f->j, bytes_str("p"), NULL), 0);
    journal_set_flush(f->set);
    assert_false(a.commit.duplicate);
    assert_true(again.calls == 1 && again.commit.duplicate && again.commit.result == JOURNAL_OK);
    assert_int_equal(append(f, "p", 1, 5, "abc", &again), JOURNAL_OK);
    assert_int_equal(append(f, "p", 4, 6, "abc", &later), JOURNAL_CONFLICT);
    assert_int_equal(append(f, "p", 7, 9, "abc", &later), JOURNAL_CONFLICT);
    assert_int_equal(append(f, "q", 1, 2, "abc", &later), JOURNAL_CONFLICT);
    assert_int_equal(append(f, "p", 5, 8, "", &later), JOURNAL_OK);
    journal_set_flush(f->set);
    assert_true(again.commit.duplicate);
    reopen(f);
    assert_int_equal(journal_mark(f->j, bytes_str("p"), NULL), 8);
    assert_content(f, "abc");
}

static sem_t syncing, may_sync;
static int sync_error;

static int held_fdatasync(int fd)
{
    sem_post(&syncing);
    sem_wait(&may_sync);
    errno = sync_error;
    return sync_error ? -1 : fdatasync(fd);
}

/* An earlier answer would call bytes safe that are not. */
static void retry_during_the_sync(struct fixture *f, int error, struct answer *first, struct answer *again)
{
    put(f, "what a session begins with");
    struct io_ops held = io_system;
    held.fdatasync = held_fdatasync;
    sem_init(&syncing, 0, 0);
    sem_init(&may_sync, 0, 0);
    sync_error = error;
    io = &held;
    assert_int_equal(append(f, "p", 0, 5, "abc", first), JOURNAL_OK);
    journal_set_poll(f->set);
    sem_wait(&syncing);
    assert_int_equal(append(f, "p", 0, 5, "abc", again), JOURNAL_OK);
    for (int i = 0; i < 100; i++)
        journal_set_poll(f->set);
    int early = first->calls + again->calls;
    for (int i = 0; i < 8; i++)
        sem_post(&may_sync);
    journal_set_flush(f->set);
    io = &io_system;
    assert_int_equal(early, 0);
    assert_true(first->calls == 1 && again->calls == 1);
}

static void test_a_retry_waits_for_its_original(void **state)
{
    struct answer first, again;
    retry_during_the_sync(*state, 0, &first, &again);
    assert_int_equal(first.commit.result, JOURNAL_OK);
    assert_true(again.commit.result == JOURNAL_OK && again.commit.duplicate);
}

static void test_a_retry_fails_with_its_original(void **state)
{
    struct answer first, again;
    retry_during_the_sync(*state, EIO, &first, &again);
    assert_true(first.commit.result == JOURNAL_LATCHED && again.commit.result == JOURNAL_LATCHED);
}

static void test_more_producers_than_the_bound_are_refused(void **state)
{
    struct fixture *f = *state;
    struct answer a;
    max_producers = 2;
    reopen(f);
    assert_int_equal(append(f, "a", 0, 1, "x", &a), JOURNAL_OK);
    assert_int_equal(append(f, "b", 0, 1, "x", &a), JOURNAL_OK);
    assert_int_equal(append(f, "c", 0, 1, "x", &a), JOURNAL_TOO_MANY_PRODUCERS);
    journal_set_flush(f->set);
    reopen(f);
    assert_int_equal(f->j->marks.count, 2);
    assert_int_equal(append(f, "c", 0, 1, "x", &a), JOURNAL_TOO_MANY_PRODUCERS);
    assert_int_equal(append(f, "b", 1, 2, "y", &a), JOURNAL_OK);
    put(f, "nobody's");
    assert_content(f, "xxynobody's");
}

static int refused_writes;

static ssize_t refusing_pwrite(int fd, const void *p, size_t n, off_t at)
{
    if (refused_writes == 0)
        return pwrite(fd, p, n, at);
    refused_writes--;
    errno = ENOSPC;
    return -1;
}

/* A producer whose append was refused does not count towards the bound. */
static void test_refused_producers_are_forgotten(void **state)
{
    struct fixture *f = *state;
    struct answer a;
    char name[32];
    max_producers = 2;
    reopen(f);
    put(f, "what a session begins with");
    struct io_ops refusing = io_system;
    refusing.pwrite = refusing_pwrite;
    io = &refusing;
    for (int i = 0; i < 5; i++) {
        refused_writes = 1;
        snprintf(name, sizeof name, "refused%d", i);
        assert_int_equal(append(f, name, 0, 1, "x", &a), JOURNAL_OK);
        journal_set_flush(f->set);
        assert_int_equal(a.commit.result, JOURNAL_NO_SPACE);
    }
    io = &io_system;
    assert_int_equal(f->j->marks.count, 0);
    assert_int_equal(append(f, "a", 0, 1, "x", &a), JOURNAL_OK);
    assert_int_equal(append(f, "b", 0, 1, "x", &a), JOURNAL_OK);
    assert_int_equal(append(f, "c", 0, 1, "x", &a), JOURNAL_TOO_MANY_PRODUCERS);
    journal_set_flush(f->set);
}

/* A producer with old numbers: its repeats are duplicates, and an append across the mark is a conflict. */
static void test_a_producer_back_from_a_backup(void **state)
{
    struct fixture *f = *state;
    struct answer a;
    uint64_t mark;
    assert_int_equal(append(f, "p", 0, 100, "all", &a), JOURNAL_OK);
    journal_set_flush(f->set);
    assert_int_equal(append(f, "p", 40, 60, "old", &a), JOURNAL_OK);
    journal_set_flush(f->set);
    assert_true(a.commit.duplicate);
    struct bytes piece = BYTES_LITERAL("straddles");
    struct journal_append straddling = {bytes_str("p"), 60, 120, &piece, 1, 0};
    assert_int_equal(journal_append(f->j, &straddling, 1, on_commit, &a, &mark), JOURNAL_CONFLICT);
    assert_int_equal(mark, 100);
    assert_content(f, "all");
}

static void test_two_processes_with_one_name(void **state)
{
    struct fixture *f = *state;
    struct answer first, second;
    assert_int_equal(append(f, "p", 0, 10, "first", &first), JOURNAL_OK);
    assert_int_equal(append(f, "p", 0, 20, "second", &second), JOURNAL_CONFLICT);
    journal_set_flush(f->set);
    assert_int_equal(append(f, "p", 0, 20, "second", &second), JOURNAL_CONFLICT);
    assert_int_equal(append(f, "p", 10, 20, "goes on", &first), JOURNAL_OK);
    assert_int_equal(append(f, "p", 10, 30, "no", &second), JOURNAL_CONFLICT);
    journal_set_flush(f->set);
    assert_content(f, "firstgoes on");
}

static void test_retention_keeps_marks(void **state)
{
    struct fixture *f = *state;
    struct answer a;
    segment_bytes = 4096;
    reopen(f);
    assert_int_equal(append(f, "gone", 0, 7, "its only line", &a), JOURNAL_OK);
    fill_segments(f, 40, 1);
    struct journal_retention keep = {.max_bytes = 5000, .hold = UINT64_MAX};
    journal_retain(f->j, &keep, 1);
    settle(f);
    assert_true(journal_earliest(f->j) > 30000);
    for (int i = 0; i < 2; i++, reopen(f)) {
        assert_int_equal(journal_mark(f->j, bytes_str("gone"), NULL), 7);
        assert_int_equal(append(f, "gone", 0, 7, "its only line", &a), JOURNAL_OK);
        journal_set_flush(f->set);
        assert_true(a.commit.duplicate);
        assert_int_equal(append(f, "gone", 3, 9, "x", &a), JOURNAL_CONFLICT);
    }
}

static void test_names_that_collide_without_a_seed(void **state)
{
    (void)state;
    struct marks m = {0};
    char name[COLLIDING_LEN];
    uint64_t at = 0;
    size_t longest = 0;
    for (size_t i = 0; i < COLLIDING_KEYS; i++) {
        colliding_key_next(&at, name);
        marks_add(&m, bytes_of(name, sizeof name));
    }
    assert_int_equal(m.count, COLLIDING_KEYS);
    for (size_t i = 0, run = 0; i < m.capacity; i++) {
        run = m.slots[i].length ? run + 1 : 0;
        longest = run > longest ? run : longest;
    }
    assert_in_range(longest, 1, 200);
    marks_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_marks_make_retries_harmless),
        T(test_a_retry_waits_for_its_original),
        T(test_a_retry_fails_with_its_original),
        T(test_more_producers_than_the_bound_are_refused),
        T(test_refused_producers_are_forgotten),
        T(test_a_producer_back_from_a_backup),
        T(test_two_processes_with_one_name),
        T(test_retention_keeps_marks),
        cmocka_unit_test(test_names_that_collide_without_a_seed),
    };
    log_init("test", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
