/* Reading: the reader thread fills a window for one reader at a time; the owner moves readers from segment to
 * segment and lets segments go. */
#include "journal/journal_internal.h"

#include "base/io.h"
#include "base/log.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define CHUNK_MAX ((size_t)256 << 10)

#define SHORTAGE_LOG_INTERVAL (10 * USEC_PER_SEC)

uint64_t journal_step_max = (uint64_t)1 << 20;
usec_t journal_retry_pause = 20 * USEC_PER_MSEC;

struct journal_reader {
    struct journal *journal;
    struct segment *segment; /* held by a reference */
    struct cursor *cursor;
    uint64_t offset;
    struct job *job;   /* the read in flight */
    bool locates;      /* it is a journal_reader_spans, as said in `how` */
    struct buf memory; /* for its next job */
    struct journal_span_request how;
    journal_read_fn *done;
    void *arg;
};

struct segment *journal_last_segment(const struct journal *j)
{
    return j->segments[j->n_segments - 1];
}

void journal_push_segment(struct journal *j, struct segment *s)
{
    j->segments = mem_realloc(j->segments, (j->n_segments + 1) * sizeof(struct segment *));
    j->segments[j->n_segments++] = s;
}

/* The segment that serves `offset`: the last whose base is not above it. NULL below the earliest. */
static struct segment *segment_at(const struct journal *j, uint64_t offset)
{
    size_t low = j->n_trimmed, high = j->n_segments;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (j->segments[middle]->base <= offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low == j->n_trimmed ? NULL : j->segments[low - 1];
}

/* Their numbers have no gap. */
struct segment *segment_after(const struct journal *j, const struct segment *s)
{
    uint64_t i = s->sequence + 1 - j->segments[0]->sequence;
    if (s->sequence < j->segments[0]->sequence || i < j->n_trimmed)
        i = j->n_trimmed;
    return i < j->n_segments ? j->segments[i] : NULL;
}

uint64_t journal_earliest(const struct journal *j)
{
    return j->segments[j->n_trimmed]->base;
}

uint64_t journal_earliest_end(const struct journal *j)
{
    return j->segments[j->n_trimmed]->end;
}

static uint64_t bytes_of_segments(const struct journal *j, size_t from, size_t to)
{
    uint64_t n = 0;
    for (size_t i = from; i < to; i++)
        n += j->segments[i]->size;
    return n;
}

uint64_t journal_disk_bytes(const struct journal *j)
{
    return bytes_of_segments(j, 0, j->n_segments) + prealloc_bytes(j);
}

uint64_t journal_trimmed_bytes(const struct journal *j)
{
    return bytes_of_segments(j, 0, j->n_trimmed);
}

bool journal_trim_is_done(const struct journal *j)
{
    return j->n_trimmed == 0 && j->n_unlinking == 0;
}

uint64_t journal_bytes_between(const struct journal *j, uint64_t from, uint64_t to)
{
    uint64_t n = 0;
    for (size_t i = j->n_segments; i-- > j->n_trimmed && j->segments[i]->end > from;) {
        uint64_t low = j->segments[i]->base > from ? j->segments[i]->base : from;
        uint64_t high = j->segments[i]->end < to ? j->segments[i]->end : to;
        n += high > low ? high - low : 0;
    }
    return n;
}

static enum journal_result find_segment(
    const struct journal *j, uint64_t offset, struct segment **out, struct journal_edges *edges)
{
    struct segment *s = segment_at(j, offset);
    if (offset > j->committed_end)
        return JOURNAL_BEYOND;
    if (!s) {
        *edges = (struct journal_edges){.before = 0, .after = journal_earliest(j)};
        return JOURNAL_GONE;
    }
    if (offset > s->end) {
        *edges = (struct journal_edges){.before = s->end, .after = segment_after(j, s)->base};
        return JOURNAL_GONE;
    }
    *out = s;
    return JOURNAL_OK;
}

void job_submit(struct journal *j, struct job *job)
{
    struct journal_set *set = j->set;
    job->journal = j;
    job->next = NULL;
    j->jobs++;
    set_lock(set);
    *set->jobs_tail = job;
    set->jobs_tail = &job->next;
    bool wake = set->reader_waits;
    set_unlock(set);
    if (wake) /* not before: it would wake only to wait for the lock */
        pthread_cond_signal(&set->reads);
}

/* A segment is unlinked, or becomes the spare file. Each is made durable before the next: what is on disk is always an unbroken run of segments, so that a
 * missing one is damage and nothing else. After one that failed the later ones stay too, until the next opening
 * finds them and they are trimmed again. */
static void run_unlink(struct job *job)
{
    struct journal *j = job->journal;
    fd_cache_drop(j->set, job->segment);
    job->result = JOURNAL_IO;
    if (j->unlink_failed)
        return;
    int recycled = prealloc_recycle(j, job->segment);
    if (recycled > 0) {
        job->result = JOURNAL_OK;
        return;
    }
    j->unlink_failed =
        recycled < 0 || (io->unlink(job->segment->path) != 0 && errno != ENOENT) || journal_dir_sync(j) != 0;
    if (j->unlink_failed)
        log_warn(
            "cannot remove a segment", LOG_S("file", job->segment->path), LOG_S("error", strerror(errno)));
    else
        job->result = JOURNAL_OK;
}

static void deliver_unlink(struct job *job)
{
    if (job->result == JOURNAL_OK)
        job->journal->n_unlinking--;
    segment_free(job->segment);
}

static void wait_for_what_lacks(struct job *job, int system)
{
    struct journal_set *set = job->journal->set;
    usec_t now = clock_monotonic();
    job->again = true;
    job->not_before = now + journal_retry_pause;
    set_lock(set);
    set->last_shortage = now;
    set_unlock(set);
    if (set->shortage_logged && now - set->shortage_logged < SHORTAGE_LOG_INTERVAL)
        return;
    set->shortage_logged = now;
    log_warn("a read waits for what the system lacks", LOG_S("file", job->segment->path),
        LOG_S("error", strerror(system)));
}

void job_read_failed(struct job *job, enum cursor_status status)
{
    char what[96];
    int system = status == CURSOR_IO ? job->cursor->system : 0;
    job->again = false;
    if (is_resource_shortage(system)) {
        wait_for_what_lacks(job, system);
        return;
    }
    snprintf(what, sizeof what, "%s at byte %llu", system ? "cannot read" : "damaged",
        (unsigned long long)job->cursor->position);
    failure_set(job->failure, job->segment->path, what, system);
    job->result = system ? JOURNAL_IO : JOURNAL_DAMAGED;
}

/* Adds the frame at the cursor, from the job's offset on, to the window. False: the window is full. */
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
    if (job->out.len == 0) {
        job->frame_starts = skip == 0;
        job->time = f->time;
    }
    buf_append(&job->out, f->payload.ptr + skip, n < room ? n : room);
    if (n > room) {
        cursor_enter(c, f);
        return false;
    }
    cursor_skip(c, f);
    return true;
}

