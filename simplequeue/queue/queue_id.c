#include "simplequeue/queue/queue_id.h"

#include "base/io.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>

#define FILE_NAME "queue-id"
#define DIGITS (JOURNAL_ID_TEXT - 1)

static int fail(char *error, size_t error_size, const char *dir, const char *why)
{
    snprintf(error, error_size, "%s/" FILE_NAME ": %s", dir, why);
    return -1;
}

static bool is_id(const char *text)
{
    return strspn(text, "0123456789abcdef") == DIGITS;
}

int queue_id_read(
    const char *dir, const char *journal, char id[JOURNAL_ID_TEXT], char *error, size_t error_size)
{
    char path[PATH_MAX], text[2 * JOURNAL_ID_TEXT + 1] = "";
    snprintf(path, sizeof path, "%s/" FILE_NAME, dir);
    int fd = io->open(path, O_RDONLY | O_CLOEXEC, 0);
    id[0] = '\0';
    if (fd < 0)
        return errno == ENOENT ? 0 : fail(error, error_size, dir, strerror(errno));
    ssize_t n = io->pread(fd, text, sizeof text, 0);
    io->close(fd);
    const char *of = text + JOURNAL_ID_TEXT;
    if (n != 2 * JOURNAL_ID_TEXT || !is_id(text) || text[DIGITS] != ' ' || !is_id(of) || of[DIGITS] != '\n')
        return fail(error, error_size, dir, "it must hold two ids of 32 hexadecimal digits");
    if (memcmp(of, journal, DIGITS) == 0)
        snprintf(id, JOURNAL_ID_TEXT, "%.*s", DIGITS, text);
    return 0;
}

/* Writes another file and renames it, so that a crash leaves the old file or the new one. */
int queue_id_write(const char *dir, const char *journal, const char *id, char *error, size_t error_size)
{
    char path[PATH_MAX], fresh[PATH_MAX], text[2 * JOURNAL_ID_TEXT + 1];
    snprintf(path, sizeof path, "%s/" FILE_NAME, dir);
    snprintf(fresh, sizeof fresh, "%s/" FILE_NAME ".new", dir);
    snprintf(text, sizeof text, "%s %s\n", id, journal);
    int fd = io->open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, IO_PRIVATE_MODE);
    if (fd < 0)
        return fail(error, error_size, dir, strerror(errno));
    bool wrote = io_write_all(fd, text, strlen(text), 0) == 0 && io->fsync(fd) == 0;
    int why = errno;
    io->close(fd);
    errno = why;
    if (wrote && io->rename(fresh, path) == 0 && io_sync_dir(dir) == 0)
        return 0;
    return fail(error, error_size, dir, strerror(errno));
}
