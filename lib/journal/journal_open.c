/* Opening judges what is on disk first, and changes it only then.
 *
 * It reads every segment's header and refuses a newer version, a foreign id or a gap. It verifies the newest segment frame by
 * frame; under JOURNAL_SYNC_NEVER also all segments that were not known to be synced when the newest was created, unless the
 * newest ends in a close frame. The first place without a valid frame is the end, unless a later intact frame or header says
 * that this place was durable: then it is damage. So is a newest marker above the last segment. */
#include "journal/journal_open.h"

#include "base/io.h"
#include "base/log.h"
#include "journal/journal_dir.h"
#include "journal/journal_handoff.h"
#include "journal/journal_newest_marker.h"
#include "journal/journal_poll.h"
#include "journal/journal_repair_note.h"
#include "journal/journal_segment_list.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>

#define SEGMENT_DEFAULT (UINT64_C(64) << 20)
#define PRODUCERS_DEFAULT 4096
#define RESERVED_MIN ((uint64_t)32 << 10) /* fewer blocks beyond a file's end are the file system's own */

struct opening {
    struct journal *j;
    char *error;
    size_t error_size;
    struct segment_header *headers;
    size_t count;
    size_t first;           /* the first segment to verify */
    size_t last;            /* the segment in which the journal ends */
    uint64_t end, position; /* where */
    uint64_t synced;        /* in that segment, up to which a frame says it was synced */
    bool ends_in_zeros;     /* zeros or the file's end follow */
    usec_t last_time;
    uint8_t boot[16]; /* of the last session */
    bool never, clean;
    bool repairs; /* missing newest segments are given up */
};

static enum journal_result refuse(
    struct opening *o, enum journal_result r, const char *path, const char *what, int system)
{
    char text[JOURNAL_ERROR_TEXT];
    failure_set(text, path, what, system);
    snprintf(o->error, o->error_size, "%s", text);
    return r == JOURNAL_IO && errno_is_fd_limit(system) ? JOURNAL_NO_DESCRIPTORS : r;
}

static enum journal_result refuse_segment(
    struct opening *o, enum journal_result r, size_t i, const char *what, int system)
{
    char *path = segment_path(o->j->dir, o->headers[i].sequence, "");
    refuse(o, r, path, what, system);
    free(path);
    return r;
}

static enum journal_result list_segments(struct opening *o)
{
    uint64_t *sequences = segments_list(o->j->dir, &o->count);
    if (!sequences)
        return refuse(o, JOURNAL_IO, o->j->dir, "cannot open", errno);
    o->headers = mem_zalloc((o->count + 1) * sizeof *o->headers);
    for (size_t i = 0; i < o->count; i++)
        o->headers[i].sequence = sequences[i];
    free(sequences);
    return JOURNAL_OK;
}

static enum journal_result read_header(struct opening *o, size_t i)
{
    struct segment_header *h = &o->headers[i];
    uint64_t sequence = h->sequence;
    enum header_status status;
    if (segment_read_header(o->j->dir, sequence, h, &status) != 0)
        return refuse_segment(o, JOURNAL_IO, i, "cannot read", errno);
    h->sequence = sequence;
    if (status == HEADER_NEWER)
        return refuse_segment(o, JOURNAL_NEWER, i, "written by a newer version of millrace", 0);
    if (status != HEADER_OK)
        return refuse_segment(o, JOURNAL_DAMAGED, i, "damaged at byte 0: no segment header", 0);
    return JOURNAL_OK;
}

static enum journal_result check_neighbours(struct opening *o, size_t i)
{
    const struct segment_header *before = &o->headers[i - 1], *h = &o->headers[i];
    if (memcmp(h->id, before->id, sizeof h->id) != 0)
        return refuse_segment(o, JOURNAL_DAMAGED, i, "belongs to another journal", 0);
    if (h->sequence != before->sequence + 1)
        return refuse_segment(o, JOURNAL_DAMAGED, i, "the segment before it is missing", 0);
    if (h->previous_end < before->base || h->base < h->previous_end)
        return refuse_segment(o, JOURNAL_DAMAGED, i, "does not follow the segment before it", 0);
    return JOURNAL_OK;
}

