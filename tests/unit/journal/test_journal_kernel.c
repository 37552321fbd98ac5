/* Small commits that the owner writes and the kernel syncs: who does what, what waits for it, and what a failure or a refusal
 * does. */
#include "support/journal_fixture.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <unistd.h>

static struct io_ops watching;
static pthread_t owner;
static unsigned by_owner, by_others, syncs_by_others; /* writes; fdatasyncs */
static unsigned begun, ended;                         /* syncs of the kernel's */
static int refuses;                                   /* errno of the next to begin */
static int outcome;                                   /* errno of those that end */
static bool shy;                                      /* the owner is never told that one is over */
static sem_t may_end;                                 /* one more is over */
static int begun_fd;
static unsigned closed_early;
static uint64_t durable_meanwhile; /* as the first fdatasync found it */
static struct journal *watched;
static void (*while_it_ends)(void);
static unsigned old_file_syncs, out_of_turn; /* of begun_fd; with nobody syncing */

static unsigned so_far(const unsigned *count)
{
    return __atomic_load_n(count, __ATOMIC_SEQ_CST);
}

static void count(unsigned *what)
{
    __atomic_add_fetch(what, 1, __ATOMIC_SEQ_CST);
}

static ssize_t watching_pwrite(int fd, const void *p, size_t n, off_t at)
{
    ssize_t did = pwrite(fd, p, n, at);
    count(pthread_equal(pthread_self(), owner) ? &by_owner : &by_others);
    return did;
}

static int watching_fdatasync(int fd)
{
    pthread_mutex_lock(&watched->set->lock);
    if (so_far(&syncs_by_others) == 0)
        durable_meanwhile = watched->writer.durable;
    old_file_syncs += fd == begun_fd;
    out_of_turn += fd == begun_fd && !watched->set->syncing;
    pthread_mutex_unlock(&watched->set->lock);
    count(&syncs_by_others);
    return fdatasync(fd);
}

static int watching_close(int fd)
{
    if (fd == begun_fd && so_far(&ended) < so_far(&begun))
        count(&closed_early);
    return close(fd);
}

static int pretend_open(struct io_kernel_sync *s, int wake)
{
    *s = (struct io_kernel_sync){.wake = wake};
    return 0;
}

static int refuse_to_open(struct io_kernel_sync *s, int wake)
{
    (void)s, (void)wake;
    errno = ENOSYS;
    return -1;
}

static int pretend_begin(struct io_kernel_sync *s, int fd)
{
    (void)s;
    count(&begun);
    begun_fd = fd;
    errno = refuses;
    return refuses ? -1 : 0;
}

static bool pretend_is_over(struct io_kernel_sync *s)
{
    int n;
    (void)s;
    sem_getvalue(&may_end, &n);
    return n > 0 && !shy;
}

static int pretend_end(struct io_kernel_sync *s)
{
    (void)s;
    while (sem_wait(&may_end) != 0)
        ;
    count(&ended);
    if (while_it_ends)
        while_it_ends();
    errno = outcome;
    return outcome ? -1 : 0;
}

static void pretend_close(struct io_kernel_sync *s)
{
    (void)s;
}

static int really_begin(struct io_kernel_sync *s, int fd)
{
    count(&begun);
    return io_system.sync_begin(s, fd);
}

static void pretend_kernel(void)
{
    watching.sync_open = pretend_open;
    watching.sync_begin = pretend_begin;
    watching.sync_is_over = pretend_is_over;
    watching.sync_end = pretend_end;
    watching.sync_close = pretend_close;
}

/* A session whose announcement is written, with zeros behind it. */
static void watch(struct fixture *f)
{
    by_owner = by_others = syncs_by_others = begun = ended = closed_early = 0;
    refuses = outcome = 0;
    old_file_syncs = out_of_turn = 0;
    while_it_ends = NULL;
    shy = false;
    begun_fd = -1;
    sem_init(&may_end, 0, 0);
    owner = pthread_self();
    journal_set_free(&f->set);
    io = &watching;
    sync_ms = 0;
    wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    assert_true(wake_fd > 0);
    assert_int_equal(try_open(f), JOURNAL_OK);
    if (!f->set->awake) /* one processor only: the kernel is not asked */
        skip();
    watched = f->j;
    put(f, "1");
    settle_committers(f);
    by_owner = by_others = syncs_by_others = 0;
    assert_int_equal(begun, 0);
}

