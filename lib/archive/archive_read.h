/* archive_read: answers a request of the read protocol (docs/guide/protocol.md) from a generation that this process has
 * opened.
 *
 * The request is a target as a client would send it: /mget, /range or /keys with parameters.
 *
 * 1. The answer has the lines that sortdb would send, divided into pieces. The answer to /range is not divided into
 *    pages.
 * 2. A piece has at most ARCHIVE_PIECE bytes, and a line may span several pieces. For /keys, a piece is one whole line,
 *    or empty.
 *    With members=1, /range with rollups= returns the short texts of sets (`=17 204`, `#8211`): of the months that
 *    contain the range, and of all their days and hours. The caller opens large sets in place (generation_set).
 * 3. The read holds a reference to its generation. The bytes of a piece are valid only if archive_read_is_whole returns
 *    true after the caller has used them.
 */
#ifndef MILLRACE_ARCHIVE_READ_H
#define MILLRACE_ARCHIVE_READ_H

#include "archive/generation.h"

#define ARCHIVE_PIECE ((size_t)64 << 10)

struct archive_read;

/* Returns NULL if the request is malformed. */
struct archive_read *archive_read_new(struct generation *g, const char *target);
void archive_read_free(struct archive_read **r);
/* Sets *piece to the next piece, valid until the next call. Returns false at the end. */
bool archive_read_next(struct archive_read *r, struct bytes *piece);
/* After the end of /keys: the text at which the next request continues. Empty if there are no more keys. */
struct bytes archive_read_continuation(const struct archive_read *r);
/* After the end: true if the records of /keys have more bytes than max_search. */
bool archive_read_is_too_large(const struct archive_read *r);
/* Returns false if a file was truncated or modified. `error` may be NULL. */
bool archive_read_is_whole(const struct archive_read *r, struct error *error);
/* Returns the generation, borrowed until archive_read_free. */
struct generation *archive_read_generation(const struct archive_read *r);
struct generation_info archive_read_info(const struct archive_read *r);
struct generation_counter archive_read_counter(const struct archive_read *r, struct bytes ns);

#endif
