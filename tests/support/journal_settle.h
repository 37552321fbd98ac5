/* For tests in which the same is to be done by the same threads each time. */
#ifndef MILLRACE_TEST_JOURNAL_SETTLE_H
#define MILLRACE_TEST_JOURNAL_SETTLE_H

struct journal_set;

/* Until no committer is at work, nor was called and has yet to find out that there is nothing: one that handed back what was
 * flushed still tells the owner and looks for more, and a flush calls both. */
void set_settle_committers(struct journal_set *set);

#endif
