/* manifest: what a generation of the archive says of itself, manifest.json, and which generation is in force.
 *
 * The compactor writes manifests; sortdb reads them to know its files, the aggregator to know which slices the
 * archive holds. docs/guide/archive.md has the layout and a manifest to look at.
 *
 * 1. A manifest that was parsed describes as many files as it has shards, file k named as manifest_file_name(k).
 * 2. What manifest_print wrote manifest_parse gives back; equal manifests print equal text.
 * 3. An unknown format is refused. Unknown members are ignored: a later version may add some.
 */
#ifndef MILLRACE_MANIFEST_H
#define MILLRACE_MANIFEST_H

#include "base/bytes.h"

#define MANIFEST_FORMAT 1
#define MANIFEST_SHARDS_MAX 4096
#define MANIFEST_ERROR_TEXT 512      /* room for a failure's text */
#define MANIFEST_DIRECTORY_DIGITS 12 /* of a generation's directory */
#define MANIFEST_NAME_TEXT 48        /* room for a directory's or a file's name */

struct manifest_file {
    char name[MANIFEST_NAME_TEXT];
    uint64_t records, bytes;
    uint64_t xxh3; /* XXH3, 64 bit, seed 0, of the file's bytes */
};

/* Where slice `through` ended in a stream. */
struct manifest_stream {
    char name[NAME_LEN_MAX + 1];
    char id[NAME_LEN_MAX + 1];
    uint64_t end;
};

struct manifest {
    uint64_t generation;
    uint64_t through; /* the last slice whose counts are in it; 0: none */
    int64_t made;     /* wall clock, seconds */
    char *counters;   /* canonical text; "" when no slice was merged yet */
    char *retired;    /* lines of counters that are in the files and in `counters` no more; "" for none */
    uint32_t shards;  /* 1.. */
    struct manifest_file *files; /* as many as shards */
    struct manifest_stream *streams;
    size_t n_streams;
};

enum manifest_result {
    MANIFEST_OK,
    MANIFEST_ABSENT, /* there is no such file, no `current` */
    MANIFEST_BAD,    /* not what a manifest is */
    MANIFEST_NEWER,  /* a format of a later version */
    MANIFEST_FAILED, /* the system refused: see the text */
};
const char *manifest_strerror(enum manifest_result r);

/* "000000000007" */
void manifest_directory_name(uint64_t generation, char out[MANIFEST_NAME_TEXT]);
/* "shard-0-of-4.csv" */
void manifest_file_name(uint32_t shard, uint32_t shards, char out[MANIFEST_NAME_TEXT]);
/* False when it is no generation's directory name: twelve digits, nothing else. */
bool manifest_directory_number(const char *name, uint64_t *generation);

/* *out is filled for MANIFEST_OK and freed with manifest_free; otherwise it is zeroed. */
enum manifest_result manifest_parse(struct bytes text, struct manifest *out, char error[MANIFEST_ERROR_TEXT]);
/* DIRECTORY/manifest.json; its generation must be what the directory's name says ("000000000007", or with ".tmp"
 * behind it while it is made). */
enum manifest_result manifest_read(
    const char *directory, struct manifest *out, char error[MANIFEST_ERROR_TEXT]);
void manifest_free(struct manifest *m);
/* A number for the bytes of all its files: what two archives have in common only when they hold the same. */
uint64_t manifest_content(const struct manifest *m);
/* Appends the text of manifest.json. */
void manifest_print(const struct manifest *m, struct buf *out);

/* The generation in force: what ARCHIVE/current names. MANIFEST_ABSENT when there is none. */
enum manifest_result manifest_current(
    const char *archive, uint64_t *generation, char error[MANIFEST_ERROR_TEXT]);
/* manifest_current, then the manifest of that generation. A generation that is removed between the two steps is
 * met again as the newer one that replaced it. */
enum manifest_result manifest_read_current(
    const char *archive, struct manifest *out, char error[MANIFEST_ERROR_TEXT]);

#endif
