#include "journal/journal_repair.h"

#include "base/io.h"
#include "journal/journal_dir.h"
#include "journal/journal_error.h"
#include "journal/journal_newest_marker.h"
#include "journal/journal_open.h"
#include "journal/journal_repair_note.h"
#include "journal/journal_segment.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define HOLES_MAX 1024

struct repair {
    const struct journal_repair *how;
    const char *dir;
    int dir_fd;
    struct repair_note note;
    struct inspect_summary found;
    char *error;
    size_t error_size;
};

static enum journal_result failed(struct repair *r, const char *path, const char *what)
{
    bool full = errno_is_full(errno);
    snprintf(r->error, r->error_size, "%s: %s: %s", path, what, strerror(errno));
    return full ? JOURNAL_NO_SPACE : JOURNAL_IO;
}

static enum journal_result put_note(struct repair *r, enum repair_stage stage)
{
    r->note.stage = stage;
    if (repair_note_write(r->dir, r->dir_fd, &r->note) == 0)
        return JOURNAL_OK;
    char *path = repair_note_path(r->dir, "");
    enum journal_result result = failed(r, path, "cannot write");
    free(path);
    return result;
}

static void look(const struct inspect_event *e, void *arg)
{
    struct repair *r = arg;
    inspect_summarize(&r->found, e);
    if (r->how->found)
        r->how->found(e, r->how->arg);
}

/* The highest offset at which a segment claims to begin, in its header or its table; either may be damaged. Ignores
 * impossible values: no journal has so many holes. */
static uint64_t hint(const char *path, uint64_t known)
{
    static const off_t places[] = {SEGMENT_BASE_AT, SEGMENT_HEADER + FRAME_OFFSET_AT};
    uint64_t best = known;
    int fd = io->open(path, O_RDONLY | O_CLOEXEC, 0);
    for (size_t i = 0; fd >= 0 && i < sizeof places / sizeof *places; i++) {
        uint64_t offset;
        if (io->pread(fd, &offset, sizeof offset, places[i]) != sizeof offset)
            continue;
        offset = le64toh(offset);
        if (offset > best && offset < known + HOLES_MAX * JOURNAL_HOLE)
            best = offset;
    }
    if (fd >= 0)
        io->close(fd);
    return best;
}

/* An estimate from above: lost bytes that nothing names are no more than the files' sizes, and a segment without a
 * header may follow a hole. */
static uint64_t given_out_below(const struct repair *r, const uint64_t *sequences, size_t n)
{
    uint64_t known = r->found.end > r->note.below ? r->found.end : r->note.below;
    uint64_t begins = known, bytes = 0;
    for (size_t i = n; i-- > 0 && sequences[i] >= r->found.bad_sequence;) {
        struct stat st;
        char *path = segment_path(r->dir, sequences[i], "");
        uint64_t its = hint(path, known);
        begins = its > begins ? its : begins;
        bytes += stat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
        free(path);
    }
    return begins + bytes + r->found.headless * JOURNAL_HOLE + 1;
}

/* io_make_dirs makes the directory's name durable before anything moves into it. */
static enum journal_result make_aside(struct repair *r)
{
    char path[PATH_MAX];
    struct tm tm;
    struct stat st;
    time_t now = time(NULL);
    char *end = r->note.aside;
    size_t n = strftime(end, sizeof r->note.aside, "~damaged-%Y%m%dT%H%M%SZ", gmtime_r(&now, &tm));
    snprintf(path, sizeof path, "%s%s", r->dir, end);
    for (int again = 2; stat(path, &st) == 0; again++) {
        snprintf(end + n, sizeof r->note.aside - n, "-%d", again);
        snprintf(path, sizeof path, "%s%s", r->dir, end);
    }
    return io_make_dirs(path) == 0 ? JOURNAL_OK : failed(r, path, "cannot make");
}

static enum journal_result decide(struct repair *r)
{
    size_t n;
    const struct inspect_summary *f = &r->found;
    uint64_t *sequences = segments_list(r->dir, &n);
    if (!sequences)
        return failed(r, r->dir, "cannot open");
    r->note = (struct repair_note){
        .sequence = f->bad_sequence,
        .cut_at = f->bad_position > SEGMENT_HEADER ? f->bad_position : 0,
        .first = f->first,
        .end = f->whole,
        .lost = f->end,
        .below = given_out_below(r, sequences, n),
    };
    free(sequences);
    enum journal_result result = make_aside(r);
    return result == JOURNAL_OK ? put_note(r, REPAIR_MOVING) : result;
}

