/* journal_sendfile: reading without copies. The reader thread verifies frames in the file and reports their positions; the owner
 * gives out the segment's file (struct journal_file). */
#ifndef MILLRACE_JOURNAL_SENDFILE_H
#define MILLRACE_JOURNAL_SENDFILE_H

#include "journal/journal_job.h"

/* Reader thread: collects spans from the cursor on. False: it did nothing, and the frames must be copied. */
bool spans_fill(struct job *job, enum cursor_status *status);
/* Owner: puts the spans, if any, into the window. The caller releases the file. */
void spans_answer(struct job *job, struct journal_window *w);
/* Owner: whether this segment's file may be given out. */
bool file_may_share(const struct segment *s);
/* Files that the process gives out at once; the bytes of other files are copied. Replaceable for tests. */
extern unsigned journal_shared_files_max;

void segment_detach_file(struct segment *s); /* before the segment is freed */

#endif
