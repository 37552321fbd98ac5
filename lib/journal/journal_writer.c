#include "journal/journal_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/statvfs.h>

#define FILL_MIN (UINT64_C(64) << 10)
#define FILL_MAX (UINT64_C(4) << 20)
/* If commits have more bytes on average, writing zeros costs more time than the zeros save. */
#define FILL_COMMIT_MAX ((size_t)128 << 10)
#define USUAL_OF 8 /* the running mean covers about this number of commits */

#define RESERVE_STEP ((size_t)4096)     /* smallest step of an allocation (bytes) */
#define RESERVE_AHEAD ((size_t)4 << 20) /* maximum bytes reserved in addition to the request */
#define GROWN_SEGMENTS 16               /* factor by which a segment grows without room for the next */
#define RETRY_SHARE 8                   /* the next attempt follows after 1/8 of a segment's size */
#define TAIL_SHARE 64                   /* 1/64 of a segment's size may remain unused after the last frame */

size_t journal_write_chunk = (size_t)256 << 10;

/* Latches the writer. Records only the first failure. */
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

static int allocate_range(int fd, uint64_t from, uint64_t end)
{
    return io_allocate(fd, FALLOC_FL_KEEP_SIZE, (off_t)from, (off_t)(end - from));
}

/* Allocates blocks from the end of the reserve up to `end`. The range must not include the reserve, because tmpfs frees
 * all unwritten blocks of a range that it cannot allocate completely. */
