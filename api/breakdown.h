/* breakdown: the subtotals of one key over [from, to), the largest first.
 *
 * Subtotals are summed in their stored form and expanded to their texts only where the answer needs it. Equal counts are ordered by
 * text, so every subtotal that ties with the last row is a candidate and needs its text.
 *
 * Use: add every record; breakdown_select; add a lookup for each candidate with breakdown_wants_text; breakdown_finish. No clock, no
 * network.
 */
#ifndef MILLRACE_BREAKDOWN_H
#define MILLRACE_BREAKDOWN_H

#include "api/query.h"
#include "counts/records.h"

struct breakdown_row {
    struct bytes stored;
    char *text; /* expanded, owned; NULL: the stored form is the text */
    size_t text_len;
    uint64_t n;
};
struct breakdown {
    const struct query *query;
    struct breakdown_entry *entries; /* the sums, by stored form */
    size_t distinct;
    uint64_t total;
    size_t n_rows; /* candidates after select, rows of the answer after finish */
    struct breakdown_row *rows;
    uint64_t shown; /* sum of the rows of the answer */
};

void breakdown_init(struct breakdown *b, const struct query *q);
/* Discards everything added, and frees it. */
void breakdown_reset(struct breakdown *b);
/* Adds one hour's record. Hours outside [from, to) are ignored. False: malformed, or of another counter. */
bool breakdown_add(struct breakdown *b, const struct record *r);
void breakdown_select(struct breakdown *b);
bool breakdown_wants_text(const struct breakdown *b, size_t row);
/* Adds a lookup record. False: not a lookup, not wanted or malformed. */
bool breakdown_add_lookup(struct breakdown *b, const struct record *r);
/* Sorts the candidates and keeps the first `limit`. */
void breakdown_finish(struct breakdown *b);
struct bytes breakdown_text(const struct breakdown_row *row);

#endif
