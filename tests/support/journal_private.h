/* All private headers of the journal, for its own tests. */
#ifndef MILLRACE_TEST_JOURNAL_PRIVATE_H
#define MILLRACE_TEST_JOURNAL_PRIVATE_H

#include "journal/journal_commit.h"
#include "journal/journal_dir.h"
#include "journal/journal_frame_index.h"
#include "journal/journal_handoff.h"
#include "journal/journal_internal.h"
#include "journal/journal_job.h"
#include "journal/journal_segment_list.h"
#include "journal/journal_sendfile.h"

#endif
