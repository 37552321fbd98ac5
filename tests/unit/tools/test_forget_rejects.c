/* Erasing entries of the rejects, also when the process ends or the power fails at any step. */
#include "support/cm.h"
#include "support/test_dir.h"

#include "base/io.h"
#include "tools/forget_rejects.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define VALUE "the-forgotten"
#define ENTRIES 40
#define MAX_TEXT 2048

static char dir[64];
static struct rejects_place end;

/* Every third entry has the value; in several files. */
static int setup(void **state)
{
    struct rejects *r;
    struct rejects_limits limits = {.max_bytes = 32768};
    struct buf text = {0};
    (void)state;
    make_test_dir(dir, sizeof dir);
    assert_int_equal(rejects_open(dir, 1, 0, &r), 0);
    for (int i = 0; i < ENTRIES; i++) {
        char line[128];
        snprintf(line, sizeof line, "{\"user\":\"%s\",\"n\":%d}", i % 3 == 0 ? VALUE : "another", i);
        struct rejects_entry e = {.name = BYTES_LITERAL("clicks"),
            .offset = (uint64_t)i,
            .time = 1331923249,
            .reason = BYTES_LITERAL("is missing: no time"),
            .length = strlen(line),
            .line = bytes_str(line)};
        rejects_format(&text, &e);
    }
    assert_int_equal(rejects_write(r, buf_bytes(&text), 0, &limits, (struct rejects_place){0}, 0), 0);
    rejects_close(&r);
    end = (struct rejects_place){1, text.len};
    buf_free(&text);
    return 0;
}

static int teardown(void **state)
{
    char command[128];
    (void)state;
    io = &io_system;
    forget_rejects_batch = 4 << 20;
    snprintf(command, sizeof command, "rm -rf %s", dir);
    return system(command) != 0;
}

static struct forget_rejects erase(bool dry, int expect)
{
    struct forget_match *m = forget_match_new("user", VALUE, MAX_TEXT);
    struct forget_rejects f = {.dir = dir, .end = end, .match = m, .dry = dry};
    assert_int_equal(forget_rejects_erase(&f), expect);
    forget_match_free(&m);
    return f;
}

/* The number of entries that are erased. Each other one must be as before. */
static int erased(void)
{
    struct rejects_place after;
    struct bytes text;
    struct buf bytes = {0};
    int n = 0, at = 0, more;
    struct rejects_reader *r = rejects_reader_new(dir, (struct rejects_place){0}, end);
    for (; (more = rejects_reader_next(r, &text, &after)) > 0; at++) {
        struct rejects_entry e;
        struct json_doc *doc;
        bool has = memmem(text.ptr, text.len, VALUE, strlen(VALUE));
        assert_true(rejects_parse(text, &e, &doc, &bytes));
        assert_int_equal(e.offset, at);
        assert_true(at % 3 == 0 || memmem(e.line.ptr, e.line.len, "another", 7));
        n += at % 3 == 0 && !has;
        json_doc_free(&doc);
    }
    assert_int_equal(more, 0);
    assert_int_equal(at, ENTRIES);
    rejects_reader_free(&r);
    buf_free(&bytes);
    return n;
}

static bool is_there(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return access(path, F_OK) == 0;
}

static void test_erases_and_keeps(void **state)
{
    (void)state;
    assert_int_equal(erase(true, 0).matched, (ENTRIES + 2) / 3);
    assert_int_equal(erased(), 0);
    struct forget_rejects f = erase(false, 0);
    assert_int_equal(f.read, ENTRIES);
    assert_int_equal(f.matched, (ENTRIES + 2) / 3);
    assert_int_equal(f.failed, 0);
    assert_int_equal(erased(), (ENTRIES + 2) / 3);
    assert_false(is_there(FORGET_REJECTS_FILE));
    assert_int_equal(erase(false, 0).matched, 0);
}

/* Ends the process at step `left`. A write that it interrupts has reached the disk except its first half. */
static int left;

static void step(void)
{
    if (--left == 0)
        _exit(7);
}

static ssize_t torn_pwrite(int fd, const void *p, size_t n, off_t at)
{
    if (--left == 0) {
        io_system.pwrite(fd, (const char *)p + n / 2, n - n / 2, at + (off_t)(n / 2));
        _exit(7);
    }
    return io_system.pwrite(fd, p, n, at);
}

static int step_fsync(int fd)
{
    step();
    return io_system.fsync(fd);
}

static int step_fdatasync(int fd)
{
    step();
    return io_system.fdatasync(fd);
}

static int step_rename(const char *from, const char *to)
{
    step();
    return io_system.rename(from, to);
}

static int step_unlink(const char *path)
{
    step();
    return io_system.unlink(path);
}

static void test_ends_at_every_step(void **state)
{
    int status = -1, steps = 0;
    while (status != 0) {
        if (steps > 0)
            setup(state);
        pid_t pid = fork();
        if (pid == 0) {
            struct io_ops ops = io_system;
            ops.pwrite = torn_pwrite;
            ops.fsync = step_fsync;
            ops.fdatasync = step_fdatasync;
            ops.rename = step_rename;
            ops.unlink = step_unlink;
            io = &ops;
            left = ++steps;
            forget_rejects_batch = 1000; /* several */
            erase(false, 0);
            _exit(0);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status) && (WEXITSTATUS(status) == 7 || WEXITSTATUS(status) == 0));
        steps++;
        assert_int_equal(erase(false, 0).failed, 0);
        assert_int_equal(erased(), (ENTRIES + 2) / 3);
        assert_false(is_there(FORGET_REJECTS_FILE));
        teardown(state);
    }
    assert_true(steps > ENTRIES / 3);
    setup(state); /* for the teardown */
}

/* What `erasing` has for a file that has expired, or for other bytes, is left out. */
static void test_an_outdated_journal(void **state)
{
    char path[128];
    struct buf text = {0};
    (void)state;
    buf_append_str(
        &text, "0000000009.ndjson 0 4\nxxx\n0000000001.ndjson 1 4\nxxx\n0000000001.ndjson 0 4\nxxx\n");
    snprintf(path, sizeof path, "%s/" FORGET_REJECTS_FILE, dir);
    assert_int_equal(io_replace_file(path, buf_bytes(&text), 0600), 0);
    assert_int_equal(erase(false, 0).failed, 0);
    assert_int_equal(erased(), (ENTRIES + 2) / 3);
    buf_clear(&text);
    buf_append_str(&text, "0000000001.ndjson 0 400\nxxx\n");
    assert_int_equal(io_replace_file(path, buf_bytes(&text), 0600), 0);
    assert_non_null(strstr(erase(false, 74).error.text, FORGET_REJECTS_FILE));
    buf_free(&text);
}

static void test_one_at_a_time(void **state)
{
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    (void)state;
    assert_int_equal(io->flock(fd, 2 /* LOCK_EX */), 0);
    assert_non_null(strstr(erase(false, 75).error.text, "another process"));
    close(fd);
    assert_int_equal(erase(false, 0).failed, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_erases_and_keeps, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ends_at_every_step, setup, teardown),
        cmocka_unit_test_setup_teardown(test_an_outdated_journal, setup, teardown),
        cmocka_unit_test_setup_teardown(test_one_at_a_time, setup, teardown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
