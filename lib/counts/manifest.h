/* manifest: reads and writes manifest.json, which describes a generation of the archive, and finds the current
 * generation.
 *
 * The compactor writes manifests. sortdb finds its files with a manifest. The aggregator reads in the manifest which
 * slices the archive includes. docs/formats/archive.md describes the layout and shows a manifest.
 *
 * 1. A parsed manifest describes two files for each shard: a file of records and a file of texts. A shard with sets has
 *    two more files. The files of shard k have the names manifest_file_name(KIND, k).
 * 2. manifest_parse reads every text that manifest_print writes. manifest_print writes the same text for equal
 *    manifests.
 * 3. An unknown format version is refused. Unknown members are ignored.
 */
#ifndef MILLRACE_MANIFEST_H
#define MILLRACE_MANIFEST_H

#include "base/bytes.h"
#include "base/error.h"
#include "counts/coarse.h"
#include "counts/counted_since.h"
#include "counts/value_sums.h"
#include "counts/records.h"

#define MANIFEST_FORMAT 5
/* The remedy if slices after the current generation's last slice were cleared. */
#define MANIFEST_BEHIND_REMEDY                                                                               \
    "make `current` a link to the newest generation, or restore a newer backup of the archive, then reload " \
    "(SIGHUP to `millrace up`); see `millrace help compaction`, \"Return to an older generation\""
#define MANIFEST_SHARDS_MAX 4096
#define MANIFEST_BYTES_MAX ((size_t)16 << 20) /* limit for manifest.json; a longer file is not read */
#define MANIFEST_DIRECTORY_DIGITS 12          /* in the name of a generation's directory */
#define MANIFEST_NAME_TEXT 48                 /* buffer for a directory's or a file's name */
#define MANIFEST_CHANGE_TEXT 16               /* buffer for the name of a change */
#define MANIFEST_ID_TEXT 58                   /* buffer for a stream's id, as in a slice (slice_state.h) */
#define MANIFEST_IMPORT_NAME 256              /* buffer for the name of an imported file */

/* MANIFEST_SETS: sets of more than three members (sets/sets_file.h); MANIFEST_SET_TEXTS: the texts of all sets. */
enum manifest_kind { MANIFEST_RECORDS, MANIFEST_TEXTS, MANIFEST_SET_TEXTS, MANIFEST_SETS };
#define MANIFEST_KINDS 4

struct manifest_file {
    char name[MANIFEST_NAME_TEXT];
    uint64_t records, bytes;
    uint64_t xxh3; /* XXH3 (64 bits, seed 0) of the file's bytes */
};

/* The position in a stream at which slice `through` ended. */
struct manifest_stream {
    char name[NAME_LEN_MAX + 1];
    char id[MANIFEST_ID_TEXT];
    uint64_t end;
};

/* A file of records that an import added to the archive. */
struct manifest_import {
    /* name of the file, without directories; several imports may have the same name */
    char name[MANIFEST_IMPORT_NAME];
    uint64_t records, bytes, xxh3;
};

/* The latest recount whose counts replaced the counts of the archive. The recount has counted, skipped or rejected
 * again all lines before `end` of each stream and file, including lines that were rejected before. A file has the name
 * ".CONTENT" (rejects.h). */
struct manifest_recount {
    uint64_t content;                /* manifest_content of the recounted archive */
    int64_t made;                    /* `made` of the recounted archive; 0: the archive was never replaced */
    struct manifest_stream *streams; /* without ids */
    size_t n_streams;
};

