/* storage: the thread that owns the open slice's files, so that counting and reading never wait for a disk.
 *
 * It takes one job at a time: storage_start hands a job over, storage_done takes it back with its result. In between the
 * owner leaves alone what the job points to; reading a batch is fine, since nothing changes it.
 *
 * Sealing takes four jobs, so that the owner always has a reader of the slice. COMMIT with `seal` writes the last batch and
 * the mark. When the owner has renewed its reader, FOLD moves the log into the file and opens a reader of the sealed slice.
 * When the owner has closed its old reader, CLOSE closes the slice, which removes the log. BEGIN makes the next slice.
 */
#ifndef MILLRACE_STORAGE_H
#define MILLRACE_STORAGE_H

#include "aggregator/rejects.h"
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
};

struct storage_job {
    enum storage_kind kind;
    /* STORAGE_COMMIT: the rejects are written at rejects_at before the batch is committed. */
    const struct batch *batch;
    struct slice_batch commit; /* without sources, which are the batch's */
    uint64_t rejects_at;
    /* STORAGE_BEGIN */
    struct slice_config begin;
    const char *rejects_path;
    /* The result. */
    enum slice_result result;
    struct slice_written written;
    struct slice_reader *reader; /* of STORAGE_FOLD and STORAGE_BEGIN; the owner's */
    bool runs_changed, merge_is_due, merge_is_behind;
    unsigned log_pages;
    char error[SLICE_ERROR_TEXT];
};

struct storage;

/* `notify` is called by the thread when a job is done. NULL when there can be no thread, with errno. */
struct storage *storage_new(const struct counters *counters, void (*notify)(void *arg), void *notify_arg);
void storage_free(struct storage **s); /* waits for the job under way */
/* Does a STORAGE_BEGIN at once, before the first start. */
void storage_begin(struct storage *s, struct storage_job *job);
/* The open slice's state; while no job is under way. */
const struct slice_state *storage_state(const struct storage *s);
void storage_start(struct storage *s, struct storage_job *job);
/* The job that was done since, or NULL. */
struct storage_job *storage_done(struct storage *s);

#endif