static int allocate(struct writer *w, uint64_t end)
{
    if (allocate_range(w->fd, w->reserved > w->position ? w->reserved : w->position, end) != 0)
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

/* Reserves `bytes` bytes after the last frame, or as many bytes as the disk has room for. */
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

/* Reserves `had` bytes, or as many bytes as the disk has room for, unless the file already has them. */
static void hand_on(struct writer *w, uint64_t had)
{
    w->wanted = had;
    if (w->size < w->position + had && w->reserved < w->position + had)
        reserve_most(w, had);
}

/* A segment that is being created. */
struct fresh {
    int fd;
    uint64_t position; /* where its frames begin */
    uint64_t size;     /* size of the spare file; 0: a new file */
    uint64_t filled;   /* end of the written bytes in the spare file */
    uint64_t reserve; /* bytes to reserve after `position`; without room for these bytes the creation fails */
    uint64_t reserved; /* end of the blocks allocated after the file's end; 0: none */
};

/* A file system without fallocate reserves nothing. */
static int reserve_in(struct fresh *f)
{
    uint64_t from = f->size > f->position ? f->size : f->position, end = f->position + f->reserve;
    if (f->reserve == 0 || from >= end)
        return 0;
    if (allocate_range(f->fd, from, end) != 0)
        return errno_is_full(errno) ? -1 : 0;
    f->reserved = end;
    return 0;
}

/* Creates a segment, in the spare file if fresh->size is not 0. Writes header and table, reserves space, syncs, renames
 * the file to the segment's name, and syncs the directory. Returns 0, or -1 with errno (EIO after a failed sync). */
static int create_segment(
    struct journal *j, const struct segment_header *h, struct bytes table, struct fresh *fresh)
{
    static const char end_mark[FRAME_HEADER];
    bool prepared = fresh->size > 0;
    struct buf b = {0};
    buf_reserve(&b, SEGMENT_HEADER);
    segment_header_encode(h, b.ptr);
    b.len = SEGMENT_HEADER;
    struct frame f = {.kind = FRAME_TABLE, .offset = h->base, .time = j->writer.last_time, .payload = table};
    frame_append(&b, &f, &table, 1);
    frame_seal(b.ptr + SEGMENT_HEADER, &(struct frame_place){segment_seed(h), SEGMENT_HEADER, h->durable, 0});
    fresh->position = b.len;
    buf_append(&b, end_mark, h->recycled ? sizeof end_mark : 0);
    char *path = segment_path(j->dir, h->sequence, "");
    char *name = prepared ? dir_path(j->dir, PREALLOC_NAME) : segment_path(j->dir, h->sequence, ".new");
    fresh->fd = io->open(name, O_RDWR | O_CLOEXEC | (prepared ? 0 : O_CREAT | O_TRUNC), IO_PRIVATE_MODE);
    bool failed = fresh->fd < 0 || io_write_all(fresh->fd, b.ptr, b.len, 0) != 0 || reserve_in(fresh) != 0 ||
                  sync_or_eio(io->fdatasync(fresh->fd)) != 0 || io->rename(name, path) != 0 ||
                  sync_or_eio(journal_dir_sync(j)) != 0;
    if (failed && fresh->fd >= 0) {
        int system = errno;
        io->close(fresh->fd);
        io->unlink(name);
        errno = system;
    }
    buf_free(&b);
    free(path);
    free(name);
    return failed ? -1 : 0;
}

/* True if the tail after the last frame is so long that the segment is truncated at its end. This truncation needs no
 * sync, because the tail contains no frame. */
static bool is_cut(const struct journal *j)
{
    const struct writer *w = &j->writer;
    uint64_t whole = w->reserved > w->size ? w->reserved : w->size;
    return w->reserved > w->position || whole > w->position + FRAME_HEADER + j->segment_bytes / TAIL_SHARE;
}

int writer_roll(struct journal *j, uint64_t base, uint64_t reach, uint64_t reserve, struct segment **out)
{
    struct writer *w = &j->writer;
    struct segment_header h = {
        .sequence = w->sequence + 1,
        .base = base,
        .previous_end = w->end,
        .previous_size = w->position,
        .durable = w->durable,
        .reach = reach,
        .created = clock_wall(),
        .latest = w->latest,
        .never = set_never_syncs(j->set),
    };
    memcpy(h.id, j->id, sizeof h.id);
    memcpy(h.boot, j->set->boot, sizeof h.boot);
    memcpy(h.opening, j->opening, sizeof h.opening);
    memcpy(h.previous, w->last_opening, sizeof h.previous);
    if (getentropy(&h.salt, sizeof h.salt) != 0)
        abort();
    struct buf table = {0};
    struct fresh fresh = {.reserve = reserve};
    struct prealloc spare;
    marks_table(&w->marks, &table);
    bool took = prealloc_take(j, &spare), gone = !took, failed = false;
    if (took) {
        h.recycled = spare.recycled;
        fresh.size = spare.size;
        fresh.filled = spare.filled;
        failed = create_segment(j, &h, buf_bytes(&table), &fresh) != 0;
        gone = failed && errno == ENOENT; /* the spare file was deleted from outside */
        prealloc_release(j);
    }
    if (gone) {
        fresh = (struct fresh){.reserve = reserve};
        h.recycled = false;
        failed = create_segment(j, &h, buf_bytes(&table), &fresh) != 0;
    }
    buf_free(&table);
    if (failed)
        return -1;
    if (w->fd >= 0) {
        /* If the truncation fails, the blocks stay in use until the segment is trimmed. */
        if (is_cut(j))
            (void)!io->ftruncate(w->fd, (off_t)w->position);
        io->close(w->fd);
    }
    w->fd = fresh.fd;
    w->sequence = h.sequence;
    w->seed = segment_seed(&h);
    w->base = w->end = base;
    w->latest = 0;
    w->position = w->durable_position = fresh.position;
    w->size = fresh.size > fresh.position ? fresh.size : fresh.position;
    w->filled = fresh.filled > fresh.position ? fresh.filled : fresh.position;
    w->reserved = fresh.reserved;
    w->found = w->retry_roll = 0;
    w->announced = true;
    w->prepared = fresh.size >= j->segment_bytes;
    w->recycled = h.recycled;
    if (w->durable == h.previous_end)
        w->durable = base;
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

/* Allocates the batch's reserve. On a file system without fallocate, nothing is reserved. */
static enum journal_result reserve_behind(struct journal *j, const struct batch *b)
{
    struct writer *w = &j->writer;
    uint64_t end = w->position + b->frames.len + FRAME_HEADER + b->reserve;
    if (b->reserve == 0)
        return JOURNAL_OK;
    w->no_space = false;
    w->found = 0;
    w->wanted = b->reserve;
    /* Reserves more bytes than requested, so that the next appends need no allocation. */
    uint64_t more = b->reserve < RESERVE_AHEAD ? b->reserve : RESERVE_AHEAD;
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

/* Except under JOURNAL_SYNC_NEVER, a segment is synced before the next segment begins, so only the newest segment can
 * have a torn tail. Usually all frames are synced already. Only a batch that was written during the other committer's
 * sync still needs a sync. */
static enum journal_result finish_segment(struct journal *j)
{
    struct writer *w = &j->writer;
    w->wanted = writer_unused_reserve(w);
    if (set_never_syncs(j->set))
        return JOURNAL_OK;
    if (w->durable_position < w->position && io->fdatasync(w->fd) != 0)
        return writer_latch(j, "fdatasync", errno);
    w->durable = w->end;
    return JOURNAL_OK;
}

/* Under JOURNAL_SYNC_NEVER, a commit that crosses a multiple of JOURNAL_HOLE begins a new segment. The header of the
 * new segment contains the end of the commit (`reach`) and is synced before the commit is acknowledged. After a power
 * cut, journal_open therefore makes a hole that ends above all offsets that were read. */
static bool passes_hole(const struct journal *j, const struct batch *b)
{
    return set_never_syncs(j->set) && b->start / JOURNAL_HOLE != b->end / JOURNAL_HOLE;
}

static bool begins_opening(const struct journal *j)
{
    return j->openings_begin_segments && !j->writer.announced;
}

static bool must_roll(struct journal *j, const struct batch *b)
{
    if (b->frames.len == 0)
        return false;
    if (begins_opening(j))
        return true;
    if (b->reserve == 0 && j->writer.no_space)
        return false;
    if (passes_hole(j, b) || b->begins_segment)
        return true;
    if (b->reserve == 0 && j->writer.position < j->writer.found)
        return false;
    if (j->writer.position < j->writer.retry_roll)
        return false;
    if (j->writer.position >= j->segment_bytes)
        return true;
    /* A segment that did not begin in a spare file ends early when a spare file is ready. */
    return !j->writer.prepared && j->writer.position >= j->segment_bytes / 8 && prealloc_is_ready(j);
}

/* True if the disk has room for a second reserve. */
static bool has_room(struct journal *j, uint64_t reserve)
{
    uint64_t spare = prealloc_is_ready(j) ? j->segment_bytes : 0;
    struct statvfs disk;
    return reserve <= spare || fstatvfs(j->dir_fd, &disk) != 0 || disk.f_blocks == 0 ||
           disk.f_bavail * disk.f_frsize >= reserve - spare;
}

/* Begins the next segment. Returns 0 or an errno. */
static int roll(struct journal *j, struct batch *b, uint64_t reserve)
{
    return writer_roll(j, j->writer.end, b->end, reserve, &b->rolled) == 0 ? 0 : errno;
}

static int cut_tail(struct journal *j)
{
    struct writer *w = &j->writer;
    if (io->ftruncate(w->fd, (off_t)w->position) != 0)
        return -1;
    w->size = w->filled = w->position;
    w->reserved = 0;
    return 0;
}

/* The next segment reserves its blocks before the current segment frees its reserve, so that no other program can take
 * the space. If the disk has no room for the next segment's blocks beside the current segment's reserve, the current
 * segment grows up to GROWN_SEGMENTS times its usual size. After that it frees its reserve first, because only whole
 * segments can be trimmed. */
static enum journal_result roll_if_due(struct journal *j, struct batch *b)
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
    enum journal_result r = finish_segment(j);
    if (r != JOURNAL_OK)
        return r;
    b->old_size = is_cut(j) ? w->position : w->size;
    bool must = passes_hole(j, b) || begins_opening(j);
    int why = has_room(j, w->wanted) ? roll(j, b, w->wanted) : ENOSPC;
    bool frees_first =
        why && errno_is_full(why) && (must || w->position >= GROWN_SEGMENTS * j->segment_bytes);
    if (frees_first) {
        if (is_cut(j) && cut_tail(j) != 0)
            return writer_latch(j, "ftruncate", errno);
        why = roll(j, b, 0);
    }
    if (!why)
        return JOURNAL_OK;
    if (!errno_is_full(why) && (passes_hole(j, b) || !errno_is_fd_limit(why)))
        return writer_latch(j, "begin a segment after", why);
    w->retry_roll = w->position + j->segment_bytes / RETRY_SHARE;
    if (frees_first)
        writer_reserve_again(j, b->reserve > w->wanted ? b->reserve : w->wanted);
    return must || (frees_first && b->reserve && errno_is_full(why)) ? JOURNAL_NO_SPACE : JOURNAL_OK;
}

/* Inserts a frame with boot id, opening and sync policy before a session's first batch, if the batch goes into an
 * earlier session's segment. */
static void announce(struct journal *j, struct batch *b)
{
    char payload[OPEN_PAYLOAD];
    struct session session = {.never = set_never_syncs(j->set)};
    memcpy(session.boot, j->set->boot, sizeof session.boot);
    memcpy(session.opening, j->opening, sizeof session.opening);
    open_encode(&session, payload);
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

/* Computes checksums and writes frames in chunks that fit into the processor's cache. In a recycled file, writes zeros
 * after the frames, because old bytes would look like a torn frame. The next write overwrites these zeros. */
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

/* Writes zeros after the batch, as many bytes as the segment already has. The next commits overwrite the zeros, so the
 * syncs of these commits change no metadata. Zeros save time per commit but cost time per byte, so large commits use no
 * zeros. If the disk has no room for zeros, the commit still succeeds. */
static enum journal_result fill_ahead(struct journal *j, uint64_t end)
{
    static const char zeros[1 << 16];
    struct writer *w = &j->writer;
    if (set_never_syncs(j->set) || w->usual >= FILL_COMMIT_MAX || w->filled > end + FRAME_HEADER)
        return JOURNAL_OK;
    uint64_t more = end < FILL_MIN ? FILL_MIN : end > FILL_MAX ? FILL_MAX : end;
    uint64_t target = (end + more) & ~UINT64_C(4095);
    if (target > j->segment_bytes)
        target = j->segment_bytes;
    while (w->filled < target) {
        uint64_t step = target - w->filled < sizeof zeros ? target - w->filled : sizeof zeros;
        if (io_write_all(w->fd, zeros, step, (off_t)w->filled) != 0)
            return errno_is_full(errno) ? JOURNAL_OK : writer_latch(j, "write", errno);
        w->filled += step;
        w->size = w->size < w->filled ? w->filled : w->size;
    }
    return JOURNAL_OK;
}

/* Undoes a write for which the disk had no room. Syncs the truncation, because after a crash the old bytes could become
 * valid frames again when new frames are written before them. */
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

static struct frame_place what_is_synced(const struct journal *j)
{
    const struct writer *w = &j->writer;
    set_lock(j->set);
    struct frame_place place = {w->seed, 0, w->durable, w->durable_position};
    set_unlock(j->set);
    return place;
}

bool writer_only_copies(struct journal *j, const struct batch *b)
{
    return j->writer.announced && !is_latched(j) && !must_roll(j, b);
}

/* Records a written batch: the marks for the next segment's table, and the new end. */
static void note_written(struct journal *j, const struct batch *b, uint64_t end)
{
    struct writer *w = &j->writer;
    struct frame f;
    for (size_t at = 0; at < b->frames.len; at += frame_size(f.name.len, f.payload.len)) {
        frame_decode(bytes_of(b->frames.ptr + at, b->frames.len - at), 0, 0, true, &f);
        if (f.name.len)
            marks_set(&w->marks, f.name, f.mark);
    }
    w->last_time = b->time;
    w->latest = b->latest > w->latest ? b->latest : w->latest;
    w->announced = true;
    if (b->end > b->start)
        memcpy(w->last_opening, j->opening, sizeof w->last_opening);
    set_lock(j->set);
    w->position = end;
    w->end = b->end;
    set_unlock(j->set);
    if (!set_never_syncs(j->set) && w->position >= j->segment_bytes / 8)
        prealloc_request(j);
}

/* True if the writer has failed. has_failed also latches the writer if the filler thread has failed. */
static bool has_failed(struct journal *j)
{
    set_lock(j->set);
    bool latched = j->writer.latched;
    int failed = j->prealloc.failed;
    set_unlock(j->set);
    if (!latched && failed)
        writer_latch(j, "fill the next segment's file", failed);
    return latched || failed;
}

/* Writes the batch after the last frame. Even under JOURNAL_SYNC_NEVER the first commit of a session is synced, so that
 * the boot id and sync policy of the session survive a power cut. */
void writer_write(struct batch *b)
{
    struct journal *j = b->journal;
    struct writer *w = &j->writer;
    enum journal_result r = has_failed(j) ? JOURNAL_LATCHED : roll_if_due(j, b);
    if (r == JOURNAL_OK && b->frames.len > 0) {
        b->sync = !set_never_syncs(j->set) || !w->announced;
        if (!w->announced)
            announce(j, b);
        r = reserve_behind(j, b);
    }
    if (r == JOURNAL_OK && b->frames.len > 0) {
        struct frame_place synced = what_is_synced(j);
        uint64_t end = w->position + b->frames.len, bytes = end - synced.durable_position;
        if (write_sealed(w, &b->frames, &synced) != 0) {
            r = errno_is_full(errno) ? undo_write(j, b->reserve) : writer_latch(j, "write", errno);
        } else {
            w->usual = w->usual ? w->usual - w->usual / USUAL_OF + bytes / USUAL_OF : bytes;
            r = fill_ahead(j, end);
        }
        if (r == JOURNAL_OK)
            note_written(j, b, end);
    }
    b->result = r;
    b->position = w->position;
    b->size = w->size;
}

/* A sync makes all bytes durable that were written before the sync began. A later batch that was written before the
 * sync began needs no second sync. */
void writer_sync(struct batch *b)
{
    struct journal *j = b->journal;
    struct writer *w = &j->writer;
    set_lock(j->set);
    if (b->result == JOURNAL_OK && w->latched)
        b->result = JOURNAL_LATCHED; /* the previous sync failed */
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

/* Syncs the earlier segments, which are not synced yet under JOURNAL_SYNC_NEVER. Returns false after a failed removal
 * of a trimmed segment, because this segment still exists but is not in the list, and cannot be synced. */
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

void writer_state_synced_end(struct journal *j)
{
    const struct writer *w = &j->writer;
    char statement[SYNCED_END];
    synced_end_encode(w->position, w->end, w->seed, statement);
    newest_marker_state(j->dir, j->newest_marker, statement);
}

/* Writes the close frame, which shows that all earlier bytes are synced. The bytes are synced before the frame is
 * written, so the frame is correct even if its own sync fails. The newest marker also shows the synced end, because a
 * truncated file would lose its close frame. Damage to the close frame alone loses no data. */
static void leave_close_frame(struct journal *j)
{
    struct writer *w = &j->writer;
    w->durable = w->end;
    w->durable_position = w->position;
    writer_state_synced_end(j);
    struct frame f = {.kind = FRAME_CLOSE, .offset = w->end, .time = w->last_time};
    struct buf b = {0};
    frame_append(&b, &f, NULL, 0);
    struct frame_place synced = what_is_synced(j);
    uint64_t had = writer_unused_reserve(w);
    uint64_t end = w->position + (write_sealed(w, &b, &synced) == 0 ? b.len : 0);
    buf_free(&b);
    if (w->prepared || io->ftruncate(w->fd, (off_t)end) == 0) {
        w->size = w->prepared ? w->size : end;
        w->position = end;
        w->reserved = 0;
        hand_on(w, had); /* for the next session */
        (void)!io->fdatasync(w->fd);
    }
}

void writer_close(struct journal *j)
{
    struct writer *w = &j->writer;
    if (!w->latched && w->announced && w->fd >= 0 && sync_filled_segments(j) &&
        (w->durable_position >= w->position || io->fdatasync(w->fd) == 0))
        leave_close_frame(j);
    if (w->fd >= 0)
        io->close(w->fd);
    w->fd = -1;
    marks_free(&w->marks);
}
