/* Seeking by time. Each segment's header states the time of the last frame before it, and times never decrease, so the headers
 * select the segment. The reader thread searches the segment from the last index entry that is early enough. Each job is one
 * step, so that other reads do not wait. */
#include "journal/journal_internal.h"

#include <stdlib.h>

struct journal_seek {
    struct journal *journal;
    struct segment *segment; /* held by a reference */
    struct cursor *cursor;
    usec_t time;
    uint64_t limit;  /* the committed end when the seek began */
    struct job *job; /* under way; never NULL */
    journal_seek_fn *done;
    void *arg;
};

/* Sets the result OK and job->offset if it finds the frame, or END if the segment does not contain it. */
static void run_seek(struct job *job)
{
    struct cursor *c = job->cursor;
    enum cursor_status status = job_enter(job);
    job_begin(job);
    job->result = JOURNAL_END;
    while (status == CURSOR_FRAME && c->offset < job->limit && !job->again && job->result == JOURNAL_END) {
        struct frame f;
        status = cursor_peek(c, &f);
        if (status == CURSOR_FRAME && frame_advance(&f) > 0 && f.time >= job->time) {
            job->offset = f.offset;
            job->result = JOURNAL_OK;
        } else if (status == CURSOR_FRAME) {
            job_pass(job, &f);
        }
    }
    if (status != CURSOR_FRAME)
        job_read_failed(job, status);
    cursor_rest(c);
}

static void deliver_seek(struct job *job);

static void submit_seek(struct journal_seek *seek, bool look, usec_t not_before)
{
    struct job *job = mem_zalloc(sizeof *job);
    struct segment *s = seek->segment;
    job->seek = seek;
    job->run = look ? run_seek : NULL;
    job->result = JOURNAL_END;
    job->deliver = deliver_seek;
    job->cursor = seek->cursor;
    job->begin = frame_index_find(seek->journal, s, UINT64_MAX, seek->time);
    job->segment = s;
    job->segment->refs++;
    job->limit = s->end < seek->limit ? s->end : seek->limit;
    job->time = seek->time;
    job->not_before = not_before;
    seek->job = job;
    job_submit(seek->journal, job);
}

struct journal_seek *journal_seek_time(struct journal *j, usec_t time, journal_seek_fn *done, void *arg)
{
    size_t low = j->n_trimmed + 1,
           high = j->n_segments; /* the last segment before which all frames are older */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (j->segments[middle]->last_time < time)
            low = middle + 1;
        else
            high = middle;
    }
    struct journal_seek *seek = mem_zalloc(sizeof *seek);
    *seek = (struct journal_seek){
        .journal = j,
        .segment = j->segments[low - 1],
        .cursor = cursor_new(),
        .time = time,
        .limit = j->committed_end,
        .done = done,
        .arg = arg,
    };
    seek->segment->refs++;
    j->readers++;
    submit_seek(seek, time <= j->committed_time, 0);
    return seek;
}

static void seek_free(struct journal_seek *seek)
{
    seek->journal->readers--;
    segment_list_leave(seek->journal, seek->segment);
    free(seek);
}

void journal_seek_cancel(struct journal_seek **p)
{
    struct journal_seek *seek = *p;
    if (!seek)
        return;
    *p = NULL;
    seek->job->seek = NULL;
    seek_free(seek);
}

/* Moves on to the next segment. False: it contains nothing that was committed when the seek began. */
static bool enter_next(struct journal_seek *seek)
{
    struct segment *here = seek->segment, *next = segment_list_after(seek->journal, here);
    if (!next || next->base >= seek->limit)
        return false;
    next->refs++;
    seek->segment = next;
    cursor_close(seek->cursor);
    segment_list_leave(seek->journal, here);
    return true;
}

static void deliver_seek(struct job *job)
{
    struct journal_seek *seek = job->seek;
    struct journal *j = job->journal;
    segment_list_leave(j, job->segment);
    if (!seek) {
        cursor_free(job->cursor);
        return;
    }
    bool failed = job->failure[0] != 0;
    if (!failed && (job->again || (job->result == JOURNAL_END && enter_next(seek)))) {
        submit_seek(seek, true, job->not_before);
        return;
    }
    journal_seek_fn *done = seek->done;
    void *arg = seek->arg;
    uint64_t offset = job->result == JOURNAL_OK ? job->offset : seek->limit, earliest = journal_earliest(j);
    job_report_failure(job);
    cursor_free(seek->cursor);
    seek_free(seek);
    done(failed ? job->result : JOURNAL_OK, offset > earliest ? offset : earliest, arg);
}
