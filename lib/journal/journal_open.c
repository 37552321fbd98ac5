/* journal_open first examines all files and only then changes files.
 *
 * journal_open reads the header of every segment. journal_open refuses the journal if a header has an unknown version
 * or the id of another journal, or if a segment is missing. journal_open verifies the newest segment frame by frame.
 * Under JOURNAL_SYNC_NEVER older segments are possibly unsynced. journal_open therefore verifies all segments that were
 * not known to be synced when the newest segment was created, unless the newest segment ends in a close frame.
 *
 * The journal ends at the first position without a valid frame. If a later intact frame or header, or the newest
 * marker, shows that bytes after this end were synced, the journal is damaged. If the newest marker names a segment
 * above the last segment, the journal is damaged, too. */
#include "base/amount.h"
#include "base/log.h"
#include "journal/journal_internal.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>

#define SEGMENT_DEFAULT (UINT64_C(64) << 20)
#define PRODUCERS_DEFAULT 4096
#define RESERVED_MIN                                                                                         \
    ((uint64_t)32 << 10) /* more bytes than a file system itself allocates beyond a file's end */

usec_t (*journal_wall)(void) = clock_wall;

struct opening {
    struct journal *j;
    const struct journal_config *config;
    char *error;
    size_t error_size;
    struct segment_header *headers;
    size_t count;
    size_t first;           /* index of the first segment to verify */
    size_t last;            /* index of the segment in which the journal ends */
    uint64_t end, position; /* offset and file position at which the journal ends */
    uint64_t synced;        /* position up to which the segment was synced, according to its frames */
    bool ends_in_zeros;     /* zeros or the file's end follow the last frame */
    usec_t last_time;       /* of the last frame */
    usec_t last_payload;    /* time of the last payload, or latest time in an earlier segment; 0: none */
    usec_t latest;          /* latest time of a payload in the last segment; 0: none */
    struct session session; /* the last session */
    char last_opening[OPENING_TEXT]; /* opening of the last byte; "": none */
    bool clean;
    bool repairs;            /* accept missing newest segments, and ignore the newest marker's statement */
    char stated[SYNCED_END]; /* statement in the newest marker; zeros: none */
};

static enum journal_result refuse(
    struct opening *o, enum journal_result r, const char *path, const char *what, int system)
{
    char text[JOURNAL_ERROR_TEXT];
    failure_set(text, path, what, system);
    snprintf(o->error, o->error_size, "%s", text);
    return r == JOURNAL_IO && errno_is_fd_limit(system) ? JOURNAL_NO_DESCRIPTORS : r;
}

static char *path_of(const struct opening *o, size_t i)
{
    return segment_path(o->j->dir, o->headers[i].sequence, "");
}

static enum journal_result refuse_segment(
    struct opening *o, enum journal_result r, size_t i, const char *what, int system)
{
    char *path = path_of(o, i);
    r = refuse(o, r, path, what, system);
    free(path);
    return r;
}

static enum journal_result read_headers(struct opening *o)
{
    uint64_t *sequences = segments_list(o->j->dir, &o->count);
    if (!sequences)
        return refuse(o, JOURNAL_IO, o->j->dir, "cannot open", errno);
    o->headers = mem_zalloc((o->count + 1) * sizeof *o->headers);
    for (size_t i = 0; i < o->count; i++)
        o->headers[i].sequence = sequences[i];
    free(sequences);
    for (size_t i = 0; i < o->count; i++) {
        struct segment_header *h = &o->headers[i];
        uint64_t sequence = h->sequence;
        enum header_status status;
        if (segment_read_header(o->j->dir, sequence, h, &status) != 0)
            return refuse_segment(o, JOURNAL_IO, i, "cannot read", errno);
        h->sequence = sequence;
        if (status == HEADER_VERSION)
            return refuse_segment(o, JOURNAL_VERSION, i, "unknown format version", 0);
        if (status != HEADER_OK)
            return refuse_segment(o, JOURNAL_DAMAGED, i, "damaged at byte 0: no segment header", 0);
    }
    for (size_t i = 1; i < o->count; i++) {
        const struct segment_header *before = &o->headers[i - 1], *h = &o->headers[i];
        if (memcmp(h->id, before->id, sizeof h->id) != 0)
            return refuse_segment(o, JOURNAL_DAMAGED, i, "belongs to another journal", 0);
        if (h->sequence != before->sequence + 1)
            return refuse_segment(o, JOURNAL_DAMAGED, i, "the segment before it is missing", 0);
        if (h->previous_end < before->base || h->base < h->previous_end)
            return refuse_segment(o, JOURNAL_DAMAGED, i, "does not follow the segment before it", 0);
    }
    return JOURNAL_OK;
}

