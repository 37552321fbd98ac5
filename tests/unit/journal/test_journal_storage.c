/* Storage that fails or fills up, two committers, and files made ahead of use. */
#include "support/journal_fixture.h"
#include "journal/journal_inspect.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* The first write waits until the test has appended more. The second writes all its bytes and fails with ENOSPC. */
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
    journal_owner_write_max = 0; /* a committer writes, so that appends can queue behind */
    reopen(f);
    sem_init(&appended, 0, 0);
    faulty = io_system;
    faulty.pwrite = failing_pwrite;
    fault_errno = ENOSPC;
    fault_countdown = 2;
    io = &faulty;
    assert_int_equal(append(f, "", 0, 0, "kept", &first), JOURNAL_OK);
    for (bool taken = false; !taken; sched_yield()) {
        set_lock(f->set);
        taken = f->j->pending == NULL;
        set_unlock(f->set);
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
    assert_int_equal(f->set->pending_bytes, 0);
    open_killed_copy(f);
    assert_content(f, "kept again.");
    io = &io_system;
}

struct observed {
    int moves, others;
    const struct answer *answer; /* answered before each observation */
};

static void on_turn(struct journal *j, bool moved, void *arg)
{
    struct observed *o = arg;
    (void)j;
    o->moves += moved;
    o->others += !moved;
    assert_int_equal(o->answer->calls, 1);
}