static char *aside_dir(const struct repair *r)
{
    struct buf b = {0};
    buf_printf(&b, "%s%s", r->dir, r->note.aside);
    buf_append_char(&b, 0);
    return b.ptr;
}

static char *aside_path(const struct repair *r, uint64_t sequence)
{
    char *dir = aside_dir(r), *path = segment_path(dir, sequence, "");
    free(dir);
    return path;
}

static int sync_both(const struct repair *r)
{
    char *aside = aside_dir(r);
    int bad = io->fsync(r->dir_fd) != 0 || io_sync_dir(aside) != 0;
    free(aside);
    return bad ? -1 : 0;
}

static bool is_there(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

static bool is_cut(const struct repair *r, uint64_t sequence)
{
    return sequence == r->note.sequence && r->note.cut_at > 0;
}

/* What a repair before this one has moved already is there and not here, or here again is what was kept of it. */
static enum journal_result move_aside(struct repair *r, uint64_t sequence)
{
    char *from = segment_path(r->dir, sequence, ""), *to = aside_path(r, sequence);
    enum journal_result result = JOURNAL_OK;
    bool here = is_there(from), there = is_there(to), cut = is_cut(r, sequence);
    if (here && there && !cut) {
        errno = EEXIST;
        result = failed(r, to, "cannot move a segment there");
    } else if (here && !there && io->rename(from, to) != 0) {
        result = failed(r, from, "cannot move aside");
    } else if (here && !there && r->how->moved) {
        r->how->moved(from, to, cut, r->how->arg);
    }
    free(from);
    free(to);
    return result;
}

static int copy_start(const char *from, const char *to, uint64_t n)
{
    size_t chunk = (size_t)1 << 20;
    char *bytes = mem_alloc(chunk);
    int in = io->open(from, O_RDONLY | O_CLOEXEC, 0);
    int out = io->open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, IO_PRIVATE_MODE);
    bool bad = in < 0 || out < 0;
    for (uint64_t at = 0; at < n && !bad;) {
        ssize_t got = io->pread(in, bytes, n - at < chunk ? (size_t)(n - at) : chunk, (off_t)at);
        if (got == 0)
            errno = EIO;
        bad = got <= 0 || io_write_all(out, bytes, (size_t)got, (off_t)at) != 0;
        at += got > 0 ? (uint64_t)got : 0;
    }
    bad = bad || io->fsync(out) != 0;
    int saved = errno;
    if (in >= 0)
        io->close(in);
    if (out >= 0)
        io->close(out);
    free(bytes);
    errno = saved;
    return bad ? -1 : 0;
}

/* The damaged file is safe in its new place before another one takes its name. */
static enum journal_result put_back_beginning(struct repair *r)
{
    uint64_t sequence = r->note.sequence;
    char *from = aside_path(r, sequence), *to = segment_path(r->dir, sequence, "");
    char *fresh = segment_path(r->dir, sequence, ".new");
    enum journal_result result = JOURNAL_OK;
    bool missing = is_cut(r, sequence) && !is_there(to);
    if (missing && (copy_start(from, fresh, r->note.cut_at) != 0 || io->rename(fresh, to) != 0))
        result = failed(r, to, "cannot put its intact beginning back");
    free(from);
    free(to);
    free(fresh);
    return result;
}

static enum journal_result move_all(struct repair *r)
{
    size_t n;
    enum journal_result result = JOURNAL_OK;
    uint64_t *sequences = segments_list(r->dir, &n);
    if (!sequences)
        return failed(r, r->dir, "cannot open");
    for (size_t i = n; i-- > 0 && sequences[i] >= r->note.sequence && result == JOURNAL_OK;)
        result = move_aside(r, sequences[i]);
    free(sequences);
    if (result == JOURNAL_OK && sync_both(r) != 0)
        result = failed(r, r->dir, "cannot sync");
    if (result == JOURNAL_OK)
        result = put_back_beginning(r);
    if (result == JOURNAL_OK && sync_both(r) != 0)
        result = failed(r, r->dir, "cannot sync");
    return result == JOURNAL_OK ? put_note(r, REPAIR_MOVED) : result;
}