static enum journal_result remove_newest_marker(struct opening *o)
{
    o->j->newest_marker = 0;
    return newest_marker_remove(o->j->dir, o->j->dir_fd) == 0
               ? JOURNAL_OK
               : refuse(o, JOURNAL_IO, o->j->dir, "cannot remove the newest marker", errno);
}

/* Refuses the journal if the marker names a segment newer than the newest file. */
static enum journal_result check_newest_marker(struct opening *o)
{
    uint64_t newest = o->count ? o->headers[o->count - 1].sequence : 0;
    if (newest_marker_read(o->j->dir, &o->j->newest_marker) != 0)
        return refuse(o, JOURNAL_IO, o->j->dir, "cannot open", errno);
    if (!o->repairs)
        newest_marker_statement(o->j->dir, o->j->newest_marker, o->stated);
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
    if (f->kind == FRAME_OPEN && !open_decode(f->payload, &o->session))
        return false;
    if (f->kind == FRAME_DATA && f->name.len)
        marks_set(&o->j->marks, f->name, f->mark);
    o->clean = f->kind == FRAME_CLOSE;
    o->last_time = f->time;
    if (frame_advance(f) > 0) {
        o->last_payload = f->time;
        o->latest = f->time > o->latest ? f->time : o->latest;
        memcpy(o->last_opening, o->session.opening, sizeof o->last_opening);
    }
    o->synced = f->durable_position > o->synced ? f->durable_position : o->synced;
    return true;
}

/* Returns the latest time of a payload in the newest segment before segment i that has a payload; 0: no payload. */
static usec_t latest_before(const struct opening *o, size_t i)
{
    while (i > 0 && o->headers[i].latest == 0)
        i--;
    return o->headers[i].latest;
}

/* Verifies segment i. Sets o->position and o->end to position and offset of the end of the segment's valid frames. */
static enum journal_result verify_segment(struct opening *o, size_t i)
{
    const struct segment_header *h = &o->headers[i];
    struct cursor c = {.fd = -1};
    struct frame f;
    char *path = path_of(o, i);
    enum cursor_status status = cursor_open(&c, path, segment_seed(h), h->base);
    free(path);
    o->session.never = h->never;
    memcpy(o->session.boot, h->boot, sizeof h->boot);
    memcpy(o->session.opening, h->opening, sizeof h->opening);
    memcpy(o->last_opening, h->previous, sizeof h->previous);
    o->synced = SEGMENT_HEADER;
    o->latest = 0;
    o->last_payload = latest_before(o, i);
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
        return refuse_segment(o, JOURNAL_DAMAGED, i, "no table of producers after the header", 0);
    return JOURNAL_OK;
}

/* Returns the number of torn bytes at the end of the last segment. In a recycled file, old bytes follow the zeros after
 * the last frame. Zeros after the last frame therefore mean that no frame is torn, unless an intact frame follows. */
static uint64_t torn_bytes(const struct opening *o, const struct tail_scan *b)
{
    if (!o->headers[o->last].recycled)
        return b->nonzero;
    if (b->end)
        return b->end - o->position;
    return o->ends_in_zeros ? 0 : b->nonzero < FRAME_HEADER ? b->nonzero : FRAME_HEADER;
}