static enum journal_result read_headers(struct opening *o)
{
    enum journal_result r = list_segments(o);
    for (size_t i = 0; r == JOURNAL_OK && i < o->count; i++)
        r = read_header(o, i);
    for (size_t i = 1; r == JOURNAL_OK && i < o->count; i++)
        r = check_neighbours(o, i);
    return r;
}

static enum journal_result remove_newest_marker(struct opening *o)
{
    o->j->newest_marker = 0;
    return newest_marker_remove(o->j->dir, o->j->dir_fd) == 0
               ? JOURNAL_OK
               : refuse(o, JOURNAL_IO, o->j->dir, "cannot remove the newest marker", errno);
}

/* Refuses a journal whose newest segments are missing. */
static enum journal_result check_newest_marker(struct opening *o)
{
    uint64_t newest = o->count ? o->headers[o->count - 1].sequence : 0;
    if (newest_marker_read(o->j->dir, &o->j->newest_marker) != 0)
        return refuse(o, JOURNAL_IO, o->j->dir, "cannot open", errno);
    if (o->j->newest_marker <= newest)
        return JOURNAL_OK;
    if (o->repairs)
        return remove_newest_marker(o);
    char *path = segment_path(o->j->dir, newest ? newest + 1 : o->j->newest_marker, "");
    refuse(o, JOURNAL_DAMAGED, path, "is missing; the newest segments are lost", 0);
    free(path);
    return JOURNAL_DAMAGED;
}

static bool apply_frame(struct opening *o, const struct frame *f, bool first)
{
    if (first != (f->kind == FRAME_TABLE))
        return false;
    if (first && !marks_load(&o->j->marks, f->payload))
        return false;
    if (f->kind == FRAME_OPEN && !open_decode(f->payload, o->boot, &o->never))
        return false;
    if (f->kind == FRAME_DATA && f->name.len)
        marks_commit(&o->j->marks, f->name, f->mark);
    o->clean = f->kind == FRAME_CLOSE;
    o->last_time = f->time;
    o->synced = f->durable_position > o->synced ? f->durable_position : o->synced;
    return true;
}

/* Verifies segment i; leaves o->position and o->end where its valid frames end. */
static enum journal_result verify_segment(struct opening *o, size_t i)
{
    const struct segment_header *h = &o->headers[i];
    struct cursor c = {.fd = -1};
    struct frame f;
    char *path = segment_path(o->j->dir, h->sequence, "");
    enum cursor_status status = cursor_open(&c, path, segment_seed(h), h->base);
    free(path);
    memcpy(o->boot, h->boot, sizeof o->boot);
    o->never = h->never;
    o->synced = SEGMENT_HEADER;
    bool sealed = i + 1 < o->count;
    while (status == CURSOR_FRAME && !(sealed && c.position >= h[1].previous_size)) {
        status = cursor_peek(&c, &f);
        if (status == CURSOR_FRAME && !apply_frame(o, &f, c.position == SEGMENT_HEADER))
            break;
        if (status == CURSOR_FRAME)
            cursor_skip(&c, &f);
    }
    o->ends_in_zeros = status == CURSOR_END;
    o->position = c.position;
    o->end = c.offset;
    int system = c.system;
    cursor_close(&c);
    if (status == CURSOR_IO)
        return refuse_segment(o, JOURNAL_IO, i, "cannot read", system);
    if (o->position == SEGMENT_HEADER)
        return refuse_segment(o, JOURNAL_DAMAGED, i, "damaged at byte 128: no table of producers", 0);
    return JOURNAL_OK;
}

static bool ends_whole(const struct opening *o, size_t i)
{
    const struct segment_header *next = &o->headers[i + 1];
    return o->position == next->previous_size && o->end == next->previous_end;
}

