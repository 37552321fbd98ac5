/* The steps of an erasure. The owner starts each step when the previous step has ended. The owner runs the second step,
 * and the reader thread runs the other steps.
 *
 *     pause       stop the recycling of files; earlier jobs that recycle files end before this step
 *     end         append an empty frame that begins a new segment
 *     replace     for each earlier segment that has ranges, or is in a recycled file: copy it frame by frame, sync
 *                 the copy, rename it, sync the directory
 *     settle      check that trimmed segments are removed, because after a crash they would exist again
 *
 * If the spare file was recycled before the pause, the new segment uses this recycled file. Appends that were pending
 * before the pause may also be in the new segment. In both cases the owner repeats the second step. Trimmed segments
 * that readers still use are also replaced. */
#include "journal/journal_erase.h"

#include "base/lower_bound.h"
#include "journal/journal_internal.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#define STEP_MAX ((uint64_t)2 << 20)
#define ATTEMPTS_MAX 4 /* attempts to begin a segment after all ranges, in a file that was not recycled */

struct erase {
    struct journal *journal;
    struct journal_erasure what;
    journal_erased_fn *done;
    void *arg;
    unsigned attempts;
    uint64_t end;        /* the newest segment must begin at this offset or later */
    uint64_t next, last; /* sequence numbers of the next and the last segment to examine */
    uint64_t examined, total;
    usec_t not_before; /* time of the next step after a shortage of descriptors or memory; 0: at once */

    /* The current copy of a segment; used by the reader thread. */
    struct cursor cursor;
    int fd;            /* -1: none */
    uint64_t position; /* bytes written */
    size_t range;      /* index of the first range that does not end before the cursor */
    bool copied;       /* the previous step has replaced the segment */
};

static void finish(struct erase *e, enum journal_result r, const char *error)
{
    struct journal *j = e->journal;
    prealloc_pause_recycling(j, false);
    j->erase = NULL;
    e->done(j->closing ? JOURNAL_CLOSED : r, error ? error : journal_strerror(r), e->arg);
    free(e);
}

static void submit(
    struct erase *e, struct segment *s, void (*run)(struct job *), void (*deliver)(struct job *))
{
    struct job *job = mem_zalloc(sizeof *job);
    job->run = run;
    job->deliver = deliver;
    job->segment = s;
    job->cursor = &e->cursor;
    job->not_before = e->not_before;
    if (s) {
        s->refs++;
        job->limit = s->end;
    }
    job_submit(e->journal, job);
}

static void fail_job(struct job *job, const char *path, const char *what)
{
    int system = errno;
    failure_set(job->failure, path, what, system);
    job->result = errno_is_full(system) ? JOURNAL_NO_SPACE : JOURNAL_IO;
}

/* Replace. */

/* Returns the index of the first range that ends after `offset`. */
static size_t range_after(const struct journal_erasure *what, uint64_t offset)
{
    return LOWER_BOUND(i, 0, what->n, what->ranges[i].end <= offset);
}

static bool has_ranges(const struct erase *e, const struct segment *s)
{
    size_t i = range_after(&e->what, s->base);
    return i < e->what.n && e->what.ranges[i].offset < s->end;
}

/* Replaces the ranges in a payload at `offset`. */
static bool replace_ranges(struct erase *e, uint64_t offset, char *payload, size_t len)
{
    const struct journal_erasure *what = &e->what;
    for (; e->range < what->n && what->ranges[e->range].offset < offset + len; e->range++) {
        const struct journal_range *r = &what->ranges[e->range];
        size_t from = r->offset > offset ? (size_t)(r->offset - offset) : 0;
        size_t to = r->end < offset + len ? (size_t)(r->end - offset) : len;
        bool is_part = r->offset < offset || r->end > offset + len;
        if (r->end > offset && !what->replace(payload, len, from, to, is_part))
            return false;
        if (r->end > offset + len)
            break; /* the range continues in the next frame */
    }
    return true;
}

/* Encodes the frame again. A frame without replaced bytes is encoded to the same bytes as before. */
static bool copy_frame(struct erase *e, const struct frame *f, struct buf *out)
{
    size_t at = out->len;
    frame_append(out, f, &f->payload, 1);
    char *payload = out->ptr + at + FRAME_HEADER + f->name.len;
    if (frame_advance(f) > 0 && !replace_ranges(e, f->offset, payload, f->payload.len))
        return false;
    struct frame_place place = {e->cursor.seed, e->cursor.position, f->durable, f->durable_position};
    frame_seal(out->ptr + at, &place);
    return true;
}

