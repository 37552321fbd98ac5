/* storage: the thread that owns the open slice's files, so that counting and reading never wait for a disk.
 *
 * The thread runs one job at a time. storage_start passes a job to the thread, and storage_done returns the job with
 * its result. Between these two calls the owner must not change the job or its data, but may read the batch.
 *
 * A seal consists of four jobs, so that the owner has a reader of the slice at all times:
 * - COMMIT with `seal` writes the last batch and the sealed state.
 * - FOLD, after the owner has renewed its reader, moves the log into the file and opens a reader of the sealed slice.
 *   If another process still reads an earlier commit, SQLite keeps the log, and the owner keeps its reader.
 * - CLOSE, after the owner has closed its old reader, closes the slice, which removes the log unless it is in use.
 * - BEGIN creates the next slice.
 *
 * A clear consists of two jobs, because reads use the readers of deleted slices until the owner removes the slices from
 * the list. CLEAR unlinks the files, and CLOSE_CLEARED closes the readers.
 */
#ifndef MILLRACE_STORAGE_H
#define MILLRACE_STORAGE_H

#include "aggregator/chain.h"
#include "counts/rejects.h"
#include "aggregator/sealed.h"
#include "aggregator/tally.h"
#include "counts/slice.h"
#include "counts/slice_reader.h"

enum storage_kind {
    STORAGE_COMMIT,
    STORAGE_MERGE,      /* performs a step of background merging */
    STORAGE_CHECKPOINT, /* moves the log into the file */
    STORAGE_FOLD,
    STORAGE_CLOSE,
    STORAGE_BEGIN,
    STORAGE_CLEAR,         /* deletes sealed slices that the archive includes */
    STORAGE_CLOSE_CLEARED, /* closes the readers of the deleted slices, which frees the files' space */
};

struct storage_job {
    enum storage_kind kind;
    usec_t trusted; /* STORAGE_COMMIT and STORAGE_BEGIN: the trusted time, for the age of rejects */
    /* The members of STORAGE_COMMIT. The rejects are written at rejects_at before the batch is committed. */
    const struct batch *batch;
    struct slice_batch commit; /* the thread makes `sources` from `batch` */
    uint64_t rejects_at;
    /* Member of STORAGE_BEGIN. */
    struct slice_config begin;
    /* The members of STORAGE_CLEAR, which deletes the slices up to `through`. No slice may be added during the job. */
    const char *archive;
    const struct sealed *sealed;
    uint64_t through;
    /* Member of STORAGE_CLOSE_CLEARED: the readers of the `removed` slices. The thread frees the array. */
    struct slice_reader **readers;
    /* The result of the job. STORAGE_CLEAR sets SLICE_FOREIGN if the archive does not include the slices or cannot be
     * read. */
    enum slice_result result;
    struct slice_written written;
    /* STORAGE_FOLD and STORAGE_BEGIN: a new reader, which the owner frees. STORAGE_FOLD sets NULL if the log remains. */
    struct slice_reader *reader;
    bool runs_changed, merge_is_due, merge_is_behind;
    unsigned log_pages;
    size_t removed; /* STORAGE_CLEAR: number of slices deleted, oldest first */
    struct error error;
};

struct storage;

/* Returns SLICE_FULL or SLICE_FAILED. Sets the error "cannot WHAT PATH: " with the text of errno. */
enum slice_result storage_fail_errno(const char *what, const char *path, struct error *error);

/* The thread calls `notify` after each job. storage_new returns NULL with errno if the thread cannot be started. */
struct storage_config {
    const struct counters *counters;
    const char *rejects_dir; /* must outlive the storage */
    /* directory of the archive, whose sums of values each COMMIT, BEGIN and CLEAR reads again; NULL: none */
    const char *archive;
    struct rejects_limits rejects_limits;
    void (*notify)(void *arg);
    void *notify_arg;
};
struct storage *storage_new(const struct storage_config *config);
void storage_free(struct storage **s); /* waits for the current job */
/* Runs a STORAGE_BEGIN job in the calling thread. Call storage_begin before the first storage_start. */
void storage_begin(struct storage *s, struct storage_job *job);
/* Returns the open slice's state. Call storage_state only while no job is running. */
const struct slice_state *storage_state(const struct storage *s);
/* Returns the archive as the latest job has read it. Call storage_archive only while no job is running. */
const struct chain_archive *storage_archive(const struct storage *s);
void storage_start(struct storage *s, struct storage_job *job);
/* Returns the completed job, or NULL if no job is complete. */
struct storage_job *storage_done(struct storage *s);

#endif
