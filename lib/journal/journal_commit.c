/* The committers: two threads that take turns. One takes each dirty journal's first batch, writes it with one pwrite and
 * lays it on set->written; if nobody syncs it then syncs what lies there, as the policy says, and hands it back, until
 * nothing does. Meanwhile the other writes. So what arrives during a sync rides the next, the slower a sync, the more
 * share it, and when one is over the next can begin at once, its bytes written. Where that is little it is not worth waking
 * the other: the one that syncs writes it afterwards.
 *
 * Appenders that waited for the same commit append again together. Were that one batch, nothing could be synced until all
 * of it is written, nothing be written during its sync, and they would stay together; so a batch that is full is one
 * to itself (journal_batch_max). What else is written when its sync begins rides on that all the same.
 *
 * Under JOURNAL_SYNC_NEVER the owner takes the turn to write where that is all there is to do (owner_write).
 *
 * There is one turn to write and one to sync, and set->written is first in, first out: so batches are written, synced and
 * handed back in the order of the appends. Nobody begins a segment while there is something to sync (set_wait_for_sync), so
 * a sync never meets a descriptor that is going away, and what the segment before holds has been synced already. */
#include "journal/journal_internal.h"

#include <stdatomic.h>
#include <time.h>

#define ASLEEP_AFTER_VAIN 16 /* times */
#define OWNER_STAYS_AWAY (10 * USEC_PER_SEC)

size_t journal_owner_write_max = (size_t)1 << 20;
usec_t journal_awake_most = 200;
size_t journal_batch_max = (size_t)256 << 10;
size_t journal_gather_max = (size_t)64 << 10;
usec_t journal_owner_slow_write = 2 * USEC_PER_MSEC;

static struct timespec monotonic_at(usec_t t)
{
    return (struct timespec){.tv_sec = t / USEC_PER_SEC, .tv_nsec = t % USEC_PER_SEC * 1000};
}

bool set_gathers(const struct journal_set *set, size_t bytes)
{
    return !set_never_syncs(set) && bytes < journal_gather_max;
}

/* Under the lock: whether all that is pending can as well be written when the sync under way is over. Whoever syncs looks
 * for it then. */
static bool can_wait(const struct journal_set *set)
{
    size_t bytes = 0;
    for (const struct journal *j = set->dirty; j && set_gathers(set, bytes); j = j->next_dirty)
        bytes += j->full ? j->full->frames.len : j->pending ? j->pending->frames.len : 0;
    return set->syncing && set_gathers(set, bytes);
}

/* With sync_ms nothing is written while something is being synced, so that syncs are never closer than that. */
static bool may_write(const struct journal_set *set)
{
    bool spaced = set->config.sync_ms > 0;
    return set->dirty && !set->writing && !(spaced && set->syncing) && !can_wait(set);
}

/* Under the lock: whether there is something to be synced for a committer. */
static bool may_sync(const struct journal_set *set)
{
    bool waits_for_kernel = set->kernel.batch && !set->kernel.taken && (set->hurry || set->written);
    return waits_for_kernel || (set->written && !set->syncing);
}

/* Under the lock: whether this committer will be called soon, by all that it knows. */
static bool expects_call(const struct committer *c)
{
    return c->set->awake && c->set->config.sync_ms == 0 && c->quick > 0;
}

/* Under the lock, which is free meanwhile: awake until it is called, for journal_awake_most. Who waited in vain sleeps the
 * next times. */
static void wait_awake(struct committer *c)
{
    usec_t until = clock_monotonic() + journal_awake_most;
    bool called = false;
    atomic_store_explicit(&c->called, false, memory_order_relaxed);
    pthread_mutex_unlock(&c->set->lock);
    while (!called && clock_monotonic() < until)
        called = atomic_load_explicit(&c->called, memory_order_relaxed);
    pthread_mutex_lock(&c->set->lock);
    if (!called)
        c->quick = -ASLEEP_AFTER_VAIN;
}

