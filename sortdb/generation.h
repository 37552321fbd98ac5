/* generation: the files that sortdb serves at one moment: all shards of an archive's generation, or one file.
 *
 * 1. A generation is opened and checked whole, and never changes. A reload opens another one.
 * 2. It is reference counted. An answer holds a reference until its last byte has left. References are taken and dropped on the
 *    loop's thread; generation_open may run on another thread and hands over the only reference.
 * 3. Records come in the order of whole lines (records.h), across all shards.
 * 4. Bytes read from it are valid only if generation_is_whole says so afterwards.
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
    GENERATION_REFUSED,   /* missing, damaged or not sorted */
    GENERATION_FAILED,    /* a system error: a retry may succeed */
    GENERATION_CANCELLED, /* the caller's flag was set */
};

struct generation_info {
    uint64_t number, through, records, bytes;
    uint64_t content; /* manifest_content; 0 for one file */
    uint32_t shards;
    bool is_cut; /* a file's last line has no LF */
};

/* Opens the archive's current generation, or the file, and reads all of it. `served` is the one to replace, NULL at first; the number
 * of a file is one higher. A file without a manifest may be incomplete, so it is refused if it has lost all lines or its last LF. */
enum generation_result generation_open(const struct generation_source *source,
    const struct generation_info *served, const atomic_bool *cancel, struct generation **out,
    char error[GENERATION_ERROR_TEXT]);
struct generation *generation_ref(struct generation *g);
void generation_unref(struct generation **g);

struct generation_info generation_info(const struct generation *g);
char generation_separator(const struct generation *g);

/* False, with the file in the text, once one of its files was truncated. */
bool generation_is_whole(const struct generation *g, char error[GENERATION_ERROR_TEXT]);
/* False, likewise, if a file was modified since it was opened. One system call a file. */
bool generation_is_untouched(const struct generation *g, char error[GENERATION_ERROR_TEXT]);

/* The line of a record, with its LF if the file has one. False: no such record. */
bool generation_find(const struct generation *g, struct bytes key, struct bytes *line, uint32_t *shard);

/* Records still to be read: a span of lines in each of `n` shards. Holds no reference. The spans that are not empty form a heap by their
 * first line. */
struct generation_part {
    uint32_t shard;
    struct sorted_span left;
    size_t head_end; /* of the line at left.begin */
};
struct generation_cursor {
    const struct generation *g;
    size_t n, live; /* all parts; parts with lines left, which come first */
    struct generation_part *parts;
};
void generation_cursor_free(struct generation_cursor *c);

/* Keys with this prefix, from the key `start` on (may be empty). */
void generation_prefix(
    const struct generation *g, struct bytes prefix, struct bytes start, struct generation_cursor *out);
/* start <= key <= end. */
void generation_range(
    const struct generation *g, struct bytes start, struct bytes end, struct generation_cursor *out);

/* Bytes still to be read. */
uint64_t generation_cursor_bytes(const struct generation_cursor *c);
/* The only shard searched, or GENERATION_NO_SHARD for several. */
uint32_t generation_cursor_shard(const struct generation_cursor *c);
/* Limits the cursor to `max_records` records (0: no limit) that start before `max_bytes`, but to at least one record, and never between
 * lines of one key. True if records are left out: *next is the key of the first. */
bool generation_cursor_cut(
    struct generation_cursor *c, uint64_t max_records, uint64_t max_bytes, struct bytes *next);
/* The next adjacent whole lines, about `enough` bytes at most (a longer line comes whole). False at the end. */
bool generation_cursor_next(struct generation_cursor *c, size_t enough, struct bytes *run);

#endif
