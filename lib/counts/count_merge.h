/* count_merge: the k-way merge of sorted sources of counts.
 *
 * A source yields records in ascending order. A record is a key with its separator (`u|jehiah,`, `c.u|jehiah.c41l,`,
 * `lookup|HASH=,`) and its values in ascending order: counts by name, or the full text of a lookup. Tables in memory, runs in
 * a slice and shards of an archive are sources. Reads, background merging and the compactor use the merge.
 *
 * 1. The merge yields each key once, in byte order. Under a key it yields each name once, with the sum over all sources.
 * 2. If sources hold different texts for one lookup, the merge yields the smallest text and counts a collision.
 * 3. The merge fails if a source's keys or names do not ascend, if a read fails, or if a sum exceeds 2^64 - 1.
 * 4. The result does not depend on the order of the sources.
 *
 * One thread at a time.
 */
#ifndef MILLRACE_COUNT_MERGE_H
#define MILLRACE_COUNT_MERGE_H

#include "base/bytes.h"
#include "base/error.h"

struct count_source;

enum count_next { COUNT_END, COUNT_FOUND, COUNT_FAILED };
/* The code of the error after COUNT_FAILED. */
enum count_failure {
    COUNT_DAMAGED,    /* the data that was read is wrong */
    COUNT_UNREADABLE, /* a read error */
    COUNT_TOO_LARGE,  /* a sum exceeds 2^64 - 1 */
};

struct count_source_kind {
    /* Moves to the next record, whether or not all values of the current record were read. Sets `key`, and `line` if
     * the source holds text. */
    enum count_next (*next_record)(struct count_source *s);
    /* Moves to the next value of the record. Sets `name` and `count`; for a lookup, sets `text`. */
    enum count_next (*next_value)(struct count_source *s);
    void (*close)(struct count_source *s); /* frees the source */
    /* Skips the values of the record before `name`, without reading all of them. COUNT_FOUND: next_value yields the first value at or after
     * `name`, if there is one. NULL: the source cannot skip. */
    enum count_next (*skip_values)(struct count_source *s, struct bytes name);
};

struct count_source {
    const struct count_source_kind *kind;
    const char *container; /* a file's path, for error texts; NULL: memory */
    struct bytes key;      /* valid until next_record or next_value */
    struct bytes
        line; /* the whole record as archive text without LF, or BYTES_NONE; valid until next_record */
    struct bytes name, text; /* valid until next_value */
    uint64_t count;
    struct error error; /* after COUNT_FAILED */
};

static inline void count_source_close(struct count_source **s)
{
    if (*s)
        (*s)->kind->close(*s);
    *s = NULL;
}

/* A list of sources, which it owns. A zeroed list is empty. */
struct count_sources {
    struct count_source **list;
    size_t n;
};
void count_sources_add(struct count_sources *s, struct count_source *source);
/* Closes all sources. */
void count_sources_free(struct count_sources *s);

/* For a source that wraps another source: takes over the position of `inner`, whose last call returned r. Returns r. */
enum count_next count_source_follow(
    struct count_source *s, const struct count_source *inner, enum count_next r);

/* Compares the first byte before the others, because this is asked for each value. */
static inline bool count_key_is_lookup(struct bytes key)
{
    return key.len > 0 && key.ptr[0] == 'l' && bytes_starts_with(key, BYTES_LITERAL("lookup|"));
}

struct count_merge;

/* Borrows the sources, which must outlive the merge. No record may have been read from them yet. */
struct count_merge *count_merge_new(struct count_source **sources, size_t n);
void count_merge_free(struct count_merge **m);
/* Begins a merge of other sources. Collisions go on being counted. */
void count_merge_reset(struct count_merge *m, struct count_source **sources, size_t n);

enum count_next count_merge_next_record(struct count_merge *m);
/* Instead of count_merge_next_record after a reset: merges the first record of each source as one with this key.
 * COUNT_END: a source has no record. */
enum count_next count_merge_join(struct count_merge *m, struct bytes key);
/* Valid until the next record. */
struct bytes count_merge_key(const struct count_merge *m);
/* The whole record as text, if only one source has the record and holds text; else BYTES_NONE. The caller may then skip
 * the record's values. */
struct bytes count_merge_line(const struct count_merge *m);

struct count_value {
    struct bytes name, text; /* valid until the next value */
    uint64_t count;
};
/* The next value of the record. */
enum count_next count_merge_next_value(struct count_merge *m, struct count_value *out);

/* Skips values of the record before `name`, without reading all of them; some may remain. Not for lookups. COUNT_FOUND or COUNT_FAILED. */
enum count_next count_merge_skip_values(struct count_merge *m, struct bytes name);

/* Fails the merge at the current record, as if a source had failed. Returns COUNT_FAILED. */
enum count_next count_merge_fail(struct count_merge *m, const char *what);
/* After COUNT_FAILED. */
const struct error *count_merge_error(const struct count_merge *m);
/* The number of lookups so far for which sources had different texts. *key is the key of the latest such lookup,
 * without separator. */
uint64_t count_merge_collisions(const struct count_merge *m, const char **key);
/* Appends the current record as archive text, with its LF. Returns COUNT_END on success. */
enum count_next count_merge_print(struct count_merge *m, struct buf *out);
/* The same in pieces. COUNT_FOUND: `out` has at least `enough` bytes, and the record continues; call again. */
enum count_next count_merge_print_piece(struct count_merge *m, struct buf *out, size_t enough);

#endif
