/* slice: one SQLite file that holds the counts of a piece of each stream, [Xn, Xn+1), and nothing else.
 * docs/formats/slices.md has the schema and the recovery.
 *
 * A slice is written by one connection, a batch of rows at a time, and read by others (slice_snapshot.h).
 * What a batch changes, with the cursors up to which it counted, is one transaction (WAL, synchronous=FULL).
 *
 * Invariants
 * 1. After any crash the rows are exactly those of the lines below the cursors: no line is counted twice, and
 *    none below its cursor is missing.
 * 2. rejects_length is never more than what is synced of the rejects file (the caller syncs first).
 * 3. A batch that was refused (SLICE_FULL) left nothing behind and may be committed again as it is.
 * 4. A file of another application, a newer format or another slice's number is refused and left untouched. One
 *    counted under other counters is refused too, with what differs: its rows mean something else.
 *
 * Blocking; one thread at a time. Text about a failure goes to the caller's buffer.
 */
#ifndef MILLRACE_SLICE_H
#define MILLRACE_SLICE_H

#include "aggregator/count_map.h"

#define SLICE_FORMAT 1
#define SLICE_ID_TEXT 33     /* a stream's id: 32 hex digits and NUL */
#define SLICE_NAME_TEXT 32   /* of slice_file_name */
#define SLICE_ERROR_TEXT 512 /* room for a failure's text */

enum slice_result {
    SLICE_OK,
    SLICE_FULL,      /* no room; nothing changed; heals by itself */
    SLICE_FAILED,    /* the file cannot be written, or is damaged: do not go on writing */
    SLICE_FOREIGN,   /* no slice of ours, or another number than its name says */
    SLICE_NEWER,     /* written by a later version */
    SLICE_DIFFERENT, /* counted under other counters */
};
const char *slice_strerror(enum slice_result r);

/* Where a stream is counted up to. An id of "" means that nothing of the stream was seen yet. */
struct slice_cursor {
    char stream[NAME_LEN_MAX + 1];
    char id[SLICE_ID_TEXT];
    uint64_t offset;
};

struct slice_tally {
    uint64_t events, skipped, rejected;
};

/* What a slice says of itself. */
struct slice_state {
    uint64_t number;
    int64_t started;           /* wall clock, seconds */
    struct slice_tally tally;  /* of this slice */
    struct slice_tally before; /* of all slices before it */
    uint64_t rejects_length;
    bool sealed;                 /* ended: nothing is added any more */
    char *counters;              /* the canonical text it was counted under */
    struct slice_cursor *begins; /* where it began, of the streams that were known then */
    size_t n_begins;
    struct slice_cursor *cursors;
    size_t n_cursors;
};

struct slice_config {
    const char *path;
    uint64_t number;
    const char *counters_text; /* canonical (counters.h) */
    /* Of a slice that is made now; of one that is there, the file knows. */
    int64_t started;
    struct slice_tally before;
    const struct slice_cursor *cursors;
    size_t n_cursors;
    unsigned max_pages; /* 0: no bound but the disk */
};

struct slice;

/* "0000000042.db". The digits sort as the numbers do. */
void slice_file_name(uint64_t number, char out[SLICE_NAME_TEXT]);
/* False when it is no slice's file name. */
bool slice_file_number(const char *name, uint64_t *number);

/* Opens the slice, or makes it when there is no file or one whose making was interrupted. *state is filled for
 * SLICE_OK and freed with slice_state_free. */
enum slice_result slice_open(const struct slice_config *config, struct slice **out, struct slice_state *state,
    char error[SLICE_ERROR_TEXT]);
void slice_state_free(struct slice_state *state);
void slice_close(struct slice **s);

/* Everything that one transaction changes. Counts are added to what is there; the rest replaces it. */
struct slice_batch {
    const struct count_map *rows;
    const struct slice_cursor *cursors;
    size_t n_cursors;
    struct slice_tally tally;
    uint64_t rejects_length;
    bool seal; /* the slice ends with this */
};
struct slice_written {
    uint64_t rows;
    uint64_t collisions; /* lookups that met another text under their hash */
    char collision[64];  /* the key of the last one */
    unsigned wal_pages;  /* in the log, not yet in the database file */
};
enum slice_result slice_commit(struct slice *s, const struct slice_batch *batch,
    struct slice_written *written, char error[SLICE_ERROR_TEXT]);

/* What a slice says of itself, open or sealed, whatever its counters. state->number is 0 when there is no file, or
 * only the beginning of one. *state is filled for SLICE_OK. What it says is durable then, also where a process was killed in
 * the middle of a commit: nobody else may have it open, and so SQLite folds the log in, synced, when it is closed. */
enum slice_result slice_look(
    const char *path, uint64_t number, struct slice_state *state, char error[SLICE_ERROR_TEXT]);
/* Folds a sealed slice's log into its file, for good: afterwards it may be opened immutable. Nobody else may have it
 * open for writing. *state is filled for SLICE_OK. Again: nothing changes. */
enum slice_result slice_settle(
    const char *path, uint64_t number, struct slice_state *state, char error[SLICE_ERROR_TEXT]);

/* Moves what is in the log into the database file, as far as snapshots allow. The log starts again at its
 * beginning when every snapshot has been renewed after this. */
enum slice_result slice_checkpoint(struct slice *s, char error[SLICE_ERROR_TEXT]);

#endif
