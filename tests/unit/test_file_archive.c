#include "cm.h"
#include "file_archive.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Lines whose times are seconds of 1970-01-01, in files of a minute. */
static char directory[] = "/tmp/millrace-unit-XXXXXX";
static char format[100], state_path[100];
static usec_t now = USEC_PER_SEC;

static void ignore(void *arg)
{
    (void)arg;
}

static struct file_archive *open_archive(size_t max_open)
{
    char error[ARCHIVE_ERROR_TEXT];
    struct file_archive_config config = {.format = format,
        .state_path = state_path,
        .stream = "s",
        .by_event_time = true,
        .commit_every = 1,
        .close_after = 3600 * USEC_PER_SEC,
        .max_open = max_open,
        .max_pending = 1 << 20,
        .wake = ignore};
    struct file_archive *a = file_archive_open(&config, now, error);
    if (a == NULL)
        fail_msg("%s", error);
    return a;
}

static void tick(struct file_archive *a)
{
    now += USEC_PER_MSEC;
    file_archive_tick(a, now, now);
    usleep(1000);
}

static void take_minutes(struct file_archive *a, int n)
{
    for (int i = 0; i < n; i++)
        file_archive_take(a, BYTES_LITERAL("{}\n"), i * 60);
}

/* A crash can leave more open files than may be: they are closed, and the archive is not full for ever. */
static void test_more_open_files_than_may_be(void **state)
{
    struct stream_cursor at = {.id = "0123456789abcdef0123456789abcdef"};
    (void)state;
    struct file_archive *a = open_archive(60);
    file_archive_begin(a, &at);
    take_minutes(a, 60);
    assert_int_equal(file_archive_flush(a), 0);
    file_archive_close(&a);
    a = open_archive(4);
    assert_int_equal(file_archive_numbers(a).open, 60);
    assert_true(file_archive_is_full(a));
    for (int i = 0; i < 20000 && file_archive_is_full(a); i++)
        tick(a);
    assert_false(file_archive_is_full(a));
    assert_int_equal(file_archive_numbers(a).open, 4);
    file_archive_close(&a);
}

static int make_directory(void **state)
{
    (void)state;
    if (mkdtemp(directory) == NULL)
        return -1;
    snprintf(format, sizeof format, "%s/%%H%%M", directory);
    snprintf(state_path, sizeof state_path, "%s/state", directory);
    return 0;
}

static int remove_directory(void **state)
{
    DIR *d = opendir(directory);
    (void)state;
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        char path[400];
        snprintf(path, sizeof path, "%s/%s", directory, e->d_name);
        unlink(path);
    }
    closedir(d);
    return rmdir(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_more_open_files_than_may_be)};
    return cmocka_run_group_tests(tests, make_directory, remove_directory);
}
