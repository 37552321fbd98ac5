/* The committer: takes each dirty journal's pending batch, writes it with one pwrite, syncs as the policy says
 * and hands it back. What arrives meanwhile gathers in the next batch, so the slower a sync, the more share it. */
#include "journal_internal.h"

#include "io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

#define FILL_LEAST (UINT64_C(64) << 10)
#define FILL_MOST (UINT64_C(4) << 20)

static bool never(const struct journal_set *set)
{
    return set->config.sync_ms == JOURNAL_SYNC_NEVER;
}

static bool is_no_space(int system)
{
    return system == ENOSPC || system == EDQUOT;
}

static enum journal_result writer_latch(struct journal *j, const char *what, int system)
{
    j->writer.latched = true;
    char *path = segment_path(j->dir, j->writer.sequence, "");
    failure_set(j->writer.failure, path, what, system);
    free(path);
    return JOURNAL_LATCHED;
}

/* ---- the next segment ---- */

static void header_for(const struct journal *j, uint64_t base, uint64_t reach, struct segment_header *h)
{
    const struct writer *w = &j->writer;
    *h = (struct segment_header){
        .sequence = w->sequence + 1,
        .base = base,
        .previous_end = w->end,
        .previous_size = w->position,
        .durable = w->durable,
        .reach = reach,
        .created = clock_wall(),
        .last_time = w->last_time,
        .never = never(j->set),
    };
    memcpy(h->id, j->id, sizeof h->id);
    memcpy(h->boot, j->set->boot, sizeof h->boot);
    if (getentropy(&h->salt, sizeof h->salt) != 0)
        abort();
}

static void writer_enter(struct writer *w, int fd, const struct segment_header *h, uint64_t position)
{
    if (w->fd >= 0)
        io->close(w->fd);
    w->fd = fd;
    w->sequence = h->sequence;
    w->seed = segment_seed(h);
    w->base = w->end = h->base;
    w->position = w->filled = w->durable_position = position;
    w->reserved = 0;
    w->announced = true;
    w->prepared = w->recycled = false;
    if (w->durable == h->previous_end)
        w->durable = h->base;
}

/* In the spare file if there is one (and nobody took it away), else in a new one. */
static int create_next(
    struct journal *j, struct segment_header *h, struct bytes table, struct spare *spare, uint64_t *position)
{
    if (spare_take(j, spare)) {
        h->recycled = spare->recycled;
        int fd = segment_create(j->dir, h, table, true, position);
        int system = errno;
        spare_gone(j);
        errno = system;
        if (fd >= 0 || errno != ENOENT)
            return fd;
    }
    *spare = (struct spare){0};
    h->recycled = false;
    return segment_create(j->dir, h, table, false, position);
}

int writer_roll(struct journal *j, uint64_t base, uint64_t reach, struct segment **out)
{
    struct segment_header h;
    struct buf table = {0};
    struct spare spare;
    struct writer *w = &j->writer;
    uint64_t position;
    header_for(j, base, reach, &h);
    marks_table(&w->marks, &table);
    int fd = create_next(j, &h, buf_bytes(&table), &spare, &position);
    buf_free(&table);
    if (fd < 0)
        return -1;
    writer_enter(w, fd, &h, position);
    w->recycled = h.recycled;
    w->prepared = spare.size >= j->segment_bytes;
    if (spare.size > w->filled)
        w->filled = spare.size;
    *out = segment_new(j->dir, &h);
    (*out)->size = w->filled;
    return 0;
}

/* ---- space for appends that must not fail ---- */

/* Blocks beyond the file's end, so that its bytes stay what they are. */
static int allocate(struct writer *w, uint64_t end)
{
    if (io->fallocate(w->fd, FALLOC_FL_KEEP_SIZE, (off_t)w->position, (off_t)(end - w->position)) != 0)
        return -1;
    w->reserved = end;
    return 0;
}

/* After the file was cut: what that gave back is taken again as far as it is still there. */
static void reserve_again(struct journal *j, size_t bytes)
{
    struct writer *w = &j->writer;
    w->reserved = 0;
    w->no_space = bytes > 0;
    while (bytes >= FRAME_HEADER && allocate(w, w->position + bytes) != 0)
        bytes /= 2;
}

