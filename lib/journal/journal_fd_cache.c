#include "journal/journal_fd_cache.h"

#include "base/io.h"
#include "journal/journal_dir.h"
#include "base/errno_class.h"
#include "journal/journal_internal.h"

#include <errno.h>

static void close_entry(struct fd_cache_entry *f)
{
    io->close(f->fd);
    *f = (struct fd_cache_entry){0};
}

static struct fd_cache_entry *find(struct fd_cache *cache, const struct segment *s)
{
    for (size_t i = 0; i < FD_CACHE_MAX; i++)
        if (cache->open[i].segment == s)
            return &cache->open[i];
    return NULL;
}

static struct fd_cache_entry *least_used(struct fd_cache *cache)
{
    struct fd_cache_entry *least = NULL;
    for (size_t i = 0; i < FD_CACHE_MAX; i++) {
        struct fd_cache_entry *f = &cache->open[i];
        if (f->segment && (!least || f->use < least->use))
            least = f;
    }
    return least;
}

static int add(struct fd_cache *cache, const struct segment *s)
{
    if (!find(cache, NULL))
        close_entry(least_used(cache));
    int fd = file_open(s->path);
    struct fd_cache_entry *oldest = least_used(cache);
    if (fd < 0 && errno_is_fd_limit(errno) && oldest) {
        close_entry(oldest); /* only one: another thread may take it, and the others stay useful */
        fd = file_open(s->path);
    }
    if (fd >= 0)
        *find(cache, NULL) = (struct fd_cache_entry){.segment = s, .fd = fd};
    return fd;
}

int fd_cache_get(struct fd_cache *cache, const struct segment *s)
{
    pthread_mutex_lock(&cache->lock);
    struct fd_cache_entry *f = find(cache, s);
    int fd = f ? f->fd : add(cache, s);
    int system = errno;
    if (fd >= 0)
        find(cache, s)->use = ++cache->uses;
    pthread_mutex_unlock(&cache->lock);
    errno = system;
    return fd;
}

void fd_cache_drop(struct fd_cache *cache, const struct segment *s)
{
    pthread_mutex_lock(&cache->lock);
    struct fd_cache_entry *f = find(cache, s);
    if (f)
        close_entry(f);
    pthread_mutex_unlock(&cache->lock);
}
