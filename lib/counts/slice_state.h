/* slice_state: a slice's metadata: number, counters, begin and end in each stream, and runs. The functions read the
 * metadata from the slice's file. docs/formats/slices.md has the format.
 *
 * 1. One checksum covers the whole state, including the checksums of the runs' indexes. Therefore every byte that
 *    affects an answer is verified. If a checksum does not match, the error names the slice.
 * 2. A file of another application, another number or another format is refused and left untouched.
 */
#ifndef MILLRACE_SLICE_STATE_H
#define MILLRACE_SLICE_STATE_H

#include "base/bytes.h"
#include "base/error.h"
#include "counts/value_sums.h"

#include <sqlite3.h>

#define SLICE_FORMAT 5
#define SLICE_SUM_KEY "sum " /* in `meta`, followed by the namespace of a total with a value */
#define SLICE_ID_TEXT 58     /* STREAM or STREAM.OPENING: 32 and 24 hex digits */

enum slice_result {
    SLICE_OK,
    SLICE_FULL,      /* the disk is full and the slice is unchanged; retry later */
    SLICE_FAILED,    /* the file cannot be written or read */
    SLICE_DAMAGED,   /* a checksum or the structure is wrong */
    SLICE_FOREIGN,   /* the file is not a slice, or its number does not match its name */
    SLICE_UNSEALED,  /* the slice is not sealed, but must be */
    SLICE_VERSION,   /* unknown format version */
    SLICE_DIFFERENT, /* the slice has other counters */
};
/* Copies the error of a failed source or merge (count_merge.h). Returns SLICE_FAILED or SLICE_DAMAGED. */
enum slice_result slice_counts_failed(const struct error *from, struct error *error);

/* A cursor: the position up to which a stream is counted. The id is "" until the stream is first read. */
struct slice_cursor {
    char stream[NAME_LEN_MAX + 1];
    char id[SLICE_ID_TEXT];
    uint64_t offset;
    /* complete until: each event accepted before this time is below `offset`; Unix microseconds, 0: unknown */
    int64_t until;
};

/* Sorts cursors by the names of their streams. */
void slice_cursors_sort(struct slice_cursor *cursors, size_t n);
/* Finds the cursor of a stream among sorted cursors. Returns NULL if the stream has no cursor. */
struct slice_cursor *slice_cursors_find(const struct slice_cursor *cursors, size_t n, const char *stream);

struct slice_tally {
    uint64_t events, skipped, rejected;
};

#define SLICE_RUN_MAX (UINT32_MAX / 2 - 1) /* largest run number for which SLICE_BLOCK_ID is positive */
#define SLICE_LEVEL_MAX 16                 /* runs of this level are never merged */

struct slice_run {
    uint64_t id, level, counts, bytes, checksum; /* `checksum` is that of the run's index */
};

struct slice_state {
    uint64_t number;
    int64_t started; /* wall clock, seconds */
    struct slice_tally tally;
    struct slice_tally before; /* tally of all earlier slices */
    uint64_t rejects_length;
    int64_t quarters_since;      /* counts from this time on are of quarter hours; 0: none */
    int64_t newest_hour;         /* the latest hour before quarters_since that has counts; 0: none */
    bool sealed;                 /* true: the slice is complete and never changes */
    char *counters;              /* canonical text of the counters (counters.h) */
    struct value_sums sums;      /* of the slice's counts, for each total with a value in `counters` */
    struct slice_cursor *begins; /* positions at which the slice begins in each stream; sorted by stream */
    size_t n_begins;
    struct slice_cursor *cursors; /* sorted by stream */
    size_t n_cursors;
    struct slice_run *runs;
    size_t n_runs;
};

void slice_state_free(struct slice_state *state);
struct slice_state slice_state_copy(const struct slice_state *state);
uint64_t slice_state_checksum(const struct slice_state *state);

/* Checks that the database is a slice of this format. Sets *is_new if the database is empty. */
enum slice_result slice_state_check_format(sqlite3 *db, const char *path, bool *is_new, struct error *error);
/* Reads the state and its stored checksum, without verifying them. */
enum slice_result slice_state_load(
    sqlite3 *db, struct slice_state *state, uint64_t *checksum, struct error *error);
/* Reads and verifies the state, but not the runs' blocks. With SLICE_OK, *state is set. */
enum slice_result slice_state_read(
    sqlite3 *db, const char *path, struct slice_state *state, struct error *error);
/* Checks that the slice's number matches its file name. */
enum slice_result slice_state_check_number(
    const struct slice_state *state, const char *path, uint64_t number, struct error *error);

#endif
