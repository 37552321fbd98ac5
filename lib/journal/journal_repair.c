#include "journal/journal_repair.h"

#include "base/byte_order.h"
#include "journal/journal_internal.h"

#include <errno.h>
#include <fcntl.h>
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
    char aside[PATH_MAX]; /* the directory for the damaged segments */
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
    return repair_note_write(r->dir, &r->note) == 0
               ? JOURNAL_OK
               : failed(r, r->dir, "cannot write the note of the repair");
}

static void look(const struct inspect_event *e, void *arg)
{
    struct repair *r = arg;
    inspect_summarize(&r->found, e);
    if (r->how->found)
        r->how->found(e, r->how->arg);
}

/* The header and the table of a segment both contain the offset at which the segment begins. Either value may be
 * damaged, so the function returns the higher value. Values that are too high for any journal are ignored. */
static uint64_t stated_base(const char *path, uint64_t known)
{
    static const uint64_t places[] = {SEGMENT_BASE_AT, SEGMENT_HEADER + FRAME_OFFSET_AT};
    uint64_t best = known;
    int fd = file_open(path);
    for (size_t i = 0; fd >= 0 && i < sizeof places / sizeof *places; i++) {
        char raw[8];
        uint64_t offset = file_read(fd, raw, sizeof raw, places[i]) == sizeof raw ? get_le64(raw) : 0;
        if (offset > best && offset < known + HOLES_MAX * JOURNAL_HOLE)
            best = offset;
    }
    if (fd >= 0)
        io->close(fd);
    return best;
}

/* Decides which segments the repair keeps, and writes the repair note. `below` is an upper bound of all used offsets.
 * The bound assumes that the lost files contained only payload, and that a hole precedes each segment without a
 * header. */