static bool begin_copy(struct job *job, struct erase *e, const char *fresh)
{
    const struct segment *s = job->segment;
    char header[SEGMENT_HEADER];
    e->range = range_after(&e->what, s->base);
    e->cursor.fd = -1;
    if (cursor_open(&e->cursor, s->path, s->seed, s->base) != CURSOR_FRAME) {
        job_read_failed(job, CURSOR_IO);
        return false;
    }
    if (file_read(e->cursor.fd, header, sizeof header, 0) != (ssize_t)sizeof header) {
        fail_job(job, s->path, "cannot read the header");
        return false;
    }
    e->fd = io->open(fresh, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, IO_PRIVATE_MODE);
    e->position = SEGMENT_HEADER;
    if (e->fd < 0 || io_write_all(e->fd, header, sizeof header, 0) != 0) {
        fail_job(job, fresh, "cannot create");
        return false;
    }
    return true;
}

/* Zeros follow the frames, as after each write into a recycled file. The reader thread changes the segment's version,
 * because only the reader thread uses cursors of the fd cache. */
static bool end_copy(struct job *job, struct erase *e, const char *fresh)
{
    static const char zeros[FRAME_HEADER];
    struct segment *s = job->segment;
    struct journal *j = job->journal;
    if (io_write_all(e->fd, zeros, sizeof zeros, (off_t)e->position) != 0 ||
        sync_or_eio(io->fsync(e->fd)) != 0) {
        fail_job(job, fresh, "cannot write");
        return false;
    }
    if (io->rename(fresh, s->path) != 0) {
        fail_job(job, s->path, "cannot replace");
        return false;
    }
    fd_cache_drop(&j->set->files, s);
    s->version++;
    if (sync_or_eio(journal_dir_sync(j)) != 0)
        fail_job(job, j->dir, "cannot sync");
    return true;
}

/* Copies frames of the segment until STEP_MAX bytes are read. */
static void copy_step(struct job *job, struct erase *e, const char *fresh)
{
    struct cursor *c = &e->cursor;
    struct buf out = {0};
    uint64_t from = c->position;
    enum cursor_status status = CURSOR_FRAME;
    while (status == CURSOR_FRAME && c->position - from < STEP_MAX) {
        struct frame f;
        status = cursor_peek(c, &f);
        if (status != CURSOR_FRAME)
            break;
        if (!copy_frame(e, &f, &out)) {
            job->result = JOURNAL_CONFLICT;
            break;
        }
        cursor_skip(c, &f);
    }
    if (job->result == JOURNAL_OK && status == CURSOR_END && c->offset != job->limit)
        status = CURSOR_BAD;
    if (status == CURSOR_BAD || status == CURSOR_IO)
        job_read_failed(job, status);
    else if (job->result == JOURNAL_OK && io_write_all(e->fd, out.ptr, out.len, (off_t)e->position) != 0)
        fail_job(job, fresh, "cannot write");
    e->position += out.len;
    buf_free(&out);
    if (job->result == JOURNAL_OK && !job->again && status == CURSOR_END)
        e->copied = end_copy(job, e, fresh);
}

static void close_copy(struct erase *e)
{
    cursor_close(&e->cursor);
    if (e->fd >= 0)
        io->close(e->fd);
    e->fd = -1;
}

/* After a shortage of descriptors or memory, the copy of the segment begins again. */
static void run_replace(struct job *job)
{
    struct erase *e = job->journal->erase;
    char *fresh = segment_path(job->journal->dir, job->segment->sequence, ".new");
    e->copied = false;
    if (!e->journal->closing && (e->fd >= 0 || begin_copy(job, e, fresh)))
        copy_step(job, e, fresh);
    if (job->result != JOURNAL_OK || job->again || e->copied || e->journal->closing)
        close_copy(e);
    if (job->result != JOURNAL_OK || e->journal->closing)
        io->unlink(fresh);
    free(fresh);
}

static void next_segment(struct erase *e);

static void deliver_replace(struct job *job)
{
    struct journal *j = job->journal;
    struct erase *e = j->erase;
    struct segment *s = job->segment;
    e->not_before = job->again ? job->not_before : 0;
    if (e->copied) {
        s->size = e->position + FRAME_HEADER;
        s->recycled = false;
        segment_detach_file(s);
        e->examined += s->end - s->base;
        e->next++;
    }
    segment_list_leave(j, s);
    if (job->result != JOURNAL_OK || e->journal->closing)
        finish(e, job->result, job->failure[0] ? job->failure : NULL);
    else
        next_segment(e);
}

/* Checks that the earlier jobs have removed the trimmed segments. */
static void run_settle(struct job *job)
{
    struct journal *j = job->journal;
    if (!j->unlink_failed)
        return;
    failure_set(
        job->failure, j->dir, "cannot remove an old segment, so its bytes remain; restart the daemon", 0);
    job->result = JOURNAL_IO;
}

