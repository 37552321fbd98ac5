#include "streams/archive/file_archive.h"

#include "base/work_thread.h"
#include "base/errno_class.h"
#include "base/io.h"
#include "base/log.h"
#include "streams/archive/archive_lock.h"
#include "streams/archive/archive_part.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <time.h>

#define FINISHING_MAX 32 /* file_archive_is_full is true while more complete files are unpublished */
/* Number of descriptors for two locks, the new state file, and a directory that is being synced. */
#define OWN_DESCRIPTORS 4
/* Disk space that lines must not use: a sixteenth of the file system, at most RESERVE_MAX. */
#define RESERVE_MAX ((uint64_t)1 << 20)
#define RESERVE_SHARE 16
#define COMMIT_RETRY (200 * USEC_PER_MSEC) /* delay after a commit that a shortage prevented */
#define SHORTAGE_LOG_INTERVAL (60 * USEC_PER_SEC)
#define SPANS_MAX 1024 /* size of the cache of spans; span n has the slot n modulo SPANS_MAX */

enum shortage_kind {
    SHORTAGE_TO_WRITE,  /* a write or commit failed */
    SHORTAGE_TO_TAKE,   /* the next line does not fit without using the reserve */
    SHORTAGE_TO_FINISH, /* complete files cannot be published */
    SHORTAGE_KINDS,
};

struct shortage {
    bool on;
    char text[ERROR_TEXT];
};

/* A range of times with the same file name, and the file that gets the lines with these times. */
struct cached_span {
    struct archive_span times;
    struct archive_part *part; /* the file; NULL: no line yet */
    bool used;
};

struct commit {
    struct archive_state state; /* the new state */
    int *fds;                   /* files to sync before the state is replaced */
    size_t n_fds;
    bool sync_staging; /* the staging directory must be synced too */
    int error;         /* errno of the failure, or 0 */
    bool sync_failed;  /* true: a sync failed; false: writing the state failed, or nothing failed */
};

struct file_archive {
    struct file_archive_config config;
    char *state_path, *format, *directory, *staging, *stream;
    struct stream_cursor cursor;
    struct archive_state committed;
    struct archive_part **parts; /* the unfinished files, in the order of their first lines */
    size_t n_parts, room_parts;
    int64_t span; /* length of a span in seconds, see span_of */
    struct cached_span spans[SPANS_MAX];
    char name[PATH_MAX]; /* the last result of name_of_time */
    struct work_thread *committer;
    struct archive_finisher *finisher;
    struct commit commit; /* used only by the committer's thread while `committing` is true */
    bool committing;
    bool changed; /* the state has changed since the last commit began */
    bool has_state;
    bool at_once;                 /* the next commit does not wait for commit_every */
    bool goes_back;               /* the cursor moves to back_to once all files are published */
    struct stream_cursor back_to; /* position after a gap, before the cursor */
    usec_t changed_at, now, commit_at;
    int lock_fd, names_fd;
    struct shortage shortages[SHORTAGE_KINDS];
    bool shortage_logged;   /* the start of a shortage was logged, but not its end */
    usec_t shortage_log_at; /* earliest time of the next log line about a shortage */
    size_t next_line;       /* length of the line that waits for disk space; 1: no line waits */
    bool was_full; /* a write found no space, so complete files are published before lines are written */
    bool failed;
    char failure[ERROR_TEXT];
    struct file_archive_numbers numbers;
};

static void note_change(struct file_archive *a)
{
    if (!a->changed)
        a->changed_at = a->now;
    a->changed = true;
}

static void set_failed(struct file_archive *a, const char *text)
{
    if (!a->failed)
        log_error("storage failed: no lines are written until a restart", LOG_S("error", text));
    snprintf(a->failure, sizeof a->failure, "%s", text);
    a->failed = true;
}

/* Returns the text of the most severe shortage, or NULL. */
static const char *shortage_text(const struct file_archive *a)
{
    for (int i = 0; i < SHORTAGE_KINDS; i++)
        if (a->shortages[i].on)
            return a->shortages[i].text;
    return NULL;
}

/* Logs the start and the end of a shortage, at most once per minute, because a shortage may start and end many times
 * per minute. */
