/* The files that reads have open: on the reader thread, for as long as nobody else needs the descriptor.
 *
 * Readers of one segment read through one descriptor, at places of their own, so however many there are, and however long
 * they stop between two reads, they hold FD_CACHE_MAX at most. While the system has none left, one of these is given up for
 * the one that is needed now: reads go on as long as there is one.
 *
 * What is open is closed before the segment's file loses its name, so that nothing here holds the space of what is gone.
 * The lock is for journal_close alone, which is the owner's and knows that no read of that journal is under way.
 */
#include "journal/journal_internal.h"

#include "base/io.h"

#include <errno.h>
#include <fcntl.h>

static void close_file(struct fd_cache_entry *f)
{
    io->close(f->fd);
    *f = (struct fd_cache_entry){0};
}

static struct fd_cache_entry *find(struct fd_cache *files, const struct segment *s)
{
    for (size_t i = 0; i < FD_CACHE_MAX; i++)
        if (files->open[i].segment == s)
            return &files->open[i];
    return NULL;
}

/* NULL: none is open. */
static struct fd_cache_entry *least_used(struct fd_cache *files)
{
    struct fd_cache_entry *least = NULL;
    for (size_t i = 0; i < FD_CACHE_MAX; i++) {
        struct fd_cache_entry *f = &files->open[i];
        if (f->segment && (!least || f->use < least->use))
            least = f;
    }
    return least;
}

static int open_path(const char *path)
{
    int fd;
    do
        fd = io->open(path, O_RDONLY | O_CLOEXEC, 0);
    while (fd < 0 && errno == EINTR);
    return fd;
}

/* One is given up, not all: somebody else may be quicker. */
static int open_file(struct fd_cache *files, const char *path)
{
    int fd = open_path(path);
    struct fd_cache_entry *spare = fd < 0 && is_out_of_descriptors(errno) ? least_used(files) : NULL;
    if (!spare)
        return fd;
    close_file(spare);
    return open_path(path);
}

static int add(struct fd_cache *files, const struct segment *s)
{
    if (!find(files, NULL))
        close_file(least_used(files));
    int fd = open_file(files, s->path);
    if (fd >= 0)
        *find(files, NULL) = (struct fd_cache_entry){.segment = s, .fd = fd};
    return fd;
}

int fd_cache_get(struct journal_set *set, const struct segment *s)
{
    struct fd_cache *files = &set->files;
    pthread_mutex_lock(&files->lock);
    struct fd_cache_entry *f = find(files, s);
    int fd = f ? f->fd : add(files, s);
    int system = errno;
    if (fd >= 0)
        find(files, s)->use = ++files->uses;
    pthread_mutex_unlock(&files->lock);
    errno = system;
    return fd;
}

void fd_cache_drop(struct journal_set *set, const struct segment *s)
{
    struct fd_cache *files = &set->files;
    pthread_mutex_lock(&files->lock);
    struct fd_cache_entry *f = find(files, s);
    if (f)
        close_file(f);
    pthread_mutex_unlock(&files->lock);
}
