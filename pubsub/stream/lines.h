/* lines: from what a publisher sent to the text of a stream.
 *
 * A stream's text is lines, each ended by one LF. What is published is brought to that form before it is
 * stored, so that what is stored can be served as it is:
 * 1. A missing last LF is added.
 * 2. One CR directly before an LF (the added one too) is dropped; any other byte is carried as it came: NUL,
 *    invalid UTF-8, a CR elsewhere.
 * 3. An empty line (also one that only had that CR) refuses the whole, and so does a line of more than
 *    max_line bytes, counted without its LF. There is no part of a publish.
 * 4. The result never is longer than the body and one LF.
 */
#ifndef MILLRACE_PUBSUB_LINES_H
#define MILLRACE_PUBSUB_LINES_H

#include "base/bytes.h"

enum lines_result {
    LINES_OK,
    LINES_EMPTY_BODY,
    LINES_EMPTY_LINE, /* number: which, from 1 */
    LINES_TOO_LARGE,  /* likewise */
};
const char *lines_strerror(enum lines_result r);

struct lines {
    uint64_t n;             /* how many; after a refusal the number of the line refused, from 1 */
    struct bytes pieces[2]; /* the text, in up to two pieces */
    size_t n_pieces;
    struct buf rewritten; /* memory of the pieces when the body could not be taken as it is */
};

/* The pieces point into `body` or into the lines' own memory: they live until the body goes or lines_free. */
enum lines_result lines_from_body(struct bytes body, size_t max_line, struct lines *out);
void lines_free(struct lines *l);

#endif
