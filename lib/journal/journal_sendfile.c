#include "journal/journal_internal.h"

#include <assert.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>

#define CHUNK_MAX ((size_t)256 << 10)

unsigned journal_shared_files_max = 32;
static atomic_uint shared_files;

struct journal_file {
    unsigned refs;
    int fd;
    struct segment *segment; /* NULL: removed */
};

int journal_file_fd(const struct journal_file *f)
{
    return f->fd;
}

struct journal_file *journal_file_hold(struct journal_file *f)
{
    assert(f->refs > 0);
    f->refs++;
    return f;
}

void journal_file_release(struct journal_file *f)
{
    assert(f->refs > 0);
    if (--f->refs > 0)
        return;
    if (f->segment)
        f->segment->file = NULL;
    atomic_fetch_sub(&shared_files, 1);
    io->close(f->fd);
    free(f);
}

void segment_detach_file(struct segment *s)
{
    if (s->file)
        s->file->segment = NULL;
    s->file = NULL;
}

/* Returns the change time of the file, which every write updates; 0 if unknown. */
static uint64_t stamp_of(int fd)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return 0;
    return (uint64_t)st.st_ctim.tv_sec * 1000000000u + (uint64_t)st.st_ctim.tv_nsec;
}

bool journal_file_is_unchanged(const struct journal_file *f, uint64_t stamp)
{
    return stamp != 0 && stamp_of(f->fd) == stamp;
}

/* Adds the frame at the cursor as a span, without the bytes before the job's offset. Returns false if this frame would
 * make the spans too small on average. The next read begins with this frame, or the current read copies it. */
static bool take_frame(struct job *job, const struct frame *f)
{
    struct cursor *c = job->cursor;
    struct span_read *l = &job->spans;
    uint64_t from = job->offset + l->bytes;
    if (c->offset + frame_advance(f) <= from) {
        cursor_skip(c, f);
        return true;
    }
    if (l->bytes + f->payload.len < (l->n + 1) * JOURNAL_SPAN_MIN)
        return false;
    if (l->n == 0)
        job->time = f->time;
    size_t skip = (size_t)(from - c->offset);
    struct bytes payload = bytes_of(f->payload.ptr + skip, f->payload.len - skip);
    *ARRAY_ADD(l->spans, l->n, l->cap) = (struct journal_span){
        .offset = from,
        .position = c->position + FRAME_HEADER + f->name.len + skip,
        .len = payload.len,
        .count = l->how.count ? l->how.count(payload) : 0,
    };
    l->bytes += payload.len;
    cursor_skip(c, f);
    return true;
}

/* Without a free descriptor, returns false, so that the frames are copied. Reads the stamp before the bytes, so that
 * the stamp also shows a change during the read. */
bool spans_fill(struct job *job, enum cursor_status *status)
{
    struct cursor *c = job->cursor;
    struct span_read *l = &job->spans;
    if (cursor_is_inside(c) || (l->fd = fcntl(c->fd, F_DUPFD_CLOEXEC, 0)) < 0)
        return false;
    l->stamp = stamp_of(l->fd);
    while (*status == CURSOR_FRAME && c->offset < job->limit && l->bytes < JOURNAL_SPANS_MAX) {
        struct frame f;
        uint64_t left = job->limit - c->offset, wanted = JOURNAL_SPANS_MAX - l->bytes;
        size_t chunk = (size_t)(left < wanted ? left : wanted) + (JOURNAL_SPAN_MIN >> 2);
        c->chunk = chunk < CHUNK_MAX ? chunk : CHUNK_MAX;
        *status = cursor_peek(c, &f);
        if (*status == CURSOR_FRAME && !take_frame(job, &f))
            break;
    }
    if (l->n == 0)
        buf_reserve(&job->out, l->how.max_bytes);
    return l->n > 0 || *status != CURSOR_FRAME;
}

/* Reads that are in progress may exceed the limit on shared files by a few files. */
bool file_may_share(const struct segment *s)
{
    return s->file || atomic_load(&shared_files) < journal_shared_files_max;
}

/* All callers that use the file of the same segment share one descriptor. */
void spans_answer(struct job *job, struct journal_window *w)
{
    struct span_read *l = &job->spans;
    struct segment *s = job->segment;
    if (l->n == 0 || w->result != JOURNAL_OK)
        return;
    w->spans = l->spans;
    w->n_spans = l->n;
    w->stamp = l->stamp;
    s->shared = true;
    if (s->file) {
        w->file = journal_file_hold(s->file);
        return;
    }
    atomic_fetch_add(&shared_files, 1);
    w->file = s->file = mem_alloc(sizeof *s->file);
    *s->file = (struct journal_file){.refs = 1, .fd = l->fd, .segment = s};
    l->fd = -1;
}
