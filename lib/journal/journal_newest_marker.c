/* The newest segment's number, kept as the name of an empty file: so that newest segments whose files were deleted are missed. A
 * segment's header names the one before it, so a gap tells of itself; of the last ones nothing else would.
 *
 * 1. A segment is named only when its own name is durable: so what is named was there, whatever a power cut takes.
 * 2. An opening or a repair that leaves off segments takes the name away for good before: so it never tells of more than there
 *    ought to be.
 * 3. It is a help and costs no sync. A power cut may leave the name of one before, or none, and so may a file system that has no room
 *    for it; then less is missed. */
#include "journal/journal_internal.h"

#include "base/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#define ENDING ".newest"

/* "0123456789abcdef.newest"; 0: it is none. */
static uint64_t named_by(const char *name)
{
    bool is = strspn(name, "0123456789abcdef") == 16 && strcmp(name + 16, ENDING) == 0;
    return is ? strtoull(name, NULL, 16) : 0;
}

char *newest_marker_path(const char *dir, uint64_t sequence)
{
    struct buf b = {0};
    buf_printf(&b, "%s/%016llx" ENDING, dir, (unsigned long long)sequence);
    buf_append_char(&b, 0);
    return b.ptr;
}

int newest_marker_read(const char *dir, uint64_t *sequence)
{
    DIR *d = opendir(dir);
    *sequence = 0;
    if (!d)
        return -1;
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        uint64_t its = named_by(e->d_name);
        *sequence = its > *sequence ? its : *sequence;
    }
    closedir(d);
    return 0;
}

void newest_marker_write(struct journal *j, uint64_t sequence)
{
    char *path = newest_marker_path(j->dir, sequence), *before = newest_marker_path(j->dir, j->newest_marker);
    bool done = j->newest_marker == sequence || (j->newest_marker != 0 && io->rename(before, path) == 0);
    if (!done) {
        int fd = io->open(path, O_WRONLY | O_CREAT | O_CLOEXEC, IO_PRIVATE_MODE);
        done = fd >= 0;
        if (done)
            io->close(fd);
    }
    j->newest_marker = done ? sequence : j->newest_marker;
    free(path);
    free(before);
}

int newest_marker_remove(const char *dir, int dir_fd)
{
    uint64_t named;
    bool any = false;
    int failed;
    while ((failed = newest_marker_read(dir, &named)) == 0 && named != 0) {
        char *path = newest_marker_path(dir, named);
        failed = io->unlink(path);
        int system = errno;
        free(path);
        errno = system;
        if (failed)
            return -1;
        any = true;
    }
    return failed ? -1 : any ? io->fsync(dir_fd) : 0;
}
