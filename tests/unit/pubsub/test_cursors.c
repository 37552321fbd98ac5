#include "support/cm.h"
#include "pubsub/stream/cursor_file.h"
#include "pubsub/stream/cursors.h"
#include "base/io.h"
#include "pubsub/stream/line_index.h"
#include "support/power.h"
#include "support/test_dir.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct world {
    char dir[64], path[80];
    struct cursor_file *file;
    struct io_ops ops;
};

static struct {
    int pwrite, fdatasync; /* the errno to fail with, 0: none */
} fail;

static ssize_t maybe_pwrite(int fd, const void *p, size_t n, off_t at)
{
    if (!fail.pwrite)
        return io_system.pwrite(fd, p, n, at);
    errno = fail.pwrite;
    return -1;
}

static int maybe_fdatasync(int fd)
{
    if (!fail.fdatasync)
        return io_system.fdatasync(fd);
    errno = fail.fdatasync;
    return -1;
}

static void no_wake(void *arg)
{
    (void)arg;
}

static enum cursor_file_result open_file(struct world *w, size_t slots)
{
    struct error error = {0};
    enum cursor_file_result r = cursor_file_open(w->path, slots, no_wake, NULL, &w->file, &error);
    assert_int_equal(r == CURSOR_FILE_OK, error.text[0] == '\0');
    return r;
}

static int set_up(void **state)
{
    struct world *w = mem_zalloc(sizeof *w);
    make_test_dir(w->dir, sizeof w->dir);
    snprintf(w->path, sizeof w->path, "%s/cursors", w->dir);
    w->ops = io_system;
    w->ops.pwrite = maybe_pwrite;
    w->ops.fdatasync = maybe_fdatasync;
    memset(&fail, 0, sizeof fail);
    io = &w->ops;
    *state = w;
    return 0;
}

static int tear_down(void **state)
{
    struct world *w = *state;
    cursor_file_close(&w->file);
    io = &io_system;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", w->dir);
    int status = system(command);
    free(w);
    return status;
}

struct noted {
    struct cursor_put put; /* first */
    int stored;            /* -1: not called back yet; 1: stored, 0: refused */
};

static void note(struct cursor_put *put, bool stored)
{
    ((struct noted *)put)->stored = stored ? 1 : 0;
}

static struct cursor_record record(const char *name, uint64_t offset)
{
    struct cursor_record r = {.stream = "s", .id = "0123456789abcdef0123456789abcdef", .offset = offset};
    snprintf(r.name, sizeof r.name, "%s", name);
    return r;
}

/* 1: stored, 0: refused. */
static int put(struct world *w, size_t slot, uint64_t offset)
{
    struct cursor_record r = record("c", offset);
    struct noted noted = {{.done = note}, -1};
    cursor_file_put(w->file, slot, &r, &noted.put);
    while (noted.stored < 0) {
        cursor_file_poll(w->file);
        usleep(200);
    }
    return noted.stored;
}

static void reopen(struct world *w)
{
    cursor_file_close(&w->file);
    assert_int_equal(open_file(w, 1), CURSOR_FILE_OK);
}

static void records_come_back(void **state)
{
    struct world *w = *state;
    assert_int_equal(open_file(w, 3), CURSOR_FILE_OK);
    assert_int_equal(cursor_file_at(w->file, 2)->name[0], '\0');
    for (uint64_t i = 1; i <= 5; i++)
        assert_int_equal(put(w, 2, i), 1);
    reopen(w);
    assert_int_equal(cursor_file_slots(w->file), 3);
    const struct cursor_record *r = cursor_file_at(w->file, 2);
    assert_string_equal(r->name, "c");
    assert_string_equal(r->stream, "s");
    assert_string_equal(r->id, "0123456789abcdef0123456789abcdef");
    assert_int_equal(r->offset, 5);
    assert_int_equal(cursor_file_at(w->file, 0)->name[0], '\0');
    cursor_file_close(&w->file);
    assert_int_equal(open_file(w, 10), CURSOR_FILE_OK);
    assert_int_equal(cursor_file_slots(w->file), 10);
    assert_int_equal(put(w, 9, 7), 1);
    assert_int_equal(cursor_file_at(w->file, 2)->offset, 5);
}

static void puts_of_one_slot_keep_their_order(void **state)
{
    struct world *w = *state;
    struct noted noted[50];
    assert_int_equal(open_file(w, 1), CURSOR_FILE_OK);
    for (int i = 0; i < 50; i++) {
        struct cursor_record r = record("c", (uint64_t)i);
        noted[i] = (struct noted){{.done = note}, -1};
        cursor_file_put(w->file, 0, &r, &noted[i].put);
    }
    cursor_file_close(&w->file);
    for (int i = 0; i < 50; i++)
        assert_int_equal(noted[i].stored, 1);
    assert_int_equal(open_file(w, 1), CURSOR_FILE_OK);
    assert_int_equal(cursor_file_at(w->file, 0)->offset, 49);
}

/* Damages one copy: unit 1 and 2 are slot 0's. */
static void damage(struct world *w, int unit)
{
    int fd = open(w->path, O_RDWR);
    assert_int_equal(pwrite(fd, "torn", 4, unit * 512 + 16), 4);
    close(fd);
}