/* More of a frame that the window before has begun. */
static enum cursor_status take_more(struct job *job)
{
    struct cursor *c = job->cursor;
    struct frame f = c->large.frame;
    size_t skip = (size_t)(job->offset - c->offset), n = f.payload.len - skip;
    bool is_rest = n <= job->max_bytes;
    job->time = f.time;
    enum cursor_status status = cursor_read(c, skip, is_rest ? n : job->max_bytes, &job->out);
    if (status == CURSOR_FRAME && is_rest)
        cursor_skip(c, &f);
    return status;
}

enum cursor_status job_enter(struct job *job)
{
    struct cursor *c = job->cursor;
    int fd = fd_cache_get(job->journal->set, job->segment);
    if (fd < 0) {
        c->system = errno;
        return CURSOR_IO;
    }
    if (c->fd < 0)
        cursor_begin(c, fd, job->segment->seed, job->segment->base);
    c->fd = fd;
    c->borrowed = true;
    return CURSOR_FRAME;
}

void job_begin(struct job *job)
{
    struct cursor *c = job->cursor;
    if (job->begin.position > c->position)
        cursor_go(c, &job->begin);
    job->begin.position = c->position;
    c->chunk = CHUNK_MAX;
}

void job_pass(struct job *job, const struct frame *f)
{
    struct cursor *c = job->cursor;
    uint64_t last = job->n_indexed ? job->indexed[job->n_indexed - 1].position : job->begin.position;
    cursor_skip(c, f);
    job->again = c->position >= job->begin.position + journal_step_max;
    if (job->n_indexed < JOB_ENTRIES_MAX && c->position >= last + journal_index_spacing)
        job->indexed[job->n_indexed++] = (struct index_entry){c->position, c->offset, f->time};
}

