/* set_pieces: the sets of one named set (unique_query.h), as the archive and the aggregator have sent them.
 *
 * A piece is the set of one period: a quarter hour, an hour, a day or a month. The archive may have pieces inside other
 * pieces, because a day is the union of its hours, and a month is the union of its days. The pieces of the aggregator have
 * no such parts.
 *
 * 1. set_pieces_cover returns pieces whose union is exactly the set of the given time.
 *    An hour without quarter hours belongs to the time in which it begins.
 * 2. A large set of a mapped archive is used in place. Its size is known from its text, and its file is read only by
 *    set_pieces_open. Any other set is in memory, and set_pieces_bytes includes it.
 * 3. The loop adds pieces. Then one other thread may use all pieces, and returns them to the loop. Only the loop frees. */
#ifndef MILLRACE_SET_PIECES_H
#define MILLRACE_SET_PIECES_H

#include "api/unique_query.h"
#include "archive/generation.h"
#include "counts/set_text.h"

struct set_piece {
    int64_t start, end;
    enum period_unit unit;
    uint64_t n;                     /* number of members, if `set` is NULL */
    uint64_t few[SET_TEXT_MEMBERS]; /* all members, if there are so few */
    struct set *set;                /* a set in memory, or NULL */
    bool is_open;
    struct set_opened opened; /* a set of the mapped archive */
};

enum { PIECES_ARCHIVE, PIECES_LIVE, PIECES_LISTS };

struct set_pieces {
    const struct query_set *of;
    struct generation *g; /* the mapped archive; NULL: none. Holds a reference */
    struct set_list {
        struct set_piece *pieces; /* by start, a longer period first */
        size_t n, cap;
    } lists[PIECES_LISTS];
    struct set_text text; /* state of the set in progress */
    size_t bytes;         /* of sets in memory */
};

void set_pieces_init(struct set_pieces *p, const struct query_set *of);
/* Discards all pieces. */
void set_pieces_reset(struct set_pieces *p);
/* Adds a record, or a part of a record. `takes_sizes`: the record is of a mapped archive, so its value may be a size.
 * Returns false if the record is malformed, out of order or of another set. */
bool set_pieces_add(struct set_pieces *p, int list, bool takes_sizes, const struct record *r);
/* Sets the mapped archive of the pieces that were added with sizes. */
void set_pieces_map(struct set_pieces *p, struct generation *g);
size_t set_pieces_bytes(const struct set_pieces *p);

struct set_cover {
    struct set_cover_part {
        struct set_pieces *of;
        struct set_piece *piece;
    } * parts;
    size_t n, cap;
    bool is_cut; /* only a part of a day belongs to the time, and the hours of this day were dropped */
};
/* Appends the pieces of [from, to). */
void set_pieces_cover(struct set_pieces *p, int64_t from, int64_t to, struct set_cover *out);
/* Returns the size of a piece, which is not opened. */
uint64_t set_piece_size(struct set_piece *piece);
/* Opens a set of the mapped archive. Adds the memory of the opened set to *bytes. Returns -1 with an error that names the
 * set, if the set is damaged. */
int set_pieces_open(struct set_pieces *p, struct set_piece *piece, size_t *bytes, struct error *error);
/* Closes all sets of the mapped archive. */
void set_pieces_close(struct set_pieces *p);
/* Returns -1 with an error if a file of the mapped archive was truncated, so that members may be missing. */
int set_pieces_check(const struct set_pieces *p, struct error *error);

#endif
