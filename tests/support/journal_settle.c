#include "support/journal_settle.h"

#include "journal/journal_internal.h"

#include <sched.h>

static bool committers_are_idle(struct journal_set *set)
{
    bool idle = true;
    pthread_mutex_lock(&set->lock);
    for (size_t i = 0; i < COMMITTERS; i++)
        idle = idle && set->committers[i].idle;
    pthread_mutex_unlock(&set->lock);
    return idle;
}

/* One that waits is called and waits again: so no call is on its way to it any more. */
void set_settle_committers(struct journal_set *set)
{
    pthread_mutex_lock(&set->lock);
    for (size_t i = 0; i < COMMITTERS; i++) {
        set->committers[i].idle = false;
        committer_call(&set->committers[i]);
    }
    pthread_mutex_unlock(&set->lock);
    while (!committers_are_idle(set))
        sched_yield();
}
