#include "journal/journal_newest_marker.h"

#include "base/bytes.h"
#include "base/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#define ENDING ".newest"

/* "0123456789abcdef.newest"; 0: not a marker. */
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
        uint64_t named = named_by(e->d_name);
        *sequence = named > *sequence ? named : *sequence;
    }
    closedir(d);
    return 0;
}

uint64_t newest_marker_write(const char *dir, uint64_t before, uint64_t sequence)
{
    char *path = newest_marker_path(dir, sequence), *old = newest_marker_path(dir, before);
    bool done = before == sequence || (before != 0 && io->rename(old, path) == 0);
    if (!done) {
        int fd = io->open(path, O_WRONLY | O_CREAT | O_CLOEXEC, IO_PRIVATE_MODE);
        done = fd >= 0;
        if (done)
            io->close(fd);
    }
    free(path);
    free(old);
    return done ? sequence : before;
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