static void log_shortage(struct file_archive *a)
{
    const char *text = shortage_text(a);
    if (text && a->now >= a->shortage_log_at) {
        log_error("waiting for space, descriptors or memory", LOG_S("error", text));
        a->shortage_log_at = a->now + SHORTAGE_LOG_INTERVAL;
        a->shortage_logged = true;
    }
    if (!text && a->shortage_logged) {
        log_info("the shortage is over");
        a->shortage_logged = false;
    }
}

/* Begins a shortage with this text, or ends the shortage if `text` is NULL. */
static void set_shortage(struct file_archive *a, enum shortage_kind kind, const char *text)
{
    struct shortage *s = &a->shortages[kind];
    snprintf(s->text, sizeof s->text, "%s", text ? text : "");
    a->numbers.shortages += text && !s->on;
    s->on = text != NULL;
    log_shortage(a);
}

static void set_trouble(struct file_archive *a, enum shortage_kind kind, bool passes, const char *text)
{
    if (passes)
        set_shortage(a, kind, text);
    else
        set_failed(a, text);
}

static bool cannot_write(const struct file_archive *a)
{
    return a->shortages[SHORTAGE_TO_WRITE].on || a->failed;
}

static size_t count_stage(const struct file_archive *a, enum archive_part_stage stage)
{
    size_t n = 0;
    for (size_t i = 0; i < a->n_parts; i++)
        n += a->parts[i]->stage == stage;
    return n;
}

/* Returns true if free space must be used to publish complete files, not for new lines. On a full disk, an operator can
 * free space only by removing published files. */
static bool finishes_first(const struct file_archive *a)
{
    return a->was_full && count_stage(a, PART_SETTLED) + count_stage(a, PART_FINISHING) > 0;
}

static void close_part(struct file_archive *a, struct archive_part *p)
{
    p->stage = PART_CLOSED;
    p->state.finishing = true;
    note_change(a);
}

static void close_idlest(struct file_archive *a)
{
    struct archive_part *idlest = NULL;
    for (size_t i = 0; i < a->n_parts; i++)
        if (a->parts[i]->stage == PART_OPEN && (!idlest || a->parts[i]->last_taken < idlest->last_taken))
            idlest = a->parts[i];
    close_part(a, idlest);
}

/* Syncs and closes one complete file, to free its descriptor. Returns false if no complete file has a descriptor, or if
 * the sync failed. */
static bool free_descriptor(struct file_archive *a)
{
    struct archive_part *p = NULL;
    struct error error;
    for (size_t i = 0; i < a->n_parts && !p; i++) {
        struct archive_part *q = a->parts[i];
        if (q->stage == PART_CLOSED && q->fd >= 0 && !q->syncing && archive_part_unwritten(q) == 0)
            p = q;
    }
    if (!p)
        return false;
    if (p->unsynced && io->fdatasync(p->fd) != 0) {
        error_set(&error, -1, "sync of %s: %s", p->state.staged, strerror(errno));
        set_failed(a, error.text);
        return false;
    }
    p->unsynced = false;
    archive_part_close(p);
    return true;
}

/* Writes the part's lines. Returns -1 if a line could not be written. */
static int write_part(struct file_archive *a, struct archive_part *p)
{
    struct error error;
    size_t before = archive_part_unwritten(p);
    int rc, failed = 0;
    do
        rc = archive_part_write(p, &error) == 0 ? 0 : (failed = errno, -1);
    while (rc != 0 && errno_is_fd_limit(failed) && free_descriptor(a));
    a->was_full = a->was_full || (rc != 0 && errno_is_full(failed));
    if (rc != 0 && !a->failed)
        set_trouble(a, SHORTAGE_TO_WRITE, errno_is_shortage(failed), error.text);
    a->numbers.pending -= before - archive_part_unwritten(p);
    return rc;
}

void file_archive_write(struct file_archive *a)
{
    for (size_t i = 0; i < a->n_parts && !cannot_write(a) && !finishes_first(a); i++)
        write_part(a, a->parts[i]);
}

bool file_archive_has_state(const struct file_archive *a)
{
    return a->has_state;
}

void file_archive_make_state(struct file_archive *a)
{
    note_change(a);
    a->at_once = true;
}

