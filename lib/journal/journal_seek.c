/* Seeking by time. A frame may have an earlier time than the frame before it, so the search visits segments and frames
 * in order. The search skips a segment, or the part of a segment before an index entry, if the latest time in this
 * segment or part is too early. The reader thread searches the other frames. Each job is one step of the search, so
 * that other reads do not wait for long.
 *
 * The candidate is the first of the frames directly before the current position that are not older than `time`. At a
 * frame whose time is between `time` and `now`, the candidate is the result. At a frame older than `time`, the search
 * drops the candidate. At a frame newer than `now`, the search only continues. */
#include "journal/journal_internal.h"

#include <stdlib.h>

struct journal_seek {
    struct journal *journal;
    struct segment *segment; /* the seek has a reference */
    struct cursor *cursor;
    usec_t time, now;
    uint64_t limit;     /* the committed end when the seek began */
    uint64_t candidate; /* UINT64_MAX: none */
    struct job *job;    /* current step; never NULL */
    journal_seek_fn *done;
    void *arg;
};

/* Sets the result to JOURNAL_OK if the candidate is the result of the seek, or to JOURNAL_END if the search must
 * continue in the next segment. */
static void run_seek(struct job *job)
{
    struct cursor *c = job->cursor;
    enum cursor_status status = job_enter(job);
    bool passes = job->begin.position > c->position && job->begin.latest > 0;
    job_begin(job);
    if (passes)
        job->candidate = UINT64_MAX;
    job->result = JOURNAL_END;
    while (status == CURSOR_FRAME && c->offset < job->limit && !job->again && job->result == JOURNAL_END) {
        struct frame f;
        status = cursor_peek(c, &f);
        if (status != CURSOR_FRAME)
            break;
        bool has_payload = frame_advance(&f) > 0, is_early = f.time < job->time;
        if (has_payload && is_early)
            job->candidate = UINT64_MAX;
        else if (has_payload && job->candidate == UINT64_MAX)
            job->candidate = f.offset;
        if (has_payload && !is_early && f.time <= job->now)
            job->result = JOURNAL_OK;
        else
            job_pass(job, &f);
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
    job->now = seek->now;
    job->candidate = seek->candidate;
    job->not_before = not_before;
    seek->job = job;
    job_submit(seek->journal, job);
}

/* Returns the first segment from s on that has a frame not older than the time of the seek; NULL: no segment. */
static struct segment *next_to_search(struct journal_seek *seek, struct segment *s)
{
    for (; s && s->base < seek->limit; s = segment_list_after(seek->journal, s)) {
        if (s->latest >= seek->time)
            return s;
        if (s->latest > 0)
            seek->candidate = UINT64_MAX;
    }
    return NULL;
}

struct journal_seek *journal_seek_time(
    struct journal *j, usec_t time, usec_t now, journal_seek_fn *done, void *arg)
{
    struct journal_seek *seek = mem_zalloc(sizeof *seek);
    *seek = (struct journal_seek){
        .journal = j,
        .cursor = cursor_new(),
        .time = time,
        .now = now,
        .limit = j->committed_end,
        .candidate = UINT64_MAX,
        .done = done,
        .arg = arg,
    };
    struct segment *s = next_to_search(seek, j->segments[j->n_trimmed]);
    seek->segment = s ? s : segment_list_last(j);
    seek->segment->refs++;
    j->readers++;
    submit_seek(seek, s != NULL, 0);
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

/* Moves the seek to the next segment. Returns false if the search need not examine a further segment. */
static bool enter_next(struct journal_seek *seek)
{
    struct segment *here = seek->segment;
    struct segment *next = next_to_search(seek, segment_list_after(seek->journal, here));
    if (!next)
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
    seek->candidate = job->candidate;
    if (!failed && (job->again || (job->result == JOURNAL_END && enter_next(seek)))) {
        submit_seek(seek, true, job->not_before);
        return;
    }
    journal_seek_fn *done = seek->done;
    void *arg = seek->arg;
    uint64_t offset = seek->candidate != UINT64_MAX ? seek->candidate : seek->limit;
    uint64_t earliest = journal_earliest(j);
    job_report_failure(job);
    cursor_free(seek->cursor);
    seek_free(seek);
    done(failed ? job->result : JOURNAL_OK, offset > earliest ? offset : earliest, arg);
}
