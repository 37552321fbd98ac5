/* breakdown: the subtotals of one key over [from, to), largest first.
 *
 * Rows are in the order of count and text, so the answer with a smaller limit is the beginning of the answer with a larger one. The
 * breakdown adds up subtotals in their stored form, which may be a hash. Usually only the rows of the answer need their full text. If
 * more subtotals have the count of the last row than fit, and one of them is a hash, all subtotals with this count become candidates.
 * They are looked up in rounds, and after each round the rows with the smallest texts remain.
 *
 * Order of calls: breakdown_add for every record. Then a round: breakdown_select until it returns true; breakdown_add_lookup for each
 * row for which breakdown_wants_text is true; breakdown_order. The round is repeated until breakdown_order returns true.
 *
 * 1. Each call does a bounded amount of work, so that a breakdown of millions of subtotals takes many short turns of the loop.
 * 2. The sums are in many small tables that grow at different times, so that an insertion moves at most one small
 *    table.
 * 3. The texts in memory are those of one round's rows. Once breakdown_order has returned true, only the rows use memory.
 */
#ifndef MILLRACE_BREAKDOWN_H
#define MILLRACE_BREAKDOWN_H

#include "api/query.h"
#include "counts/records.h"

#define BREAKDOWN_TABLES 256

struct breakdown_sum {
    uint64_t n;                  /* 0: an empty slot */
    char stored[COMPONENT_HASH]; /* padded with NUL */
    uint8_t len;
};
struct breakdown_table {
    struct breakdown_sum *sums; /* open addressing; `size` is a power of two */
    uint32_t n, size;
};
struct breakdown_row {
    struct breakdown_sum sum;
    char *text; /* the full text, owned; NULL: the stored form is the text */
    size_t text_len;
    bool is_beyond; /* the text is known, and larger than those of the rows that are kept */
};
enum breakdown_stage { BREAKDOWN_LARGEST, BREAKDOWN_TIES, BREAKDOWN_SELECTED };
struct breakdown {
    const struct query *query;
    struct breakdown_table tables[BREAKDOWN_TABLES];
    size_t distinct;
    uint64_t total;
    bool
        needs_dropped_hours; /* of a day of which the archive has no hours, and which lies partly in the span */
    bool is_too_large;       /* the total exceeds 2^64 - 1 */
    size_t bytes;            /* memory of tables, rows and texts */
    enum breakdown_stage stage;
    size_t table, slot; /* where the selection continues */
    size_t freed;       /* tables */
    struct breakdown_row *
        rows; /* in a round: `kept` rows in their order, then those of the round in the order of their stored forms */
    size_t n_rows, kept;
    struct breakdown_sum
        last; /* the last row so far; its count is 0 until there are as many rows as the limit */
    uint64_t left_out, left_out_hash; /* the largest count without a row, and the largest of a hash */
    bool has_worst;                   /* as many rows are kept as the limit */
    struct buf worst;                 /* the text of the last of them */
    uint64_t shown;                   /* sum of the rows */
    struct query_over over;
};

void breakdown_init(struct breakdown *b, const struct query *q);
/* Discards everything added, and frees it. */
void breakdown_reset(struct breakdown *b);
/* Adds counts of the record of an hour, a day or a month. The records of one source must not overlap. Periods outside [from, to) are
 * ignored. False: the record is malformed or of another counter. */
bool breakdown_add(struct breakdown *b, const struct record *r);
/* Selects the rows of a round. Returns false if it must be called again. */
bool breakdown_select(struct breakdown *b);
/* Forgets the texts of the rows from..to-1, to look them up again. */
void breakdown_forget_texts(struct breakdown *b, size_t from, size_t to);
bool breakdown_wants_text(const struct breakdown *b, size_t row);
/* Sets the text of a row from a lookup record. False: the record is malformed, or of no row. */
bool breakdown_add_lookup(struct breakdown *b, const struct record *r);
/* Sorts the rows by count and text, and ends the round. Returns false if another round must follow. */
bool breakdown_order(struct breakdown *b);
struct bytes breakdown_text(const struct breakdown_row *row);

#endif
