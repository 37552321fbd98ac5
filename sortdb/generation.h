/* generation: what sortdb serves at one moment: every shard of one generation of an archive, or one file.
 *
 * 1. A generation is open and checked, whole, or there is none. It never changes: a reload makes another.
 * 2. It is counted: whoever answers from it holds a reference until the last byte has left, so an answer is of one
 *    generation however many replace it meanwhile. References are taken and given back in one thread (the loop's);
 *    generation_open may run in another, which hands over the only one.
 * 3. Records come in the order of whole lines (records.h), whichever shards they lie in.
 * 4. Bytes it gave are an answer only if generation_is_whole says so after they were read or copied.
 */
#ifndef MILLRACE_GENERATION_H
#define MILLRACE_GENERATION_H

#include "sortdb/sorted_file.h"

#define GENERATION_ERROR_TEXT 1024
#define GENERATION_NO_SHARD UINT32_MAX

struct generation;

struct generation_source {
    const char *archive; /* a directory (docs/guide/archive.md), or NULL */
    const char *db_file; /* one file, when archive is NULL */
    char separator;      /* of db_file; an archive's is RECORD_SEPARATOR */
    bool lock_memory;
};

enum generation_result {
    GENERATION_OK,
    GENERATION_REFUSED,   /* missing, damaged or not sorted: somebody must mend it */
    GENERATION_FAILED,    /* the system refused: another try may do */
    GENERATION_CANCELLED, /* the caller's flag was set */
};

struct generation_info {
    uint64_t number, through, records, bytes;
    uint64_t content; /* manifest_content; 0 for one file */
    uint32_t shards;
    bool is_cut; /* a file's last line has no LF */
};

/* The archive's generation in force, or the file; reads all of it. `served` is what it is to replace, NULL at first: a
 * file's number is one more. A file carries no manifest that would tell a part from the whole; so one that has lost what
 * the one served has (every line, or the LF at its end) is refused: that is what is left when its making failed. */
enum generation_result generation_open(const struct generation_source *source,
    const struct generation_info *served, const atomic_bool *cancel, struct generation **out,
    char error[GENERATION_ERROR_TEXT]);
struct generation *generation_ref(struct generation *g);
void generation_unref(struct generation **g);

struct generation_info generation_info(const struct generation *g);
char generation_separator(const struct generation *g);

/* False, and the text names the file, once one of its files was truncated. */
bool generation_is_whole(const struct generation *g, char error[GENERATION_ERROR_TEXT]);
/* False, likewise, when one was written to in place since it was opened. One system call a file. */
bool generation_is_untouched(const struct generation *g, char error[GENERATION_ERROR_TEXT]);

/* A record's line, its LF included if the file has it; false when there is none. Nothing is allocated. */
bool generation_find(const struct generation *g, struct bytes key, struct bytes *line, uint32_t *shard);

/* A run of records still to be read: in each of `n` shards the lines from `begin` to `end`. It holds no reference. Those that
 * have any left are a heap, the one with the first line on top: going on costs the logarithm of the shards. */
struct generation_part {
    uint32_t shard;
    struct sorted_span left;
    size_t head_end; /* of the line at left.begin */
};
struct generation_cursor {
    const struct generation *g;
    size_t n, live; /* parts; those that have lines left, which stand before the others */
    struct generation_part *parts;
};
void generation_cursor_free(struct generation_cursor *c);

/* Keys that begin with `prefix`; with `start` (may be empty) only from that key on. */
void generation_prefix(
    const struct generation *g, struct bytes prefix, struct bytes start, struct generation_cursor *out);
/* start <= key <= end. */
void generation_range(
    const struct generation *g, struct bytes start, struct bytes end, struct generation_cursor *out);

/* Bytes still to be read. */
uint64_t generation_cursor_bytes(const struct generation_cursor *c);
/* The shard that all of it lies in, or GENERATION_NO_SHARD when several were searched. */
uint32_t generation_cursor_shard(const struct generation_cursor *c);
/* Ends the cursor behind `max_records` records (0: no bound) and before the first that begins at or past `max_bytes`; but
 * behind one record at least, and never between lines that share a key. True when that leaves any out: *next is
 * then the first one's key. */
bool generation_cursor_cut(
    struct generation_cursor *c, uint64_t max_records, uint64_t max_bytes, struct bytes *next);
/* The next bytes of the answer: whole lines that lie together, about `enough` bytes of them at most (a longer line is
 * given whole). False at the end. */
bool generation_cursor_next(struct generation_cursor *c, size_t enough, struct bytes *run);

#endif
