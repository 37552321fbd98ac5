/* record_sum: adds up records with the same key, given as archive text, into one record.
 *
 * 1. The lines have passed record_check. Lines may come in any order; if their names ascend, the sum needs only one
 *    pass.
 * 2. Of several lookups with the same hash, the smallest unescaped text is kept, as in the merge. Different texts are
 *    counted as a collision.
 * 3. Sets are united. The line of a united set has its chunks (counts/set_text.h).
 * 4. Memory: at most 48 bytes for each different name, and the printed line. Added lines are borrowed until
 *    record_sum_line returns.
 *
 * A zeroed record_sum is ready; free it with record_sum_free. */
#ifndef MILLRACE_RECORD_SUM_H
#define MILLRACE_RECORD_SUM_H

#include "base/bytes.h"

#include <stdint.h>

struct record_sum_count;
struct set;

struct record_sum {
    struct bytes key, text; /* the key with its separator; the smallest text of a lookup, escaped */
    struct record_sum_count *counts;
    struct set *set; /* the union of sets; NULL: the record has counts */
    size_t n, room;
    bool unsorted;
    const char
        *wrong; /* why the records have no sum: it exceeds 64 bits, or the key has both counts and sets */
    struct buf line, one, other;
    uint64_t collisions;
    char collision[64];
};

/* Begins a record with the key of this line, and adds the line. */
void record_sum_begin(struct record_sum *s, struct bytes line);
/* Adds a line with the same key. */
void record_sum_add(struct record_sum *s, struct bytes line);
/* Adds the value of a record with another key, such as an hour's value to the day's sum. The record must not be a
 * lookup. */
void record_sum_add_value(struct record_sum *s, struct bytes value);
/* Returns the sum as a line without LF, valid until the next record_sum_begin. BYTES_NONE: see `wrong`. */
struct bytes record_sum_line(struct record_sum *s);
void record_sum_free(struct record_sum *s);

#endif
