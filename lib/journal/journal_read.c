/* Readers. The reader thread reads and verifies frames for one reader at a time. The owner moves a reader from one
 * segment to the next segment. */
#include "journal/journal_internal.h"

#include <assert.h>
#include <stdlib.h>

#define CHUNK_MAX ((size_t)256 << 10)

struct journal_reader {
    struct journal *journal;
    struct segment *segment; /* the reader has a reference */
    struct cursor *cursor;
    uint64_t offset;
    struct job *job;   /* the read in flight */
    bool wants_spans;  /* the current read is a journal_reader_spans with `how` */
    struct buf memory; /* buffer for the next job */
    struct journal_span_request how;
    journal_read_fn *done;
    void *arg;
};

/* Adds the payload at the cursor to the window, without bytes before the job's offset. False: the window is full. */
static bool take_frame(struct job *job, const struct frame *f)
{
    struct cursor *c = job->cursor;
    uint64_t frame_end = c->offset + frame_advance(f);
    uint64_t from = job->offset + job->out.len;
    if (frame_end <= from) {
        cursor_skip(c, f);
        return true;
    }
    size_t skip = (size_t)(from - c->offset), room = job->max_bytes - job->out.len;
    size_t n = f->payload.len - skip;
    if (n > room && job->out.len > 0)
        return false;
    if (job->out.len == 0)
        job->time = f->time;
    buf_append(&job->out, f->payload.ptr + skip, n < room ? n : room);
    if (n > room) {
        cursor_enter(c, f);
        return false;
    }
    cursor_skip(c, f);
    return true;
}

static enum cursor_status fill_window(struct job *job)
{
    struct cursor *c = job->cursor;
    enum cursor_status status = CURSOR_FRAME;
    struct frame f;
    if (cursor_is_inside(c)) { /* continue a frame that the previous window began */
        f = c->large.frame;
        size_t skip = (size_t)(job->offset - c->offset), left = f.payload.len - skip;
        job->time = f.time;
        status = cursor_read(c, skip, left < job->max_bytes ? left : job->max_bytes, &job->out);
        if (status == CURSOR_FRAME && left <= job->max_bytes)
            cursor_skip(c, &f);
    }
    while (status == CURSOR_FRAME && c->offset < job->limit && job->out.len < job->max_bytes) {
        /* Reads only the bytes that the window still needs, and headers. The rest of a chunk would often be zeros. */
        uint64_t left = job->limit - (job->offset + job->out.len);
        size_t room = job->max_bytes - job->out.len, n = left < room ? (size_t)left : room;
        n += n / 8 + FRAME_HEADER + CURSOR_KEPT;
        c->chunk = n < CHUNK_MAX ? n : CHUNK_MAX;
        if (job->out.len > 0 && cursor_exceeds(c, room))
            break;
        status = cursor_peek(c, &f);
        if (status == CURSOR_FRAME && !take_frame(job, &f))
            break;
    }
    return status;
}

static void run_read(struct job *job)
{
    struct cursor *c = job->cursor;
    enum cursor_status status = job_enter(job);
    if (status == CURSOR_FRAME && c->offset < job->offset && !cursor_is_inside(c)) {
        job_begin(job);
        while (status == CURSOR_FRAME && !job->again) { /* skip the frames before the job's offset */
            struct frame f;
            status = cursor_peek(c, &f);
            if (status == CURSOR_FRAME && c->offset + frame_advance(&f) > job->offset)
                break;
            if (status == CURSOR_FRAME)
                job_pass(job, &f);
        }
    }
    if (status == CURSOR_FRAME && !job->again && !(job->wants_spans && spans_fill(job, &status)))
        status = fill_window(job);
    if (status != CURSOR_FRAME && job->out.len == 0 && job->spans.n == 0)
        job_read_failed(job, status);
    cursor_rest(c);
}

enum journal_result journal_reader_open(
    struct journal *j, uint64_t offset, struct journal_reader **out, struct journal_edges *edges)
{
    struct segment *s;
    struct journal_edges here;
    enum journal_result r = segment_list_find(j, offset, &s, edges ? edges : &here);
    if (r != JOURNAL_OK)
        return r;
    struct journal_reader *reader = mem_zalloc(sizeof *reader);
    *reader = (struct journal_reader){.journal = j, .segment = s, .cursor = cursor_new(), .offset = offset};
    s->refs++;
    j->readers++;
    *out = reader;
    return JOURNAL_OK;
}

uint64_t journal_reader_offset(const struct journal_reader *r)
{
    return r->offset;
}

static void deliver_read(struct job *job);

