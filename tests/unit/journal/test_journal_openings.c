/* Each number belongs to the opening that gave it out; a copy's opening is another one; torn writes and damage. */
#include "support/cm.h"
#include "support/shell.h"

#include "base/io.h"
#include "journal/journal_openings.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#define SLOT 32

static char dir[64];

static int set_up(void **state)
{
    (void)state;
    strcpy(dir, "/tmp/millrace-openings-XXXXXX");
    assert_non_null(mkdtemp(dir));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    io = &io_system;
    shell("rm -rf %s", dir);
    return 0;
}

/* Opens at `next`; the id of the new opening. */
static struct openings *open_at(uint64_t next, char id[OPENING_ID_TEXT])
{
    struct openings *o = openings_open(dir, next);
    assert_non_null(o);
    const struct opening *last = openings_at(o, openings_count(o) - 1);
    assert_int_equal(last->first, next);
    memcpy(id, last->id, OPENING_ID_TEXT);
    return o;
}

static void test_each_number_has_its_opening(void **state)
{
    char a[OPENING_ID_TEXT], b[OPENING_ID_TEXT], c[OPENING_ID_TEXT];
    (void)state;
    struct openings *o = open_at(100, a);
    assert_string_equal(openings_id_of(o, 99), "");
    openings_free(&o);
    o = open_at(200, b);
    openings_free(&o);
    o = open_at(200, c);
    assert_string_equal(openings_id_of(o, 99), "");
    assert_string_equal(openings_id_of(o, 100), a);
    assert_string_equal(openings_id_of(o, 199), a);
    assert_string_equal(openings_id_of(o, 200), c);
    assert_string_equal(openings_id_of(o, UINT64_MAX), c);
    assert_string_not_equal(b, c);
    assert_int_equal(openings_find(o, bytes_str(a))->first, 100);
    assert_null(openings_find(o, BYTES_LITERAL("0123456789abcdef")));
    openings_free(&o);
}

static void test_a_copy_has_openings_of_its_own(void **state)
{
    char ours[OPENING_ID_TEXT], theirs[OPENING_ID_TEXT], ignored[OPENING_ID_TEXT];
    (void)state;
    struct openings *o = open_at(0, ignored);
    openings_free(&o);
    shell("cp %s/openings %s/copy", dir, dir);
    o = open_at(50, ours);
    openings_free(&o);
    shell("mv %s/copy %s/openings", dir, dir);
    o = open_at(50, theirs);
    assert_string_not_equal(ours, theirs);
    assert_null(openings_find(o, bytes_str(ours)));
    assert_int_equal(openings_count(o), 2);
    openings_free(&o);
}

static void test_the_ring_keeps_the_newest(void **state)
{
    char id[OPENING_ID_TEXT];
    (void)state;
    for (uint64_t i = 0; i < 3 * OPENINGS_MAX; i++) {
        struct openings *o = open_at(10 * i, id);
        size_t n = i < OPENINGS_MAX ? i + 1 : OPENINGS_MAX;
        assert_int_equal(openings_count(o), n);
        for (size_t k = 0; k < n; k++)
            assert_int_equal(openings_at(o, k)->first, 10 * (i + 1 - n + k));
        openings_free(&o);
    }
}

/* A slot of which only the first `n` bytes were written, or one bit is wrong, leaves all others. */
static void test_a_torn_or_damaged_slot_is_ignored(void **state)
{
    char a[OPENING_ID_TEXT], b[OPENING_ID_TEXT], c[OPENING_ID_TEXT], path[96], byte;
    (void)state;
    snprintf(path, sizeof path, "%s/openings", dir);
    for (size_t at = 0; at < SLOT; at++) {
        struct openings *o = open_at(10, a);
        openings_free(&o);
        o = open_at(20, b);
        openings_free(&o);
        int fd = open(path, O_RDWR);
        assert_int_equal(pread(fd, &byte, 1, (off_t)(2 * SLOT + at)), 1);
        byte ^= 1;
        assert_int_equal(pwrite(fd, &byte, 1, (off_t)(2 * SLOT + at)), 1);
        close(fd);
        o = open_at(30, c);
        assert_int_equal(openings_count(o), 2);
        assert_string_equal(openings_id_of(o, 29), a);
        assert_null(openings_find(o, bytes_str(b)));
        assert_string_equal(openings_id_of(o, 30), c);
        openings_free(&o);
        shell("rm %s", path);
    }
}

static int failing_fsync(int fd)
{
    (void)fd;
    errno = EIO;
    return -1;
}

static void test_what_is_not_durable_is_refused(void **state)
{
    (void)state;
    struct io_ops ops = io_system;
    ops.fsync = failing_fsync;
    io = &ops;
    assert_null(openings_open(dir, 0));
    assert_int_equal(errno, EIO);
    io = &io_system;
    shell("rm -f %s/openings; ln -s /tmp/elsewhere %s/openings", dir, dir);
    assert_null(openings_open(dir, 0));
    assert_int_equal(errno, ELOOP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_each_number_has_its_opening, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_copy_has_openings_of_its_own, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_ring_keeps_the_newest, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_torn_or_damaged_slot_is_ignored, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_is_not_durable_is_refused, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