void file_archive_begin(struct file_archive *a, const struct stream_cursor *at)
{
    assert(a->cursor.id[0] == '\0');
    a->cursor = *at;
    file_archive_make_state(a);
}

/* Returns the disk space for further lines: the free space minus the reserve and the lines in memory. */
static uint64_t disk_room(const struct file_archive *a, uint64_t *reserve)
{
    struct statvfs fs;
    if (statvfs(a->directory, &fs) != 0 || fs.f_blocks == 0)
        return UINT64_MAX;
    uint64_t all = (uint64_t)fs.f_blocks * fs.f_frsize, free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
    *reserve = all / RESERVE_SHARE < RESERVE_MAX ? all / RESERVE_SHARE : RESERVE_MAX;
    uint64_t used = *reserve + a->numbers.pending;
    return free_bytes > used ? free_bytes - used : 0;
}

static void check_room(struct file_archive *a, uint64_t room, uint64_t reserve)
{
    struct error error;
    if (room >= a->next_line) {
        set_shortage(a, SHORTAGE_TO_TAKE, NULL);
        return;
    }
    error_set(&error, -1, "%s: %s: the last %" PRIu64 " kB are reserved for the state and the manifests",
        a->directory, strerror(ENOSPC), reserve >> 10);
    set_shortage(a, SHORTAGE_TO_TAKE, error.text);
}

struct bytes file_archive_fitting(struct file_archive *a, struct bytes lines)
{
    uint64_t reserve = 0, room = disk_room(a, &reserve);
    struct bytes fitting = lines;
    a->next_line = 1;
    if (lines.len > room) {
        const char *last = memrchr(lines.ptr, '\n', (size_t)room);
        fitting.len = last ? (size_t)(last + 1 - lines.ptr) : 0;
        const char *next = lines.ptr + fitting.len;
        a->next_line = (size_t)((char *)memchr(next, '\n', lines.len - fitting.len) + 1 - next);
    }
    check_room(a, room, reserve);
    return fitting;
}

/* The operator sets the format. A format from outside is safe, because strftime's conversions read no arguments. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
/* Returns the file name for lines with this time, valid until the next call. If strftime fails because of a time beyond
 * the calendar or a long name, returns the format itself. */
static const char *name_of_time(struct file_archive *a, int64_t time)
{
    time_t t = (time_t)time;
    struct tm tm;
    if (!(a->config.local_time ? localtime_r(&t, &tm) : gmtime_r(&t, &tm)) ||
        strftime(a->name, sizeof a->name, a->format, &tm) == 0)
        snprintf(a->name, sizeof a->name, "%s", a->format);
    return a->name;
}
#pragma GCC diagnostic pop

/* Returns the cached span of a time, so that most lines need no strftime. A span is an hour, or a minute in a local
 * time zone, because clocks are not set back within such a span. If the first and the last second of a span have the
 * same name, all its seconds have this name. */
static struct cached_span *span_of(struct file_archive *a, int64_t time)
{
    struct cached_span *s = &a->spans[(uint64_t)time / (uint64_t)a->span % SPANS_MAX];
    if (s->used && time >= s->times.first && time <= s->times.last)
        return s;
    int64_t first = time - time % a->span, last = first + a->span - 1;
    char *name = mem_strdup(name_of_time(a, first));
    bool one_name = strcmp(name, name_of_time(a, last)) == 0;
    free(name);
    *s = (struct cached_span){.times = {time, time}, .used = true};
    if (one_name)
        s->times = (struct archive_span){.first = first, .last = last};
    return s;
}

/* Returns the open file with this name, or begins a file. */
static struct archive_part *open_part(struct file_archive *a, const char *name)
{
    struct buf staged = {0};
    for (size_t i = a->n_parts; i-- > 0;)
        if (a->parts[i]->stage == PART_OPEN && strcmp(a->parts[i]->state.name, name) == 0)
            return a->parts[i];
    if (!a->config.by_event_time)
        file_archive_roll(a);
    else if (count_stage(a, PART_OPEN) >= a->config.max_open)
        close_idlest(a);
    /* The offset of the first line makes the staged name unique. */
    buf_printf(&staged, "%s/%" PRIu64 ".part", a->staging, a->cursor.offset);
    struct archive_part *p = archive_part_new(name, staged.ptr, a->cursor.offset);
    buf_free(&staged);
    *ARRAY_ADD(a->parts, a->n_parts, a->room_parts) = p;
    return p;
}