/* Allocates what the batch wants behind it. A file system that cannot do it gets nothing reserved. */
static enum journal_result reserve_behind(struct journal *j, const struct batch *b)
{
    struct writer *w = &j->writer;
    uint64_t end = w->position + b->frames.len + FRAME_HEADER + b->reserve;
    if (b->reserve == 0)
        return JOURNAL_OK;
    w->no_space = false;
    if (w->filled >= end || w->reserved >= end || allocate(w, end + b->reserve) == 0 || allocate(w, end) == 0)
        return JOURNAL_OK;
    if (!is_no_space(errno))
        return JOURNAL_OK;
    spare_drop(j);
    if (allocate(w, end) == 0)
        return JOURNAL_OK;
    w->no_space = true;
    return JOURNAL_NO_SPACE;
}

/* Cuts the zeros off the segment that ends here and, unless the policy is never to sync, makes it durable
 * before anything stands in the next: so only the newest segment can have a torn tail. */
static enum journal_result finish_segment(struct journal *j)
{
    struct writer *w = &j->writer;
    if ((w->filled > w->position || w->reserved > w->position) &&
        io->ftruncate(w->fd, (off_t)w->position) != 0)
        return writer_latch(j, "ftruncate", errno);
    w->filled = w->position;
    w->reserved = 0;
    if (never(j->set))
        return JOURNAL_OK;
    if (io->fdatasync(w->fd) != 0)
        return writer_latch(j, "fdatasync", errno);
    w->durable = w->end;
    return JOURNAL_OK;
}

/* A segment that grows as it is written is left for one that was filled ahead as soon as that is ready. */
static bool better_place_ready(struct journal *j)
{
    const struct writer *w = &j->writer;
    return !w->prepared && w->position >= j->segment_bytes / 8 && spare_is_ready(j);
}

/* Under JOURNAL_SYNC_NEVER a commit that passes a multiple of JOURNAL_HOLE gets a segment of its own, whose
 * header, synced before the commit is shown, says how far it reaches: so the hole that a power cut makes always
 * ends above every offset that was ever shown. */
static bool must_roll(struct journal *j, const struct batch *b)
{
    if (b->frames.len == 0 || (b->reserve == 0 && j->writer.no_space))
        return false;
    return j->writer.position >= j->segment_bytes || better_place_ready(j) ||
           (never(j->set) && b->start / JOURNAL_HOLE != b->end / JOURNAL_HOLE);
}

static enum journal_result roll_when_due(struct journal *j, struct batch *b)
{
    struct writer *w = &j->writer;
    if (!must_roll(j, b))
        return JOURNAL_OK;
    enum journal_result r = finish_segment(j);
    if (r != JOURNAL_OK)
        return r;
    b->old_size = w->position;
    if (writer_roll(j, w->end, b->end, &b->rolled) == 0)
        return JOURNAL_OK;
    if (!is_no_space(errno))
        return writer_latch(j, "begin a segment after", errno);
    reserve_again(j, b->reserve);
    return JOURNAL_NO_SPACE;
}

/* ---- one batch ---- */

/* A session's first frames in a segment that another session made are led by its boot id and policy. */
static void announce(struct journal *j, struct batch *b)
{
    char payload[OPEN_PAYLOAD];
    open_encode(j->set->boot, never(j->set), payload);
    struct bytes piece = bytes_of(payload, sizeof payload);
    struct frame f = {.kind = FRAME_OPEN, .offset = b->start, .time = j->writer.last_time, .payload = piece};
    struct buf whole = {0};
    frame_append(&whole, &f, &piece, 1);
    buf_append_bytes(&whole, buf_bytes(&b->frames));
    for (size_t i = 0; i < b->count; i++)
        if (b->entries[i].frame != SIZE_MAX)
            b->entries[i].frame += frame_size(0, OPEN_PAYLOAD);
    buf_free(&b->frames);
    b->frames = whole;
}

static void seal_frames(struct writer *w, struct batch *b)
{
    for (size_t at = 0; at < b->frames.len;) {
        struct frame_place place = {w->seed, w->position + at, w->durable, w->durable_position};
        at += frame_seal(b->frames.ptr + at, &place);
    }
}

/* Zeros beyond the batch, so that the syncs of the next commits change no metadata. Failing for want of room is
 * no failure: what was asked is written. */
