/* backup: a file that changes in every read is not copied; stopped at every operation, or with a full disk from it on, and made again:
 * the same bytes. */
#include "support/cm.h"
#include "support/make_slice.h"
#include "support/shell.h"
#include "support/test_dir.h"
#include "support/trees.h"

#include "backup/backup.h"
#include "base/io.h"
#include "base/xxh3.h"
#include "counts/manifest.h"
#include "journal/journal.h"
#include "simplequeue/queue/queue_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static char root[64], place[100], to[100];
static struct error error;
static int changes; /* reads that show another content than the one before */
static int reads;

/* pubsub moves a cursor before every read. */
static ssize_t changing_pread(int fd, void *p, size_t n, off_t at)
{
    char link[64], path[PATH_MAX];
    ssize_t got = io_system.pread(fd, p, n, at);
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, sizeof path - 1);
    path[len > 0 ? len : 0] = '\0';
    if (got > 0 && strcmp(path + strlen(place), "/cursors") == 0 &&
        strncmp(path, place, strlen(place)) == 0) {
        *(char *)p = (char)('a' + (reads < changes ? reads % 26 : 0));
        reads++;
    }
    return got;
}

static int set_up(void **state)
{
    (void)state;
    static struct io_ops ops;
    make_test_dir(root, sizeof root);
    snprintf(place, sizeof place, "%s/pubsub", root);
    snprintf(to, sizeof to, "%s/copy", root);
    shell("mkdir %s; touch %s/lock; printf cursors > %s/cursors", place, place, place);
    ops = io_system;
    ops.pread = changing_pread;
    io = &ops;
    reads = 0;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    io = &io_system;
    shell("rm -rf %s", root);
    return 0;
}

static enum backup_result make(void)
{
    struct backup_manifest m;
    struct backup_spec spec = {.to = to};
    char none[120];
    snprintf(none, sizeof none, "%s/none", root);
    for (size_t i = 0; i < BACKUP_PLACES; i++)
        spec.places[i] = i == BACKUP_PUBSUB ? place : none;
    enum backup_result r = backup_make(&spec, &m, &error);
    if (r == BACKUP_OK)
        backup_manifest_free(&m);
    return r;
}

static void cursors_that_never_rest_are_refused(void **state)
{
    (void)state;
    changes = 1 << 30;
    assert_int_equal(make(), BACKUP_CHANGED);
    assert_non_null(strstr(error.text, "/pubsub/cursors changed during each of 100 reads"));
    shell("test ! -e %s", to);
    shell("test ! -e %s.tmp", to);
}

static void cursors_that_rest_at_last_are_copied(void **state)
{
    (void)state;
    changes = 198; /* the last pair of reads agrees */
    assert_int_equal(make(), BACKUP_OK);
    shell("test \"$(cat %s/pubsub/cursors)\" = aursors", to);
}

enum fault { NO_FAULT, KILL_BEFORE, KILL_AFTER, TEAR, DISK_FULL, FAULTS };
#define KILLED 77
static long operations, stop_at;
static enum fault fault;

/* True when the operation is to fail, because the disk is full. */
static bool before(bool stores)
{
    operations++;
    if (operations == stop_at && fault == KILL_BEFORE)
        _exit(KILLED);
    if (fault != DISK_FULL || operations < stop_at || !stores)
        return false;
    errno = ENOSPC;
    return true;
}

static int after(int r)
{
    if (operations == stop_at && (fault == KILL_AFTER || fault == TEAR))
        _exit(KILLED);
    return r;
}

