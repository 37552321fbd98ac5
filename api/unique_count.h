/* unique_count: the numbers of an answer about sets, from the pieces of its named sets (set_pieces.h).
 *
 * 1. Each number is the size of one union, or of one cohort. No number is a sum.
 * 2. A set of the mapped archive is opened only if it must be united with another set. The size of a single set is known
 *    from its text.
 * 3. unique_count_run works in steps, so that several answers can take turns in one thread. A step makes one number, or
 *    the whole table of a retention.
 * 4. An opened set of the archive has 40 bytes of memory for each container of 65,536 numbers. unique_count_bytes includes
 *    `room` for opened sets. A step that needs more stops, and is repeated once the caller has made room. After a step that
 *    leaves more than 64 MB, the sets are closed.
 * 5. Other memory beside the pieces is that of set_algebra.h for one answer at a time. */
#ifndef MILLRACE_UNIQUE_COUNT_H
#define MILLRACE_UNIQUE_COUNT_H

#include "api/set_pieces.h"
#include "base/clock.h"

struct unique_row {
    int64_t start, end; /* a unit */
    uint64_t n;
    double daily; /* mean of the days' numbers; negative: not asked for */
};

/* UNIQUE_CUT: the archive has dropped hours that the answer needs. */
enum unique_result { UNIQUE_OK, UNIQUE_CUT, UNIQUE_DAMAGED };

struct unique_count {
    const struct unique_query *query;
    struct set_pieces *sets; /* of each named set, one for each cell (unique_count_pieces) */
    size_t n_cells, n_pieces;
    int64_t from, to;        /* of the answer */
    struct unique_row *rows; /* units of the answer; for a retention with those of the lookback */
    size_t n_rows, rows_cap, at;
    uint64_t total; /* of the whole time; for a cohort its size */
    double daily;
    uint64_t *table;                  /* of a retention: retention_count.h */
    uint64_t sizes[SET_OPERANDS_MAX]; /* of a cohort: sizes of the named sets */
    enum unique_result result;
    struct error error; /* of UNIQUE_DAMAGED */
    struct set_cover cover;
    size_t opened; /* memory of opened sets */
    size_t room;   /* bytes of memory for opened sets; 0 at first */
};

void unique_count_init(struct unique_count *c, const struct unique_query *query, size_t n_cells);
/* Returns the pieces of a named set in a cell. */
struct set_pieces *unique_count_pieces(const struct unique_count *c, size_t set, size_t cell);
void unique_count_free(struct unique_count *c);
size_t unique_count_bytes(const struct unique_count *c);
/* Makes the rows, once all pieces are known. Returns false if there are more than max_rows. */
bool unique_count_begin(struct unique_count *c, uint64_t max_rows);
/* Makes numbers until `end` (monotonic). Returns true if more remain. Any thread may call it. */
bool unique_count_run(struct unique_count *c, usec_t end);
/* Makes room for the opened sets. Returns false if they already had room. */
bool unique_count_make_room(struct unique_count *c);

#endif