static void watch_pretended(struct fixture *f)
{
    pretend_kernel();
    watch(f);
}

static int set_up(void **state)
{
    watching = io_system;
    watching.pwrite = watching_pwrite;
    watching.fdatasync = watching_fdatasync;
    watching.close = watching_close;
    wake_fd = 0;
    return setup(state);
}

/* The descriptor outlives the set: the kernel may count it up until that is gone. */
static int tear_down(void **state)
{
    struct fixture *f = *state;
    journal_set_free(&f->set);
    if (wake_fd)
        close(wake_fd);
    wake_fd = 0;
    return teardown(state);
}

/* Of one that is being synced. */
static void begin(struct fixture *f, const char *text, struct answer *a)
{
    unsigned before = so_far(&begun);
    assert_int_equal(append(f, "", 0, 0, text, a), JOURNAL_OK);
    journal_set_poll(f->set);
    assert_int_equal(so_far(&begun), before + 1);
    assert_int_equal(a->calls, 0);
}

static void poll_until(struct fixture *f, const struct answer *a)
{
    while (!a->calls) {
        journal_set_poll(f->set);
        sched_yield();
    }
}

/* The system's own: it wakes the owner, who asks nobody else. */
static void test_the_kernel_wakes_the_owner(void **state)
{
    struct fixture *f = *state;
    struct answer a;
    watching.sync_begin = really_begin;
    watch(f);
    if (!f->set->kernel.usable)
        skip();
    for (unsigned i = 0; i < 20; i++) {
        struct pollfd woken = {.fd = wake_fd, .events = POLLIN};
        uint64_t n;
        assert_int_equal(append(f, "", 0, 0, "2", &a), JOURNAL_OK);
        journal_set_poll(f->set);
        assert_int_equal(begun, i + 1);
        assert_int_equal(poll(&woken, 1, -1), 1);
        assert_int_equal(read(wake_fd, &n, sizeof n), sizeof n);
        journal_set_poll(f->set);
        assert_true(a.calls == 1 && a.commit.result == JOURNAL_OK);
    }
    assert_true(by_owner == 20 && by_others == 0 && syncs_by_others == 0);
    io = &io_system;
    open_killed_copy(f);
    assert_content(f, "122222222222222222222");
}

/* A descriptor that cannot be synced: what fdatasync says of it. */
static void test_the_kernels_failure_is_fdatasyncs(void **state)
{
    struct io_kernel_sync s;
    int pair[2], wake = eventfd(0, EFD_CLOEXEC);
    (void)state;
    if (io_system.sync_open(&s, wake) != 0)
        skip();
    assert_int_equal(pipe(pair), 0);
    int begins = io_system.sync_begin(&s, pair[0]);
    assert_true(begins != 0 || io_system.sync_end(&s) != 0);
    assert_int_equal(errno, EINVAL);
    io_system.sync_close(&s);
    close(pair[0]);
    close(pair[1]);
    close(wake);
}

/* Where something waits a committer begins it at once, and goes on until nothing does. */
static void test_what_comes_meanwhile_is_the_committers(void **state)
{
    struct fixture *f = *state;
    struct answer a, b, c;
    watch_pretended(f);
    begin(f, "2", &a);
    assert_int_equal(append(f, "", 0, 0, "3", &b), JOURNAL_OK);
    journal_set_poll(f->set);
    assert_int_equal(append(f, "", 0, 0, "4", &c), JOURNAL_OK);
    journal_set_poll(f->set);
    assert_true(a.calls == 0 && by_owner == 1 && begun == 1);
    sem_post(&may_end);
    journal_set_poll(f->set);
    assert_int_equal(a.calls, 1);
    poll_until(f, &c);
    assert_true(b.calls == 1 && begun == 1 && ended == 1);
    assert_true(by_owner == 1 && by_others == 1 && syncs_by_others == 1);
    settle_committers(f);
    begin(f, "5", &a);
    sem_post(&may_end);
    poll_until(f, &a);
    assert_content(f, "12345");
}

