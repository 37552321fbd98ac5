/* answer: sends records to a client.
 *
 * Answers up to 64 KB are copied and sent with their length. Longer ones are streamed in chunks that refer to the mapped file, a
 * bounded number of bytes ahead of the client.
 *
 * 1. An answer holds a reference to its generation until its last byte has left, so it never mixes generations.
 * 2. The server checks the generation for truncation after it copied the last byte or the socket took it. After a truncation, a short
 *    answer is a 503. A long answer ends without its last chunk, so the client sees that the answer is incomplete.
 */
#ifndef MILLRACE_SORTDB_ANSWER_H
#define MILLRACE_SORTDB_ANSWER_H

#include "sortdb/generation.h"

struct http_request;

/* The lines of an answer: a cursor, or single lines. */
struct answer_lines {
    struct generation_cursor cursor; /* answer_send takes ownership; used if `found` is NULL */
    struct bytes *found;             /* copied */
    size_t n_found;
};

/* Answers the request, at once or while the client reads. Uses `scratch` only during the call. */
void answer_send(
    struct http_request *req, struct generation *g, struct answer_lines *lines, struct buf *scratch);

#endif