/* Counts the items in the frames after the journal's end, up to the first frame without a plausible header. */
static uint64_t count_cut(const struct opening *o, struct bytes file)
{
    uint64_t n = 0, at = o->position;
    struct frame f;
    while (o->config->count && at < file.len &&
           frame_decode(bytes_of(file.ptr + at, file.len - at), 0, at, true, &f) == FRAME_OK &&
           f.kind == FRAME_DATA && f.offset >= o->end) {
        n += f.payload.len ? o->config->count(f.payload) : 0;
        at += frame_size(f.name.len, f.payload.len);
    }
    return n;
}

/* True if bytes beyond the end of segment i were synced. `durable` is the synced offset in a later segment. */
static bool was_durable(const struct opening *o, size_t i, uint64_t durable)
{
    return i + 1 < o->count && (durable >= o->headers[i + 1].previous_end || durable > o->end);
}

static void report_cut(const struct opening *o)
{
    struct journal *j = o->j;
    char *path = path_of(o, o->last), count[96] = "";
    if (j->cut_count)
        snprintf(
            count, sizeof count, ", about %llu %s", (unsigned long long)j->cut_count, o->config->counted);
    snprintf(j->cut, sizeof j->cut,
        "%s: cut %llu %s at byte %llu (offset %llu)%s: torn by a crash, or damaged after the last commits",
        path, (unsigned long long)j->cut_bytes, plural(j->cut_bytes, "byte", "bytes"),
        (unsigned long long)o->position, (unsigned long long)o->end, count);
    free(path);
}

/* The valid frames end in segment i. If an intact frame or header, or the newest marker, shows that bytes after this
 * end were synced, the journal is damaged. If not, the bytes after the end may be cut off. */
static enum journal_result judge_tail(struct opening *o, size_t i)
{
    bool damaged = false;
    o->last = i;
    for (size_t k = i; k < o->count && !damaged; k++) {
        const struct segment_header *h = &o->headers[k];
        struct tail_scan b = {0};
        struct buf file = {0};
        char *path = path_of(o, k);
        bool read = io_read_file(path, SIZE_MAX, &file) == 0;
        if (read)
            frames_scan_tail(buf_bytes(&file), k == i ? o->position : SEGMENT_HEADER, segment_seed(h),
                k == i ? o->end : h->base, o->stated, &b);
        if (read && k == i)
            o->j->cut_count = count_cut(o, buf_bytes(&file));
        free(path);
        buf_free(&file);
        if (!read)
            return refuse_segment(o, JOURNAL_IO, k, "cannot read", errno);
        if (b.too_many)
            return refuse_segment(o, JOURNAL_DAMAGED, k, "damaged: too many positions look like frames", 0);
        o->j->cut_bytes += k == i ? torn_bytes(o, &b) : b.nonzero;
        if (k == i)
            damaged = b.position > o->position || b.durable > o->end;
        else
            damaged = was_durable(o, i, b.durable) || was_durable(o, i, h->durable);
    }
    if (!damaged && o->j->cut_bytes)
        report_cut(o);
    if (!damaged)
        return JOURNAL_OK;
    char what[160];
    snprintf(what, sizeof what,
        "damaged at byte %llu (offset %llu), which was synced according to a later frame or the newest "
        "marker",
        (unsigned long long)o->position, (unsigned long long)o->end);
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
        const struct segment_header *next = &o->headers[i + 1];
        if (i + 1 == o->count || o->position != next->previous_size || o->end != next->previous_end)
            return judge_tail(o, i);
    }
    return JOURNAL_OK;
}

/* Makes a segment durable. After a failed sync, the kernel may mark unwritten pages as clean, so that the next sync
 * succeeds. sync_again therefore writes the bytes from `from` on again before it syncs. */
static int sync_again(int fd, uint64_t from, uint64_t end)
{
    return file_copy(fd, fd, from, end) != 0 ? -1 : io->fsync(fd);
}