static int stop_open(const char *path, int flags, mode_t mode)
{
    if (!(flags & O_CREAT))
        return io_system.open(path, flags, mode);
    return before(true) ? -1 : after(io_system.open(path, flags, mode));
}
static ssize_t stop_pwrite(int fd, const void *p, size_t n, off_t at)
{
    if (before(true))
        return -1;
    bool is_torn = fault == TEAR && operations == stop_at;
    ssize_t did = io_system.pwrite(fd, p, is_torn ? n / 2 : n, at);
    after(0);
    return did;
}
static int stop_fsync(int fd)
{
    (void)fd;
    before(false);
    return after(0);
}
static int stop_rename(const char *from, const char *path)
{
    before(false);
    return after(io_system.rename(from, path));
}
static int stop_rename_new(const char *from, const char *path)
{
    before(false);
    return after(io_system.rename_new(from, path));
}
static int stop_unlink(const char *path)
{
    before(false);
    return after(io_system.unlink(path));
}
static int stop_mkdir(const char *path, mode_t mode)
{
    return before(true) ? -1 : after(io_system.mkdir(path, mode));
}

static void on_commit(const struct journal_commit *c, void *arg)
{
    (void)arg;
    assert_int_equal(c->result, JOURNAL_OK);
}

static void make_journal(const char *dir, bool is_queue)
{
    struct journal_set *set = journal_set_new(&(struct journal_set_config){.sync_ms = JOURNAL_SYNC_NEVER});
    struct journal *journal;
    assert_int_equal(journal_open(set, &(struct journal_config){.dir = dir, .segment_bytes = 4096}, &journal,
                         error.text, sizeof error.text),
        JOURNAL_OK);
    for (uint64_t id = 1; id <= 20; id++) {
        char text[500];
        struct bytes line = bytes_of(text, sizeof text);
        struct buf record = {0};
        memset(text, 'm', sizeof text);
        text[sizeof text - 1] = '\n';
        if (is_queue)
            queue_log_put(&record, id, &line, 1);
        buf_append_bytes(&record, line);
        struct bytes piece = buf_bytes(&record);
        assert_int_equal(journal_append(journal, &(struct journal_append){.pieces = &piece, .n_pieces = 1}, 1,
                             on_commit, NULL, NULL),
            JOURNAL_OK);
        journal_set_flush(set);
        buf_free(&record);
    }
    journal_close(&journal);
    journal_set_free(&set);
}

/* A place of each kind. */
static void make_pipeline(void)
{
    char path[200];
    struct manifest m = {.generation = 1, .through = 1, .shards = 1};
    struct buf text = {0};
    shell("mkdir -p %s/simplequeue/queues %s/pubsub/streams %s/aggregator/slices %s/archive/000000000001",
        root, root, root, root);
    shell("for p in simplequeue aggregator archive; do touch %s/$p/lock; done", root);
    snprintf(path, sizeof path, "%s/simplequeue/queues/default", root);
    make_journal(path, true);
    snprintf(path, sizeof path, "%s/pubsub/streams/clicks", root);
    make_journal(path, false);
    static const struct slice_row rows[] = {{"u|k,c411", 3, NULL}, {NULL, 0, NULL}};
    for (uint64_t n = 2; n <= 3; n++) {
        snprintf(path, sizeof path, "%s/aggregator/slices/%010d.db", root, (int)n);
        make_slice(path, n, "total u key = l\n", rows);
    }
    m.files = mem_zalloc(sizeof(*m.files));
    m.texts = mem_zalloc(sizeof(*m.texts));
    m.counters = mem_strdup("");
    m.retired = mem_strdup("");
    manifest_file_name(MANIFEST_RECORDS, 0, 1, m.files[0].name);
    manifest_file_name(MANIFEST_TEXTS, 0, 1, m.texts[0].name);
    m.files[0].xxh3 = m.texts[0].xxh3 = XXH3_64bits("", 0);
    manifest_print(&m, &text);
    snprintf(path, sizeof path, "%s/archive/000000000001/manifest.json", root);
    FILE *f = fopen(path, "w");
    assert_true(f && fwrite(text.ptr, 1, text.len, f) == text.len && fclose(f) == 0);
    shell("cd %s/archive && touch 000000000001/shard-0-of-1.csv 000000000001/texts-0-of-1.csv && ln -s "
          "000000000001 current",
        root);
    buf_free(&text);
    manifest_free(&m);
}

