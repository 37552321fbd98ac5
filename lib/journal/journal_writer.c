#include "journal/journal_writer.h"

#include "journal/journal_handoff.h"
#include "journal/journal_newest_marker.h"
#include "journal/journal_prealloc.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/random.h>

#define FILL_MIN (UINT64_C(64) << 10)
#define FILL_MAX (UINT64_C(4) << 20)
#define FILL_WORTH                                                                                           \
    ((size_t)128 << 10) /* mean bytes of a commit from which on zeros cost more than they save */
#define USUAL_OF 8      /* commits in the running mean, about */

#define RESERVE_STEP ((size_t)4096)        /* the smallest reserve worth a system call */
#define RESERVE_AHEAD ((size_t)4 << 20)    /* reserved beyond the request, at most */
#define NEXT_HEAD_MIN ((uint64_t)16 << 10) /* of a segment's header without marks, with whole pages */
#define NEXT_MARK_MAX ((uint64_t)NAME_LEN_MAX + 32) /* of a mark in it */
#define TAIL_SHARE 64 /* of a segment: unused bytes that may stay behind its end */

size_t journal_write_chunk = (size_t)256 << 10;

/* Keeps the first failure. */
static enum journal_result writer_latch(struct journal *j, const char *what, int system)
{
    char *path = segment_path(j->dir, j->writer.sequence, "");
    set_lock(j->set);
    if (!j->writer.latched)
        failure_set(j->writer.failure, path, what, system);
    j->writer.latched = true;
    set_unlock(j->set);
    free(path);
    return JOURNAL_LATCHED;
}

static bool is_latched(const struct journal *j)
{
    set_lock(j->set);
    bool is = j->writer.latched;
    set_unlock(j->set);
    return is;
}

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
        .never = set_never_syncs(j->set),
    };
    memcpy(h->id, j->id, sizeof h->id);
    memcpy(h->boot, j->set->boot, sizeof h->boot);
    if (getentropy(&h->salt, sizeof h->salt) != 0)
        abort();
}

/* Allocates blocks beyond the file's end, and only those not yet reserved: if tmpfs cannot allocate a whole range, it
 * frees all of the range that was not written. */
static int allocate(struct writer *w, uint64_t end)
{
    uint64_t from = w->reserved > w->position ? w->reserved : w->position;
    if (io_allocate(w->fd, FALLOC_FL_KEEP_SIZE, (off_t)from, (off_t)(end - from)) != 0)
        return -1;
    w->reserved = end;
    return 0;
}

uint64_t writer_unused_reserve(const struct writer *w)
{
    uint64_t end = w->reserved > w->size ? w->reserved : w->size;
    uint64_t left = end > w->position ? end - w->position : 0;
    return left < w->wanted ? left : w->wanted;
}

/* Reserves so many bytes behind the last frame, or as many as there are. */
static void reserve_most(struct writer *w, uint64_t bytes)
{
    uint64_t end = w->position + bytes, at = w->position;
    for (uint64_t step = bytes; at < end && step >= RESERVE_STEP;) {
        uint64_t next = end - at < step ? end : at + step;
        if (allocate(w, next) == 0)
            at = next;
        else
            step /= 2;
    }
}

/* Carries the reserve over to the segment that begins. */
static void hand_on(struct writer *w, uint64_t had)
{
    w->wanted = had;
    if (w->size < w->position + had)
        reserve_most(w, had);
}

static void writer_enter(struct writer *w, int fd, const struct segment_header *h, uint64_t position)
{
    if (w->fd >= 0)
        io->close(w->fd);
    w->fd = fd;
    w->sequence = h->sequence;
    w->seed = segment_seed(h);
    w->base = w->end = h->base;
    w->position = w->size = w->filled = w->durable_position = position;
    w->reserved = w->found = 0;
    w->announced = true;
    w->prepared = w->recycled = false;
    if (w->durable == h->previous_end)
        w->durable = h->base;
}

/* In the spare file if there is one, else in a new file. ENOENT: somebody removed the spare file. */
static int create_next(struct journal *j, struct segment_header *h, struct bytes table,
    struct prealloc *spare, uint64_t *position)
{
    struct new_segment n = {.dir = j->dir, .dir_fd = j->dir_fd, .header = h, .table = table};
    if (prealloc_take(j, spare)) {
        h->recycled = spare->recycled;
        n.prepared = true;
        int fd = segment_create(&n, position);
        int system = errno;
        prealloc_release(j);
        errno = system;
        if (fd >= 0 || errno != ENOENT)
            return fd;
    }
    *spare = (struct prealloc){0};
    h->recycled = false;
    n.prepared = false;
    return segment_create(&n, position);
}

