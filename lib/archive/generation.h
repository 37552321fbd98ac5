/* generation: the files that sortdb serves at one moment, which are all shards of an archive's generation, or one file.
 *
 * 1. A generation is opened and checked whole, and never changes. A reload opens another generation.
 * 2. A generation is reference counted, atomically. generation_open returns the first reference; an answer holds a
 *    reference until its last byte is sent.
 * 3. Records come in the order of whole lines (records.h), across all shards.
 * 4. Bytes read from a generation are valid only if generation_is_whole of their shard returns true afterwards. Members
 *    of sets also need generation_is_untouched.
 * 5. A set of the archive is verified at its first use. The texts of sets are records of their shard.
 * 6. A scrub slowly reads the files again. If the scrub finds damage, generation_is_whole and generation_is_untouched
 *    return false for the damaged file. A damaged set makes only generation_has_sound_sets return false; other sets and
 *    records stay usable, and opening the generation again does not help.
 * 7. Several threads may search one generation at once. A cursor belongs to one thread. */
#ifndef MILLRACE_GENERATION_H
#define MILLRACE_GENERATION_H

#include "archive/sorted_file.h"
#include "counts/coarse.h"
#include "sets/sets_file.h"

#define GENERATION_NO_SHARD UINT32_MAX

struct generation;

struct generation_source {
    const char *archive; /* a directory (docs/formats/archive.md), or NULL */
    const char *db_file; /* a single file, if archive is NULL */
    char separator;      /* between key and value in db_file; an archive always uses RECORD_SEPARATOR */
    bool lock_memory;
};

struct generation_info {
    uint64_t number, through, records, bytes;
    uint64_t content;       /* manifest_content of the archive; 0 for one file */
    uint64_t pipeline;      /* manifest_pipeline of the archive; 0: not known, or one file */
    int64_t until;          /* `until` of the manifest; 0 for one file */
    int64_t quarters_since; /* as in the manifest; 0: no quarter hours, or one file */
    int64_t modified;       /* time of the latest modification of any file, in Unix seconds */
    uint32_t shards;
    bool is_cut; /* the last line of a file has no LF */
};

/* Opens the archive's current generation, or db_file, and checks every line. `served` describes the generation to
 * replace, or is NULL. A db_file gets the number of the replaced generation plus one. If the replaced db_file ends
 * with LF, generation_open refuses a db_file that is empty or does not end with LF. */
enum sorted_file_result generation_open(const struct generation_source *source,
    const struct generation_info *served, const atomic_bool *cancel, struct generation **out,
    struct error *error);
struct generation *generation_ref(struct generation *g);
/* Drops a reference and sets *g to NULL. The thread that drops the last reference unmaps the files. */
void generation_unref(struct generation **g);

/* Returns true if the caller's reference is the only reference. */
bool generation_is_unshared(const struct generation *g);
/* Returns true if `g` is the archive's current generation, with the same content and untouched files. Reads only the
 * manifest. Returns false for a db_file. */
bool generation_is_current(const struct generation *g, const struct generation_source *source);

/* Returns the remedy for an error of generation_open or of a check. */
const char *archive_remedy(const char *error);
/* Like archive_remedy, but for a daemon that ends: without the reload. */
const char *archive_repair(const char *error);

struct generation_info generation_info(const struct generation *g);
/* The period that an archive covers for a counter. */
struct generation_counter {
    int64_t since; /* the time from which the counter counts (counts/counted_since.h); 0: the beginning */
    int64_t not_counted; /* when the archive was made without the counter; 0: the archive has the counter */
    struct coarse_counter coarse; /* counts that were imported for whole days or months */
};
struct generation_counter generation_counter(const struct generation *g, struct bytes ns);
char generation_separator(const struct generation *g);
/* True for an archive, whose records are lists of counts and lookups. */
bool generation_is_archive(const struct generation *g);

/* Returns false if the shard's file of records, or a file of its sets, was truncated, or if the archive's file of records,
 * or of the texts of sets, was modified after generation_open. With GENERATION_NO_SHARD, checks all shards and texts.
 * The error names the file; `error` may be NULL. Makes one system call for each file of an archive. */
bool generation_is_whole(const struct generation *g, uint32_t shard, struct error *error);
/* Returns false if a file was modified after generation_open. The error names the file; `error` may be NULL. Makes
 * one system call for each file. */
bool generation_is_untouched(const struct generation *g, struct error *error);

/* Returns false if a read or the scrub has found a damaged set. The error names the file of its text. */
bool generation_has_sound_sets(const struct generation *g, struct error *error);

