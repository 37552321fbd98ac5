/* opening_list: the openings of a store, and the comparison of two histories. In memory only.
 *
 * A store assigns ascending numbers: a stream assigns offsets, a queue assigns message ids. If an operator restores
 * a backup, the restored store assigns some numbers a second time, for other contents. To detect this, each opening
 * of a store gets a random id (journal_openings.h), and a cursor or mark has the id of the opening before it. If
 * the original and the restored store have assigned the same number, the ids differ.
 *
 * The *lineage* of a number consists of its opening and all openings before it, the newest first. Each is cut to
 * the first LINEAGE_DIGITS digits of its id. If two histories differ at a number, they parted after the newest opening
 * that both have. A lineage has no gap, so the opening that follows in one history is not in the other.
 *
 * A cursor in a file has the whole lineage. The tag of a mark has its newest openings, as far as they fit beside
 * the producer's name (LINEAGE_TAG_ROOM). If two histories parted before the oldest opening of a lineage, it is known
 * that they differ, but not where.
 *
 * A complete list never changes, so any thread may read it. */
#ifndef MILLRACE_OPENING_LIST_H
#define MILLRACE_OPENING_LIST_H

#include "base/bytes.h"

#define OPENINGS_MAX 256
#define OPENING_ID_TEXT 17 /* 16 lower-case hexadecimal digits and NUL */
#define LINEAGE_DIGITS 10
#define LINEAGE_TEXT (OPENINGS_MAX * LINEAGE_DIGITS + 1) /* buffer for a whole lineage */
/* Maximum bytes of a producer's name and the lineage in its tag. The rest of the label holds the producer's statement (untils.h). */
#define LINEAGE_TAG_ROOM ((size_t)156)
/* Buffer for the newest openings of a lineage. They tell two histories apart where the place of parting is not needed. */
#define LINEAGE_SHORT_TEXT (3 * LINEAGE_DIGITS + 1)

struct opening {
    uint64_t first; /* the first number that this opening assigned */
    char id[OPENING_ID_TEXT];
};

struct openings {
    struct opening list[OPENINGS_MAX]; /* in the order of their numbers; the last is the current opening */
    size_t n;
    uint64_t sequence; /* of the newest, in the file */
};

/* The list in a reply: "FIRST:ID, FIRST:ID, ...", the oldest first. NULL: the text is not such a list. */
struct openings *openings_from_text(struct bytes text);
/* Appends that list, from index `i` on. */
void openings_append_text(const struct openings *o, size_t i, struct buf *out);
void openings_free(struct openings **o);

/* Returns the id of the opening that has assigned `number` or will assign it; "" if unknown. */
const char *openings_id_of(const struct openings *o, uint64_t number);
size_t openings_count(const struct openings *o);
const struct opening *openings_at(const struct openings *o, size_t i);

/* "" if unknown. Appends no opening that does not fit into `size` bytes with the NUL. */
void openings_lineage(const struct openings *o, uint64_t number, char *out, size_t size);
/* Cuts a lineage to the openings that fit into a tag beside the name of a producer. */
void lineage_cut_to_tag(char *lineage, size_t producer);
/* Compares the lineage of `number` in another history with this one. True: both assigned the number in the same opening,
 * so they agree up to the number; true also if either opening is unknown.
 * False: *differs_from is the first number that this history assigned after the histories parted, or 0 if this history
 * has no opening of the lineage. */
bool openings_agree(const struct openings *o, uint64_t number, struct bytes lineage, uint64_t *differs_from);

#endif