void file_archive_take(struct file_archive *a, const char *opening, const struct archive_run *runs, size_t n)
{
    for (const struct archive_run *run = runs; run < runs + n; run++) {
        struct cached_span *s = span_of(a, run->time);
        if (!s->part || s->part->stage != PART_OPEN)
            s->part = open_part(a, name_of_time(a, run->time));
        a->cursor.offset += run->lines.len;
        archive_part_take(s->part, run->lines, run->n, a->cursor.offset);
        s->part->last_taken = a->now;
        a->numbers.bytes += run->lines.len;
        a->numbers.pending += run->lines.len;
    }
    snprintf(a->cursor.opening, sizeof a->cursor.opening, "%s", opening);
    /* Large pieces are written directly from the caller's memory. Small pieces are copied. */
    for (size_t i = 0; i < a->n_parts; i++) {
        struct archive_part *p = a->parts[i];
        if (p->taken.n > 0)
            snprintf(p->state.opening, sizeof p->state.opening, "%s", opening);
        bool worth = p->taken.bytes >= ARCHIVE_PART_PIECE || archive_part_unwritten(p) >= ARCHIVE_PART_BUFFER;
        if (p->taken.n > 0 && worth && !cannot_write(a))
            write_part(a, p);
        else if (p->taken.n > 0)
            archive_part_keep(p);
    }
    if (a->numbers.pending >= a->config.max_pending / 2)
        file_archive_write(a);
    note_change(a);
}

void file_archive_roll(struct file_archive *a)
{
    for (size_t i = 0; i < a->n_parts; i++)
        if (a->parts[i]->stage == PART_OPEN)
            close_part(a, a->parts[i]);
}

static void move_over_gap(struct file_archive *a)
{
    a->goes_back = false;
    a->cursor = a->back_to;
    note_change(a);
}

void file_archive_gap(struct file_archive *a, const struct stream_cursor *after)
{
    file_archive_roll(a);
    a->goes_back = after->offset < a->cursor.offset;
    a->back_to = *after;
    if (!a->goes_back)
        move_over_gap(a);
}

static void free_commit(struct commit *c)
{
    archive_state_free(&c->state);
    free(c->fds);
    *c = (struct commit){.n_fds = 0};
}

/* Makes the lines durable, and then the state that includes the lines. Runs in the committer's thread. */
static void run_commit(void *ctx, void *commit)
{
    struct file_archive *a = ctx;
    struct commit *c = commit;
    bool failed = false;
    /* The writes of all files start before the first sync waits, so that the disk flushes its cache less often. */
    for (size_t i = 0; i < c->n_fds && c->n_fds > 1; i++)
        (void)sync_file_range(c->fds[i], 0, 0, SYNC_FILE_RANGE_WRITE);
    for (size_t i = 0; i < c->n_fds && !failed; i++)
        failed = io->fdatasync(c->fds[i]) != 0;
    c->sync_failed = failed || (c->sync_staging && io_sync_dir(a->staging) != 0);
    c->error = c->sync_failed ? errno : 0;
    if (c->error == 0 && archive_state_write(a->state_path, &c->state) != 0)
        c->error = errno;
}

/* Writes all lines in memory, and starts a commit of the lines. Returns -1 if a write failed. */
static int start_commit(struct file_archive *a)
{
    struct commit *c = &a->commit;
    for (size_t i = 0; i < a->n_parts; i++)
        if (write_part(a, a->parts[i]) != 0)
            return -1;
    *c = (struct commit){.fds = mem_alloc((a->n_parts + 1) * sizeof *c->fds)};
    snprintf(c->state.stream, sizeof c->state.stream, "%s", a->stream);
    c->state.cursor = a->cursor;
    for (size_t i = 0; i < a->n_parts; i++) {
        struct archive_part *p = a->parts[i];
        archive_state_add(&c->state, &p->state);
        if (p->unsynced)
            c->fds[c->n_fds++] = p->fd;
        c->sync_staging = c->sync_staging || p->unsynced_name;
        p->syncing = p->unsynced;
        p->syncing_name = p->unsynced_name;
        p->unsynced = p->unsynced_name = false;
    }
    a->changed = a->at_once = false;
    a->committing = true;
    work_thread_start(a->committer, c);
    return 0;
}

