/* The names of slices, the range of those in a directory, and the first that is missing. */
#include "support/cm.h"
#include "support/test_dir.h"

#include "counts/slice_files.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static char dir[200];

static void write_file(const char *name, const char *text)
{
    char *path = mem_printf("%s/%s", dir, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    free(path);
}

static void names_have_ten_digits(void **state)
{
    static const char *const others[] = {"", ".db", "1.db", "0000000000.db", "00000000042.db", "000000042.db",
        "0000000042", "0000000042.db-wal", "0000000042.dbx", "000000004x.db", "-000000042.db"};
    uint64_t n = 0;
    (void)state;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (slice_file_number(others[i], &n))
            fail_msg("%s was taken", others[i]);
    assert_true(slice_file_number("0000000042.db", &n) && n == 42);
    assert_true(slice_file_number("12345678901.db", &n) && n == UINT64_C(12345678901));
    char *path = slice_path("a/b", 42), *longer = slice_path("a", UINT64_C(12345678901));
    assert_string_equal(path, "a/b/0000000042.db");
    assert_string_equal(longer, "a/12345678901.db");
    free(path);
    free(longer);
}

static void a_directory_has_a_range(void **state)
{
    struct slice_range found = {7, 7};
    (void)state;
    assert_int_equal(slice_files_find("/nowhere/at/all", 0, &found), -1);
    assert_int_equal(errno, ENOENT);
    assert_int_equal(found.first + found.last, 0);
    make_test_dir(dir, sizeof dir);
    assert_int_equal(slice_files_find(dir, 0, &found), 0);
    assert_int_equal(found.first + found.last, 0);
    write_file("0000000009.db", "");
    write_file("0000000011.db", "");
    write_file("0000000010.db", "");
    write_file("0000000010.db-wal", "");
    write_file("0000000012.db-wal", "counts");
    assert_int_equal(slice_files_find(dir, 0, &found), 0);
    assert_true(found.first == 9 && found.last == 11);
    assert_int_equal(slice_files_find(dir, 9, &found), 0);
    assert_true(found.first == 10 && found.last == 11);
    assert_int_equal(slice_files_find(dir, 11, &found), 0);
    assert_int_equal(found.first + found.last, 0);
    assert_int_equal(slice_files_missing(dir, 9, 11), 0);
    assert_int_equal(slice_files_missing(dir, 9, 14), 12);
    assert_int_equal(slice_files_missing(dir, 8, 11), 8);
    assert_int_equal(slice_files_missing(dir, 5, 4), 0);
    char *with_empty = slice_path(dir, 10), *with_log = slice_path(dir, 12);
    assert_false(slice_has_log(with_empty));
    assert_true(slice_has_log(with_log));
    free(with_empty);
    free(with_log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_have_ten_digits),
        cmocka_unit_test(a_directory_has_a_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