/* Over what lies before the wanted offset. */
static enum cursor_status approach(struct job *job)
{
    struct cursor *c = job->cursor;
    enum cursor_status status = CURSOR_FRAME;
    job_begin(job);
    while (status == CURSOR_FRAME && !job->again) {
        struct frame f;
        status = cursor_peek(c, &f);
        if (status == CURSOR_FRAME && c->offset + frame_advance(&f) > job->offset)
            break;
        if (status == CURSOR_FRAME)
            job_pass(job, &f);
    }
    return status;
}

/* What is still wanted, some of it headers; not what lies behind, which often is zeros only. */
static size_t chunk_for(const struct job *job)
{
    uint64_t left = job->limit - (job->offset + job->out.len);
    size_t room = job->max_bytes - job->out.len;
    size_t n = left < room ? (size_t)left : room;
    n += n / 8 + FRAME_HEADER + CURSOR_KEPT;
    return n < CHUNK_MAX ? n : CHUNK_MAX;
}

static enum cursor_status fill_window(struct job *job)
{
    struct cursor *c = job->cursor;
    enum cursor_status status = CURSOR_FRAME;
    c->chunk = chunk_for(job);
    if (cursor_is_inside(c))
        status = take_more(job);
    while (status == CURSOR_FRAME && c->offset < job->limit && job->out.len < job->max_bytes) {
        struct frame f;
        c->chunk = chunk_for(job);
        if (job->out.len > 0 && cursor_exceeds(c, job->max_bytes - job->out.len))
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
    if (status == CURSOR_FRAME && c->offset < job->offset && !cursor_is_inside(c))
        status = approach(job);
    if (status == CURSOR_FRAME && !job->again && !(job->span_read && spans_fill(job, &status)))
        status = fill_window(job);
    if (status != CURSOR_FRAME && job->out.len == 0 && !(job->span_read && job->span_read->n))
        job_read_failed(job, status);
    cursor_rest(c);
}

/* Under the lock: the first job whose time has come; else *due is when the next one's does, 0 when there is none. */
static struct job *take_job(struct journal_set *set, usec_t *due)
{
    usec_t now = 0;
    *due = 0;
    for (struct job **at = &set->jobs, *job; (job = *at) != NULL; at = &job->next) {
        if (job->not_before && !now)
            now = clock_monotonic();
        if (job->not_before > now) {
            *due = *due && *due < job->not_before ? *due : job->not_before;
            continue;
        }
        *at = job->next;
        if (set->jobs_tail == &job->next)
            set->jobs_tail = at;
        return job;
    }
    return NULL;
}

static struct job *next_job(struct journal_set *set)
{
    struct job *job;
    usec_t due;
    set_lock(set);
    while ((job = take_job(set, &due)) == NULL && !set->stop) {
        set->reader_waits = true;
        if (due)
            set_sleep_until(set, &set->reads, due);
        else
            set_sleep(set, &set->reads);
        set->reader_waits = false;
    }
    set_unlock(set);
    return job;
}

void *reader_main(void *arg)
{
    struct journal_set *set = arg;
    for (struct job *job; (job = next_job(set)) != NULL;) {
        if (job->run)
            job->run(job);
        set_lock(set);
        bool was_empty = !set->jobs_done;
        job->next = NULL;
        *set->jobs_done_tail = job;
        set->jobs_done_tail = &job->next;
        set_signal_owner(set, was_empty);
        set_unlock(set);
        if (was_empty)
            set->config.notify(set->config.notify_arg);
    }
    return NULL;
}

enum journal_result journal_reader_open(
    struct journal *j, uint64_t offset, struct journal_reader **out, struct journal_edges *edges)
{
    struct segment *s;
    struct journal_edges here;
    enum journal_result r = find_segment(j, offset, &s, edges ? edges : &here);
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

void segment_leave(struct journal *j, struct segment *s)
{
    assert(s->refs > 0);
    s->refs--;
    segments_reap(j);
}

/* Where the reader goes on: false when a gap lies before it. */
static bool enter_next_segment(struct journal_reader *r, struct journal_edges *edges)
{
    struct segment *here = r->segment, *next;
    while (r->offset == here->end && (next = segment_after(r->journal, here)) != NULL) {
        if (next->base != r->offset) {
            *edges = (struct journal_edges){.before = r->offset, .after = next->base};
            return false;
        }
        next->refs++;
        r->segment = next;
        cursor_close(r->cursor);
        segment_leave(r->journal, here);
        here = next;
    }
    return true;
}

static void deliver_read(struct job *job);

/* Begins where a frame is known to begin: on the way there, others may have learnt a better place since. */
static void submit_read(
    struct journal_reader *r, size_t max_bytes, enum journal_result result, usec_t not_before)
{
    struct job *job = mem_zalloc(sizeof *job);
    job->reader = r;
    job->deliver = deliver_read;
    job->run = result == JOURNAL_OK ? run_read : NULL;
    job->result = result;
    job->cursor = r->cursor;
    job->begin = frame_index_find_offset(r->journal, r->segment, r->offset);
    job->segment = r->segment;
    job->segment->refs++;
    job->offset = r->offset;
    job->limit = r->segment->end;
    job->max_bytes = max_bytes;
    job->not_before = not_before;
    job->span_read = r->locates && file_may_share(r->segment) ? span_read_new(&r->how) : NULL;
    job->out = r->memory;
    r->memory = (struct buf){0};
    r->job = job;
    job_submit(r->journal, job);
}

/* A read that needs no file takes the same way, so that every callback comes from journal_set_poll and in
 * the order of the reads. */
static void begin_read(struct journal_reader *r, size_t max_bytes, journal_read_fn *done, void *arg)
{
    assert(!r->job && max_bytes > 0);
    struct journal_edges edges;
    enum journal_result result = JOURNAL_END;
    if (!enter_next_segment(r, &edges))
        result = JOURNAL_GONE;
    else if (r->offset < r->segment->end)
        result = JOURNAL_OK;
    r->done = done;
    r->arg = arg;
    submit_read(r, max_bytes, result, 0);
}

void journal_reader_read(struct journal_reader *r, size_t max_bytes, journal_read_fn *done, void *arg)
{
    r->locates = false;
    begin_read(r, max_bytes, done, arg);
}

void journal_reader_spans(struct journal_reader *r, const struct journal_span_request *how,
    struct buf *memory, journal_read_fn *done, void *arg)
{
    assert(memory->len == 0);
    r->locates = true;
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
    segment_leave(r->journal, r->segment);
    free(r);
}

static void answer_read(struct journal_reader *r, struct job *job)
{
    struct journal_window w = {
        .result = job->result,
        .offset = r->offset,
        .data = buf_bytes(&job->out),
        .memory = &job->out,
        .frame_starts = job->frame_starts,
        .time = job->time,
    };
    r->job = NULL;
    if (job->result == JOURNAL_GONE) {
        struct segment *next = segment_after(r->journal, r->segment);
        w.edges = (struct journal_edges){.before = r->offset, .after = next->base};
    }
    job_report_failure(job);
    spans_answer(job, &w);
    r->offset += job->out.len + (w.n_spans ? job->span_read->bytes : 0);
    r->done(&w, r->arg);
    if (w.file)
        journal_file_release(w.file);
}

void job_report_failure(const struct job *job)
{
    struct journal *j = job->journal;
    if (job->failure[0] && !j->latched)
        memcpy(j->failure, job->failure, sizeof j->failure);
}

void job_learn(const struct job *job)
{
    for (size_t i = 0; i < job->n_indexed; i++)
        frame_index_add(job->journal, job->segment, &job->indexed[i]);
}

static void submit_again(struct journal_reader *r, struct job *job)
{
    r->memory = job->out;
    job->out = (struct buf){0};
    submit_read(r, job->max_bytes, JOURNAL_OK, job->not_before);
}

/* The segment is left last: to have given out its file must be known before it goes. */
static void deliver_read(struct job *job)
{
    struct journal_reader *r = job->reader;
    job_learn(job);
    if (!r)
        cursor_free(job->cursor);
    else if (job->again)
        submit_again(r, job);
    else
        answer_read(r, job);
    segment_leave(job->journal, job->segment);
}

void job_deliver(struct job *job)
{
    job->journal->jobs--;
    job->deliver(job);
    span_read_free(&job->span_read);
    buf_free(&job->out);
    free(job);
}

/* On the owner's thread. */

static enum journal_result scan_failed(
    struct journal *j, const struct segment *s, const struct cursor *c, enum cursor_status status)
{
    char what[96];
    int system = status == CURSOR_IO ? c->system : 0;
    snprintf(what, sizeof what, "%s at byte %llu", system ? "cannot read" : "damaged",
        (unsigned long long)c->position);
    if (!j->latched)
        failure_set(j->failure, s->path, what, system);
    return system ? JOURNAL_IO : JOURNAL_DAMAGED;
}

/* A frame visitor for one segment; false stops. */
typedef bool visit_fn(const struct frame *f, void *arg);

static enum journal_result visit_segment(
    struct journal *j, const struct segment *s, visit_fn *fn, void *arg, bool *stopped)
{
    struct cursor *c = cursor_new();
    struct frame f;
    enum journal_result r = JOURNAL_OK;
    enum cursor_status status = cursor_open(c, s->path, s->seed, s->base);
    while (status == CURSOR_FRAME && c->offset < s->end && !*stopped) {
        status = cursor_peek(c, &f);
        if (status != CURSOR_FRAME)
            break;
        *stopped = !fn(&f, arg);
        cursor_skip(c, &f);
    }
    if (status != CURSOR_FRAME)
        r = scan_failed(j, s, c, status);
    cursor_free(c);
    return r;
}

struct scan {
    uint64_t from;
    journal_scan_fn *fn;
    void *arg;
};

static bool scan_frame(const struct frame *f, void *arg)
{
    struct scan *s = arg;
    if (f->kind != FRAME_DATA || f->payload.len == 0 || f->offset + f->payload.len <= s->from)
        return true;
    return s->fn(f->offset, f->time, f->payload, s->arg);
}

enum journal_result journal_scan(struct journal *j, uint64_t offset, journal_scan_fn *fn, void *arg)
{
    struct scan scan = {offset, fn, arg};
    struct journal_edges edges;
    struct segment *s;
    enum journal_result r = find_segment(j, offset, &s, &edges);
    bool stopped = false;
    for (; r == JOURNAL_OK && s && !stopped; s = segment_after(j, s))
        r = visit_segment(j, s, scan_frame, &scan, &stopped);
    return r;
}

/* In order, so that what is left on disk never has a gap: a segment that a reader is in keeps those after it. */
void segments_reap(struct journal *j)
{
    size_t n = 0;
    while (n < j->n_trimmed && j->segments[n]->refs == 0) {
        struct job *job = mem_zalloc(sizeof *job);
        job->run = run_unlink;
        job->deliver = deliver_unlink;
        j->n_unlinking++;
        job->segment = j->segments[n++];
        job_submit(j, job);
    }
    if (n == 0)
        return;
    j->n_trimmed -= n;
    j->n_segments -= n;
    memmove(j->segments, j->segments + n, j->n_segments * sizeof(struct segment *));
}

/* Whether a segment may go, if those before it do, without `offset` being lost. */
static bool all_below(const struct journal *j, size_t i, uint64_t offset)
{
    return i + 1 < j->n_segments && j->segments[i]->end <= offset && j->segments[i + 1]->base <= offset;
}

enum journal_result journal_trim(struct journal *j, uint64_t offset)
{
    while (all_below(j, j->n_trimmed, offset))
        j->n_trimmed++;
    segments_reap(j);
    return JOURNAL_OK;
}

/* The first segment that stays. */
static size_t first_kept(
    const struct journal *j, const struct journal_retention *keep, uint64_t hold, usec_t now)
{
    uint64_t bytes = journal_disk_bytes(j) - journal_trimmed_bytes(j);
    size_t i = j->n_trimmed;
    for (; all_below(j, i, hold); i++) {
        bool old = keep->max_age && j->segments[i + 1]->last_time < now - keep->max_age;
        if (!old && (!keep->max_bytes || bytes <= keep->max_bytes))
            break;
        bytes -= j->segments[i]->size;
    }
    return i;
}

enum journal_result journal_retain(struct journal *j, const struct journal_retention *keep, usec_t now)
{
    j->n_trimmed = first_kept(j, keep, keep->hold, now);
    segments_reap(j);
    return JOURNAL_OK;
}

uint64_t journal_held_bytes(const struct journal *j, const struct journal_retention *keep, usec_t now)
{
    return bytes_of_segments(j, first_kept(j, keep, keep->hold, now), first_kept(j, keep, UINT64_MAX, now));
}
