/* count_merge: ordered runs of counts behind one interface, and the one k-way merge of them.
 *
 * A source yields records in order: a key with its separator (`u|jehiah,`, `c.u|jehiah.c41l,`, `lookup|HASH=,`), and under
 * it values in order: counts by name, or the full text of a lookup. Tables in memory, runs in a slice and shards of an
 * archive are sources. Reads, background merging and the compactor use the merge.
 *
 * 1. The merge yields each key once, in byte order, and under it each name once, with the sum over all sources.
 * 2. Of different texts under one lookup it yields the smallest and counts a collision.
 * 3. A source whose keys or names do not ascend, a failed read, and a sum over 2^64 - 1 end the merge with an error.
 *    Nothing that a source yields is trusted to be in order.
 * 4. The result does not depend on the order of the sources.
 *
 * One thread at a time.
 */
#ifndef MILLRACE_COUNT_MERGE_H
#define MILLRACE_COUNT_MERGE_H

#include "base/bytes.h"

#define COUNT_ERROR_TEXT 512

struct count_source;

/* Results of the functions below: COUNT_FAILED leaves the reason in the error text. */
enum count_next { COUNT_END, COUNT_FOUND, COUNT_FAILED };

struct count_source_kind {
    /* Moves to the next record, past values that were not taken. Sets key, and line if the source holds text. */
    enum count_next (*next_record)(struct count_source *s);
    /* Moves to the next value of the record. Sets name and count; of a lookup, text. */
    enum count_next (*next_value)(struct count_source *s);
    void (*close)(struct count_source *s); /* frees the source */
};

struct count_source {
    const struct count_source_kind *kind;
    const char *container; /* what errors call the place of the counts: a file's path; NULL: memory */
    struct bytes key;      /* valid until the next call of either */
    struct bytes
        line; /* the whole record as archive text without LF, or BYTES_NONE; valid until next_record */
    struct bytes name, text; /* valid until next_value */
    uint64_t count;
    char error[COUNT_ERROR_TEXT];
    bool is_unreadable; /* of COUNT_FAILED: the system refused to read; else the bytes are damaged */
};

static inline void count_source_close(struct count_source **s)
{
    if (*s)
        (*s)->kind->close(*s);
    *s = NULL;
}

bool count_key_is_lookup(struct bytes key);

struct count_merge;

/* The sources stay the caller's and must outlive the merge. Each stands before its first record. */
struct count_merge *count_merge_new(struct count_source **sources, size_t n);
void count_merge_free(struct count_merge **m);

enum count_next count_merge_next_record(struct count_merge *m);
/* Valid until the next record. */
struct bytes count_merge_key(const struct count_merge *m);
/* The record's line if only one source has the record and holds it as text; then its values need not be taken. */
struct bytes count_merge_line(const struct count_merge *m);

struct count_value {
    struct bytes name, text; /* valid until the next value */
    uint64_t count;
};
/* The next value of the record. */
enum count_next count_merge_next_value(struct count_merge *m, struct count_value *out);

const char *count_merge_error(const struct count_merge *m);
/* Of COUNT_FAILED: the system refused to read; else some bytes are damaged. */
bool count_merge_is_unreadable(const struct count_merge *m);
/* Meetings of two texts under one lookup so far. *key is the last one's, without its separator. */
uint64_t count_merge_collisions(const struct count_merge *m, const char **key);
/* Appends the record at hand as archive text, with its LF. COUNT_END when it is done. */
enum count_next count_merge_print(struct count_merge *m, struct buf *out);

#endif
