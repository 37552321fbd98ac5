/* lines: turns a publisher's body into the text of a stream, lines that each end with one LF.
 *
 * 1. A missing last LF is added.
 * 2. One CR directly before an LF (also before the added one) is dropped. All other bytes stay: NUL, invalid UTF-8, other CRs.
 * 3. An empty line (also one with only that CR) refuses the whole body, and so does a line of more than max_line bytes without
 *    its LF.
 * 4. The result is at most one LF longer than the body.
 */
#ifndef MILLRACE_PUBSUB_LINES_H
#define MILLRACE_PUBSUB_LINES_H

#include "base/bytes.h"

enum lines_result {
    LINES_OK,
    LINES_EMPTY_BODY,
    LINES_EMPTY_LINE, /* lines.n: which, from 1 */
    LINES_TOO_LARGE,  /* the same */
};
const char *lines_strerror(enum lines_result r);

struct lines {
    uint64_t n;             /* lines; after a refusal the number of the refused one, from 1 */
    struct bytes pieces[2]; /* the text, in up to two pieces */
    size_t n_pieces;
    struct buf rewritten; /* memory of the pieces when the body had to be changed */
};

/* The pieces point into `body` or into `out`: both must live as long. */
enum lines_result lines_from_body(struct bytes body, size_t max_line, struct lines *out);
void lines_free(struct lines *l);

#endif
