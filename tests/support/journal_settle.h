/* For tests in which the same thread must do the same work on every run. */
#ifndef MILLRACE_TEST_JOURNAL_SETTLE_H
#define MILLRACE_TEST_JOURNAL_SETTLE_H

struct journal_set;

/* Waits until the committers sleep and no wake-up is on its way to one: after a flush one may still be notifying the owner and
 * looking for more. */
void set_settle_committers(struct journal_set *set);

#endif
