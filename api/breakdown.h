/* breakdown: the sub keys of one key over [from, to), summed, the largest first.
 *
 * Sub keys are summed in their stored form and expanded to their full texts only where the answer needs it. Equal
 * counts are ordered by text in byte order, so every sub key that ties with the last row is a candidate and needs its
 * text, not only the rows shown.
 *
 * Use: add every record; breakdown_select; give each candidate of which breakdown_wants_text its text; breakdown_finish.
 * Pure: no clock, no network.
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
    uint64_t shown; /* the sum of the rows of the answer */
};

void breakdown_init(struct breakdown *b, const struct query *q);
void breakdown_free(struct breakdown *b);
/* Everything added is gone, for starting over. */
void breakdown_reset(struct breakdown *b);
/* One hour's record of the subtotal; false when it is malformed or not of this counter. An hour outside [from, to) is
 * left out. */
bool breakdown_add(struct breakdown *b, const struct record *r);
void breakdown_select(struct breakdown *b);
bool breakdown_wants_text(const struct breakdown *b, size_t row);
/* A lookup record; false when it is no lookup, not wanted or malformed. */
bool breakdown_add_lookup(struct breakdown *b, const struct record *r);
/* Orders the candidates and keeps `limit`. */
void breakdown_finish(struct breakdown *b);
struct bytes breakdown_text(const struct breakdown_row *row);

#endif
