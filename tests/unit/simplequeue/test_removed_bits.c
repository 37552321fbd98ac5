/* removed_bits: what an older version marked is read, across blocks; a file of another journal counts for nothing. */
#include "support/cm.h"

#include "simplequeue/queue/removed_bits.h"
#include "support/shell.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define JOURNAL "0123456789abcdef0123456789abcdef"
#define OTHER "0123456789abcdef0123456789abcdee"
#define BLOCK_IDS ((uint64_t)8 * 4096)

static char dir[64], path[80];
static struct id_ranges found;

static int make(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/test_removed_bits.XXXXXX");
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/gone", dir);
    return 0;
}

static int clean_up(void **state)
{
    (void)state;
    id_ranges_free(&found);
    shell("rm -rf %s", dir);
    return 0;
}

static void mark(FILE *f, uint64_t id)
{
    long at = 4096 + (long)(id / 8);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    int byte = fgetc(f);
    assert_int_equal(fseek(f, at, SEEK_SET), 0);
    fputc((byte == EOF ? 0 : byte) | 1 << id % 8, f);
}

static void write_file(const char *journal, const uint64_t *ids, size_t n)
{
    FILE *f = fopen(path, "w+");
    assert_non_null(f);
    fprintf(f, "mrgone 1%s", journal);
    for (size_t i = 0; i < n; i++)
        mark(f, ids[i]);
    assert_int_equal(fclose(f), 0);
}

static int read_file(void)
{
    char error[256] = "";
    return removed_bits_read(dir, JOURNAL, &found, error, sizeof error);
}

static void marked_ids_are_read(void **state)
{
    const uint64_t far = UINT64_C(1) << 32;
    const uint64_t ids[] = {0, 1, 9, 10, 11, BLOCK_IDS - 1, BLOCK_IDS, 5 * BLOCK_IDS + 3, far + 7};
    const struct id_range ranges[] = {{1, 1}, {9, 11}, {BLOCK_IDS - 1, BLOCK_IDS},
        {5 * BLOCK_IDS + 3, 5 * BLOCK_IDS + 3}, {far + 7, far + 7}};
    (void)state;
    write_file(JOURNAL, ids, sizeof ids / sizeof *ids);
    assert_int_equal(read_file(), 0);
    assert_int_equal(found.n, 5);
    assert_memory_equal(found.at, ranges, sizeof ranges);
}

static void other_files_count_for_nothing(void **state)
{
    (void)state;
    assert_int_equal(read_file(), 0);
    write_file(OTHER, (const uint64_t[]){5}, 1);
    assert_int_equal(read_file(), 0);
    shell("printf mrgone > %s", path);
    assert_int_equal(read_file(), 0);
    assert_int_equal(found.n, 0);
}

static void an_unreadable_file_is_an_error(void **state)
{
    (void)state;
    shell("mkdir %s", path);
    errno = 0;
    assert_int_equal(read_file(), -1);
    assert_int_equal(errno, EISDIR);
}

static void a_deleted_file_is_read_no_more(void **state)
{
    (void)state;
    write_file(JOURNAL, (const uint64_t[]){5}, 1);
    removed_bits_delete(dir);
    assert_int_not_equal(access(path, F_OK), 0);
    assert_int_equal(read_file(), 0);
    assert_int_equal(found.n, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make, clean_up)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(marked_ids_are_read),
        TEST(other_files_count_for_nothing),
        TEST(an_unreadable_file_is_an_error),
        TEST(a_deleted_file_is_read_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