static enum journal_result look_behind(struct opening *o, size_t i, uint64_t from, struct tail_scan *out)
{
    const struct segment_header *h = &o->headers[i];
    struct buf file = {0};
    char *path = segment_path(o->j->dir, h->sequence, "");
    enum journal_result r = JOURNAL_OK;
    if (segment_read(path, &file) == 0)
        frames_scan_tail(buf_bytes(&file), from, segment_seed(h), i == o->last ? o->end : h->base, out);
    else
        r = refuse_segment(o, JOURNAL_IO, i, "cannot read", errno);
    free(path);
    buf_free(&file);
    return r;
}

/* Bytes to cut off the segment in which the end was found. In a recycled file, zeros at the end mean that nothing was
 * torn, unless an intact frame follows them. */
static uint64_t torn_bytes(const struct opening *o, const struct tail_scan *b)
{
    if (!o->headers[o->last].recycled)
        return b->nonzero;
    if (b->end)
        return b->end - o->position;
    return o->ends_in_zeros ? 0 : b->nonzero < FRAME_HEADER ? b->nonzero : FRAME_HEADER;
}

/* Whether a later segment says that segment i, which ends too early, was synced beyond its end. */
static bool named_durable(const struct opening *o, size_t i, uint64_t durable)
{
    return i + 1 < o->count && (durable >= o->headers[i + 1].previous_end || durable > o->end);
}

/* The end was found in segment i. What follows may be cut only if nothing intact calls it durable. */
static enum journal_result judge_tail(struct opening *o, size_t i)
{
    bool damaged = false;
    o->last = i;
    for (size_t k = i; k < o->count && !damaged; k++) {
        struct tail_scan b = {0};
        enum journal_result r = look_behind(o, k, k == i ? o->position : SEGMENT_HEADER, &b);
        if (r != JOURNAL_OK)
            return r;
        o->j->cut_bytes += k == i ? torn_bytes(o, &b) : b.nonzero;
        if (b.too_many)
            return refuse_segment(o, JOURNAL_DAMAGED, k, "damaged: too many places look like frames", 0);
        if (k == i)
            damaged = b.position > o->position || b.durable > o->end;
        else
            damaged = named_durable(o, i, b.durable) || named_durable(o, i, o->headers[k].durable);
    }
    if (!damaged)
        return JOURNAL_OK;
    char what[128];
    snprintf(what, sizeof what, "damaged at byte %llu, which a later frame calls synced",
        (unsigned long long)o->position);
    return refuse_segment(o, JOURNAL_DAMAGED, i, what, 0);
}

static enum journal_result verify(struct opening *o)
{
    uint64_t durable = o->headers[o->count - 1].durable;
    o->first = o->count - 1;
    if (o->first > 0 && o->headers[o->first].previous_end > durable) {
        enum journal_result r = verify_segment(o, o->first);
        if (r != JOURNAL_OK)
            return r;
        if (o->clean)
            durable = o->end;
    }
    while (o->first > 0 && o->headers[o->first].previous_end > durable)
        o->first--;
    for (size_t i = o->first; i < o->count; i++) {
        enum journal_result r = verify_segment(o, i);
        if (r != JOURNAL_OK)
            return r;
        if (i + 1 == o->count || !ends_whole(o, i))
            return judge_tail(o, i);
    }
    return JOURNAL_OK;
}

/* Newest first: a crash leaves an unbroken run. */
static enum journal_result drop_segments_behind(struct opening *o)
{
    if (o->count > o->last + 1 && remove_newest_marker(o) != JOURNAL_OK)
        return JOURNAL_IO;
    while (o->count > o->last + 1) {
        size_t i = o->count - 1;
        char *path = segment_path(o->j->dir, o->headers[i].sequence, "");
        bool failed = io->unlink(path) != 0 || journal_dir_sync(o->j) != 0;
        int system = errno;
        free(path);
        if (failed)
            return refuse_segment(o, JOURNAL_IO, i, "cannot remove", system);
        o->count--;
    }
    return JOURNAL_OK;
}

/* After a failed sync the kernel calls pages clean that the disk does not have, and the next sync succeeds. So
 * verified bytes that are not known to be synced are written again first. */
