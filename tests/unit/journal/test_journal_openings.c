/* Each number belongs to the opening that gave it out; a copy's opening is another one; torn writes and damage. */
#include "support/cm.h"
#include "support/shell.h"
#include "support/test_dir.h"

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
    make_test_dir(dir, sizeof dir);
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

static const struct opening *find(const struct openings *o, const char *id)
{
    for (size_t i = 0; i < openings_count(o); i++)
        if (strcmp(openings_at(o, i)->id, id) == 0)
            return openings_at(o, i);
    return NULL;
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
    assert_int_equal(find(o, a)->first, 100);
    assert_null(find(o, "0123456789abcdef"));
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
    assert_null(find(o, ours));
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
        assert_null(find(o, b));
        assert_string_equal(openings_id_of(o, 30), c);
        openings_free(&o);
        shell("rm %s", path);
    }
}

/* Restarts without traffic keep the openings that gave out numbers. */
static void test_an_opening_that_gave_out_nothing_is_replaced(void **state)
{
    char a[OPENING_ID_TEXT], b[OPENING_ID_TEXT];
    (void)state;
    struct openings *o = open_at(10, a);
    openings_free(&o);
    for (int i = 0; i < 2 * OPENINGS_MAX; i++) {
        o = open_at(20, b);
        assert_int_equal(openings_count(o), 2);
        assert_string_equal(openings_id_of(o, 19), a);
        openings_free(&o);
    }
    o = open_at(21, a);
    assert_int_equal(openings_count(o), 3);
    assert_string_equal(openings_id_of(o, 20), b);
    openings_free(&o);
}

static void test_the_list_as_text(void **state)
{
    char id[OPENING_ID_TEXT];
    struct buf text = {0};
    (void)state;
    for (uint64_t i = 0; i < 5; i++) {
        struct openings *o = open_at(UINT64_MAX - 5 + i, id);
        openings_free(&o);
    }
    struct openings *o = open_at(UINT64_MAX, id);
    openings_append_text(o, 2, &text);
    struct openings *same = openings_from_text(buf_bytes(&text));
    assert_int_equal(openings_count(same), 4);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(openings_at(same, i)->first, openings_at(o, i + 2)->first);
        assert_string_equal(openings_at(same, i)->id, openings_at(o, i + 2)->id);
    }
    openings_free(&same);
    openings_free(&o);
    buf_free(&text);
    static const char *const bad[] = {"1", "1:", ":0123456789abcdef", "1:0123456789abcde",
        "1:0123456789abcdeg", "-1:0123456789abcdef", "1:0123456789abcdef0", "1:0123456789abcdef, 2"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_null(openings_from_text(bytes_str(bad[i])));
    for (size_t i = 0; i <= OPENINGS_MAX; i++) {
        same = openings_from_text(buf_bytes(&text));
        assert_true((same != NULL) == (i <= OPENINGS_MAX));
        openings_free(&same);
        buf_printf(&text, "%s%zu:0123456789abcdef", i ? ", " : "", i);
    }
    assert_null(openings_from_text(buf_bytes(&text)));
    buf_free(&text);
}

/* Histories of the openings A to F, each of which gives out ten numbers from 10 on. */
static struct openings *history(const char *names)
{
    struct buf text = {0};
    for (int i = 0; names[i]; i++)
        buf_printf(
            &text, "%s%d:%c%c23456789abcdef", i ? ", " : "", 10 * (i + 1), names[i] | 0x20, names[i] | 0x20);
    struct openings *o = openings_from_text(buf_bytes(&text));
    assert_non_null(o);
    buf_free(&text);
    return o;
}

static void assert_compared(const char *mine, const char *other, uint64_t number, bool agree, uint64_t from)
{
    char lineage[LINEAGE_TEXT];
    uint64_t differs_from;
    struct openings *o = history(other), *h = history(mine);
    openings_lineage(o, number, lineage, sizeof lineage);
    assert_int_equal(openings_agree(h, number, bytes_str(lineage), &differs_from), agree);
    assert_int_equal(differs_from, from);
    openings_free(&o);
    openings_free(&h);
}

