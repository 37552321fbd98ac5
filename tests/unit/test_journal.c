/* The journal as its owner sees it, on real files in a directory of its own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "io.h"
#include "journal.h"
#include "journal_internal.h"
#include "log.h"

#include <errno.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

struct fixture {
    char dir[64];
    char error[256];
    struct journal_set *set;
    struct journal *j;
};

static int64_t sync_ms;
static size_t segment_bytes;
static size_t max_producers;

static enum journal_result try_open(struct fixture *f)
{
    struct journal_set_config sc = {.sync_ms = sync_ms};
    struct journal_config jc = {
        .dir = f->dir, .segment_bytes = segment_bytes, .max_producers = max_producers};
    f->set = journal_set_new(&sc);
    enum journal_result r = journal_open(f->set, &jc, &f->j, f->error, sizeof f->error);
    if (r != JOURNAL_OK)
        journal_set_free(&f->set);
    return r;
}

static void reopen(struct fixture *f)
{
    journal_set_free(&f->set);
    assert_int_equal(try_open(f), JOURNAL_OK);
}

static int setup(void **state)
{
    struct fixture *f = mem_zalloc(sizeof *f);
    sync_ms = 0;
    segment_bytes = 0;
    max_producers = 0;
    strcpy(f->dir, "/tmp/test-journal-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    assert_int_equal(try_open(f), JOURNAL_OK);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    char command[128];
    io = &io_system;
    journal_set_free(&f->set);
    snprintf(command, sizeof command, "rm -r %s", f->dir);
    assert_int_equal(system(command), 0);
    free(f);
    return 0;
}

struct answer {
    int calls;
    struct journal_commit commit;
};

static void on_commit(const struct journal_commit *c, void *arg)
{
    struct answer *a = arg;
    a->calls++;
    a->commit = *c;
}

static enum journal_result append(struct fixture *f, const char *producer, uint64_t mark, uint64_t next,
    const char *text, struct answer *answer)
{
    struct bytes piece = bytes_str(text);
    struct journal_append a = {bytes_str(producer), mark, next, &piece, piece.len ? 1 : 0};
    *answer = (struct answer){0};
    return journal_append(f->j, &a, 1000, on_commit, answer, NULL);
}

static struct answer put(struct fixture *f, const char *text)
{
    struct answer a;
    assert_int_equal(append(f, "", 0, 0, text, &a), JOURNAL_OK);
    journal_set_flush(f->set);
    assert_int_equal(a.calls, 1);
    return a;
}

static bool gather(uint64_t offset, usec_t time, struct bytes payload, void *arg)
{
    (void)offset;
    (void)time;
    buf_append_bytes(arg, payload);
    return true;
}

static void assert_content(struct fixture *f, const char *text)
{
    struct buf b = {0};
    assert_int_equal(journal_scan(f->j, journal_earliest(f->j), gather, &b), JOURNAL_OK);
    buf_append_char(&b, 0);
    assert_string_equal(b.ptr, text);
    buf_free(&b);
}

static void test_appends_are_kept(void **state)
{
    struct fixture *f = *state;
    char id[JOURNAL_ID_TEXT];
    strcpy(id, journal_id(f->j));
    assert_int_equal(put(f, "one").commit.end, 3);
    assert_int_equal(put(f, "two").commit.start, 3);
    assert_int_equal(journal_committed_end(f->j), 6);
    for (int i = 0; i < 3; i++) {
        reopen(f);
        assert_string_equal(journal_id(f->j), id);
        assert_int_equal(journal_committed_end(f->j), 6 + i);
        assert_int_equal(journal_cut_bytes(f->j), 0);
        put(f, "x");
    }
    assert_content(f, "onetwoxxx");
}

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

static void test_segments_roll_and_are_trimmed(void **state)
{
    struct fixture *f = *state;
    struct answer a;
    segment_bytes = 4096;
    reopen(f);
    append(f, "p", 0, 77, "", &a);
    char line[1001];
    memset(line, 'a', 1000);
    line[1000] = 0;
    for (int i = 0; i < 50; i++)
        put(f, line);
    uint64_t disk = journal_disk_bytes(f->j);
    assert_int_equal(journal_trim(f->j, 25000), JOURNAL_OK);
    assert_true(journal_earliest(f->j) > 15000 && journal_earliest(f->j) <= 25000);
    assert_true(journal_disk_bytes(f->j) < disk);
    uint64_t earliest = journal_earliest(f->j);
    reopen(f);
    assert_int_equal(journal_earliest(f->j), earliest);
    assert_int_equal(journal_mark(f->j, bytes_str("p"), NULL), 77);
    assert_int_equal(journal_committed_end(f->j), 50000);
}

struct seen {
    int calls;
    struct journal_window w;
    struct buf data;
};

static void on_window(const struct journal_window *w, void *arg)
{
    struct seen *s = arg;
    s->calls++;
    s->w = *w;
    buf_append_bytes(&s->data, w->data);
}

static void wait_read(struct fixture *f, struct journal_reader *r, size_t max, struct seen *s)
{
    int before = s->calls;
    journal_reader_read(r, max, on_window, s);
    while (s->calls == before)
        set_wait(f->set);
}

static void test_readers_follow(void **state)
{
    struct fixture *f = *state;
    struct journal_reader *r;
    struct journal_edges edges;
    segment_bytes = 4096;
    reopen(f);
    struct buf all = {0};
    for (int i = 0; i < 400; i++) {
        char line[64];
        snprintf(line, sizeof line, "line %d is here\n", i);
        buf_append_str(&all, line);
        put(f, line);
    }
    for (size_t max = 1; max < 100000; max = max * 3 + 1) {
        struct seen s = {0};
        assert_int_equal(journal_reader_open(f->j, 7, &r, &edges), JOURNAL_OK);
        do
            wait_read(f, r, max, &s);
        while (s.w.result == JOURNAL_OK);
        assert_int_equal(s.w.result, JOURNAL_END);
        assert_int_equal(s.data.len, all.len - 7);
        assert_memory_equal(s.data.ptr, all.ptr + 7, s.data.len);
        journal_reader_close(&r);
        buf_free(&s.data);
    }
    assert_int_equal(journal_reader_open(f->j, all.len + 1, &r, &edges), JOURNAL_BEYOND);
    buf_free(&all);
}

static char *last_segment_path(struct fixture *f)
{
    return mem_strdup(journal_last_segment(f->j)->path);
}

static void test_a_tail_is_cut_anywhere(void **state)
{
    struct fixture *f = *state;
    put(f, "kept");
    journal_set_free(&f->set);
    assert_int_equal(try_open(f), JOURNAL_OK);
    char *path = last_segment_path(f);
    journal_set_free(&f->set);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    off_t before = st.st_size;
    for (off_t cut = before + 1; cut < before + 100; cut++) {
        assert_int_equal(try_open(f), JOURNAL_OK);
        put(f, "torn away");
        journal_set_free(&f->set);
        assert_int_equal(truncate(path, cut), 0);
        assert_int_equal(try_open(f), JOURNAL_OK);
        uint64_t end = journal_committed_end(f->j);
        assert_true(end == 4);
        journal_set_free(&f->set);
        assert_int_equal(truncate(path, before), 0);
    }
    free(path);
    assert_int_equal(try_open(f), JOURNAL_OK);
    assert_content(f, "kept");
}

/* The files as they are now, in a directory of their own, as if the process had been killed. */
static void open_killed_copy(struct fixture *f)
{
    char command[256];
    snprintf(command, sizeof command, "cp -r %s %s.copy", f->dir, f->dir);
    assert_int_equal(system(command), 0);
    journal_set_free(&f->set);
    snprintf(command, sizeof command, "rm -r %s && mv %s.copy %s", f->dir, f->dir, f->dir);
    assert_int_equal(system(command), 0);
    assert_int_equal(try_open(f), JOURNAL_OK);
}