/* Under the lock. */
static void wait_for_call(struct committer *c)
{
    struct journal_set *set = c->set;
    struct timespec due = monotonic_at(set->not_before);
    c->idle = true;
    set->latest_idle = c;
    if (may_write(set))
        pthread_cond_timedwait(&c->wake, &set->lock, &due);
    else if (expects_call(c))
        wait_awake(c);
    else
        pthread_cond_wait(&c->wake, &set->lock);
    c->idle = false;
}

/* Under the lock: waits for work and, with sync_ms, until the next sync is due. False: stop. */
static bool wait_for_work(struct committer *c)
{
    struct journal_set *set = c->set;
    usec_t idle_since = 0, now;
    for (;;) {
        now = clock_monotonic();
        if (may_sync(set) || (may_write(set) && (set->hurry || set->stop || now >= set->not_before)))
            break;
        if (set->stop && !set->dirty)
            return false;
        idle_since = idle_since ? idle_since : now;
        wait_for_call(c);
    }
    if (idle_since && c->quick <= 0 && now - idle_since < journal_awake_most)
        c->quick++;
    return true;
}

/* The one that fell asleep last: its processor is the likeliest to be awake. */
struct committer *set_committer_to_call(struct journal_set *set)
{
    struct committer *c = set->latest_idle;
    if (!c || !(may_write(set) || may_sync(set)))
        return NULL;
    if (!c->idle)
        c = c == set->committers ? set->committers + 1 : set->committers;
    return c->idle ? c : NULL;
}

/* Under the lock: what is to be written next of the journal; NULL: the owner has it in its hands. */
static struct batch *take_first(struct journal *j)
{
    struct batch *b = j->full;
    if (b) {
        j->full = b->next;
        j->full_tail = j->full ? j->full_tail : &j->full;
        b->next = NULL;
        return b;
    }
    b = j->pending;
    j->pending = NULL;
    return b;
}

/* Under the lock: the first batches of all dirty journals, in a list. */
static struct batch *take_dirty(struct journal_set *set)
{
    struct batch *first = NULL, **tail = &first;
    struct journal *next = set->dirty;
    set->dirty = NULL;
    set->dirty_tail = &set->dirty;
    while (next) {
        struct journal *j = next;
        next = j->next_dirty;
        j->dirty = false;
        struct batch *b = j->halted ? NULL : take_first(j);
        if (!b)
            continue;
        *tail = b;
        tail = &b->next;
        if (j->full || j->pending)
            journal_make_dirty(j);
    }
    return first;
}

void set_write_pending(struct journal_set *set)
{
    struct batch *first = take_dirty(set), *last = NULL;
    pthread_mutex_unlock(&set->lock);
    for (struct batch *b = first; b; b = b->next) {
        writer_write(b);
        last = b;
    }
    pthread_mutex_lock(&set->lock);
    if (!last)
        return;
    *set->written_tail = first;
    set->written_tail = &last->next;
}

struct batch *set_take_written(struct journal_set *set)
{
    struct batch *b = set->written;
    set->written = b->next;
    if (!set->written)
        set->written_tail = &set->written;
    b->next = NULL;
    return b;
}

bool set_hand_back(struct journal_set *set, struct batch *b)
{
    if (b->result != JOURNAL_OK)
        b->journal->halted = true;
    bool was_empty = !set->finished;
    *set->finished_tail = b;
    set->finished_tail = &b->next;
    set_signal_owner(set, was_empty);
    return was_empty;
}

void set_end_syncing(struct journal_set *set)
{
    set->syncing = false;
    set->kernel.crowded = set->dirty != NULL;
    if (set->writer_waits)
        pthread_cond_signal(&set->synced);
}

/* Under the lock, which is free meanwhile, with the turn to sync. */
static struct batch *sync_one(struct journal_set *set)
{
    if (set->kernel.batch)
        return kernel_wait(set);
    struct batch *b = set_take_written(set);
    pthread_mutex_unlock(&set->lock);
    writer_sync(b);
    pthread_mutex_lock(&set->lock);
    return b;
}

