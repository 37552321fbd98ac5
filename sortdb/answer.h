/* answer: sends records to a client.
 *
 * A short answer (up to 64 KB) is copied and sent with its length. A long answer is streamed in chunks that refer to
 * the mapped file. At most AHEAD_MAX bytes are queued for a slow client.
 *
 * 1. An answer references one generation until the last byte of the answer is sent. All lines of the answer are from
 *    this generation.
 * 2. The generation is checked for truncation after a short answer was copied, or after the socket has accepted the
 *    last byte of a long answer. After a truncation, the client gets a 503 instead of a short answer. A long answer
 *    ends without its last chunk, so that the client can see that the answer is incomplete. */
#ifndef MILLRACE_SORTDB_ANSWER_H
#define MILLRACE_SORTDB_ANSWER_H

#include "archive/generation.h"

struct http_request;

/* The lines of an answer, in this order:
 * - the end of a line, if the answer begins inside a line: `before` and `first`
 * - whole lines: `found` or `cursor`
 * - the beginning of a line, if the answer ends inside a line: `last`
 *
 * All lines point into the mapped files. An LF is added to a line without an LF. */
struct answer_lines {
    struct bytes before;             /* key and separator of the first line; empty: `first` is empty */
    struct bytes first;              /* end of the first line; empty: the answer begins with a whole line */
    struct generation_cursor cursor; /* used only if `found` is NULL; answer_send frees the cursor */
    struct bytes *found;             /* list of lines, which answer_send copies */
    size_t n_found;
    uint32_t shard;    /* shard of all lines; GENERATION_NO_SHARD: the lines may be in several shards */
    struct bytes last; /* beginning of the last line; empty: the answer ends with a whole line */
};

/* Sends the answer, partly after the call if the answer is long. Uses `scratch` only during the call. */
void answer_send(
    struct http_request *req, struct generation *g, struct answer_lines *lines, struct buf *scratch);

#endif