static int write_again(int fd, uint64_t from, uint64_t end)
{
    size_t chunk = (size_t)1 << 20;
    char *bytes = mem_alloc(chunk);
    int failed = 0;
    while (from < end && !failed) {
        size_t want = end - from < chunk ? (size_t)(end - from) : chunk;
        ssize_t n = io->pread(fd, bytes, want, (off_t)from);
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            errno = EIO;
        failed = n <= 0 ? -1 : io_write_all(fd, bytes, (size_t)n, (off_t)from);
        from += n > 0 ? (uint64_t)n : 0;
    }
    free(bytes);
    return failed;
}

static enum journal_result sync_segment(struct opening *o, size_t i)
{
    char *path = segment_path(o->j->dir, o->headers[i].sequence, "");
    int fd = io->open(path, O_RDWR | O_CLOEXEC, 0);
    free(path);
    bool failed = fd < 0 || write_again(fd, SEGMENT_HEADER, o->headers[i + 1].previous_size) != 0 ||
                  io->fdatasync(fd) != 0;
    int system = errno;
    if (fd >= 0)
        io->close(fd);
    return failed ? refuse_segment(o, JOURNAL_IO, i, "cannot sync", system) : JOURNAL_OK;
}

/* Keeps what an earlier session reserved beyond the file's end: the disk may be full now. A cut frees those blocks,
 * so they are reserved again. */
static void keep_reserved(struct journal *j, const struct stat *st)
{
    struct writer *w = &j->writer;
    uint64_t blocks = (uint64_t)st->st_blocks * 512;
    if (blocks < (uint64_t)st->st_size + RESERVED_MIN)
        return;
    w->reserved = blocks;
    if (j->cut_bytes > 0)
        writer_reserve_again(j, blocks - w->position);
    w->found = w->reserved;
    w->wanted = w->found > w->position ? w->found - w->position : 0;
    w->no_space = false;
}

/* The tail is cut even if it holds no valid frame: it could become one once the bytes before it are written. */
static enum journal_result enter_last(struct opening *o)
{
    struct writer *w = &o->j->writer;
    const struct segment_header *h = &o->headers[o->last];
    char *path = segment_path(o->j->dir, h->sequence, "");
    struct stat st;
    w->fd = io->open(path, O_RDWR | O_CLOEXEC, 0);
    int system = errno;
    free(path);
    if (w->fd < 0 || fstat(w->fd, &st) != 0)
        return refuse_segment(o, JOURNAL_IO, o->last, "cannot open for writing", system);
    if (o->j->cut_bytes > 0 && io->ftruncate(w->fd, (off_t)o->position) != 0)
        return refuse_segment(o, JOURNAL_IO, o->last, "cannot cut the tail", errno);
    if (write_again(w->fd, o->synced, o->position) != 0 || io->fsync(w->fd) != 0)
        return refuse_segment(o, JOURNAL_IO, o->last, "cannot sync", errno);
    w->sequence = h->sequence;
    w->seed = segment_seed(h);
    w->base = h->base;
    w->position = w->durable_position = o->position;
    w->size = w->filled = o->j->cut_bytes > 0 ? o->position : (uint64_t)st.st_size;
    w->recycled = h->recycled;
    w->prepared = w->size >= o->j->segment_bytes;
    w->end = w->durable = o->end;
    w->last_time = o->last_time;
    keep_reserved(o->j, &st);
    return JOURNAL_OK;
}

static enum journal_result settle(struct opening *o)
{
    enum journal_result r = drop_segments_behind(o);
    for (size_t i = o->first; r == JOURNAL_OK && i < o->last; i++)
        r = sync_segment(o, i);
    if (r == JOURNAL_OK)
        r = enter_last(o);
    if (r == JOURNAL_OK && journal_dir_sync(o->j) != 0)
        r = refuse(o, JOURNAL_IO, o->j->dir, "cannot sync", errno);
    return r;
}

static void list_into_journal(struct opening *o)
{
    for (size_t i = 0; i < o->count; i++) {
        struct stat st;
        struct segment *s = segment_new(o->j->dir, &o->headers[i]);
        s->end = i < o->last ? o->headers[i + 1].previous_end : o->end;
        s->size = stat(s->path, &st) == 0 ? (uint64_t)st.st_size : 0;
        s->shared = o->j->shares_files;
        segment_list_push(o->j, s);
    }
}