/* Under the lock, with the turn to sync; whether that goes on. From its handing back on the batch and, unless the owner appends again, its
 * journal are the owner's; so in the same step the turn ends if nothing more lies on set->written. */
static bool sync_first(struct journal_set *set)
{
    bool was_empty = set_hand_back(set, sync_one(set));
    bool more = set->written != NULL;
    if (!more)
        set_end_syncing(set);
    pthread_mutex_unlock(&set->lock);
    if (was_empty)
        set->config.notify(set->config.notify_arg);
    pthread_mutex_lock(&set->lock);
    return more;
}

/* Under the lock. */
static bool take_turn_to_sync(struct journal_set *set)
{
    if (!may_sync(set))
        return false;
    set->syncing = true;
    (void)kernel_take_over(set);
    return true;
}

/* What is written lies there with nobody syncing it when the owner ended the kernel's sync, or the kernel refused to begin one. */
void set_wait_for_sync(struct journal_set *set)
{
    pthread_mutex_lock(&set->lock);
    while (set->syncing || set->written) {
        bool mine = kernel_take_over(set) || take_turn_to_sync(set);
        set->writer_waits = !mine;
        if (!mine)
            pthread_cond_wait(&set->synced, &set->lock);
        while (mine)
            mine = sync_first(set);
    }
    set->writer_waits = false;
    pthread_mutex_unlock(&set->lock);
}

void committer_call(struct committer *c)
{
    if (!c)
        return;
    atomic_store_explicit(&c->called, true, memory_order_relaxed);
    pthread_cond_signal(&c->wake);
}

/* Under the lock. */
static void write_in_turn(struct journal_set *set)
{
    set->writing = true;
    if (set->config.sync_ms > 0)
        set->not_before = clock_monotonic() + set->config.sync_ms * USEC_PER_MSEC;
    set_write_pending(set);
    set->writing = false;
}

void *committer_main(void *arg)
{
    struct committer *c = arg;
    struct journal_set *set = c->set;
    pthread_mutex_lock(&set->lock);
    while (wait_for_work(c)) {
        if (may_write(set))
            write_in_turn(set);
        bool mine = take_turn_to_sync(set);
        committer_call(set_committer_to_call(set));
        while (mine)
            mine = sync_first(set);
    }
    pthread_mutex_unlock(&set->lock);
    return NULL;
}

bool set_owner_writes(const struct journal_set *set)
{
    return set_never_syncs(set) && set->pending_bytes <= journal_owner_write_max &&
           (set->owner_back == 0 || clock_monotonic() >= set->owner_back);
}

/* With the turn to write, so nobody else takes a journal off the list; and only the owner puts one on. */
static bool all_only_copy(const struct journal_set *set)
{
    for (struct journal *j = set->dirty; j; j = j->next_dirty)
        if (j->pending && !j->halted && !writer_only_copies(j, j->pending))
            return false;
    return true;
}

/* A committer that is at work looks for more when it is done: then the work is left to it. */
static bool owner_takes_turn(struct journal_set *set)
{
    pthread_mutex_lock(&set->lock);
    bool takes = set->dirty && !set->writing && !set->syncing;
    set->writing = set->writing || takes;
    pthread_mutex_unlock(&set->lock);
    return takes;
}

/* The kernel makes whoever writes wait when too much waits for the disk. That is the committers' to bear. */
static void stay_away_after(struct journal_set *set, usec_t began)
{
    usec_t now = clock_monotonic();
    set->owner_back = now - began > journal_owner_slow_write ? now + OWNER_STAYS_AWAY : 0;
}

void owner_write(struct journal_set *set)
{
    if (!set_owner_writes(set) || !owner_takes_turn(set))
        return;
    usec_t began = clock_monotonic();
    bool mine = all_only_copy(set);
    pthread_mutex_lock(&set->lock);
    if (mine)
        set_write_pending(set);
    while (set->written)
        set_hand_back(set, set_take_written(set));
    set->writing = false;
    committer_call(set_committer_to_call(set));
    pthread_mutex_unlock(&set->lock);
    stay_away_after(set, began);
}
