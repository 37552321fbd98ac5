/* line_watch: the outcomes of the lines of the last minute: counted, skipped, or rejected, with the reasons. For
 * /health, /stats and the log.
 *
 * 1. The window ends now and is LINE_WATCH_SECONDS long. Its parts are of one second.
 * 2. At most LINE_WATCH_REASONS reasons are distinguished; lines with further reasons count as the last one, LINE_WATCH_OTHER.
 * 3. The sum and the reasons have the same lines, if line_watch_tick was called since the latest line_watch_reject.
 * 4. Each reason shows its first line since the reason appeared. A reason disappears when the window has no line with it.
 *
 * One thread. Times are monotonic.
 */
#ifndef MILLRACE_LINE_WATCH_H
#define MILLRACE_LINE_WATCH_H

#include "counts/rejects.h"

#define LINE_WATCH_SECONDS 60
#define LINE_WATCH_REASONS 8
#define LINE_WATCH_OTHER "other reasons"
#define LINE_WATCH_LINE 120 /* bytes of a shown line */

struct line_watch_reason {
    uint64_t lines; /* in the window */
    char text[128];
    char source[NAME_LEN_MAX + 1]; /* stream or file of the first line */
    uint64_t offset;               /* of the first line */
    struct buf line;               /* the head of the first line */
};

struct line_watch;

struct line_watch *line_watch_new(usec_t now);
void line_watch_free(struct line_watch **w);

/* Call it several times a second. `counted`: all lines since the start of the process. */
void line_watch_tick(struct line_watch *w, usec_t now, const struct slice_tally *counted);
void line_watch_reject(struct line_watch *w, const struct rejects_entry *entry);

/* The lines of the window, as of the latest tick. */
struct slice_tally line_watch_sum(const struct line_watch *w);
/* The i-th reason of the window, in order of appearance; NULL: no more. Valid until the next call of another function. */
const struct line_watch_reason *line_watch_reason(const struct line_watch *w, size_t i);

/* Appends one line of text: "0 events counted, 20000 lines rejected in the last minute: ...", with each reason. Nothing without rejected
 * lines. Ends with a NUL that the length does not include. */
void line_watch_describe(const struct line_watch *w, struct buf *out);
/* Appends a JSON object: {"counted":0,"skipped":0,"rejected":20000,"reasons":[...]}. */
void line_watch_print_json(const struct line_watch *w, struct buf *out);

#endif