struct manifest {
    uint64_t generation;
    uint64_t through; /* the last slice that the archive includes; 0: none */
    /* slices up to `through` contain each event accepted before this time; Unix seconds, 0: unknown */
    int64_t until;
    int64_t made;    /* wall clock, seconds */
    char *counters;  /* canonical text; "" before the first slice is merged */
    char *retired;   /* lines of counters that the files contain, but `counters` does not; may be "" */
    uint32_t shards; /* 1.. */
    struct manifest_file *files; /* as many as shards */
    struct manifest_file *texts; /* as many as shards */
    /* as many as shards; both files of a shard without sets have empty names (manifest_has_sets) */
    struct manifest_file *set_texts, *sets;
    /* time before which the archive has no subtotals by hour, only by day; 0: it has all hours */
    int64_t hours_from;
    /* time from which counts are of quarter hours; 0: none */
    int64_t quarters_since;
    int64_t newest_hour; /* the latest hour before quarters_since that may have counts; 0: none */
    /* change that made the generation, such as "import"; "": only a merge of slices */
    char change[MANIFEST_CHANGE_TEXT];
    struct manifest_stream *streams;
    size_t n_streams;
    struct manifest_import *imports;
    size_t n_imports;
    struct manifest_recount recounted;
    struct counted_since since;
    struct value_sums sums; /* of the totals with a value, and of the imported counts of other totals */
    struct coarse coarse;   /* counts that were imported for whole days or months */
};

enum manifest_result {
    MANIFEST_OK,
    MANIFEST_ABSENT,  /* the file or `current` does not exist */
    MANIFEST_BAD,     /* not a valid manifest */
    MANIFEST_VERSION, /* unknown format version */
    MANIFEST_FAILED,  /* a system call failed: see the error text */
};

/* "000000000007" */
void manifest_directory_name(uint64_t generation, char out[MANIFEST_NAME_TEXT]);
/* "shard-0-of-4.csv", "texts-0-of-4.csv", "sets-0-of-4.csv" or "shard-0-of-4.sets" */
void manifest_file_name(
    enum manifest_kind kind, uint32_t shard, uint32_t shards, char out[MANIFEST_NAME_TEXT]);
/* Parses the name of a generation's directory. Returns false unless the name has exactly twelve digits. */
bool manifest_directory_number(const char *name, uint64_t *generation);

/* With MANIFEST_OK, the caller frees *out with manifest_free; otherwise *out is zeroed. In all functions of this file,
 * `error` may be NULL. */
enum manifest_result manifest_parse(struct bytes text, struct manifest *out, struct error *error);
/* Reads DIRECTORY/manifest.json. The directory's name must be the manifest's generation ("000000000007"), with the
 * suffix ".tmp" until the generation is complete. */
enum manifest_result manifest_read(const char *directory, struct manifest *out, struct error *error);
void manifest_free(struct manifest *m);
/* Sets the number of shards, and allocates the files of each kind. */
void manifest_set_shards(struct manifest *m, uint32_t shards);
static inline bool manifest_has_sets(const struct manifest *m, uint32_t shard)
{
    return m->set_texts && m->set_texts[shard].name[0] != '\0';
}
/* The files of a kind, as many as shards, or NULL. A file with an empty name does not exist. */
struct manifest_file *manifest_files(const struct manifest *m, enum manifest_kind kind);
/* Returns the next existing file of any kind, or NULL after the last. Begin with *at = 0. */
const struct manifest_file *manifest_next_file(const struct manifest *m, size_t *at);
/* True if a subtotal's record of this period has counts that no shorter period's record has. Otherwise the record is a
 * rollup, or the generation has no such record. */
bool manifest_is_counted(const struct manifest *m, enum period_unit unit, int64_t start);
/* A checksum (64 bits) of all files of records and sets, which identifies the content of a generation. */
uint64_t manifest_content(const struct manifest *m);
/* A checksum of the names and ids of the streams, which identifies the pipeline; 0: no streams. */
uint64_t manifest_pipeline(const struct manifest *m);
/* Appends the text of manifest.json. */
void manifest_print(const struct manifest *m, struct buf *out);

/* Reads the link ARCHIVE/current. MANIFEST_ABSENT: the archive has no current generation. */
enum manifest_result manifest_current(const char *archive, uint64_t *generation, struct error *error);
/* Reads the manifest of the current generation. If the compactor removes that generation during the read,
 * manifest_read_current reads the new current generation. */
enum manifest_result manifest_read_current(const char *archive, struct manifest *out, struct error *error);

#endif