/* A power cut may have taken bytes that the last session served. The kernel's boot id tells a power cut from a kill,
 * after which the page cache still has them. */
static bool needs_hole(const struct opening *o)
{
    return !o->clean && o->never && memcmp(o->boot, o->j->set->boot, sizeof o->boot) != 0;
}

static enum journal_result begin_segment(struct opening *o, uint64_t base)
{
    struct segment *s;
    if (writer_roll(o->j, base, base, &s) != 0) {
        bool full = errno_is_full(errno);
        return refuse(o, full ? JOURNAL_NO_SPACE : JOURNAL_IO, o->j->dir, "cannot begin a segment", errno);
    }
    segment_list_push(o->j, s);
    o->j->writer.durable = base;
    o->end = base;
    return JOURNAL_OK;
}

static enum journal_result make_hole(struct opening *o, uint64_t reach)
{
    struct writer *w = &o->j->writer;
    uint64_t above = o->end > reach ? o->end : reach;
    w->wanted = writer_unused_reserve(w);
    if ((w->size > w->position || w->wanted) && io->ftruncate(w->fd, (off_t)w->position) != 0)
        return refuse(o, JOURNAL_IO, o->j->dir, "cannot cut the last segment", errno);
    return begin_segment(o, (above / JOURNAL_HOLE + 1) * JOURNAL_HOLE);
}

static enum journal_result open_existing(struct opening *o, uint64_t lost_below)
{
    memcpy(o->j->id, o->headers[0].id, sizeof o->j->id);
    enum journal_result r = verify(o);
    if (r != JOURNAL_OK)
        return r;
    uint64_t reach = o->headers[o->count - 1].reach;
    if (reach < lost_below)
        reach = lost_below;
    bool hole = needs_hole(o) || lost_below > o->end || o->last + 1 < o->count;
    r = settle(o);
    if (r != JOURNAL_OK)
        return r;
    list_into_journal(o);
    marks_copy(&o->j->writer.marks, &o->j->marks);
    o->j->newest_marker = newest_marker_write(o->j->dir, o->j->newest_marker, o->headers[o->last].sequence);
    return hole ? make_hole(o, reach) : JOURNAL_OK;
}

static enum journal_result make_new(struct opening *o)
{
    if (getrandom(o->j->id, sizeof o->j->id, 0) != (ssize_t)sizeof o->j->id)
        return refuse(o, JOURNAL_IO, o->j->dir, "cannot get random bytes", errno);
    return begin_segment(o, 0);
}

static void write_id_text(struct journal *j)
{
    for (size_t i = 0; i < sizeof j->id; i++)
        snprintf(j->id_text + 2 * i, 3, "%02x", j->id[i]);
}

static void journal_free(struct journal *j)
{
    for (size_t i = 0; i < j->n_segments; i++) {
        fd_cache_drop(&j->set->files, j->segments[i]);
        segment_free(j->segments[i]);
    }
    free(j->segments);
    marks_free(&j->marks);
    marks_free(&j->writer.marks);
    if (j->dir_fd >= 0)
        io->close(j->dir_fd);
    free(j->dir);
    j->magic = 0;
    free(j);
}

static struct journal *journal_new(struct journal_set *set, const struct journal_config *config)
{
    struct journal *j = mem_zalloc(sizeof *j);
    j->magic = JOURNAL_MAGIC;
    j->set = set;
    j->dir = mem_strdup(config->dir);
    j->segment_bytes = config->segment_bytes ? config->segment_bytes : SEGMENT_DEFAULT;
    j->max_producers = config->max_producers ? config->max_producers : PRODUCERS_DEFAULT;
    j->shares_files = config->shares_files;
    j->dir_fd = j->writer.fd = -1;
    return j;
}

