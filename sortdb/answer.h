/* answer: sends records to a client.
 *
 * An answer of up to 64 KB is copied and sent with its length. A longer answer is streamed in chunks that refer to the
 * mapped file. At most AHEAD_MAX bytes are queued for a slow client.
 *
 * 1. An answer holds a reference to its generation until its last byte was sent, so it never mixes generations.
 * 2. The generation is checked for truncation after the last byte of a short answer was copied, or of a long one
 *    accepted by the socket. After a truncation, a short answer becomes a 503. A long answer ends without its last
 *    chunk, so the client sees that it is incomplete. */
#ifndef MILLRACE_SORTDB_ANSWER_H
#define MILLRACE_SORTDB_ANSWER_H

#include "archive/generation.h"

struct http_request;

/* The lines of an answer: the rest of a line that the answer begins inside, then a cursor or single lines, then the beginning of a line. All
 * point into the files. A line without LF gets one. */
struct answer_lines {
    struct bytes before, first; /* key and separator of the first line, and its rest; empty: there is none */
    struct generation_cursor cursor; /* used only if `found` is NULL; answer_send frees it */
    struct bytes *found;             /* copied */
    size_t n_found;
    uint32_t shard;    /* of all lines; GENERATION_NO_SHARD: of any shard */
    struct bytes last; /* empty: the answer ends with a whole line */
};

/* Answers the request, at once or while the client reads. Uses `scratch` only during the call. */
void answer_send(
    struct http_request *req, struct generation *g, struct answer_lines *lines, struct buf *scratch);

#endif