/* A committer writes it, ends the kernel's sync, which does not cover it, and begins its own. */
static void test_what_is_large_is_written_meanwhile(void **state)
{
    struct fixture *f = *state;
    struct answer a, b;
    watch_pretended(f);
    begin(f, "2", &a);
    uint64_t end = f->j->accepted_end;
    journal_gather_max = 1;
    assert_int_equal(append(f, "", 0, 0, "3", &b), JOURNAL_OK);
    while (so_far(&by_others) == 0)
        sched_yield();
    assert_true(so_far(&syncs_by_others) == 0 && so_far(&ended) == 0);
    sem_post(&may_end);
    poll_until(f, &b);
    assert_true(a.calls == 1 && a.commit.result == JOURNAL_OK && b.commit.result == JOURNAL_OK);
    assert_true(begun == 1 && syncs_by_others == 1);
    assert_int_equal(durable_meanwhile, end);
    assert_content(f, "123");
}

/* Its file is needed until it is over. */
static void test_no_segment_begins_meanwhile(void **state)
{
    struct fixture *f = *state;
    struct answer a, b;
    watch_pretended(f);
    begin(f, "2", &a);
    pthread_mutex_lock(&f->set->lock);
    f->j->segment_bytes = 1;
    pthread_mutex_unlock(&f->set->lock);
    journal_gather_max = 1;
    assert_int_equal(append(f, "", 0, 0, "3", &b), JOURNAL_OK);
    pthread_mutex_lock(&f->set->lock);
    while (!f->set->kernel.taken) {
        pthread_mutex_unlock(&f->set->lock);
        sched_yield();
        pthread_mutex_lock(&f->set->lock);
    }
    pthread_mutex_unlock(&f->set->lock);
    sem_post(&may_end);
    poll_until(f, &b);
    assert_true(a.calls == 1 && b.commit.result == JOURNAL_OK && closed_early == 0);
    assert_int_equal(f->j->n_segments, 2);
    assert_content(f, "123");
}

static struct answer written_behind, beginning;

static void wait_for(bool (*is)(const struct journal_set *set))
{
    bool there = false;
    while (!there) {
        sched_yield();
        pthread_mutex_lock(&watched->set->lock);
        there = is(watched->set);
        pthread_mutex_unlock(&watched->set->lock);
    }
}

static bool lies_written(const struct journal_set *set)
{
    return set->written != NULL && !set->writing;
}

/* And the other committer sleeps, which nobody but the owner's poll would call. */
static bool writer_waits(const struct journal_set *set)
{
    unsigned asleep = 0;
    for (size_t i = 0; i < COMMITTERS; i++)
        asleep += set->committers[i].idle && set->committers[i].quick <= 0;
    return set->writer_waits && asleep == COMMITTERS - 1;
}

static bool nobody_writes(const struct journal_set *set)
{
    return !set->writing;
}

static void write_behind_and_begin_segment(void)
{
    struct fixture f = {.set = watched->set, .j = watched};
    journal_gather_max = 1;
    assert_int_equal(append(&f, "", 0, 0, "3", &written_behind), JOURNAL_OK);
    wait_for(lies_written);
    pthread_mutex_lock(&watched->set->lock);
    watched->segment_bytes = 1;
    pthread_mutex_unlock(&watched->set->lock);
    assert_int_equal(append(&f, "", 0, 0, "4", &beginning), JOURNAL_OK);
    wait_for(writer_waits);
}

/* The owner ends the turn, not what was written behind it: that is synced before its file is left, by whoever is to leave it
 * if the owner is not yet there to call another. */
static void test_no_segment_begins_before_what_was_written_meanwhile_is_synced(void **state)
{
    struct fixture *f = *state;
    struct answer a;
    watch_pretended(f);
    begin(f, "2", &a);
    while_it_ends = write_behind_and_begin_segment;
    sem_post(&may_end);
    kernel_poll(f->set);
    wait_for(nobody_writes);
    journal_set_poll(f->set);
    assert_int_equal(a.calls, 1);
    poll_until(f, &beginning);
    assert_true(written_behind.calls == 1 && written_behind.commit.result == JOURNAL_OK);
    assert_int_equal(f->j->n_segments, 2);
    assert_true(old_file_syncs == 1 && out_of_turn == 0);
    assert_content(f, "1234");
}

