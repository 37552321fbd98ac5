/* journal_fd_cache: the descriptors through which a set reads its segments. All readers of a segment share one descriptor, and a
 * set has FD_CACHE_MAX of them. When the process runs out of descriptors, the cache closes one of its own to open the next
 * segment. So reads continue as long as the cache has one descriptor.
 *
 * A segment's descriptor is closed before its file is unlinked, so the cache never holds the space of a removed file. */
#ifndef MILLRACE_JOURNAL_FD_CACHE_H
#define MILLRACE_JOURNAL_FD_CACHE_H

#include <pthread.h>
#include <stdint.h>

#define FD_CACHE_MAX 8

struct segment;

struct fd_cache_entry {
    const struct segment *segment; /* NULL: free */
    int fd;
    uint64_t use;
};
struct fd_cache {
    pthread_mutex_t lock; /* journal_close uses the cache outside the reader thread */
    struct fd_cache_entry open[FD_CACHE_MAX];
    uint64_t uses;
};

/* Reader thread: the segment's descriptor, valid for the current job. -1 with errno. */
int fd_cache_get(struct fd_cache *cache, const struct segment *s);
void fd_cache_drop(struct fd_cache *cache, const struct segment *s);

#endif