/* Disables the kernel's read-ahead for pages of records, so that a search waits only for the pages that it reads. A
 * reader of many pages should then request pages ahead of use, as archive_read does. */
void generation_expect_searches(struct generation *g);

/* Continues the scrub by about `bytes` bytes. Only one thread may call generation_scrub, and must hold a reference
 * during the call. */
void generation_scrub(struct generation *g, size_t bytes);

/* Returns the lines of a shard, without sets. */
const struct sorted_text *generation_text(const struct generation *g, uint32_t shard);
/* Returns the texts of the sets of a shard. NULL: the shard has no sets. */
const struct sorted_text *generation_set_text(const struct generation *g, uint32_t shard);
/* Opens the set of a key whose text is a size. The error names a damaged set; other sets and records stay usable. The set
 * is valid only if generation_is_whole of the shard returns true afterwards. */
int generation_set(const struct generation *g, uint32_t shard, struct bytes key, struct set_opened *out,
    struct error *error);
/* The shard of the record with this key. GENERATION_NO_SHARD if the archive has several shards and the key is not
 * valid for a record. */
uint32_t generation_shard(const struct generation *g, struct bytes key);
/* Finds a record's line, with its LF unless the file ends without LF. Returns false if there is no such record. */
bool generation_find(const struct generation *g, struct bytes key, struct bytes *line, uint32_t *shard);

/* A cursor has a part (the span of lines still to be read) for each file of its shards. Parts that are not empty come
 * first and form a heap by their first line. A cursor holds no reference to the generation. */
struct generation_part {
    uint32_t file; /* index in `files` */
    struct sorted_span left;
    size_t head_end; /* end of the line at left.begin */
};
struct generation_cursor {
    const struct generation *g;
    struct sorted_file *const *files; /* the files of records and of the texts of sets, or of texts */
    size_t n, live;                   /* number of all parts; number of parts with lines to read */
    struct generation_part *parts;
};
void generation_cursor_free(struct generation_cursor *c);

/* Sets *out to the records whose keys begin with `prefix`, from the key `start` on. An empty `start` begins at the
 * first record. */
void generation_prefix(
    const struct generation *g, struct bytes prefix, struct bytes start, struct generation_cursor *out);
/* Like generation_prefix, but searches the `texts` files of the manifest (docs/formats/records.md). The keys of these
 * files are texts, and the values are hashes. Returns false if the generation is one file, which has no texts. */
bool generation_texts(
    const struct generation *g, struct bytes prefix, struct bytes start, struct generation_cursor *out);
/* Sets *out to the records with start <= key <= end. */
void generation_range(
    const struct generation *g, struct bytes start, struct bytes end, struct generation_cursor *out);

/* The number of bytes still to be read. */
uint64_t generation_cursor_bytes(const struct generation_cursor *c);
/* The only shard that the cursor searches, or GENERATION_NO_SHARD for several shards. */
uint32_t generation_cursor_shard(const struct generation_cursor *c);
/* The position at which an answer is cut, and at which the next answer continues. */
struct generation_cut {
    uint64_t records,
        bytes;         /* records and bytes already in the answer before this cursor; set by the caller */
    struct bytes next; /* the key of the first excluded record, or of `part` */
    struct bytes part; /* the first part of a long record that is cut inside, without LF; or empty */
    struct bytes name; /* the name of the first count excluded from the record of `part` */
};
/* Limits the answer to `max_records` records (0: unlimited) that start within `max_bytes`, but at least one record
 * and all lines of its last key. In an archive, a record of more than RECORD_WHOLE_MAX bytes is cut inside; the
 * caller then sends `part` after the cursor's lines. Returns true if records or counts are excluded. */
bool generation_cursor_cut(
    struct generation_cursor *c, uint64_t max_records, uint64_t max_bytes, struct generation_cut *cut);
/* Cuts a record's line to `max_bytes` bytes, counted from `from` (0, or a place in the line: sorted_text.h). Returns
 * false if the line fits. */
bool generation_cut_line(const struct generation *g, struct bytes line, size_t from, uint64_t max_bytes,
    struct generation_cut *cut);
/* Sets *run to the next lines that are adjacent in one file: about `enough` bytes, or a single longer line. Returns
 * false at the end. */
bool generation_cursor_next(struct generation_cursor *c, size_t enough, struct bytes *run);
/* Marks the file as damaged (invariant 6). Call generation_cursor_refuse if `line` is not a record, although
 * generation_open has checked the file. */
void generation_cursor_refuse(const struct generation_cursor *c, struct bytes line);

#endif
