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
#include <fcntl.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
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
    struct journal_append a = {bytes_str(producer), mark, next, &piece, piece.len ? 1 : 0, 0};
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

/* The files as they are now, as if the process had been killed. */
static void kill_into_copy(struct fixture *f)
{
    char command[256];
    snprintf(command, sizeof command, "cp -r %s %s.copy", f->dir, f->dir);
    assert_int_equal(system(command), 0);
    journal_set_free(&f->set);
    snprintf(command, sizeof command, "rm -r %s && mv %s.copy %s", f->dir, f->dir, f->dir);
    assert_int_equal(system(command), 0);
}

static void open_killed_copy(struct fixture *f)
{
    kill_into_copy(f);
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

/* ---- marks ---- */

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
    assert_int_equal(journal_producers(f->j), 2);
    assert_int_equal(append(f, "c", 0, 1, "x", &a), JOURNAL_TOO_MANY_PRODUCERS);
    assert_int_equal(append(f, "b", 1, 2, "y", &a), JOURNAL_OK);
    put(f, "nobody's");
    assert_content(f, "xxynobody's");
}

/* Its numbers are behind: what it sends again is known, what straddles the mark is nobody's guess. */
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

static void fill_segments(struct fixture *f, int lines, usec_t time)
{
    char line[1001];
    memset(line, 'a', 1000);
    line[1000] = 0;
    struct bytes piece = bytes_str(line);
    struct journal_append a = {.pieces = &piece, .n_pieces = 1};
    struct answer answer = {0};
    for (int i = 0; i < lines; i++) {
        assert_int_equal(journal_append(f->j, &a, time + i, on_commit, &answer, NULL), JOURNAL_OK);
        journal_set_flush(f->set);
    }
}

