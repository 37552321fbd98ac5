#include "support/journal_settle.h"

#include "journal/journal_internal.h"

#include <sched.h>

static bool all_idle(struct journal_set *set)
{
    bool idle = true;
    set_lock(set);
    for (size_t i = 0; i < COMMITTERS; i++)
        idle = idle && set->committers[i].idle;
    set_unlock(set);
    return idle;
}

/* Each is woken and goes to sleep again: so no wake-up is on its way to one any more. */
void set_settle_committers(struct journal_set *set)
{
    set_lock(set);
    for (size_t i = 0; i < COMMITTERS; i++) {
        set->committers[i].idle = false;
        pthread_cond_signal(&set->committers[i].wake);
    }
    set_unlock(set);
    while (!all_idle(set))
        sched_yield();
}
