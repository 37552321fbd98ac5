/* journal_handoff: the lock of a set, waking its threads, the dirty list, and batches. */
#ifndef MILLRACE_JOURNAL_HANDOFF_H
#define MILLRACE_JOURNAL_HANDOFF_H

#include "journal/journal_internal.h"

void set_lock(struct journal_set *set);
void set_unlock(struct journal_set *set);
bool set_is_locked(const struct journal_set *set); /* by this thread */
/* Waits on a condition without the lock, until `due` (monotonic; 0: without limit) at the latest. */
void set_sleep(struct journal_set *set, pthread_cond_t *until, usec_t due);

/* Under the lock: wakes an owner that waits in set_wait, if a list was empty before. */
void set_signal_owner(struct journal_set *set, bool was_empty);
/* Owner: requests one call of journal_set_poll through `notify`. */
void set_request_poll(struct journal_set *set);
/* Under the lock, in stage one of a commit: waits while the other committer syncs. It may return early. */
void set_wait_while_syncing(struct journal_set *set);

void journal_make_dirty(struct journal *j); /* under the lock */

/* Owner: an empty batch that reuses the memory of an earlier batch if possible. */
struct batch *batch_new(struct journal_set *set, struct journal *j);
void batch_release(struct journal_set *set, struct batch *b);
void batch_free(struct batch *b);

#endif