int writer_roll(struct journal *j, uint64_t base, uint64_t reach, struct segment **out)
{
    struct segment_header h;
    struct buf table = {0};
    struct prealloc spare;
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
    if (spare.size > w->size)
        w->size = spare.size;
    if (spare.filled > w->filled)
        w->filled = spare.filled;
    hand_on(w, w->wanted);
    *out = segment_new(j->dir, &h);
    (*out)->size = w->size;
    j->newest_marker = newest_marker_write(j->dir, j->newest_marker, h.sequence);
    return 0;
}

void writer_reserve_again(struct journal *j, uint64_t bytes)
{
    struct writer *w = &j->writer;
    w->reserved = 0;
    w->no_space = bytes > 0;
    w->wanted = bytes;
    reserve_most(w, bytes);
}

/* Allocates the batch's reserve. A file system without fallocate reserves nothing. */
static enum journal_result reserve_behind(struct journal *j, const struct batch *b)
{
    struct writer *w = &j->writer;
    uint64_t end = w->position + b->frames.len + FRAME_HEADER + b->reserve;
    if (b->reserve == 0)
        return JOURNAL_OK;
    w->no_space = false;
    w->found = 0;
    w->wanted = b->reserve;
    uint64_t more =
        b->reserve < RESERVE_AHEAD ? b->reserve : RESERVE_AHEAD; /* so that not every append allocates */
    if (w->size >= end || w->reserved >= end || allocate(w, end + more) == 0 || allocate(w, end) == 0)
        return JOURNAL_OK;
    if (!errno_is_full(errno))
        return JOURNAL_OK;
    prealloc_discard(j);
    if (allocate(w, end) == 0)
        return JOURNAL_OK;
    w->no_space = true;
    return JOURNAL_NO_SPACE;
}

/* Cuts unused bytes behind the segment's end if there are enough of them. The cut need not be durable: they hold no
 * frame. */
static bool cut_what_is_left(struct journal *j)
{
    struct writer *w = &j->writer;
    uint64_t whole = w->reserved > w->size ? w->reserved : w->size;
    if (w->reserved <= w->position && whole <= w->position + FRAME_HEADER + j->segment_bytes / TAIL_SHARE)
        return true;
    w->size = w->filled = w->position;
    return io->ftruncate(w->fd, (off_t)w->position) == 0;
}

/* Except under JOURNAL_SYNC_NEVER, a segment is durable before the next one begins: so only the newest can have a
 * torn tail. A sync is needed only for a batch that was written during the other committer's sync. */
static enum journal_result finish_segment(struct journal *j)
{
    struct writer *w = &j->writer;
    w->wanted = writer_unused_reserve(w);
    if (!cut_what_is_left(j))
        return writer_latch(j, "ftruncate", errno);
    w->reserved = 0;
    if (set_never_syncs(j->set))
        return JOURNAL_OK;
    if (w->durable_position < w->position && io->fdatasync(w->fd) != 0)
        return writer_latch(j, "fdatasync", errno);
    w->durable = w->end;
    return JOURNAL_OK;
}

/* Under JOURNAL_SYNC_NEVER a commit that passes a multiple of JOURNAL_HOLE gets a segment of its own. The segment's
 * header is synced before the commit is acknowledged and states its reach, so a hole always ends above every offset
 * that was ever read. */
static bool passes_hole(const struct journal *j, const struct batch *b)
{
    return set_never_syncs(j->set) && b->start / JOURNAL_HOLE != b->end / JOURNAL_HOLE;
}

static bool must_roll(struct journal *j, const struct batch *b)
{
    if (b->frames.len == 0 || (b->reserve == 0 && j->writer.no_space))
        return false;
    if (passes_hole(j, b))
        return true;
    if (b->reserve == 0 && j->writer.position < j->writer.found)
        return false;
    if (j->writer.position >= j->segment_bytes)
        return true;
    /* A segment that was not prepared ends early, as soon as a prepared file is ready. */
    return !j->writer.prepared && j->writer.position >= j->segment_bytes / 8 && prealloc_is_ready(j);
}

/* Whether the current segment's file has room for the batch and its reserve. */
static bool finds_room(struct journal *j, const struct batch *b)
{
    struct writer *w = &j->writer;
    uint64_t end = w->position + b->frames.len + FRAME_HEADER + b->reserve;
    if (w->reserved >= end || allocate(w, end) == 0 || !errno_is_full(errno))
        return true;
    prealloc_discard(j);
    return allocate(w, end) == 0;
}

/* Whether the next segment's header and table fit beside the reserve, of which they must not take. A batch that uses the
 * reserve stays in the current segment otherwise. */
static bool can_carry_reserve(struct journal *j, const struct batch *b)
{
    struct writer *w = &j->writer;
    uint64_t head = NEXT_HEAD_MIN + w->marks.count * NEXT_MARK_MAX;
    uint64_t end = w->position + b->frames.len + FRAME_HEADER + writer_unused_reserve(w) + head;
    return b->reserve || w->wanted == 0 || passes_hole(j, b) || prealloc_is_ready(j) || w->reserved >= end ||
           allocate(w, end) == 0 || !errno_is_full(errno);
}

