/* breakdown: the subtotals of one key over [from, to), largest first.
 *
 * The breakdown adds up subtotals in their stored form, which may be a hash. Only rows of the answer need their full
 * text. Rows with equal counts are ordered by text. So every subtotal whose count equals that of the last row (a tie) may
 * become a row, and its text is needed too. Hashed ties become rows in batches in the order of their hashes, so that one range of
 * lookup records has the texts of a batch even if there are millions of ties.
 *
 * Order of calls: breakdown_add for every record; breakdown_select until it returns true; then, until breakdown_gather returns
 * false: breakdown_add_lookup for each row for which breakdown_wants_text is true, and breakdown_keep_largest.
 *
 * 1. Each call does a bounded amount of work, so that a breakdown of millions of subtotals takes many short turns of the loop.
 * 2. The sums are in many small tables that grow at different times, so that an insertion moves at most one small
 *    table.
 * 3. At most limit + BREAKDOWN_TEXTS_MAX rows have a text at a time.
 */
#ifndef MILLRACE_BREAKDOWN_H
#define MILLRACE_BREAKDOWN_H

#include "api/query.h"
#include "counts/records.h"

#define BREAKDOWN_TABLES 64
#define BREAKDOWN_TEXTS_MAX 8192

struct breakdown_sum {
    uint64_t n;
    uint8_t len; /* 0: an empty slot */
    char stored[COMPONENT_HASH];
};
struct breakdown_table {
    struct breakdown_sum *sums; /* open addressing; `size` is a power of two */
    uint32_t n, size;
    uint32_t ties,
        taken; /* once gathered, the table has only its hashed ties, in the order of the hashes; those that became rows */
};
struct breakdown_row {
    struct breakdown_sum sum;
    char *text; /* the full text, owned; NULL: the stored form is the text */
    size_t text_len;
};
struct breakdown {
    const struct query *query;
    struct breakdown_table tables[BREAKDOWN_TABLES];
    size_t distinct;
    uint64_t total;
    bool
        needs_dropped_hours; /* of a day of which the archive has no hours, and which lies partly in the span */
    bool is_too_large;       /* the total exceeds 2^64 - 1 */
    size_t bytes;            /* memory of tables, rows and texts */
    size_t table, slot;      /* where the current pass over the sums continues */
    uint64_t *largest;       /* used by breakdown_select: the largest counts found so far */
    size_t n_largest;
    uint64_t least; /* the count of the last row */
    struct breakdown_row *rows;
    size_t n_rows,
        kept; /* the first `kept` rows are sorted and have their texts; the others are sorted by stored form */
    uint64_t shown; /* sum of the rows */
    uint64_t over;  /* with max_keys: events that the subtotal counted as `(other)` */
};

void breakdown_init(struct breakdown *b, const struct query *q);
/* Discards everything added, and frees it. */
void breakdown_reset(struct breakdown *b);
/* Adds counts of the record of an hour, a day or a month. The records of one source must not overlap. Periods outside [from, to) are
 * ignored. False: the record is malformed or of another counter. */
bool breakdown_add(struct breakdown *b, const struct record *r);
/* Finds the count of the answer's last row. Returns false if it must be called again. */
bool breakdown_select(struct breakdown *b);
/* Adds subtotals that may be in the answer to the rows. Returns false when there are no more: the rows are final, and
 * the sums are freed. */
bool breakdown_gather(struct breakdown *b);
/* Forgets the texts of the rows from..to-1, to look them up again. */
void breakdown_forget_texts(struct breakdown *b, size_t from, size_t to);
bool breakdown_wants_text(const struct breakdown *b, size_t row);
/* Sets the text of a row from a lookup record. */
enum breakdown_lookup { BREAKDOWN_LOOKUP_OK, BREAKDOWN_LOOKUP_OTHER, BREAKDOWN_LOOKUP_BAD };
/* _OTHER: the record belongs to no row. _BAD: the record is malformed, or not a lookup. */
enum breakdown_lookup breakdown_add_lookup(struct breakdown *b, const struct record *r);
/* Sorts the rows and keeps the first `limit`. */
void breakdown_keep_largest(struct breakdown *b);
struct bytes breakdown_text(const struct breakdown_row *row);

#endif
