/* journal_commit: the committer threads, and the owner's own commits. */
#ifndef MILLRACE_JOURNAL_COMMIT_H
#define MILLRACE_JOURNAL_COMMIT_H

#include "base/bytes.h"
#include "base/clock.h"

struct journal_set;

/* Replaceable for tests. */
extern size_t journal_gather_max; /* bytes from which on an append starts a commit before the next poll */
extern size_t journal_owner_write_max; /* pending bytes up to which the owner commits */
/* Duration from which on a commit of the owner's counts as slow: the committers do the next commits. */
extern usec_t journal_owner_slow_write;

void *committer_main(void *committer);

/* Owner. */
void commit_start(struct journal_set *set);    /* wakes a committer if there is work */
void commit_wake_all(struct journal_set *set); /* under the lock */
/* Whether the owner may commit the pending appends itself. */
bool commit_by_owner(const struct journal_set *set);
/* Commits the pending appends, if that only copies into the page cache and no committer is at work. */
void commit_write(struct journal_set *set);

#endif