static void test_histories_are_compared_at_a_number(void **state)
{
    (void)state;
    char lineage[LINEAGE_TEXT];
    struct openings *o = history("ABCDE");
    openings_lineage(o, 45, lineage, sizeof lineage);
    assert_string_equal(lineage, "dd23456789cc23456789bb23456789aa23456789");
    openings_lineage(o, 20, lineage, sizeof lineage);
    assert_string_equal(lineage, "bb23456789aa23456789");
    openings_lineage(o, 9, lineage, sizeof lineage);
    assert_string_equal(lineage, "");
    openings_free(&o);
    assert_compared("ABC", "ABC", 35, true, 0);
    assert_compared("ABCD", "ABCE", 35, true, 0); /* they part later */
    assert_compared("ABCDE", "ABC", 39, true, 0);
    assert_compared("ABD", "ABC", 35, false, 30);
    assert_compared("ABDE", "ABC", 35, false, 30); /* the copy was opened twice */
    assert_compared("ABDE", "ABC", 99, false, 30);
    assert_compared("ABE", "ABC", 25, true, 0);
    assert_compared("AE", "ABC", 35, false, 20);
    assert_compared("ABCD", "ABC", 45, false, 40); /* a copy of the running original */
    assert_compared("AEF", "ABCD", 45, false, 20); /* B, C and D are unknown here */
    assert_compared("E", "ABC", 35, false, 0);
    assert_compared("ABC", "ABC", 9, true, 0);
    o = history("ABC");
    uint64_t from;
    assert_true(openings_agree(o, 35, BYTES_NONE, &from));
    openings_free(&o);
}

/* The original was opened 250 times since the copy was made. A cursor has all its openings, and a tag those that fit. */
static void test_an_original_that_was_opened_often(void **state)
{
    (void)state;
    struct buf original = {0}, copy = {0};
    for (int i = 0; i < 255; i++)
        buf_printf(&original, "%s%d:%08x00000000", i ? ", " : "", 10 * (i + 1), 0x12345678 + i);
    buf_append_str(
        &copy, "10:1234567800000000, 20:1234567900000000, 25:ffffffff00000000, 28:eeeeeeee00000000");
    struct openings *o = openings_from_text(buf_bytes(&original)), *h = openings_from_text(buf_bytes(&copy));
    char lineage[LINEAGE_TEXT];
    uint64_t from;
    openings_lineage(o, 2550, lineage, sizeof lineage);
    assert_int_equal(strlen(lineage), 255 * LINEAGE_DIGITS);
    assert_false(openings_agree(h, 40, bytes_str(lineage), &from));
    assert_int_equal(from, 25);
    lineage_cut_to_tag(lineage, 32);
    assert_int_equal(strlen(lineage), 12 * LINEAGE_DIGITS);
    assert_false(openings_agree(h, 40, bytes_str(lineage), &from));
    assert_int_equal(from, 0);
    openings_lineage(o, 10 * 14, lineage, sizeof lineage); /* 12 openings after the last common one */
    lineage_cut_to_tag(lineage, 32);
    assert_false(openings_agree(h, 40, bytes_str(lineage), &from));
    assert_int_equal(from, 0);
    openings_lineage(o, 10 * 13, lineage, sizeof lineage);
    lineage_cut_to_tag(lineage, 32);
    assert_false(openings_agree(h, 40, bytes_str(lineage), &from));
    assert_int_equal(from, 25);
    openings_lineage(o, 2550, lineage, LINEAGE_SHORT_TEXT);
    assert_int_equal(strlen(lineage), LINEAGE_SHORT_TEXT - 1);
    openings_free(&h);
    openings_free(&o);
    buf_free(&original);
    buf_free(&copy);
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

static void test_a_copy_forgets_later_openings(void **state)
{
    char a[OPENING_ID_TEXT], b[OPENING_ID_TEXT], c[OPENING_ID_TEXT], path[100], bytes[OPENINGS_MAX * SLOT];
    struct buf ring = {0};
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct openings *o = open_at(100 + 100 * (uint64_t)i, i == 0 ? a : i == 1 ? b : c);
        openings_free(&o);
    }
    snprintf(path, sizeof path, "%s/" OPENINGS_FILE, dir);
    int fd = open(path, O_RDWR);
    assert_int_equal(pread(fd, bytes, sizeof bytes, 0), sizeof bytes);
    buf_append(&ring, bytes, sizeof bytes);
    openings_forget_after(&ring, 200);
    assert_int_equal(pwrite(fd, ring.ptr, ring.len, 0), ring.len);
    close(fd);
    buf_free(&ring);
    struct openings *o = open_at(250, c);
    assert_int_equal(openings_count(o), 3);
    assert_string_equal(openings_id_of(o, 199), a);
    assert_string_equal(openings_id_of(o, 200), b);
    assert_string_equal(openings_id_of(o, 250), c);
    openings_free(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_each_number_has_its_opening, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_copy_has_openings_of_its_own, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_copy_forgets_later_openings, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_ring_keeps_the_newest, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_torn_or_damaged_slot_is_ignored, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_an_opening_that_gave_out_nothing_is_replaced, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_list_as_text, set_up, tear_down),
        cmocka_unit_test(test_histories_are_compared_at_a_number),
        cmocka_unit_test(test_an_original_that_was_opened_often),
        cmocka_unit_test_setup_teardown(test_what_is_not_durable_is_refused, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