/* The observer runs after the callbacks of a commit, of a refusal and of a read. */
static void test_the_observer_runs_after_the_callbacks(void **state)
{
    struct fixture *f = *state;
    struct answer a, b;
    struct journal_reader *r;
    struct journal_edges edges;
    struct seen s = {0};
    struct observed o = {.answer = &a};
    journal_observe(f->j, on_turn, &o);
    assert_int_equal(append(f, "", 0, 0, "kept", &a), JOURNAL_OK);
    journal_set_flush(f->set);
    assert_true(o.moves == 1 && o.others == 0);
    faulty = io_system;
    faulty.pwrite = failing_pwrite;
    fault_errno = ENOSPC;
    fault_countdown = 1;
    io = &faulty;
    o.answer = &b;
    assert_int_equal(append(f, "", 0, 0, "refused", &b), JOURNAL_OK);
    journal_set_flush(f->set);
    io = &io_system;
    assert_int_equal(b.commit.result, JOURNAL_NO_SPACE);
    assert_true(o.moves == 1 && o.others == 1);
    assert_int_equal(journal_reader_open(f->j, 0, &r, &edges), JOURNAL_OK);
    wait_read(f, r, 100, &s);
    assert_true(o.moves == 1 && o.others == 2);
    journal_reader_close(&r);
    buf_free(&s.data);
    journal_observe(f->j, NULL, NULL);
    put(f, "more");
    assert_true(o.moves == 1 && o.others == 2);
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

static sem_t sync_begun, sync_may_end;
static unsigned syncs;

/* The first sync waits for the test, then fails if there is a fault. */
static int slow_fdatasync(int fd)
{
    if (__atomic_add_fetch(&syncs, 1, __ATOMIC_SEQ_CST) > 1)
        return fdatasync(fd);
    sem_post(&sync_begun);
    sem_wait(&sync_may_end);
    errno = fault_errno;
    return fault_errno ? -1 : fdatasync(fd);
}

static uint64_t written_position(struct fixture *f)
{
    set_lock(f->set);
    uint64_t position = f->j->writer.position;
    set_unlock(f->set);
    return position;
}

/* Two appends: the second is written while the first is being synced, and neither is acknowledged yet. */
static void write_behind_a_sync(struct fixture *f, int fault, struct answer *first, struct answer *second)
{
    put(f, "kept");
    journal_gather_max = 0;
    sem_init(&sync_begun, 0, 0);
    sem_init(&sync_may_end, 0, 0);
    syncs = 0;
    fault_errno = fault;
    faulty = io_system;
    faulty.fdatasync = slow_fdatasync;
    io = &faulty;
    assert_int_equal(append(f, "p", 0, 1, "first", first), JOURNAL_OK);
    sem_wait(&sync_begun);
    uint64_t before = written_position(f);
    assert_int_equal(append(f, "p", 1, 2, "second", second), JOURNAL_OK);
    while (written_position(f) == before)
        sched_yield();
    journal_set_poll(f->set);
    assert_true(first->calls == 0 && second->calls == 0);
    assert_int_equal(journal_mark(f->j, bytes_str("p"), NULL), 0);
    sem_post(&sync_may_end);
    journal_set_flush(f->set);
}

/* A sync vouches only for bytes written before it began. */
static void test_frames_written_during_a_sync_wait_for_the_next(void **state)
{
    struct fixture *f = *state;
    struct answer first, second;
    write_behind_a_sync(f, 0, &first, &second);
    assert_int_equal(first.commit.result, JOURNAL_OK);
    assert_int_equal(second.commit.result, JOURNAL_OK);
    assert_int_equal(syncs, 2);
    assert_int_equal(journal_mark(f->j, bytes_str("p"), NULL), 2);
    io = &io_system;
    reopen(f);
    assert_content(f, "keptfirstsecond");
}

/* Nothing behind a failed sync is acknowledged, even if its own sync would succeed. */
static void test_a_failed_sync_fails_frames_written_behind_it(void **state)
{
    struct fixture *f = *state;
    struct answer first, second, third;
    write_behind_a_sync(f, EIO, &first, &second);
    assert_int_equal(first.commit.result, JOURNAL_LATCHED);
    assert_int_equal(second.commit.result, JOURNAL_LATCHED);
    assert_int_equal(append(f, "", 0, 0, "third", &third), JOURNAL_LATCHED);
    assert_int_equal(syncs, 1);
    assert_int_equal(journal_mark(f->j, bytes_str("p"), NULL), 0);
    assert_content(f, "kept");
}

/* Whether the writer waits for the sync under way. False: it has begun the next segment instead. */
static bool writer_comes_to_wait(struct fixture *f, uint64_t sequence)
{
    for (;; sched_yield()) {
        set_lock(f->set);
        bool waits = f->set->awaits_sync, begun = f->j->writer.sequence != sequence;
        set_unlock(f->set);
        if (waits || begun)
            return waits && !begun;
    }
}

/* The sync's positions belong to the previous segment's file. */
static void test_no_segment_begins_during_a_sync(void **state)
{
    struct fixture *f = *state;
    struct answer first, second;
    char line[5001];
    memset(line, 'x', 5000);
    line[5000] = 0;
    segment_bytes = 4096;
    reopen(f);
    put(f, "kept");
    journal_gather_max = 0;
    sem_init(&sync_begun, 0, 0);
    sem_init(&sync_may_end, 0, 0);
    syncs = 0;
    fault_errno = 0;
    faulty = io_system;
    faulty.fdatasync = slow_fdatasync;
    io = &faulty;
    uint64_t sequence = f->j->writer.sequence;
    assert_int_equal(append(f, "", 0, 0, line, &first), JOURNAL_OK);
    sem_wait(&sync_begun);
    assert_int_equal(append(f, "", 0, 0, "second", &second), JOURNAL_OK);
    bool waits = writer_comes_to_wait(f, sequence);
    sem_post(&sync_may_end);
    journal_set_flush(f->set);
    io = &io_system;
    assert_true(waits);
    assert_true(first.commit.result == JOURNAL_OK && second.commit.result == JOURNAL_OK);
    assert_int_equal(f->j->writer.sequence, sequence + 1);
    assert_true(f->j->writer.durable == second.commit.end);
    assert_true(f->j->writer.durable_position == f->j->writer.position);
}

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

/* The nth such operation from now fails. Returns the worst result of three appends that each fill a segment. A
 * failure of the filler shows at the next append. */
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
        settle_filler(f);
        r = r == JOURNAL_OK ? a.commit.result : r;
        worst = r != JOURNAL_OK ? r : worst;
    }
    journal_set_free(&f->set);
    io = &io_system;
    assert_int_equal(try_open(f), JOURNAL_OK);
    return worst;
}

/* For each operation of a commit and a roll: a write without space is refused and the next one succeeds; a failed
 * sync latches, even with ENOSPC. */