/* Name of a file in the staging directory. The file shows that a state owns the staged files (invariant 2). */
#define MARK "has-state"

static void mark_staging(struct file_archive *a)
{
    char *path = mem_printf("%s/" MARK, a->staging);
    int fd = io->open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd >= 0)
        io->close(fd);
    free(path);
}

static void end_commit(struct file_archive *a)
{
    struct commit *c = &a->commit;
    bool done = c->error == 0;
    a->committing = false;
    for (size_t i = 0; i < a->n_parts; i++) {
        struct archive_part *p = a->parts[i];
        /* After a failed commit, the next commit syncs the same files again. */
        p->unsynced = p->unsynced || (p->syncing && !done);
        p->unsynced_name = p->unsynced_name || (p->syncing_name && !done);
        p->syncing = p->syncing_name = false;
    }
    if (!done) {
        struct error error;
        /* Only a failed fsync is final. EMFILE means that a directory could not be opened, not that an fsync failed. */
        bool passes = c->sync_failed ? errno_is_fd_limit(c->error) : errno_is_shortage(c->error);
        error_set(&error, -1, "%s%s: %s", c->sync_failed ? "sync in " : "",
            c->sync_failed ? a->staging : a->state_path, strerror(c->error));
        note_change(a);
        a->was_full = a->was_full || errno_is_full(c->error);
        a->commit_at = a->now + COMMIT_RETRY;
        set_trouble(a, SHORTAGE_TO_WRITE, passes, error.text);
        while (errno_is_fd_limit(c->error) && free_descriptor(a))
            continue;
    } else {
        set_shortage(a, SHORTAGE_TO_WRITE, NULL);
        if (!a->has_state)
            mark_staging(a);
        a->has_state = true;
        archive_state_free(&a->committed);
        a->committed = c->state;
        c->state = (struct archive_state){.n_files = 0};
        a->numbers.commits++;
        /* Publish only files that the durable state records as complete. */
        for (size_t i = 0; i < a->committed.n_files; i++) {
            const struct archive_file_state *s = &a->committed.files[i];
            for (size_t k = 0; k < a->n_parts && s->finishing; k++) {
                struct archive_part *p = a->parts[k];
                if (p->stage != PART_CLOSED || strcmp(p->state.staged, s->staged) != 0 ||
                    p->state.length != s->length)
                    continue;
                p->stage = PART_SETTLED;
                archive_part_close(p);
            }
        }
    }
    free_commit(c);
}

