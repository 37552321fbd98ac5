/* lines: turns the body of a publish into the text of a stream: lines that each end with one LF.
 *
 * 1. A missing last LF is added.
 * 2. One CR directly before an LF, also before an added one, is dropped. All other bytes stay: NUL, invalid UTF-8, other CRs.
 * 3. An empty line, or a line of more than max_line bytes without its LF, refuses the whole body.
 * 4. The result is at most one LF longer than the body. */
#ifndef MILLRACE_PUBSUB_LINES_H
#define MILLRACE_PUBSUB_LINES_H

#include "base/bytes.h"

enum lines_result {
    LINES_OK,
    LINES_EMPTY_BODY,
    LINES_EMPTY_LINE,
    LINES_TOO_LARGE,
};

struct lines {
    uint64_t n;             /* number of lines; after a refusal the number of the refused line, from 1 */
    struct bytes pieces[2]; /* the text, in up to two pieces */
    size_t n_pieces;
    struct buf rewritten; /* the text without CRs; empty if the body is stored unchanged */
};

/* The pieces point into `body` or `out`; both must outlive them. Free `out` also after a refusal. */
enum lines_result lines_from_body(struct bytes body, size_t max_line, struct lines *out);
void lines_free(struct lines *l);

#endif
