/* breakdown: the subtotals of one key over [from, to), largest first.
 *
 * The breakdown adds up subtotals in their stored form. Only the rows of the answer need the full text. Rows with equal counts are
 * ordered by text. So each subtotal with the count of the last row is a candidate and needs its text too.
 *
 * Order of calls: breakdown_add for every record; breakdown_select; breakdown_add_lookup for each candidate for which
 * breakdown_wants_text is true; breakdown_finish.
 */
#ifndef MILLRACE_BREAKDOWN_H
#define MILLRACE_BREAKDOWN_H

#include "api/query.h"
#include "counts/records.h"

struct breakdown_row {
    struct bytes stored;
    char *text; /* the full text, owned; NULL: the stored form is the text */
    size_t text_len;
    uint64_t n;
};
struct breakdown {
    const struct query *query;
    struct breakdown_entry *entries; /* the sums, by stored form */
    size_t distinct;
    uint64_t total;
    size_t n_rows; /* after breakdown_select: candidates; after breakdown_finish: rows of the answer */
    struct breakdown_row *rows;
    uint64_t shown; /* sum of the rows of the answer */
};

void breakdown_init(struct breakdown *b, const struct query *q);
/* Discards everything added, and frees it. */
void breakdown_reset(struct breakdown *b);
/* Adds one hour's record. Hours outside [from, to) are ignored. False: the record is malformed or of another counter. */
bool breakdown_add(struct breakdown *b, const struct record *r);
void breakdown_select(struct breakdown *b);
bool breakdown_wants_text(const struct breakdown *b, size_t row);
/* Adds a lookup record. False: the record is malformed, no lookup, or no candidate needs it. */
bool breakdown_add_lookup(struct breakdown *b, const struct record *r);
/* Sorts the candidates and keeps the first `limit`. */
void breakdown_finish(struct breakdown *b);
struct bytes breakdown_text(const struct breakdown_row *row);

#endif
