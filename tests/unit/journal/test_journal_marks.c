/* Producers and their marks. */
#include "support/journal_fixture.h"
#include "support/colliding.h"

#include "base/byte_order.h"
#include "base/xxh3.h"
#include "journal/journal_internal.h"

#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
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
    struct journal_append straddling = {
        .producer = bytes_str("p"), .mark = 60, .next = 120, .pieces = &piece, .n_pieces = 1};
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
    struct journal_retention keep = {.min_bytes = 5000, .hold = UINT64_MAX};
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

static enum journal_result append_tagged(
    struct fixture *f, uint64_t mark, uint64_t next, const char *tag, bool sets, struct answer *a)
{
    struct journal_append what = {
        .producer = BYTES_LITERAL("p"), .mark = mark, .next = next, .tag = bytes_str(tag), .sets_mark = sets};
    *a = (struct answer){0};
    return journal_append(f->j, &what, 1000, on_commit, a, NULL);
}

static void assert_mark(struct fixture *f, uint64_t mark, const char *tag)
{
    for (int i = 0; i < 2; i++, reopen(f)) {
        assert_int_equal(journal_mark(f->j, BYTES_LITERAL("p"), NULL), mark);
        assert_true(bytes_equal_str(journal_tag(f->j, BYTES_LITERAL("p")), tag));
        assert_int_equal(f->j->marks.count, 1);
    }
}

/* One producer, whatever its tags are. An append without a tag removes the tag. */
static void test_a_tag_is_stored_with_the_mark(void **state)
{
    char longest[MARK_LABEL_MAX - 1] = "";
    memset(longest, 'x', sizeof longest - 1); /* with the NUL and the name "p": MARK_LABEL_MAX */
    struct fixture *f = *state;
    struct answer a;
    assert_int_equal(append_tagged(f, 0, 5, "one", false, &a), JOURNAL_OK);
    assert_int_equal(journal_tag(f->j, BYTES_LITERAL("p")).len, 0);
    journal_set_flush(f->set);
    assert_mark(f, 5, "one");
    assert_int_equal(append_tagged(f, 5, 6, longest, false, &a), JOURNAL_OK);
    journal_set_flush(f->set);
    assert_mark(f, 6, longest);
    assert_int_equal(append(f, "p", 6, 7, "text", &a), JOURNAL_OK);
    journal_set_flush(f->set);
    assert_mark(f, 7, "");
    assert_content(f, "text");
}

static void test_a_mark_is_set_downwards_only_on_request(void **state)
{
    struct fixture *f = *state;
    struct answer first, set, again;
    assert_int_equal(append_tagged(f, 0, 500, "one", false, &first), JOURNAL_OK);
    assert_int_equal(append_tagged(f, 0, 40, "", true, &set), JOURNAL_MARK_BUSY);
    journal_set_flush(f->set);
    assert_int_equal(append_tagged(f, 0, 40, "", true, &set), JOURNAL_OK);
    assert_int_equal(journal_mark(f->j, BYTES_LITERAL("p"), NULL), 500);
    /* No duplicate is answered, and nothing is stored, by the old mark or the new one. */
    assert_int_equal(append(f, "p", 450, 500, "old", &again), JOURNAL_MARK_BUSY);
    assert_int_equal(append(f, "p", 40, 50, "new", &first), JOURNAL_MARK_BUSY);
    assert_int_equal(append_tagged(f, 0, 30, "", true, &again), JOURNAL_MARK_BUSY);
    journal_set_flush(f->set);
    assert_int_equal(append(f, "p", 450, 500, "old", &again), JOURNAL_CONFLICT);
    assert_int_equal(append(f, "p", 40, 50, "new", &first), JOURNAL_OK);
    assert_int_equal(append(f, "p", 40, 50, "new", &again), JOURNAL_OK);
    journal_set_flush(f->set);
    assert_true(!first.commit.duplicate && again.commit.duplicate);
    assert_mark(f, 50, "");
    assert_int_equal(append_tagged(f, 0, 0, "two", true, &set), JOURNAL_OK);
    journal_set_flush(f->set);
    for (int i = 0; i < 2; i++, reopen(f)) { /* removed */
        bool known;
        assert_int_equal(journal_mark(f->j, BYTES_LITERAL("p"), &known), 0);
        assert_false(known);
        assert_int_equal(journal_tag(f->j, BYTES_LITERAL("p")).len, 0);
        assert_int_equal(f->j->marks.count, 0);
    }
    assert_content(f, "new");
}