static void test_what_latches_and_what_heals(void **state)
{
    struct fixture *f = *state;
    segment_bytes = 4096;
    journal_prealloc_idle = 0;
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

/* On a real small file system, where one may be mounted. */
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

/* A cut frees the blocks behind the end. The reserve among them must be allocated again, or a full disk takes no more
 * appends. */
static void test_a_cut_keeps_the_reserve(void **state)
{
    struct fixture *f = *state;
    struct stat st;
    put(f, "kept");
    char *path = last_segment_path(f);
    kill_into_copy(f);
    int fd = open(path, O_RDWR);
    assert_int_equal(fstat(fd, &st), 0);
    if (fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, st.st_size + 300000) == 0) {
        assert_int_equal(pwrite(fd, "torn", 4, st.st_size), 4);
        assert_int_equal(try_open(f), JOURNAL_OK);
        assert_true(journal_cut_bytes(f->j) > 0);
        assert_true(f->j->writer.found >= (uint64_t)st.st_size + 290000);
        assert_int_equal(fstat(fd, &st), 0);
        assert_true((uint64_t)st.st_blocks * 512 >= f->j->writer.found);
    } else {
        assert_int_equal(try_open(f), JOURNAL_OK);
    }
    close(fd);
    free(path);
}

#define RESERVE 300000
static char long_line[4001];

/* Appends with a reserve, to a journal with short segments. Returns false on a file system that cannot reserve. */
static bool append_with_reserve(struct fixture *f)
{
    struct answer a;
    struct bytes piece = bytes_of(long_line, sizeof long_line - 1);
    struct journal_append asks = {.pieces = &piece, .n_pieces = 1, .reserve = RESERVE};
    memset(long_line, 'x', sizeof long_line - 1);
    segment_bytes = 20000;
    sync_ms = JOURNAL_SYNC_NEVER; /* nothing is filled ahead */
    reopen(f);
    assert_int_equal(journal_append(f->j, &asks, 1000, on_commit, &a, NULL), JOURNAL_OK);
    journal_set_flush(f->set);
    return f->j->writer.reserved > 0;
}

static void use_a_part_of_the_reserve(struct fixture *f)
{
    for (int i = 0; i < 8; i++)
        put(f, long_line);
    assert_true(
        f->j->writer.reserved >= f->j->writer.position + RESERVE - 8 * (sizeof long_line + FRAME_HEADER));
}

/* Also when an append without a reserve begins the segment: the disk may be full by then. */
static void test_the_reserve_moves_to_the_next_segment(void **state)
{
    struct fixture *f = *state;
    if (!append_with_reserve(f))
        return;
    use_a_part_of_the_reserve(f);
    assert_true(f->j->n_segments > 1);
}

static bool is_taken; /* another program has taken what was free */

static int taking_ftruncate(int fd, off_t length)
{
    is_taken = true;
    return ftruncate(fd, length);
}

static int refusing_fallocate(int fd, int mode, off_t from, off_t length)
{
    if (!is_taken)
        return fallocate(fd, mode, from, length);
    errno = ENOSPC;
    return -1;
}

/* Another program takes each free block: from the moment when the segment frees its reserve, and always. */
static void test_the_reserve_is_never_free(void **state)
{
    struct fixture *f = *state;
    for (int always = 0; always < 2; always++) {
        is_taken = false;
        if (!append_with_reserve(f))
            return;
        faulty = io_system;
        faulty.ftruncate = taking_ftruncate;
        faulty.fallocate = refusing_fallocate;
        io = &faulty;
        is_taken = always;
        uint64_t sequence = f->j->writer.sequence;
        use_a_part_of_the_reserve(f);
        io = &io_system;
        assert_true((f->j->writer.sequence > sequence) == !always);
    }
}

