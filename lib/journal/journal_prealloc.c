
#include "journal/journal_prealloc.h"
#include "journal/journal_handoff.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#define FILL_STEP ((size_t)256 << 10)
#define FILL_SYNC_EVERY (UINT64_C(4) << 20)

usec_t journal_prealloc_idle = 10 * USEC_PER_MSEC;

enum leave { LEAVE_NO, LEAVE_AS_IT_IS, LEAVE_FOR_GOOD };

/* A slow commit counts as activity; appends that wait for sync_ms do not. */
static bool is_committing(const struct journal_set *set)
{
    return set->writing || set->syncing || (set->dirty && set->config.sync_ms == 0);
}

/* Waits until nothing has been committed for a while: zeros written during a commit would cost it as much as they
 * save. */
static enum leave wait_for_idle(struct journal *j)
{
    struct journal_set *set = j->set;
    enum leave leave = LEAVE_NO;
    set_lock(set);
    for (;;) {
        leave = j->prealloc.abandon || set->stop ? LEAVE_FOR_GOOD
                : j->prealloc.hurry              ? LEAVE_AS_IT_IS
                                                 : LEAVE_NO;
        if (is_committing(set))
            j->prealloc.busy = clock_monotonic();
        usec_t due = j->prealloc.busy + journal_prealloc_idle;
        if (leave != LEAVE_NO || clock_monotonic() >= due)
            break;
        set_sleep_until(set, &set->fills, due);
    }
    set_unlock(set);
    return leave;
}

/* 0, or an errno. *filled is how far the zeros reach. */
static int write_zeros(struct journal *j, int fd, uint64_t *filled)
{
    static const char zeros[FILL_STEP];
    for (uint64_t size = 0; size < j->segment_bytes; *filled = size) {
        uint64_t left = j->segment_bytes - size, step = left < FILL_STEP ? left : FILL_STEP;
        enum leave leave = wait_for_idle(j);
        if (leave != LEAVE_NO)
            return leave == LEAVE_FOR_GOOD ? ECANCELED : 0;
        if (io_write_all(fd, zeros, step, (off_t)size) != 0)
            return errno;
        size += step;
        if (size % FILL_SYNC_EVERY == 0 && sync_or_eio(io->fdatasync(fd)) != 0)
            return errno;
    }
    return 0;
}

/* Allocates first, which takes no time: a commit into allocated blocks is already cheaper than one that grows the
 * file. A file system without fallocate gets zeros only. */
static int fill_file(struct journal *j, int fd, uint64_t *filled)
{
    bool allocated = io_allocate(fd, 0, 0, (off_t)j->segment_bytes) == 0;
    if (!allocated && errno_is_full(errno))
        return errno;
    set_lock(j->set);
    j->prealloc.allocated = allocated;
    set_unlock(j->set);
    int failed = write_zeros(j, fd, filled);
    if (failed == 0 && sync_or_eio(io->fsync(fd)) != 0)
        failed = errno;
    return failed;
}

/* A failure that says nothing about the storage (no space, no descriptors, closing) only means that there is no spare
 * file. */
static struct prealloc make_spare(struct journal *j)
{
    struct prealloc made = {.state = PREALLOC_NO_SPACE};
    char *fresh = prealloc_path(j->dir, ".new"), *path = prealloc_path(j->dir, "");
    int fd = io->open(fresh, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, IO_PRIVATE_MODE);
    if (fd >= 0) {
        uint64_t filled = 0;
        int failed = fill_file(j, fd, &filled);
        io->close(fd);
        if (failed == 0 && io->rename(fresh, path) == 0)
            made = (struct prealloc){.state = PREALLOC_READY, .size = j->segment_bytes, .filled = filled};
        else
            io->unlink(fresh);
        if (failed && !errno_is_full(failed) && failed != ECANCELED)
            made.failed = failed;
    }
    free(fresh);
    free(path);
    return made;
}

static struct journal *take_to_fill(struct journal_set *set)
{
    assert(set_is_locked(set));
    struct journal *j = set->to_fill;
    set->to_fill = j->next_to_fill;
    if (!set->to_fill)
        set->to_fill_tail = &set->to_fill;
    j->prealloc.state = PREALLOC_BUSY;
    return j;
}

void *filler_main(void *arg)
{
    struct journal_set *set = arg;
    set_lock(set);
    for (;;) {
        while (!set->to_fill && !set->stop)
            set_sleep(set, &set->fills);
        if (set->stop)
            break;
        struct journal *j = take_to_fill(set);
        set_unlock(set);
        struct prealloc made = make_spare(j);
        set_lock(set);
        made.abandon = j->prealloc.abandon;
        made.trimmed = j->prealloc.trimmed;
        made.busy = j->prealloc.busy;
        j->prealloc = made;
        pthread_cond_broadcast(&set->progress);
    }
    set_unlock(set);
    return NULL;
}

