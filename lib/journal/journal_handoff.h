/* journal_handoff: what the threads of a set hand to each other: the lock, waking, the dirty list, batches. */
#ifndef MILLRACE_JOURNAL_HANDOFF_H
#define MILLRACE_JOURNAL_HANDOFF_H

#include "journal/journal_internal.h"

void set_lock(struct journal_set *set);
void set_unlock(struct journal_set *set);
bool set_is_locked(const struct journal_set *set); /* by this thread */
/* Waits on a condition; the lock is free meanwhile. `due` is monotonic. */
void set_sleep(struct journal_set *set, pthread_cond_t *until);
void set_sleep_until(struct journal_set *set, pthread_cond_t *until, usec_t due);

/* Under the lock: wakes an owner that waits in set_wait, if a list was empty before. */
void set_signal_owner(struct journal_set *set, bool was_empty);
/* Owner: requests one call of journal_set_poll through `notify`. */
void set_request_poll(struct journal_set *set);
/* Under the lock, in stage one of a commit: waits while the other committer syncs. It may wake early. */
void set_wait_while_syncing(struct journal_set *set);

void journal_make_dirty(struct journal *j); /* under the lock */

/* Owner: an empty batch, its memory reused from an earlier one if possible. */
struct batch *batch_new(struct journal_set *set, struct journal *j);
void batch_release(struct journal_set *set, struct batch *b);
void batch_free(struct batch *b);

#endif