static void test_a_trimmed_segment_is_recycled(void **state)
{
    struct fixture *f = *state;
    segment_bytes = 20000;
    reopen(f);
    use_files_again(f);
    for (int i = 0; i < 200; i++) {
        fill_and_trim(f);
        assert_true(f->j->writer.recycled && f->j->writer.prepared);
    }
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

/* A backup keeps hard links to segments. */
static void test_a_file_with_another_name_is_not_overwritten(void **state)
{
    struct fixture *f = *state;
    struct buf before = {0}, after = {0};
    char linked[200];
    segment_bytes = 20000;
    reopen(f);
    use_files_again(f);
    fill_and_trim(f);
    snprintf(linked, sizeof linked, "%s/linked", f->dir);
    uint64_t sequence = f->j->writer.sequence;
    char *closed = segment_path(f->dir, sequence, ""), *spare = dir_path(f->dir, PREALLOC_NAME);
    while (f->j->writer.sequence == sequence)
        put(f, "a line");
    assert_int_equal(link(closed, linked), 0);
    assert_int_equal(io_read_file(linked, SIZE_MAX, &before), 0);
    for (int i = 0; i < 20; i++)
        fill_and_trim(f);
    assert_int_not_equal(access(closed, F_OK), 0);
    assert_int_equal(io_read_file(linked, SIZE_MAX, &after), 0);
    assert_true(bytes_equal(buf_bytes(&before), buf_bytes(&after)));
    /* Nor is the spare file that a killed session left between its rename and its check. */
    (void)unlink(spare);
    assert_int_equal(link(linked, spare), 0);
    reopen(f);
    assert_int_not_equal(access(spare, F_OK), 0);
    free(closed);
    free(spare);
    buf_free(&before);
    buf_free(&after);
    unlink(linked);
}

static void test_a_torn_write_in_a_recycled_file_is_cut(void **state)
{
    struct fixture *f = *state;
    segment_bytes = 20000;
    reopen(f);
    use_files_again(f);
    fill_segments(f, 5, 1);
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

/* A recycled segment's table is followed by zeros too: before its first commit nothing is torn. */
static void test_the_start_of_a_recycled_file_is_no_torn_tail(void **state)
{
    struct fixture *f = *state;
    struct answer a;
    segment_bytes = 20000;
    reopen(f);
    use_files_again(f);
    while (f->j->writer.position < segment_bytes)
        fill_segments(f, 1, 1);
    assert_true(f->j->writer.recycled && f->j->prealloc.state == PREALLOC_READY && f->j->prealloc.recycled);
    uint64_t end = journal_committed_end(f->j), sequence = f->j->writer.sequence;
    faulty = io_system;
    faulty.pwrite = maybe_pwrite;
    failing_what = FAIL_WRITE;
    fault_errno = EIO;
    fault_countdown = 2; /* the first is the beginning */
    io = &faulty;
    assert_int_equal(append(f, "", 0, 0, "refused", &a), JOURNAL_OK);
    journal_set_flush(f->set);
    assert_int_equal(a.commit.result, JOURNAL_LATCHED);
    io = &io_system;
    reopen(f);
    assert_int_equal(f->j->writer.sequence, sequence + 1);
    assert_true(f->j->writer.recycled);
    assert_int_equal(journal_committed_end(f->j), end);
    assert_int_equal(journal_cut_bytes(f->j), 0);
}

static ino_t waiting_inode; /* inode of a file whose segment name is gone, not yet durably; 0: none */
static int used_early, used_again;

static ino_t inode_of(int fd)
{
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    return st.st_ino;
}

static int noting_rename(const char *from, const char *to)
{
    struct stat st;
    if (strstr(to, "/spare") && strstr(from, ".seg")) {
        assert_int_equal(stat(from, &st), 0);
        __atomic_store_n(&waiting_inode, st.st_ino, __ATOMIC_SEQ_CST);
        used_again++;
    }
    return rename(from, to);
}

static int noting_fsync(int fd)
{
    struct stat st;
    int failed = fsync(fd);
    if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode))
        __atomic_store_n(&waiting_inode, 0, __ATOMIC_SEQ_CST);
    return failed;
}

static ssize_t noting_pwrite(int fd, const void *p, size_t n, off_t at)
{
    if (inode_of(fd) == __atomic_load_n(&waiting_inode, __ATOMIC_SEQ_CST))
        __atomic_add_fetch(&used_early, 1, __ATOMIC_SEQ_CST);
    return pwrite(fd, p, n, at);
}