/* In a process of its own; its result, KILLED, or 100 more if it ended before the operation. */
static int make_in_child(long at, enum fault f)
{
    pid_t pid = fork();
    int status = 0;
    if (pid == 0) {
        static struct io_ops ops;
        struct backup_manifest m;
        struct backup_spec spec = {.to = to};
        char places[BACKUP_PLACES][100];
        ops = io_system;
        ops.open = stop_open;
        ops.pwrite = stop_pwrite;
        ops.fsync = stop_fsync;
        ops.rename = stop_rename;
        ops.rename_new = stop_rename_new;
        ops.unlink = stop_unlink;
        ops.mkdir = stop_mkdir;
        io = &ops;
        operations = 0;
        stop_at = at;
        fault = f;
        for (size_t i = 0; i < BACKUP_PLACES; i++) {
            snprintf(places[i], sizeof places[i], "%s/%s", root, backup_place_names[i]);
            spec.places[i] = places[i];
        }
        enum backup_result r = backup_make(&spec, &m, &error);
        if (r != BACKUP_OK && r != BACKUP_FULL)
            fprintf(stderr, "%s\n", error.text);
        _exit(operations < at ? 100 + (int)r : (int)r);
    }
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void verify(const char *when)
{
    struct backup_manifest m;
    if (backup_verify(&(struct backup_spec){.to = to}, &m, &error) != BACKUP_OK)
        fail_msg("%s: %s", when, error.text);
    backup_manifest_free(&m);
}

/* Returns the number of operations, or up to a stride more. */
static long stop_everywhere(enum fault f)
{
    char when[96];
    /* In the ordinary suite, each fault stops it at other operations. */
    const char *text = getenv("MILLRACE_STRIDE");
    long stride = text ? atol(text) : 23;
    for (long at = 1 + (long)f % stride;; at += stride) {
        snprintf(when, sizeof when, "fault %d at operation %ld", (int)f, at);
        int r = make_in_child(at, f);
        if (r == 100 + BACKUP_OK) {
            verify("undisturbed");
            remove_tree(to);
            return at - 1;
        }
        /* A disk that is full at the end does not matter. */
        if (f == DISK_FULL ? r != BACKUP_FULL && r != BACKUP_OK : r != KILLED)
            fail_msg("%s: the backup ended with %d", when, r);
        if (f == DISK_FULL)
            shell("test ! -e %s.tmp && test -z \"$(ls -d %s/*/.backup 2>/dev/null)\"", to, root);
        if (access(to, F_OK) != 0)
            assert_int_equal(make_in_child(-1, NO_FAULT), BACKUP_OK);
        verify(when);
        shell("test ! -e %s.tmp && test -z \"$(ls -d %s/*/.backup 2>/dev/null)\" && diff -r -x backup.json "
              "%s/expected %s",
            to, root, root, to);
        remove_tree(to);
    }
}

static void stop_with_every_fault(void)
{
    make_pipeline();
    io = &io_system;
    assert_int_equal(make_in_child(-1, NO_FAULT), BACKUP_OK);
    verify("undisturbed");
    shell("mv %s %s/expected", to, root);
    for (enum fault f = KILL_BEFORE; f < FAULTS; f++) {
        long places = stop_everywhere(f);
        print_message("fault %d: %ld places\n", (int)f, places);
        assert_true(places > 20);
    }
}

static void stopped_everywhere_with_links(void **state)
{
    (void)state;
    stop_with_every_fault();
}

static void stopped_everywhere_to_another_file_system(void **state)
{
    (void)state;
    char directory[64];
    make_other_dir(directory, sizeof directory);
    snprintf(to, sizeof to, "%s/copy", directory);
    stop_with_every_fault();
    shell("rm -rf %s", directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(cursors_that_never_rest_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(cursors_that_rest_at_last_are_copied, set_up, tear_down),
        cmocka_unit_test_setup_teardown(stopped_everywhere_with_links, set_up, tear_down),
        cmocka_unit_test_setup_teardown(stopped_everywhere_to_another_file_system, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