static enum journal_result roll_when_due(struct journal *j, struct batch *b)
{
    struct writer *w = &j->writer;
    if (!must_roll(j, b))
        return JOURNAL_OK;
    set_lock(j->set);
    while (j->set->syncing)
        set_wait_while_syncing(j->set);
    set_unlock(j->set);
    if (is_latched(j))
        return JOURNAL_LATCHED;
    if (w->no_space && b->reserve && !prealloc_is_ready(j) && !finds_room(j, b))
        return JOURNAL_NO_SPACE; /* keep this segment's reserve: the next segment would find no room either */
    if (!can_carry_reserve(j, b))
        return JOURNAL_OK;
    enum journal_result r = finish_segment(j);
    if (r != JOURNAL_OK)
        return r;
    b->old_size = w->size;
    if (writer_roll(j, w->end, b->end, &b->rolled) == 0)
        return JOURNAL_OK;
    if (errno_is_fd_limit(errno) && !passes_hole(j, b)) { /* nothing was created: this segment grows */
        hand_on(w, w->wanted);
        return JOURNAL_OK;
    }
    if (!errno_is_full(errno))
        return writer_latch(j, "begin a segment after", errno);
    writer_reserve_again(j, b->reserve > w->wanted ? b->reserve : w->wanted);
    return JOURNAL_NO_SPACE;
}