static enum journal_result decide(struct repair *r)
{
    size_t n;
    const struct inspect_summary *f = &r->found;
    uint64_t known = f->end > r->note.below ? f->end : r->note.below;
    uint64_t *sequences = segments_list(r->dir, &n);
    if (!sequences)
        return failed(r, r->dir, "cannot open");
    uint64_t begins = known, bytes = 0;
    for (size_t i = n; i-- > 0 && sequences[i] >= f->bad_sequence;) {
        struct stat st;
        char *path = segment_path(r->dir, sequences[i], "");
        uint64_t base = stated_base(path, known);
        begins = base > begins ? base : begins;
        bytes += stat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
        free(path);
    }
    free(sequences);
    r->note = (struct repair_note){
        .sequence = f->bad_sequence,
        .cut_at = f->bad_position > SEGMENT_HEADER ? f->bad_position : 0,
        .first = f->first,
        .end = f->whole,
        .lost = f->end,
        .below = begins + bytes + f->headless * JOURNAL_HOLE + 1,
    };
    struct tm tm;
    struct stat st;
    time_t now = time(NULL);
    char *suffix = r->note.aside;
    size_t length =
        strftime(suffix, sizeof r->note.aside, JOURNAL_ASIDE "%Y%m%dT%H%M%SZ", gmtime_r(&now, &tm));
    snprintf(r->aside, sizeof r->aside, "%s%s", r->dir, suffix);
    for (int again = 2; stat(r->aside, &st) == 0; again++) {
        snprintf(suffix + length, sizeof r->note.aside - length, "-%d", again);
        snprintf(r->aside, sizeof r->aside, "%s%s", r->dir, suffix);
    }
    /* io_make_dirs makes the directory's name durable before anything moves into it. */
    return io_make_dirs(r->aside) == 0 ? put_note(r, REPAIR_MOVING)
                                       : failed(r, r->aside, "cannot create the directory");
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

/* After an interrupted repair, segments that were already moved exist only in the directory for damaged segments. The
 * cut segment may exist in the journal's directory and in the directory for damaged segments, because its intact
 * beginning was copied back. */
static enum journal_result move_aside(struct repair *r, uint64_t sequence)
{
    char *from = segment_path(r->dir, sequence, ""), *to = segment_path(r->aside, sequence, "");
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

static enum journal_result sync_both(struct repair *r)
{
    bool synced = io->fsync(r->dir_fd) == 0 && io_sync_dir(r->aside) == 0;
    return synced ? JOURNAL_OK : failed(r, r->dir, "cannot sync");
}

/* Copies the intact beginning of the damaged segment back into the journal. The damaged file is already durable. */
static enum journal_result put_back_beginning(struct repair *r)
{
    uint64_t sequence = r->note.sequence;
    char *from = segment_path(r->aside, sequence, ""), *to = segment_path(r->dir, sequence, "");
    char *fresh = segment_path(r->dir, sequence, ".new");
    enum journal_result result = JOURNAL_OK;
    if (is_cut(r, sequence) && !is_there(to)) {
        int in = file_open(from);
        int out = io->open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, IO_PRIVATE_MODE);
        bool copied =
            in >= 0 && out >= 0 && file_copy(in, out, 0, r->note.cut_at) == 0 && io->fsync(out) == 0;
        int saved = errno;
        if (in >= 0)
            io->close(in);
        if (out >= 0)
            io->close(out);
        errno = saved;
        if (!copied || io->rename(fresh, to) != 0)
            result = failed(r, to, "cannot restore its intact beginning");
    }
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
    if (result == JOURNAL_OK)
        result = sync_both(r);
    if (result == JOURNAL_OK)
        result = put_back_beginning(r);
    if (result == JOURNAL_OK)
        result = sync_both(r);
    return result == JOURNAL_OK ? put_note(r, REPAIR_MOVED) : result;
}

/* Opens the journal once, because journal_open makes the hole. Journal and repair share the directory's lock. */
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

static void give(char *path, const struct stat *to)
{
    (void)!chown(path, to->st_uid, to->st_gid);
    free(path);
}

/* If root runs the repair, the owner of the directory becomes the owner of the files that the repair has created, so
 * that the daemon can use these files. */
static void give_to_owner(const struct repair *r)
{
    struct stat st;
    size_t n = 0;
    uint64_t newest = 0;
    if (geteuid() != 0 || fstat(r->dir_fd, &st) != 0)
        return;
    uint64_t *sequences = segments_list(r->dir, &n);
    for (size_t i = 0; i < n; i++)
        give(segment_path(r->dir, sequences[i], ""), &st);
    free(sequences);
    (void)newest_marker_read(r->dir, &newest);
    give(newest_marker_path(r->dir, newest), &st);
    give(dir_path(r->dir, REPAIR_NOTE_NAME), &st);
    give(mem_strdup(r->aside), &st);
}

/* If the repair keeps no segment, the next journal_open creates a new journal with another id. If all damaged segments
 * were missing, rmdir removes the empty directory for damaged segments. */
static enum journal_result finish(struct repair *r, struct journal_repaired *out)
{
    size_t n;
    uint64_t *sequences = segments_list(r->dir, &n);
    if (!sequences)
        return failed(r, r->dir, "cannot open");
    free(sequences);
    *out = (struct journal_repaired){
        .repaired = true, .kept = n > 0, .first = r->note.first, .end = r->note.end, .lost = r->note.lost};
    enum journal_result result;
    if (n == 0) {
        char *note = dir_path(r->dir, REPAIR_NOTE_NAME);
        bool removed = newest_marker_remove(r->dir, r->dir_fd) == 0 && io->unlink(note) == 0 &&
                       io->fsync(r->dir_fd) == 0;
        result = removed ? JOURNAL_OK : failed(r, note, "cannot remove");
        free(note);
    } else {
        result = make_hole(r, &out->goes_on);
        if (result != JOURNAL_OK)
            return result;
        r->note.below = out->goes_on;
        result = put_note(r, REPAIR_DONE);
        give_to_owner(r);
    }
    (void)!rmdir(r->aside);
    return result;
}

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
    } else {
        /* The interrupted repair may have ended after writing the note and before syncing the directory. */
        snprintf(r->aside, sizeof r->aside, "%s%s", r->dir, r->note.aside);
        if (io->fsync(r->dir_fd) != 0)
            result = failed(r, r->dir, "cannot sync");
    }
    if (result == JOURNAL_OK && r->note.stage == REPAIR_MOVING)
        result = move_all(r);
    return result == JOURNAL_OK ? finish(r, out) : result;
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
