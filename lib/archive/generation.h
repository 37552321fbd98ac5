/* generation: the files that sortdb serves at one moment: all shards of an archive's generation, or one file.
 *
 * 1. A generation is opened and checked whole, and never changes. A reload opens another generation.
 * 2. A generation is reference counted, and the count is atomic: any thread that holds a reference may take another or drop its own.
 *    generation_open returns the first reference. An answer holds a reference until its last byte was sent.
 * 3. Records come in the order of whole lines (records.h), across all shards.
 * 4. Bytes read from a generation are valid only if generation_is_whole returns true afterwards.
 * 5. Several threads may search one generation at once. A cursor belongs to one thread.
 */
#ifndef MILLRACE_GENERATION_H
#define MILLRACE_GENERATION_H

#include "archive/sorted_file.h"

#define GENERATION_ERROR_TEXT 1024
#define GENERATION_NO_SHARD UINT32_MAX

struct generation;

struct generation_source {
    const char *archive; /* a directory (docs/guide/archive.md), or NULL */
    const char *db_file; /* a single file, if archive is NULL */
    char separator;      /* between key and value in db_file; an archive always uses RECORD_SEPARATOR */
    bool lock_memory;
};

struct generation_info {
    uint64_t number, through, records, bytes;
    uint64_t content; /* manifest_content; 0 for one file */
    int64_t modified; /* time of the last modification of a file, in Unix seconds */
    uint32_t shards;
    bool is_cut; /* a file's last line has no LF */
};

/* Opens the archive's current generation, or db_file, and checks every line. `served` describes the generation to
 * replace; NULL: there is none. A db_file gets the number of the replaced generation plus one. Because db_file has no
 * manifest, an empty file is refused if the served file had lines, and a file without a last LF is refused if the
 * served file had one. */
enum sorted_file_result generation_open(const struct generation_source *source,
    const struct generation_info *served, const atomic_bool *cancel, struct generation **out,
    char error[GENERATION_ERROR_TEXT]);
struct generation *generation_ref(struct generation *g);
/* Drops a reference and sets *g to NULL. The last drop unmaps the files, in the thread that makes it. */
void generation_unref(struct generation **g);

/* True if the caller's reference is the only one. */
bool generation_is_unshared(const struct generation *g);
/* True if an archive's current generation is this one, with the same content, and its mapped files are whole and unmodified. Always
 * false for a db_file. Reads only the manifest. */
bool generation_is_current(const struct generation *g, const struct generation_source *source);

struct generation_info generation_info(const struct generation *g);
char generation_separator(const struct generation *g);

/* False once a file of the generation was truncated; the error names the file. */
bool generation_is_whole(const struct generation *g, char error[GENERATION_ERROR_TEXT]);
/* False if a file was modified after generation_open; the error names the file. Makes one system call for each file. */
bool generation_is_untouched(const struct generation *g, char error[GENERATION_ERROR_TEXT]);

/* The lines of one shard. */
const struct sorted_text *generation_text(const struct generation *g, uint32_t shard);
/* The shard of a record, or GENERATION_NO_SHARD if the key is of no record of an archive with several shards. */
uint32_t generation_shard(const struct generation *g, struct bytes key);
/* Finds a record's line, with its LF unless the file ends without LF. False: no such record. */
bool generation_find(const struct generation *g, struct bytes key, struct bytes *line, uint32_t *shard);

/* A cursor has one part for each of the `n` shards that it reads: the span of lines still to be read. The parts with a
 * non-empty span come first and form a heap, ordered by their first line. The cursor holds no reference to the
 * generation. */
struct generation_part {
    uint32_t shard;
    struct sorted_span left;
    size_t head_end; /* of the line at left.begin */
};
struct generation_cursor {
    const struct generation *g;
    size_t n, live; /* number of all parts; number of parts with lines to read */
    struct generation_part *parts;
};
void generation_cursor_free(struct generation_cursor *c);

/* Sets *out to the records whose keys have this prefix, from the key `start` on. An empty `start` begins at the first record. */
void generation_prefix(
    const struct generation *g, struct bytes prefix, struct bytes start, struct generation_cursor *out);
/* Sets *out to the records with start <= key <= end. */
void generation_range(
    const struct generation *g, struct bytes start, struct bytes end, struct generation_cursor *out);

/* Bytes still to be read. */
uint64_t generation_cursor_bytes(const struct generation_cursor *c);
/* The only shard searched, or GENERATION_NO_SHARD for several. */
uint32_t generation_cursor_shard(const struct generation_cursor *c);
/* Limits the cursor to `max_records` records (0: no limit), all of which start within the first `max_bytes` bytes. The
 * cursor keeps at least one record, and all lines of its last key. Returns true if records are left out; *next is then
 * the key of the first omitted record. */
bool generation_cursor_cut(
    struct generation_cursor *c, uint64_t max_records, uint64_t max_bytes, struct bytes *next);
/* Sets *run to the next lines that are adjacent in one file, about `enough` bytes or a single longer line. False at the
 * end. */
bool generation_cursor_next(struct generation_cursor *c, size_t enough, struct bytes *run);

#endif
