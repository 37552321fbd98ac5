/* journal_scrub: re-reads sealed segments in the background. The owner chooses the next segment, and the reader thread goes
 * through it in steps between other jobs. Between steps only the descriptor is held, so trims wait for one step at most. */
#ifndef MILLRACE_JOURNAL_SCRUB_H
#define MILLRACE_JOURNAL_SCRUB_H

#include "journal/journal.h"
#include "journal/journal_cursor.h"
#include "journal/journal_error.h"

/* Owner only, except for the cursor while a step runs. */
struct scrub {
    struct journal *journal; /* NULL: no pass is running */
    uint64_t sequence;       /* of the current segment, or where to look for the next */
    struct cursor cursor;
    bool under_way, in_pass;
    usec_t last, next_pass;
    int64_t credit; /* bytes that may be read */
    struct journal_scrubbed done;
    char damage[JOURNAL_ERROR_TEXT];
};
extern usec_t journal_scrub_interval; /* between the beginnings of two passes; replaceable for tests */

void scrub_close_journal(struct journal *j);

#endif