/* Opens the last segment for writing and cuts off a torn tail. Even if the tail contains no valid frame now, its bytes
 * could form a valid frame after new frames are written before the tail. */
static enum journal_result enter_last(struct opening *o)
{
    struct journal *j = o->j;
    struct writer *w = &j->writer;
    const struct segment_header *h = &o->headers[o->last];
    char *path = path_of(o, o->last);
    struct stat st;
    w->fd = io->open(path, O_RDWR | O_CLOEXEC, 0);
    free(path);
    if (w->fd < 0 || fstat(w->fd, &st) != 0)
        return refuse_segment(o, JOURNAL_IO, o->last, "cannot open for writing", errno);
    if (j->cut_bytes > 0 && io->ftruncate(w->fd, (off_t)o->position) != 0)
        return refuse_segment(o, JOURNAL_IO, o->last, "cannot cut the tail", errno);
    if (sync_again(w->fd, o->synced, o->position) != 0)
        return refuse_segment(o, JOURNAL_IO, o->last, "cannot sync", errno);
    w->sequence = h->sequence;
    w->seed = segment_seed(h);
    w->base = h->base;
    w->position = w->durable_position = o->position;
    w->size = w->filled = j->cut_bytes > 0 ? o->position : (uint64_t)st.st_size;
    w->recycled = h->recycled;
    w->prepared = w->size >= j->segment_bytes;
    w->end = w->durable = o->end;
    w->last_time = o->last_time;
    w->latest = o->latest;
    /* Keeps blocks that an earlier session reserved beyond the file's end, because the disk may be full now. If the
     * tail was cut, the blocks were freed and must be reserved again. */
    uint64_t blocks = (uint64_t)st.st_blocks * 512;
    if (blocks < (uint64_t)st.st_size + RESERVED_MIN)
        return JOURNAL_OK;
    w->reserved = blocks;
    if (j->cut_bytes > 0)
        writer_reserve_again(j, blocks - w->position);
    w->found = w->reserved;
    w->wanted = w->found > w->position ? w->found - w->position : 0;
    w->no_space = false;
    return JOURNAL_OK;
}

/* Changes the files to match the result of `verify`. Removes the segments after the journal's end, beginning with the
 * newest, so that a crash leaves no gap. Syncs the earlier segments and opens the last segment. */
static enum journal_result settle(struct opening *o)
{
    unfinished_segments_remove(o->j->dir); /* frees their blocks for the reserve */
    if (o->count > o->last + 1 && remove_newest_marker(o) != JOURNAL_OK)
        return JOURNAL_IO;
    for (; o->count > o->last + 1; o->count--) {
        char *path = path_of(o, o->count - 1);
        bool failed = io->unlink(path) != 0 || journal_dir_sync(o->j) != 0;
        free(path);
        if (failed)
            return refuse_segment(o, JOURNAL_IO, o->count - 1, "cannot remove", errno);
    }
    for (size_t i = o->first; i < o->last; i++) {
        char *path = path_of(o, i);
        int fd = io->open(path, O_RDWR | O_CLOEXEC, 0);
        bool failed = fd < 0 || sync_again(fd, SEGMENT_HEADER, o->headers[i + 1].previous_size) != 0;
        int system = errno;
        if (fd >= 0)
            io->close(fd);
        free(path);
        if (failed)
            return refuse_segment(o, JOURNAL_IO, i, "cannot sync", system);
    }
    enum journal_result r = enter_last(o);
    if (r == JOURNAL_OK && journal_dir_sync(o->j) != 0)
        r = refuse(o, JOURNAL_IO, o->j->dir, "cannot sync", errno);
    return r;
}

static enum journal_result begin_segment(struct opening *o, uint64_t base)
{
    struct segment *s;
    if (writer_roll(o->j, base, base, 0, &s) != 0) {
        bool full = errno_is_full(errno);
        return refuse(o, full ? JOURNAL_NO_SPACE : JOURNAL_IO, o->j->dir, "cannot create a segment", errno);
    }
    segment_list_push(o->j, s);
    o->j->writer.durable = base;
    o->end = base;
    return JOURNAL_OK;
}