static void a_torn_write_leaves_the_record_before(void **state)
{
    struct world *w = *state;
    for (int n = 1; n <= 4; n++) {
        assert_int_equal(open_file(w, 1), CURSOR_FILE_OK);
        for (uint64_t i = 1; i <= (uint64_t)n; i++)
            assert_int_equal(put(w, 0, 10 * i), 1);
        cursor_file_close(&w->file);
        damage(w, n % 2 ? 2 : 1); /* where the newest one is: copy B first */
        assert_int_equal(open_file(w, 1), CURSOR_FILE_OK);
        assert_int_equal(cursor_file_at(w->file, 0)->offset, n == 1 ? 0 : 10 * (n - 1));
        cursor_file_close(&w->file);
        assert_int_equal(unlink(w->path), 0);
    }
}

static void damage_is_refused(void **state)
{
    struct world *w = *state;
    assert_int_equal(open_file(w, 1), CURSOR_FILE_OK);
    put(w, 0, 1);
    put(w, 0, 2);
    cursor_file_close(&w->file);
    damage(w, 1);
    damage(w, 2);
    assert_int_equal(open_file(w, 1), CURSOR_FILE_DAMAGED);
    damage(w, 0);
    assert_int_equal(open_file(w, 1), CURSOR_FILE_DAMAGED);
}

static void a_full_disk_refuses_and_heals(void **state)
{
    struct world *w = *state;
    assert_int_equal(open_file(w, 1), CURSOR_FILE_OK);
    assert_int_equal(put(w, 0, 1), 1);
    fail.pwrite = ENOSPC;
    assert_int_equal(put(w, 0, 2), 0);
    assert_null(cursor_file_failure(w->file));
    fail.pwrite = 0;
    reopen(w);
    assert_int_equal(cursor_file_at(w->file, 0)->offset, 1);
    assert_int_equal(put(w, 0, 3), 1);
    reopen(w);
    assert_int_equal(cursor_file_at(w->file, 0)->offset, 3);
}

static void any_other_failure_latches(void **state)
{
    struct world *w = *state;
    assert_int_equal(open_file(w, 1), CURSOR_FILE_OK);
    fail.fdatasync = ENOSPC; /* what was left behind is unknown, whatever the system calls it */
    assert_int_equal(put(w, 0, 1), 0);
    fail.fdatasync = 0;
    assert_non_null(cursor_file_failure(w->file));
    assert_int_equal(put(w, 0, 2), 0);
}

/* The operations that it came to. A life that stops at one of them, and one that finds what it left and does nothing, but shows it
 * and keeps to it; then the power goes. */
static unsigned stop_at(struct world *w, enum power_fault fault, unsigned at)
{
    unsigned seed = at;
    uint64_t acknowledged = 0;
    power_on(fault, at);
    if (open_file(w, 1 + at % 2) == CURSOR_FILE_OK)
        for (uint64_t i = 1; i <= 4; i++)
            acknowledged = put(w, 0, i) ? i : acknowledged;
    cursor_file_close(&w->file);
    unsigned operations = power_operations();
    power_revive(POWER_NONE, 0);
    assert_int_equal(open_file(w, 3), CURSOR_FILE_OK);
    uint64_t shown = cursor_file_at(w->file, 0)->offset;
    assert_true(shown >= acknowledged);
    power_cut_now();
    cursor_file_close(&w->file);
    power_off(&seed);
    assert_int_equal(open_file(w, 1), CURSOR_FILE_OK);
    assert_int_equal(cursor_file_at(w->file, 0)->offset, shown);
    assert_int_equal(cursor_file_slots(w->file), 3);
    cursor_file_close(&w->file);
    assert_int_equal(unlink(w->path), 0);
    return operations;
}

/* Killed, or a sync failed and an operator started it again. */
static void what_a_life_finds_is_safe(void **state)
{
    struct world *w = *state;
    unsigned operations = stop_at(w, POWER_NONE, 0);
    assert_true(operations > 10);
    for (unsigned at = 1; at <= operations; at++) {
        stop_at(w, POWER_KILL, at);
        stop_at(w, POWER_EIO, at);
    }
}

static void lines_are_known_at_points(void **state)
{
    (void)state;
    struct line_index x;
    line_index_begin(&x, 1000);
    assert_int_equal(line_index_at(&x, 5).offset, 1000);
    for (int i = 0; i < 100000; i++)
        line_index_add(&x, x.end.offset + 30000, 100);
    assert_true(x.n <= LINE_INDEX_POINTS_MAX);
    assert_int_equal(x.end.lines, 10000000);
    for (uint64_t at = 1000; at < x.end.offset; at += 12345677) {
        struct line_point p = line_index_at(&x, at);
        assert_true(p.offset >= at && p.offset - at <= 3 * x.spacing);
        assert_int_equal(p.lines, (p.offset - 1000) / 300);
    }
    assert_int_equal(line_index_at(&x, x.end.offset + 1).offset, x.end.offset);
    static const struct line_point before[] = {{100, -30}, {500, -20}, {1000, 0}, {4000, 10}};
    line_index_prepend(&x, before, 4);
    assert_int_equal(line_index_at(&x, 0).lines, -30);
    assert_int_equal(line_index_at(&x, 501).offset, 1000);
    line_index_trim(&x, 400);
    assert_int_equal(line_index_at(&x, 0).offset, 500);
    line_index_free(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(records_come_back, set_up, tear_down),
        cmocka_unit_test_setup_teardown(puts_of_one_slot_keep_their_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_torn_write_leaves_the_record_before, set_up, tear_down),
        cmocka_unit_test_setup_teardown(damage_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_full_disk_refuses_and_heals, set_up, tear_down),
        cmocka_unit_test_setup_teardown(any_other_failure_latches, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_a_life_finds_is_safe, set_up, tear_down),
        cmocka_unit_test(lines_are_known_at_points),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