static enum journal_result fill_ahead(struct journal *j, uint64_t end)
{
    static const char zeros[1 << 16];
    struct writer *w = &j->writer;
    if (never(j->set) || w->prepared || w->filled > end + FRAME_HEADER)
        return JOURNAL_OK;
    uint64_t more = end < FILL_LEAST ? FILL_LEAST : end > FILL_MOST ? FILL_MOST : end;
    uint64_t target = (end + more) & ~UINT64_C(4095);
    if (target > j->segment_bytes)
        target = j->segment_bytes;
    while (w->filled < target) {
        uint64_t step = target - w->filled < sizeof zeros ? target - w->filled : sizeof zeros;
        if (io_write_all(w->fd, zeros, step, (off_t)w->filled) != 0)
            return is_no_space(errno) ? JOURNAL_OK : writer_latch(j, "write", errno);
        w->filled += step;
    }
    return JOURNAL_OK;
}

/* Takes back a write that found no room. What it left behind would be valid frames once the bytes before them are
 * written again, so the file is cut and the cut made durable before anything else is written. */
static enum journal_result undo_write(struct journal *j, size_t reserve)
{
    struct writer *w = &j->writer;
    if (io->ftruncate(w->fd, (off_t)w->position) != 0)
        return writer_latch(j, "ftruncate", errno);
    if (io->fsync(w->fd) != 0)
        return writer_latch(j, "fsync", errno);
    w->filled = w->position;
    spare_drop(j);
    reserve_again(j, reserve);
    return JOURNAL_NO_SPACE;
}

/* Under JOURNAL_SYNC_NEVER the first commit of a session is synced all the same, so that its announcement
 * outlives a power cut. Everything before it was synced when the journal was opened. */
static bool must_sync(const struct journal *j)
{
    return !never(j->set) || !j->writer.announced;
}

static void written(struct writer *w, struct batch *b)
{
    struct frame f;
    size_t size;
    for (size_t at = 0; at < b->frames.len; at += size) {
        struct bytes rest = bytes_of(b->frames.ptr + at, b->frames.len - at);
        frame_decode(rest, 0, 0, true, &f);
        size = frame_size(f.name.len, f.payload.len);
        if (f.name.len)
            marks_commit(&w->marks, f.name, f.mark);
    }
    w->position += b->frames.len;
    w->end = b->end;
    w->last_time = b->time;
    w->announced = true;
}

/* In a recycled file the frames are followed by as many zeros as end a segment, or what stood there before would look
 * like a torn frame. The next write overwrites them. */
static int write_ended(struct writer *w, struct buf *frames)
{
    size_t tail = w->recycled ? FRAME_HEADER : 0;
    buf_reserve(frames, tail);
    memset(frames->ptr + frames->len, 0, tail);
    uint64_t end = w->position + frames->len + tail;
    if (io_write_all(w->fd, frames->ptr, frames->len + tail, (off_t)w->position) != 0)
        return -1;
    if (w->filled < end)
        w->filled = end;
    return 0;
}

static enum journal_result write_frames(struct journal *j, struct batch *b)
{
    struct writer *w = &j->writer;
    if (!w->announced)
        announce(j, b);
    enum journal_result r = reserve_behind(j, b);
    if (r != JOURNAL_OK)
        return r;
    seal_frames(w, b);
    if (write_ended(w, &b->frames) != 0)
        return is_no_space(errno) ? undo_write(j, b->reserve) : writer_latch(j, "write", errno);
    r = fill_ahead(j, w->position + b->frames.len);
    if (r != JOURNAL_OK)
        return r;
    bool sync = must_sync(j);
    if (sync && io->fdatasync(w->fd) != 0)
        return writer_latch(j, "fdatasync", errno);
    written(w, b);
    if (sync) {
        w->durable = w->end;
        w->durable_position = w->position;
    }
    if (!never(j->set) && w->position >= j->segment_bytes / 8)
        spare_ask(j);
    return JOURNAL_OK;
}

static void commit_batch(struct journal *j, struct batch *b)
{
    int failed = spare_failed(j);
    if (j->writer.latched)
        b->result = JOURNAL_LATCHED;
    else if (failed)
        b->result = writer_latch(j, "fill the next segment's file", failed);
    else
        b->result = roll_when_due(j, b);
    if (b->result == JOURNAL_OK && b->frames.len > 0)
        b->result = write_frames(j, b);
    b->size = j->writer.filled;
}

/* ---- the thread ---- */

static struct timespec monotonic_at(usec_t t)
{
    return (struct timespec){.tv_sec = t / USEC_PER_SEC, .tv_nsec = t % USEC_PER_SEC * 1000};
}

