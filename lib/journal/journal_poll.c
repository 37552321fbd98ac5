#include "journal/journal_poll.h"

#include "journal/journal_append.h"
#include "journal/journal_commit.h"
#include "journal/journal_handoff.h"
#include "journal/journal_job.h"

void journal_set_poll(struct journal_set *set)
{
    set->poll_requested = false;
    set->polls = true;
    commit_write(set);
    commit_start(set);
    set_lock(set);
    struct batch *finished = set->finished;
    struct job *jobs = set->jobs_done;
    set->finished = NULL;
    set->finished_tail = &set->finished;
    set->jobs_done = NULL;
    set->jobs_done_tail = &set->jobs_done;
    set_unlock(set);
    struct batch *answered = set->answered;
    set->answered = NULL;
    if (answered) {
        append_deliver(answered);
        batch_release(set, answered);
    }
    while (finished) {
        struct batch *b = finished;
        finished = b->next;
        append_deliver(b);
        batch_release(set, b);
    }
    while (jobs) {
        struct job *job = jobs;
        jobs = job->next;
        job_deliver(job);
    }
    set->polls = false;
    commit_start(set);
}

void set_wait(struct journal_set *set)
{
    commit_write(set);
    set_lock(set);
    set->hurry = true;
    commit_wake_all(set);
    set->owner_waits = true;
    while (!set->finished && !set->jobs_done && !set->answered)
        set_sleep(set, &set->progress);
    set->owner_waits = false;
    set->hurry = false;
    set_unlock(set);
    journal_set_poll(set);
}

static bool unfinished(const struct journal_set *set)
{
    for (const struct journal *j = set->journals; j; j = j->next)
        if (j->unfinished)
            return true;
    return set->answered != NULL;
}

void journal_set_flush(struct journal_set *set)
{
    while (unfinished(set))
        set_wait(set);
}