static enum journal_result open_existing(struct opening *o)
{
    struct journal *j = o->j;
    uint64_t lost_below = o->config->lost_below;
    struct writer *w = &j->writer;
    memcpy(j->id, o->headers[0].id, sizeof j->id);
    enum journal_result r = verify(o);
    if (r != JOURNAL_OK)
        return r;
    uint64_t reach = o->headers[o->count - 1].reach;
    if (reach < lost_below)
        reach = lost_below;
    if (reach < o->end)
        reach = o->end;
    /* After a power cut, bytes that the last session served may be lost. After a kill of the process, the page cache
     * still had these bytes. The boot id shows whether the machine was restarted. */
    bool lost =
        !o->clean && o->session.never && memcmp(o->session.boot, j->set->boot, sizeof o->session.boot) != 0;
    bool hole = lost || lost_below > o->end || o->last + 1 < o->count;
    r = settle(o);
    if (r != JOURNAL_OK)
        return r;
    for (size_t i = 0; i < o->count; i++) {
        struct stat st;
        struct segment *s = segment_new(j->dir, &o->headers[i]);
        s->end = i < o->last ? o->headers[i + 1].previous_end : o->end;
        s->latest = i < o->last ? o->headers[i + 1].latest : o->latest;
        s->size = stat(s->path, &st) == 0 ? (uint64_t)st.st_size : 0;
        s->shared = j->shares_files;
        segment_list_push(j, s);
    }
    marks_copy(&w->marks, &j->marks);
    memcpy(w->last_opening, o->last_opening, sizeof w->last_opening);
    opening_new(o->session.opening, journal_wall(), j->opening);
    j->newest_marker = newest_marker_write(j->dir, j->newest_marker, o->headers[o->last].sequence);
    if (!hole)
        return JOURNAL_OK;
    memcpy(w->last_opening, o->session.opening, sizeof w->last_opening);
    w->wanted = writer_unused_reserve(w);
    if ((w->size > w->position || w->wanted) && io->ftruncate(w->fd, (off_t)w->position) != 0)
        return refuse(o, JOURNAL_IO, j->dir, "cannot cut the last segment", errno);
    return begin_segment(o, (reach / JOURNAL_HOLE + 1) * JOURNAL_HOLE);
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
    if (j->writer.fd >= 0)
        io->close(j->writer.fd);
    if (j->dir_fd >= 0)
        io->close(j->dir_fd);
    free(j->dir);
    j->magic = 0;
    free(j);
}

static enum journal_result open_locked(struct opening *o)
{
    struct journal *j = o->j;
    enum journal_result r = o->repairs ? JOURNAL_OK : repair_note_check(j->dir, o->error, o->error_size);
    if (r == JOURNAL_OK)
        r = read_headers(o);
    if (r == JOURNAL_OK)
        r = check_newest_marker(o);
    if (r == JOURNAL_OK && o->count)
        r = open_existing(o);
    else if (r == JOURNAL_OK && getrandom(j->id, sizeof j->id, 0) != (ssize_t)sizeof j->id)
        r = refuse(o, JOURNAL_IO, j->dir, "cannot get random bytes", errno);
    else if (r == JOURNAL_OK) {
        opening_new("", journal_wall(), j->opening);
        r = begin_segment(o, 0);
    }
    free(o->headers);
    return r;
}