static void deliver_last(struct job *job)
{
    finish(job->journal->erase, job->result, job->failure[0] ? job->failure : NULL);
}

static void next_segment(struct erase *e)
{
    struct journal *j = e->journal;
    for (size_t i = 0; i + 1 < j->n_segments; i++) {
        struct segment *s = j->segments[i];
        if (s->sequence < e->next || s->sequence > e->last)
            continue;
        e->next = s->sequence;
        if (s->recycled || has_ranges(e, s)) {
            submit(e, s, run_replace, deliver_replace);
            return;
        }
        e->examined += s->end - s->base;
        e->next++;
    }
    submit(e, NULL, run_settle, deliver_last);
}

/* Pause and end. */

static void end_newest(struct erase *e);

static void ended(const struct journal_commit *commit, void *arg)
{
    struct erase *e = arg;
    struct journal *j = e->journal;
    const struct segment *newest = segment_list_last(j);
    if (commit->result != JOURNAL_OK || e->journal->closing) {
        finish(e, commit->result, j->failure[0] ? j->failure : NULL);
    } else if ((newest->recycled || newest->base < e->end) && e->attempts < ATTEMPTS_MAX) {
        end_newest(e);
    } else if (newest->recycled || newest->base < e->end) {
        finish(e, JOURNAL_NO_SPACE, NULL);
    } else {
        for (size_t i = 0; i + 1 < j->n_segments; i++)
            j->segments[i]->shared = true;
        e->next = j->segments[0]->sequence;
        e->last = newest->sequence - 1;
        e->total = journal_bytes_between(j, 0, newest->base);
        next_segment(e);
    }
}

static void end_newest(struct erase *e)
{
    struct journal_append append = {.begins_segment = true};
    e->attempts++;
    enum journal_result r = journal_append(e->journal, &append, e->journal->accepted_time, ended, e, NULL);
    if (r != JOURNAL_OK)
        finish(e, r, NULL);
}

static void deliver_pause(struct job *job)
{
    end_newest(job->journal->erase);
}

enum journal_result journal_erase(
    struct journal *j, const struct journal_erasure *what, journal_erased_fn *done, void *arg)
{
    if (j->erase)
        return JOURNAL_BUSY;
    if (j->latched || j->set->closing)
        return j->latched ? JOURNAL_LATCHED : JOURNAL_CLOSED;
    for (size_t i = 0; i < what->n; i++)
        assert(what->ranges[i].offset < what->ranges[i].end &&
               (i == 0 || what->ranges[i - 1].end <= what->ranges[i].offset));
    assert(what->n == 0 || what->ranges[what->n - 1].end <= j->committed_end);
    struct erase *e = j->erase = mem_zalloc(sizeof *e);
    *e = (struct erase){.journal = j, .what = *what, .done = done, .arg = arg, .fd = -1};
    e->cursor.fd = -1;
    e->end = what->n ? what->ranges[what->n - 1].end : j->accepted_end;
    prealloc_pause_recycling(j, true);
    submit(e, NULL, NULL, deliver_pause);
    return JOURNAL_OK;
}

void journal_erase_progress(const struct journal *j, uint64_t *examined, uint64_t *total)
{
    *examined = j->erase ? j->erase->examined : 0;
    *total = j->erase ? j->erase->total : 0;
}

/* Removal of trimmed segments. */

struct removal {
    struct job job; /* the job must be the first member */
    uint64_t first; /* first segment that was not trimmed at the call (sequence number) */
    bool submitted; /* the jobs that remove the segments before `first` are submitted */
    journal_erased_fn *done;
    void *arg;
};

static void deliver_removal(struct job *job);

static void submit_removal(struct journal *j, const struct removal *like)
{
    struct removal *r = mem_zalloc(sizeof *r);
    *r = *like;
    r->job.run = run_settle;
    r->job.deliver = deliver_removal;
    r->submitted = j->segments[0]->sequence >= r->first;
    job_submit(j, &r->job);
}

static void deliver_removal(struct job *job)
{
    const struct removal *r = (struct removal *)(void *)job;
    struct journal *j = job->journal;
    if (j->closing || job->result != JOURNAL_OK || r->submitted) {
        enum journal_result result = j->closing ? JOURNAL_CLOSED : job->result;
        r->done(result, job->failure[0] ? job->failure : journal_strerror(result), r->arg);
        return;
    }
    submit_removal(j, &(struct removal){.first = r->first,
                          .done = r->done,
                          .arg = r->arg,
                          .job.not_before = clock_monotonic() + journal_retry_pause});
}

void journal_await_removal(struct journal *j, journal_erased_fn *done, void *arg)
{
    submit_removal(
        j, &(struct removal){.first = j->segments[j->n_trimmed]->sequence, .done = done, .arg = arg});
}
