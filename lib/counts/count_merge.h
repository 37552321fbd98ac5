/* count_merge: the k-way merge of sorted sources of counts.
 *
 * A source yields records in ascending order. A record is a key with its separator (`u|jehiah,`, `c.u|jehiah.c41l,`,
 * `lookup|HASH=,`) and a sequence of values. The values are counts with ascending names, the ascending chunks of a
 * set (sets/set_chunk.h), or one text if the record is a lookup. Tables in memory, runs in a slice and shards of an
 * archive are sources.
 *
 * 1. The merge yields the keys in byte order, each key once. For each key, the merge yields each name once, with the
 *    sum of the name's counts in all sources. A chunk's name is its id. The merge yields the union of the sources'
 *    chunks, again as chunks, and needs the memory of one chunk for each source.
 * 2. If sources hold different texts for one lookup, the merge yields the smallest text and counts a collision.
 * 3. The merge fails if a source's keys, names or chunks do not ascend, if a read fails, if a sum exceeds 2^64 - 1, or if
 *    a record has counts in one source and chunks in another.
 * 4. The result does not depend on the order of the sources.
 *
 * Only one thread at a time may use a merge and its sources.
 */
#ifndef MILLRACE_COUNT_MERGE_H
#define MILLRACE_COUNT_MERGE_H

#include "base/bytes.h"
#include "base/error.h"

struct count_source;

enum count_next { COUNT_END, COUNT_FOUND, COUNT_FAILED };
/* The error codes of a source or a merge that has returned COUNT_FAILED. */
enum count_failure {
    COUNT_DAMAGED,    /* the stored data is damaged */
    COUNT_UNREADABLE, /* a read of the file failed */
    COUNT_TOO_LARGE,  /* a sum exceeds 2^64 - 1 */
};

struct count_source_kind {
    /* Moves to the next record, even if some values of the current record were not read. Sets `key`,
     * `is_set`, and also `line` if the source is archive text. */
    enum count_next (*next_record)(struct count_source *s);
    /* Moves to the next value of the current record. Sets `text` if the record is a lookup, `name` and `text` for a
     * chunk that set_chunk_check accepts, and otherwise `name` and `count`. For a count, `text` is BYTES_NONE. */
    enum count_next (*next_value)(struct count_source *s);
    void (*close)(struct count_source *s); /* frees the source */
    /* Skips the values of the current record whose names sort before `name`. Returns COUNT_FOUND even if no value
     * remains. The pointer is NULL if the source cannot skip values. */
    enum count_next (*skip_values)(struct count_source *s, struct bytes name);
};

struct count_source {
    const struct count_source_kind *kind;
    const char *container; /* path of the source's file, for error texts; NULL: the source is in memory */
    struct bytes key;      /* valid until the next call of next_record or next_value */
    /* the whole record as archive text without LF, or BYTES_NONE; valid until next_record */
    struct bytes line;
    bool is_set;             /* the values of the record are chunks */
    struct bytes name, text; /* valid until next_value; a source clears `text` in next_record */
    uint64_t count;
    struct error error; /* after COUNT_FAILED */
};

static inline void count_source_close(struct count_source **s)
{
    if (*s)
        (*s)->kind->close(*s);
    *s = NULL;
}

/* A list that owns its sources. A zeroed list is empty. */
struct count_sources {
    struct count_source **list;
    size_t n;
};
void count_sources_add(struct count_sources *s, struct count_source *source);
void count_sources_free(struct count_sources *s);

/* Copies the current record, value and error of the source `inner` to `s`, a source that wraps `inner`. `r` is the
 * result of the latest call of `inner`. Returns r. */
enum count_next count_source_follow(
    struct count_source *s, const struct count_source *inner, enum count_next r);

/* Compares the first byte first, because the merge calls count_key_is_lookup for each value. */
static inline bool count_key_is_lookup(struct bytes key)
{
    return key.len > 0 && key.ptr[0] == 'l' && bytes_starts_with(key, BYTES_LITERAL("lookup|"));
}

struct count_merge;

/* Borrows the sources, which must outlive the merge. No record of the sources may have been read yet. */
struct count_merge *count_merge_new(struct count_source **sources, size_t n);
void count_merge_free(struct count_merge **m);
/* Reuses `m` for a merge of other sources. count_merge_reset keeps the number of collisions. */
void count_merge_reset(struct count_merge *m, struct count_source **sources, size_t n);

enum count_next count_merge_next_record(struct count_merge *m);
/* Merges the first records of all sources into one record with the key `key`. Call count_merge_join directly after
 * count_merge_reset, instead of count_merge_next_record. Returns COUNT_END if a source has no record. */
enum count_next count_merge_join(struct count_merge *m, struct bytes key);
/* The key of the current record. The key is valid until the next record. */
struct bytes count_merge_key(const struct count_merge *m);
/* True if the values of the current record are chunks of a set. */
bool count_merge_is_set(const struct count_merge *m);
/* The current record as text, if only one source has the record and that source is archive text. Otherwise BYTES_NONE.
 * A caller that uses the text may skip the record's values. */
struct bytes count_merge_line(const struct count_merge *m);

/* `text` is the text of a lookup or a chunk. BYTES_NONE: the value is a count. */
struct count_value {
    struct bytes name, text; /* valid until the next value */
    uint64_t count;
};
/* Sets *out to the next value of the current record. */
enum count_next count_merge_next_value(struct count_merge *m, struct count_value *out);

/* Skips values of the current record whose names sort before `name`, but may leave some of the values. The record must
 * not be a lookup. Returns COUNT_FOUND or COUNT_FAILED. */
enum count_next count_merge_skip_values(struct count_merge *m, struct bytes name);

/* Makes the merge fail at the current record with the error text `what`. Returns COUNT_FAILED. */
enum count_next count_merge_fail(struct count_merge *m, const char *what);
/* The error of a merge that has returned COUNT_FAILED. */
const struct error *count_merge_error(const struct count_merge *m);
/* Returns the number of merged lookups for which sources had different texts. Sets *key to the key of the latest such
 * lookup, without separator. */
uint64_t count_merge_collisions(const struct count_merge *m, const char **key);
/* Appends the current record as archive text, with its LF. A set is printed with its chunks (set_text.h). Returns
 * COUNT_END on success. */
enum count_next count_merge_print(struct count_merge *m, struct buf *out);
/* Same as count_merge_print, but a set is printed as its size, or as its members if they are few. */
enum count_next count_merge_print_short(struct count_merge *m, struct buf *out);
/* Appends the size or the members of the current record's set. `first` is the set's first value; the other values are
 * read. Returns COUNT_END on success. */
enum count_next count_merge_print_size(
    struct count_merge *m, const struct count_value *first, struct buf *out);
/* Appends the current record in pieces. Returns COUNT_FOUND if `out` has at least `enough` bytes and the next call
 * continues the record. */
enum count_next count_merge_print_piece(struct count_merge *m, struct buf *out, size_t enough);

#endif