/* A session's first batch in an earlier session's segment begins with a frame of its boot id and policy. */
static void announce(struct journal *j, struct batch *b)
{
    char payload[OPEN_PAYLOAD];
    open_encode(j->set->boot, set_never_syncs(j->set), payload);
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

/* Seals and writes chunk by chunk, while the chunk is in the processor's cache. In a recycled file the frames are
 * followed by the zeros that end a segment, or old bytes would look like a torn frame. The next write overwrites
 * them. */
static int write_sealed(struct writer *w, struct buf *frames, const struct frame_place *synced)
{
    struct frame_place place = *synced;
    size_t tail = w->recycled ? FRAME_HEADER : 0;
    buf_reserve(frames, tail);
    memset(frames->ptr + frames->len, 0, tail);
    for (size_t done = 0, at = 0; done < frames->len; done = at) {
        while (at < frames->len && at - done < journal_write_chunk) {
            place.position = w->position + at;
            at += frame_seal(frames->ptr + at, &place);
        }
        size_t n = at - done + (at == frames->len ? tail : 0);
        if (io_write_all(w->fd, frames->ptr + done, n, (off_t)(w->position + done)) != 0)
            return -1;
    }
    uint64_t end = w->position + frames->len + tail;
    w->filled = w->filled < end ? end : w->filled;
    w->size = w->size < end ? end : w->size;
    return 0;
}

/* Zeros reach as far again as the segment holds: a small journal stays small. */
static uint64_t fill_target(const struct journal *j, uint64_t end)
{
    uint64_t more = end < FILL_MIN ? FILL_MIN : end > FILL_MAX ? FILL_MAX : end;
    uint64_t target = (end + more) & ~UINT64_C(4095);
    return target < j->segment_bytes ? target : j->segment_bytes;
}

/* Writes zeros behind the batch, so that the next commits' syncs change no metadata. That saves time per commit and
 * costs time per byte, so it stops when commits are usually large. Missing space is no failure here: the batch itself
 * is written. */
static enum journal_result fill_ahead(struct journal *j, uint64_t end)
{
    static const char zeros[1 << 16];
    struct writer *w = &j->writer;
    if (set_never_syncs(j->set) || w->usual >= FILL_WORTH || w->filled > end + FRAME_HEADER)
        return JOURNAL_OK;
    uint64_t target = fill_target(j, end);
    while (w->filled < target) {
        uint64_t step = target - w->filled < sizeof zeros ? target - w->filled : sizeof zeros;
        if (io_write_all(w->fd, zeros, step, (off_t)w->filled) != 0)
            return errno_is_full(errno) ? JOURNAL_OK : writer_latch(j, "write", errno);
        w->filled += step;
        w->size = w->size < w->filled ? w->filled : w->size;
    }
    return JOURNAL_OK;
}

/* Undoes a write that found no room. The bytes it left could become valid frames once the bytes before them are
 * written again, so the file is cut and the cut synced first. */
static enum journal_result undo_write(struct journal *j, size_t reserve)
{
    struct writer *w = &j->writer;
    uint64_t had = writer_unused_reserve(w);
    if (io->ftruncate(w->fd, (off_t)w->position) != 0)
        return writer_latch(j, "ftruncate", errno);
    if (io->fsync(w->fd) != 0)
        return writer_latch(j, "fsync", errno);
    w->size = w->filled = w->position;
    prealloc_discard(j);
    writer_reserve_again(j, reserve > had ? reserve : had);
    return JOURNAL_NO_SPACE;
}

static void written(struct journal *j, struct batch *b)
{
    struct writer *w = &j->writer;
    struct frame f;
    size_t size;
    for (size_t at = 0; at < b->frames.len; at += size) {
        struct bytes rest = bytes_of(b->frames.ptr + at, b->frames.len - at);
        frame_decode(rest, 0, 0, true, &f);
        size = frame_size(f.name.len, f.payload.len);
        if (f.name.len)
            marks_commit(&w->marks, f.name, f.mark);
    }
    w->last_time = b->time;
    w->announced = true;
    set_lock(j->set);
    w->position += b->frames.len;
    w->end = b->end;
    set_unlock(j->set);
}

static struct frame_place what_is_synced(const struct journal *j)
{
    const struct writer *w = &j->writer;
    set_lock(j->set);
    struct frame_place place = {w->seed, 0, w->durable, w->durable_position};
    set_unlock(j->set);
    return place;
}

static enum journal_result write_frames(struct journal *j, struct batch *b)
{
    struct writer *w = &j->writer;
    /* Under JOURNAL_SYNC_NEVER a session's first commit is synced all the same, so that its boot id and policy survive a power
     * cut. */
    b->sync = !set_never_syncs(j->set) || !w->announced;
    if (!w->announced)
        announce(j, b);
    enum journal_result r = reserve_behind(j, b);
    if (r != JOURNAL_OK)
        return r;
    struct frame_place synced = what_is_synced(j);
    if (write_sealed(w, &b->frames, &synced) != 0)
        return errno_is_full(errno) ? undo_write(j, b->reserve) : writer_latch(j, "write", errno);
    uint64_t end = w->position + b->frames.len;
    uint64_t bytes = end - synced.durable_position;
    w->usual = w->usual ? w->usual - w->usual / USUAL_OF + bytes / USUAL_OF : bytes;
    r = fill_ahead(j, end);
    if (r != JOURNAL_OK)
        return r;
    written(j, b);
    if (!set_never_syncs(j->set) && w->position >= j->segment_bytes / 8)
        prealloc_request(j);
    return JOURNAL_OK;
}

bool writer_only_copies(struct journal *j, const struct batch *b)
{
    return j->writer.announced && !is_latched(j) && !must_roll(j, b);
}

void writer_write(struct batch *b)
{
    struct journal *j = b->journal;
    int failed = prealloc_error(j);
    if (is_latched(j))
        b->result = JOURNAL_LATCHED;
    else if (failed)
        b->result = writer_latch(j, "fill the next segment's file", failed);
    else
        b->result = roll_when_due(j, b);
    if (b->result == JOURNAL_OK && b->frames.len > 0)
        b->result = write_frames(j, b);
    b->position = j->writer.position;
    b->size = j->writer.size;
}

/* A sync covers all bytes written before it began, perhaps more than this batch: then the next batches need no sync. */
void writer_sync(struct batch *b)
{
    struct journal *j = b->journal;
    struct writer *w = &j->writer;
    set_lock(j->set);
    if (b->result == JOURNAL_OK && w->latched)
        b->result = JOURNAL_LATCHED; /* the sync before it failed */
    bool needed = b->result == JOURNAL_OK && b->sync && b->position > w->durable_position;
    uint64_t end = w->end, position = w->position;
    set_unlock(j->set);
    if (!needed)
        return;
    if (io->fdatasync(w->fd) != 0) {
        b->result = writer_latch(j, "fdatasync", errno);
        return;
    }
    set_lock(j->set);
    w->durable = end;
    w->durable_position = position;
    j->set->syncs++;
    set_unlock(j->set);
}

/* Under JOURNAL_SYNC_NEVER this session's earlier segments were never synced. A trimmed segment that could not be
 * removed is no longer in the list, so it cannot be synced. */
static bool sync_filled_segments(struct journal *j)
{
    if (set_never_syncs(j->set) && j->unlink_failed)
        return false;
    for (size_t i = j->n_trimmed; i + 1 < j->n_segments; i++) {
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

/* Syncs everything before the close frame is written: the frame is true even if its own sync fails. */
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
    struct frame_place synced = what_is_synced(j);
    uint64_t had = writer_unused_reserve(w),
             end = w->position + (write_sealed(w, &b, &synced) == 0 ? b.len : 0);
    buf_free(&b);
    if (w->prepared || io->ftruncate(w->fd, (off_t)end) == 0) {
        w->size = w->prepared ? w->size : end;
        w->position = end;
        w->reserved = 0;
        hand_on(w, had); /* to the next session */
        (void)!io->fdatasync(w->fd);
    }
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
