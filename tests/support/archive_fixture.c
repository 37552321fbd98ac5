#include "support/archive_fixture.h"
#include "support/test_dir.h"
#include "streams/archive/archive_lock.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char directory[48], format[100], state_path[100];
usec_t now = USEC_PER_SEC, commit_every = 1;
enum archive_compression compression;
const char *opening = "";
_Atomic int woken;
const struct io_ops *real_io;
const char *without_room = ".packed";
bool no_room;

static void wake(void *arg)
{
    (void)arg;
    woken++;
}

struct file_archive *open_archive(size_t max_open)
{
    struct error error;
    struct file_archive_config config = {.format = format,
        .state_path = state_path,
        .stream = "s",
        .compression = compression,
        .by_event_time = true,
        .commit_every = commit_every,
        .close_after = 1000000 * USEC_PER_SEC,
        .max_open = max_open,
        .max_pending = 1 << 20,
        .wake = wake};
    struct file_archive *a = file_archive_open(&config, now, &error);
    if (a == NULL)
        fail_msg("%s", error.text);
    return a;
}

struct file_archive *open_begun(size_t max_open)
{
    struct file_archive *a = open_archive(max_open);
    file_archive_begin(a, &(struct stream_cursor){.id = "0123456789abcdef0123456789abcdef"});
    return a;
}

void wait_a_moment(struct file_archive *a)
{
    file_archive_tick(a, now, now);
    usleep(1000);
}

void tick(struct file_archive *a)
{
    now += USEC_PER_MSEC;
    wait_a_moment(a);
}

void take_line(struct file_archive *a, int64_t time)
{
    file_archive_take(a, opening, &(struct archive_run){BYTES_LITERAL("{}\n"), 1, time}, 1);
}

void take_minutes(struct file_archive *a, int n)
{
    for (int i = 0; i < n; i++)
        take_line(a, i * 60);
}

static void path_of(char out[300], const char *name)
{
    char *staging = archive_staging_directory(format);
    snprintf(out, 300, "%s/%s", *name == '@' ? staging : directory, *name == '@' ? name + 1 : name);
    free(staging);
}

void write_file(const char *name, const char *text)
{
    char path[300];
    path_of(path, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

void remove_file(const char *name)
{
    char path[300];
    path_of(path, name);
    unlink(path);
}

bool is_there(const char *name)
{
    char path[300];
    path_of(path, name);
    return access(path, F_OK) == 0;
}

void check_content(const char *name, const char *expected)
{
    char path[300], found[200];
    path_of(path, name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    found[fread(found, 1, sizeof found - 1, f)] = '\0';
    fclose(f);
    assert_string_equal(found, expected);
}

ssize_t write_where_room(int fd, const void *data, size_t n, off_t at)
{
    char link[40], path[200] = "";
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof path - 1) > 0 && strstr(path, without_room) != NULL) {
        errno = ENOSPC;
        return -1;
    }
    return real_io->pwrite(fd, data, n, at);
}

ssize_t write_no_parts(int fd, const struct iovec *parts, int n, off_t at)
{
    if (!no_room)
        return real_io->pwritev(fd, parts, n, at);
    errno = ENOSPC;
    return -1;
}

void append_lines(struct buf *out, char letter, size_t n)
{
    for (size_t i = 0; i < n; i++)
        buf_printf(out, "%c%062zu\n", letter, i);
}

void take_run(struct file_archive *a, struct buf *all, char letter, size_t lines)
{
    struct buf run = {0};
    append_lines(&run, letter, lines);
    buf_append_bytes(all, buf_bytes(&run));
    file_archive_take(a, opening, &(struct archive_run){buf_bytes(&run), lines, 0}, 1);
    buf_free(&run);
}

void wait_for_room(struct file_archive *a)
{
    assert_true(file_archive_is_full(a));
    no_room = false;
    while (file_archive_is_full(a))
        tick(a);
    assert_int_equal(file_archive_flush(a), 0);
    io = real_io;
}

void check_file(const char *name, const struct buf *expected)
{
    struct buf found = {0};
    char path[300];
    path_of(path, name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    buf_reserve(&found, expected->len + 10);
    found.len = fread(found.ptr, 1, expected->len + 9, f);
    fclose(f);
    assert_true(found.len > 3 && bytes_equal(bytes_of(found.ptr + 3, found.len - 3), buf_bytes(expected)));
    buf_free(&found);
}

int setup(void **state)
{
    (void)state;
    io = &io_system; /* a test that failed may have left its own */
    without_room = ".packed";
    no_room = false;
    opening = "";
    make_test_dir(directory, sizeof directory);
    snprintf(format, sizeof format, "%s/%%H%%M", directory);
    snprintf(state_path, sizeof state_path, "%s/state", directory);
    return 0;
}

static int remove_tree(const char *path)
{
    DIR *d = opendir(path);
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        char below[400];
        snprintf(below, sizeof below, "%s/%s", path, e->d_name);
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 && unlink(below) != 0)
            remove_tree(below);
    }
    if (d != NULL)
        closedir(d);
    return rmdir(path);
}

int teardown(void **state)
{
    (void)state;
    return remove_tree(directory);
}
