/* archive_recover STREAM COMPRESSION [TIME_FIELD]: what ps_to_file does after a power cut, quickly and many times over.
 *
 * STREAM is a file with all bytes of the stream `s`. For each line of stdin, a directory that a cut left, it opens the archive
 * there, takes the stream from the cursor on, finishes everything and answers `ok` or the reason that it cannot. Without a
 * TIME_FIELD what is left of the stream arrives on this day, or for every second directory on the next. Nothing is synced:
 * no cut follows. */
#include "streams/archive/event_time.h"
#include "streams/archive/file_archive.h"
#include "base/io.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define STEP (10 * USEC_PER_MSEC)
/* Of the threads, which publish and commit while the archive's clock advances by STEP. */
#define PATIENCE (120 * USEC_PER_SEC) /* as long as any test waits */

static struct io_ops unsynced;
static struct buf stream;
static struct event_time *event_time; /* NULL: by arrival */
static int64_t arrival;
static enum archive_compression compression;

static int sync_nothing(int fd)
{
    (void)fd;
    return 0;
}

static void ignore(void *arg)
{
    (void)arg;
}

static int read_stream(const char *path)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0)
        return -1;
    buf_reserve(&stream, (size_t)st.st_size + 1);
    ssize_t n = read(fd, stream.ptr, (size_t)st.st_size);
    stream.len = n > 0 ? (size_t)n : 0;
    close(fd);
    return n == st.st_size ? 0 : -1;
}

static void take_rest(struct file_archive *a)
{
    uint64_t at = file_archive_cursor(a)->offset;
    while (at < stream.len) {
        const char *begin = stream.ptr + at, *lf = memchr(begin, '\n', stream.len - at);
        struct bytes line = bytes_of(begin, (size_t)(lf - begin));
        int64_t when = arrival;
        if (event_time != NULL)
            event_time_of(event_time, line, &when);
        file_archive_take(a, "", &(struct archive_run){bytes_of(begin, line.len + 1), 1, when}, 1);
        at += line.len + 1;
    }
}

/* Until every file is finished and the state knows none. */
static const char *finish_all(struct file_archive *a)
{
    bool final;
    usec_t now = USEC_PER_SEC;
    if (file_archive_flush(a) != 0)
        return file_archive_trouble(a, &final);
    file_archive_roll(a);
    for (usec_t end = clock_monotonic() + PATIENCE; clock_monotonic() < end;) {
        struct file_archive_numbers n = file_archive_numbers(a);
        if (n.open + n.finishing == 0)
            return file_archive_flush(a) == 0 ? NULL : file_archive_trouble(a, &final);
        file_archive_tick(a, clock_wall(), now += STEP);
        if (file_archive_trouble(a, &final) != NULL)
            return file_archive_trouble(a, &final);
        usleep(50);
    }
    return "it is not done within its time";
}

static void recover(const char *directory)
{
    struct buf format = {0}, state = {0};
    struct error error;
    buf_printf(&format, "%s/s-%%Y%%m%%d.ndjson", directory);
    buf_printf(&state, "%s/state/s.json", directory);
    struct file_archive *a = file_archive_open(&(struct file_archive_config){.format = format.ptr,
                                                   .state_path = state.ptr,
                                                   .stream = "s",
                                                   .compression = compression,
                                                   .by_event_time = event_time != NULL,
                                                   .commit_every = USEC_PER_SEC,
                                                   .close_after = 3600 * USEC_PER_SEC,
                                                   .max_open = 4,
                                                   .max_pending = (size_t)1 << 30,
                                                   .wake = ignore},
        USEC_PER_SEC, &error);
    if (a != NULL && file_archive_cursor(a)->id[0] == '\0')
        file_archive_begin(a, &(struct stream_cursor){.id = "0123456789abcdef0123456789abcdef"});
    if (a != NULL)
        take_rest(a);
    const char *trouble = a != NULL ? finish_all(a) : error.text;
    printf("%s\n", trouble != NULL ? trouble : "ok");
    fflush(stdout);
    file_archive_close(&a);
    buf_free(&format);
    buf_free(&state);
}

int main(int argc, char **argv)
{
    char line[4096];
    unsynced = io_system;
    unsynced.fdatasync = unsynced.fsync = sync_nothing;
    io = &unsynced;
    if (argc < 3 || read_stream(argv[1]) != 0)
        return 64;
    compression = strcmp(argv[2], "gzip") == 0 ? ARCHIVE_GZIP : ARCHIVE_PLAIN;
    event_time = argc > 3 ? event_time_new(argv[3], 1) : NULL;
    for (int n = 0; fgets(line, sizeof line, stdin) != NULL; n++) {
        arrival = (int64_t)time(NULL) + n % 2 * 86400;
        line[strcspn(line, "\n")] = '\0';
        recover(line);
    }
    event_time_free(&event_time);
    buf_free(&stream);
    return 0;
}
