/* journal_job: work for the reader thread. The owner submits a job, the reader thread runs it, and journal_set_poll delivers
 * its result. So every callback runs in the owner's thread, in the order of the jobs.
 *
 * A long job ends after a step (`again`) and is submitted once more, so that other jobs get their turn. */
#ifndef MILLRACE_JOURNAL_JOB_H
#define MILLRACE_JOURNAL_JOB_H

#include "journal/journal_internal.h"

struct journal_reader;
struct journal_seek;

/* The result of a read of spans (journal_sendfile.c). */
struct span_read {
    struct journal_span_request how;
    struct journal_span *spans;
    size_t n, cap;
    uint64_t bytes, stamp;
    int fd; /* -1: none */
};

#define JOB_ENTRIES_MAX 4
struct job {
    struct job *next;
    struct journal *journal;
    void (*run)(struct job *job);     /* reader thread; NULL: nothing to do */
    void (*deliver)(struct job *job); /* owner; the job is freed afterwards */
    struct journal_reader *reader; /* owner only, as `seek`; NULL: closed meanwhile, or another kind of job */
    struct journal_seek *seek;
    struct segment *segment; /* held by a reference; of an unlink: to be freed */
    struct cursor *cursor;
    uint64_t offset, limit;
    size_t max_bytes;
    struct buf out;
    bool frame_starts;
    bool again;        /* a step ended before its goal */
    usec_t not_before; /* monotonic; 0: at once */
    usec_t time;
    struct index_entry begin, indexed[JOB_ENTRIES_MAX];
    size_t n_indexed;
    bool wants_spans; /* false: read a copy */
    struct span_read spans;
    enum journal_result result;
    char failure[JOURNAL_ERROR_TEXT];
};
extern uint64_t journal_step_max;  /* bytes of a segment that one job passes; replaceable for tests */
extern usec_t journal_retry_pause; /* before a job is retried after a shortage; replaceable for tests */

void *reader_main(void *set);

/* Owner. */
void job_submit(struct journal *j, struct job *job);
void job_deliver(struct job *job);
void job_report_failure(const struct job *job); /* for journal_failure */

/* Reader thread. */
enum cursor_status job_enter(struct job *job); /* gives the cursor its descriptor for this job */
/* A step begins at job->begin, or at the cursor if the cursor is further on. job_pass skips the frame at the cursor. */
void job_begin(struct job *job);
void job_pass(struct job *job, const struct frame *f);
/* Sets the job's failure; after a shortage of descriptors or memory, sets `again` instead. */
void job_read_failed(struct job *job, enum cursor_status status);

#endif
