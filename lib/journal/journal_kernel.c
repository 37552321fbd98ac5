/* Small commits under a policy of no delay: the owner writes them and has the kernel sync them, which wakes the owner by the
 * eventfd of the set's configuration. No thread of the set is woken, which takes longer than the write does.
 *
 * A commit is small when all that is pending is one batch of under journal_gather_max bytes, and writing it is a copy into
 * blocks that the file has, and nothing waited for it when the sync before was over: a committer begins what waits at once, and need
 * not wait for the loop to come round. All else is the committers': segments, their headers and directories,
 * zeros and blocks, what a session begins with, several journals at once, what the kernel does not take, and everything where the
 * process may run on one processor only: there a committer costs no wake-up of another.
 *
 * Invariants
 * 1. While set->kernel.batch is there, the kernel has the turn to sync: set->syncing. So there is one sync at a time, no segment
 *    begins and no descriptor is closed meanwhile, and batches are handed back in the order of the appends.
 * 2. The sync covers what was written when it was begun, which is read and begun under one hold of the lock.
 * 3. One ends it: the owner, when it polls and the kernel is done; or the committer that took it over, which waits for it. One
 *    takes it over when it has something written behind it or is to begin a segment, or when the owner waits
 *    (set_wait). So nobody but the owner's own callbacks waits for the owner's loop to come round.
 * 4. What is written when the turn ends, and what is pending, is not forgotten: the owner has a committer called before its poll ends
 *    (begin_what_gathered), a committer looks for itself, and who is to begin a segment syncs it before (set_wait_for_sync).
 * 5. It fails as an fdatasync does: the journal latches, and with the batch fails all behind it.
 * 6. What the kernel refused to begin is written already and lies on set->written: a committer syncs it, and the kernel is not
 *    asked again. */
#include "journal/journal_internal.h"

#include "base/io.h"

#include <errno.h>

#define SLOW_IN_A_ROW 3
#define OWNER_STAYS_AWAY (10 * USEC_PER_SEC)

void kernel_open(struct journal_set *set)
{
    struct kernel *k = &set->kernel;
    bool wanted = set->awake && set->config.wake_fd > 0 && set->config.sync_ms == 0;
    k->usable = k->open = wanted && io->sync_open(&k->io, set->config.wake_fd) == 0;
}

void kernel_close(struct journal_set *set)
{
    if (set->kernel.open)
        io->sync_close(&set->kernel.io);
    set->kernel.open = set->kernel.usable = false;
}

/* Under the lock: the journal whose commit is to be made so; NULL: there is none. */
static struct journal *small_commit(const struct journal_set *set)
{
    struct journal *j = set->dirty;
    bool free = !set->kernel.crowded && !set->writing && !set->syncing && !set->written;
    if (!set->kernel.usable || !free || !j || j->next_dirty || j->full || !j->pending || j->halted)
        return NULL;
    if (!set_gathers(set, j->pending->frames.len))
        return NULL;
    return set->owner_back == 0 || clock_monotonic() >= set->owner_back ? j : NULL;
}

/* As stay_away_after in journal_commit.c; but a write here is so short that whoever else has the processor decides how long one
 * takes, so it needs several. */
static void stay_away_after(struct journal_set *set, usec_t began)
{
    usec_t now = clock_monotonic();
    struct kernel *k = &set->kernel;
    k->slow = now - began > journal_owner_slow_write ? k->slow + 1 : 0;
    set->owner_back = k->slow >= SLOW_IN_A_ROW ? now + OWNER_STAYS_AWAY : 0;
}

/* Under the lock, nothing being synced: the first batch that is written. Whether it needed none and is the owner's again. */
static bool begin_sync(struct journal_set *set)
{
    struct kernel *k = &set->kernel;
    struct batch *b = set->written;
    if (!writer_must_sync(b, &k->covers)) {
        set_hand_back(set, set_take_written(set));
        return true;
    }
    if (io->sync_begin(&k->io, b->journal->writer.fd) == 0) {
        k->batch = set_take_written(set);
        set->syncing = true;
    } else {
        k->usable = false;
    }
    return false;
}

void kernel_commit(struct journal_set *set)
{
    if (!set->kernel.usable)
        return;
    pthread_mutex_lock(&set->lock);
    struct journal *j = small_commit(set);
    set->writing = set->writing || j;
    pthread_mutex_unlock(&set->lock);
    if (!j)
        return;
    usec_t began = clock_monotonic();
    bool mine = writer_only_copies(j, j->pending) && writer_has_blocks(j, j->pending);
    pthread_mutex_lock(&set->lock);
    if (mine) {
        set_write_pending(set);
        stay_away_after(set, began);
    }
    set->writing = false;
    bool answered = set->written && begin_sync(set);
    pthread_mutex_unlock(&set->lock);
    if (answered)
        set_request_poll(set);
}

bool kernel_take_over(struct journal_set *set)
{
    struct kernel *k = &set->kernel;
    bool takes = k->batch && !k->taken;
    k->taken = k->taken || takes;
    return takes;
}

struct batch *kernel_wait(struct journal_set *set)
{
    struct kernel *k = &set->kernel;
    pthread_mutex_unlock(&set->lock);
    int failed = io->sync_end(&k->io) != 0 ? errno : 0;
    writer_synced(k->batch, &k->covers, failed);
    pthread_mutex_lock(&set->lock);
    struct batch *b = k->batch;
    k->batch = NULL;
    k->taken = false;
    return b;
}

void kernel_poll(struct journal_set *set)
{
    struct kernel *k = &set->kernel;
    if (!k->open)
        return;
    pthread_mutex_lock(&set->lock);
    if (!k->batch || k->taken || !io->sync_is_over(&k->io)) {
        pthread_mutex_unlock(&set->lock);
        return;
    }
    k->taken = true;
    set_hand_back(set, kernel_wait(set));
    set_end_syncing(set);
    pthread_mutex_unlock(&set->lock);
}