static void test_a_failure_latches(void **state)
{
    struct fixture *f = *state;
    struct answer a, b, c;
    watch_pretended(f);
    begin(f, "2", &a);
    assert_int_equal(append(f, "", 0, 0, "3", &b), JOURNAL_OK);
    outcome = EIO;
    sem_post(&may_end);
    poll_until(f, &b);
    assert_true(a.calls == 1 && a.commit.result == JOURNAL_LATCHED);
    assert_int_equal(b.commit.result, JOURNAL_LATCHED);
    assert_non_null(strstr(journal_failure(f->j), "fdatasync: Input/output error"));
    assert_int_equal(append(f, "", 0, 0, "4", &c), JOURNAL_LATCHED);
    assert_content(f, "1");
}

/* Also of what a committer has written behind it. */
static void test_a_failure_takes_what_was_written_behind_it(void **state)
{
    struct fixture *f = *state;
    struct answer a, b;
    watch_pretended(f);
    begin(f, "2", &a);
    journal_gather_max = 1;
    assert_int_equal(append(f, "", 0, 0, "3", &b), JOURNAL_OK);
    while (so_far(&by_others) == 0)
        sched_yield();
    outcome = EIO;
    sem_post(&may_end);
    poll_until(f, &b);
    assert_int_equal(a.commit.result, JOURNAL_LATCHED);
    assert_int_equal(b.commit.result, JOURNAL_LATCHED);
    assert_int_equal(syncs_by_others, 0);
}

/* What it would not begin is written once, synced by a committer, and it is not asked again. */
static void test_what_the_kernel_refuses_the_committers_sync(void **state)
{
    struct fixture *f = *state;
    struct answer a, b;
    watch_pretended(f);
    refuses = EAGAIN;
    assert_int_equal(append(f, "", 0, 0, "2", &a), JOURNAL_OK);
    poll_until(f, &a);
    assert_true(begun == 1 && by_owner == 1 && by_others == 0 && syncs_by_others == 1);
    assert_int_equal(append(f, "", 0, 0, "3", &b), JOURNAL_OK);
    poll_until(f, &b);
    assert_true(a.commit.result == JOURNAL_OK && b.commit.result == JOURNAL_OK);
    assert_true(begun == 1 && by_others == 1 && syncs_by_others == 2);
    assert_content(f, "123");
}

static void test_without_the_kernel_all_is_the_committers(void **state)
{
    struct fixture *f = *state;
    struct answer a;
    pretend_kernel();
    watching.sync_open = refuse_to_open;
    watch(f);
    assert_int_equal(append(f, "", 0, 0, "2", &a), JOURNAL_OK);
    poll_until(f, &a);
    assert_true(begun == 0 && by_owner == 0 && by_others == 1 && syncs_by_others == 1);
}

static void assert_is_the_committers(struct fixture *f)
{
    struct answer a;
    assert_int_equal(append(f, "", 0, 0, "3", &a), JOURNAL_OK);
    poll_until(f, &a);
    assert_int_equal(a.commit.result, JOURNAL_OK);
    assert_true(begun == 0 && by_owner == 0);
}

static void test_segments_are_the_committers(void **state)
{
    struct fixture *f = *state;
    watch_pretended(f);
    pthread_mutex_lock(&f->set->lock);
    f->j->segment_bytes = 1;
    pthread_mutex_unlock(&f->set->lock);
    assert_is_the_committers(f);
    assert_int_equal(f->j->n_segments, 2);
}

static void append_reserving(struct fixture *f, size_t reserve, struct answer *answer)
{
    struct bytes piece = BYTES_LITERAL("4");
    struct journal_append a = {.pieces = &piece, .n_pieces = 1, .reserve = reserve};
    *answer = (struct answer){0};
    assert_int_equal(journal_append(f->j, &a, 0, on_commit, answer, NULL), JOURNAL_OK);
    poll_until(f, answer);
    assert_int_equal(answer->commit.result, JOURNAL_OK);
}

/* Asking for them is the committers'; once they are there, beyond the file's end, there is nothing to ask. */
static void test_what_has_its_reserve_is_the_owners(void **state)
{
    struct fixture *f = *state;
    struct answer a;
    watch_pretended(f);
    size_t reserve = (size_t)f->j->writer.size + 1;
    append_reserving(f, reserve, &a);
    assert_int_equal(begun, 0);
    settle_committers(f);
    sem_post(&may_end);
    append_reserving(f, reserve, &a);
    assert_int_equal(begun, 1);
}

