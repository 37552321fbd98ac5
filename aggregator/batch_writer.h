/* batch_writer: the thread that commits batches to a slice, so that counting never waits for a disk.
 *
 * One job at a time: batch_writer_start hands it over, batch_writer_done takes it back. In between the owner
 * leaves what the job points to alone (reading a batch's rows is fine: nobody writes them). */
#ifndef MILLRACE_BATCH_WRITER_H
#define MILLRACE_BATCH_WRITER_H

#include "aggregator/rejects.h"
#include "aggregator/slice.h"

struct batch_writer;

struct batch_job {
    bool checkpoint; /* only that; nothing else is looked at */
    struct slice_batch batch;
    struct bytes rejects; /* written at rejects_at before the batch is committed */
    uint64_t rejects_at;
    /* Filled by the writer. */
    enum slice_result result;
    struct slice_written written;
    char error[SLICE_ERROR_TEXT];
};

/* Slice and rejects are used by the writer alone until it is freed. NULL when no thread can be had. */
struct batch_writer *batch_writer_new(
    struct slice *slice, struct rejects *rejects, void (*notify)(void *arg), void *notify_arg);
void batch_writer_free(struct batch_writer **w); /* waits for the job under way */
void batch_writer_start(struct batch_writer *w, struct batch_job *job);
/* Does the job at once, on the calling thread: for the last one of a slice. No other may be under way. */
void batch_writer_run(struct batch_writer *w, struct batch_job *job);
/* The job that was done since, or NULL. */
struct batch_job *batch_writer_done(struct batch_writer *w);

#endif
