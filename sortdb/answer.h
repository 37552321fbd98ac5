/* answer: records on their way to a client.
 *
 * Short answers are copied and sent with their length. Longer ones are streamed in chunks that refer to the mapped file,
 * without a copy, a bounded number of bytes ahead of the client.
 *
 * 1. An answer holds a reference to its generation until its last byte has left, so it is of one generation.
 * 2. A copied answer is sent only after the generation was seen whole behind the copy; a streamed one ends only after it was
 *    seen whole behind the last byte that the socket took. If it is not, a short answer is a 503, and a long one breaks off
 *    without its last chunk: the client sees that something is missing.
 */
#ifndef MILLRACE_SORTDB_ANSWER_H
#define MILLRACE_SORTDB_ANSWER_H

#include "sortdb/generation.h"

struct http_request;

/* Where an answer's lines come from: a cursor, or lines found one by one. */
struct answer_lines {
    struct generation_cursor cursor; /* the answer's from here on; used when `found` is NULL */
    struct bytes *found;             /* copied */
    size_t n_found;
};

/* Ends the request now or later. `scratch` is used until it returns. */
void answer_send(
    struct http_request *req, struct generation *g, struct answer_lines *lines, struct buf *scratch);

#endif