/* Under the lock: waits for work and, with sync_ms, until the next sync is due. False: stop. */
static bool wait_for_work(struct journal_set *set, usec_t not_before)
{
    struct timespec due = monotonic_at(not_before);
    for (;;) {
        if (!set->dirty && set->stop)
            return false;
        if (set->dirty && (set->hurry || set->stop || clock_monotonic() >= not_before))
            return true;
        set->committer_waits = !set->dirty;
        if (set->dirty)
            pthread_cond_timedwait(&set->work, &set->lock, &due);
        else
            pthread_cond_wait(&set->work, &set->lock);
        set->committer_waits = false;
    }
}

/* Under the lock: the pending batches of all dirty journals, in a list. */
static struct batch *take_dirty(struct journal_set *set)
{
    struct batch *first = NULL, **tail = &first;
    for (struct journal *j = set->dirty; j; j = j->next_dirty) {
        j->dirty = false;
        if (!j->pending || j->halted)
            continue;
        *tail = j->pending;
        tail = &j->pending->next;
        j->pending = NULL;
    }
    set->dirty = NULL;
    set->dirty_tail = &set->dirty;
    return first;
}

/* From here on the batch and, unless the owner appends again, its journal are the owner's. */
static void hand_back(struct journal_set *set, struct batch *b)
{
    pthread_mutex_lock(&set->lock);
    if (b->result != JOURNAL_OK)
        b->journal->halted = true;
    bool was_empty = !set->finished;
    b->next = NULL;
    *set->finished_tail = b;
    set->finished_tail = &b->next;
    set_announce(set, was_empty);
    pthread_mutex_unlock(&set->lock);
    if (was_empty)
        set->config.notify(set->config.notify_arg);
}

void *committer_main(void *arg)
{
    struct journal_set *set = arg;
    usec_t not_before = 0;
    for (;;) {
        pthread_mutex_lock(&set->lock);
        bool go = wait_for_work(set, not_before);
        struct batch *b = go ? take_dirty(set) : NULL;
        pthread_mutex_unlock(&set->lock);
        if (!go)
            return NULL;
        if (set->config.sync_ms > 0)
            not_before = clock_monotonic() + set->config.sync_ms * USEC_PER_MSEC;
        while (b) {
            struct batch *next = b->next;
            commit_batch(b->journal, b);
            hand_back(set, b);
            b = next;
        }
    }
}

/* Under JOURNAL_SYNC_NEVER the segments that this session filled were never synced. */
static bool sync_filled_segments(struct journal *j)
{
    for (size_t i = j->doomed; i + 1 < j->n_segments; i++) {
        if (j->segments[i]->end <= j->writer.durable)
            continue;
        int fd = io->open(j->segments[i]->path, O_RDWR | O_CLOEXEC, 0);
        bool synced = fd >= 0 && io->fdatasync(fd) == 0;
        if (fd >= 0)
            io->close(fd);
        if (!synced)
            return false;
    }
    return true;
}

/* What is written and not known to be synced is synced first: so the end-of-session frame says only what is true,
 * whatever becomes of the sync that is for itself. */
static bool sync_what_is_written(struct journal *j)
{
    struct writer *w = &j->writer;
    if (!sync_filled_segments(j))
        return false;
    if (w->durable_position < w->position && io->fdatasync(w->fd) != 0)
        return false;
    w->durable = w->end;
    w->durable_position = w->position;
    return true;
}

static void leave_close_frame(struct journal *j)
{
    struct writer *w = &j->writer;
    struct frame f = {.kind = FRAME_CLOSE, .offset = w->end, .time = w->last_time};
    struct buf b = {0};
    frame_append(&b, &f, NULL, 0);
    struct frame_place place = {w->seed, w->position, w->durable, w->durable_position};
    frame_seal(b.ptr, &place);
    uint64_t end = w->position + (write_ended(w, &b) == 0 ? b.len : 0);
    buf_free(&b);
    if (w->prepared || io->ftruncate(w->fd, (off_t)end) == 0)
        (void)!io->fdatasync(w->fd);
}

void writer_close(struct journal *j)
{
    struct writer *w = &j->writer;
    if (!w->latched && w->announced && w->fd >= 0 && sync_what_is_written(j))
        leave_close_frame(j);
    if (w->fd >= 0)
        io->close(w->fd);
    w->fd = -1;
    marks_free(&w->marks);
}
