/* storage: the thread that owns the open slice's files, so that counting and reading never wait for a disk.
 *
 * The thread runs one job at a time: storage_start passes it a job, storage_done returns the job with its result. In between
 * the owner must not change the job or its data; reading a batch is allowed.
 *
 * A seal consists of four jobs, so that the owner always has a reader of the slice. COMMIT with `seal` writes the last
 * batch and the seal. After the owner has renewed its reader, FOLD moves the log into the file and opens a reader of
 * the sealed slice. After the owner has closed its old reader, CLOSE closes the slice, which removes the log. BEGIN
 * creates the next slice.
 *
 * A clear consists of two jobs, because reads use the readers of deleted slices until the owner has taken the slices from
 * the list: CLEAR unlinks the files, and CLOSE_CLEARED closes the readers.
 */
#ifndef MILLRACE_STORAGE_H
#define MILLRACE_STORAGE_H

#include "counts/rejects.h"
#include "aggregator/sealed.h"
#include "aggregator/tally.h"
#include "counts/slice.h"
#include "counts/slice_reader.h"

enum storage_kind {
    STORAGE_COMMIT,
    STORAGE_MERGE,      /* a step of background merging */
    STORAGE_CHECKPOINT, /* moves the log into the file */
    STORAGE_FOLD,
    STORAGE_CLOSE,
    STORAGE_BEGIN,
    STORAGE_CLEAR,         /* deletes sealed slices that the archive includes */
    STORAGE_CLOSE_CLEARED, /* closes the readers of the deleted slices, which frees the space of the files */
};

struct storage_job {
    enum storage_kind kind;
    usec_t trusted; /* STORAGE_COMMIT and STORAGE_BEGIN: the trusted time, for the age of rejects */
    /* STORAGE_COMMIT: the rejects are written at rejects_at before the batch is committed. */
    const struct batch *batch;
    struct slice_batch commit; /* its `sources` are not set; the thread makes them from `batch` */
    uint64_t rejects_at;
    /* STORAGE_BEGIN */
    struct slice_config begin;
    /* STORAGE_CLEAR: the slices up to `through`. No slice may be added meanwhile. */
    const char *archive;
    const struct sealed *sealed;
    uint64_t through;
    /* STORAGE_CLOSE_CLEARED: the readers of the `removed` slices; the thread frees the array. */
    struct slice_reader **readers;
    /* The result. STORAGE_CLEAR sets SLICE_FOREIGN if the archive does not include the slices or cannot be read. */
    enum slice_result result;
    struct slice_written written;
    struct slice_reader *reader; /* STORAGE_FOLD and STORAGE_BEGIN: a new reader, which the owner frees */
    bool runs_changed, merge_is_due, merge_is_behind;
    unsigned log_pages;
    size_t removed; /* STORAGE_CLEAR: how many of the oldest slices were deleted */
    struct error error;
};

struct storage;

/* Returns SLICE_FULL or SLICE_FAILED, with "cannot WHAT PATH: " and the text of errno. */
enum slice_result storage_fail_errno(const char *what, const char *path, struct error *error);

/* The thread calls `notify` after each job. Returns NULL with errno if the thread cannot be started. */
struct storage_config {
    const struct counters *counters;
    const char *rejects_dir; /* must outlive the storage */
    struct rejects_limits rejects_limits;
    void (*notify)(void *arg);
    void *notify_arg;
};
struct storage *storage_new(const struct storage_config *config);
void storage_free(struct storage **s); /* waits for the current job */
/* Runs a STORAGE_BEGIN job in the calling thread, before the first storage_start. */
void storage_begin(struct storage *s, struct storage_job *job);
/* The open slice's state. Call it only while no job is running. */
const struct slice_state *storage_state(const struct storage *s);
void storage_start(struct storage *s, struct storage_job *job);
/* The completed job, or NULL. */
struct storage_job *storage_done(struct storage *s);

#endif
