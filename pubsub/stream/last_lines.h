/* last_lines: finds where the last N lines of a stream begin.
 *
 * The search reads backwards, in steps, from the end that is committed when last_lines_find is called. The search
 * ends early at the earliest offset and at a hole, because a reader that begins before a hole cannot pass the hole.
 *
 * 1. The result is the beginning of a line, at most `n` lines before the committed end.
 * 2. Unless the search is cancelled, `done` is called once, perhaps during last_lines_find. `r` is JOURNAL_OK or the
 *    reason why the stream cannot be read. The search is freed before `done` is called.
 * 3. A search uses at most twice LAST_LINES_STEP_MAX bytes. A reader of the journal also verifies whole frames. */
#ifndef MILLRACE_PUBSUB_LAST_LINES_H
#define MILLRACE_PUBSUB_LAST_LINES_H

#include "journal/journal.h"

#define LAST_LINES_STEP_MAX ((size_t)1 << 20)

struct last_lines;
typedef void last_lines_fn(enum journal_result r, uint64_t offset, void *arg);

/* Starts a search; `n` is greater than 0. *place is the search while the search runs, and then NULL. The journal and
 * `place` must outlive the search. */
void last_lines_find(
    struct last_lines **place, struct journal *j, uint64_t n, last_lines_fn *done, void *arg);
void last_lines_cancel(struct last_lines **place);

#endif
