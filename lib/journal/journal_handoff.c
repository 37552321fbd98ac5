#include "journal/journal_handoff.h"

#include <assert.h>
#include <stdlib.h>

#define POOL_BYTES_MAX ((size_t)8 << 20)
#define POOLED_BATCH_BYTES_MAX ((size_t)4 << 20)

static void set_locked(struct journal_set *set)
{
    set->locked_by = pthread_self();
    set->locked = true;
}

void set_lock(struct journal_set *set)
{
    pthread_mutex_lock(&set->lock);
    set_locked(set);
}

void set_unlock(struct journal_set *set)
{
    set->locked = false;
    pthread_mutex_unlock(&set->lock);
}

bool set_is_locked(const struct journal_set *set)
{
    return set->locked && pthread_equal(set->locked_by, pthread_self());
}

void set_sleep(struct journal_set *set, pthread_cond_t *until, usec_t due)
{
    struct timespec at = {.tv_sec = due / USEC_PER_SEC, .tv_nsec = due % USEC_PER_SEC * 1000};
    assert(set_is_locked(set));
    set->locked = false;
    if (due)
        pthread_cond_timedwait(until, &set->lock, &at);
    else
        pthread_cond_wait(until, &set->lock);
    set_locked(set);
}

void set_signal_owner(struct journal_set *set, bool was_empty)
{
    assert(set_is_locked(set));
    if (was_empty && set->owner_waits)
        pthread_cond_broadcast(&set->progress);
}

void set_request_poll(struct journal_set *set)
{
    if (set->poll_requested)
        return;
    set->poll_requested = true;
    set->config.notify(set->config.notify_arg);
}

void set_wait_while_syncing(struct journal_set *set)
{
    assert(set_is_locked(set) && set->writing);
    set->awaits_sync = true;
    set_sleep(set, &set->synced, 0);
    set->awaits_sync = false;
}

void journal_make_dirty(struct journal *j)
{
    struct journal_set *set = j->set;
    assert(set_is_locked(set));
    if (j->dirty)
        return;
    j->dirty = true;
    j->next_dirty = NULL;
    *set->dirty_tail = j;
    set->dirty_tail = &j->next_dirty;
}

static size_t batch_bytes(const struct batch *b)
{
    return sizeof *b + b->frames.cap + b->capacity * sizeof *b->entries;
}

struct batch *batch_new(struct journal_set *set, struct journal *j)
{
    struct batch *b = set->pool;
    if (b) {
        set->pool = b->next;
        set->pool_bytes -= batch_bytes(b);
    } else {
        b = mem_zalloc(sizeof *b);
    }
    b->next = NULL;
    b->journal = j;
    return b;
}

void batch_free(struct batch *b)
{
    buf_free(&b->frames);
    free(b->entries);
    free(b);
}

/* Fresh pages cost more than copying into them, so small batches keep their memory. */
void batch_release(struct journal_set *set, struct batch *b)
{
    size_t bytes = batch_bytes(b);
    if (bytes > POOLED_BATCH_BYTES_MAX || set->pool_bytes + bytes > POOL_BYTES_MAX) {
        batch_free(b);
        return;
    }
    buf_clear(&b->frames);
    *b = (struct batch){
        .next = set->pool, .frames = b->frames, .entries = b->entries, .capacity = b->capacity};
    set->pool = b;
    set->pool_bytes += bytes;
}