void file_archive_tick(struct file_archive *a, usec_t wall, usec_t monotonic)
{
    struct archive_finished f;
    uint64_t reserve = 0, room;
    a->now = monotonic;
    log_shortage(a);
    room = disk_room(a, &reserve);
    check_room(a, room, reserve);
    if (work_thread_done(a->committer))
        end_commit(a);
    while ((f = archive_finisher_collect(a->finisher, a->now)).part) {
        if (f.error.code != 0) {
            set_trouble(a, SHORTAGE_TO_FINISH, f.shortage, f.error.text);
            if (a->config.compression != ARCHIVE_PLAIN)
                a->was_full = false; /* lines may fit on the disk although a compressed file does not */
            continue;
        }
        if (f.part->state.lines > 0) {
            log_info("published", LOG_S("path", f.part->state.name), LOG_U("lines", f.part->state.lines),
                LOG_U("bytes", f.part->state.length));
            a->numbers.finished++;
        }
        size_t at = 0;
        const char *shortage = NULL;
        while (a->parts[at] != f.part)
            at++;
        a->n_parts--;
        memmove(a->parts + at, a->parts + at + 1, (a->n_parts - at) * sizeof *a->parts);
        for (size_t i = 0; i < SPANS_MAX; i++)
            a->spans[i].part = NULL;
        archive_part_free(&f.part);
        note_change(a);
        a->at_once = true;
        /* The shortage ends when no staged file waits for space, descriptors or memory. */
        for (size_t i = 0; i < a->n_parts && !shortage; i++)
            shortage = a->parts[i]->shortage;
        set_shortage(a, SHORTAGE_TO_FINISH, shortage);
    }
    /* After a crash or a change of max_open, more than max_open files may be open. The surplus files are completed,
     * because file_archive_is_full would otherwise stay true. */
    while (count_stage(a, PART_OPEN) > a->config.max_open)
        close_idlest(a);
    for (size_t i = 0; i < a->n_parts; i++) {
        struct archive_part *p = a->parts[i];
        if (p->stage != PART_OPEN)
            continue;
        bool idle = a->config.by_event_time
                        ? a->now - p->last_taken >= a->config.close_after
                        : strcmp(name_of_time(a, wall / USEC_PER_SEC), p->state.name) != 0;
        if (idle)
            close_part(a, p);
    }
    if (a->failed)
        return;
    /* `changed` is false once a durable state without files is stored. */
    if (a->goes_back && a->n_parts == 0 && !a->committing && !a->changed) {
        move_over_gap(a);
    }
    bool urgent = a->at_once || a->shortages[SHORTAGE_TO_WRITE].on || count_stage(a, PART_CLOSED) > 0 ||
                  a->numbers.pending >= a->config.max_pending;
    bool may_commit = !a->committing && a->changed && a->now >= a->commit_at && !finishes_first(a);
    if (may_commit && (urgent || a->now - a->changed_at >= a->config.commit_every))
        start_commit(a);
    archive_finisher_start(a->finisher, a->parts, a->n_parts, a->cursor.id, a->was_full, a->now);
    a->was_full = a->was_full && (a->shortages[SHORTAGE_TO_WRITE].on || finishes_first(a));
}

int file_archive_flush(struct file_archive *a)
{
    for (;;) {
        if (work_thread_wait(a->committer))
            end_commit(a);
        if (cannot_write(a))
            return -1;
        if (!a->changed)
            return 0;
        if (start_commit(a) != 0)
            return -1;
    }
}

/* Returns whether the path is that of a staged file in the state, or of a file that archive_finish creates beside a
 * staged file. */
static bool is_of_state(const struct file_archive *a, const char *path)
{
    for (size_t i = 0; i < a->committed.n_files; i++) {
        const char *staged = a->committed.files[i].staged;
        size_t n = strlen(staged);
        if (strncmp(path, staged, n) == 0 && (path[n] == '\0' || path[n] == '.'))
            return true;
    }
    return false;
}

/* Deletes staged files that are not in the state, which a crash has left. If MARK exists and files are staged but the
 * state is missing, fails and deletes nothing. If the state is missing and no files are staged, deletes MARK, because
 * later staged files do not belong to the missing state. */
static int clean_staging(struct file_archive *a, struct error *error)
{
    DIR *d = io_make_dirs(a->staging) == 0 ? opendir(a->staging) : NULL;
    struct buf path = {0};
    bool marked = false, others = false;
    if (!d)
        return error_errno(error, -1, a->staging);
    for (struct dirent *e; (e = readdir(d));) {
        marked = marked || strcmp(e->d_name, MARK) == 0;
        others = others || (*e->d_name != '.' && strcmp(e->d_name, MARK) != 0);
    }
    if (marked && others && !a->has_state) {
        closedir(d);
        return error_set(error, -1,
            "%s contains files of an archive whose state %s is missing: restore the state, or delete the "
            "files",
            a->staging, a->state_path);
    }
    rewinddir(d);
    for (struct dirent *e; (e = readdir(d));) {
        bool mark = strcmp(e->d_name, MARK) == 0;
        buf_clear(&path);
        buf_printf(&path, "%s/%s", a->staging, e->d_name);
        if (*e->d_name != '.' && (mark ? !a->has_state : !is_of_state(a, path.ptr)))
            io->unlink(path.ptr);
    }
    closedir(d);
    buf_free(&path);
    if (a->has_state && !marked)
        mark_staging(a);
    return 0;
}

