/* journal_poll: how the owner waits for its journals' threads. journal_set_poll itself is in journal.h. */
#ifndef MILLRACE_JOURNAL_POLL_H
#define MILLRACE_JOURNAL_POLL_H

struct journal_set;

/* Waits until there is something for journal_set_poll, and calls it. */
void set_wait(struct journal_set *set);

#endif