/* Each job searches the index again, because other reads may have added a closer entry. */
static void submit_read(
    struct journal_reader *r, size_t max_bytes, enum journal_result result, usec_t not_before)
{
    struct job *job = mem_zalloc(sizeof *job);
    job->reader = r;
    job->deliver = deliver_read;
    job->run = result == JOURNAL_OK ? run_read : NULL;
    job->result = result;
    job->cursor = r->cursor;
    job->begin = frame_index_find(r->journal, r->segment, r->offset, INT64_MAX);
    job->segment = r->segment;
    job->segment->refs++;
    job->offset = r->offset;
    job->limit = r->segment->end;
    job->max_bytes = max_bytes;
    job->not_before = not_before;
    job->wants_spans = r->wants_spans && file_may_share(r->segment);
    job->spans = (struct span_read){.how = r->how, .fd = -1};
    job->out = r->memory;
    r->memory = (struct buf){0};
    r->job = job;
    job_submit(r->journal, job);
}

/* If a reader is at the end of its segment, moves the reader to the next segment. Submits the read. A read whose result
 * is already known also becomes a job, so that journal_set_poll runs all callbacks in the order of the reads. */
static void begin_read(struct journal_reader *r, size_t max_bytes, journal_read_fn *done, void *arg)
{
    assert(!r->job && max_bytes > 0);
    struct segment *next;
    bool gap = false;
    while (r->offset == r->segment->end && (next = segment_list_after(r->journal, r->segment))) {
        gap = next->base != r->offset;
        if (gap)
            break;
        struct segment *here = r->segment;
        next->refs++;
        r->segment = next;
        cursor_close(r->cursor);
        segment_list_leave(r->journal, here);
    }
    r->done = done;
    r->arg = arg;
    submit_read(r, max_bytes, gap ? JOURNAL_GONE : r->offset < r->segment->end ? JOURNAL_OK : JOURNAL_END, 0);
}

void journal_reader_read(struct journal_reader *r, size_t max_bytes, journal_read_fn *done, void *arg)
{
    r->wants_spans = false;
    begin_read(r, max_bytes, done, arg);
}

void journal_reader_spans(struct journal_reader *r, const struct journal_span_request *how,
    struct buf *memory, journal_read_fn *done, void *arg)
{
    assert(memory->len == 0);
    r->wants_spans = true;
    r->how = *how;
    r->memory = *memory;
    *memory = (struct buf){0};
    begin_read(r, how->max_bytes, done, arg);
}

void journal_reader_close(struct journal_reader **p)
{
    struct journal_reader *r = *p;
    if (!r)
        return;
    *p = NULL;
    if (r->job)
        r->job->reader = NULL;
    else
        cursor_free(r->cursor);
    r->journal->readers--;
    segment_list_leave(r->journal, r->segment);
    free(r);
}

static void answer_read(struct journal_reader *r, struct job *job)
{
    struct journal_window w = {
        .result = job->result,
        .offset = r->offset,
        .data = buf_bytes(&job->out),
        .memory = &job->out,
        .time = job->time,
    };
    r->job = NULL;
    if (job->result == JOURNAL_GONE) {
        struct segment *next = segment_list_after(r->journal, r->segment);
        w.edges = (struct journal_edges){.before = r->offset, .after = next->base};
    }
    job_report_failure(job);
    spans_answer(job, &w);
    r->offset += job->out.len + (w.n_spans ? job->spans.bytes : 0);
    r->done(&w, r->arg);
    if (w.file)
        journal_file_release(w.file);
}

/* Releases the segment last, because a segment whose file a caller gets must be marked as shared before its removal. */
static void deliver_read(struct job *job)
{
    struct journal_reader *r = job->reader;
    if (!r) {
        cursor_free(job->cursor);
    } else if (job->again) {
        r->memory = job->out;
        job->out = (struct buf){0};
        submit_read(r, job->max_bytes, JOURNAL_OK, job->not_before);
    } else {
        answer_read(r, job);
    }
    segment_list_leave(job->journal, job->segment);
}

enum journal_result journal_scan(struct journal *j, uint64_t offset, journal_scan_fn *fn, void *arg)
{
    struct journal_edges edges;
    struct segment *s;
    enum journal_result r = segment_list_find(j, offset, &s, &edges);
    bool stopped = false;
    for (; r == JOURNAL_OK && s && !stopped; s = segment_list_after(j, s)) {
        struct cursor *c = cursor_new();
        enum cursor_status status = cursor_open(c, s->path, s->seed, s->base);
        struct session session = {0};
        memcpy(session.opening, s->opening, sizeof session.opening);
        while (status == CURSOR_FRAME && c->offset < s->end && !stopped) {
            struct frame f;
            status = cursor_peek(c, &f);
            if (status != CURSOR_FRAME)
                break;
            if (f.kind == FRAME_OPEN)
                (void)!open_decode(f.payload, &session);
            if (frame_advance(&f) > 0 && f.offset + f.payload.len > offset)
                stopped = !fn(&(struct journal_scanned){f.offset, f.time, session.opening, f.payload}, arg);
            cursor_skip(c, &f);
        }
        if (status != CURSOR_FRAME) {
            r = status == CURSOR_IO && c->system ? JOURNAL_IO : JOURNAL_DAMAGED;
            if (!j->latched)
                cursor_failure(c, status, s->path, j->failure);
        }
        cursor_free(c);
    }
    return r;
}