static int recover(struct file_archive *a, struct error *error)
{
    int found = archive_state_read(a->state_path, &a->committed, error);
    a->has_state = found > 0;
    if (found < 0 || clean_staging(a, error) != 0)
        return -1;
    if (!a->has_state)
        return 0;
    if (strcmp(a->committed.stream, a->stream) != 0)
        return error_set(error, -1, "%s is the state of the stream %s, not of %s", a->state_path,
            a->committed.stream, a->stream);
    a->cursor = a->committed.cursor;
    a->parts = mem_zalloc((a->committed.n_files + 1) * sizeof *a->parts);
    for (size_t i = 0; i < a->committed.n_files; i++) {
        a->parts[i] = archive_part_recover(&a->committed.files[i], error);
        if (!a->parts[i])
            return -1;
        a->parts[i]->last_taken = a->now;
        a->n_parts++;
    }
    return 0;
}

size_t file_archive_descriptors(size_t max_open)
{
    return max_open + ARCHIVE_FINISHER_DESCRIPTORS + OWN_DESCRIPTORS;
}

struct file_archive *file_archive_open(
    const struct file_archive_config *config, usec_t monotonic, struct error *error)
{
    struct file_archive *a = mem_zalloc(sizeof *a);
    a->config = *config;
    a->config.max_open = config->by_event_time ? config->max_open : 1;
    a->now = monotonic;
    a->next_line = 1;
    a->lock_fd = a->names_fd = -1;
    a->state_path = mem_strdup(config->state_path);
    a->format = mem_strdup(config->format);
    a->stream = mem_strdup(config->stream);
    size_t fixed = archive_fixed_directory(a->format);
    a->directory = fixed > 0 ? bytes_dup(bytes_of(a->format, fixed)) : mem_strdup(".");
    a->staging = archive_staging_directory(a->format);
    /* In a time zone, clocks may be set back a minute after midnight. UTC clocks are never set back. */
    a->span = config->local_time ? 60 : 3600;
    a->committer = work_thread_new(&(struct work_thread_config){
        .run = run_commit, .ctx = a, .notify = config->wake, .notify_arg = config->arg});
    if (!a->committer)
        abort();
    a->finisher = archive_finisher_new(a->stream, config->compression, config->wake, config->arg);
    a->lock_fd = archive_lock_state(a->state_path, error);
    if (a->lock_fd >= 0)
        a->names_fd = archive_lock_names(a->format, a->state_path, error);
    if (a->names_fd < 0 || recover(a, error) != 0)
        file_archive_close(&a);
    return a;
}

void file_archive_close(struct file_archive **ap)
{
    struct file_archive *a = *ap;
    if (!a)
        return;
    work_thread_free(&a->committer);
    archive_finisher_free(&a->finisher);
    free_commit(&a->commit);
    archive_state_free(&a->committed);
    for (size_t i = 0; i < a->n_parts; i++)
        archive_part_free(&a->parts[i]);
    free(a->parts);
    if (a->names_fd >= 0)
        io->close(a->names_fd);
    if (a->lock_fd >= 0)
        io->close(a->lock_fd);
    free(a->state_path);
    free(a->format);
    free(a->stream);
    free(a->directory);
    free(a->staging);
    free(a);
    *ap = NULL;
}

const struct stream_cursor *file_archive_cursor(const struct file_archive *a)
{
    return &a->cursor;
}

const struct stream_cursor *file_archive_committed(const struct file_archive *a)
{
    return &a->committed.cursor;
}

struct archive_span file_archive_span_of(struct file_archive *a, int64_t time)
{
    return span_of(a, time)->times;
}

bool file_archive_is_full(const struct file_archive *a)
{
    return cannot_write(a) || a->goes_back || a->shortages[SHORTAGE_TO_TAKE].on || finishes_first(a) ||
           a->numbers.pending > a->config.max_pending || a->n_parts > a->config.max_open + FINISHING_MAX;
}

const char *file_archive_trouble(const struct file_archive *a, bool *final)
{
    *final = a->failed;
    return a->failed ? a->failure : shortage_text(a);
}

struct file_archive_numbers file_archive_numbers(const struct file_archive *a)
{
    struct file_archive_numbers n = a->numbers;
    n.open = count_stage(a, PART_OPEN);
    n.finishing = a->n_parts - n.open;
    n.is_short = shortage_text(a) != NULL;
    return n;
}
