/* The commits of a set. A set has two committer threads, which form a pipeline of two stages. In a round, a committer
 * takes and writes the pending batch of every dirty journal (stage one). The committer then syncs the files if required
 * (stage two), and returns the batches.
 *
 * 1. Each stage contains at most one thread (`writing`, `syncing`), and a committer stays in stage one until it can
 *    enter stage two. Batches are therefore written, synced and returned in the order of the appends.
 * 2. Appends that arrive during a sync become durable with the next sync. When journal_gather_max bytes wait, the other
 *    committer writes these bytes while the sync still runs. For fewer bytes, waking a thread takes more time than the
 *    thread saves.
 * 3. A committer that cannot write a batch halts the journal before any committer takes the journal's next batch. If a
 *    sync fails, the journal is latched, and the batches that were written during the sync fail, too (writer_sync).
 * 4. A new segment begins only while no thread syncs, so no descriptor is closed during a sync.
 *
 * Under JOURNAL_SYNC_NEVER, copying bytes into the page cache costs less than waking a thread. If a round only copies
 * such bytes and both stages are free, the owner itself runs the round. */
#include "journal/journal_internal.h"

#include <assert.h>

/* Time after a slow write in which the owner leaves all commits to the committers. */
#define OWNER_BACKOFF (10 * USEC_PER_SEC)

size_t journal_owner_write_max = (size_t)1 << 20;
size_t journal_gather_max = (size_t)256 << 10;
usec_t journal_owner_slow_write = 2 * USEC_PER_MSEC;

/* True if a round should begin now. The caller also waits for set->not_before (sync_ms). */
static bool may_write(const struct journal_set *set)
{
    assert(set_is_locked(set));
    return set->dirty && !set->writing && (!set->syncing || set->dirty_bytes >= journal_gather_max);
}

/* Stage one: writes the pending batches of all dirty journals and returns them as a list. The batch of a halted journal
 * stays pending until the owner takes it back. Releases the lock during the writes. */
static struct batch *write_round(struct journal_set *set)
{
    assert(set_is_locked(set) && set->writing);
    struct batch *first = NULL, **tail = &first;
    for (struct journal *j = set->dirty; j; j = j->next_dirty) {
        j->dirty = false;
        if (!j->pending || j->halted)
            continue;
        *tail = j->pending;
        tail = &j->pending->next;
        j->pending = NULL;
    }
    set->dirty = NULL;
    set->dirty_tail = &set->dirty;
    set->dirty_bytes = 0;
    set_unlock(set);
    for (struct batch *b = first; b; b = b->next)
        writer_write(b);
    set_lock(set);
    for (struct batch *b = first; b; b = b->next)
        b->journal->halted = b->result != JOURNAL_OK;
    return first;
}

/* Returns batches to the owner. True if the list of finished batches was empty, so that the owner must be notified. */
static bool hand_back(struct journal_set *set, struct batch *first)
{
    assert(set_is_locked(set));
    bool was_empty = !set->finished;
    if (!first)
        return false;
    *set->finished_tail = first;
    for (struct batch *b = first; b; b = b->next)
        set->finished_tail = &b->next;
    set_signal_owner(set, was_empty);
    return was_empty;
}

static struct committer *take_idle(struct journal_set *set)
{
    for (size_t i = 0; i < COMMITTERS; i++)
        if (set->committers[i].idle) {
            set->committers[i].idle = false;
            return &set->committers[i];
        }
    return NULL;
}

void commit_wake_all(struct journal_set *set)
{
    assert(set_is_locked(set));
    for (struct committer *c; (c = take_idle(set));)
        pthread_cond_signal(&c->wake);
}

/* Waits until a round should begin; false: the set is being freed. With sync_ms, a round begins at the end of the
 * interval, or earlier if the owner waits for the round. */
static bool wait_for_work(struct committer *c)
{
    struct journal_set *set = c->set;
    for (;;) {
        if (may_write(set) && (set->hurry || set->stop || clock_monotonic() >= set->not_before))
            return true;
        if (set->stop && !set->dirty)
            return false;
        c->idle = true;
        set_sleep(set, &c->wake, may_write(set) ? set->not_before : 0);
        c->idle = false;
    }
}

/* A committer writes batches until stage two is free. The committer also writes appends that arrive while the other
 * committer syncs, and its own sync makes them durable. Under JOURNAL_SYNC_NEVER a segment may begin without a sync of
 * the previous segment, so a committer does not write during a sync. */
void *committer_main(void *arg)
{
    struct committer *c = arg;
    struct journal_set *set = c->set;
    set_lock(set);
    while (wait_for_work(c)) {
        struct batch *first = NULL, **tail = &first;
        set->writing = true;
        if (set->config.sync_ms > 0)
            set->not_before = clock_monotonic() + set->config.sync_ms * USEC_PER_MSEC;
        do {
            *tail = write_round(set);
            while (*tail)
                tail = &(*tail)->next;
            while (set->syncing && (set_never_syncs(set) || set->dirty_bytes < journal_gather_max))
                set_wait_while_syncing(set);
        } while (set->syncing);
        set->syncing = true;
        set->writing = false;
        if (may_write(set))
            commit_wake_all(set);
        set_unlock(set);
        for (struct batch *b = first; b; b = b->next)
            writer_sync(b);
        set_lock(set);
        bool notify = hand_back(set, first);
        set->syncing = false;
        if (set->awaits_sync)
            pthread_cond_signal(&set->synced);
        if (notify) {
            set_unlock(set);
            set->config.notify(set->config.notify_arg);
            set_lock(set);
        }
    }
    commit_wake_all(set); /* the other committer stops too */
    set_unlock(set);
    return NULL;
}

/* Signals after releasing the lock, because the thread that wakes up needs the lock. */
void commit_start(struct journal_set *set)
{
    set_lock(set);
    struct committer *idle = may_write(set) ? take_idle(set) : NULL;
    bool grown = set->awaits_sync && set->dirty_bytes >= journal_gather_max;
    set_unlock(set);
    if (idle)
        pthread_cond_signal(&idle->wake);
    if (grown)
        pthread_cond_signal(&set->synced);
}

bool commit_by_owner(const struct journal_set *set)
{
    return set_never_syncs(set) && set->pending_bytes <= journal_owner_write_max &&
           (set->owner_back == 0 || clock_monotonic() >= set->owner_back);
}

void commit_write(struct journal_set *set)
{
    if (!commit_by_owner(set))
        return;
    set_lock(set);
    bool mine = set->dirty && !set->writing && !set->syncing;
    set->writing = set->writing || mine;
    set_unlock(set);
    if (!mine)
        return;
    /* The owner may read the dirty list unlocked: only the owner adds and only stage one removes journals. */
    bool copies = true;
    for (struct journal *j = set->dirty; j && copies; j = j->next_dirty)
        copies = !j->pending || j->halted || writer_only_copies(j, j->pending);
    usec_t began = clock_monotonic();
    set_lock(set);
    if (copies)
        (void)hand_back(set, write_round(set));
    set->writing = false;
    set_unlock(set);
    /* When too many dirty pages wait for the disk, the kernel delays writers. After a delayed write, the committers
     * write, so that the owner's loop does not wait. */
    usec_t now = clock_monotonic();
    set->owner_back = now - began > journal_owner_slow_write ? now + OWNER_BACKOFF : 0;
}
