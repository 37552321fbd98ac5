/* journal_append: waiting for the threads of a set. The other functions of journal_append.c are in journal.h. */
#ifndef MILLRACE_JOURNAL_APPEND_H
#define MILLRACE_JOURNAL_APPEND_H

struct journal_set;

/* Owner: waits until journal_set_poll has something to do, and calls it. */
void set_wait(struct journal_set *set);

#endif
