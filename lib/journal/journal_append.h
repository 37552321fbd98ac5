/* journal_append: the owner applies what a commit hands back. */
#ifndef MILLRACE_JOURNAL_APPEND_H
#define MILLRACE_JOURNAL_APPEND_H

struct batch;

/* Applies a finished batch to marks and ends, and runs its callbacks. */
void append_deliver(struct batch *b);

#endif