static void begin_session(struct opening *o)
{
    struct journal *j = o->j;
    j->accepted_end = j->committed_end = o->end;
    j->accepted_time = j->committed_time = o->last_time;
    write_id_text(j);
    j->next = j->set->journals;
    j->set->journals = j;
    if (j->cut_bytes)
        log_warn("cut the tail of a journal", LOG_S("path", j->dir), LOG_U("bytes", j->cut_bytes));
}

/* Locks the directory before reading anything in it, and refuses an unfinished repair. */
static enum journal_result enter_directory(struct opening *o)
{
    struct journal *j = o->j;
    if (io_make_dirs(j->dir) != 0)
        return refuse(o, JOURNAL_IO, j->dir, "cannot make", errno);
    j->dir_fd = journal_dir_lock(j->dir);
    if (j->dir_fd < 0 && errno == EWOULDBLOCK)
        return refuse(o, JOURNAL_IN_USE, j->dir, "in use by another process", 0);
    if (j->dir_fd < 0)
        return refuse(o, JOURNAL_IO, j->dir, "cannot lock", errno);
    return repair_note_check(j->dir, o->error, o->error_size);
}

static enum journal_result open_entered(
    struct opening *o, const struct journal_config *config, struct journal **out)
{
    enum journal_result r = read_headers(o);
    if (r == JOURNAL_OK)
        r = check_newest_marker(o);
    if (r == JOURNAL_OK)
        r = o->count ? open_existing(o, config->lost_below) : make_new(o);
    free(o->headers);
    if (r != JOURNAL_OK)
        return r;
    begin_session(o);
    prealloc_adopt(o->j);
    *out = o->j;
    return JOURNAL_OK;
}

static void give_up(struct journal *j)
{
    if (j->writer.fd >= 0)
        io->close(j->writer.fd);
    journal_free(j);
}

enum journal_result journal_open(struct journal_set *set, const struct journal_config *config,
    struct journal **out, char *error, size_t error_size)
{
    struct opening o = {.j = journal_new(set, config), .error = error, .error_size = error_size};
    enum journal_result r = enter_directory(&o);
    if (r == JOURNAL_OK)
        r = open_entered(&o, config, out);
    if (r != JOURNAL_OK)
        give_up(o.j);
    return r;
}

enum journal_result journal_open_locked(struct journal_set *set, const struct journal_config *config,
    int dir_fd, struct journal **out, char *error, size_t error_size)
{
    struct opening o = {
        .j = journal_new(set, config), .error = error, .error_size = error_size, .repairs = true};
    o.j->dir_fd = dir_fd;
    enum journal_result r = open_entered(&o, config, out);
    if (r != JOURNAL_OK)
        give_up(o.j);
    return r;
}

/* A journal may still be on the dirty list with nothing pending. */
static void leave_dirty_list(struct journal *j)
{
    struct journal_set *set = j->set;
    set_lock(set);
    set->dirty_tail = &set->dirty;
    while (*set->dirty_tail) {
        if (*set->dirty_tail == j)
            *set->dirty_tail = j->next_dirty;
        else
            set->dirty_tail = &(*set->dirty_tail)->next_dirty;
    }
    set_unlock(set);
}

void journal_close(struct journal **p)
{
    struct journal *j = *p;
    if (!j)
        return;
    *p = NULL;
    assert(j->magic == JOURNAL_MAGIC && j->readers == 0);
    while (j->unfinished || j->jobs)
        set_wait(j->set);
    leave_dirty_list(j);
    scrub_close_journal(j);
    prealloc_close(j);
    writer_close(j);
    struct journal **at = &j->set->journals;
    while (*at != j)
        at = &(*at)->next;
    *at = j->next;
    journal_free(j);
}

const char *journal_id(const struct journal *j)
{
    return j->id_text;
}

uint64_t journal_committed_end(const struct journal *j)
{
    return j->committed_end;
}

usec_t journal_last_time(const struct journal *j)
{
    return j->committed_time;
}

uint64_t journal_cut_bytes(const struct journal *j)
{
    return j->cut_bytes;
}

const char *journal_failure(const struct journal *j)
{
    return j->failure[0] ? j->failure : NULL;
}