enum journal_result journal_open_locked(struct journal_set *set, const struct journal_config *config,
    int dir_fd, struct journal **out, char *error, size_t error_size)
{
    struct journal *j = mem_zalloc(sizeof *j);
    struct opening o = {
        .j = j, .config = config, .error = error, .error_size = error_size, .repairs = dir_fd >= 0};
    enum journal_result r;
    *j = (struct journal){
        .magic = JOURNAL_MAGIC,
        .set = set,
        .dir = mem_strdup(config->dir),
        .dir_fd = dir_fd,
        .writer.fd = -1,
        .segment_bytes = config->segment_bytes ? config->segment_bytes : SEGMENT_DEFAULT,
        .max_producers = config->max_producers ? config->max_producers : PRODUCERS_DEFAULT,
        .shares_files = config->shares_files,
        .openings_begin_segments = config->openings_begin_segments,
    };
    if (dir_fd < 0 && io_make_dirs(j->dir) != 0)
        r = refuse(&o, JOURNAL_IO, j->dir, "cannot create the directory", errno);
    else if (dir_fd < 0 && (j->dir_fd = journal_dir_lock(j->dir)) < 0)
        r = errno == EWOULDBLOCK ? refuse(&o, JOURNAL_IN_USE, j->dir, "in use by another process", 0)
                                 : refuse(&o, JOURNAL_IO, j->dir, "cannot lock", errno);
    else
        r = open_locked(&o);
    if (r == JOURNAL_DAMAGED && !o.repairs) {
        size_t used = strlen(error);
        snprintf(error + used, error_size - used, "; see `millrace journal check %s` and `repair`", j->dir);
    }
    if (r != JOURNAL_OK) {
        journal_free(j);
        return r;
    }
    unfinished_segments_remove(j->dir);
    writer_state_synced_end(j);
    j->accepted_end = j->committed_end = o.end;
    j->accepted_time = o.last_time;
    j->committed_time = o.last_payload ? o.last_payload : o.last_time;
    for (size_t i = 0; i < sizeof j->id; i++)
        snprintf(j->id_text + 2 * i, 3, "%02x", j->id[i]);
    j->next = set->journals;
    set->journals = j;
    if (j->cut_bytes)
        log_warn("cut the tail of a journal", LOG_S("error", j->cut));
    prealloc_adopt(j);
    *out = j;
    return JOURNAL_OK;
}

enum journal_result journal_open(struct journal_set *set, const struct journal_config *config,
    struct journal **out, char *error, size_t error_size)
{
    return journal_open_locked(set, config, -1, out, error, error_size);
}

void journal_close(struct journal **p)
{
    struct journal *j = *p;
    if (!j)
        return;
    *p = NULL;
    struct journal_set *set = j->set;
    assert(j->magic == JOURNAL_MAGIC && j->readers == 0);
    j->closing = true;
    while (j->unfinished || j->jobs)
        set_wait(set);
    set_lock(set); /* the journal may be on the dirty list without a pending batch */
    set->dirty_tail = &set->dirty;
    while (*set->dirty_tail) {
        if (*set->dirty_tail == j)
            *set->dirty_tail = j->next_dirty;
        else
            set->dirty_tail = &(*set->dirty_tail)->next_dirty;
    }
    set_unlock(set);
    scrub_close_journal(j);
    prealloc_close(j);
    writer_close(j);
    struct journal **at = &set->journals;
    while (*at != j)
        at = &(*at)->next;
    *at = j->next;
    journal_free(j);
}

const char *journal_id(const struct journal *j)
{
    return j->id_text;
}

uint64_t journal_accepted_end(const struct journal *j)
{
    return j->accepted_end;
}

uint64_t journal_committed_end(const struct journal *j)
{
    return j->committed_end;
}

bool journal_is_latched(const struct journal *j)
{
    return j->latched;
}

usec_t journal_clock(const struct journal *j)
{
    return j->accepted_time;
}

usec_t journal_last_time(const struct journal *j)
{
    return j->committed_time;
}

uint64_t journal_cut_bytes(const struct journal *j)
{
    return j->cut_bytes;
}

const char *journal_cut(const struct journal *j)
{
    return j->cut[0] ? j->cut : NULL;
}

const char *journal_failure(const struct journal *j)
{
    return j->failure[0] ? j->failure : NULL;
}
