/* One opener at a time, in any process; inspection needs no lock. */
#include "support/journal_fixture.h"
#include "journal/journal_repair.h"
#include "support/shell.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* Another process that opens the journal, appends, and holds the lock until it is killed. */
static pid_t start_holder(struct fixture *f)
{
    int ready[2];
    char byte;
    journal_set_free(&f->set);
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        if (try_open(f) != JOURNAL_OK)
            _exit(1);
        put(f, "theirs");
        if (write(ready[1], "r", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    assert_true(child > 0);
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return child;
}

static void kill_holder(pid_t child)
{
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
}

static void count_frames(const struct inspect_event *e, void *arg)
{
    *(unsigned *)arg += e->kind == INSPECT_FRAME && e->frame->kind == FRAME_DATA;
    assert_true(e->kind != INSPECT_DAMAGE && e->kind != INSPECT_MISSING);
}

static void test_a_second_process_is_refused(void **state)
{
    struct fixture *f = *state;
    struct journal_repair how = {.dir = f->dir};
    struct journal_repaired done;
    unsigned frames = 0;
    put(f, "ours");
    pid_t child = start_holder(f);
    journal_lock_timeout = 0;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(try_open(f), JOURNAL_IN_USE);
        assert_non_null(strstr(f->error, f->dir));
        assert_int_equal(journal_repair(&how, &done, f->error, sizeof f->error), JOURNAL_IN_USE);
        assert_non_null(strstr(f->error, f->dir));
    }
    assert_int_equal(journal_inspect(f->dir, count_frames, &frames, f->error, sizeof f->error), JOURNAL_OK);
    assert_int_equal(frames, 2);
    shell("test -z \"$(ls -d %s~* %s/*.new 2>/dev/null)\"", f->dir, f->dir);
    kill_holder(child);
    assert_int_equal(try_open(f), JOURNAL_OK);
    assert_content(f, "ourstheirs");
    put(f, "ours");
}

static void test_a_second_opening_by_one_process_is_refused(void **state)
{
    struct fixture *f = *state, second = *f;
    journal_lock_timeout = 0;
    assert_int_equal(try_open(&second), JOURNAL_IN_USE);
    journal_close(&f->j);
    assert_int_equal(try_open(&second), JOURNAL_OK);
    put(&second, "second");
    journal_set_free(&second.set);
    journal_set_free(&f->set);
    assert_int_equal(try_open(f), JOURNAL_OK);
    assert_content(f, "second");
}

static struct io_ops ending;
static pid_t holder, killer;

/* Somebody comes for the holder's directory: it ends a while after. */
static int ending_open(const char *path, int flags, mode_t mode)
{
    io = &io_system;
    int fd = open(path, flags, mode);
    killer = fork();
    if (killer == 0) {
        usleep(100000);
        _exit(kill(holder, SIGKILL) != 0);
    }
    return fd;
}

/* The kernel closes a killed process's files a moment after its death. */
static void test_opening_waits_for_a_killed_process(void **state)
{
    struct fixture *f = *state;
    int status;
    holder = start_holder(f);
    journal_lock_timeout = PATIENCE;
    ending = io_system;
    ending.open = ending_open;
    io = &ending;
    assert_int_equal(try_open(f), JOURNAL_OK);
    assert_content(f, "theirs");
    assert_int_equal(waitpid(holder, NULL, 0), holder);
    assert_int_equal(waitpid(killer, &status, 0), killer);
    assert_int_equal(status, 0);
}

/* Inspection while the owner works: changes between two reads of one call. */

struct onlooker {
    struct fixture *f;
    int frames, act_at; /* after so many frames */
    void (*act)(struct fixture *f);
};

static void act_then(const struct inspect_event *e, void *arg)
{
    struct onlooker *o = arg;
    if (e->kind == INSPECT_FRAME && ++o->frames == o->act_at)
        o->act(o->f);
    assert_true(e->kind != INSPECT_DAMAGE && e->kind != INSPECT_MISSING);
}

static enum journal_result look_and_act(
    struct fixture *f, int act_at, void (*act)(struct fixture *f), int *frames)
{
    struct onlooker o = {.f = f, .act_at = act_at, .act = act};
    enum journal_result r = journal_inspect(f->dir, act_then, &o, f->error, sizeof f->error);
    assert_true(o.frames >= act_at);
    *frames = o.frames;
    return r;
}

static void append_two(struct fixture *f)
{
    put(f, "second");
    put(f, "third");
}

/* The inspection has met the end; then a frame appears behind it that calls more bytes synced. */
static void test_appends_during_an_inspection_are_no_damage(void **state)
{
    struct fixture *f = *state;
    int frames;
    put(f, "first");
    assert_int_equal(look_and_act(f, 2, append_two, &frames), JOURNAL_OK); /* the table is one */
    assert_int_equal(frames, 4);
}

/* As a trim does that makes the file the spare one, and the segment that then begins in it. */
static void use_first_again(struct fixture *f)
{
    char *spare = dir_path(f->dir, PREALLOC_NAME);
    assert_int_equal(rename(f->j->segments[0]->path, spare), 0);
    for (off_t at = 0; at < 700000; at += 1000)
        flip(spare, at);
    free(spare);
}

static struct fixture *used_first;
static struct io_ops using;

/* The file was opened by its name, and nothing is read yet. */
static ssize_t using_pread(int fd, void *p, size_t n, off_t at)
{
    if (used_first)
        use_first_again(used_first);
    used_first = NULL;
    return pread(fd, p, n, at);
}

static int open_no_spare(const char *path, int flags, mode_t mode)
{
    if (!strstr(path, "/spare"))
        return open(path, flags, mode);
    errno = ENOSPC;
    return -1;
}

static bool spare_is_refused(struct journal *j)
{
    set_lock(j->set);
    bool is = j->prealloc.state == PREALLOC_NO_SPACE;
    set_unlock(j->set);
    return is;
}

static void put_first_back(struct fixture *f)
{
    char *spare = dir_path(f->dir, PREALLOC_NAME);
    for (off_t at = 0; at < 700000; at += 1000)
        flip(spare, at);
    assert_int_equal(rename(spare, f->j->segments[0]->path), 0);
    free(spare);
}

static void test_a_file_recycled_during_an_inspection_is_no_damage(void **state)
{
    struct fixture *f = *state;
    char *text = mem_zalloc(100001);
    int frames, fewer;
    memset(text, 'x', 100000);
    segment_bytes = 700000;
    using = io_system;
    using.open = open_no_spare; /* the filler's file would take the name of the recycled one */
    io = &using;
    reopen(f);
    while (f->j->n_segments < 2)
        put(f, text);
    while (!spare_is_refused(f->j))
        sched_yield();
    io = &io_system;
    free(text);
    assert_int_equal(look_and_act(f, 2, use_first_again, &frames), JOURNAL_OK);
    put_first_back(f);
    using = io_system;
    using.pread = using_pread;
    used_first = f;
    io = &using;
    assert_int_equal(look_and_act(f, 1, append_two, &fewer), JOURNAL_OK);
    io = &io_system;
    assert_null(used_first);
    assert_true(fewer < frames && frames < 2 + 7);
    put_first_back(f);
}

/* Inspects in another process until *stop. Returns whether it reported damage. */
static int look_on(const char *dir, const int *stop)
{
    char error[512];
    int wrong = 0;
    for (int i = 0; (i < 100 || !__atomic_load_n(stop, __ATOMIC_SEQ_CST)) && !wrong; i++) {
        unsigned frames = 0;
        enum journal_result r = journal_inspect(dir, count_frames, &frames, error, sizeof error);
        wrong = r != JOURNAL_OK;
        if (wrong)
            fprintf(stderr, "%d: %s\n", (int)r, error);
    }
    return wrong;
}

/* Nothing counts as damage while the owner appends, rolls, trims and recycles files. */
static void test_inspection_of_a_journal_in_use_reports_no_damage(void **state)
{
    struct fixture *f = *state;
    int status, *stop = mmap(NULL, sizeof *stop, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(stop != MAP_FAILED);
    segment_bytes = 20000;
    journal_set_free(&f->set); /* a fork of a threaded process could inherit a held lock */
    pid_t child = fork();
    if (child == 0)
        _exit(look_on(f->dir, stop));
    assert_int_equal(try_open(f), JOURNAL_OK);
    bool recycled = false;
    for (int i = 0; i < 600 || !recycled; i++) {
        fill_segments(f, 1, 1);
        if (i % 7 == 0 && i > 60)
            journal_trim(f->j, journal_committed_end(f->j) - 40000);
        recycled = recycled || f->j->writer.recycled;
    }
    __atomic_store_n(stop, 1, __ATOMIC_SEQ_CST);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    munmap(stop, sizeof *stop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_a_second_process_is_refused),
        T(test_a_second_opening_by_one_process_is_refused),
        T(test_opening_waits_for_a_killed_process),
        T(test_appends_during_an_inspection_are_no_damage),
        T(test_a_file_recycled_during_an_inspection_is_no_damage),
        T(test_inspection_of_a_journal_in_use_reports_no_damage),
    };
    log_init("test", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