static struct io_ops faulty;
static int fault_errno, fault_countdown;

static int failing_fdatasync(int fd)
{
    if (fault_countdown > 0 && --fault_countdown == 0) {
        errno = fault_errno;
        return -1;
    }
    return fdatasync(fd);
}

/* The first write waits until the test has appended more; the second leaves all its bytes and says there is no room. */
static sem_t appended;

static ssize_t failing_pwrite(int fd, const void *p, size_t n, off_t at)
{
    ssize_t did = pwrite(fd, p, n, at);
    if (fault_countdown == 2)
        sem_wait(&appended);
    if (fault_countdown == 0 || --fault_countdown > 0)
        return did;
    errno = fault_errno;
    return -1;
}

static void test_no_space_heals(void **state)
{
    struct fixture *f = *state;
    struct answer first, a, b, c;
    sync_ms = JOURNAL_SYNC_NEVER;
    reopen(f);
    sem_init(&appended, 0, 0);
    faulty = io_system;
    faulty.pwrite = failing_pwrite;
    fault_errno = ENOSPC;
    fault_countdown = 2;
    io = &faulty;
    assert_int_equal(append(f, "", 0, 0, "kept", &first), JOURNAL_OK);
    for (bool taken = false; !taken; sched_yield()) {
        pthread_mutex_lock(&f->set->lock);
        taken = f->j->pending == NULL;
        pthread_mutex_unlock(&f->set->lock);
    }
    assert_int_equal(append(f, "p", 0, 1, "refused", &a), JOURNAL_OK);
    assert_int_equal(append(f, "p", 1, 2, "behind", &b), JOURNAL_OK);
    sem_post(&appended);
    journal_set_flush(f->set);
    assert_int_equal(first.commit.result, JOURNAL_OK);
    assert_int_equal(a.commit.result, JOURNAL_NO_SPACE);
    assert_int_equal(b.commit.result, JOURNAL_NO_SPACE);
    assert_int_equal(journal_mark(f->j, bytes_str("p"), NULL), 0);
    assert_int_equal(append(f, "p", 0, 1, " again.", &c), JOURNAL_OK);
    journal_set_flush(f->set);
    assert_int_equal(c.commit.result, JOURNAL_OK);
    assert_int_equal(journal_set_pending(f->set), 0);
    open_killed_copy(f);
    assert_content(f, "kept again.");
    io = &io_system;
}