/* Or a power cut would leave the old name with new bytes. A committer that takes the spare file waits for that. */
static void test_a_file_is_recycled_once_its_name_is_durably_gone(void **state)
{
    struct fixture *f = *state;
    segment_bytes = 20000;
    reopen(f);
    waiting_inode = 0;
    used_early = used_again = 0;
    faulty = io_system;
    faulty.rename = noting_rename;
    faulty.fsync = noting_fsync;
    faulty.pwrite = noting_pwrite;
    io = &faulty;
    while (used_again < 6)
        fill_and_trim(f);
    assert_int_equal(used_early, 0);
}

static unsigned truncations;

static int counting_ftruncate(int fd, off_t length)
{
    __atomic_add_fetch(&truncations, 1, __ATOMIC_SEQ_CST);
    return ftruncate(fd, length);
}

static int counting_fdatasync(int fd)
{
    __atomic_add_fetch(&syncs, 1, __ATOMIC_SEQ_CST);
    return fdatasync(fd);
}

static void no_event(const struct inspect_event *e, void *arg)
{
    (void)e, (void)arg;
}

/* A segment's first commit costs two syncs, the header's and its own. The previous file is left as it is behind its
 * end. */
static void test_a_recycled_file_is_not_cut(void **state)
{
    struct fixture *f = *state;
    segment_bytes = 20000;
    reopen(f);
    use_files_again(f);
    fill_segments(f, 10, 1);
    assert_true(f->j->writer.recycled && f->j->prealloc.state == PREALLOC_READY);
    faulty = io_system;
    faulty.ftruncate = counting_ftruncate;
    faulty.fdatasync = counting_fdatasync;
    io = &faulty;
    truncations = 0;
    for (uint64_t sequence = f->j->writer.sequence; f->j->writer.sequence == sequence;) {
        syncs = 0;
        fill_segments(f, 1, 1);
    }
    assert_int_equal(truncations, 0);
    assert_int_equal(syncs, 2);
    struct stat st;
    const struct segment *ended = f->j->segments[f->j->n_segments - 2];
    assert_int_equal(stat(ended->path, &st), 0);
    assert_int_equal(st.st_size, ended->size);
    assert_int_equal(journal_inspect(f->dir, no_event, NULL, f->error, sizeof f->error), JOURNAL_OK);
    uint64_t end = journal_committed_end(f->j);
    open_killed_copy(f);
    assert_int_equal(journal_committed_end(f->j), end);
    assert_int_equal(journal_cut_bytes(f->j), 0);
}

/* Whether the spare file is requested and cannot be taken yet. */
static bool is_asked_for(struct fixture *f)
{
    set_lock(f->set);
    enum prealloc_state is = f->j->prealloc.state;
    bool allocated = f->j->prealloc.allocated;
    set_unlock(f->set);
    return is == PREALLOC_REQUESTED || (is == PREALLOC_BUSY && !allocated);
}

static unsigned zero_writes;

static ssize_t count_zero_writes(int fd, const void *p, size_t n, off_t at)
{
    static const char zeros[1000];
    if (n >= sizeof zeros && memcmp(p, zeros, sizeof zeros) == 0)
        __atomic_add_fetch(&zero_writes, 1, __ATOMIC_SEQ_CST);
    return pwrite(fd, p, n, at);
}

/* Or the zeros would delay the sync and the commits behind it. */
static void test_no_zeros_during_a_long_sync(void **state)
{
    struct fixture *f = *state;
    struct answer a;
    segment_bytes = 40000;
    reopen(f);
    put(f, "kept");
    journal_prealloc_idle = USEC_PER_MSEC;
    journal_gather_max = 0;
    sem_init(&sync_begun, 0, 0);
    sem_init(&sync_may_end, 0, 0);
    syncs = zero_writes = 0;
    fault_errno = 0;
    faulty = io_system;
    faulty.fdatasync = slow_fdatasync;
    faulty.pwrite = count_zero_writes;
    io = &faulty;
    char line[9001];
    memset(line, 'x', 9000);
    line[9000] = 0;
    assert_int_equal(append(f, "", 0, 0, line, &a), JOURNAL_OK);
    sem_wait(&sync_begun);
    while (is_asked_for(f))
        sched_yield();
    unsigned before = __atomic_load_n(&zero_writes, __ATOMIC_SEQ_CST); /* those ahead of the commit */
    for (usec_t until = clock_monotonic() + 20 * journal_prealloc_idle; clock_monotonic() < until;)
        sched_yield();
    unsigned during = __atomic_load_n(&zero_writes, __ATOMIC_SEQ_CST) - before;
    sem_post(&sync_may_end);
    journal_set_flush(f->set);
    settle_filler(f);
    io = &io_system;
    assert_int_equal(during, 0);
    assert_true(f->j->prealloc.state == PREALLOC_READY && f->j->prealloc.filled == 40000);
    assert_true(zero_writes > before);
}

