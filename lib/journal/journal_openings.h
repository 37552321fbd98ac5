/* journal_openings: records which numbers a store assigned in which opening.
 *
 * A store assigns ascending numbers: a journal assigns offsets, a queue assigns message ids. If an operator restores
 * a backup, the restored store assigns some numbers a second time, for other contents. To detect this, each opening
 * of a store gets a random id, and a cursor contains the id of the opening that assigned the number before the
 * cursor. If the original and the restored store have assigned the same number, the ids of the openings differ.
 *
 * The file OPENINGS_FILE is in the store's directory, so that a backup includes it. It is a ring of OPENINGS_MAX
 * slots (docs/formats/journal.md) and has its full size from the start, so that a store can be opened on a full disk.
 *
 * 1. When openings_open returns, the new opening is durable. Only after that may the caller assign a number.
 * 2. If a number is older than the oldest opening in the ring, its opening is unknown, and the id is "".
 * 3. A slot with a wrong checksum is ignored. If the write of the slot was torn, its opening has not assigned any
 *    number. If the slot was damaged later, cursors that contain the id of its opening are refused.
 *
 * After openings_open a `struct openings` never changes, so any thread may read it.
 * */
#ifndef MILLRACE_JOURNAL_OPENINGS_H
#define MILLRACE_JOURNAL_OPENINGS_H

#include "base/bytes.h"

#define OPENINGS_FILE "openings"
#define OPENINGS_MAX 256
#define OPENING_ID_TEXT 17 /* 16 lower-case hexadecimal digits and NUL */

struct openings;

struct opening {
    uint64_t first; /* the first number that this opening assigned */
    char id[OPENING_ID_TEXT];
};

/* Adds an opening whose first number is `next`. The call blocks until the file is synced. Returns NULL with errno if
 * the file cannot be read or written. */
struct openings *openings_open(const char *dir, uint64_t next);
void openings_free(struct openings **o);

/* Returns the id of the opening that has assigned `number` or will assign it; "" if unknown. */
const char *openings_id_of(const struct openings *o, uint64_t number);
/* The openings, ordered by their numbers. The last is the current opening. */
size_t openings_count(const struct openings *o);
const struct opening *openings_at(const struct openings *o, size_t i);
/* Returns the opening with this id, or NULL. */
const struct opening *openings_find(const struct openings *o, struct bytes id);

#endif