/* A journal that is being trimmed will get a recycled file, so zeros are requested late. */
void prealloc_request(struct journal *j)
{
    struct journal_set *set = j->set;
    struct writer *w = &j->writer;
    set_lock(set);
    j->prealloc.busy = clock_monotonic();
    uint64_t due = w->recycled || j->prealloc.trimmed ? j->segment_bytes / 8 * 7 : j->segment_bytes / 8;
    if (w->position >= due && !j->prealloc.abandon && j->prealloc.state == PREALLOC_NONE) {
        j->prealloc.state = PREALLOC_REQUESTED;
        j->prealloc.trimmed = false;
        j->next_to_fill = NULL;
        *set->to_fill_tail = j;
        set->to_fill_tail = &j->next_to_fill;
        pthread_cond_signal(&set->fills);
    }
    set_unlock(set);
}

bool prealloc_is_ready(struct journal *j)
{
    set_lock(j->set);
    bool is =
        j->prealloc.state == PREALLOC_READY || (j->prealloc.state == PREALLOC_BUSY && j->prealloc.allocated);
    set_unlock(j->set);
    return is;
}

bool prealloc_take(struct journal *j, struct prealloc *out)
{
    set_lock(j->set);
    while (j->prealloc.state == PREALLOC_BUSY && j->prealloc.allocated) {
        j->prealloc.hurry = true;
        pthread_cond_signal(&j->set->fills);
        set_sleep(j->set, &j->set->progress);
    }
    *out = j->prealloc;
    if (j->prealloc.state == PREALLOC_READY)
        j->prealloc.state = PREALLOC_BUSY;
    if (j->prealloc.state == PREALLOC_NO_SPACE)
        j->prealloc.state = PREALLOC_NONE;
    set_unlock(j->set);
    return out->state == PREALLOC_READY;
}

void prealloc_release(struct journal *j)
{
    set_lock(j->set);
    j->prealloc.state = PREALLOC_NONE;
    pthread_cond_broadcast(&j->set->progress);
    set_unlock(j->set);
}

int prealloc_error(struct journal *j)
{
    set_lock(j->set);
    int failed = j->prealloc.failed;
    set_unlock(j->set);
    return failed;
}

void prealloc_discard(struct journal *j)
{
    struct prealloc gone;
    if (!prealloc_take(j, &gone))
        return;
    char *path = prealloc_path(j->dir, "");
    io->unlink(path);
    free(path);
    prealloc_release(j);
}

static bool wants_recycled(struct journal *j, const struct segment *s)
{
    assert(set_is_locked(j->set));
    if (set_never_syncs(j->set) || s->size < j->segment_bytes || j->prealloc.abandon || s->shared)
        return false;
    j->prealloc.trimmed = true;
    return j->prealloc.state == PREALLOC_NONE || j->prealloc.state == PREALLOC_NO_SPACE;
}

/* The segment's old name must be durably gone before its bytes are overwritten: hence the directory's sync. */
int prealloc_recycle(struct journal *j, const struct segment *s)
{
    struct journal_set *set = j->set;
    set_lock(set);
    bool wanted = wants_recycled(j, s);
    if (wanted)
        j->prealloc.state = PREALLOC_BUSY;
    set_unlock(set);
    if (!wanted)
        return 0;
    char *path = prealloc_path(j->dir, "");
    bool done = io->rename(s->path, path) == 0 && journal_dir_sync(j) == 0;
    int system = errno;
    free(path);
    set_lock(set);
    j->prealloc.state = done ? PREALLOC_READY : PREALLOC_NO_SPACE;
    j->prealloc.recycled = true;
    j->prealloc.size = j->prealloc.filled = s->size;
    pthread_cond_broadcast(&set->progress);
    set_unlock(set);
    errno = system;
    return done ? 1 : -1;
}

void prealloc_adopt(struct journal *j)
{
    char *fresh = prealloc_path(j->dir, ".new"), *path = prealloc_path(j->dir, "");
    struct stat st;
    if (stat(fresh, &st) == 0)
        io->unlink(fresh);
    if (stat(path, &st) == 0) {
        if (!set_never_syncs(j->set) && (uint64_t)st.st_size >= j->segment_bytes)
            j->prealloc = (struct prealloc){.state = PREALLOC_READY,
                .recycled = true,
                .size = (uint64_t)st.st_size,
                .filled = (uint64_t)st.st_size};
        else
            io->unlink(path);
    }
    free(fresh);
    free(path);
}

static void leave_fill_list(struct journal_set *set, struct journal *j)
{
    assert(set_is_locked(set));
    set->to_fill_tail = &set->to_fill;
    while (*set->to_fill_tail) {
        if (*set->to_fill_tail == j)
            *set->to_fill_tail = j->next_to_fill;
        else
            set->to_fill_tail = &(*set->to_fill_tail)->next_to_fill;
    }
}

void prealloc_close(struct journal *j)
{
    struct journal_set *set = j->set;
    set_lock(set);
    j->prealloc.abandon = true;
    pthread_cond_signal(&set->fills);
    if (j->prealloc.state == PREALLOC_REQUESTED) {
        leave_fill_list(set, j);
        j->prealloc.state = PREALLOC_NONE;
    }
    while (j->prealloc.state == PREALLOC_BUSY)
        set_sleep(set, &set->progress);
    set_unlock(set);
}

uint64_t prealloc_bytes(const struct journal *j)
{
    set_lock(j->set);
    uint64_t n = j->prealloc.state == PREALLOC_READY ? j->prealloc.size : 0;
    set_unlock(j->set);
    return n;
}
