/* breakdown: the subtotals of one key over [from, to), largest first.
 *
 * Rows are sorted by count and text, so a smaller limit returns the first rows of the same answer. The breakdown adds
 * up subtotals in their stored form, which may be a hash. Usually only the texts of the answer's rows are looked up.
 *
 * More subtotals may have the count of the last row than fit into the answer. If the stored form of such a subtotal
 * is a hash, all subtotals with this count are candidates. The texts of the candidates are looked up in rounds. After
 * each round, the rows with the smallest texts remain.
 *
 * A query with after= gets the rows that follow a row with a given count and text. Of the subtotals with this count, only
 * those with larger texts are rows. The first rounds select these rows, as if this count were that of the last row.
 *
 * If more than breakdown_ties_max subtotals have the count of the last row, or that of after=, the stored form replaces
 * the text in the order of the subtotals with this count. Only the texts of the answer's rows are then looked up. The size
 * of such a class does not depend on the limit, and after= contains a text and therefore also its stored form. All
 * answers with the same counts therefore use the same order.
 *
 * Order of calls: breakdown_add for every record, then rounds until breakdown_order returns true. A round is:
 * - breakdown_select until breakdown_select returns true
 * - breakdown_add_lookup for each row for which breakdown_wants_text is true
 * - breakdown_order
 *
 * 1. Each call does a bounded amount of work, so that a breakdown of millions of subtotals does not block the loop.
 * 2. The sums are stored in many small tables that grow at different times. An insertion rehashes at most one table.
 * 3. Only the texts of one round's rows are in memory. After breakdown_order has returned true, only the rows use
 *    memory.
 * 4. breakdown_ties_max is at least the limit, so that an answer never has all rows of a class in stored order. */
#ifndef MILLRACE_BREAKDOWN_H
#define MILLRACE_BREAKDOWN_H

#include "api/query.h"
#include "counts/records.h"

#define BREAKDOWN_TABLES 256

struct breakdown_sum {
    int64_t n;
    char stored[COMPONENT_HASH]; /* stored form, padded with NUL */
    uint8_t len;
    bool is_used; /* false: the slot is empty */
};
struct breakdown_table {
    struct breakdown_sum *sums; /* open addressing; `size` is a power of two */
    uint32_t n, size;
};
struct breakdown_row {
    struct breakdown_sum sum;
    char *text; /* full text, owned by the row; NULL: the stored form is the text */
    size_t text_len;
    bool is_beyond;  /* the text is known, and larger than the texts of all kept rows */
    bool is_before;  /* the text is known, and at most the text of after= */
    bool by_stored;  /* the stored form decides among equal counts */
    int64_t events;  /* divisor of the row's mean */
    int64_t earlier; /* count in the span that a comparison compares with */
};
/* BREAKDOWN_AFTER_SIZE: counting the subtotals with the count of after=. BREAKDOWN_AFTER: subtotals with the count of after=. BREAKDOWN_AFTER_ENDED: the last round of these. */
enum breakdown_stage {
    BREAKDOWN_AFTER_SIZE,
    BREAKDOWN_AFTER,
    BREAKDOWN_AFTER_ENDED,
    BREAKDOWN_LARGEST,
    BREAKDOWN_TIES,
    BREAKDOWN_SELECTED
};
struct breakdown {
    const struct query *query;
    struct breakdown_table tables[BREAKDOWN_TABLES];
    size_t distinct;
    int64_t total;
    bool needs_dropped_hours; /* the span includes only a part of a day whose hours the archive has dropped */
    int64_t absolute;         /* sum of the counts' absolute values, which bounds every sum of the counts */
    bool is_too_large;        /* `absolute` exceeds 64 bits; later counts are not added */
    size_t bytes;             /* memory of tables, rows and texts, in bytes */
    enum breakdown_stage stage;
    size_t table, slot; /* position from which the selection continues */
    size_t freed;       /* number of freed tables */
    struct breakdown_row
        *rows; /* in a round: first `kept` sorted rows, then the rows of the round, sorted by stored form */
    size_t n_rows, kept;
    struct breakdown_sum last; /* last row so far; unused until the number of rows reaches the limit */
    int64_t left_out,
        left_out_hash; /* largest count without a row: of all sums, and of the sums whose stored form is a hash; INT64_MIN: none */
    size_t n_left_out; /* number of sums without a row that have the count `left_out` */
    bool has_worst;    /* the number of kept rows has reached the limit */
    struct buf worst;  /* text of the last kept row; valid if has_worst */
    int64_t shown;     /* sum of the counts of all rows */
    struct buf after;  /* text of after=, or its stored form */
    size_t n_after;    /* number of subtotals with the count of after= */
    bool after_by_stored;
    size_t n_before; /* number of subtotals up to that of after= */
    int64_t before;  /* sum of their counts */
    struct query_over over;
    const struct breakdown *followed; /* only the subtotals in its rows get sums; NULL: all subtotals */
    const struct breakdown *events;   /* sums of the divisors of the means; NULL: no means */
    const struct breakdown *earlier;  /* sums of the earlier span; NULL: no comparison */
};

/* Maximum number of subtotals with equal counts that are ordered by text. Tests change the limit. */
extern size_t breakdown_ties_max;

void breakdown_init(struct breakdown *b, const struct query *q);
/* Discards and frees all counts. */
void breakdown_reset(struct breakdown *b);
/* Adds the counts of the record of an hour, a day or a month. The records of one source must not overlap. Periods
 * outside [from, to) are ignored. Returns false if the record is malformed or of another counter. */
bool breakdown_add(struct breakdown *b, const struct record *r);
/* Adds the count of one subtotal. Returns false if `stored` is not a stored form. */
bool breakdown_add_count(struct breakdown *b, struct bytes stored, int64_t n);
/* Selects the rows of a round. Returns false if breakdown_select must be called again. */
bool breakdown_select(struct breakdown *b);
/* Discards the texts of the rows from..to-1, so that the caller looks them up again. */
void breakdown_forget_texts(struct breakdown *b, size_t from, size_t to);
bool breakdown_wants_text(const struct breakdown *b, size_t row);
/* Sets the text of a row from a lookup record. Returns false if the record is malformed, or no row has this hash. */
bool breakdown_add_lookup(struct breakdown *b, const struct record *r);
/* Sorts the rows by count and text, and ends the round. Returns false if another round must follow. */
bool breakdown_order(struct breakdown *b);
/* Limits the sums of the empty breakdown `b` to the selected rows of `followed`, which must outlive `b`. The total still
 * includes all subtotals. */
void breakdown_follow(struct breakdown *b, const struct breakdown *followed);
/* breakdown_take_events and breakdown_take_earlier set a member of the selected rows to the counts of a further breakdown
 * that followed `b`. This breakdown keeps only its total and must not be freed before `b`. */
void breakdown_take_events(struct breakdown *b, struct breakdown *events);
void breakdown_take_earlier(struct breakdown *b, struct breakdown *earlier);
/* True if more rows follow, which after= can return. */
bool breakdown_has_more(const struct breakdown *b);
struct bytes breakdown_text(const struct breakdown_row *row);
struct bytes breakdown_stored(const struct breakdown_sum *s);

#endif
