/* line_watch: the outcomes of all lines of the last minute, for /health, /stats and the log. A line is counted,
 * skipped, or rejected with a reason.
 *
 * 1. The window is the last LINE_WATCH_SECONDS seconds, in parts of one second.
 * 2. At most LINE_WATCH_REASONS reasons are distinguished. Lines with further reasons count under the last reason,
 *    LINE_WATCH_OTHER.
 * 3. line_watch_sum and the reasons include the same lines, if line_watch_tick was called after the latest
 *    line_watch_reject.
 * 4. Each reason shows its first line since the reason appeared, or since line_watch_hide_lines. A reason disappears
 *    when no line in the window has it.
 *
 * Only one thread may use a line watch. Times are monotonic.
 */
#ifndef MILLRACE_LINE_WATCH_H
#define MILLRACE_LINE_WATCH_H

#include "counts/rejects.h"

#define LINE_WATCH_SECONDS 60
#define LINE_WATCH_REASONS 8
#define LINE_WATCH_OTHER "other reasons"
#define LINE_WATCH_LINE 120 /* bytes of a shown line */

struct line_watch_reason {
    uint64_t lines; /* number in the window */
    char text[128];
    char source[NAME_LEN_MAX + 1]; /* stream or file of the first line */
    uint64_t offset;               /* offset of the first line */
    struct buf line;
};

struct line_watch;

struct line_watch *line_watch_new(usec_t now);
void line_watch_free(struct line_watch **w);

/* Moves the window to `now`. Call line_watch_tick several times a second. `counted` is the tally of all lines since the
 * start of the process. */
void line_watch_tick(struct line_watch *w, usec_t now, const struct slice_tally *counted);
/* Hides the rejected lines so far. The numbers and the reasons stay. */
void line_watch_hide_lines(struct line_watch *w);
void line_watch_reject(struct line_watch *w, const struct rejects_entry *entry);

/* Returns the tally of the lines in the window, as of the latest tick. */
struct slice_tally line_watch_sum(const struct line_watch *w);
/* Returns the i-th reason of the window, in order of appearance, or NULL if the window has fewer reasons. Valid until
 * the next call of another function. */
const struct line_watch_reason *line_watch_reason(const struct line_watch *w, size_t i);

/* Appends one line of text with each reason, such as "0 events counted, 20000 lines rejected in the last minute: ...",
 * and a NUL that the length does not include. Without rejected lines, appends only the NUL. */
void line_watch_describe(const struct line_watch *w, struct buf *out);
/* Appends a JSON object such as {"counted":0,"skipped":0,"rejected":20000,"reasons":[...]}. */
void line_watch_print_json(const struct line_watch *w, struct buf *out);

#endif
