/* slice_state: what a slice says of itself: its number, its counters, where it begins and ends, its runs. And how that
 * is stored in the slice's file (docs/formats/slices.md).
 *
 * 1. One checksum covers all of it, the runs' index checksums included. So every byte that decides an answer is verified,
 *    or the slice is refused by name.
 * 2. A file of another application, another number or another format is refused and left untouched.
 */
#ifndef MILLRACE_SLICE_STATE_H
#define MILLRACE_SLICE_STATE_H

#include "base/bytes.h"

#include <sqlite3.h>

#define SLICE_FORMAT 2
#define SLICE_ID_TEXT 33     /* a stream's id: 32 hex digits and NUL */
#define SLICE_NAME_TEXT 32   /* of slice_file_name */
#define SLICE_ERROR_TEXT 512 /* room for a failure's text */

enum slice_result {
    SLICE_OK,
    SLICE_FULL,      /* no room; nothing changed; heals by itself */
    SLICE_FAILED,    /* the file cannot be written or read */
    SLICE_DAMAGED,   /* its bytes are not those that were written */
    SLICE_FOREIGN,   /* no slice of ours, or another number than its name says */
    SLICE_UNSEALED,  /* a sealed one was asked for */
    SLICE_OLDER,     /* of a former format: to be converted */
    SLICE_NEWER,     /* written by a later version */
    SLICE_DIFFERENT, /* counted under other counters */
};
const char *slice_strerror(enum slice_result r);

/* "0000000042.db". The digits sort as the numbers do. */
void slice_file_name(uint64_t number, char out[SLICE_NAME_TEXT]);
/* False when it is no slice's file name. */
bool slice_file_number(const char *name, uint64_t *number);

/* Where a stream is counted up to. An id of "": nothing of the stream was seen yet. */
struct slice_cursor {
    char stream[NAME_LEN_MAX + 1];
    char id[SLICE_ID_TEXT];
    uint64_t offset;
};

struct slice_tally {
    uint64_t events, skipped, rejected;
};

struct slice_run {
    uint64_t id, level, counts, bytes, checksum; /* of its index */
};

struct slice_state {
    uint64_t number;
    int64_t started;           /* wall clock, seconds */
    struct slice_tally tally;  /* of this slice */
    struct slice_tally before; /* of all slices before it */
    uint64_t rejects_length;
    bool sealed;                 /* ended: nothing is added any more */
    char *counters;              /* the canonical text it was counted under */
    struct slice_cursor *begins; /* where it began, of the streams that were known then; by stream */
    size_t n_begins;
    struct slice_cursor *cursors; /* by stream */
    size_t n_cursors;
    struct slice_run *runs; /* by id */
    size_t n_runs;
};

void slice_state_free(struct slice_state *state);
/* A deep copy. */
struct slice_state slice_state_copy(const struct slice_state *state);
uint64_t slice_state_checksum(const struct slice_state *state);

/* Whether the database is a slice of this format. *is_new: it is empty. */
enum slice_result slice_state_check_format(
    sqlite3 *db, const char *path, bool *is_new, char error[SLICE_ERROR_TEXT]);
/* Reads and verifies the state, but not the runs' blocks. *state is filled for SLICE_OK. */
enum slice_result slice_state_read(
    sqlite3 *db, const char *path, struct slice_state *state, char error[SLICE_ERROR_TEXT]);
/* The same for a slice of the former format, which has no checksum and no runs. */
enum slice_result slice_state_read_former(
    sqlite3 *db, const char *path, struct slice_state *state, char error[SLICE_ERROR_TEXT]);
/* The slice's number must be that of its file's name. */
enum slice_result slice_state_check_number(
    const struct slice_state *state, const char *path, uint64_t number, char error[SLICE_ERROR_TEXT]);

#endif
