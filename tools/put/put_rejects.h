/* put_rejects: reports the lines that `millrace put` cannot post, and writes those that the queue refuses to a file
 * (lib/base/reject_file.h). FILE.reasons has a line for each of them, in the same order: the time, the input, the byte
 * and the reason. FILE itself is an input that `millrace put` can post once the lines are corrected.
 *
 * The first refused line is reported at once. Later ones are only counted, and the count is reported at most once a
 * minute. A line that is too long to be read (line_source.h) is not kept. The offset of such a line is reported at
 * once, because the line may never end. When the line has ended, its length is reported.
 *
 * Without a file, the first line that cannot be posted ends the put. */
#ifndef MILLRACE_PUT_REJECTS_H
#define MILLRACE_PUT_REJECTS_H

#include "base/reject_file.h"
#include "tools/put/put_batch.h"

#include <limits.h>

#define PUT_REASON_TEXT 1000
#define PUT_REJECTS_REPORT_EVERY (60 * USEC_PER_SEC)

struct put_rejects {
    struct reject_file file; /* path NULL: no file */
    struct reject_file reasons;
    char reasons_path[PATH_MAX];
    uint64_t n, reported;
    uint64_t skipped; /* lines over LINE_SOURCE_LINE_MAX */
    usec_t reported_at;
    char why[PUT_REASON_TEXT]; /* the latest line was refused; "": none */
    bool has_expired;          /* earlier lines were deleted, and that was reported */
};

/* Creates the file if needed. Its path may be NULL. Returns 0, or -1 after printing the error. */
int put_rejects_open(struct put_rejects *r, const struct reject_file *file);
/* Keeps and reports a refused line, which starts at `offset` of the unpacked file. Returns 0, or an exit status after
 * printing the error. */
int put_rejects_add(struct put_rejects *r, const struct put_batch_refusal *refusal, const char *file,
    uint64_t offset, usec_t now);
/* Reports a line that is too long. `length` includes the line's LF; 0: the end of the line was not found yet. Returns
 * 0, or an exit status if there is no file. */
int put_rejects_skip(struct put_rejects *r, const char *file, uint64_t offset, uint64_t length);
/* Prints the number of lines refused since the last report, at most once a minute, or at once with `last`. */
void put_rejects_report(struct put_rejects *r, usec_t now, bool last);

#endif