/* Zeros are written there, or blocks asked for. */
static void test_what_has_no_blocks_is_the_committers(void **state)
{
    struct fixture *f = *state;
    watch_pretended(f);
    pthread_mutex_lock(&f->set->lock);
    f->j->writer.filled = f->j->writer.position;
    pthread_mutex_unlock(&f->set->lock);
    assert_is_the_committers(f);
}

/* As much as would not have waited for the poll. */
static void test_what_is_large_is_the_committers(void **state)
{
    struct fixture *f = *state;
    struct answer a;
    watch_pretended(f);
    assert_int_equal(append(f, "", 0, 0, "2", &a), JOURNAL_OK);
    journal_gather_max = 1;
    poll_until(f, &a);
    assert_true(begun == 0 && by_owner == 0);
}

static void test_spaced_syncs_are_the_committers(void **state)
{
    struct fixture *f = *state;
    watch_pretended(f);
    sync_ms = 1;
    reopen(f);
    watched = f->j;
    put(f, "2");
    by_owner = 0;
    assert_is_the_committers(f);
}

/* Whoever waits for all of it, and closes, does not come round to poll: a committer ends it. */
static void test_an_owner_that_waits_has_it_ended(void **state)
{
    struct fixture *f = *state;
    struct answer a;
    watch_pretended(f);
    shy = true;
    begin(f, "2", &a);
    sem_post(&may_end);
    journal_set_flush(f->set);
    assert_true(a.calls == 1 && ended == 1);
    settle_committers(f); /* or one that looks for more may find it */
    begin(f, "3", &a);
    sem_post(&may_end);
    journal_close(&f->j);
    assert_true(a.calls == 1 && a.commit.result == JOURNAL_OK && closed_early == 0);
    journal_set_free(&f->set);
    assert_int_equal(try_open(f), JOURNAL_OK);
    assert_content(f, "123");
}

/* Two journals of a set at once are the committers'; each alone is not. */
static void test_several_journals_are_the_committers(void **state)
{
    struct fixture *f = *state, g = {.set = NULL};
    struct answer a, b;
    char path[100];
    watch_pretended(f);
    snprintf(path, sizeof path, "%s/other", f->dir);
    struct journal_config jc = {.dir = path};
    assert_int_equal(journal_open(f->set, &jc, &g.j, f->error, sizeof f->error), JOURNAL_OK);
    g.set = f->set;
    put(&g, "5");
    settle_committers(f);
    begun = by_owner = 0;
    assert_int_equal(append(f, "", 0, 0, "2", &a), JOURNAL_OK);
    assert_int_equal(append(&g, "", 0, 0, "6", &b), JOURNAL_OK);
    poll_until(f, &a);
    poll_until(f, &b);
    assert_true(begun == 0 && by_owner == 0);
    settle_committers(f);
    begin(&g, "7", &a);
    assert_int_equal(append(f, "", 0, 0, "3", &b), JOURNAL_OK);
    journal_set_poll(f->set);
    assert_int_equal(begun, 1);
    sem_post(&may_end);
    journal_set_poll(f->set);
    assert_int_equal(a.calls, 1);
    poll_until(f, &b);
    assert_int_equal(begun, 1);
    assert_content(f, "123");
    assert_content(&g, "567");
}

#define K(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        K(test_the_kernel_wakes_the_owner),
        K(test_the_kernels_failure_is_fdatasyncs),
        K(test_what_comes_meanwhile_is_the_committers),
        K(test_what_is_large_is_written_meanwhile),
        K(test_no_segment_begins_meanwhile),
        K(test_no_segment_begins_before_what_was_written_meanwhile_is_synced),
        K(test_a_failure_latches),
        K(test_a_failure_takes_what_was_written_behind_it),
        K(test_what_the_kernel_refuses_the_committers_sync),
        K(test_without_the_kernel_all_is_the_committers),
        K(test_segments_are_the_committers),
        K(test_what_has_its_reserve_is_the_owners),
        K(test_what_has_no_blocks_is_the_committers),
        K(test_what_is_large_is_the_committers),
        K(test_spaced_syncs_are_the_committers),
        K(test_an_owner_that_waits_has_it_ended),
        K(test_several_journals_are_the_committers),
    };
    log_init("test", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