/* The journal shares the repair's lock while it is open. */
static enum journal_result make_hole(struct repair *r, uint64_t *goes_on)
{
    struct journal *j;
    struct journal_set_config sc = {0};
    struct journal_config jc = {.dir = r->dir, .lost_below = r->note.below};
    int fd = fcntl(r->dir_fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return failed(r, r->dir, "cannot open");
    struct journal_set *set = journal_set_new(&sc);
    enum journal_result result = journal_open_locked(set, &jc, fd, &j, r->error, r->error_size);
    if (result == JOURNAL_OK)
        *goes_on = journal_committed_end(j);
    journal_set_free(&set);
    return result;
}

static enum journal_result forget(struct repair *r)
{
    char *path = repair_note_path(r->dir, "");
    bool bad =
        newest_marker_remove(r->dir, r->dir_fd) != 0 || io->unlink(path) != 0 || io->fsync(r->dir_fd) != 0;
    enum journal_result result = bad ? failed(r, path, "cannot remove") : JOURNAL_OK;
    free(path);
    return result;
}

/* A repair run as root gives the files it created to the directory's owner, so that the daemon can use them. */
static void give_to_owner(const struct repair *r)
{
    struct stat st;
    size_t n = 0;
    uint64_t named = 0;
    if (geteuid() != 0 || fstat(r->dir_fd, &st) != 0)
        return;
    uint64_t *sequences = segments_list(r->dir, &n);
    for (size_t i = 0; i < n; i++) {
        char *path = segment_path(r->dir, sequences[i], "");
        (void)!chown(path, st.st_uid, st.st_gid);
        free(path);
    }
    free(sequences);
    char *note = repair_note_path(r->dir, ""), *aside = aside_dir(r);
    (void)newest_marker_read(r->dir, &named);
    char *newest = newest_marker_path(r->dir, named);
    (void)!chown(newest, st.st_uid, st.st_gid);
    (void)!chown(note, st.st_uid, st.st_gid);
    (void)!chown(aside, st.st_uid, st.st_gid);
    free(newest);
    free(note);
    free(aside);
}

/* If all damaged segments are missing, nothing was moved. */
static void forget_empty_aside(const struct repair *r)
{
    char *aside = aside_dir(r);
    (void)!rmdir(aside);
    free(aside);
}

/* If nothing is kept, the next opening creates a new journal with another id. */
static enum journal_result go_on(struct repair *r, struct journal_repaired *out)
{
    size_t n;
    uint64_t *sequences = segments_list(r->dir, &n);
    if (!sequences)
        return failed(r, r->dir, "cannot open");
    free(sequences);
    out->repaired = true;
    out->kept = n > 0;
    out->first = r->note.first;
    out->end = r->note.end;
    out->lost = r->note.lost;
    if (n == 0) {
        forget_empty_aside(r);
        return forget(r);
    }
    enum journal_result result = make_hole(r, &out->goes_on);
    if (result != JOURNAL_OK)
        return result;
    r->note.below = out->goes_on;
    result = put_note(r, REPAIR_DONE);
    give_to_owner(r);
    forget_empty_aside(r);
    return result;
}

/* An existing note may not be durable: its repair may have been killed before the directory's sync. */
static enum journal_result run(struct repair *r, struct journal_repaired *out)
{
    bool there;
    enum journal_result result = repair_note_read(r->dir, &r->note, &there, r->error, r->error_size);
    if (result != JOURNAL_OK)
        return result;
    if (!there || r->note.stage == REPAIR_DONE) {
        result = journal_inspect(r->dir, look, r, r->error, r->error_size);
        if (result != JOURNAL_DAMAGED)
            return result;
        result = decide(r);
    } else if (io->fsync(r->dir_fd) != 0) {
        result = failed(r, r->dir, "cannot sync");
    }
    if (result == JOURNAL_OK && r->note.stage == REPAIR_MOVING)
        result = move_all(r);
    return result == JOURNAL_OK ? go_on(r, out) : result;
}

enum journal_result journal_repair(
    const struct journal_repair *how, struct journal_repaired *out, char *error, size_t error_size)
{
    struct repair r = {.how = how, .dir = how->dir, .error = error, .error_size = error_size};
    *out = (struct journal_repaired){0};
    r.dir_fd = journal_dir_lock(r.dir);
    if (r.dir_fd < 0 && errno == EWOULDBLOCK) {
        snprintf(error, error_size, "%s: in use: stop the daemon first", r.dir);
        return JOURNAL_IN_USE;
    }
    if (r.dir_fd < 0)
        return failed(&r, r.dir, "cannot open");
    enum journal_result result = run(&r, out);
    io->close(r.dir_fd);
    return result;
}