static void settle(struct fixture *f)
{
    while (f->j->jobs)
        set_wait(f->set);
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
    assert_int_equal(journal_retain(f->j, &keep, 1), JOURNAL_OK);
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

/* ---- letting go ---- */

static void test_retention_by_age_bytes_and_cursor(void **state)
{
    struct fixture *f = *state;
    segment_bytes = 4096;
    reopen(f);
    fill_segments(f, 40, 1000);
    struct journal_retention keep = {.max_age = 100, .hold = UINT64_MAX};
    assert_int_equal(journal_retain(f->j, &keep, 1100), JOURNAL_OK);
    assert_int_equal(journal_earliest(f->j), 0);
    assert_int_equal(journal_retain(f->j, &keep, 1120), JOURNAL_OK);
    uint64_t aged = journal_earliest(f->j);
    assert_true(aged > 10000 && aged <= 20000);
    keep = (struct journal_retention){.max_bytes = 1, .hold = 25500};
    assert_int_equal(journal_retain(f->j, &keep, 1), JOURNAL_OK);
    assert_true(journal_earliest(f->j) > aged && journal_earliest(f->j) <= 25500);
    settle(f);
    uint64_t earliest = journal_earliest(f->j);
    reopen(f);
    assert_int_equal(journal_earliest(f->j), earliest);
}

static void test_a_reader_holds_its_segment(void **state)
{
    struct fixture *f = *state;
    struct journal_reader *r;
    struct journal_edges edges;
    struct seen s = {0};
    segment_bytes = 4096;
    reopen(f);
    fill_segments(f, 40, 1);
    assert_int_equal(journal_reader_open(f->j, 500, &r, &edges), JOURNAL_OK);
    char *path = mem_strdup(f->j->segments[0]->path);
    assert_int_equal(journal_trim(f->j, 30000), JOURNAL_OK);
    settle(f);
    assert_int_equal(access(path, F_OK), 0);
    wait_read(f, r, 100, &s);
    assert_true(s.w.result == JOURNAL_OK && s.w.offset == 500 && s.w.data.len == 100);
    journal_reader_close(&r);
    settle(f);
    assert_int_not_equal(access(path, F_OK), 0);
    assert_int_equal(journal_reader_open(f->j, 500, &r, &edges), JOURNAL_GONE);
    assert_int_equal(edges.after, journal_earliest(f->j));
    buf_free(&s.data);
    free(path);
}

static void test_seek_by_time(void **state)
{
    struct fixture *f = *state;
    uint64_t offset;
    segment_bytes = 4096;
    reopen(f);
    assert_int_equal(journal_seek_time(f->j, 5, &offset), JOURNAL_OK);
    assert_int_equal(offset, 0);
    fill_segments(f, 40, 1000);
    for (usec_t t = 990; t < 1045; t++) {
        uint64_t expected = t < 1000 ? 0 : t < 1040 ? (uint64_t)(t - 1000) * 1000 : 40000;
        assert_int_equal(journal_seek_time(f->j, t, &offset), JOURNAL_OK);
        assert_int_equal(offset, expected);
    }
}

/* ---- what is refused and left alone ---- */

static void write_file_of(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* Every name, size, time and byte of the directory. */
static char *portrait(struct fixture *f)
{
    char command[512], path[128];
    snprintf(path, sizeof path, "%s.portrait", f->dir);
    snprintf(command, sizeof command, "cd %s && (stat -c '%%n %%s %%Y %%Z' * . ; cat * | md5sum) >%s", f->dir,
        path);
    assert_int_equal(system(command), 0);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    char *text = mem_zalloc(65536);
    assert_true(fread(text, 1, 65535, file) > 0);
    fclose(file);
    unlink(path);
    return text;
}

static void test_a_newer_version_is_left_untouched(void **state)
{
    struct fixture *f = *state;
    segment_bytes = 4096;
    reopen(f);
    fill_segments(f, 20, 1);
    char *path = last_segment_path(f), tail[128];
    off_t torn = (off_t)f->j->writer.position - 20;
    journal_set_free(&f->set);
    assert_int_equal(truncate(path, torn), 0); /* it would be cut, were it ours */
    FILE *file = fopen(path, "r+");
    fseek(file, 8, SEEK_SET);
    fputc(2, file);
    fclose(file);
    snprintf(tail, sizeof tail, "%s/spare.new", f->dir);
    write_file_of(tail, "left over");
    char *before = portrait(f);
    assert_int_equal(try_open(f), JOURNAL_NEWER);
    assert_non_null(strstr(f->error, path));
    char *after = portrait(f);
    assert_string_equal(after, before);
    free(before);
    free(after);
    free(path);
}

static void test_a_missing_segment_and_a_strange_one_are_refused(void **state)
{
    struct fixture *f = *state;
    segment_bytes = 4096;
    reopen(f);
    fill_segments(f, 20, 1);
    char *second = mem_strdup(f->j->segments[1]->path), away[128];
    journal_set_free(&f->set);
    snprintf(away, sizeof away, "%s/away", f->dir);
    assert_int_equal(rename(second, away), 0);
    assert_int_equal(try_open(f), JOURNAL_DAMAGED);
    assert_non_null(strstr(f->error, "missing"));
    write_file_of(second, "this is no segment at all, but it stands where one should be standing, "
                          "and is long enough to have had a header, if only it had wanted one");
    assert_int_equal(try_open(f), JOURNAL_DAMAGED);
    assert_non_null(strstr(f->error, second));
    assert_int_equal(rename(away, second), 0);
    assert_int_equal(try_open(f), JOURNAL_OK);
    free(second);
}

/* ---- a flipped bit in any segment ---- */

static bool same_bytes(uint64_t offset, usec_t time, struct bytes payload, void *arg)
{
    (void)time;
    uint64_t *next = arg;
    assert_int_equal(offset, *next);
    for (size_t i = 0; i < payload.len; i++)
        assert_int_equal((unsigned char)payload.ptr[i], (unsigned char)((offset + i) * 7));
    *next = offset + payload.len;
    return true;
}

static void check_served(const struct journal_window *w, void *arg)
{
    struct seen *s = arg;
    s->calls++;
    s->w = *w;
    for (size_t i = 0; i < w->data.len; i++)
        assert_int_equal((unsigned char)w->data.ptr[i], (unsigned char)((w->offset + i) * 7));
}

static void assert_found_by_readers(struct fixture *f, const char *path)
{
    struct journal_reader *r;
    struct journal_edges edges;
    struct seen s = {0};
    uint64_t next = 0;
    assert_int_equal(journal_scan(f->j, 0, same_bytes, &next), JOURNAL_DAMAGED);
    assert_non_null(strstr(journal_failure(f->j), path));
    assert_non_null(strstr(journal_failure(f->j), "at byte"));
    f->j->failure[0] = 0;
    assert_int_equal(journal_reader_open(f->j, 0, &r, &edges), JOURNAL_OK);
    do {
        int before = s.calls;
        journal_reader_read(r, 100, check_served, &s);
        while (s.calls == before)
            set_wait(f->set);
    } while (s.w.result == JOURNAL_OK);
    assert_int_equal(s.w.result, JOURNAL_DAMAGED);
    assert_non_null(strstr(journal_failure(f->j), path));
    journal_reader_close(&r);
}

static void test_a_flipped_bit_is_found_and_never_served(void **state)
{
    struct fixture *f = *state;
    char bytes[150];
    segment_bytes = 512;
    reopen(f);
    for (uint64_t at = 0; at < 4500; at += sizeof bytes) {
        struct bytes piece = bytes_of(bytes, sizeof bytes);
        struct journal_append a = {.pieces = &piece, .n_pieces = 1};
        struct answer answer;
        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = (char)((at + i) * 7);
        assert_int_equal(journal_append(f->j, &a, 1, on_commit, &answer, NULL), JOURNAL_OK);
        journal_set_flush(f->set);
    }
    size_t n = f->j->n_segments - 1;
    assert_true(n > 5);
    char **paths = mem_alloc(n * sizeof *paths);
    for (size_t i = 0; i < n; i++)
        paths[i] = mem_strdup(f->j->segments[i]->path);
    journal_set_free(&f->set);
    for (size_t i = 0; i < n; i++) {
        struct stat st;
        assert_int_equal(stat(paths[i], &st), 0);
        for (off_t at = (off_t)(i % 3); at < st.st_size; at += 3) {
            flip(paths[i], at);
            enum journal_result r = try_open(f);
            if (r == JOURNAL_OK)
                assert_found_by_readers(f, paths[i]);
            else
                assert_true(strstr(f->error, paths[i]) && (r == JOURNAL_DAMAGED || r == JOURNAL_NEWER));
            journal_set_free(&f->set);
            flip(paths[i], at);
        }
        free(paths[i]);
    }
    free(paths);
    assert_int_equal(try_open(f), JOURNAL_OK);
}

/* ---- failing storage ---- */

enum failing { FAIL_WRITE, FAIL_FSYNC, FAIL_RENAME, FAIL_TRUNCATE };
static enum failing failing_what;

static bool fails_now(enum failing what)
{
    if (what != failing_what || fault_countdown == 0 || --fault_countdown > 0)
        return false;
    errno = fault_errno;
    return true;
}

static ssize_t maybe_pwrite(int fd, const void *p, size_t n, off_t at)
{
    return fails_now(FAIL_WRITE) ? -1 : pwrite(fd, p, n, at);
}

static int maybe_fsync(int fd)
{
    return fails_now(FAIL_FSYNC) ? -1 : fsync(fd);
}

static int maybe_fdatasync(int fd)
{
    return fails_now(FAIL_FSYNC) ? -1 : fdatasync(fd);
}

static int maybe_rename(const char *from, const char *to)
{
    return fails_now(FAIL_RENAME) ? -1 : rename(from, to);
}

/* The nth such operation from now fails so. What then comes of three appends, each of which fills a segment. */
static enum journal_result after_failure(struct fixture *f, enum failing what, int nth, int system)
{
    enum journal_result worst = JOURNAL_OK;
    char line[5001];
    memset(line, 'x', 5000);
    line[5000] = 0;
    faulty = io_system;
    faulty.pwrite = maybe_pwrite;
    faulty.fsync = maybe_fsync;
    faulty.fdatasync = maybe_fdatasync;
    faulty.rename = maybe_rename;
    failing_what = what;
    fault_errno = system;
    fault_countdown = nth;
    io = &faulty;
    for (int i = 0; i < 3; i++) {
        struct answer a;
        enum journal_result r = append(f, "", 0, 0, line, &a);
        journal_set_flush(f->set);
        r = r == JOURNAL_OK ? a.commit.result : r;
        worst = r != JOURNAL_OK ? r : worst;
    }
    journal_set_free(&f->set);
    io = &io_system;
    assert_int_equal(try_open(f), JOURNAL_OK);
    return worst;
}

/* Whichever of a commit's and a roll's operations it is: with no room a write is refused and the next one works; a sync
 * never heals, not even one that says that there is no room. */
static void test_what_latches_and_what_heals(void **state)
{
    struct fixture *f = *state;
    segment_bytes = 4096;
    reopen(f);
    fill_segments(f, 10, 1);
    for (int nth = 1; nth <= 4; nth++) {
        enum journal_result full = after_failure(f, FAIL_WRITE, nth, ENOSPC);
        assert_true(full == JOURNAL_OK || full == JOURNAL_NO_SPACE);
        full = after_failure(f, FAIL_WRITE, nth, EDQUOT);
        assert_true(full == JOURNAL_OK || full == JOURNAL_NO_SPACE);
        assert_int_equal(after_failure(f, FAIL_WRITE, nth, EIO), JOURNAL_LATCHED);
        assert_int_equal(after_failure(f, FAIL_FSYNC, nth, EIO), JOURNAL_LATCHED);
        assert_int_equal(after_failure(f, FAIL_FSYNC, nth, ENOSPC), JOURNAL_LATCHED);
    }
    put(f, "well again");
}

/* The real thing, where a file system may be mounted. */
static void test_a_full_file_system_heals(void **state)
{
    struct fixture *f = *state;
    struct answer a;
    char line[10001], ballast[128];
    memset(line, 'x', 10000);
    line[10000] = 0;
    journal_set_free(&f->set);
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", f->dir, "tmpfs", 0, "size=1m") != 0) {
        print_message("no file system can be mounted here; the fault layer stands in for it\n");
        assert_int_equal(try_open(f), JOURNAL_OK);
        return;
    }
    segment_bytes = 100000;
    assert_int_equal(try_open(f), JOURNAL_OK);
    put(f, "first");
    snprintf(ballast, sizeof ballast, "%s/ballast", f->dir);
    FILE *file = fopen(ballast, "w");
    for (int i = 0; i < 300 && fwrite(line, 1, 1000, file) == 1000; i++)
        continue;
    fclose(file);
    uint64_t kept = 5;
    enum journal_result r = JOURNAL_OK;
    for (int i = 0; i < 200 && r == JOURNAL_OK; i++) {
        assert_int_equal(append(f, "", 0, 0, line, &a), JOURNAL_OK);
        journal_set_flush(f->set);
        r = a.commit.result;
        kept += r == JOURNAL_OK ? 10000 : 0;
    }
    assert_int_equal(r, JOURNAL_NO_SPACE);
    assert_int_equal(journal_committed_end(f->j), kept);
    assert_null(journal_failure(f->j));
    assert_int_equal(unlink(ballast), 0);
    put(f, "after");
    assert_int_equal(journal_committed_end(f->j), kept + 5);
    reopen(f);
    assert_int_equal(journal_committed_end(f->j), kept + 5);
    journal_set_free(&f->set);
    assert_int_equal(umount(f->dir), 0);
    assert_int_equal(try_open(f), JOURNAL_OK);
}

/* ---- the spare file ---- */

static void wait_spare(struct fixture *f, enum spare_state wanted)
{
    for (;;) {
        pthread_mutex_lock(&f->set->lock);
        enum spare_state is = f->j->spare.state;
        pthread_mutex_unlock(&f->set->lock);
        if (is == wanted)
            return;
        assert_int_not_equal(is, SPARE_REFUSED);
        sched_yield();
    }
}

static void test_a_trimmed_segment_is_used_again(void **state)
{
    struct fixture *f = *state;
    segment_bytes = 20000;
    reopen(f);
    for (int i = 0; i < 200; i++) {
        fill_segments(f, 1, 1);
        journal_trim(f->j, journal_committed_end(f->j));
        settle(f);
    }
    assert_true(f->j->writer.recycled && f->j->writer.prepared);
    uint64_t end = journal_committed_end(f->j), position = f->j->writer.position;
    assert_true(journal_disk_bytes(f->j) < 3 * 22000);
    open_killed_copy(f);
    assert_int_equal(journal_committed_end(f->j), end);
    assert_int_equal(journal_cut_bytes(f->j), 0);
    assert_int_equal(f->j->writer.position, position);
    put(f, "goes on");
    reopen(f);
    assert_int_equal(journal_cut_bytes(f->j), 0);
    assert_int_equal(journal_committed_end(f->j), end + 7);
}

static void test_a_torn_write_in_a_used_file_is_cut(void **state)
{
    struct fixture *f = *state;
    segment_bytes = 20000;
    reopen(f);
    for (int i = 0; i < 205; i++) {
        fill_segments(f, 1, 1);
        journal_trim(f->j, journal_committed_end(f->j));
        settle(f);
    }
    assert_true(f->j->writer.recycled);
    char *path = last_segment_path(f);
    uint64_t end = journal_committed_end(f->j);
    fill_segments(f, 1, 1);
    off_t inside = (off_t)f->j->writer.position - 500;
    kill_into_copy(f);
    flip(path, inside);
    assert_int_equal(try_open(f), JOURNAL_OK);
    assert_int_equal(journal_committed_end(f->j), end);
    assert_true(journal_cut_bytes(f->j) > 0);
    put(f, "goes on");
    open_killed_copy(f);
    assert_int_equal(journal_committed_end(f->j), end + 7);
    free(path);
}

static void test_the_filler_works_ahead(void **state)
{
    struct fixture *f = *state;
    segment_bytes = 40000;
    reopen(f);
    for (int i = 0; i < 30 && f->j->n_segments == 1; i++)
        fill_segments(f, 1, 1);
    assert_int_equal(f->j->n_segments, 2);
    assert_true(f->j->writer.prepared && !f->j->writer.recycled && f->j->writer.filled == 40000);
    fill_segments(f, 8, 1);
    wait_spare(f, SPARE_READY);
    assert_int_equal(f->j->n_segments, 2);
    assert_true(f->j->spare.size == 40000 && !f->j->spare.recycled);
    reopen(f);
    assert_true(f->j->writer.prepared && f->j->writer.filled == 40000);
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
        T(test_more_producers_than_the_bound_are_refused),
        T(test_a_producer_back_from_a_backup),
        T(test_two_processes_with_one_name),
        T(test_retention_keeps_marks),
        T(test_retention_by_age_bytes_and_cursor),
        T(test_a_reader_holds_its_segment),
        T(test_seek_by_time),
        T(test_a_newer_version_is_left_untouched),
        T(test_a_missing_segment_and_a_strange_one_are_refused),
        T(test_a_flipped_bit_is_found_and_never_served),
        T(test_what_latches_and_what_heals),
        T(test_a_full_file_system_heals),
        T(test_a_trimmed_segment_is_used_again),
        T(test_a_torn_write_in_a_used_file_is_cut),
        T(test_the_filler_works_ahead),
    };
    log_init("test", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
