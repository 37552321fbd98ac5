/* generation: the files that sortdb serves at one moment: all shards of an archive's generation, or one file.
 *
 * 1. A generation is opened and checked whole, and never changes. A reload opens another generation.
 * 2. A generation is reference counted, atomically. generation_open returns the first reference; an answer holds
 *    one until its last byte was sent.
 * 3. Records come in the order of whole lines (records.h), across all shards.
 * 4. Bytes read from a generation are valid only if generation_is_whole of their shard returns true afterwards.
 * 5. A scrub slowly reads the files again. After damage, generation_is_whole and generation_is_untouched are false
 *    for the file.
 * 6. Several threads may search one generation at once. A cursor belongs to one thread. */
#ifndef MILLRACE_GENERATION_H
#define MILLRACE_GENERATION_H

#include "archive/sorted_file.h"
#include "counts/coarse.h"

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
    int64_t until;    /* the manifest's; 0 for one file */
    int64_t modified; /* time of the last modification of a file, in Unix seconds */
    uint32_t shards;
    bool is_cut; /* a file's last line has no LF */
};

/* Opens the archive's current generation, or db_file, and checks every line. `served` describes the generation to
 * replace; NULL: there is none. A db_file gets the number of the replaced generation plus one. After a db_file with a
 * last LF, a reload refuses a db_file that is empty or has no last LF. */
enum sorted_file_result generation_open(const struct generation_source *source,
    const struct generation_info *served, const atomic_bool *cancel, struct generation **out,
    struct error *error);
struct generation *generation_ref(struct generation *g);
/* Drops a reference and sets *g to NULL. The last drop unmaps the files, in the thread that makes it. */
void generation_unref(struct generation **g);

/* True if the caller's reference is the only one. */
bool generation_is_unshared(const struct generation *g);
/* True if this is the archive's current generation, with the same content and untouched files. Reads only the
 * manifest. False for a db_file. */
bool generation_is_current(const struct generation *g, const struct generation_source *source);

struct generation_info generation_info(const struct generation *g);
/* What an archive has of a counter. */
struct generation_counter {
    int64_t since;       /* the counter counts since then (counts/counted_since.h); 0: from the beginning */
    int64_t not_counted; /* when the archive was made without the counter; 0: the archive has the counter */
    struct coarse_counter coarse; /* counts that were imported for whole days or months */
};
struct generation_counter generation_counter(const struct generation *g, struct bytes ns);
char generation_separator(const struct generation *g);
/* True for an archive, whose records are lists of counts and lookups. */
bool generation_is_archive(const struct generation *g);

/* False once the records of the shard were truncated, or with GENERATION_NO_SHARD any file of the generation; the error
 * names the file and may be NULL. */
bool generation_is_whole(const struct generation *g, uint32_t shard, struct error *error);
/* False if a file was modified after generation_open; the error names the file and may be NULL. Makes one system call for each file. */
bool generation_is_untouched(const struct generation *g, struct error *error);

/* From now on, a page of records that is not in memory is read alone: a search waits for no others. A reader of many pages then asks for
 * them ahead, as archive_read does. */
void generation_expect_searches(struct generation *g);

/* Reads about `bytes` more of the files again. For one thread, which keeps a reference meanwhile. */
void generation_scrub(struct generation *g, size_t bytes);

/* The lines of one shard. */
const struct sorted_text *generation_text(const struct generation *g, uint32_t shard);
/* The shard of a record, or GENERATION_NO_SHARD if the key is of no record of an archive with several shards. */
uint32_t generation_shard(const struct generation *g, struct bytes key);
/* Finds a record's line, with its LF unless the file ends without LF. False: no such record. */
bool generation_find(const struct generation *g, struct bytes key, struct bytes *line, uint32_t *shard);

/* A cursor has a part (the span of lines still to be read) for each of its `n` shards. The parts that are not empty
 * come first and form a heap by their first line. It holds no reference to the generation. */
struct generation_part {
    uint32_t shard;
    struct sorted_span left;
    size_t head_end; /* of the line at left.begin */
};
struct generation_cursor {
    const struct generation *g;
    struct sorted_file *const *files; /* of the records, or of the texts */
    size_t n, live;                   /* number of all parts; number of parts with lines to read */
    struct generation_part *parts;
};
void generation_cursor_free(struct generation_cursor *c);

/* Sets *out to the records whose keys have this prefix, from the key `start` on. An empty `start` begins at the first record. */
void generation_prefix(
    const struct generation *g, struct bytes prefix, struct bytes start, struct generation_cursor *out);
/* The same over the files of texts (docs/formats/records.md): the keys are texts, the values hashes. False: the
 * generation has none, because it is one file. */
bool generation_texts(
    const struct generation *g, struct bytes prefix, struct bytes start, struct generation_cursor *out);
/* Sets *out to the records with start <= key <= end. */
void generation_range(
    const struct generation *g, struct bytes start, struct bytes end, struct generation_cursor *out);

/* Bytes still to be read. */
uint64_t generation_cursor_bytes(const struct generation_cursor *c);
/* The only shard searched, or GENERATION_NO_SHARD for several. */
uint32_t generation_cursor_shard(const struct generation_cursor *c);
/* How an answer continues after a cut. */
struct generation_cut {
    uint64_t records, bytes; /* in the answer before; set by the caller */
    struct bytes next;       /* the key of the first record left out, or of `part` */
    struct bytes
        part; /* the beginning of a long record that is cut inside, without LF; empty: no record is */
    struct bytes name; /* of that record's first count left out */
};
/* Limits the answer to `max_records` records (0: unlimited) that start within `max_bytes`, but at least one record
 * and all lines of its last key. In an archive, a record of more than RECORD_WHOLE_MAX bytes is cut inside: `part`
 * then follows the lines of the cursor. True if something is left out. */
bool generation_cursor_cut(
    struct generation_cursor *c, uint64_t max_records, uint64_t max_bytes, struct generation_cut *cut);
/* Cuts a record's line from `from` on (0, or a place: sorted_text.h) to `max_bytes` bytes in the same way. False:
 * it fits. */
bool generation_cut_line(const struct generation *g, struct bytes line, size_t from, uint64_t max_bytes,
    struct generation_cut *cut);
/* Sets *run to the next lines that are adjacent in one file, about `enough` bytes or a single longer line. False at the
 * end. */
bool generation_cursor_next(struct generation_cursor *c, size_t enough, struct bytes *run);
/* Call this if a line of the cursor is not a record, although opening checked it: marks the file as damaged (invariant 5). */
void generation_cursor_refuse(const struct generation_cursor *c, struct bytes line);

#endif