static void test_zeros_are_written_during_a_sync_interval(void **state)
{
    struct fixture *f = *state;
    static struct answer a; /* answered when the journal is closed */
    segment_bytes = 40000;
    sync_ms = 3600 * 1000; /* longer than a test may take */
    reopen(f);
    journal_prealloc_idle = 100 * USEC_PER_MSEC;
    append_pattern(f, 9000, on_commit, &a);
    assert_int_equal(append(f, "", 0, 0, "waits", &a), JOURNAL_OK);
    journal_set_poll(f->set);
    settle_filler(f);
    assert_int_equal(f->j->prealloc.state, PREALLOC_READY);
    assert_int_equal(f->j->prealloc.filled, 40000);
    assert_int_equal(a.calls, 0);
}

static bool has_zeros_ahead(const struct fixture *f)
{
    return f->j->writer.filled > f->j->writer.position + FRAME_HEADER;
}

/* A large commit would overwrite the zeros, so they would save nothing. */
static void test_zeros_are_written_for_small_commits_only(void **state)
{
    struct fixture *f = *state;
    struct answer a;
    segment_bytes = (size_t)64 << 20;
    reopen(f);
    put(f, "small");
    assert_true(has_zeros_ahead(f));
    for (unsigned i = 0; i < 12; i++)
        append_pattern(f, 300000, on_commit, &a);
    assert_false(has_zeros_ahead(f));
    put(f, "small among large ones");
    assert_false(has_zeros_ahead(f));
    for (unsigned i = 0; i < 12; i++)
        put(f, "small as a rule");
    assert_true(has_zeros_ahead(f));
}

static void test_the_filler_works_ahead(void **state)
{
    struct fixture *f = *state;
    segment_bytes = 40000;
    reopen(f);
    while (f->j->n_segments == 1) {
        fill_segments(f, 1, 1);
        while (is_asked_for(f))
            sched_yield();
    }
    assert_int_equal(f->j->n_segments, 2);
    assert_true(f->j->writer.prepared && !f->j->writer.recycled && f->j->writer.filled == 40000);
    fill_segments(f, 8, 1);
    settle_filler(f);
    assert_int_equal(f->j->n_segments, 2);
    assert_true(
        f->j->prealloc.state == PREALLOC_READY && f->j->prealloc.size == 40000 && !f->j->prealloc.recycled);
    reopen(f);
    assert_true(f->j->writer.prepared && f->j->writer.filled == 40000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_no_space_heals),
        T(test_the_observer_runs_after_the_callbacks),
        T(test_a_failed_sync_latches),
        T(test_frames_written_during_a_sync_wait_for_the_next),
        T(test_a_failed_sync_fails_frames_written_behind_it),
        T(test_no_segment_begins_during_a_sync),
        T(test_what_latches_and_what_heals),
        T(test_a_full_file_system_heals),
        T(test_a_cut_keeps_the_reserve),
        T(test_the_reserve_moves_to_the_next_segment),
        T(test_the_reserve_is_never_free),
        T(test_a_trimmed_segment_is_recycled),
        T(test_a_file_with_another_name_is_not_overwritten),
        T(test_a_torn_write_in_a_recycled_file_is_cut),
        T(test_the_start_of_a_recycled_file_is_no_torn_tail),
        T(test_a_file_is_recycled_once_its_name_is_durably_gone),
        T(test_a_recycled_file_is_not_cut),
        T(test_zeros_are_written_for_small_commits_only),
        T(test_the_filler_works_ahead),
        T(test_no_zeros_during_a_long_sync),
        T(test_zeros_are_written_during_a_sync_interval),
    };
    log_init("test", LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
