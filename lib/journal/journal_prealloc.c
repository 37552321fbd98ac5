#include "journal/journal_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#define FILL_STEP ((size_t)256 << 10)
#define FILL_SYNC_EVERY (UINT64_C(4) << 20)

usec_t journal_prealloc_idle = 10 * USEC_PER_MSEC;

static char *spare_path(const struct journal *j)
{
    return dir_path(j->dir, PREALLOC_NAME);
}

/* Waits until no commit has run for a while. Zeros that are written during a commit would delay this commit by as much
 * time as the zeros save later. A set with a running commit is not idle. A set whose appends only wait for sync_ms is
 * idle. Returns true if the filler thread may write more zeros. */
static bool wait_for_idle(struct journal *j, bool *abandoned)
{
    struct journal_set *set = j->set;
    struct prealloc *p = &j->prealloc;
    set_lock(set);
    for (;;) {
        *abandoned = p->abandon || set->stop;
        if (set->writing || set->syncing || (set->dirty && set->config.sync_ms == 0))
            p->busy = clock_monotonic();
        usec_t due = p->busy + journal_prealloc_idle;
        if (*abandoned || p->hurry || clock_monotonic() >= due)
            break;
        set_sleep(set, &set->fills, due);
    }
    bool go_on = !*abandoned && !p->hurry;
    set_unlock(set);
    return go_on;
}

/* First allocates all blocks, which is fast: a commit into allocated blocks costs less than a commit that extends the
 * file. Then writes zeros. On a file system without fallocate, the function only writes zeros. *filled is the end of
 * the zeros. Returns 0 or an errno. */
static int fill_file(struct journal *j, int fd, uint64_t *filled)
{
    static const char zeros[FILL_STEP];
    bool allocated = io_allocate(fd, 0, 0, (off_t)j->segment_bytes) == 0, abandoned = false;
    if (!allocated && errno_is_full(errno))
        return errno;
    set_lock(j->set);
    j->prealloc.allocated = allocated;
    set_unlock(j->set);
    while (*filled < j->segment_bytes && wait_for_idle(j, &abandoned)) {
        uint64_t left = j->segment_bytes - *filled, step = left < FILL_STEP ? left : FILL_STEP;
        if (io_write_all(fd, zeros, step, (off_t)*filled) != 0)
            return errno;
        *filled += step;
        if (*filled % FILL_SYNC_EVERY == 0 && sync_or_eio(io->fdatasync(fd)) != 0)
            return errno;
    }
    if (abandoned)
        return ECANCELED;
    return sync_or_eio(io->fsync(fd)) == 0 ? 0 : errno;
}

/* Makes the spare file. A full disk, a shortage of descriptors or the end of the journal only means that no spare file
 * exists. Any other failure is a failure of the storage. */
static struct prealloc make_spare(struct journal *j)
{
    struct prealloc made = {.state = PREALLOC_NO_SPACE};
    char *fresh = dir_path(j->dir, PREALLOC_NAME ".new"), *path = spare_path(j);
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

void *filler_main(void *arg)
{
    struct journal_set *set = arg;
    set_lock(set);
    for (;;) {
        while (!set->to_fill && !set->stop)
            set_sleep(set, &set->fills, 0);
        if (set->stop)
            break;
        struct journal *j = set->to_fill;
        set->to_fill = j->next_to_fill;
        if (!set->to_fill)
            set->to_fill_tail = &set->to_fill;
        j->prealloc.state = PREALLOC_BUSY;
        set_unlock(set);
        struct prealloc made = make_spare(j);
        set_lock(set);
        made.abandon = j->prealloc.abandon;
        made.paused = j->prealloc.paused;
        made.trimmed = j->prealloc.trimmed;
        made.busy = j->prealloc.busy;
        j->prealloc = made;
        pthread_cond_broadcast(&set->progress);
    }
    set_unlock(set);
    return NULL;
}

/* If segments are being trimmed, requests the spare file later, because a trimmed file will probably become it. */
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
        set_sleep(j->set, &j->set->progress, 0);
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

void prealloc_discard(struct journal *j)
{
    struct prealloc gone;
    if (!prealloc_take(j, &gone))
        return;
    char *path = spare_path(j);
    io->unlink(path);
    free(path);
    prealloc_release(j);
}

/* A backup may have a hard link to the file of a segment. A file with a hard link must not be overwritten. */
static bool has_other_name(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && st.st_nlink > 1;
}

/* Syncs the directory, because the removal of the segment's name must be durable before its bytes are overwritten.
 * Counts hard links after the rename. A backup discards a later link, because the segment's name is gone. */
int prealloc_recycle(struct journal *j, const struct segment *s)
{
    struct journal_set *set = j->set;
    struct prealloc *p = &j->prealloc;
    if (set_never_syncs(set) || s->size < j->segment_bytes || s->size > 2 * j->segment_bytes || s->shared)
        return 0;
    set_lock(set);
    bool wanted = !p->abandon && !p->paused && (p->state == PREALLOC_NONE || p->state == PREALLOC_NO_SPACE);
    if (!p->abandon)
        p->trimmed = true;
    if (wanted)
        p->state = PREALLOC_BUSY;
    set_unlock(set);
    if (!wanted)
        return 0;
    char *path = spare_path(j);
    bool done = io->rename(s->path, path) == 0 && journal_dir_sync(j) == 0;
    int system = errno;
    bool kept = done && has_other_name(path);
    if (kept)
        io->unlink(path);
    free(path);
    set_lock(set);
    p->state = kept ? PREALLOC_NONE : done ? PREALLOC_READY : PREALLOC_NO_SPACE;
    p->recycled = true;
    p->size = p->filled = s->size;
    pthread_cond_broadcast(&set->progress);
    set_unlock(set);
    errno = system;
    return done ? 1 : -1;
}

void prealloc_pause_recycling(struct journal *j, bool paused)
{
    set_lock(j->set);
    j->prealloc.paused = paused;
    set_unlock(j->set);
}

void prealloc_adopt(struct journal *j)
{
    char *fresh = dir_path(j->dir, PREALLOC_NAME ".new"), *path = spare_path(j);
    struct stat st;
    if (stat(fresh, &st) == 0)
        io->unlink(fresh);
    if (stat(path, &st) == 0) {
        uint64_t size = (uint64_t)st.st_size;
        if (!set_never_syncs(j->set) && size >= j->segment_bytes && st.st_nlink == 1)
            j->prealloc =
                (struct prealloc){.state = PREALLOC_READY, .recycled = true, .size = size, .filled = size};
        else
            io->unlink(path);
    }
    free(fresh);
    free(path);
}

void prealloc_close(struct journal *j)
{
    struct journal_set *set = j->set;
    set_lock(set);
    j->prealloc.abandon = true;
    pthread_cond_signal(&set->fills);
    if (j->prealloc.state == PREALLOC_REQUESTED) {
        struct journal **at = &set->to_fill;
        while (*at != j)
            at = &(*at)->next_to_fill;
        *at = j->next_to_fill;
        if (set->to_fill_tail == &j->next_to_fill)
            set->to_fill_tail = at;
        j->prealloc.state = PREALLOC_NONE;
    }
    while (j->prealloc.state == PREALLOC_BUSY)
        set_sleep(set, &set->progress, 0);
    set_unlock(set);
}

uint64_t prealloc_bytes(const struct journal *j)
{
    set_lock(j->set);
    uint64_t n = j->prealloc.state == PREALLOC_READY ? j->prealloc.size : 0;
    set_unlock(j->set);
    return n;
}
