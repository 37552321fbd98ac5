/* last_lines: finds where the last N lines of a stream begin.
 *
 * The search reads backwards from the committed end at the time of the call, a step at a time. It ends early at the
 * earliest offset and at a hole: a reader that begins before a hole cannot pass it.
 *
 * 1. The result is the beginning of a line, at most `n` lines before that end.
 * 2. `done` is called once, perhaps during last_lines_find, unless the search is cancelled. The result is OK, or why the
 *    stream cannot be read. The search is freed before.
 * 3. A search uses at most twice LAST_LINES_STEP_MAX bytes. A reader of the journal also verifies whole frames. */
#ifndef MILLRACE_PUBSUB_LAST_LINES_H
#define MILLRACE_PUBSUB_LAST_LINES_H

#include "journal/journal.h"

#define LAST_LINES_STEP_MAX ((size_t)1 << 20)

struct last_lines;
typedef void last_lines_fn(enum journal_result r, uint64_t offset, void *arg);

/* n > 0. *place is the search as long as it runs, else NULL. The journal and `place` must outlive the search. */
void last_lines_find(
    struct last_lines **place, struct journal *j, uint64_t n, last_lines_fn *done, void *arg);
void last_lines_cancel(struct last_lines **place);

#endif