static void test_a_failed_sync_latches(void **state)
{
    struct fixture *f = *state;
    struct answer a, b;
    put(f, "kept");
    faulty = io_system;
    faulty.fdatasync = failing_fdatasync;
    fault_errno = EIO;
    fault_countdown = 1;
    io = &faulty;
    assert_int_equal(append(f, "", 0, 0, "refused", &a), JOURNAL_OK);
    journal_set_flush(f->set);
    assert_int_equal(a.commit.result, JOURNAL_LATCHED);
    assert_int_equal(append(f, "", 0, 0, "more", &b), JOURNAL_LATCHED);
    assert_non_null(journal_failure(f->j));
    assert_content(f, "kept");
}

static uint8_t pretended_boot;

static void pretend_boot(uint8_t out[16])
{
    memset(out, pretended_boot, 16);
}

static void test_never_makes_a_hole_only_after_a_reboot(void **state)
{
    struct fixture *f = *state;
    struct journal_edges edges;
    struct journal_reader *r;
    struct seen s = {0};
    void (*kernel)(uint8_t *) = journal_boot_id;
    journal_boot_id = pretend_boot;
    sync_ms = JOURNAL_SYNC_NEVER;
    reopen(f);
    put(f, "one");
    open_killed_copy(f);
    assert_int_equal(journal_committed_end(f->j), 3);
    put(f, "two");
    pretended_boot = 1;
    open_killed_copy(f);
    assert_int_equal(journal_committed_end(f->j), JOURNAL_HOLE);
    put(f, "three");
    pretended_boot = 2;
    reopen(f);
    assert_int_equal(journal_committed_end(f->j), JOURNAL_HOLE + 5);
    assert_content(f, "onetwothree");
    assert_int_equal(journal_reader_open(f->j, 7, &r, &edges), JOURNAL_GONE);
    assert_true(edges.before == 6 && edges.after == JOURNAL_HOLE);
    assert_int_equal(journal_reader_open(f->j, 6, &r, &edges), JOURNAL_OK);
    wait_read(f, r, 100, &s);
    assert_int_equal(s.w.result, JOURNAL_GONE);
    journal_reader_close(&r);
    journal_boot_id = kernel;
}

static void flip(const char *path, off_t at)
{
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    fseek(file, at, SEEK_SET);
    int c = fgetc(file);
    fseek(file, at, SEEK_SET);
    fputc(c ^ 4, file);
    fclose(file);
}

static void test_damage_below_the_durable_offset_is_refused(void **state)
{
    struct fixture *f = *state;
    put(f, "first");
    put(f, "second");
    struct answer a;
    append(f, "p", 0, 1, "", &a);
    journal_set_flush(f->set);
    append(f, "p", 1, 2, "", &a);
    journal_set_flush(f->set);
    put(f, "third");
    char *path = last_segment_path(f);
    off_t end = (off_t)f->j->writer.position - 64 - 8;
    journal_set_free(&f->set);
    for (off_t at = 0; at < end; at++) {
        flip(path, at);
        enum journal_result r = try_open(f);
        if (r == JOURNAL_OK)
            print_message("byte %ld was not missed\n", (long)at);
        assert_true(r == JOURNAL_DAMAGED || (r == JOURNAL_NEWER && at >= 8 && at < 12));
        assert_non_null(strstr(f->error, ".seg"));
        flip(path, at);
    }
    free(path);
    assert_int_equal(try_open(f), JOURNAL_OK);
    assert_content(f, "firstsecondthird");
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_appends_are_kept),
        T(test_marks_make_retries_harmless),
        T(test_segments_roll_and_are_trimmed),
        T(test_readers_follow),
        T(test_a_tail_is_cut_anywhere),
        T(test_no_space_heals),
        T(test_a_failed_sync_latches),
        T(test_never_makes_a_hole_only_after_a_reboot),
        T(test_damage_below_the_durable_offset_is_refused),
    };
    log_init("test", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