/* A search ends at a free slot, so a removal must leave no free slot between a name's first slot and the name. */
static void test_a_removal_hides_no_other_name(void **state)
{
    enum { NAMES = 64 };
    uint64_t expected[NAMES] = {0};
    struct marks m = {0};
    uint64_t random = 1;
    (void)state;
    for (int round = 0; round < 20000; round++) {
        char name[16];
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        unsigned i = (unsigned)(random >> 40) % NAMES;
        snprintf(name, sizeof name, "producer %u", i);
        expected[i] = random >> 63 ? (uint64_t)round + 1 : 0;
        marks_set(&m, bytes_str(name), expected[i]);
        size_t n = 0;
        for (i = 0; i < NAMES; i++) {
            snprintf(name, sizeof name, "producer %u", i);
            const struct mark *found = marks_find(&m, bytes_str(name));
            assert_int_equal(found ? found->committed : 0, expected[i]);
            n += found != NULL;
        }
        assert_int_equal(m.count, n);
    }
    marks_free(&m);
}

static enum journal_result append_guarded(
    struct fixture *f, uint64_t mark, uint64_t guard_mark, struct answer *a)
{
    struct journal_append what = {.producer = BYTES_LITERAL("p"),
        .mark = mark,
        .next = mark + 1,
        .guard = BYTES_LITERAL("g"),
        .guard_mark = guard_mark};
    *a = (struct answer){0};
    return journal_append(f->j, &what, 1000, on_commit, a, NULL);
}

/* The accepted mark counts, also before its commit and for a duplicate. */
static void test_no_append_follows_a_change_of_its_guard(void **state)
{
    struct fixture *f = *state;
    struct answer first, guard, again;
    assert_int_equal(append_guarded(f, 0, 3, &first), JOURNAL_GUARDED);
    assert_int_equal(append_guarded(f, 0, 0, &first), JOURNAL_OK);
    assert_int_equal(append(f, "g", 0, 3, "", &guard), JOURNAL_OK);
    assert_int_equal(append_guarded(f, 1, 0, &again), JOURNAL_GUARDED);
    assert_int_equal(append_guarded(f, 0, 0, &again), JOURNAL_GUARDED);
    assert_int_equal(append_guarded(f, 1, 3, &again), JOURNAL_OK);
    journal_set_flush(f->set);
    assert_int_equal(append_guarded(f, 2, 0, &first), JOURNAL_GUARDED);
    reopen(f);
    assert_int_equal(append_guarded(f, 2, 0, &first), JOURNAL_GUARDED);
    assert_int_equal(journal_mark(f->j, BYTES_LITERAL("p"), NULL), 2);
}

static void test_a_refused_set_changes_nothing(void **state)
{
    struct fixture *f = *state;
    struct answer a;
    assert_int_equal(append_tagged(f, 0, 500, "one", false, &a), JOURNAL_OK);
    journal_set_flush(f->set);
    struct io_ops refusing = io_system;
    refusing.pwrite = refusing_pwrite;
    io = &refusing;
    refused_writes = 1;
    assert_int_equal(append_tagged(f, 0, 40, "two", true, &a), JOURNAL_OK);
    journal_set_flush(f->set);
    io = &io_system;
    assert_int_equal(a.commit.result, JOURNAL_NO_SPACE);
    assert_mark(f, 500, "one");
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
        T(test_a_tag_is_stored_with_the_mark),
        T(test_a_mark_is_set_downwards_only_on_request),
        T(test_a_refused_set_changes_nothing),
        T(test_no_append_follows_a_change_of_its_guard),
        cmocka_unit_test(test_a_removal_hides_no_other_name),
    };
    log_init("test", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
