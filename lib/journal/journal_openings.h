/* journal_openings: records which opening of a store gave out which numbers.
 *
 * A store gives out rising numbers: a journal its offsets, a queue its message ids. A copy restored from a backup gives out some
 * numbers a second time, for other contents. Therefore each opening has a random id, and a cursor names the opening that gave
 * out the number before the cursor. Two histories can share a number, but then its opening differs.
 *
 * The file OPENINGS_FILE in the store's directory is a ring of OPENINGS_MAX slots (docs/formats/journal.md), so a copy of the
 * directory includes the openings. The file has its full size from the start, so that a store opens on a full disk.
 *
 * 1. openings_open returns once the new opening is durable. The caller gives out no number before that.
 * 2. The id of a number that is older than the ring, or than the file, is "": unknown.
 * 3. A slot with a wrong checksum is ignored. If its write was torn, the opening gave out nothing. If it was damaged
 *    later, cursors that name its opening are refused.
 *
 * An open `struct openings` never changes, so any thread may read it.
 */
#ifndef MILLRACE_JOURNAL_OPENINGS_H
#define MILLRACE_JOURNAL_OPENINGS_H

#include "base/bytes.h"

#define OPENINGS_FILE "openings"
#define OPENINGS_MAX 256
#define OPENING_ID_TEXT 17 /* 16 lower-case hexadecimal digits and NUL */

struct openings;

struct opening {
    uint64_t first; /* the first number of this opening */
    char id[OPENING_ID_TEXT];
};

/* Adds an opening that gives out numbers from `next` on. Blocks. NULL with errno: the file cannot be read or written. */
struct openings *openings_open(const char *dir, uint64_t next);
void openings_free(struct openings **o);

/* The id of the opening that gave out `number`, or will give it out; "" if unknown. */
const char *openings_id_of(const struct openings *o, uint64_t number);
/* Openings in the order of their numbers; the last is the current opening. */
size_t openings_count(const struct openings *o);
const struct opening *openings_at(const struct openings *o, size_t i);
/* The opening with this id; NULL: unknown. */
const struct opening *openings_find(const struct openings *o, struct bytes id);

#endif
